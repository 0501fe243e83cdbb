"""Eigenvalues of symmetric (Hermitian) matrices: all of them by LAPACK, some of them of large matrices by iteration."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, apply_several, as_array, cast
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.elementwise.logic import isfinite
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as r
from girih.array.functions.reductions.sorting import argsort, sort
from girih.array.functions.shapes.manipulation import concatenate
from girih.array.linalg.factors import adjoint, qr, real_dtype, square
from girih.array.random import default_rng

STEPS = 6
"""Products with the matrix before the basis is projected and restarted."""


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


def eigh(a: Any, /, UPLO: str = "L") -> EighResult:
    """All eigenvalues, ascending, and eigenvectors as columns, by LAPACK on whole matrices, batches side by side.

    Some eigenvalues of a matrix that is too large for that: `eigsh`.

    Raises:
        LinAlgError, ValueError: NumPy's.
    """
    x, UPLO = square(a), _triangle(UPLO)
    shapes = (x.shape[:-1], real_dtype(x)), (x.shape, x.dtype)
    return EighResult(*apply_several("aten._linalg_eigh", shapes, A=x, UPLO=UPLO))


def eigvalsh(a: Any, /, UPLO: str = "L") -> Array:
    """All eigenvalues, ascending."""
    x, UPLO = square(a), _triangle(UPLO)
    return apply("aten.linalg_eigvalsh", x.shape[:-1], real_dtype(x), self=x, UPLO=UPLO)


class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


def eig(a: Any, /) -> EigResult:
    """Eigenvalues, in no order, and eigenvectors as columns, by LAPACK on whole matrices; computed now, because their
    values tell whether they are real.

    Raises:
        LinAlgError: NumPy's.
    """
    x, kind = _finite(a)
    return EigResult(*_real(x, *apply_several("aten.linalg_eig", ((x.shape[:-1], kind), (x.shape, kind)), self=x)))


def eigvals(a: Any, /) -> Array:
    """Eigenvalues, in no order, computed now."""
    x, kind = _finite(a)
    return _real(x, apply("aten.linalg_eigvals", x.shape[:-1], kind, self=x))[0]


def _finite(a: Any) -> tuple[Array, np.dtype]:
    """A square matrix, and the dtype of its eigenvalues."""
    x = square(a)
    if not r.all(isfinite(x)):
        raise np.linalg.LinAlgError("Array must not contain infs or NaNs")
    return x, np.result_type(x.dtype, np.complex64)


def _real(x: Array, values: Array, *more: Array) -> tuple[Array, ...]:
    """The results as real numbers, if all eigenvalues of a real matrix are."""
    if x.dtype.kind == "c" or r.any(e.imag(values) != 0):
        return values, *more
    return tuple(e.real(item).copy() for item in (values, *more))


def _triangle(UPLO: str) -> str:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return UPLO.upper()


def eigsh(
    a: Any, k: int = 6, which: str = "LM", tol: float = 0.0, maxiter: int = 300, seed: int = 0
) -> tuple[Array, Array]:
    """k eigenvalues, ascending, and eigenvectors of a symmetric matrix that stays in its tiles.

    By block Lanczos with full orthogonalisation and restarts (Golub and Van Loan, §10.3): each step multiplies the
    matrix with a few vectors, which are all that moves. Named and called as in scipy.sparse.linalg.

    which: `LM`, `LA` or `SA`: largest in magnitude, largest, smallest. tol: relative accuracy of eigenvalues; 0: that
    of the dtype. maxiter: restarts.

    Raises:
        LinAlgError: it did not converge. ValueError: k or `which` is out of range.
    """
    x = square(a)
    size = x.shape[0]
    if x.ndim != 2 or not 0 < k < size:
        raise ValueError(f"k={k}: expected 0 < k < {size}, of one matrix")
    if which not in ("LM", "LA", "SA"):
        raise ValueError(f"which={which!r}: expected 'LM', 'LA' or 'SA'")
    width = min(k + 4, size)
    if width * (STEPS + 1) >= size:
        values, vectors = eigh(x)
        return _chosen(values, vectors, k, which)
    limit = tol or np.sqrt(size) * float(np.finfo(real_dtype(x)).eps) * 10
    start = cast(default_rng(seed).normal(size=(size, width)), x.dtype)
    block = qr(start).Q
    for _ in range(maxiter):
        basis, images = _krylov(x, block)
        projected = matmul(adjoint(basis), images)
        values, inner = eigh((projected + adjoint(projected)) / 2)
        values, inner = _chosen(values, inner, width, which)
        block = matmul(basis, inner)
        away = matmul(images, inner) - block * values
        wanted, near = _chosen(values, block, k, which)
        _, apart = _chosen(values, away, k, which)
        error = e.sqrt(r.max(r.sum(e.square(e.absolute(apart)), 0)))
        if float(error / r.max(e.absolute(values))) <= limit:
            return wanted, near
    raise np.linalg.LinAlgError(f"eigsh: {k} eigenvalues did not converge to {limit:.1e} in {maxiter} restarts")


def _krylov(x: Array, block: Array) -> tuple[Array, Array]:
    """An orthonormal basis of the block, x·block, x²·block, …; and x times the basis."""
    blocks, images = [block], [matmul(x, block)]
    for _ in range(STEPS - 1):
        basis, new = concatenate(blocks, 1), images[-1]
        for _ in range(2):  # once loses orthogonality
            new = new - matmul(basis, matmul(adjoint(basis), new))
        new = qr(new).Q
        new = qr(new - matmul(basis, matmul(adjoint(basis), new))).Q
        blocks.append(new)
        images.append(matmul(x, new))
    return concatenate(blocks, 1), concatenate(images, 1)


def _chosen(values: Array, vectors: Array, count: int, which: str) -> tuple[Array, Array]:
    """`count` pairs, ascending by value."""
    if which == "LM":
        places = sort(argsort(e.absolute(values))[-count:])
        return as_array(values)[places], vectors[:, places]
    part = slice(-count, None) if which == "LA" else slice(0, count)
    return values[part], vectors[:, part]
