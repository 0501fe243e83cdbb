"""Rules for operators that return values and where they were: each of the two becomes an operator of its own.

The positions are found by an operator that is opaque along the ordered dimension; the values are then gathered there.
Both divide in all other dimensions.
"""

from __future__ import annotations

from typing import Any

from girih.capture.canonicalize.builder import Builder, NodeCall, alike, dims_of
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


def ordered(b: Builder, c: NodeCall) -> tuple[Value, ...]:
    """sort and topk: the places of the elements in order, and what stands there."""
    x = c["self"]
    if not x.shape:
        return x, b.full((), 0, "int64")
    dim = c["dim"] % len(x.shape)
    if c.operator == "aten.topk":
        operator, options = "girih.topk_indices", {"k": c["k"], "dim": dim, "largest": bool(c["largest"])}
    else:
        operator, options = "girih.sort_indices", {"dim": dim, "descending": bool(c["descending"])}
    places = b.emit(operator, c.out.shape, "int64", input=x, **options)
    return b.emit("aten.gather", c.out.shape, x.dtype, self=x, dim=dim, index=places), places


RULES: dict[str, Any] = {**alike(extreme, "max.dim min.dim"), **alike(ordered, "sort sort.stable topk")}
