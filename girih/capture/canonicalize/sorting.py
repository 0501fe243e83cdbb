"""Rules for operators that return values and where they were: each of the two becomes an operator of its own.

The positions are found by an operator that is opaque along the ordered dimension; the values are then gathered there.
Both divide in all other dimensions.
"""

from __future__ import annotations

from typing import Any

from girih.capture.canonicalize.builder import Builder, NodeCall, dims_of
from girih.graph import Value


def extreme(b: Builder, c: NodeCall) -> tuple[Value | None, ...] | Value:
    """max.dim and min.dim: amax and argmax, amin and argmin."""
    x = c["self"]
    name = "max" if c.operator == "aten.max.dim" else "min"
    dims = {"dim": dims_of(c["dim"], x), "keepdim": c["keepdim"]}
    values = b.emit(f"aten.a{name}", c.out.shape, c.out.dtype, self=x, **dims)
    if not c.used[1]:
        return values, None
    if x.dtype == "bool":  # which argmax does not take
        x = b.cast(x, "uint8")
    return values, b.emit(f"aten.arg{name}", c.out.shape, "int64", self=x, dim=c["dim"], keepdim=c["keepdim"])


def sort(b: Builder, c: NodeCall) -> tuple[Value, ...]:
    x = c["self"]
    if not x.shape:
        return x, b.full((), 0, "int64")
    dim = c["dim"] % len(x.shape)
    descending = bool(c["descending"])
    places = b.emit("girih.sort_indices", x.shape, "int64", input=x, dim=dim, descending=descending)
    return b.emit("aten.gather", x.shape, x.dtype, self=x, dim=dim, index=places), places


def topk(b: Builder, c: NodeCall) -> tuple[Value, ...]:
    x = c["self"]
    if not x.shape:
        return x, b.full((), 0, "int64")
    dim = c["dim"] % len(x.shape)
    shape = c.out.shape
    options = {"k": c["k"], "dim": dim, "largest": bool(c["largest"])}
    places = b.emit("girih.topk_indices", shape, "int64", input=x, **options)
    return b.emit("aten.gather", shape, x.dtype, self=x, dim=dim, index=places), places


RULES: dict[str, Any] = {
    "aten.max.dim": extreme,
    "aten.min.dim": extreme,
    "aten.sort": sort,
    "aten.sort.stable": sort,
    "aten.topk": topk,
}
