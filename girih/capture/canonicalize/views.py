"""Rules for operators that only rearrange: every one becomes reshape, permute, expand, slice, cat or pad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from girih.capture.canonicalize.builder import FLOATS, Builder, NodeCall, alike
from girih.graph import Value


def same(b: Builder, c: NodeCall) -> Value:
    """A copy or an alias is the value itself: the graph has no memory to tell apart."""
    return c["self"]  # type: ignore[no-any-return]


def cast(b: Builder, c: NodeCall) -> Value:
    return b.cast(c["self"], c.out.dtype)


def copy(b: Builder, c: NodeCall) -> Value:
    """`copy(self, src)`: src in self's shape and dtype."""
    return b.expand(b.cast(c["src"], c.out.dtype), c.out.shape)


def reshape(b: Builder, c: NodeCall) -> Value:
    return b.reshape(c["self"], c.out.shape)


def transpose(b: Builder, c: NodeCall) -> Value:
    x = c["self"]
    rank = len(x.shape)
    if rank < 2:
        return x  # type: ignore[no-any-return]
    first, second = c.arguments.get("dim0", 0) % rank, c.arguments.get("dim1", 1) % rank
    order = list(range(rank))
    order[first], order[second] = second, first
    return b.permute(x, order)


def permute(b: Builder, c: NodeCall) -> Value:
    return b.permute(c["self"], c["dims"])


def expand(b: Builder, c: NodeCall) -> Value:
    return b.expand(c["self"], c.out.shape)


def repeat(b: Builder, c: NodeCall) -> Value:
    x, times = c["self"], tuple(c["repeats"])
    sizes = (1,) * (len(times) - len(x.shape)) + x.shape
    apart = b.reshape(x, [n for size in sizes for n in (1, size)])
    wide = b.expand(apart, [n for count, size in zip(times, sizes, strict=True) for n in (count, size)])
    return b.reshape(wide, c.out.shape)


def slice_(b: Builder, c: NodeCall) -> Value:
    x = c["self"]
    start = 0 if c["start"] is None else c["start"]
    end = x.shape[c["dim"]] if c["end"] is None else c["end"]
    return b.slice(x, c["dim"] % len(x.shape), start, end, c["step"])


def _at(x: Value, dim: int, index: int) -> tuple[int, int]:
    dim %= len(x.shape)
    return dim, index % x.shape[dim]


def select(b: Builder, c: NodeCall) -> Value:
    dim, index = _at(c["self"], c["dim"], c["index"])
    return b.reshape(b.slice(c["self"], dim, index, index + 1), c.out.shape)


def pieces(b: Builder, c: NodeCall) -> tuple[Value | None, ...]:
    """split, split_with_sizes, chunk, unbind: a slice for each output that is read."""
    x = c["self"]
    dim = c["dim"] % len(x.shape)
    parts: list[Value | None] = []
    start = 0
    for output, used in zip(c.outputs, c.used, strict=True):
        assert output is not None
        length = output.shape[dim] if len(output.shape) == len(x.shape) else 1
        piece = b.reshape(b.slice(x, dim, start, start + length), output.shape) if used else None
        parts.append(piece)
        start += length
    return tuple(parts)


def cat(b: Builder, c: NodeCall) -> Value:
    rank = len(c.out.shape)
    tensors = [x for x in c["tensors"] if len(x.shape) == rank]  # legacy: empty 1-d tensors are skipped
    return b.cat(tensors, c["dim"] % rank)


def stack(b: Builder, c: NodeCall) -> Value:
    dim = c["dim"] % len(c.out.shape)
    size = (*c.out.shape[:dim], 1, *c.out.shape[dim + 1 :])
    return b.cat([b.reshape(x, size) for x in c["tensors"]], dim)


def slice_backward(b: Builder, c: NodeCall) -> Value:
    grad, sizes = c["grad_output"], c.out.shape
    dim = c["dim"] % len(sizes)
    size = sizes[dim]
    start, end = (min(max(n + size if n < 0 else n, 0), size) for n in (c["start"], c["end"]))
    if c["step"] == 1:
        return b.pad(grad, dim, start, size - max(start, end))
    zeros = b.full(sizes, 0.0, grad.dtype)
    options = {"dim": dim, "start": start, "end": end, "step": c["step"]}
    return b.emit("aten.slice_scatter", sizes, grad.dtype, self=zeros, src=grad, **options)


