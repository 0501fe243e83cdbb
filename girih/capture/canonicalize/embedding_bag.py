"""Rules for nn.EmbeddingBag: rows are looked up, weighted, and added up in bags.

Where all bags have one size the rows are reshaped, and their sum divides as sums do. Else offsets say where bags begin:
each row's bag is found by a search, and adding rows up is what the gradient of an embedding does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from girih.capture.canonicalize import pointwise
from girih.capture.canonicalize.builder import Builder, NodeCall
from girih.graph import Value

SUM, MEAN, MAX = 0, 1, 2  # of torch.nn.functional.embedding_bag


def _size(b: Builder, c: NodeCall) -> int | None:
    """The size of the bags where all have one: nn.EmbeddingBag of a matrix of indices."""
    maker = b.node_of(c["offsets"])
    if maker is None or maker.operator != "aten.arange.start_step" or c.arguments.get("include_last_offset"):
        return None
    options = {"start": 0, "step": 1, **dict(maker.arguments)}  # a graph leaves out what is an operator's default
    regular = options["start"] == 0 and options["end"] == c["indices"].elements
    return int(options["step"]) if regular else None  # type: ignore[arg-type]


def _undescribed(b: Builder, c: NodeCall) -> tuple[Value, ...] | Value:
    return pointwise.keep(b, replace(c, arguments={**c.arguments, "sparse": False}))


def _bags(b: Builder, c: NodeCall) -> Value:
    """The bag of each row: the last one that begins no later."""
    count, offsets = c["indices"].elements, c["offsets"]
    options = {"start": 0, "end": count, "step": 1, "dtype": offsets.dtype}
    places = b.emit("aten.arange.start_step", (count,), offsets.dtype, **options)
    options = {"sequence": offsets, "values": places, "right": True}
    return b.binary("sub", b.emit("girih.search_sorted", (count,), "int64", **options), 1)


def _added(b: Builder, c: NodeCall, rows: Value, bags: int) -> Value:
    """The sum of each bag's rows: [rows, width] → [bags, width]."""
    size, width = _size(b, c), rows.shape[1]
    if size is not None:
        return b.sum(b.reshape(rows, (bags, size, width)), (1,), keepdim=False)
    options = {"grad": rows, "indices": _bags(b, c), "rows": bags, "padding": None}
    return b.emit("girih.embedding_gradient", (bags, width), rows.dtype, **options)


def _handed(b: Builder, c: NodeCall, bags: Value) -> Value:
    """[bags, width] → [rows, width]: what each row's bag has."""
    size, (count, width) = _size(b, c), bags.shape
    rows = c["indices"].elements
    if size is not None:
        return b.reshape(b.expand(b.reshape(bags, (count, 1, width)), (count, size, width)), (rows, width))
    return b.emit("girih.embedding", (rows, width), bags.dtype, weight=bags, indices=_bags(b, c))


def _looked_up(b: Builder, c: NodeCall, weight: Value) -> Value:
    rows, width = c["indices"].elements, weight.shape[1]
    flat = b.reshape(c["indices"], (rows,))
    return b.emit("girih.embedding", (rows, width), weight.dtype, weight=weight, indices=flat)


def _counts(b: Builder, c: NodeCall, dtype: str) -> Value | None:
    """[rows, 1]: 1, and 0 for the padding; None without padding."""
    if c.arguments.get("padding_idx", -1) < 0:
        return None
    rows = c["indices"].elements
    flat = b.reshape(c["indices"], (rows,))
    kept = b.emit("aten.ne.Scalar", (rows,), "bool", self=flat, other=c["padding_idx"])
    return b.reshape(b.cast(kept, dtype), (rows, 1))


def _weighs(c: NodeCall) -> bool:
    """Whether rows have weights of their own, or are padding."""
    return c.arguments.get("per_sample_weights") is not None or c.arguments.get("padding_idx", -1) >= 0


def _weighted(b: Builder, c: NodeCall, rows: Value) -> Value:
    counts, weights = _counts(b, c, rows.dtype), c.arguments.get("per_sample_weights")
    if weights is not None:
        rows = b.binary("mul", rows, b.reshape(weights, (rows.shape[0], 1)))
    return rows if counts is None else b.binary("mul", rows, counts)


def _mean(b: Builder, c: NodeCall, bags: Value) -> Value:
    """Sums by the number of rows that counted; an empty bag is 0."""
    counts = _counts(b, c, bags.dtype)
    size = _size(b, c)
    if counts is None and size is not None:
        return b.binary("div", bags, float(size))
    if counts is None:
        counts = b.full((c["indices"].elements, 1), 1.0, bags.dtype)
    number = _added(b, c, counts, bags.shape[0])
    options = {"self": number, "min": 1.0}
    return b.binary("div", bags, b.emit("aten.clamp_min", number.shape, number.dtype, **options))


def embedding_bag(b: Builder, c: NodeCall) -> tuple[Value | None, ...] | Value:
    if c["mode"] == MAX or c["scale_grad_by_freq"]:
        return _undescribed(b, c)
    weight, size = c["weight"], _size(b, c)
    bags = c.outputs[0].shape[0]  # type: ignore[union-attr]
    if size is not None and not _weighs(c):
        options = {"weight": weight, "indices": b.reshape(c["indices"], (bags, size))}
        rows = b.emit("girih.embedding", (bags, size, weight.shape[1]), weight.dtype, **options)
        pooled = b.sum(rows, (1,), keepdim=False) if c["mode"] == SUM else b.mean(rows, (1,), keepdim=False)
        return pooled, None, None, None
    pooled = _added(b, c, _weighted(b, c, _looked_up(b, c, weight)), bags)
    return _mean(b, c, pooled) if c["mode"] == MEAN else pooled, None, None, None


def embedding_bag_backward(b: Builder, c: NodeCall) -> tuple[Value, ...] | Value:
    if c["mode"] == MAX or c["scale_grad_by_freq"]:
        return _undescribed(b, c)
    grad = _mean(b, c, c["grad"]) if c["mode"] == MEAN else c["grad"]
    size, (bags, width) = _size(b, c), grad.shape
    if size is not None and not _weighs(c):
        rows = b.expand(b.reshape(grad, (bags, 1, width)), (bags, size, width))
    else:
        rows = _weighted(b, c, _handed(b, c, grad))
    options = {"grad": rows, "indices": b.reshape(c["indices"], rows.shape[:-1]), "rows": c.out.shape[0]}
    return b.emit("girih.embedding_gradient", c.out.shape, c.out.dtype, **options)


def weights_backward(b: Builder, c: NodeCall) -> Value:
    """The gradient by the rows' weights: the product of each row with its bag's gradient."""
    rows = b.product_sum(_looked_up(b, c, c["weight"]), _handed(b, c, c["grad"]), (1,))
    rows = b.reshape(rows, c.out.shape)
    counts = _counts(b, c, rows.dtype)
    return rows if counts is None else b.binary("mul", rows, b.reshape(counts, c.out.shape))


RULES: dict[str, Any] = {
    "aten._embedding_bag": embedding_bag,
    "aten._embedding_bag_forward_only": embedding_bag,
    "aten._embedding_bag_backward": embedding_bag_backward,
    "aten._embedding_bag_per_sample_weights_backward": weights_backward,
}
