"""Element-wise functions of arrays by NumPy, where PyTorch's results differ from it.

PyTorch's square roots were seen to be one unit off for about one number in a hundred (float64, on the processor that
this was written on; why, is not known). NumPy's are correctly rounded everywhere, and take 1.3 to 2.4 times as long
(one core, memory in its cache). Of complex numbers some of PyTorch's functions differ at signed zeros, infinities and
very small numbers; its remainders of real numbers are NaN where the quotient overflows. A training step keeps PyTorch's
functions, so that it computes what PyTorch does on one device; arrays promise what NumPy computes.

They are operators of PyTorch's registry, too, so that a loop over blocks that calls them can be compiled; NumPy takes
the interpreter's lock only to begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Tensor = Any  # torch is untyped for the type checker


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.resolve_conj().resolve_neg().numpy()  # type: ignore[no-any-return]


def _unary(function: np.ufunc) -> Callable[[Tensor], Tensor]:
    def kernel(self: Tensor) -> Tensor:
        out = torch.empty_like(self)  # memory of PyTorch's, which is counted
        with np.errstate(all="ignore"):
            function(_numbers(self), out=out.numpy())
        return out

    return kernel


def _binary(function: np.ufunc) -> Callable[[Tensor, Tensor], Tensor]:
    def kernel(self: Tensor, other: Tensor) -> Tensor:
        out = torch.empty(torch.broadcast_shapes(self.shape, other.shape), dtype=torch.result_type(self, other))
        with np.errstate(all="ignore"):
            function(_numbers(self), _numbers(other), out=out.numpy())
        return out

    return kernel


def _remainder(quick: Callable[[Tensor, Tensor], Tensor], function: np.ufunc) -> Callable[[Tensor, Tensor], Tensor]:
    """PyTorch's, which is many times as fast; where something of it is NaN, all of it by NumPy."""
    exact = _binary(function)

    def kernel(self: Tensor, other: Tensor) -> Tensor:
        remainder = quick(self, other)
        return exact(self, other) if bool(remainder.sum().isnan()) else remainder  # a sum needs no memory of its own

    return kernel


def _power(self: Tensor, exponent: Tensor) -> Tensor:  # by the names that PyTorch's has
    return _binary(np.power)(self, exponent)


def whole_power(self: Tensor, exponent: Tensor) -> Tensor:
    """Powers of whole numbers as NumPy has them: PyTorch makes 0 where a power is no whole number.

    Raises:
        ValueError: an exponent is negative.
    """
    if exponent.numel() and int(exponent.min()) < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    return torch.pow(self, exponent)


REMAINDERS = ("girih.fmod", "girih.remainder")
EXACT_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.sqrt": _unary(np.sqrt),
    "girih.log1p": _unary(np.log1p),
    "girih.acos": _unary(np.arccos),
    "girih.square": _unary(np.square),
    "girih.reciprocal": _unary(np.reciprocal),
    "girih.sgn": _unary(np.sign),
    "girih.neg": _unary(np.negative),
    "girih.power": _power,
    "girih.whole_power": whole_power,
    "girih.fmod": _remainder(torch.fmod, np.fmod),
    "girih.remainder": _remainder(torch.remainder, np.remainder),
}

for _name, _kernel in EXACT_KERNELS.items():
    _operator = _name.replace(".", "::")
    _second = ", Tensor exponent" if "power" in _name else ", Tensor other" if _name in REMAINDERS else ""
    torch.library.define(_operator, f"(Tensor self{_second}) -> Tensor")
    torch.library.impl(_operator, "CPU", _kernel)
