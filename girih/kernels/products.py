"""Matrix products by NumPy's BLAS where it is faster than PyTorch's.

PyTorch's is MKL on x86, which on processors that are not Intel's is slower than OpenBLAS: much where the result is
narrow, a little elsewhere, but for results of few rows; and half as fast for a vector times a long matrix of rows of a
hundred numbers. PyTorch has no kernel for a matrix times its own transpose;
NumPy has, of half the multiplications. Which kernel computes depends on the processor, the shapes, the memory order and
the worker's threads only, so that all workers of a kind make the same bits.

A worker's thread computes alone: PyTorch's kernels share out their work where a worker has more than one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import LibController, ThreadpoolController

Tensor = Any  # torch is untyped for the type checker

LEAST = 8
"""Below so many rows, columns or terms PyTorch has quicker kernels; but for columns only of a transposed matrix."""
LONG = 1 << 19
"""So many multiplications take some tens of microseconds: what Python adds to a call is nothing beside them."""
LONG_VECTOR, LEAST_VECTOR = 1 << 16, 32
"""The least numbers of a matrix for a product with a vector, and the least rows and terms of it: one that lies in a
cache then loses some microseconds, one that comes from memory, as each block of a large one does, gains tens."""
_FLOATS = (torch.float32, torch.float64)


def product(self: Tensor, mat2: Tensor) -> Tensor:
    """self · mat2 of matrices or of batches of them, as aten.mm and aten.bmm."""
    alone = single() if _is_faster(self, mat2) else None
    if alone is None:
        return torch.mm(self, mat2) if self.dim() == 2 else torch.bmm(self, mat2)
    out = torch.empty((*self.shape[:-1], mat2.shape[-1]), dtype=self.dtype)
    with alone:
        np.matmul(self.numpy(), mat2.numpy(), out=out.numpy())  # a matrix and its own transpose: BLAS's syrk
    return out


def vector_product(self: Tensor, vec: Tensor) -> Tensor:
    """self · vec of a matrix and a vector, as aten.mv."""
    alone = single() if _streams_faster(self, vec) else None
    if alone is None:
        return torch.mv(self, vec)
    out = torch.empty(self.shape[:1], dtype=self.dtype)
    with alone:
        np.matmul(self.numpy(), vec.numpy(), out=out.numpy())
    return out


torch.library.define("girih::product", "(Tensor self, Tensor mat2) -> Tensor")
torch.library.impl("girih::product", "CPU", product)
torch.library.define("girih::vector_product", "(Tensor self, Tensor vec) -> Tensor")
torch.library.impl("girih::vector_product", "CPU", vector_product)
PRODUCTS = {"aten.mm": product, "aten.bmm": product, "aten.mv": vector_product}
"""Operators that workers on CPUs compute by functions of this page."""
SCRIPT_NAMES = {operator: f"torch.ops.girih.{function.__name__}" for operator, function in PRODUCTS.items()}
"""What TorchScript calls them, without the interpreter's lock around it."""


def is_long(shape: Sequence[int], terms: int) -> bool:
    """May one of these functions compute a result of this shape otherwise than PyTorch?"""
    return prod(shape) * terms >= (LONG if len(shape) > 1 else LONG_VECTOR)


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


def _streams_faster(a: Tensor, vector: Tensor) -> bool:
    if a.dtype not in _FLOATS or vector.dtype != a.dtype or a.dim() != 2 or a.shape[1:] != vector.shape:
        return False  # where it is wrong, PyTorch says what is
    if a.numel() < LONG_VECTOR or min(a.shape) < LEAST_VECTOR or torch.get_num_threads() != 1:
        return False
    vectors = vector.stride(0) == 1 and vector.is_cpu and not (vector.requires_grad or vector.is_neg())
    return a.stride(1) == 1 and vectors and not _is_odd(a) and foreign_mkl()


def _is_odd(x: Tensor) -> bool:
    """Would NumPy copy this matrix, refuse it, or not see that its numbers are negated?"""
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


class SingleThreaded:
    """While anybody is inside, these BLAS libraries compute with one thread: with that which calls them."""

    def __init__(self, libraries: Sequence[LibController]) -> None:
        self._libraries = libraries
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [library.get_num_threads() for library in self._libraries]
                self._set([1] * len(self._libraries))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)

    def _set(self, numbers: Sequence[int]) -> None:
        for library, before, number in zip(self._libraries, self._before, numbers, strict=True):
            if before != 1:
                # threadpoolctl obeys only the thread that set a number first; here whoever leaves last sets it back.
                library.clear_controlling_thread(force=True)
                library.set_num_threads(number)
                library.clear_controlling_thread(force=True)


@cache
def single() -> SingleThreaded | None:
    """What keeps the process's OpenBLAS (NumPy's) at one thread; None for another BLAS, whose kernels are not known.

    To find the libraries takes milliseconds, so it is done once.
    """
    libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
    return SingleThreaded(libraries) if libraries else None
