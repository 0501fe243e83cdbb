"""Discrete Fourier transforms: whole along the transformed dimensions, divided along all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axes_of, axis_of, cast
from girih.array.core.universal import written
from girih.array.core.unsupported import missing
from girih.array.functions.elementwise.information import check_device
from girih.array.functions.shapes.manipulation import pad, roll
from girih.array.functions.whole import as_numpys

NORMS = {None: "backward", "backward": "backward", "ortho": "ortho", "forward": "forward"}
_NONE, _ROOT, _WHOLE = 0, 1, 2  # by what ATen divides: by nothing, by the root of the length, by the length


def _norm(norm: str | None, inverse: bool) -> int:
    if norm not in NORMS:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    divided = "backward" if inverse else "forward"
    return _ROOT if NORMS[norm] == "ortho" else _WHOLE if NORMS[norm] == divided else _NONE


def _floating(a: Any) -> Array:
    x = as_array(a)
    if x.dtype.kind in "fc" and x.dtype != np.float16:
        return x
    return cast(x, np.float32 if x.dtype == np.float16 else np.float64)


def _complex(a: Any) -> Array:
    x = _floating(a)
    return cast(x, np.result_type(x.dtype, np.complex64))


def _sized(x: Array, n: int | None, dim: int) -> Array:
    """Cut or filled with zeros to n elements along a dimension."""
    if n is None or n == x.shape[dim]:
        if x.shape[dim] < 1:
            raise ValueError(f"Invalid number of FFT data points ({x.shape[dim]}) specified.")
        return x
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    if n < x.shape[dim]:
        return x[(*(slice(None),) * dim, slice(0, n))]
    return pad(x, [(0, n - size if at == dim else 0) for at, size in enumerate(x.shape)])


def _whole(a: Any, sizes: Sequence[int | None], dims: Sequence[int], norm: str | None, inverse: bool) -> Array:
    """From complex numbers to complex numbers, along several dimensions."""
    x = _complex(a)
    for size, dim in zip(sizes, dims, strict=True):
        x = _sized(x, size, dim)
    if not dims:
        return x.copy()
    arguments = {"dim": tuple(dims), "normalization": _norm(norm, inverse), "forward": not inverse}
    return apply("aten._fft_c2c", x.shape, x.dtype, self=x, **arguments)


def _half(a: Any, n: int | None, dim: int, norm: str | None) -> Array:
    """From real numbers to the first half of the complex ones."""
    x = _floating(a)
    if x.dtype.kind == "c":
        raise TypeError("ufunc 'rfft_n_even' did not contain a loop with signature matching types complex128")
    x = _sized(x, n, dim)
    shape = (*x.shape[:dim], x.shape[dim] // 2 + 1, *x.shape[dim + 1 :])
    arguments = {"dim": (dim,), "normalization": _norm(norm, False), "onesided": True}
    return apply("aten._fft_r2c", shape, np.result_type(x.dtype, np.complex64), self=x, **arguments)


def _from_half(a: Any, n: int | None, dim: int, norm: str | None) -> Array:
    """From the first half of the complex numbers to real ones."""
    x = _complex(a)
    size = 2 * (x.shape[dim] - 1) if n is None else n
    if size < 1:
        raise ValueError(f"Invalid number of FFT data points ({size}) specified.")
    x = _sized(x, size // 2 + 1, dim)
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    arguments = {"dim": (dim,), "normalization": _norm(norm, True), "last_dim_size": size}
    return apply("aten._fft_c2r", shape, np.zeros(0, x.dtype).real.dtype, self=x, **arguments)


def _places(x: Array, s: Any, axes: Any) -> tuple[list[int | None], list[int]]:
    if axes is None:
        dims = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
    else:
        dims = [axis_of(axis, x.ndim) for axis in axes]
    sizes: list[int | None] = [None] * len(dims) if s is None else [None if size == -1 else int(size) for size in s]
    if len(sizes) != len(dims):
        raise ValueError("Shape and axes have different lengths.")
    return sizes, dims


# ------------------------------------------------------------------------------------------- one dimension


def _along(name: str, transform: Callable[[Array, int | None, int, str | None], Array]) -> Callable[..., Any]:
    def transformed(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
        x = as_array(a)
        return written(transform(x, n, axis_of(axis, x.ndim), norm), out)

    return as_numpys(transformed, getattr(np.fft, name))


def _opposite(norm: str | None) -> str:
    _norm(norm, False)
    return {"backward": "forward", "ortho": "ortho", "forward": "backward"}[NORMS[norm]]


fft = _along("fft", lambda x, n, dim, norm: _whole(x, [n], [dim], norm, False))
ifft = _along("ifft", lambda x, n, dim, norm: _whole(x, [n], [dim], norm, True))
rfft = _along("rfft", _half)
irfft = _along("irfft", _from_half)
hfft = _along("hfft", lambda x, n, dim, norm: _from_half(x.conj(), n, dim, _opposite(norm)))
ihfft = _along("ihfft", lambda x, n, dim, norm: _half(x, n, dim, _opposite(norm)).conj())

# ------------------------------------------------------------------------------------------- several dimensions


def _over(name: str, transform: Callable[..., Array]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A transform over any dimensions, and the same over two of them."""

    def transformed(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
        x = as_array(a)
        return written(transform(x, *_places(x, s, axes), norm), out)

    def of_two(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
        return transformed(a, s, axes, norm, out)

    return as_numpys(transformed, getattr(np.fft, f"{name}n")), as_numpys(of_two, getattr(np.fft, f"{name}2"))


def _half_over(x: Array, sizes: list[int | None], dims: list[int], norm: str | None) -> Array:
    return _whole(_half(x, sizes[-1], dims[-1], norm), sizes[:-1], dims[:-1], norm, False)


def _from_half_over(x: Array, sizes: list[int | None], dims: list[int], norm: str | None) -> Array:
    return _from_half(_whole(x, sizes[:-1], dims[:-1], norm, True), sizes[-1], dims[-1], norm)


fftn, fft2 = _over("fft", lambda x, sizes, dims, norm: _whole(x, sizes, dims, norm, False))
ifftn, ifft2 = _over("ifft", lambda x, sizes, dims, norm: _whole(x, sizes, dims, norm, True))
rfftn, rfft2 = _over("rfft", _half_over)
irfftn, irfft2 = _over("irfft", _from_half_over)

# ------------------------------------------------------------------------------------------- frequencies


def fftfreq(n: int, d: float = 1.0, device: Any = None, dtype: Any = None) -> Array:
    check_device(device)
    return as_array(np.fft.fftfreq(n, d), dtype)


def rfftfreq(n: int, d: float = 1.0, device: Any = None, dtype: Any = None) -> Array:
    check_device(device)
    return as_array(np.fft.rfftfreq(n, d), dtype)


def fftshift(x: Any, axes: Any = None) -> Array:
    return _shifted(as_array(x), axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Array:
    return _shifted(as_array(x), axes, -1)


def _shifted(x: Array, axes: Any, sign: int) -> Array:
    dims = axes_of(axes, x.ndim)
    return roll(x, tuple(sign * (x.shape[dim] // 2) for dim in dims), dims)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, globals())
