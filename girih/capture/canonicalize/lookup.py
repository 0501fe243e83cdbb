"""Rules for operators that look things up: embeddings, the negative log likelihood, indices and masks.

A label outside the classes picks 0 and places nothing, so that pieces of a table add up to the whole; which one may be
outside is said with the operator, so that others can be refused (`girih.plans.indices`).
"""

from __future__ import annotations

from typing import Any

from girih.capture.canonicalize.builder import Builder, NodeCall, alike, broadcast
from girih.graph import Value

NONE, MEAN, SUM = 0, 1, 2  # torch.nn._reduction
OUTSIDE = -(2**31)
"""In place of a class that is ignored: no label that somebody has."""


def embedding(b: Builder, c: NodeCall) -> Value:
    return b.emit("girih.embedding", c.out.shape, c.out.dtype, weight=c["weight"], indices=c["indices"])


def embedding_backward(b: Builder, c: NodeCall) -> Value:
    if c["scale_grad_by_freq"]:
        raise b.refuse("nn.Embedding(scale_grad_by_freq=True) is not supported: set it to False")
    padding = None if c["padding_idx"] < 0 else c["padding_idx"]
    options = {"grad": c["grad_output"], "indices": c["indices"], "rows": c.out.shape[0], "padding": padding}
    return b.emit("girih.embedding_gradient", c.out.shape, c.out.dtype, **options)


def sparse_rows(b: Builder, c: NodeCall) -> Value:
    """The gradient of nn.Embedding(sparse=True): rows that add up, dense here."""
    if c["sparse_dim"] != 1 or c["dense_dim"] != 1:
        raise b.refuse("sparse tensors are not supported: give dense ones")
    indices, rows = b.reshape(c["indices"], c["values"].shape[:1]), c.out.shape[0]
    options = {"grad": c["values"], "indices": indices, "rows": rows}
    return b.emit("girih.embedding_gradient", c.out.shape, c.out.dtype, **options)


def _masked_target(b: Builder, target: Value, ignore: int, classes: int) -> tuple[Value, int]:
    """The target with ignored places outside the table, and what it has there."""
    if not 0 <= ignore < classes:
        return target, ignore
    ignored = b.emit("aten.eq.Scalar", target.shape, "bool", self=target, other=ignore)
    options = {"self": b.cast(target, "int64"), "mask": ignored, "value": OUTSIDE}
    return b.emit("aten.masked_fill.Scalar", target.shape, "int64", **options), OUTSIDE


def _ignored(number: int) -> dict[str, int]:
    """The ignored class as an attribute, left out where it is the default."""
    return {} if number == -100 else {"ignored": number}


def _weights(b: Builder, target: Value, c: NodeCall, like: str) -> Value:
    """Each target's class weight; without class weights 1, or 0 where ignored."""
    if c["weight"] is not None:
        table = b.reshape(c["weight"], (c["weight"].elements, 1))
        options = {"weight": table, "indices": target, "first": 0}  # what is ignored has no weight
        rows = b.emit("girih.embedding", (*target.shape, 1), table.dtype, **options)
        return b.reshape(rows, target.shape)
    valid = b.emit("aten.ne.Scalar", target.shape, "bool", self=target, other=c["ignore_index"])
    return b.cast(valid, like)


def _class_dim(x: Value) -> int:
    return 0 if len(x.shape) == 1 else 1


def nll_loss(b: Builder, c: NodeCall) -> tuple[Value, Value | None]:
    x, plain = c["self"], c["target"]
    if plain.dtype not in ("int64", "uint8"):
        raise b.refuse(f"the classes must be int64, got {plain.dtype}{list(plain.shape)}")
    dim = _class_dim(x)
    target, ignored = _masked_target(b, plain, c["ignore_index"], x.shape[dim])
    options = {"input": x, "index": target, "dim": dim, **_ignored(ignored)}
    picked = b.emit("girih.pick", target.shape, x.dtype, **options)
    counted = target if c["weight"] is not None else plain
    if c["weight"] is not None:
        picked = b.binary("mul", picked, _weights(b, target, c, x.dtype))
    loss = b.unary("neg", picked)
    if c["reduction"] == NONE:
        return loss, None
    every = tuple(range(len(target.shape)))
    loss = b.sum(loss, every, keepdim=False) if every else loss
    weights = _weights(b, counted, c, x.dtype)
    total = b.sum(weights, every, keepdim=False) if every else weights
    if c["reduction"] == MEAN:
        loss = b.binary("div", loss, total)
    return loss, total


