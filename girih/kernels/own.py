"""What girih's own operators compute, as PyTorch functions: `KERNELS["girih.NAME"](tensors..., attributes...)`.

ATen fuses what does not divide (a batch norm that makes its own mean), or returns several tensors at once.
These operators are the pieces that divide: each makes one tensor, each reduction carries the global `count`
or size, so that the results of pieces add up to the whole's. Parameters are named as in the Graph.
They never write into their arguments. What they hold beside operands and result is small: they work in place on
their own result, and sum products slice by slice; what remains is told by the operators' `temporary` rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import torch

from girih.kernels import is_fake
from girih.kernels.attention import ATTENTION_KERNELS
from girih.kernels.exact import EXACT_KERNELS
from girih.kernels.factors import FACTOR_KERNELS
from girih.kernels.groups import GROUP_KERNELS
from girih.kernels.neighbours import NEIGHBOUR_KERNELS
from girih.kernels.paths import PATH_KERNELS
from girih.kernels.philox import as_dtype, random_integers, random_mask, random_normal, random_uniform
from girih.kernels.scripted import SCRIPTED_KERNELS
from girih.kernels.tiles import TILE_KERNELS
from girih.kernels.windows import convolution_input_gradient, convolution_weight_gradient, max_pool, max_pool_gradient
from girih.layout.compiled import compiled
from girih.ops.derive.temporaries import (
    COUNTED,
    NEIGHBOURS,
    STRETCH,
    by_channel,
    kept_and_reduced,
    slice_size,
    slices,
    summed_item_bytes,
)

Tensor = Any  # torch is untyped for the type checker

Sizes = Sequence[int]

# Normalisation


def centered_square_mean(input: Tensor, mean: Tensor, dims: Sizes, count: int) -> Tensor:
    """Σ (input - mean)² / count, dimensions kept."""
    return _summed(lambda part, centre: (part - centre).square_(), dims, input, mean).div_(count)


def normalise(
    input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """(input - mean) · scale · weight + bias, everything broadcast."""
    if _by_channel((input,), (mean, scale, weight, bias)):
        return _affine(input, mean, _product(scale, weight), bias)
    return _scaled(input - mean, scale, weight, bias)


def normalise_over(
    input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """The same, written over the input, which has the result's shape and dtype."""
    if _by_channel((input,), (mean, scale, weight, bias)):
        return _affine(input, mean, _product(scale, weight), bias, out=input)
    return _scaled(input.sub_(mean), scale, weight, bias)


