"""Operators that can be written in simpler ones: they are recorded as those, mostly as PyTorch itself takes them apart.

They are those of `_NAMES`, which girih does not describe (they would run undivided), what PyTorch has only as others,
and those of `OWN`, for which PyTorch has no decomposition that is functional, or a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from string import ascii_lowercase
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = Any
aten = torch.ops.aten

_NAMES = """
    _euclidean_dist _fused_rms_norm _fused_rms_norm_backward _prelu_kernel _prelu_kernel_backward _safe_softmax
    _weight_norm_interface _weight_norm_interface_backward addr affine_grid_generator aminmax binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits block_diag bucketize celu channel_shuffle cross glu
    glu_backward huber_loss huber_loss_backward linalg_cross log_sigmoid_backward log_sigmoid_forward logit
    logit_backward mish_backward mse_loss mse_loss_backward nansum norm pixel_shuffle pixel_unshuffle renorm rot90
    smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward special_entr special_log_ndtr
    trace tril_indices triu_indices upsample_trilinear3d
"""


def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """x with src on a diagonal: a choice at each position, so that it divides."""
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    first = max(-offset, 0)
    spread = aten.constant_pad_nd(src, [first, rows - first - src.shape[-1]]).unsqueeze(-1)
    place = torch.arange(columns) - torch.arange(rows)[:, None]
    return torch.where(place == offset, spread, x).movedim((-2, -1), (dim1, dim2))


def diagonal_backward(grad: Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    return diagonal_scatter(grad.new_zeros(sizes), grad, offset, dim1, dim2)


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    side = x.shape[-1] + abs(offset)
    whole = x.new_zeros((*x.shape[:-1], side, side)).movedim((-2, -1), (dim1, dim2))
    return diagonal_scatter(whole, x, offset, dim1, dim2)


def trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Tensor:
    """nn.Bilinear and its gradients: products of matrices, two at a time. Each tensor lacks the dimensions `expand`."""
    letters = ascii_lowercase[: first.dim() + len(expand1)]
    named = ["".join(name for place, name in enumerate(letters) if place not in gone)
             for gone in (expand1, expand2, expand3)]  # fmt: skip
    kept = "".join(name for place, name in enumerate(letters) if place not in summed)
    return torch.einsum(f"{','.join(named)}->{kept}", first, second, third)


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """For each label before the first -1, and each class that is no label: max(0, 1 - x[label] + x[class]) / classes.

    PyTorch's decomposition (torch 2.13) also counts what stands behind the -1.
    """
    shape = target.shape
    x, target = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = x.shape[1]
    place = torch.arange(classes)
    end = torch.where(target == -1, place, classes).amin(1, keepdim=True)
    counts = place < end
    is_label = ((place == target.unsqueeze(-1)) & counts.unsqueeze(-1)).any(1)
    chosen = x.gather(1, torch.where(counts, target, 0))
    short = (1.0 - chosen.unsqueeze(-1) + x.unsqueeze(1)).clamp_min(0.0) / classes
    loss = torch.where(counts.unsqueeze(-1) & ~is_label.unsqueeze(1), short, 0.0).sum((1, 2))
    if reduction:
        loss = loss.mean() if reduction == 1 else loss.sum()
    elif len(shape) < 2:
        loss = loss.reshape(())
    return loss, is_label.to(x.dtype).reshape(shape)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """Lengths are numbers or tensors. The second result, which only PyTorch's gradient reads, is none."""
    padded = _padded(targets, inputs, lengths)
    return torch.ops.girih.ctc_loss(log_probs, *padded, blank, zero_infinity), log_probs.new_empty(0)


def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    inputs: Any,
    lengths: Any,
    loss: Tensor,
    prefixes: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    padded = _padded(targets, inputs, lengths)
    return torch.ops.girih.ctc_loss_gradient(grad, log_probs, *padded, blank, zero_infinity)


