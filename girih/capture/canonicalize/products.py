"""Rules for matrix products, convolutions and pooling: products alone, so that their sums can be divided."""

from __future__ import annotations

from typing import Any

from girih.capture.canonicalize import pointwise
from girih.capture.canonicalize.builder import Builder, NodeCall, alike
from girih.graph import Value


def _alike(b: Builder, *factors: Value) -> None:
    """Refuse operands of two dtypes: fake tensors take them, but kernels multiply only what has one."""
    dtypes = list(dict.fromkeys(factor.dtype for factor in factors))
    if len(dtypes) > 1:
        raise b.refuse(
            f"a product of {' and '.join(f'{x.dtype}{list(x.shape)}' for x in factors)}, which PyTorch does not "
            "convert: bring batch and model to one dtype, or use autocast"
        )


def mm(b: Builder, left: Value, right: Value) -> Value:
    _alike(b, left, right)
    shape = (left.shape[0], right.shape[1])
    return b.emit("aten.mm", shape, left.dtype, self=left, mat2=right)


def bmm(b: Builder, left: Value, right: Value) -> Value:
    _alike(b, left, right)
    shape = (left.shape[0], left.shape[1], right.shape[2])
    return b.emit("aten.bmm", shape, left.dtype, self=left, mat2=right)


def _plus(b: Builder, product: Value, c: NodeCall) -> Value:
    """alpha · product + beta · self."""
    if c["alpha"] != 1:
        product = b.binary("mul", product, c["alpha"])
    if c["beta"] == 0:
        return product
    return b.binary("add", product, c["self"], alpha=c["beta"])


def addmm(b: Builder, c: NodeCall) -> Value:
    return _plus(b, mm(b, c["mat1"], c["mat2"]), c)


def baddbmm(b: Builder, c: NodeCall) -> Value:
    return _plus(b, bmm(b, c["batch1"], c["batch2"]), c)


def _mv(b: Builder, matrix: Value, vector: Value) -> Value:
    return b.reshape(mm(b, matrix, b.reshape(vector, (*vector.shape, 1))), matrix.shape[:1])


def mv(b: Builder, c: NodeCall) -> Value:
    return _mv(b, c["self"], c["vec"])


def addmv(b: Builder, c: NodeCall) -> Value:
    return _plus(b, _mv(b, c["mat"], c["vec"]), c)


def dot(b: Builder, c: NodeCall) -> Value:
    other = c.arguments["tensor" if "tensor" in c.arguments else "other"]
    return b.reshape(b.product_sum(c["self"], other, (0,)), ())


def convolution(b: Builder, c: NodeCall) -> Value:
    _alike(b, c["input"], c["weight"])
    arguments = {**c.arguments, "bias": None}
    out = b.emit("aten.convolution", c.out.shape, c.out.dtype, **arguments)
    if c["bias"] is None:
        return out
    return b.binary("add", out, b.reshape(c["bias"], (1, *c["bias"].shape, *(1,) * (len(out.shape) - 2))))


def convolution_backward(b: Builder, c: NodeCall) -> tuple[Value | None, ...]:
    grad, x, weight = c["grad_output"], c["input"], c["weight"]
    options = {name: c[name] for name in ("stride", "padding", "dilation", "groups")}
    if c["transposed"]:
        options |= {"transposed": True, "output_padding": c["output_padding"]}
    by_input = by_weight = by_bias = None
    if c["output_mask"][0] and c.used[0]:
        factors = {"grad": grad, "weight": weight, "input_size": x.shape}
        by_input = b.emit("girih.convolution_input_gradient", x.shape, grad.dtype, **factors, **options)
    if c["output_mask"][1] and c.used[1]:
        factors = {"grad": grad, "input": x, "weight_size": weight.shape}
        by_weight = b.emit("girih.convolution_weight_gradient", weight.shape, grad.dtype, **factors, **options)
    if c["output_mask"][2] and c.used[2]:
        by_bias = b.sum(grad, (0, *range(2, len(grad.shape))), keepdim=False)
    return by_input, by_weight, by_bias


def _window(c: NodeCall) -> dict[str, Any]:
    kernel = tuple(c["kernel_size"])
    rank = len(kernel) if len(kernel) > 1 else {"max_pool2d": 2, "max_pool3d": 3}[c.operator[5:15]]

    def spread(item: Any) -> tuple[int, ...]:
        return tuple(item) * rank if len(item) == 1 else tuple(item)

    return {
        "kernel_size": spread(kernel),
        "stride": spread(c["stride"] or kernel),
        "padding": spread(c["padding"]),
        "dilation": spread(c["dilation"]),
        "ceil_mode": c["ceil_mode"],
    }


