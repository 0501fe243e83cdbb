"""Factorisations: QR and SVD of tall matrices in tiles, of others as whole matrices; what follows from them.

A tall matrix is factored where its rows lie (TSQR; Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34, 2012):
the QR of each tile of rows, then the QR of all their R's, so that only R's move. Tiles are as small as a core's cache.
The signs are then made those of Householder reflections (Ballard et al., IPDPS 2014), which LAPACK and so NumPy have.
SVD: that of R.

All other matrices are computed by LAPACK as wholes, batches of them side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, apply_several, as_array, cast
from girih.array.core.evaluation import current
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.products import matmul
from girih.array.functions.reductions import reduce as r
from girih.array.functions.shapes.manipulation import matrix_transpose, pad
from girih.array.session.planning import SMALL
from girih.lower import CACHE_BYTES

LinAlgError = np.linalg.LinAlgError
LEAST_ROWS = 25
"""Of a tile, for each of its columns: the R's of all tiles together are then small beside the matrix."""


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
    """Raises LinAlgError, as NumPy, for fewer than two dimensions."""
    x = inexact(a)
    if x.ndim < 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    return x


def square(a: Any) -> Array:
    """Raises LinAlgError, as NumPy, for matrices that are not square."""
    x = matrices(a)
    if x.shape[-1] != x.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return x


def real_dtype(x: Array) -> np.dtype:
    return np.zeros((), x.dtype).real.dtype


def adjoint(x: Array) -> Array:
    turned = matrix_transpose(x)
    return e.conjugate(turned) if x.dtype.kind == "c" else turned


# ------------------------------------------------------------------------------------------- tall matrices


def _tiles_of(x: Array) -> int:
    """Into how many tiles of rows a matrix is factored: at least one for each worker, and so many that LAPACK, which
    walks through all rows for every few columns, finds a tile in a core's cache. 1 where that gains nothing."""
    if x.ndim != 2 or x.size <= SMALL:
        return 1
    (rows, columns), workers = x.shape, current().workers
    least = max(CACHE_BYTES // (columns * x.dtype.itemsize), LEAST_ROWS * columns)
    count = workers * max(1, rows // (workers * least))
    if count > workers:  # without zeros that fill the last tile, if that can be
        count = next((more for more in range(count, 2 * count, workers) if rows % more == 0), count)
    return count if columns * count <= rows else 1


def _tiled(x: Array, count: int) -> Array:
    """[tiles, rows, columns]; zeros below do not change R, and give zeros in Q."""
    rows = -(-x.shape[0] // count)
    if rows * count != x.shape[0]:
        x = pad(x, ((0, rows * count - x.shape[0]), (0, 0)))
    return x.reshape((count, rows, x.shape[1]))


def _tall_qr(x: Array, count: int) -> QRResult:
    columns = x.shape[1]
    inner, triangles = _qr(_tiled(x, count))
    outer, R = _qr(triangles.reshape((count * columns, columns)))
    outer = outer.reshape((count, columns, columns))
    top = matmul(inner[:, :columns][0], outer[0])
    signs = apply("girih.reflection_signs", (columns,), real_dtype(x), Q=top)
    Q = matmul(inner, outer * signs).reshape((-1, columns))[: x.shape[0]]
    return QRResult(Q, signs[:, None] * R)


def _qr(x: Array, mode: str = "reduced") -> tuple[Array, Array]:
    *batch, rows, columns = x.shape
    inner = rows if mode == "complete" else min(rows, columns)
    shapes = ((*batch, rows, inner), x.dtype), ((*batch, inner, columns), x.dtype)
    Q, R = apply_several("aten.linalg_qr", shapes, A=x, **({"mode": mode} if mode != "reduced" else {}))
    return Q, R


def _triangle(x: Array) -> Array:
    """R alone, its rows with any signs."""
    count, columns = _tiles_of(x), x.shape[-1]
    if count > 1:
        x = _triangle(_tiled(x, count)).reshape((count * columns, columns))
        return apply("girih.triangular_factor", (columns, columns), x.dtype, A=x)
    return apply("girih.triangular_factor", (*x.shape[:-2], min(x.shape[-2:]), columns), x.dtype, A=x)


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
    count = _tiles_of(x) if mode != "complete" else 1
    if count > 1:
        made = _tall_qr(x, count)
        return made.R if mode == "r" else made
    if mode == "r":
        return _triangle(x)
    return QRResult(*_qr(x, mode))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """(U, S, Vh), the singular values descending; S alone without compute_uv.

    Raises:
        LinAlgError: NumPy's.
    """
    x = matrices(a)
    if not compute_uv:
        return svdvals(x)
    rows, columns = x.shape[-2:]
    if not full_matrices or rows == columns:
        count = _tiles_of(x)
        if count > 1:
            Q, R = _tall_qr(x, count)
            inner, S, Vh = _svd(R, False)
            return SVDResult(matmul(Q, inner), S, Vh)
        if x.ndim == 2 and _tiles_of(x.T) > 1:
            turned = svd(adjoint(x), full_matrices=False)
            return SVDResult(adjoint(turned.Vh), turned.S, adjoint(turned.U))
    return _svd(x, full_matrices)


def _svd(x: Array, full_matrices: bool) -> SVDResult:
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
    if x.ndim == 2:
        x = x if x.shape[0] >= x.shape[1] else x.T
        x = _triangle(x) if _tiles_of(x) > 1 else x
    shape = (*x.shape[:-2], min(x.shape[-2:]))
    return apply("aten.linalg_svdvals", shape, real_dtype(x), A=x)


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