def _padded(targets: Tensor, inputs: Any, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Targets one after another become rows; of unknown lengths, each row has place for all of them."""
    width = targets.shape[-1] if isinstance(lengths, torch.Tensor) else max(lengths, default=0)
    inputs, lengths = torch.as_tensor(inputs), torch.as_tensor(lengths)
    if targets.dim() == 1:
        place = (lengths.cumsum(0) - lengths).unsqueeze(1) + torch.arange(width)
        targets = targets[place.clamp(max=targets.shape[0] - 1)]
    return targets, inputs, lengths


def grouped_product(
    first: Tensor, second: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """F.grouped_mm. Groups of rows of `first` with a matrix each, of columns of `second` with a matrix each, or of what
    is summed over; and a product for each group where all is given by group.

    PyTorch's own shape rule (torch 2.13) knows bfloat16 alone, and its kernels ask for rows of whole 16 bytes, which
    pieces do not have.
    """
    if bias is not None:
        raise NotImplementedError("a product of groups with a bias is none that PyTorch has: add the bias behind it")
    by_group = first.dim() == 3, second.dim() == 3
    if by_group == (True, True):
        products = aten.bmm(first, second)
    elif ends is None:
        raise ValueError("a product of groups of rows or columns needs `offs`, which says where they end")
    elif by_group == (False, True):
        products = torch.ops.girih.grouped_product(first, second, ends)
    elif by_group == (True, False):
        products = torch.ops.girih.grouped_product(second.mT, first.mT, ends).mT
    else:
        products = torch.ops.girih.grouped_gradient(first, second, ends)
    return products if out_dtype is None else products.to(out_dtype)


def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """Views of x for one of its memory, which a graph does not know: x in the order of its memory, windows of that for
    each dimension, the one of the largest stride first, and what is repeated.

    Memory that x does not cover, or covers twice, is refused.
    """
    begins = 0 if offset is None else offset - x.storage_offset()
    order = sorted(range(x.dim()), key=lambda dim: (-x.stride(dim), -x.shape[dim]))
    flat = x.permute(order)
    ends = begins + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if not flat.is_contiguous() or begins < 0 or (0 not in size and ends >= x.numel()):
        raise NotImplementedError(
            f"as_strided(size={list(size)}, stride={list(stride)}) of a tensor {list(x.shape)} with the strides "
            f"{list(x.stride())} reads memory that is not its own: write it with slices, reshape or unfold"
        )
    if 0 in size:
        return x.reshape(-1)[:0].reshape(size)
    dims = sorted((dim for dim in range(len(size)) if size[dim] > 1 and stride[dim]), key=lambda dim: -stride[dim])
    view = flat.view(-1)[begins : ends + 1]
    for place, dim in enumerate(dims):
        window = 1 + sum((size[inner] - 1) * stride[inner] for inner in dims[place + 1 :])
        apart = stride[dim] == window
        view = view.unflatten(-1, (size[dim], window)) if apart else view.unfold(-1, window, stride[dim])
    view = view.squeeze(-1).permute([dims.index(dim) for dim in sorted(dims)])
    for dim in range(len(size)):
        if dim not in dims:
            view = view.unsqueeze(dim)
    return view.expand(size)


OWN: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: as_strided,
    aten._ctc_loss.Tensor: ctc_loss,
    aten._ctc_loss_backward.Tensor: ctc_loss_backward,
    aten.diag_embed.default: diag_embed,
    aten.diagonal_backward.default: diagonal_backward,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten._trilinear.default: trilinear,
    aten._grouped_mm.default: grouped_product,
}


def decomposition_of(function: Any) -> Callable[..., Any] | None:
    """What to run in place of an operator, if anything."""
    rule = _named().get(function) or _each(function)
    if rule is None and _is_composite(function):
        rule = function.decompose
    return rule


def composites_of(function: Any) -> Callable[..., Any] | None:
    """The same, where PyTorch's own kernels are to be recorded: for what it has none of, and for batch norm, which
    writes into the running statistics and does not say so."""
    if function is aten.native_batch_norm.default:
        return _batch_norm
    if function is aten.as_strided.default:
        return as_strided
    return _each(function) or (function.decompose if _is_composite(function) else None)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """By the operators with the same kernel that say so."""
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    if not training:
        return aten._native_batch_norm_legit_no_training(x, weight, bias, mean, variance, momentum, eps)
    return aten._native_batch_norm_legit(x, weight, bias, mean, variance, training, momentum, eps)


@cache
def _each(function: Any) -> Callable[..., Any] | None:
    """For an operator of lists of tensors (`_foreach_lerp_`), that of one tensor, called for each."""
    prefix, foreach, name = function.name().partition("::_foreach_")
    name = name.partition(".")[0]
    single = getattr(torch.ops.aten, {"norm": "linalg_vector_norm"}.get(name, name), None)
    if prefix != "aten" or not foreach or single is None:
        return None

    def run(first: Any, *others: Any, **options: Any) -> list[Any] | None:
        results = []
        for number in range(len(first)):
            arguments = [item[number] if isinstance(item, (list, tuple)) else item for item in (first, *others)]
            results.append(single(*arguments, **options))
        return None if name.endswith("_") else results

    return run


@cache
def _is_composite(function: Any) -> bool:
    """Whether PyTorch has it only as other operators. Autograd takes most of these apart before we see them."""
    if function.namespace != "aten":
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CPU")
    return not has_kernel and bool(function._can_decompose())


@cache
def _named() -> dict[Any, Callable[..., Any]]:
    """By OpOverload, what to run in its place."""
    packets = [getattr(torch.ops.aten, name) for name in _NAMES.split() if hasattr(torch.ops.aten, name)]
    return {**torch._decomp.get_decompositions(packets), **OWN}


def ctc_loss_of_numbers(log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, *options: Any) -> Tensor:
    """With lengths in tensors: PyTorch's own writes numbers into the memory of a tensor, which fake ones have not."""
    targets, inputs, lengths = _padded(targets, inputs, lengths)
    return aten.ctc_loss.Tensor(log_probs, targets, inputs, lengths, *options)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """F.scaled_dot_product_attention as one operator (`girih.kernels.attention`).

    It is taken apart, into products and a softmax, where that operator does not say it (dropout, a mask that has a
    gradient, batches that broadcast), and where the program asks for it by `sdpa_kernel(SDPBackend.MATH)`.
    """
    tensors = (query, key, value)
    if not _is_whole(tensors, attn_mask, dropout_p, is_causal, enable_gqa):
        with sdpa_kernel(SDPBackend.MATH):
            return aten.scaled_dot_product_attention.default._op_dk(
                _DispatchKey.CompositeImplicitAutograd,
                *(*tensors, attn_mask, dropout_p, is_causal),
                scale=scale,
                enable_gqa=enable_gqa,
            )
    factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
    if query.dim() == 4:
        return torch.ops.girih.attention(*tensors, factor, attn_mask, is_causal)[0]
    return torch.ops.girih.attention(*(item.unsqueeze(0) for item in tensors), factor, attn_mask, is_causal)[0].squeeze(
        0
    )


def _is_whole(tensors: Sequence[Tensor], mask: Tensor | None, dropout: float, causal: bool, grouped: bool) -> bool:
    """Does `girih.attention` say this? What is not admissible PyTorch refuses, with its own words."""
    query, key, value = tensors
    rank = query.dim()
    asked = torch.backends.cuda
    if not (asked.flash_sdp_enabled() or asked.mem_efficient_sdp_enabled() or asked.cudnn_sdp_enabled()):
        return False
    if dropout or rank not in (3, 4) or {key.dim(), value.dim()} != {rank} or any(0 in item.shape for item in tensors):
        return False
    if len({item.dtype for item in tensors}) > 1 or not query.dtype.is_floating_point:
        return False
    alike = key.shape[:-1] == value.shape[:-1] and query.shape[-1] == key.shape[-1]
    heads, shared = query.shape[-3], key.shape[-3]
    if not alike or query.shape[: rank - 3] != key.shape[: rank - 3]:
        return False
    if heads != shared and (rank == 3 or not grouped or heads % shared):
        return False
    if mask is None:
        return True
    scores = (*query.shape[:-1], key.shape[-2])
    fits = mask.dim() <= rank and all(a in (1, b) for a, b in zip(mask.shape[::-1], scores[::-1], strict=False))
    return fits and not causal and not mask.requires_grad and mask.dtype in (torch.bool, query.dtype)


_DispatchKey = torch._C.DispatchKey
_CORRECTED: dict[tuple[Any, Any], Callable[..., Any]] = {
    (aten.multilabel_margin_loss_forward.default, _DispatchKey.Autograd): multilabel_margin_loss,
    (aten.ctc_loss.IntList, _DispatchKey.CompositeImplicitAutograd): ctc_loss_of_numbers,
    (aten.scaled_dot_product_attention.default, _DispatchKey.CompositeImplicitAutograd): attention,
}


@contextmanager
def stand_ins() -> Iterator[None]:
    """While open, functions of ours stand in for what PyTorch takes apart before it can be recorded."""
    before = {(operator, key): operator.py_kernels.get(key) for operator, key in _CORRECTED}
    _stand_in(_CORRECTED)
    try:
        yield
    finally:
        _stand_in(before)


def _stand_in(kernels: Mapping[tuple[Any, Any], Any]) -> None:
    for (operator, key), kernel in kernels.items():
        if kernel is None:
            del operator.py_kernels[key]
        else:
            operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
