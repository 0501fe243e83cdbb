"""Element-wise functions of arrays by NumPy, where PyTorch's results differ from it.

PyTorch's square roots were seen to be one unit off for about one number in a hundred (float64, on the processor that
this was written on; why, is not known). NumPy's are correctly rounded everywhere. Of complex numbers some of PyTorch's
functions differ at signed zeros, infinities and very small numbers. A training step keeps PyTorch's functions, so that
it computes what PyTorch does on one device; arrays promise what NumPy computes.

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


def _power(self: Tensor, exponent: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(self.shape, exponent.shape)
    out = torch.empty(shape, dtype=torch.result_type(self, exponent))
    with np.errstate(all="ignore"):
        np.power(_numbers(self), _numbers(exponent), out=out.numpy())
    return out


def whole_power(self: Tensor, exponent: Tensor) -> Tensor:
    """Of whole numbers, as NumPy has it: PyTorch makes 0 where a power is none.

    Raises:
        ValueError: an exponent is negative.
    """
    if exponent.numel() and int(exponent.min()) < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    return torch.pow(self, exponent)


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
}

for _name, _kernel in EXACT_KERNELS.items():
    _operator = _name.replace(".", "::")
    _operands = "Tensor self, Tensor exponent" if "power" in _name else "Tensor self"
    torch.library.define(_operator, f"({_operands}) -> Tensor")
    torch.library.impl(_operator, "CPU", _kernel)