def _scaled(out: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = _times(out, scale)
    if weight is not None:
        out = _times(out, weight)
    if bias is not None:
        out = _in_place(out, torch.Tensor.add_, torch.add, bias)
    return out


def normalised_dot(
    grad: Tensor, input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, dims: Sizes = ()
) -> Tensor:
    """Σ grad · weight · (input - mean) · scale, dimensions kept."""
    if weight is None and _dot_by_channel_takes(dims, (input, grad), (mean, scale)):
        return _dot_by_channel(grad, input, mean, scale)

    def element(grad: Tensor, input: Tensor, mean: Tensor, scale: Tensor, *weight: Tensor) -> Tensor:
        out = _times(_times(input - mean, scale), grad)
        return _times(out, weight[0]) if weight else out

    return _summed(element, dims, *(item for item in (grad, input, mean, scale, weight) if item is not None))


def normalise_input_gradient(
    grad: Tensor, input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, sum: Tensor = None,
    dot: Tensor = None, count: int = 1,
) -> Tensor:  # fmt: skip
    """scale · (grad · weight - (sum + (input - mean) · scale · dot) / count)."""
    if _by_channel((input, grad), (mean, scale, weight, sum, dot)):
        factor = torch.mul(scale, dot).mul_(scale).div_(-count)
        out = _affine(input, mean, factor, torch.mul(scale, sum).div_(-count))
        return out.addcmul_(grad, _product(scale, weight))
    out = torch.sub(input, mean, out=_like(grad, input, mean))
    out = _times(out, scale * dot)
    out = _in_place(out, torch.Tensor.add_, torch.add, sum).div_(-count)
    if weight is None:
        out = _in_place(out, torch.Tensor.add_, torch.add, grad)
    elif _fits(out, grad, weight):
        out.addcmul_(grad.to(out.dtype), weight.to(out.dtype))
    else:
        out = out + grad * weight
    return _times(out, scale)


# Batch norm's parts where there is one number for each channel, [1, C, 1, …] beside [N, C, …], by PyTorch's kernels.
# PyTorch has none that normalises by given moments, and none for a gradient by given sums, which is what a divided
# batch norm needs. But its inference, (x - mean) · weight + bias, is the first, and half of the second; and its
# gradient by the weight is the sum that pieces add up. Each goes through its operands once, where the general kernels
# go through them for each arithmetic operation. As PyTorch's own, they compute x · factor + term.


def _by_channel(tensors: Sequence[Tensor], numbers: Sequence[Tensor | None]) -> bool:
    """Whether these are tensors of one shape, and numbers for each channel, as the kernels below take them."""
    first, *others = tensors
    there = [item for item in numbers if item is not None]
    return (
        first.dtype in (torch.float32, torch.float64)
        and all(item.dtype == first.dtype and item.is_contiguous() for item in (*tensors, *there))
        and all(item.shape == first.shape for item in others)
        and by_channel(first.shape, *(item.shape for item in there))
    )


def _dot_by_channel_takes(dims: Sequence[int], tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> bool:
    """Whether `_dot_by_channel` is the sum over `dims`, and fast."""
    rank, shape = tensors[0].dim(), tensors[0].shape
    every_other = sorted(dim % rank for dim in dims) == [d for d in range(rank) if d != 1] if rank else False
    return every_other and math.prod(shape[2:]) >= NEIGHBOURS and _by_channel(tensors, numbers)


def _product(scale: Tensor, weight: Tensor | None) -> Tensor:
    return scale if weight is None else scale * weight


def _affine(x: Tensor, mean: Tensor, factor: Tensor, term: Tensor | None, out: Tensor | None = None) -> Tensor:
    """(x - mean) · factor + term; out: x, to write over it."""
    flat = [None if item is None else item.reshape(-1) for item in (factor, term, mean)]
    ones = mean.new_ones(mean.numel())  # the variance: PyTorch multiplies by 1 / √(1 + 0)
    if out is None:
        return torch.native_batch_norm(x, *flat, ones, False, 0.0, 0.0)[0]
    unused = x.new_empty(0), x.new_empty(0)
    return torch.native_batch_norm(x, *flat, ones, False, 0.0, 0.0, out=(out, *unused))[0]


def _dot_by_channel(grad: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Σ grad · (x - mean) · scale over all but channels, dimensions kept."""
    moments = mean.reshape(-1), scale.reshape(-1)
    if grad.is_cuda:  # where the kernel below makes all of its results or none
        reduce_ = torch.ops.aten.batch_norm_backward_reduce.default
        return reduce_(grad, x, *moments, None, True, False, False)[1].reshape(mean.shape).mul_(scale)
    backward = torch.ops.aten.native_batch_norm_backward.default
    sums = backward(grad, x, None, None, None, *moments, True, 0.0, [False, True, False])[1]
    return sums.reshape(mean.shape)


def product_sum(a: Tensor, b: Tensor, dims: Sizes) -> Tensor:
    """Σ a · b, dimensions kept."""
    return _summed(torch.mul, dims, a, b)


def masked_sum(input: Tensor, mask: Tensor) -> Tensor:
    """Σ of the rows of `input` that `mask`, which has its leading dimensions, chooses; only these are read."""
    rows = mask.reshape(-1).nonzero().squeeze(1)
    flat = input.reshape(mask.numel(), *input.shape[mask.dim() :])
    return flat.index_select(0, rows).sum(0, dtype=input.dtype)


def _summed(element: Callable[..., Tensor], dims: Sizes, *tensors: Tensor) -> Tensor:
    """Σ element(tensors...) over `dims`, dimensions kept; made in slices, of kept dimensions where these are enough."""
    shape = torch.broadcast_shapes(*(item.shape for item in tensors))
    rank, dtype = len(shape), reduce(torch.promote_types, (item.dtype for item in tensors))
    kept, reduced = kept_and_reduced(rank, dims)
    size = slice_size(tensors[0].is_cuda)
    cut, extent = slices(shape, summed_item_bytes(dtype.itemsize), kept, reduced, size)
    if not shape or extent >= shape[cut] or not dtype.is_floating_point:
        return element(*tensors).sum(tuple(dims), keepdim=True)

    def part(item: Tensor, start: int) -> Tensor:
        own = cut - rank + item.dim()
        return item if own < 0 or item.shape[own] == 1 else item.narrow(own, start, min(extent, shape[cut] - start))

    exact = torch.promote_types(dtype, torch.float32) if cut in reduced else dtype
    out = tensors[0].new_zeros([1 if d in reduced else size for d, size in enumerate(shape)], dtype=exact)
    for start in range(0, shape[cut], extent):
        parts = [part(item, start) for item in tensors]
        if cut in reduced:
            out += element(*parts).sum(tuple(dims), keepdim=True, dtype=exact)
        else:
            torch.sum(element(*parts), tuple(dims), keepdim=True, out=part(out, start))
    return out.to(dtype)


def _fits(out: Tensor, *others: Tensor) -> bool:
    """Whether `others` combine into `out` without changing its shape or dtype."""
    return all(
        torch.broadcast_shapes(out.shape, other.shape) == out.shape
        and torch.promote_types(out.dtype, other.dtype) == out.dtype
        for other in others
    )


def _like(first: Tensor, other: Tensor, *more: Tensor) -> Tensor | None:
    """Memory for a result in the order of `first`'s dimensions, as PyTorch's element-wise kernels have it."""
    return torch.empty_like(first) if first.shape == other.shape and _fits(first, other, *more) else None


def _in_place(out: Tensor, write: Callable, make: Callable, other: Tensor) -> Tensor:
    return write(out, other) if _fits(out, other) else make(out, other)


def _times(fresh: Tensor, other: Tensor) -> Tensor:
    return _in_place(fresh, torch.Tensor.mul_, torch.mul, other)


# Softmax


FAR = 2.0**30
"""Beyond it numbers of float32 lie so far apart that of Σ exp(x - max) only what equals the maximum is left."""


def logsumexp(input: Tensor, dims: Sizes) -> Tensor:
    """log Σ exp(input) in float64, dimensions kept: float32 has a unit in the last place of 0.001 at 10,000.

    Beyond `FAR`, as in rows that a mask of float32's least number covers whole, float64 would lose the logarithm beside
    the maximum: there it is enlarged with it (`_enlarged`), and `_near_and_rest` makes it as small again.
    """
    if input.numel() == 0:
        return torch.logsumexp(input, tuple(dims), keepdim=True).double()
    top = input.amax(tuple(dims), keepdim=True)
    out = torch.empty_like(top, dtype=torch.float64)  # before what is large: its place is its own from the start
    top.nan_to_num_(nan=torch.nan, posinf=0.0, neginf=0.0)
    out.copy_(_exp_(input - top).sum(tuple(dims), keepdim=True))
    out.log_()
    if input.dtype != out.dtype:
        out.mul_(_enlarged(top))
    return out.add_(top)


def _enlarged(top: Tensor) -> Tensor:
    """By how much the logarithm is enlarged: 1 up to `FAR`."""
    least = _ONE_BY_FAR.get(top.dtype) if top.is_cpu else None
    return top.abs().mul_(1 / FAR if least is None else least).clamp_min_(1.0)


_ONE_BY_FAR = {dtype: torch.tensor(1 / FAR, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
"""As tensors, as `_LOG2_E`."""


def add_logsumexp_(total: Tensor, part: Tensor) -> None:
    """total = log(exp(total) + exp(part)); on a processor also of logarithms that `logsumexp` has enlarged."""
    far = total.dtype == torch.float64 and total.is_cpu and not is_fake(total) and _far(total.numpy(), part.numpy())
    together = _added(total.numpy(), part.numpy()) if np.any(far) else None
    torch.logaddexp(total, part, out=total)
    if together is not None:
        np.copyto(total.numpy(), together, where=far)


def _far(first: Any, second: Any) -> Any:
    """Which numbers are beyond `FAR` in both, as those of float32 can be."""
    least = np.minimum(np.abs(first), np.abs(second))
    return (least > FAR) & (least < np.inf) & (np.maximum(first, second) < np.inf)


def _added(first: Any, second: Any) -> Any:
    """The sum of numbers beyond `FAR`, whose logarithms are enlarged."""
    with np.errstate(all="ignore"):
        tops = [number.astype(np.float32).astype(np.float64) for number in (first, second)]
        rests = [
            np.nan_to_num((number - top) / np.maximum(1.0, np.abs(top) / FAR))
            for number, top in zip((first, second), tops, strict=True)
        ]
        top = np.maximum(*tops)
        sums = np.logaddexp(*(mine - top + rest for mine, rest in zip(tops, rests, strict=True)))
        return top + sums * np.maximum(1.0, np.abs(top) / FAR)


_LOG2_E = {dtype: torch.tensor(math.log2(math.e), dtype=dtype) for dtype in (torch.float32, torch.float64)}
"""As tensors: of a number PyTorch makes two tensors in each call, 12 bytes of a device's memory."""


def _exp_(difference: Tensor) -> Tensor:
    """exp of a rounded difference, in its place.

    PyTorch's exp on a processor takes several times as long as its 2ˣ, and far longer where results underflow, as
    behind a mask of -10⁴. The product with log₂ e rounds no more than the difference did.
    """
    if difference.device.type == "cpu" and difference.dtype in _LOG2_E:
        return difference.mul_(_LOG2_E[difference.dtype]).exp2_()
    return difference.exp_()


def softmax_from(input: Tensor, logsumexp: Tensor) -> Tensor:
    """exp(input - logsumexp)."""
    return _exp_(log_softmax_from(input, logsumexp))


def log_softmax_from(input: Tensor, logsumexp: Tensor) -> Tensor:
    """input - logsumexp, of which what the input's dtype cannot hold is subtracted by itself."""
    near, rest = _near_and_rest(logsumexp, input.dtype)
    return input - near if rest is None else (input - near).sub_(rest)


def log_softmax_from_over(input: Tensor, logsumexp: Tensor) -> Tensor:
    """The same, written over the input, which has the result's shape and dtype."""
    near, rest = _near_and_rest(logsumexp, input.dtype)
    return input.sub_(near) if rest is None else input.sub_(near).sub_(rest)


def _near_and_rest(number: Tensor, dtype: Any) -> tuple[Tensor, Tensor | None]:
    """A number as the sum of two of a dtype; one where that holds it."""
    if number.dtype == dtype:
        return number, None
    near = number.to(dtype)
    rest = near.to(number.dtype)
    torch.sub(number, rest, out=rest).nan_to_num_(0.0)  # of infinity there is no rest
    rest = rest.to(dtype)
    return near, rest.div_(_enlarged(near))


def softmax_gradient(grad: Tensor, output: Tensor, sum: Tensor) -> Tensor:
    """output · (grad - sum), where sum = Σ grad · output."""
    return _times(grad - sum, output)


def log_softmax_gradient(grad: Tensor, output: Tensor, sum: Tensor) -> Tensor:
    """grad - exp(output) · sum, where sum = Σ grad."""
    out = _like(grad, output, sum)
    if out is None:
        return torch.sub(grad, _times(_exp_(output.clone()), sum))
    return torch.sub(grad, _exp_(out.copy_(output)).mul_(sum), out=out)


# Tables


def first_index(input: Tensor, extreme: Tensor, dim: int, first: int = 0) -> Tensor:
    """The least position along `dim`, counted from `first`, at which `input` equals `extreme`; int64's largest if none.

    With the extreme of the whole dimension this is an argmax (argmin) whose pieces combine by Min.
    """
    shape = [1] * input.dim()
    shape[dim] = -1
    position = torch.arange(first, first + input.shape[dim], device=input.device).reshape(shape)
    return torch.where(input == extreme, position, torch.iinfo(torch.int64).max).amin(dim)


def in_table(numbers: Tensor, size: int | None, ignored: int | None = None) -> None:
    """Checks numbers of rows, or of classes, of a whole with `size` of them; None: there is nothing to check.

    Raises:
        IndexError: one of them is neither 0 ... size - 1 nor `ignored`.
    """
    if size is None or not numbers.numel():
        return
    if is_fake(numbers):
        known = (numbers >= 0) & (numbers < size)
        known = known if ignored is None else known | (numbers == ignored)
        torch._assert_async(known.all(), f"an index is none of the {size} rows of its table")
        return
    least, most = torch.stack(numbers.aminmax()).tolist()
    if least >= 0 and most < size:
        return
    wrong = (numbers < 0) | (numbers >= size)
    if ignored is not None:
        wrong &= numbers != ignored
    if bool(wrong.any()):
        raise IndexError(f"the table has rows 0 to {size - 1}, and none {int(numbers[wrong][0])}")


def pick(input: Tensor, index: Tensor, dim: int, first: int = 0, ignored: int = -100, of: int | None = None) -> Tensor:
    """input at position `index` of `dim`, which vanishes; 0 where index - first is outside, as `ignored` is.

    of: the positions of the whole of which this is a part; None: any may be outside.

    Raises:
        IndexError: an index is none of the whole's positions.
    """
    in_table(index, of, ignored)
    place = index.long() - first
    inside = (place >= 0) & (place < input.shape[dim])
    place = place.clamp_(0, max(0, input.shape[dim] - 1)).unsqueeze_(dim)
    return input.gather(dim, place).squeeze_(dim).masked_fill_(~inside, 0)


def place(
    value: Tensor, index: Tensor, dim: int, size: int, first: int = 0, ignored: int = -100, of: int | None = None
) -> Tensor:
    """Zeros with a new dimension `dim` of `size`, `value` at index - first where that is inside: pick's adjoint.

    of: the positions of the whole of which this is a part; None: any may be outside.

    Raises:
        IndexError: an index is none of the whole's positions.
    """
    in_table(index, of, ignored)
    dim = dim % (value.dim() + 1)
    out = value.new_zeros((*value.shape[:dim], size, *value.shape[dim:]))
    spot = index.long() - first
    inside = (spot >= 0) & (spot < size)
    spot = spot.clamp_(0, max(0, size - 1)).unsqueeze_(dim)
    return out.scatter_(dim, spot, torch.where(inside, value, torch.zeros_like(value)).unsqueeze(dim))


def embedding(weight: Tensor, indices: Tensor, first: int | None = None, of: int | None = None) -> Tensor:
    """Rows of a table that begins at row `first` of the whole; 0 for rows outside it. of: the rows of the whole.

    Raises:
        IndexError: `first` is None, which says that the table is whole, or `of` is given, and a row is outside it.
    """
    in_table(indices, len(weight) if first is None else of)
    if first is None:
        return torch.nn.functional.embedding(indices.long(), weight)
    spot = indices.long() - first
    inside = (spot >= 0) & (spot < weight.shape[0])
    rows = torch.nn.functional.embedding(spot.clamp_(0, weight.shape[0] - 1), weight)
    return rows.masked_fill_(~inside.unsqueeze(-1), 0)


def embedding_gradient(
    grad: Tensor, indices: Tensor, rows: int, first: int = 0, padding: int = -1, of: int | None = None
) -> Tensor:
    """Σ of the rows of `grad` whose index is each of first ... first + rows - 1; `padding` is dropped.

    of: the rows of the whole of which these are a part; None: any index may be outside.

    Raises:
        IndexError: an index is none of the whole's rows, nor `padding`.
    """
    in_table(indices, of, padding if padding >= 0 else None)
    flat = grad.reshape(-1, grad.shape[-1])
    index = indices.reshape(-1).long()
    spot = index - first
    inside = (spot >= 0) & (spot < rows)
    if padding >= 0:
        inside &= index != padding
    out = grad.new_zeros(rows, grad.shape[-1])
    whole = first == 0 and rows == of and padding < 0
    if is_fake(inside) and not whole:
        return out.index_add_(0, spot.clamp_(0, rows - 1), flat.masked_fill(~inside.unsqueeze(-1), 0))
    if (
        is_fake(inside) or (whole and not grad.is_cpu) or bool(inside.all())
    ):  # who asks a GPU waits until it has done all
        return out.index_add_(0, spot, flat)
    extent = slices(flat.shape, flat.element_size(), (0,), size=slice_size(flat.is_cuda))[1]
    for part in zip(spot.split(extent), inside.split(extent), flat.split(extent), strict=True):
        chosen = part[1]
        out.index_add_(0, part[0][chosen], part[2][chosen])
    return out


def wrap_index(index: Tensor, size: int) -> Tensor:
    """Indices of `size` elements that count from the end, -size ... -1, counted from the beginning; others as they are,
    so that what is no index is an error where elements are read. Only these have -1 as their quotient, rounded down."""
    return index.div(size, rounding_mode="floor").eq_(-1).mul_(size).add_(index)


def assign(self: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor:
    """A copy with values at places; of several for one place the last, as NumPy has it."""
    out = self.clone(memory_format=torch.contiguous_format)
    place = tuple(slice(None) if item is None else item.numpy() for item in indices)
    out.numpy()[place] = values.resolve_conj().numpy()
    return out


# Sparse matrices


def sparse_product(
    values: Tensor, rows: Tensor, columns: Tensor, x: Tensor, count: int, first: int = 0, start: int = 0
) -> Tensor:
    """Σ of values[p] · x[columns[p] - start] in row rows[p] - first, of `count` rows; others are left out."""
    out = values.new_zeros((count, x.shape[1]))
    _accumulate(out.numpy(), *(item.numpy() for item in (values, rows, columns, x)), first, start)
    return out


@compiled(nogil=True)
def _accumulate(out, values, rows, columns, x, first, start):  # type: ignore[no-untyped-def]
    """out[rows[p] - first] += values[p] · x[columns[p] - start]; what is outside of out or x is left out.

    Elements are taken as they are stored: where they lie in the order of rows, a row of out stays in the cache.
    """
    width = x.shape[1]
    for p in range(len(values)):
        row, column = rows[p] - first, columns[p] - start
        if row < 0 or row >= len(out) or column < 0 or column >= len(x):
            continue
        value = values[p]
        for j in range(width):
            out[row, j] += value * x[column, j]


# Regressions


def ridge_rows(ratings: Tensor, features: Tensor, penalty: float) -> Tensor:
    """For each row r the x of least Σ (r[k] - x·features[k])² + penalty·n·|x|², over the n places k where r[k] ≠ 0.

    What alternating least squares solves for each user (Zhou et al., AAIM 2008); 0 where nothing is rated.
    """
    out = ratings.new_zeros(ratings.shape[0], features.shape[1])
    for row, solution in zip(ratings, out, strict=True):
        places = row.nonzero().squeeze(1)
        if len(places):
            near = features[places]
            gram = near.T @ near
            gram.diagonal().add_(penalty * len(places))
            solution.copy_(torch.linalg.solve(gram, near.T @ row[places]))
    return out


# Factors


def triangular_factor(A: Tensor) -> Tensor:
    """R of A = Q·R, without Q."""
    return torch.linalg.qr(A, mode="r")[1]


def reflection_signs(Q: Tensor) -> Tensor:
    """±1 for each column by which orthonormal columns become those of Householder reflections, as LAPACK's are.

    Q: the first rows of the factor, square. The signs are those of the pivots of Q - S without exchanges (Ballard et
    al., IPDPS 2014, algorithm 5), so that a factor made otherwise is numerically the same as the one made whole.
    """
    rest = Q.clone()
    signs = torch.ones_like(rest.diagonal().real)
    for column in range(len(rest)):
        if rest[column, column].real >= 0:
            signs[column] = -1
        rest[column, column] -= signs[column]
        below = rest[column + 1 :, column] / rest[column, column]
        rest[column + 1 :, column + 1 :] -= torch.outer(below, rest[column, column + 1 :])
    return signs


# Orders


def sort(input: Tensor, dim: int) -> Tensor:
    """Ascending along `dim`, NaN last. NumPy makes no positions beside, and is several times as fast as PyTorch."""
    result = _copy(input)
    result.numpy().sort(axis=dim)
    return result


def partition(input: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """At each of the places along `dim` what sorting would put there; before it nothing larger, behind nothing less."""
    result = _copy(input)
    result.numpy().partition(tuple(places), axis=dim)
    return result


def _copy(input: Tensor) -> Tensor:
    return input.resolve_conj().to("cpu", copy=True, memory_format=torch.contiguous_format)


def partition_indices(input: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """Positions along `dim` in the order that `partition` makes."""
    return torch.from_numpy(np.argpartition(input.resolve_conj().numpy(force=True), tuple(places), axis=dim))


def sort_indices(input: Tensor, dim: int, descending: bool = False) -> Tensor:
    """Positions along `dim` in the order of the values there; equal ones in their own order."""
    return torch.sort(input, dim=dim, descending=descending, stable=True)[1]


def topk_indices(input: Tensor, k: int, dim: int, largest: bool = True) -> Tensor:
    """Positions along `dim` of the k largest (or smallest) values, in their order."""
    return torch.topk(input, k, dim=dim, largest=largest)[1]


LONG_ROW = 256
"""Bytes of a row in which NumPy finds the place of the largest number faster than PyTorch; in shorter ones it takes as
long to begin."""


def argmax(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return _place(x, dim, keepdim, np.argmax, SCRIPTED_KERNELS["girih.argmax"])


def argmin(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    return _place(x, dim, keepdim, np.argmin, SCRIPTED_KERNELS["girih.argmin"])


def _place(x: Tensor, dim: int, keepdim: bool, by_numpy: Callable[..., Any], other: Callable[..., Tensor]) -> Tensor:
    """By NumPy in long rows that lie in memory one after the other."""
    rows = x.dim() > 0 and dim % x.dim() == x.dim() - 1 and x.numel() > 0 and x.is_contiguous()
    numbers = x.dtype in (torch.float32, torch.float64) and x.is_cpu and not (x.requires_grad or x.is_neg())
    long = rows and numbers and x.shape[-1] * x.itemsize >= LONG_ROW
    if not long or is_fake(x) or torch.get_num_threads() != 1:  # several threads share PyTorch's work out
        return other(x, dim, keepdim)
    out = x.new_empty(x.shape[:-1], dtype=torch.int64)
    by_numpy(x.numpy(), axis=-1, out=out.numpy())
    return out.unsqueeze(-1) if keepdim else out


PLACE_KERNELS: dict[str, Callable[..., Tensor]] = {"girih.argmax": argmax, "girih.argmin": argmin}
"""Of `SCRIPTED_KERNELS` too: loops that are compiled call those in short rows, without the interpreter's lock."""
for _operator, _kernel in PLACE_KERNELS.items():
    _name = _operator.replace(".", "::")
    torch.library.define(_name, "(Tensor x, int dim, bool keepdim=False) -> Tensor")
    torch.library.impl(_name, "CPU", _kernel)


def search_sorted(sequence: Tensor, values: Tensor, right: bool = False) -> Tensor:
    """How many elements of an ascending sequence are below each value (right: not above it); NaN is above all."""
    if not sequence.dtype.is_floating_point:
        return torch.searchsorted(sequence, values, right=right)
    known = len(sequence) - int(sequence.isnan().sum())
    positions = torch.searchsorted(sequence[:known], values.contiguous(), right=right)
    return positions.masked_fill_(values.isnan(), len(sequence) if right else known)


def bin_counts(input: Tensor, edges: Tensor) -> Tensor:
    """How many numbers lie in each bin between ascending edges, the last of which belongs to its bin: NumPy's counts,
    of edges at equal distances in one pass."""
    numbers, ends = input.reshape(-1).numpy(force=True), edges.numpy(force=True)
    out = np.zeros(len(ends) - 1, np.int64)
    bins = _numpys_bins(ends, np.result_type(numbers, ends))
    if len(bins) == 2 and numbers.dtype == ends.dtype == np.float64 and _are_apart(ends):
        _count_bins(numbers, ends, out)
    else:
        _add_counts(numbers, bins, out)
    return torch.from_numpy(out)


def _add_counts(numbers: Any, bins: tuple[Any, ...], out: Any) -> None:
    """By NumPy, some numbers at a time: its arrays are then small enough that the system is not asked for their memory
    each time."""
    for start in range(0, len(numbers), COUNTED):
        out += np.histogram(numbers[start : start + COUNTED], *bins)[0]


def _are_apart(ends: Any) -> bool:
    """Is a bin wide enough that the one which a product gives for a number is at most the one beside its own?"""
    return bool(np.diff(ends).min() > 8 * np.spacing(max(abs(ends[0]), abs(ends[-1]))))


def _by_numpy(numbers: Any, ends: Any, out: Any) -> None:
    _add_counts(numbers, (len(out), (ends[0], ends[-1])), out)


@compiled(lambda numbers, ends, out: len(numbers) / 300, plain=_by_numpy, nogil=True)  # whose turns take 3 ns longer
def _count_bins(numbers, ends, out):  # type: ignore[no-untyped-def]
    """out[k] += how many numbers lie between ends[k] and ends[k + 1], which are at equal distances, in the order of the
    numbers. A product says which bin it is, and the edges whether it is the one before or behind."""
    first, last, bins = ends[0], ends[-1], len(out)
    scale = bins / (last - first)
    for i in range(len(numbers)):
        x = numbers[i]
        if first <= x <= last:  # NaN is nowhere
            k = min(int((x - first) * scale), bins - 1)
            if x < ends[k]:
                k -= 1
            elif k + 1 < bins and x >= ends[k + 1]:
                k += 1
            out[k] += 1


def _numpys_bins(ends: Any, dtype: Any) -> tuple[Any, ...]:
    """The number of bins, and where they begin and end, if these are the edges that NumPy then has: it counts by
    arithmetic, where it sorts for other edges."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = 0 < ends[-1] - ends[0] < np.inf
    own = finite and ends.dtype.kind == "f" and dtype == ends.dtype
    if own and np.array_equal(np.linspace(ends[0], ends[-1], len(ends), dtype=dtype), ends):
        return len(ends) - 1, (ends[0], ends[-1])
    return (ends,)


def correlate(input: Tensor, weight: Tensor) -> Tensor:
    """Σ weight[k] · input[i + k] of sequences, wherever all of the weight lies on the input; by NumPy, which has it of
    all numbers and needs no windows in memory."""
    values, weights = input.numpy(force=True), weight.numpy(force=True)
    size, total = len(values) - len(weights) + 1, None
    for start in range(0, len(weights), STRETCH):
        part = weights[start : start + STRETCH][::-1]
        result = np.convolve(values[start : start + len(part) + size - 1], part, "valid")
        total = result if total is None else np.add(total, result, out=total)
    return torch.from_numpy(total)


def head_product(self: Tensor, mat2: Tensor) -> Tensor:
    """self · mat2 of matrices that lie in two dimensions, batch and heads."""
    left, right = self.contiguous(), mat2.contiguous()
    return torch.bmm(left.flatten(0, 1), right.flatten(0, 1)).unflatten(0, self.shape[:2])


# Random masks


def apply_mask(input: Tensor, mask: Tensor, scale: float) -> Tensor:
    """input · mask · scale."""
    return (input * mask).mul_(scale)


# Calls of PyTorch's own operators, as a program made them (`girih.capture.canonicalize.exact`)


def recorded(
    tensors: Sequence[Tensor], operator: str, arguments: Sequence[Any], kept: Sizes = (0,),
    orders: Sequence[Sizes] = (), strides: Sequence[Any] = (), operations: int = 0,
) -> Tensor:  # fmt: skip
    """The only result that is kept of one call; see `recorded_several`."""
    return recorded_several(tensors, operator, arguments, kept, orders, strides)[0]


def recorded_several(
    tensors: Sequence[Tensor], operator: str, arguments: Sequence[Any], kept: Sizes = (0,),
    orders: Sequence[Sizes] = (), strides: Sequence[Any] = (), operations: int = 0, draws: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """One call of an operator of PyTorch's, by its own kernel, with operands that lie in memory as they lay there.

    arguments: (name, value) of each; in it `"%2"` stands for the third of the tensors, and `"#2"` for the number in it.
    kept: which of the call's results are made. orders: of these, the order of dimensions in which each is contiguous,
    and in which it is given; () where that is its own. strides: (tensor, its strides in the program), where it has
    others here. operations: about how much arithmetic it is. draws: the last tensor is the state of
    PyTorch's generator of random numbers, from which the call draws; how that is left is the last result.

    Raises:
        RuntimeError: a result lies in memory otherwise than when the program was captured.
    """
    operands = list(tensors)
    for number, own in strides:
        operands[number] = _with_strides(operands[number], own)
    named = {name: _argument(name, item, operands) for name, item in arguments}
    function = _recorded_function(operator)
    results, left = _drawn(function, named, operands[-1]) if draws else (function(**named), [])
    every = results if isinstance(results, (tuple, list)) else (results,)
    memories = {item.untyped_storage()._cdata for item in tensors}
    made = []
    for number, place in enumerate(kept):
        result = every[place].permute(orders[number]) if orders and orders[number] else every[place]
        if result.untyped_storage()._cdata in memories:  # a view, where the plan has memory of its own
            result = result.clone(memory_format=torch.contiguous_format)
        elif not result.is_contiguous():
            raise RuntimeError(
                f"{operator} has made {list(every[place].shape)} with the strides {list(every[place].stride())}, which "
                "is another order in memory than when the step was captured: its bits cannot be promised; leave "
                "exact=True out"
            )
        made.append(result)
    return (*made, *left)


def _with_strides(x: Tensor, strides: Sizes) -> Tensor:
    """The tensor with these strides: itself where those of dimensions of one element differ, else a copy with gaps."""
    if all(size == 1 or a == b for size, a, b in zip(x.shape, x.stride(), strides, strict=True)):
        return x.as_strided(x.shape, strides)
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


def _argument(name: str, item: Any, operands: Sequence[Tensor]) -> Any:
    if isinstance(item, (list, tuple)):
        return [_argument(name, part, operands) for part in item]
    if isinstance(item, str):
        if item[:1] == "%":
            return operands[int(item[1:])]
        if item[:1] == "#":
            return operands[int(item[1:])].item()
        return getattr(torch, item) if name.endswith("dtype") else item
    return item


@cache
def _recorded_function(operator: str) -> Any:
    """
    Raises:
        ValueError: it is no function of PyTorch's registry that only computes.
    """
    space, name, *overload = operator.split(".")
    function = getattr(getattr(getattr(torch.ops, space), name), overload[0] if overload else "default")
    if any(item.is_out or item.name == "filename" or (item.alias_info and item.alias_info.is_write)
           for item in function._schema.arguments):  # fmt: skip
        raise ValueError(f"{operator} writes to its arguments or to a file: a graph holds functions alone")
    # oneDNN keeps of an LSTM's layer what its gradient needs, where gradients are on.
    return torch.enable_grad()(function) if operator == "aten.mkldnn_rnn_layer" else function


def _drawn(function: Any, named: dict[str, Any], state: Tensor) -> tuple[Any, list[Tensor]]:
    """A call's results, and how it leaves the generator; the process's own is as before."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.set_state(state)
    try:
        return function(**named), [generator.get_state()]
    finally:
        generator.set_state(before)


# Constants


def constant(data: Any, size: Sizes, dtype: Any, device: Any = None) -> Tensor:
    """A tensor written out in the Graph."""
    return torch.tensor(data, dtype=as_dtype(dtype), device=device).reshape(tuple(size))


KERNELS: dict[str, Callable[..., Any]] = (
    {
        f"girih.{kernel.__name__}": kernel
        for kernel in (
            first_index,
            centered_square_mean,
            normalise,
            normalised_dot,
            normalise_input_gradient,
            product_sum,
            masked_sum,
            logsumexp,
            softmax_from,
            log_softmax_from,
            softmax_gradient,
            log_softmax_gradient,
            pick,
            place,
            embedding,
            embedding_gradient,
            wrap_index,
            assign,
            sparse_product,
            ridge_rows,
            triangular_factor,
            reflection_signs,
            sort,
            partition,
            partition_indices,
            sort_indices,
            topk_indices,
            search_sorted,
            bin_counts,
            random_uniform,
            random_normal,
            random_mask,
            random_integers,
            apply_mask,
            recorded,
            recorded_several,
            convolution_input_gradient,
            convolution_weight_gradient,
            max_pool,
            max_pool_gradient,
            correlate,
            head_product,
            constant,
        )
    }
    | ATTENTION_KERNELS
    | EXACT_KERNELS
    | FACTOR_KERNELS
    | GROUP_KERNELS
    | NEIGHBOUR_KERNELS
    | PATH_KERNELS
    | SCRIPTED_KERNELS
    | PLACE_KERNELS
    | TILE_KERNELS
)

OVER_FIRST: dict[str, Callable[..., Tensor]] = {
    "girih.normalise": normalise_over,
    "girih.log_softmax_from": log_softmax_from_over,
}
"""Kernels that write over their first operand what the operator makes of it."""
