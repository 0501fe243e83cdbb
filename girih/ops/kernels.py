"""What girih's own operators compute, as PyTorch functions: `KERNELS["girih.NAME"](tensors..., attributes...)`.

ATen fuses what does not divide (a batch norm that makes its own mean), or returns several tensors at once.
These operators are the pieces that divide: each makes one tensor, each reduction carries the global `count`
or size, so that the results of pieces add up to the whole's. Parameters are named as in the Graph.
They never write into their arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from girih.ops.philox import as_dtype, random_integers, random_mask, random_normal, random_uniform

Tensor = Any  # torch is untyped for the type checker
Sizes = Sequence[int]

# Normalisation


def mean(input: Tensor, dims: Sizes, keepdim: bool, count: int) -> Tensor:
    """Σ input / count."""
    return input.sum(tuple(dims), keepdim=keepdim).div_(count)


def centered_square_mean(input: Tensor, mean: Tensor, dims: Sizes, count: int) -> Tensor:
    """Σ (input - mean)² / count, dimensions kept."""
    return (input - mean).square_().sum(tuple(dims), keepdim=True).div_(count)


def normalise(
    input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """(input - mean) · scale · weight + bias, everything broadcast."""
    out = _times(input - mean, scale)
    if weight is not None:
        out = _times(out, weight)
    if bias is not None:
        out = _in_place(out, torch.Tensor.add_, torch.add, bias)
    return out


def normalised_dot(
    grad: Tensor, input: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None = None, dims: Sizes = ()
) -> Tensor:
    """Σ grad · weight · (input - mean) · scale, dimensions kept."""
    out = _times(_times(input - mean, scale), grad)
    if weight is not None:
        out = _times(out, weight)
    return out.sum(tuple(dims), keepdim=True)


def normalise_input_gradient(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None = None,
    sum: Tensor = None,
    dot: Tensor = None,
    count: int = 1,
) -> Tensor:
    """scale · (grad · weight - (sum + (input - mean) · scale · dot) / count)."""
    out = _times(input - mean, scale * dot)
    out = _in_place(out, torch.Tensor.add_, torch.add, sum).div_(-count)
    if weight is None:
        out = _in_place(out, torch.Tensor.add_, torch.add, grad)
    elif _fits(out, grad, weight):
        out.addcmul_(grad.to(out.dtype), weight.to(out.dtype))
    else:
        out = out + grad * weight
    return _times(out, scale)


def product_sum(a: Tensor, b: Tensor, dims: Sizes) -> Tensor:
    """Σ a · b, dimensions kept."""
    return (a * b).sum(tuple(dims), keepdim=True)


def _fits(out: Tensor, *others: Tensor) -> bool:
    """Whether `others` combine into `out` without changing its shape or dtype."""
    return all(
        torch.broadcast_shapes(out.shape, other.shape) == out.shape
        and torch.promote_types(out.dtype, other.dtype) == out.dtype
        for other in others
    )


def _in_place(out: Tensor, write: Callable, make: Callable, other: Tensor) -> Tensor:
    return write(out, other) if _fits(out, other) else make(out, other)


def _times(fresh: Tensor, other: Tensor) -> Tensor:
    return _in_place(fresh, torch.Tensor.mul_, torch.mul, other)


# Softmax


def softmax_from(input: Tensor, logsumexp: Tensor) -> Tensor:
    """exp(input - logsumexp)."""
    return (input - logsumexp).exp_()


def softmax_gradient(grad: Tensor, output: Tensor, sum: Tensor) -> Tensor:
    """output · (grad - sum), where sum = Σ grad · output."""
    return _times(grad - sum, output)


def log_softmax_gradient(grad: Tensor, output: Tensor, sum: Tensor) -> Tensor:
    """grad - exp(output) · sum, where sum = Σ grad."""
    return torch.sub(grad, _times(output.exp(), sum))


# Tables


def first_index(input: Tensor, extreme: Tensor, dim: int, first: int = 0) -> Tensor:
    """The least position along `dim`, counted from `first`, at which `input` equals `extreme`; int64's largest if none.

    With the extreme of the whole dimension this is an argmax (argmin) whose pieces combine by Min.
    """
    shape = [1] * input.dim()
    shape[dim] = -1
    position = torch.arange(first, first + input.shape[dim], device=input.device).reshape(shape)
    return torch.where(input == extreme, position, torch.iinfo(torch.int64).max).amin(dim)


def pick(input: Tensor, index: Tensor, dim: int, first: int = 0) -> Tensor:
    """input at position `index` of `dim`, which vanishes; 0 where index - first is outside."""
    place = index.long() - first
    inside = (place >= 0) & (place < input.shape[dim])
    place = place.clamp_(0, max(0, input.shape[dim] - 1)).unsqueeze_(dim)
    return input.gather(dim, place).squeeze_(dim).masked_fill_(~inside, 0)


def place(value: Tensor, index: Tensor, dim: int, size: int, first: int = 0) -> Tensor:
    """Zeros with a new dimension `dim` of `size`, `value` at index - first where that is inside: pick's adjoint."""
    dim = dim % (value.dim() + 1)
    out = value.new_zeros((*value.shape[:dim], size, *value.shape[dim:]))
    spot = index.long() - first
    inside = (spot >= 0) & (spot < size)
    spot = spot.clamp_(0, max(0, size - 1)).unsqueeze_(dim)
    return out.scatter_(dim, spot, torch.where(inside, value, torch.zeros_like(value)).unsqueeze(dim))


