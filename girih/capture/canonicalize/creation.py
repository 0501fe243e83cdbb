"""Rules for operators that make tensors from nothing: constants and random numbers.

Each random operator has a stream number of its own; with the seed that enters the graph and an element's
place in the whole tensor it determines the number drawn, however the tensor is divided.
"""

from __future__ import annotations

from typing import Any

from girih.capture.canonicalize.builder import Builder, NodeCall, alike
from girih.graph import Value


def full(b: Builder, c: NodeCall) -> Value:
    return b.full(c.out.shape, c["fill_value"], c.out.dtype)


def filler(fill: float) -> Any:
    """A rule for zeros, ones, empty: empty memory is zeros here, because the graph is a pure function."""
    return lambda b, c: b.full(c.out.shape, _number(fill, c.out.dtype), c.out.dtype)


def _number(fill: float, dtype: str) -> bool | int | float:
    if dtype == "bool":
        return bool(fill)
    return int(fill) if "int" in dtype else float(fill)


def scalar_tensor(b: Builder, c: NodeCall) -> Value:
    return b.full((), c["s"], c.out.dtype)


def fill(b: Builder, c: NodeCall) -> Value:
    if isinstance(c["value"], Value):
        return b.expand(b.cast(c["value"], c.out.dtype), c.out.shape)
    return b.full(c.out.shape, c["value"], c.out.dtype)


def arange(b: Builder, c: NodeCall) -> Value:
    start, step = c.arguments.get("start", 0), c.arguments.get("step", 1)
    options = {"start": start, "end": c["end"], "step": step, "dtype": c.out.dtype}
    return b.emit("aten.arange.start_step", c.out.shape, c.out.dtype, **options)


def typed(b: Builder, c: NodeCall) -> Value:
    """Others that make a tensor (eye, linspace): the dtype is written out."""
    return b.emit(c.operator, c.out.shape, c.out.dtype, **{**c.arguments, "dtype": c.out.dtype})


# Random numbers


def _draw(b: Builder, kind: str, shape: tuple[int, ...], distribution: str, /, **options: Any) -> Value:
    if b.seed is None:
        b.seed = b.input("seed", (), "int64")
    stream = _stream(b)
    place = {"size": shape, "start": (0,) * len(shape), "full": shape}
    return b.emit(f"girih.random_{kind}", shape, distribution, seed=b.seed, stream=stream, **place, **options)


def _stream(b: Builder) -> int:
    """The stream of a draw; one that the backward pass repeats has that of the forward pass."""
    key = (b.note.draw, b.drawn)
    b.drawn += 1
    if key not in b.streams:
        if b.note.phase == "backward":
            raise b.refuse(
                "random numbers are drawn in the backward pass that the forward pass did not draw; "
                "for torch.utils.checkpoint leave preserve_rng_state on"
            )
        b.streams[key] = len(b.streams)
    return b.streams[key]


def _mask(b: Builder, shape: tuple[int, ...], keep: float) -> Value:
    return _draw(b, "mask", shape, "bool", keep=keep)


def dropout(b: Builder, c: NodeCall) -> tuple[Value, Value]:
    x, p = c["input"], c["p"]
    if c["train"] is False or p == 0:
        return x, b.full(x.shape, True, "bool")
    if p == 1:
        return b.full(x.shape, 0.0, x.dtype), b.full(x.shape, False, "bool")
    mask = _mask(b, x.shape, 1.0 - p)
    return _apply(b, x, mask, 1.0 / (1.0 - p)), mask


def _apply(b: Builder, x: Value, mask: Value, scale: float) -> Value:
    return b.emit("girih.apply_mask", x.shape, x.dtype, input=x, mask=mask, scale=scale)


def dropout_backward(b: Builder, c: NodeCall) -> Value:
    return _apply(b, c["grad_output"], c["mask"], c["scale"])


def bernoulli(b: Builder, c: NodeCall) -> Value:
    p = c.arguments.get("p")
    if isinstance(p, (int, float)):
        return b.cast(_mask(b, c.out.shape, float(p)), c.out.dtype)
    chance = c["self"] if p is None else p
    drawn = _draw(b, "uniform", c.out.shape, chance.dtype, dtype=chance.dtype)
    options = {"self": drawn, "other": chance}
    return b.cast(b.emit("aten.lt.Tensor", c.out.shape, "bool", **options), c.out.dtype)


def _affine(b: Builder, x: Value, times: Any, plus: Any) -> Value:
    x = x if times == 1 else b.binary("mul", x, times)
    return x if plus == 0 else b.binary("add", x, plus)


