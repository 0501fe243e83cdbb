"""Factorisations: QR, SVD, Cholesky; and what follows from them.

Each is one node. Which workers compute it, and in what tiles, is decided when it is planned
(`girih.rewrite.passes.factorisations`): large matrices are divided, others are computed by LAPACK as wholes, batches of
them side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, apply_several, as_array, cast
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as r
from girih.array.functions.shapes.manipulation import matrix_transpose

LinAlgError = np.linalg.LinAlgError


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


def inexact(a: Any) -> Array:
    """As an array of floating-point numbers that LAPACK has.

    Raises:
        TypeError: NumPy's, for half precision.
    """
    x = as_array(a)
    if x.dtype == np.float16:
        raise TypeError("array type float16 is unsupported in linalg")
    return x if x.dtype.kind in "fc" else cast(x, np.float64)


def matrices(a: Any) -> Array:
    """One matrix or many. Raises LinAlgError, as NumPy, for fewer than two dimensions."""
    x = inexact(a)
    if x.ndim < 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    return x


def square(a: Any) -> Array:
    """One square matrix or many. Raises LinAlgError, as NumPy, for others."""
    x = matrices(a)
    if x.shape[-1] != x.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return x


def real_dtype(x: Array) -> np.dtype:
    return np.zeros((), x.dtype).real.dtype


def adjoint(x: Array) -> Array:
    turned = matrix_transpose(x)
    return e.conjugate(turned) if x.dtype.kind == "c" else turned


# ------------------------------------------------------------------------------------------- QR and SVD


def qr(a: Any, /, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and upper triangular R, as (Q, R); R alone for mode="r".

    Of a tall matrix on several workers only R's of tiles move.

    Raises:
        LinAlgError, ValueError: NumPy's.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode '{mode}': girih.array has 'reduced', 'complete' and 'r'")
    x = matrices(a)
    *batch, rows, columns = x.shape
    inner = rows if mode == "complete" else min(rows, columns)
    if mode == "r":
        return apply("girih.triangular_factor", (*batch, inner, columns), x.dtype, A=x)
    shapes = ((*batch, rows, inner), x.dtype), ((*batch, inner, columns), x.dtype)
    options = {"mode": mode} if mode == "complete" else {}
    return QRResult(*apply_several("aten.linalg_qr", shapes, A=x, **options))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """(U, S, Vh), the singular values descending; S alone without compute_uv.

    Raises:
        LinAlgError: NumPy's.
    """
    x = matrices(a)
    if not compute_uv:
        return svdvals(x)
    *batch, rows, columns = x.shape
    least = min(rows, columns)
    left, right = (rows, columns) if full_matrices else (least, least)
    shapes = (
        ((*batch, rows, left), x.dtype),
        ((*batch, least), real_dtype(x)),
        ((*batch, right, columns), x.dtype),
    )
    return SVDResult(*apply_several("aten._linalg_svd", shapes, A=x, full_matrices=full_matrices))


def svdvals(x: Any, /) -> Array:
    """The singular values, descending."""
    x = matrices(x)
    if x.ndim == 2 and x.shape[0] < x.shape[1]:
        x = x.T
    shape = (*x.shape[:-2], min(x.shape[-2:]))
    return apply("aten.linalg_svdvals", shape, real_dtype(x), A=x)


def cholesky(a: Any, /, *, upper: bool = False) -> Array:
    """L of a = L·Lᴴ, of the lower triangle of a; or Lᴴ, of the upper. A large matrix is factored by all workers.

    Raises:
        LinAlgError: NumPy's; that a is not positive definite shows when it is computed.
    """
    x = square(a)
    if upper:
        return adjoint(cholesky(adjoint(x)))
    return apply("aten.linalg_cholesky", x.shape, x.dtype, self=x)


# ------------------------------------------------------------------------------------------- by singular values


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """How many singular values are above `tol`, or above `rtol` times the largest."""
    x = as_array(A)
    if x.ndim < 2:
        return cast(r.any(x != 0), np.int64)
    S = svdvals(x)
    if tol is None:
        rtol = max(x.shape[-2:]) * np.finfo(S.dtype).eps if rtol is None else as_array(rtol)[..., None]
        tol = r.max(S, -1, keepdims=True) * rtol
    else:
        tol = as_array(tol)[..., None]
    return r.count_nonzero(tol < S, -1)


def _reciprocals(S: Array, rtol: Any) -> Array:
    """1 / S, or 0 for what is not above `rtol` times the largest."""
    large = r.max(S, -1, keepdims=True) * rtol < S
    return e.where(large, 1 / e.where(large, S, 1), 0).astype(S.dtype)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Array:
    """The Moore-Penrose inverse; singular values not above rcond (or rtol) times the largest count as 0."""
    x = matrices(a)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
        rcond = max(x.shape[-2:]) * np.finfo(real_dtype(x)).eps if rcond is None else rcond
    if x.size == 0:
        return adjoint(x)
    U, S, Vh = svd(x, full_matrices=False)
    cut = as_array(rcond)
    return matmul(adjoint(Vh), _reciprocals(S, cut[..., None] if cut.ndim else rcond)[..., None] * adjoint(U))


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Array, Array, np.int32, Array]:
    """(x, squared residuals, rank of a, singular values of a): x of least |a·x - b|, and of least |x| among several.

    By the SVD, of a tall matrix in tiles. The rank is computed now, as the shape of the residuals depends on it.

    Raises:
        LinAlgError: NumPy's.
    """
    x, y = inexact(a), inexact(b)
    if x.ndim != 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim not in (1, 2):
        raise LinAlgError(f"{y.ndim}-dimensional array given. Array must be two-dimensional")
    if x.shape[0] != y.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    kind = np.result_type(x.dtype, y.dtype)
    x, right = cast(x, kind), cast(y, kind).reshape((y.shape[0], -1))
    rcond = np.finfo(kind).eps * max(x.shape) if rcond is None else rcond
    U, S, Vh = svd(x, full_matrices=False)
    inner = matmul(adjoint(U), right)
    solution = matmul(adjoint(Vh), _reciprocals(S, rcond)[:, None] * inner)
    count = r.count_nonzero(S[0] * rcond < S) if min(x.shape) else 0
    residuals = r.sum(e.square(e.absolute(right - matmul(x, solution))), 0)
    rank = np.int32(int(count))
    if rank < x.shape[1] or x.shape[0] <= x.shape[1]:
        residuals = as_array(np.empty(0, real_dtype(x)))
    return (solution if y.ndim == 2 else solution[:, 0]), residuals, rank, S
