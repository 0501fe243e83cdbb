"""Rules for element-wise operators and plain reductions: one spelling for each."""

from __future__ import annotations

from typing import Any

import torch

from girih.capture.canonicalize.builder import FLOATS, Builder, NodeCall, alike, dims_of
from girih.graph import Value
from girih.ops.operator import TensorType


def with_number(b: Builder, c: NodeCall) -> Value:
    """add.Scalar and its like: add.Tensor takes numbers too."""
    operator = c.operator.removesuffix(".Scalar") + ".Tensor"
    return b.emit(operator, c.out.shape, c.out.dtype, **c.arguments)


def keep(b: Builder, c: NodeCall) -> tuple[Value, ...] | Value:
    """The call becomes a node as it stands, each of its outputs a value."""
    if len(c.outputs) == 1:
        return b.emit(c.operator, c.out.shape, c.out.dtype, **c.arguments)
    if any(item is None for item in c.outputs):
        raise b.refuse(f"{c.operator} leaves some of its outputs out, which a graph cannot say")
    return b.emit_many(c.operator, [item for item in c.outputs if item is not None], c.arguments)


def grid_sample_backward(b: Builder, c: NodeCall) -> tuple[Value | None, ...]:
    """Both gradients are made, also where only one is wanted: the node has two outputs."""
    shapes = (TensorType(c["input"].shape, c["input"].dtype), TensorType(c["grid"].shape, c["grid"].dtype))
    return b.emit_many(c.operator, shapes, {**c.arguments, "output_mask": (True, True)})


def conjugate(b: Builder, c: NodeCall) -> Value:
    """PyTorch puts a conjugation off until it is needed: here it is done; real numbers stay as they are."""
    x = c["self"]
    if isinstance(x, complex):  # autograd conjugates the numbers of a product too
        return b.complex_number(x.conjugate(), c.out.dtype)
    return b.unary("conj_physical", x) if x.dtype.startswith("complex") else x


def _typed(b: Builder, c: NodeCall) -> Value:
    x: Value = c["self"]
    if c.arguments.get("dtype") is not None or x.dtype not in FLOATS:
        return b.cast(x, c.out.dtype)
    return x


def sum_(b: Builder, c: NodeCall) -> Value:
    x = _typed(b, c)
    return b.sum(x, dims_of(c.arguments.get("dim"), x), bool(c.arguments.get("keepdim", False)))


def mean(b: Builder, c: NodeCall) -> Value:
    x = _typed(b, c)
    return b.mean(x, dims_of(c.arguments.get("dim"), x), bool(c.arguments.get("keepdim", False)))


def reduction(b: Builder, c: NodeCall) -> Value:
    """amax, amin, logsumexp, any, all: with all dimensions written out."""
    x = c["self"]
    options = {"dim": dims_of(c.arguments.get("dim"), x), "keepdim": bool(c.arguments.get("keepdim", False))}
    name = {"aten.max": "aten.amax", "aten.min": "aten.amin"}.get(c.operator, c.operator)
    return b.emit(name, c.out.shape, c.out.dtype, self=x, **options)


def nan_to_num(b: Builder, c: NodeCall) -> Value:
    """nan_to_num with the numbers for infinities written out, which depend on the dtype."""
    x = c["self"]
    if x.dtype not in FLOATS:
        return x  # type: ignore[no-any-return]
    largest = torch.finfo(getattr(torch, x.dtype)).max
    replacements = (c.arguments.get("nan"), c.arguments.get("posinf"), c.arguments.get("neginf"))
    nan, high, low = (
        usual if item is None else item for item, usual in zip(replacements, (0.0, largest, -largest), strict=True)
    )
    return b.emit(c.operator, x.shape, x.dtype, self=x, nan=nan, posinf=high, neginf=low)


def vector_norm(b: Builder, c: NodeCall) -> Value | tuple[Value, ...]:
    """The 2-norm as a sum that can be divided."""
    if c["ord"] != 2:
        return keep(b, c)
    x = _typed(b, c)
    if not x.shape:
        return b.unary("abs", x)
    squares = b.product_sum(x, x, dims_of(c["dim"], x))
    return b.reshape(b.unary("sqrt", squares), c.out.shape)


RULES: dict[str, Any] = {
    **alike(with_number, "add.Scalar sub.Scalar mul.Scalar div.Scalar"),
    **alike(sum_, "sum sum.dim_IntList"),
    **alike(mean, "mean mean.dim"),
    **alike(reduction, "amax amin max min logsumexp any.dims all.dims"),
    **alike(conjugate, "_conj _conj_physical conj_physical"),
    **alike(grid_sample_backward, "grid_sampler_2d_backward grid_sampler_3d_backward"),
    "aten.linalg_vector_norm": vector_norm,
    "aten.nan_to_num": nan_to_num,
}
