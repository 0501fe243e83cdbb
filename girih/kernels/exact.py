"""Element-wise functions of arrays by NumPy, where PyTorch's results differ from it, or take longer.

PyTorch's square roots were seen to be one unit off for about one number in a hundred (float64, on the processor that
this was written on; why, is not known). NumPy's are correctly rounded everywhere, and take 1.3 to 2.4 times as long
(one core, memory in its cache). Of complex numbers some of PyTorch's functions differ at signed zeros, infinities and
very small numbers; its remainders of real numbers are NaN where the quotient overflows. A training step keeps PyTorch's
functions, so that it computes what PyTorch does on one device; arrays promise what NumPy computes.

Exponentials, logarithms, hyperbolic and trigonometric functions take two to eleven times as long by PyTorch where NumPy
has loops for this processor's wide vectors, and NumPy up to eight times as long where it has none: NumPy says which it
has. Of doubles they are for AVX-512 alone: what NumPy has of them for AVX2 calls the C library for each number.
`isnan` and its like are NumPy's everywhere.

They are operators of PyTorch's registry, too, so that a loop over blocks that calls them can be compiled; NumPy takes
the interpreter's lock only to begin. Functions of one operand also write into memory that is there (`INTO_KERNELS`),
which may be the operand's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Tensor = Any  # torch is untyped for the type checker


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.resolve_conj().resolve_neg().numpy()  # type: ignore[no-any-return]


def _into(function: np.ufunc) -> Callable[..., Tensor]:
    def kernel(self: Tensor, *, out: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            function(_numbers(self), out=out.numpy())
        return out

    return kernel


def _quicker(function: np.ufunc, quick: Callable[..., Tensor], complex_too: bool = False) -> Callable[..., Tensor]:
    """NumPy's of the dtypes of which it has loops for wide vectors here, else PyTorch's.

    complex_too: NumPy's of complex numbers, of which PyTorch's differ.
    """
    numpys, wide = _into(function), _wide(function.__name__)
    wide |= {torch.complex64, torch.complex128} if complex_too else set()

    def kernel(self: Tensor, *, out: Tensor) -> Tensor:
        return numpys(self, out=out) if self.dtype in wide else quick(self, out=out)

    return kernel


def _made(into: Callable[..., Tensor], dtype: Any = None) -> Callable[[Tensor], Tensor]:
    """A function with a result of its own, in memory of PyTorch's, which is counted."""

    def kernel(self: Tensor) -> Tensor:
        out = torch.empty_like(self, dtype=dtype)
        return out if self.is_meta else into(self, out=out)  # of a rule only shapes are asked

    return kernel


def _wide(name: str) -> frozenset[Any]:
    """The dtypes of which NumPy computes a function by vectors that not every processor of this kind has."""
    introspect = getattr(np.lib, "introspect", None)  # not in NumPy 1.26 and 2.0
    if introspect is None:
        return frozenset()
    loops = introspect.opt_func_info(func_name=f"^{name}$").get(name, {})
    current = {kind: loop["current"] for kind, loop in loops.items()}
    wide = {torch.float32} if not current.get("ff", "baseline").startswith("baseline") else set()
    return frozenset(wide | {torch.float64} if current.get("dd", "").startswith(("AVX512", "X86_V4")) else wide)


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
TRUTHS = ("signbit", "isnan", "isinf", "isfinite")
INTO_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.sqrt": _into(np.sqrt),
    "girih.square": _into(np.square),
    "girih.reciprocal": _into(np.reciprocal),
    "girih.sgn": _into(np.sign),
    "girih.neg": _into(np.negative),
    "girih.trunc": _into(np.trunc),
    "girih.exp": _quicker(np.exp, torch.exp),
    "girih.expm1": _quicker(np.expm1, torch.expm1),
    "girih.log": _quicker(np.log, torch.log),
    "girih.log1p": _quicker(np.log1p, torch.log1p, complex_too=True),
    "girih.log2": _quicker(np.log2, torch.log2),
    "girih.log10": _quicker(np.log10, torch.log10),
    "girih.tan": _quicker(np.tan, torch.tan),
    "girih.asin": _quicker(np.arcsin, torch.asin),
    "girih.acos": _quicker(np.arccos, torch.acos, complex_too=True),
    "girih.atan": _quicker(np.arctan, torch.atan),
    "girih.sinh": _quicker(np.sinh, torch.sinh),
    "girih.cosh": _quicker(np.cosh, torch.cosh),
    "girih.tanh": _quicker(np.tanh, torch.tanh),
    "girih.asinh": _quicker(np.arcsinh, torch.asinh),
    "girih.acosh": _quicker(np.arccosh, torch.acosh),
    "girih.atanh": _quicker(np.arctanh, torch.atanh),
    **{f"girih.{name}": _into(getattr(np, name)) for name in TRUTHS},
}
"""Those that write into `out`."""
EXACT_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{name: _made(into, torch.bool if name[6:] in TRUTHS else None) for name, into in INTO_KERNELS.items()},
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
for _name, _kernel in INTO_KERNELS.items():
    _operator = f"{_name.replace('.', '::')}.out"
    torch.library.define(_operator, "(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
    torch.library.impl(_operator, "CPU", _kernel)