def max_pool(b: Builder, c: NodeCall) -> tuple[Value | None, ...]:
    """The indices are found again in the backward pass; nothing else may read them."""
    return b.emit("girih.max_pool", c.out.shape, c.out.dtype, input=c["self"], **_window(c)), None


def max_pool_backward(b: Builder, c: NodeCall) -> Value:
    out, x = c.out, c["self"]
    return b.emit("girih.max_pool_gradient", out.shape, out.dtype, grad=c["grad_output"], input=x, **_window(c))


def _even_window(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...] | None:
    """The window of the average pool that an adaptive one is, if its windows are all alike."""
    if any(size % out for size, out in zip(before, after, strict=True)):
        return None
    return tuple(size // out for size, out in zip(before, after, strict=True))


def adaptive_max_pool(b: Builder, c: NodeCall) -> tuple[Value | None, ...] | Value:
    """An ordinary pool where its windows are all alike."""
    x, shape = c["self"], c.outputs[0].shape  # type: ignore[union-attr]
    rank = len(c["output_size"])
    window = _even_window(x.shape[-rank:], shape[-rank:])
    if window is None:
        return pointwise.keep(b, c)
    return b.emit("girih.max_pool", shape, x.dtype, input=x, **_plain(window)), None


def adaptive_max_pool_backward(b: Builder, c: NodeCall) -> tuple[Value, ...] | Value:
    x, grad = c["self"], c["grad_output"]
    rank = 3 if "pool3d" in c.operator else 2
    window = _even_window(x.shape[-rank:], grad.shape[-rank:])
    if window is None:
        return pointwise.keep(b, c)
    return b.emit("girih.max_pool_gradient", x.shape, x.dtype, grad=grad, input=x, **_plain(window))


def _plain(window: tuple[int, ...]) -> dict[str, Any]:
    """A pool whose windows lie side by side."""
    ones, zeros = (1,) * len(window), (0,) * len(window)
    return {"kernel_size": window, "stride": window, "padding": zeros, "dilation": ones, "ceil_mode": False}


def adaptive_pool(b: Builder, c: NodeCall) -> Value:
    x, out = c["self"], c.out
    window = _even_window(x.shape[-2:], out.shape[-2:])
    rank = len(x.shape)
    if window == (1, 1):
        return x  # type: ignore[no-any-return]
    if out.shape[-2:] == (1, 1):
        return b.mean(x, (rank - 2, rank - 1), keepdim=True)
    if window is None:
        return b.emit(c.operator, out.shape, out.dtype, **c.arguments)
    return b.emit("aten.avg_pool2d", out.shape, out.dtype, self=x, kernel_size=window, stride=window)


def adaptive_pool_backward(b: Builder, c: NodeCall) -> Value:
    grad, out = c["grad_output"], c.out
    window = _even_window(out.shape[-2:], grad.shape[-2:])
    if window == (1, 1):
        return grad  # type: ignore[no-any-return]
    if grad.shape[-2:] == (1, 1) and window is not None:
        return b.expand(b.binary("div", grad, float(window[0] * window[1])), out.shape)
    if window is None:
        return b.emit(c.operator, out.shape, out.dtype, **c.arguments)
    size = {"kernel_size": window, "stride": window, "padding": (0, 0)}
    options = {**size, "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
    return b.emit("aten.avg_pool2d_backward", out.shape, out.dtype, grad_output=grad, self=c["self"], **options)


def linear(b: Builder, c: NodeCall) -> Value:
    x, weight = c["input"], c["weight"]
    flat = b.reshape(x, (x.elements // x.shape[-1], x.shape[-1]))
    out = b.reshape(mm(b, flat, b.permute(weight, (1, 0))), c.out.shape)
    return out if c["bias"] is None else b.binary("add", out, c["bias"])


RULES: dict[str, Any] = {
    "aten.addmm": addmm,
    "aten.baddbmm": baddbmm,
    "aten.mv": mv,
    "aten.addmv": addmv,
    **alike(dot, "dot vdot"),
    "aten.linear": linear,
    "aten.convolution": convolution,
    "aten.convolution_backward": convolution_backward,
    **alike(max_pool, "max_pool2d_with_indices max_pool3d_with_indices"),
    **alike(max_pool_backward, "max_pool2d_with_indices_backward max_pool3d_with_indices_backward"),
    **alike(adaptive_max_pool, "adaptive_max_pool2d adaptive_max_pool3d"),
    **alike(adaptive_max_pool_backward, "adaptive_max_pool2d_backward adaptive_max_pool3d_backward"),
    "aten._adaptive_avg_pool2d": adaptive_pool,
    "aten._adaptive_avg_pool2d_backward": adaptive_pool_backward,
}
