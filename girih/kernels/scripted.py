"""Kernels that TorchScript compiles too, so that a group's loop runs without the interpreter's lock
(`girih.run.loops.torchscript`): their text is all that it gets, which is why types are written as TorchScript has them.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor


def mean(input: Tensor, dims: list[int], keepdim: bool, count: int) -> Tensor:
    """Σ input / count."""
    return input.sum(dims, keepdim=keepdim).div_(count)


def argmax(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """PyTorch's argmax of floating-point numbers takes twice as long as its max, which tells the place, too."""
    if x.is_floating_point():
        return torch.max(x, dim, keepdim)[1]
    return torch.argmax(x, dim, keepdim)


def argmin(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """By min, as `argmax` by max."""
    if x.is_floating_point():
        return torch.min(x, dim, keepdim)[1]
    return torch.argmin(x, dim, keepdim)


def label_positions(labels: Tensor, values: Tensor, first: int = 0) -> Tensor:
    """For each label the least position, counted from `first`, at which `values` has it; int64's largest if none.

    Values one after another (0 to k - 1, as of an argmin) are subtracted, others sorted and searched.
    """
    count = values.numel()
    low = int(values[0])
    if torch.equal(values.long() - low, torch.arange(count, device=values.device)):
        spot = labels.to(torch.int64, copy=True).sub_(low)
        outside = outside_of(spot, count)
        spot = spot.add_(first) if first != 0 else spot
        return spot if outside is None else spot.masked_fill_(outside, 9223372036854775807)
    ordered, order = torch.sort(values, stable=True)
    spot = torch.searchsorted(ordered, labels.contiguous()).clamp_(max=count - 1)
    outside = ordered.index_select(0, spot).ne(labels)
    return order.index_select(0, spot).add_(first).masked_fill_(outside, 9223372036854775807)


def sums_by_position(input: Tensor, positions: Tensor, groups: int, first: int = 0) -> Tensor:
    """Σ of the rows of `input` whose position is each of first ... first + groups - 1; each row is read once.

    Numbers with less than 64 bits are added as float64, as sums over blocks are.
    """
    rows = list(input.shape)[1:]
    kind = torch.float64 if input.dtype in (torch.float32, torch.float16, torch.bfloat16) else input.dtype
    spot = positions - first
    outside = outside_of(spot, groups)
    if outside is None:
        out = torch.zeros([groups] + rows, dtype=kind, device=input.device)  # noqa: RUF005 (TorchScript)
        return out.index_add_(0, spot, input.contiguous().to(kind)).to(input.dtype)
    spot = spot.masked_fill_(outside, groups)  # they have a row of their own
    out = torch.zeros([groups + 1] + rows, dtype=kind, device=input.device)  # noqa: RUF005 (TorchScript)
    out.index_add_(0, spot, input.contiguous().to(kind))
    del spot
    return out[:groups].to(input.dtype, copy=True)


def counts_by_position(positions: Tensor, groups: int, first: int = 0) -> Tensor:
    """How many positions are each of first ... first + groups - 1."""
    spot = positions.reshape(-1) - first
    outside = outside_of(spot, groups)
    if outside is None:
        return torch.bincount(spot, minlength=groups)
    out = torch.bincount(spot.masked_fill_(outside, groups), minlength=groups + 1)
    del spot
    return out[:groups].clone()


def outside_of(spot: Tensor, count: int) -> Tensor | None:
    """Which numbers are not of 0 ... count - 1; None if there are none."""
    if spot.numel() > 0:
        low, high = torch.aminmax(spot)
        if int(low) < 0 or int(high) >= count:
            return (spot < 0) | (spot >= count)
    return None


_KERNELS = (mean, argmax, argmin, label_positions, sums_by_position, counts_by_position)
SCRIPTED_KERNELS = {f"girih.{kernel.__name__}": kernel for kernel in _KERNELS}
SCRIPT = "\n".join(inspect.getsource(function) for function in (outside_of, *_KERNELS))