def uniform(b: Builder, c: NodeCall) -> Value:
    low, high = c.arguments.get("from", 0.0), c.arguments.get("to", 1.0)
    drawn = _draw(b, "uniform", c.out.shape, c.out.dtype, dtype=c.out.dtype)
    return _affine(b, drawn, high - low, low)


def normal(b: Builder, c: NodeCall) -> Value:
    mean, deviation = c.arguments.get("mean", 0.0), c.arguments.get("std", 1.0)
    drawn = _draw(b, "normal", c.out.shape, c.out.dtype, dtype=c.out.dtype)
    return _affine(b, drawn, deviation, mean)


def exponential(b: Builder, c: NodeCall) -> Value:
    """-log(u) / lambd of a uniform u, kept off 0."""
    tiny = {"float64": 2.3e-308, "float16": 6e-8}.get(c.out.dtype, 1.2e-38)
    drawn = _draw(b, "uniform", c.out.shape, c.out.dtype, dtype=c.out.dtype)
    return _affine(b, b.unary("log", b.binary("add", drawn, tiny)), -1.0 / c.arguments.get("lambd", 1.0), 0)


def integers(b: Builder, c: NodeCall) -> Value:
    low, high = c.arguments.get("low", 0), c["high"]
    options = {"low": low, "high": high, "dtype": c.out.dtype}
    return _draw(b, "integers", c.out.shape, c.out.dtype, **options)


def permutation(b: Builder, c: NodeCall) -> Value:
    """The order of as many uniform numbers."""
    drawn = _draw(b, "uniform", c.out.shape, "float64", dtype="float64")
    options = {"input": drawn, "dim": 0, "descending": False}
    return b.cast(b.emit("girih.sort_indices", c.out.shape, "int64", **options), c.out.dtype)


def multinomial(b: Builder, c: NodeCall) -> Value:
    """Without replacement: where weight / -log(u) is largest, of uniform numbers u (Efraimidis and Spirakis, 2006).

    With it: the first class up to which the weights' sum is above u times the sum of all.
    """
    weights, count = b.cast(c["self"], "float64"), c["num_samples"]
    *batch, classes = weights.shape
    last = len(batch)
    if count > 1 and c["replacement"]:
        drawn = _draw(b, "uniform", (*batch, count), "float64", dtype="float64")
        below = b.emit("aten.cumsum", weights.shape, "float64", self=weights, dim=last)
        goal = b.binary("mul", drawn, b.slice(below, last, classes - 1, classes))
        below, goal = b.reshape(below, (*batch, 1, classes)), b.reshape(goal, (*batch, count, 1))
        passed = b.emit("aten.le.Tensor", (*batch, count, classes), "bool", self=below, other=goal)
        return b.sum(b.cast(passed, "int64"), (last + 1,), keepdim=False)
    drawn = _draw(b, "uniform", weights.shape, "float64", dtype="float64")
    waits = b.unary("neg", b.unary("log", b.binary("add", drawn, 2.3e-308)))
    keys = b.binary("div", weights, waits)
    options = {"k": count, "dim": last, "largest": True}
    return b.emit("girih.topk_indices", c.out.shape, "int64", input=keys, **options)


_FILLED = "zeros zeros_like new_zeros zero empty.memory_format empty_like empty_strided empty_permuted new_empty"
_NORMAL = "randn randn_like normal_functional normal.float_float normal.Tensor_float normal.float_Tensor"

RULES: dict[str, Any] = {
    **alike(full, "full full_like new_full"),
    **alike(filler(0), f"{_FILLED} new_empty_strided"),
    **alike(filler(1), "ones ones_like new_ones"),
    **alike(fill, "fill.Scalar fill.Tensor"),
    **alike(arange, "arange arange.start arange.start_step"),
    **alike(typed, "eye eye.m linspace"),
    **alike(bernoulli, "bernoulli bernoulli.p bernoulli.Tensor"),
    **alike(uniform, "rand rand_like uniform"),
    **alike(normal, f"{_NORMAL} normal.Tensor_Tensor"),
    **alike(integers, "randint randint.low randint_like randint_like.low_dtype"),
    "aten.scalar_tensor": scalar_tensor,
    "aten.native_dropout": dropout,
    "aten.native_dropout_backward": dropout_backward,
    "aten.randperm": permutation,
    "aten.multinomial": multinomial,
    "aten.exponential": exponential,
}
