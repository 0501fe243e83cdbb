"""Sums, extrema, means over axes; what is normalised by them; orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from girih.inference.onnx.operators import OnnxOperator, operator

Tensor = Any
Axes = Sequence[int] | None


def _over(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    """A reduction's function: over all axes where none are given, unless those are to mean none."""

    def reduced(data: Tensor, axes: Axes = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and noop_with_empty_axes:
            dims: list[int] = []
        else:
            dims = [axis % max(data.dim(), 1) for axis in axes or range(data.dim())]
        return function(data, dims, bool(keepdims))

    return reduced


def _sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return torch.sum(x, dims, keep, dtype=x.dtype) if dims else x


def _extreme(function: Callable[..., Tensor]) -> Callable[[Tensor, list[int], bool], Tensor]:
    def extreme(x: Tensor, dims: list[int], keep: bool) -> Tensor:
        """The reduction of nothing is the least, or the greatest, number of the dtype."""
        if not dims:
            return x
        if x.dtype is torch.bool:
            return extreme(x.to(torch.uint8), dims, keep).to(torch.bool)
        if any(x.shape[dim] == 0 for dim in dims):
            shape = [1 if dim in dims else size for dim, size in enumerate(x.shape) if keep or dim not in dims]
            limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
            low, high = (-torch.inf, torch.inf) if x.is_floating_point() else (limits.min, limits.max)
            return torch.full(shape, low if function is torch.amax else high, dtype=x.dtype)
        return function(x, dims, keep)

    return extreme


def _product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, keep, dtype=x.dtype)
    return x


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if not dims:
        return x
    if x.is_floating_point():
        return torch.mean(x, dims, keep)
    return torch.div(_sum(x, dims, keep), math.prod([x.shape[dim] for dim in dims]), rounding_mode="trunc")


REDUCTIONS = tuple(
    OnnxOperator(name, _over(function), frozenset({"axes"}))
    for name, function in {
        "ReduceSum": _sum,
        "ReduceMean": _mean,
        "ReduceMax": _extreme(torch.amax),
        "ReduceMin": _extreme(torch.amin),
        "ReduceProd": _product,
        "ReduceL1": lambda x, dims, keep: _sum(torch.abs(x), dims, keep),
        "ReduceL2": lambda x, dims, keep: torch.sqrt(_sum(x * x, dims, keep)),
        "ReduceSumSquare": lambda x, dims, keep: _sum(x * x, dims, keep),
        "ReduceLogSum": lambda x, dims, keep: torch.log(_sum(x, dims, keep)),
        "ReduceLogSumExp": lambda x, dims, keep: torch.logsumexp(x, dims, keep) if dims else x,
    }.items()
)


def _position(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def position(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return function(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - function(torch.flip(x, [axis]), axis, bool(keepdims))

    return position


POSITIONS = (OnnxOperator("ArgMax", _position(torch.argmax)), OnnxOperator("ArgMin", _position(torch.argmin)))


def _running(function: Callable[..., Tensor], start: int) -> Callable[..., Tensor]:
    def running(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        if reverse:
            x = torch.flip(x, [axis])
        result = function(x, axis, dtype=x.dtype)
        if exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), start)
            result = torch.cat([first, result.narrow(axis, 0, x.shape[axis] - 1)], axis)
        return torch.flip(result, [axis]) if reverse else result

    return running


RUNNING = (
    OnnxOperator("CumSum", _running(torch.cumsum, 0), frozenset({"axis"})),
    OnnxOperator("CumProd", _running(torch.cumprod, 1), frozenset({"axis"})),
)


@operator("TopK", known=("k",))
def top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """Equal numbers stay in their order, so it sorts stably."""
    count = k[0] if isinstance(k, list) else k
    values, positions = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count), positions.narrow(axis, 0, count)


def _flat(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Before opset 13: over all axes from `axis` on."""

    def flat(x: Tensor, *, axis: int = 1) -> Tensor:
        rows = x.reshape([math.prod(x.shape[: axis % x.dim()]), -1])
        return function(rows, 1).reshape(x.shape)

    return flat


SOFTMAX = (
    OnnxOperator("Softmax", lambda x, *, axis=-1: torch.softmax(x, axis), since=13),
    OnnxOperator("LogSoftmax", lambda x, *, axis=-1: torch.log_softmax(x, axis), since=13),
    OnnxOperator("Softmax", _flat(torch.softmax)),
    OnnxOperator("LogSoftmax", _flat(torch.log_softmax)),
)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """One at the first of the greatest, zero elsewhere."""
    where = torch.argmax(x, axis, keepdim=True)
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    return (torch.arange(x.shape[axis]).reshape(shape) == where).to(x.dtype)


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = torch.sum(torch.abs(x), axis, True) if p == 1 else torch.sqrt(torch.sum(x * x, axis, True))
    return torch.where(size == 0, torch.zeros_like(x), x / size)
