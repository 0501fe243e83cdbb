"""Matrix products by NumPy's BLAS where it is faster than PyTorch's.

PyTorch's is MKL on x86, which on processors that are not Intel's is slower than OpenBLAS: much where the result is
narrow, a little elsewhere, but for results of few rows. PyTorch has no kernel for a matrix times its own transpose;
NumPy has, of half the multiplications. Which kernel computes depends on the processor, the shapes, the memory order and
the worker's threads only, so that all workers of a kind make the same bits.

There both also wait for memory where a tall matrix has rows of about a hundred elements. It is read ahead of them.

A worker's thread computes alone: PyTorch's kernels share out their work where a worker has more than one.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from girih.graph.graph import ITEM_BYTES

Tensor = Any  # torch is untyped for the type checker

LEAST = 8
"""Below so many rows, columns or terms PyTorch has quicker kernels; but for columns only of a transposed matrix."""
LONG = 1 << 19
"""So many multiplications take some tens of microseconds: what Python adds to a call is nothing beside them."""
LARGE, PIECE = 1 << 23, 1 << 20
"""A tall matrix of so many bytes lies in memory, not in a cache; so many of them are read into the cache at a time."""
ROW_BYTES = (1 << 9, 1 << 14)
"""A matrix with rows of this length is read slowly where it is packed: of several rows at a time, each far away."""
THIN = 64
"""With more columns of the other matrix than these, multiplying takes longer than reading."""
_FLOATS = (torch.float32, torch.float64)


def product(self: Tensor, mat2: Tensor) -> Tensor:
    """self · mat2 of matrices or of batches of them, as aten.mm and aten.bmm."""
    alone = single() if _is_faster(self, mat2) else None
    if alone is None:
        return torch.mm(self, mat2) if self.dim() == 2 else torch.bmm(self, mat2)
    out = torch.empty((*self.shape[:-1], mat2.shape[-1]), dtype=self.dtype)
    with alone:
        _multiply(self, mat2, out)
    return out


def product_with_vector(self: Tensor, vec: Tensor) -> Tensor:
    """self · vec, as aten.mv."""
    alone = single() if _is_read_in_pieces(self, vec) else None
    if alone is None:
        return torch.mv(self, vec)
    out = torch.empty(self.shape[0], dtype=self.dtype)
    with alone:
        _multiply_in_pieces(self, vec.unsqueeze(1), out.unsqueeze(1))
    return out


def _is_read_in_pieces(matrix: Tensor, vec: Tensor) -> bool:
    if matrix.dtype not in _FLOATS or vec.dtype != matrix.dtype or matrix.shape[1:] != vec.shape:
        return False
    if torch.get_num_threads() != 1 or not foreign_mkl() or any(map(_is_odd, (matrix, vec.unsqueeze(1)))):
        return False
    return _is_tall(matrix, vec.unsqueeze(1))


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    for tall, thin, made in ((a, b, out), (b.mT, a.mT, out.mT)):
        if _is_tall(tall, thin):
            _multiply_in_pieces(tall, thin, made)
            return
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())  # a matrix and its own transpose: BLAS's syrk


def _is_tall(a: Tensor, b: Tensor) -> bool:
    """Does a matrix in memory, with rows that are neither short nor long, meet one of few columns?"""
    if a.dim() != 2 or a.nbytes < LARGE or b.shape[1] > THIN or a.data_ptr() == b.data_ptr():
        return False
    return _has_such_rows(a.shape[1 if a.stride(1) == 1 else 0], a.element_size())


def _has_such_rows(count: int, item_bytes: int) -> bool:
    return ROW_BYTES[0] <= count * item_bytes <= ROW_BYTES[1]


def reads_slowly(operator: str, shape: Sequence[int], dtype: str) -> bool:
    """Does a product with blocks of this matrix wait for memory, unless they have just been read into the cache?"""
    if operator not in PRODUCTS or len(shape) != 2 or dtype not in ("float32", "float64"):
        return False
    size = ITEM_BYTES[dtype]
    return prod(shape) * size >= LARGE and _has_such_rows(shape[1], size) and foreign_mkl()


def _multiply_in_pieces(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Each piece of a's memory is read from its beginning to its end, as a sum reads it, which brings it into the cache
    at the speed of memory; BLAS, that reads it next, does not by itself."""
    along = 0 if a.stride(1) == 1 else 1
    pieces = a.split(max(1, PIECE // (a.shape[1 - along] * a.element_size())), along)
    if along == 0:
        for piece, made in zip(pieces, out.split(len(pieces[0])), strict=True):
            torch.sum(piece)
            np.matmul(piece.numpy(), b.numpy(), out=made.numpy())
        return
    total = out.zero_().numpy()
    part = np.empty_like(total)
    for piece, other in zip(pieces, b.split(pieces[0].shape[1]), strict=True):
        torch.sum(piece)
        total += np.matmul(piece.numpy(), other.numpy(), out=part)


torch.library.define("girih::product", "(Tensor self, Tensor mat2) -> Tensor")
torch.library.impl("girih::product", "CPU", product)
MATRIX_PRODUCTS = {"aten.mm": product, "aten.bmm": product}
PRODUCTS = {**MATRIX_PRODUCTS, "aten.mv": product_with_vector}
"""Operators that workers on CPUs compute by functions of this page."""
SCRIPT_NAME = "torch.ops.girih.product"
"""What TorchScript calls it, without the interpreter's lock around it."""


def is_long(shape: Sequence[int], terms: int) -> bool:
    """May `product` compute a result of this shape otherwise than PyTorch?"""
    return prod(shape) * terms >= LONG


def _is_faster(a: Tensor, b: Tensor) -> bool:
    if a.dtype not in _FLOATS or b.dtype != a.dtype or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return False  # where it is wrong, PyTorch says what is
    (rows, terms), columns = a.shape[-2:], b.shape[-1]
    if not is_long((*a.shape[:-1], columns), terms) or torch.get_num_threads() != 1:
        return False
    if min(rows, terms) < LEAST or any(map(_is_odd, (a, b))):
        return False
    if a.data_ptr() == b.data_ptr() and a.shape == b.mT.shape and a.stride() == b.mT.stride():
        return True
    return foreign_mkl() and (columns >= LEAST or (columns > 1 and b.stride(-1) == 1))


def _is_odd(x: Tensor) -> bool:
    """Would NumPy copy it, or not see it as it is?"""
    down, right = x.stride()[-2:]
    in_order = (right == 1 and down >= x.shape[-1]) or (down == 1 and right >= x.shape[-2])
    return not in_order or not x.is_cpu or x.requires_grad or x.is_neg()


@cache
def foreign_mkl() -> bool:
    """Is PyTorch's BLAS MKL, and the processor not Intel's, for which it is made?"""
    if not torch.backends.mkl.is_available():
        return False
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    maker = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), None)
    return maker is not None and maker != "GenuineIntel"


class Single:
    """While anybody is inside, NumPy's BLAS computes with one thread: with that which calls it."""

    def __init__(self, number: Any, set_number: Any) -> None:
        self._number = number
        self._set_number = set_number
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = self._number()
                if self._before != 1:
                    self._set_number(1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before != 1:
                self._set_number(self._before)


@cache
def single() -> Single | None:
    """Of NumPy's BLAS if that is an OpenBLAS; None if it is another, which nobody here can tell to use one thread."""
    for module in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            library = ctypes.PyDLL(str(importlib.import_module(module).__file__))
        except (ImportError, OSError):
            continue
        for name in ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads"):
            number = getattr(library, name.format("get"), None)
            set_number = getattr(library, name.format("set"), None)
            if number is not None and set_number is not None:
                return Single(number, set_number)
    return None