def embedding(weight: Tensor, indices: Tensor, first: int = 0) -> Tensor:
    """Rows of a table that begins at row `first` of the whole; 0 for rows outside it."""
    spot = indices.long() - first
    inside = (spot >= 0) & (spot < weight.shape[0])
    if first == 0 and bool(inside.all()):
        return torch.nn.functional.embedding(spot, weight)
    rows = torch.nn.functional.embedding(spot.clamp_(0, weight.shape[0] - 1), weight)
    return rows.masked_fill_(~inside.unsqueeze(-1), 0)


def embedding_gradient(grad: Tensor, indices: Tensor, rows: int, first: int = 0, padding: int = -1) -> Tensor:
    """Σ of the rows of `grad` whose index is each of first ... first + rows - 1; `padding` is dropped."""
    flat = grad.reshape(-1, grad.shape[-1])
    index = indices.reshape(-1).long()
    spot = index - first
    inside = (spot >= 0) & (spot < rows)
    if padding >= 0:
        inside &= index != padding
    out = grad.new_zeros(rows, grad.shape[-1])
    if bool(inside.all()):
        return out.index_add_(0, spot, flat)
    return out.index_add_(0, spot[inside], flat[inside])


# Random masks


def apply_mask(input: Tensor, mask: Tensor, scale: float) -> Tensor:
    """input · mask · scale."""
    return (input * mask).mul_(scale)


# Convolution and pooling


def _convolution_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes | None,
    groups: int,
    mask: list[bool],
) -> Tensor:
    rank = grad.dim() - 2
    made = torch.ops.aten.convolution_backward(
        grad,
        input,
        weight,
        None,
        list(stride),
        list(padding),
        list(dilation),
        transposed,
        list(output_padding or [0] * rank),
        groups,
        mask,
    )
    return made[0] if mask[0] else made[1]


def convolution_input_gradient(
    grad: Tensor,
    weight: Tensor,
    input_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    transposed: bool = False,
    output_padding: Sizes | None = None,
) -> Tensor:
    """The gradient of aten.convolution by its input, whose shape is `input_size`.

    It is the convolution in the other direction: the same kernel as ATen's backward, bit by bit, without the
    contiguous tensor of the input's shape that the backward wants but does not read.
    """
    rank = grad.dim() - 2
    convolution = torch.ops.aten.convolution.default
    common = (grad, weight, None, list(stride), list(padding), list(dilation))
    if transposed:
        return convolution(*common, False, [0] * rank, groups)
    extra = [
        size - ((out - 1) * step - 2 * pad + spread * (kernel - 1) + 1)
        for size, out, step, pad, spread, kernel in zip(
            input_size[2:], grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    if all(0 <= more < max(step, spread) for more, step, spread in zip(extra, stride, dilation, strict=True)):
        return convolution(*common, True, extra, groups)
    like = grad.new_empty(tuple(input_size))
    mask = [True, False, False]
    return _convolution_backward(
        grad, like, weight, stride, padding, dilation, transposed, output_padding, groups, mask
    )


def convolution_weight_gradient(
    grad: Tensor,
    input: Tensor,
    weight_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    transposed: bool = False,
    output_padding: Sizes | None = None,
) -> Tensor:
    """The gradient of aten.convolution by its weight, whose shape is `weight_size`."""
    like = _unread(tuple(weight_size), grad, input)
    return _convolution_backward(
        grad,
        input,
        like,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        [False, True, False],
    )


def _unread(size: tuple[int, ...], *others: Tensor) -> Tensor:
    """A contiguous tensor whose values do not matter: over another's memory where that is large enough."""
    count = math.prod(size)
    for other in others:
        if other.is_contiguous() and other.numel() >= count:
            return other.detach().reshape(-1)[:count].reshape(size)
    return others[0].new_empty(size)


_POOLS = {
    1: torch.nn.functional.max_pool1d,
    2: torch.nn.functional.max_pool2d,
    3: torch.nn.functional.max_pool3d,
}


def max_pool(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest value of each window; over as many trailing dimensions as `kernel_size` has."""
    return _POOLS[len(kernel_size)](
        input, tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    )


def max_pool_gradient(
    grad: Tensor,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool = False,
) -> Tensor:
    """max_pool's gradient: each window's goes to its first greatest value, which is found again."""
    rank = len(kernel_size)
    aten = torch.ops.aten
    if rank == 1:  # ATen has no backward of its own: a plane of height one
        wide = max_pool_gradient(
            grad.unsqueeze(-2),
            input.unsqueeze(-2),
            (1, *kernel_size),
            (1, *stride),
            (0, *padding),
            (1, *dilation),
            ceil_mode,
        )
        return wide.squeeze(-2)
    forward = aten.max_pool2d_with_indices.default if rank == 2 else aten.max_pool3d_with_indices.default
    backward = (
        aten.max_pool2d_with_indices_backward.default if rank == 2 else aten.max_pool3d_with_indices_backward.default
    )
    window = (list(kernel_size), list(stride), list(padding), list(dilation), ceil_mode)
    indices = forward(input, *window)[1]
    return backward(grad, input, *window, indices)


# Constants


def constant(data: Any, size: Sizes, dtype: Any, device: Any = None) -> Tensor:
    """A tensor written out in the Graph."""
    return torch.tensor(data, dtype=as_dtype(dtype), device=device).reshape(tuple(size))


KERNELS: dict[str, Callable[..., Tensor]] = {
    f"girih.{kernel.__name__}": kernel
    for kernel in (
        mean,
        first_index,
        centered_square_mean,
        normalise,
        normalised_dot,
        normalise_input_gradient,
        product_sum,
        softmax_from,
        softmax_gradient,
        log_softmax_gradient,
        pick,
        place,
        embedding,
        embedding_gradient,
        random_uniform,
        random_normal,
        random_mask,
        random_integers,
        apply_mask,
        convolution_input_gradient,
        convolution_weight_gradient,
        max_pool,
        max_pool_gradient,
        constant,
    )
}
