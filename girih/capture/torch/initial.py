"""How to make the state of a program without carrying its weights: a recipe for each tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True, slots=True)
class Initial:
    """constant: `a` everywhere; normal: mean `a`, deviation `b`; uniform: from `a` to `b`.

    Whole numbers are drawn from a to b inclusive.
    """

    kind: Literal["constant", "normal", "uniform"]
    a: float
    b: float = 0.0


def initial_of(module: Any, key: str, tensor: Any) -> Initial:
    """The recipe for `module.key`: measured where the tensor is real, else by convention."""
    if is_real(tensor):
        return measured(tensor)
    if key == "running_var":
        return Initial("constant", 1.0)
    if not tensor.dtype.is_floating_point or key == "running_mean" or "bias" in key:
        return Initial("constant", 0.0)
    if "Embedding" in type(module).__name__:
        return Initial("normal", 0.0, 0.02)
    if tensor.dim() < 2:
        return Initial("constant", 1.0 if "weight" in key else 0.0)
    bound = 1.0 / math.sqrt(max(1, math.prod(tensor.shape[1:])))
    return Initial("uniform", -bound, bound)


def measured(tensor: Any) -> Initial:
    """A recipe with the moments of a real tensor; whole numbers stay within their range, complex ones become real."""
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        if not flat.numel():
            return Initial("constant", 0.0)
        if tensor.dtype.is_complex:
            return Initial("constant", float(flat.abs().mean()))
        if not tensor.dtype.is_floating_point:
            low, high = float(flat.min()), float(flat.max())
            return Initial("constant", low) if low == high else Initial("uniform", low, high)
        first = flat[0]
        if bool((flat == first).all()):
            return Initial("constant", float(first))
        if not bool(flat.isfinite().all()):  # a mask of -inf: its finite part
            return Initial("constant", 0.0)
        exact = flat if flat.dtype == torch.float64 else flat.float()
        return Initial("normal", float(exact.mean()), float(exact.std(correction=0)))


def is_real(tensor: Any) -> bool:
    return tensor.device.type != "meta" and not isinstance(tensor, torch._subclasses.fake_tensor.FakeTensor)