def nll_loss_backward(b: Builder, c: NodeCall) -> Value:
    x = c["self"]
    dim = _class_dim(x)
    target, ignored = _masked_target(b, c["target"], c["ignore_index"], x.shape[dim])
    value = b.unary("neg", c["grad_output"])
    if c["reduction"] == MEAN:
        value = b.binary("div", value, c["total_weight"])
    if c["weight"] is not None:
        value = b.binary("mul", _weights(b, target, c, x.dtype), value)
    value = b.expand(value, target.shape)
    options = {"value": value, "index": target, "dim": dim, "size": x.shape[dim], **_ignored(ignored)}
    return b.emit("girih.place", c.out.shape, value.dtype, **options)


def index(b: Builder, c: NodeCall) -> Value:
    """One index tensor: index_select; more stay together."""
    x = c["self"]
    indices = [(dim, item) for dim, item in enumerate(c["indices"]) if item is not None]
    if len(indices) != 1 or indices[0][1].dtype not in ("int64", "int32"):
        return b.emit("aten.index.Tensor", c.out.shape, c.out.dtype, **c.arguments)
    dim, item = indices[0]
    flat = b.reshape(_wrapped(b, item, x.shape[dim]), (item.elements,))
    shape = (*x.shape[:dim], item.elements, *x.shape[dim + 1 :])
    rows = b.emit("aten.index_select", shape, x.dtype, self=x, dim=dim, index=flat)
    return b.reshape(rows, c.out.shape)


def _wrapped(b: Builder, item: Value, size: int) -> Value:
    """Indices from the end made non-negative; what is no index stays none."""
    return b.emit("girih.wrap_index", item.shape, item.dtype, index=item, size=size)


def index_put(b: Builder, c: NodeCall) -> Value:
    """Accumulating along one dimension: index_add; under a mask: where; others stay."""
    x = c["self"]
    indices = [(dim, item) for dim, item in enumerate(c["indices"]) if item is not None]
    if _is_masked(x, indices, c):
        mask = indices[0][1]
        mask = b.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
        return b.emit("aten.where.self", x.shape, x.dtype, condition=mask, self=b.cast(c["values"], x.dtype), other=x)
    if len(indices) != 1 or indices[0][1].dtype not in ("int64", "int32") or not c["accumulate"]:
        return b.emit("aten.index_put", c.out.shape, c.out.dtype, **c.arguments)
    dim, item = indices[0]
    flat = b.reshape(_wrapped(b, item, x.shape[dim]), (item.elements,))
    source = b.expand(c["values"], broadcast(c["values"].shape, x.shape[:dim] + item.shape + x.shape[dim + 1 :]))
    source = b.reshape(source, (*x.shape[:dim], item.elements, *x.shape[dim + 1 :]))
    return b.emit("aten.index_add", x.shape, x.dtype, self=x, dim=dim, index=flat, source=source)


def _is_masked(x: Value, indices: list[tuple[int, Value]], c: NodeCall) -> bool:
    """x[mask] = values, where the values are the same wherever the mask is true."""
    if len(indices) != 1 or indices[0][0] != 0 or indices[0][1].dtype != "bool" or c["accumulate"]:
        return False
    return len(c["values"].shape) <= len(x.shape) - len(indices[0][1].shape)


RULES: dict[str, Any] = {
    **alike(index, "index.Tensor _unsafe_index.Tensor"),
    **alike(index_put, "index_put _unsafe_index_put"),
    "aten.embedding": embedding,
    "aten.embedding_dense_backward": embedding_backward,
    "aten._sparse_coo_tensor_with_dims_and_tensors": sparse_rows,
    **alike(nll_loss, "nll_loss_forward nll_loss2d_forward"),
    **alike(nll_loss_backward, "nll_loss_backward nll_loss2d_backward"),
}
