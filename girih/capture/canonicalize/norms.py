"""Rules for normalisation: mean, centred square mean, scale; each a reduction that can be divided.

Only the input, its mean and the scale 1/√(variance + ε) live until the backward pass.

With u = (x - mean) · scale and h = grad · weight, summed over the normalised dimensions (count elements):
    gradient by x = scale · (h - (Σ h + u · Σ h·u) / count).
Statistics of bfloat16 and float16 tensors are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from girih.capture.canonicalize.builder import HALVES, Builder, NodeCall, alike, broadcast, promote, reduced
from girih.graph import Value
from girih.ops.operator import TensorType

Maybe = Value | None


def _exact(b: Builder, x: Value) -> Value:
    return b.cast(x, "float32") if x.dtype in HALVES else x


def _centered_square_mean(b: Builder, x: Value, mean: Value, dims: Sequence[int], count: int) -> Value:
    options = {"input": x, "mean": mean, "dims": tuple(dims), "count": count}
    return b.emit("girih.centered_square_mean", reduced(x.shape, dims, True), x.dtype, **options)


def _scale(b: Builder, variance: Value, eps: float) -> Value:
    return b.unary("rsqrt", b.binary("add", variance, eps))


def _normalise(b: Builder, x: Value, mean: Value, scale: Value, weight: Maybe, bias: Maybe) -> Value:
    dtype = x.dtype
    for other in (mean, scale, weight, bias):
        dtype = promote(dtype, other.dtype) if other is not None else dtype
    options = {"input": x, "mean": mean, "scale": scale, "weight": weight, "bias": bias}
    return b.emit("girih.normalise", x.shape, dtype, **options)


def _dot(b: Builder, grad: Value, x: Value, mean: Value, scale: Value, weight: Maybe, dims: Sequence[int]) -> Value:
    options = {"grad": grad, "input": x, "mean": mean, "scale": scale, "weight": weight, "dims": tuple(dims)}
    return b.emit("girih.normalised_dot", reduced(x.shape, dims, True), x.dtype, **options)


def _count(x: Value, dims: Sequence[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _moments(b: Builder, x: Value, dims: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    mean = b.mean(x, dims)
    variance = _centered_square_mean(b, x, mean, dims, _count(x, dims))
    return mean, variance, _scale(b, variance, eps)


def _backward(
    b: Builder,
    grad: Value,
    x: Value,
    mean: Value,
    scale: Value,
    weight: Maybe,
    dims: Sequence[int],
    outer: Sequence[int],
    used: Sequence[bool],
) -> tuple[Maybe, Maybe, Maybe]:
    """Gradients by input, weight and bias (dimensions kept); the latter two are summed over `outer`."""
    by_weight = _dot(b, grad, x, mean, scale, None, outer) if used[1] else None
    by_bias = b.sum(grad, outer) if used[2] else None
    if not used[0]:
        return None, by_weight, by_bias
    if weight is None:
        total, dot = b.sum(grad, dims), _dot(b, grad, x, mean, scale, None, dims)
    elif tuple(dims) == tuple(outer):  # the weight is the same over each sum (batch norm): it comes out
        total = b.binary("mul", by_bias if by_bias is not None else b.sum(grad, dims), weight)
        plain = by_weight if by_weight is not None else _dot(b, grad, x, mean, scale, None, dims)
        dot = b.binary("mul", plain, weight)
    else:
        total, dot = b.product_sum(grad, weight, dims), _dot(b, grad, x, mean, scale, weight, dims)
    options = {"grad": grad, "input": x, "mean": mean, "scale": scale, "weight": weight, "sum": total, "dot": dot}
    by_input = b.emit("girih.normalise_input_gradient", x.shape, x.dtype, **options, count=_count(x, dims))
    return by_input, by_weight, by_bias


# Batch norm


def _wide(b: Builder, x: Value, channels: Any) -> Any:
    """[C] as [1, C, 1, …]; None stays None."""
    return None if channels is None else b.reshape(channels, (1, x.shape[1], *(1,) * (len(x.shape) - 2)))


def _flat(b: Builder, wide: Maybe, out: TensorType | None) -> Maybe:
    return None if wide is None or out is None else b.reshape(wide, out.shape)


def batch_norm(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    x = _exact(b, c["input"])
    weight, bias = _wide(b, x, c["weight"]), _wide(b, x, c["bias"])
    old_mean, old_variance = c.arguments.get("running_mean"), c.arguments.get("running_var")
    if not c.arguments.get("training", False):
        assert old_variance is not None
        mean, scale = _wide(b, x, old_mean), _wide(b, x, _scale(b, old_variance, c["eps"]))
        return (_normalise(b, x, mean, scale, weight, bias), *(None for _ in c.outputs[1:]))
    dims = (0, *range(2, len(x.shape)))
    count = _count(x, dims)
    mean, variance, scale = _moments(b, x, dims, c["eps"])
    out = _normalise(b, x, mean, scale, weight, bias)
    results: list[Maybe] = [out, _flat(b, mean, c.outputs[1]), _flat(b, scale, c.outputs[2])]
    if len(c.outputs) == 5:
        channels = (x.shape[1],)
        unbiased = b.binary("mul", b.reshape(variance, channels), count / max(1, count - 1))
        for old, new in ((old_mean, b.reshape(mean, channels)), (old_variance, unbiased)):
            assert old is not None
            new = b.cast(new, old.dtype)
            options = {"self": old, "end": new, "weight": c["momentum"]}
            results.append(b.emit("aten.lerp.Scalar", old.shape, old.dtype, **options))
    return tuple(results)


def batch_norm_backward(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    x = _exact(b, c["input"])
    grad = b.cast(c["grad_out"], x.dtype)
    weight = _wide(b, x, c["weight"])
    dims = (0, *range(2, len(x.shape)))
    used = [a and m for a, m in zip(c.used, c["output_mask"], strict=True)]
    if c["train"]:
        mean, scale = _wide(b, x, c["save_mean"]), _wide(b, x, c["save_invstd"])
        by_input, by_weight, by_bias = _backward(b, grad, x, mean, scale, weight, dims, dims, used)
    else:
        mean, scale = _wide(b, x, c["running_mean"]), _wide(b, x, _scale(b, c["running_var"], c["eps"]))
        factor = scale if weight is None else b.binary("mul", scale, weight)
        by_input = b.binary("mul", grad, factor) if used[0] else None
        by_weight = _dot(b, grad, x, mean, scale, None, dims) if used[1] else None
        by_bias = b.sum(grad, dims) if used[2] else None
    return by_input, _flat(b, by_weight, c.outputs[1]), _flat(b, by_bias, c.outputs[2])


# Layer norm and group norm


def _trailing(b: Builder, x: Value, item: Maybe) -> Maybe:
    """[H] as [1, …, H]."""
    if item is None:
        return None
    return b.reshape(item, (1,) * (len(x.shape) - len(item.shape)) + item.shape)


def _inner(x: Value, c: NodeCall) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(range(rank - len(c["normalized_shape"]), rank))


def layer_norm(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    x = _exact(b, c["input"])
    mean, _, scale = _moments(b, x, _inner(x, c), c["eps"])
    out = _normalise(b, x, mean, scale, _trailing(b, x, c["weight"]), _trailing(b, x, c["bias"]))
    return out, mean, scale


def layer_norm_backward(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    x = _exact(b, c["input"])
    dims = _inner(x, c)
    outer = tuple(range(dims[0]))
    used = [a and m for a, m in zip(c.used, c["output_mask"], strict=True)]
    weight = _trailing(b, x, c["weight"])
    grad = b.cast(c["grad_out"], x.dtype)
    by_input, by_weight, by_bias = _backward(b, grad, x, c["mean"], c["rstd"], weight, dims, outer, used)
    return by_input, _flat(b, by_weight, c.outputs[1]), _flat(b, by_bias, c.outputs[2])


def _grouped(b: Builder, x: Value, groups: int) -> Value:
    return b.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))


def _group_weight(b: Builder, x: Value, item: Maybe) -> Maybe:
    """[C] as [1, G, C/G, 1, …] beside a grouped x."""
    if item is None:
        return None
    return b.reshape(item, (1, *x.shape[1:3], *(1,) * (len(x.shape) - 3)))


def group_norm(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    plain = c["input"]
    x = _grouped(b, _exact(b, plain), c["group"])
    mean, _, scale = _moments(b, x, tuple(range(2, len(x.shape))), c["eps"])
    weight, bias = _group_weight(b, x, c["weight"]), _group_weight(b, x, c["bias"])
    out = b.reshape(_normalise(b, x, mean, scale, weight, bias), plain.shape)
    return out, _flat(b, mean, c.outputs[1]), _flat(b, scale, c.outputs[2])


def group_norm_backward(b: Builder, c: NodeCall) -> tuple[Maybe, ...]:
    plain = c["input"]
    x = _grouped(b, _exact(b, plain), c["group"])
    grad = _grouped(b, b.cast(c["grad_out"], x.dtype), c["group"])
    statistics = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    mean, scale = b.reshape(c["mean"], statistics), b.reshape(c["rstd"], statistics)
    dims, outer = tuple(range(2, len(x.shape))), (0, *range(3, len(x.shape)))
    used = [a and m for a, m in zip(c.used, c["output_mask"], strict=True)]
    weight = _group_weight(b, x, c["weight"])
    by_input, by_weight, by_bias = _backward(b, grad, x, mean, scale, weight, dims, outer, used)
    by_input = None if by_input is None else b.reshape(by_input, plain.shape)
    return by_input, _flat(b, by_weight, c.outputs[1]), _flat(b, by_bias, c.outputs[2])


# Variance


def _variance(b: Builder, c: NodeCall) -> tuple[Value, Value]:
    x = c["self"]
    dims = tuple(d % len(x.shape) for d in c["dim"]) if c["dim"] else tuple(range(len(x.shape)))
    correction = 1 if c["correction"] is None else c["correction"]
    mean = b.mean(x, dims)
    return _centered_square_mean(b, x, mean, sorted(dims), int(_count(x, dims) - correction)), mean


def variance(b: Builder, c: NodeCall) -> Value:
    return b.reshape(_variance(b, c)[0], c.out.shape)


def deviation(b: Builder, c: NodeCall) -> Value:
    return b.unary("sqrt", b.reshape(_variance(b, c)[0], c.out.shape))


def variance_mean(b: Builder, c: NodeCall) -> tuple[Value, Value]:
    variance, mean = _variance(b, c)
    return b.reshape(variance, c.out.shape), b.reshape(mean, c.out.shape)


def deviation_mean(b: Builder, c: NodeCall) -> tuple[Value, Value]:
    variance, mean = variance_mean(b, c)
    return b.unary("sqrt", variance), mean


# Softmax


def softmax(b: Builder, c: NodeCall) -> Value:
    x = _exact(b, c["self"])
    probabilities = b.emit("girih.softmax_from", x.shape, x.dtype, input=x, logsumexp=_logsumexp(b, x, c["dim"]))
    return b.cast(probabilities, c.out.dtype)


def log_softmax(b: Builder, c: NodeCall) -> Value:
    x = _exact(b, c["self"])
    return b.emit("girih.log_softmax_from", x.shape, x.dtype, input=x, logsumexp=_logsumexp(b, x, c["dim"]))


def _logsumexp(b: Builder, x: Value, dim: int) -> Value:
    """In float64: the difference of two large numbers has the error of the less exact one."""
    dims = (dim % max(1, len(x.shape)),)
    return b.emit("girih.logsumexp", reduced(x.shape, dims, True), "float64", input=x, dims=dims)


def softmax_backward(b: Builder, c: NodeCall) -> Value:
    grad, output = c["grad_output"], c["output"]
    total = b.product_sum(grad, output, (c["dim"],))
    shape = broadcast(grad.shape, output.shape)
    return b.emit("girih.softmax_gradient", shape, output.dtype, grad=grad, output=output, sum=total)


def log_softmax_backward(b: Builder, c: NodeCall) -> Value:
    grad, output = c["grad_output"], c["output"]
    total = b.sum(grad, (c["dim"],))
    dtype = promote(grad.dtype, output.dtype)
    return b.emit("girih.log_softmax_gradient", output.shape, dtype, grad=grad, output=output, sum=total)


RULES: dict[str, Any] = {
    **alike(batch_norm, "native_batch_norm cudnn_batch_norm _native_batch_norm_legit_functional"),
    **alike(batch_norm, "_native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training"),
    "aten.native_batch_norm_backward": batch_norm_backward,
    "aten.native_layer_norm": layer_norm,
    "aten.native_layer_norm_backward": layer_norm_backward,
    "aten.native_group_norm": group_norm,
    "aten.native_group_norm_backward": group_norm_backward,
    "aten.var.correction": variance,
    "aten.std.correction": deviation,
    "aten.var_mean.correction": variance_mean,
    "aten.std_mean.correction": deviation_mean,
    "aten._softmax": softmax,
    "aten._log_softmax": log_softmax,
    "aten._softmax_backward_data": softmax_backward,
    "aten._log_softmax_backward_data": log_softmax_backward,
}
