"""Triangular systems by SciPy's BLAS where it is faster than PyTorch's (as products are, `girih.ops.products`).

SciPy gives the addresses of its BLAS in `scipy.linalg.cython_blas`. A call by address leaves the interpreter's lock, as
SciPy's own functions do not.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from girih.ops.products import foreign_mkl, single

Tensor = Any  # torch is untyped for the type checker

BLAS = "scipy.linalg.cython_blas"
_NAMES = {torch.float32: ("strsm", ctypes.c_float), torch.float64: ("dtrsm", ctypes.c_double)}


def solve_right(factor: Tensor, b: Tensor, out: Tensor) -> None:
    """X of X·Lᴴ = B, into `out`. factor: L, a lower triangle; b, out: [rows, columns], the rows of `out` in order.

    Raises:
        RuntimeError: PyTorch's, where shapes do not fit.
    """
    alone = single(BLAS) if _fits(factor, b, out) else None
    if alone is None:  # conj(L)·Xᵀ = Bᵀ: LAPACK's columns are rows, and made where they stay
        torch.linalg.solve_triangular(factor.conj(), b.mT, upper=False, out=out.mT)
        return
    function, number = _function(b.dtype)
    in_order = factor.stride(1) == 1  # then its transpose to BLAS, whose columns are in order
    upper, turned, stride = (b"U", b"T", factor.stride(0)) if in_order else (b"L", b"N", factor.stride(1))
    letters = [ctypes.byref(ctypes.c_char(letter)) for letter in (b"L", upper, turned, b"N")]
    rows, columns, down, across = [ctypes.byref(ctypes.c_int(n)) for n in (*b.shape, stride, out.stride(0))]
    out.copy_(b)
    with alone:
        function(*letters, columns, rows, ctypes.byref(number(1)), factor.data_ptr(), down, out.data_ptr(), across)


def _fits(factor: Tensor, b: Tensor, out: Tensor) -> bool:
    if b.dtype not in _NAMES or not foreign_mkl() or torch.get_num_threads() != 1:
        return False
    size = b.shape[1]
    squares = factor.shape == (size, size) and factor.dtype == b.dtype and min(b.shape) > 0
    in_order = 1 in factor.stride() and max(factor.stride()) >= size and out.stride(1) == 1 and out.stride(0) >= size
    return squares and in_order and factor.is_cpu and b.is_cpu and out.shape == b.shape


@cache
def _function(dtype: Any) -> tuple[Callable[..., None], Any]:
    """BLAS's for numbers of a kind, and its numbers."""
    name, number = _NAMES[dtype]
    capsule = ctypes.py_object(importlib.import_module(BLAS).__pyx_capi__[name])
    signature = ctypes.pythonapi.PyCapsule_GetName
    signature.restype = ctypes.c_char_p
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(address(capsule, signature(capsule))), number