def select_backward(b: Builder, c: NodeCall) -> Value:
    sizes = c.out.shape
    dim = c["dim"] % len(sizes)
    index = c["index"] % sizes[dim]
    grad = b.reshape(c["grad_output"], (*sizes[:dim], 1, *sizes[dim + 1 :]))
    return b.pad(grad, dim, index, sizes[dim] - index - 1)


def _replace(b: Builder, x: Value, src: Value, dim: int, start: int, end: int) -> Value:
    """x with [start, end) of one dimension replaced."""
    size = x.shape[dim]
    parts = [b.slice(x, dim, 0, start)] if start > 0 else []
    parts.append(b.cast(src, x.dtype))
    if end < size:
        parts.append(b.slice(x, dim, end, size))
    return b.cat(parts, dim)


def slice_scatter(b: Builder, c: NodeCall) -> Value:
    x = c["self"]
    dim = c["dim"] % len(x.shape)
    size = x.shape[dim]
    start = 0 if c["start"] is None else c["start"]
    end = size if c["end"] is None else c["end"]
    start, end = (min(max(n + size if n < 0 else n, 0), size) for n in (start, end))
    if c["step"] == 1:
        return _replace(b, x, c["src"], dim, start, end)
    options = {"dim": dim, "start": start, "end": end, "step": c["step"]}
    return b.emit("aten.slice_scatter", x.shape, x.dtype, self=x, src=c["src"], **options)


def select_scatter(b: Builder, c: NodeCall) -> Value:
    x = c["self"]
    dim, index = _at(x, c["dim"], c["index"])
    src = b.reshape(c["src"], (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return _replace(b, x, src, dim, index, index + 1)


def pad(b: Builder, c: NodeCall) -> Value:
    if not any(c["pad"]):
        return c["self"]  # type: ignore[no-any-return]
    options = {"pad": tuple(c["pad"]), "value": c["value"]}
    return b.emit("aten.constant_pad_nd", c.out.shape, c.out.dtype, self=c["self"], **options)


def view_as_complex(b: Builder, c: NodeCall) -> Value:
    """A view only where a tensor lies so: made of its halves here."""
    x = c["self"]
    last = len(x.shape) - 1
    real, imag = (b.reshape(b.slice(x, last, half, half + 1), c.out.shape) for half in (0, 1))
    return b.emit("aten.complex", c.out.shape, c.out.dtype, real=real, imag=imag)


def view_dtype(b: Builder, c: NodeCall) -> Value:
    """Pairs of real numbers as complex ones, and back; other dtypes are looked at as they lie."""
    x, shape, dtype = c["self"], c.out.shape, c.out.dtype
    if x.dtype == dtype:
        return x  # type: ignore[no-any-return]
    if dtype.startswith("complex") and x.dtype in FLOATS:
        pairs = b.reshape(x, (*shape, 2))
        return view_as_complex(b, replace(c, arguments={"self": pairs}))
    if x.dtype.startswith("complex") and dtype in FLOATS:
        return b.reshape(b.emit("aten.view_as_real", (*x.shape, 2), dtype, self=x), shape)
    return b.emit(c.operator, shape, dtype, **c.arguments)


def diagonal(b: Builder, c: NodeCall) -> Value:
    """diagonal_copy: the graph has no aliases to tell apart."""
    return b.emit("aten.diagonal", c.out.shape, c.out.dtype, **c.arguments)


RULES: dict[str, Any] = {
    **alike(same, "alias clone contiguous detach lift lift_fresh lift_fresh_copy resolve_conj resolve_neg"),
    **alike(reshape, "reshape _reshape_alias _unsafe_view view flatten.using_ints"),
    **alike(reshape, "unsqueeze squeeze squeeze.dim squeeze.dims"),
    **alike(transpose, "t transpose.int"),
    **alike(pieces, "split.Tensor split_with_sizes unsafe_split.Tensor unsafe_split_with_sizes chunk unbind.int"),
    **alike(cast, "_to_copy _to_dense"),  # what is sparse in PyTorch is dense in a graph
    "aten.copy": copy,
    "aten.permute": permute,
    "aten.expand": expand,
    "aten.repeat": repeat,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.cat": cat,
    "aten.stack": stack,
    "aten.slice_backward": slice_backward,
    "aten.select_backward": select_backward,
    "aten.slice_scatter": slice_scatter,
    "aten.select_scatter": select_scatter,
    "aten.constant_pad_nd": pad,
    "aten.diagonal_copy": diagonal,
    "aten.view_as_complex": view_as_complex,
    "aten.view.dtype": view_dtype,
}
