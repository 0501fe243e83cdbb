"""Universal functions of few users, which NumPy computes on tiles, and tests of kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, broadcast_shapes, kind_of, operands, typed
from girih.array.core.dtypes import loop_dtypes, name_of
from girih.array.core.universal import UniversalFunction, written
from girih.array.core.views import copied
from girih.array.functions.elementwise import logic
from girih.array.functions.elementwise import ufuncs as e
from girih.ops import functions


@dataclass(frozen=True)
class OfTiles:
    """One result of NumPy's function, as a function of tiles."""

    ufunc: np.ufunc
    position: int

    def __call__(self, *tiles: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            results = self.ufunc(*tiles)
        return results[self.position] if self.ufunc.nout > 1 else results  # type: ignore[no-any-return]


def by_numpy(ufunc: np.ufunc) -> UniversalFunction:
    """NumPy's function, called on tiles in the dtypes of its own loops: element by element, and divided, as others."""

    def called(*items: Any) -> Any:
        inputs = operands(*items)
        kinds = loop_dtypes(ufunc, tuple(map(kind_of, inputs)), ufunc.nout)
        tensors = tuple(typed(item, kind) for item, kind in zip(inputs, kinds, strict=False))
        shape = broadcast_shapes(*(x.shape for x in tensors))
        results = []
        for position, kind in enumerate(kinds[ufunc.nin :]):
            text = functions.text_of(OfTiles(ufunc, position))
            results.append(apply("girih.map", shape, kind, tensors=tensors, function=text, kind=name_of(kind)))
        return tuple(results) if ufunc.nout > 1 else results[0]

    return UniversalFunction(ufunc, called)


bitwise_count = by_numpy(np.bitwise_count)
cbrt = by_numpy(np.cbrt)
float_power = by_numpy(np.float_power)
frexp = by_numpy(np.frexp)
heaviside = by_numpy(np.heaviside)
ldexp = by_numpy(np.ldexp)
modf = by_numpy(np.modf)
spacing = by_numpy(np.spacing)


def angle(z: Any, deg: bool = False) -> Array:
    x = as_array(z)
    result = e.arctan2(x.imag, x.real) if x.dtype.kind == "c" else e.arctan2(0, x)
    return result * (180 / np.pi) if deg else result


def isposinf(x: Any, /, out: Any = None) -> Any:
    return _infinite(x, np.inf, out)


def isneginf(x: Any, /, out: Any = None) -> Any:
    return _infinite(x, -np.inf, out)


def _infinite(x: Any, which: float, out: Any) -> Any:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {x.dtype} values because it would be ambiguous.")
    return written(logic.equal(x, which), out)


def iscomplex(x: Any) -> Array:
    return logic.not_equal(e.imag(x), 0)


def isreal(x: Any) -> Array:
    return logic.equal(e.imag(x), 0)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """Whether all imaginary parts are small is computed now."""
    x = as_array(a)
    if x.dtype.kind != "c":
        return x
    limit = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    return e.real(x) if bool(logic.less(e.absolute(e.imag(x)), limit).all()) else x


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    x = as_array(a).as_written()
    return x.copy() if order == "C" else copied(x)
