"""numpy.linalg: norms and factorisations. What has no division computes whole matrices on every worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array import elementwise as e
from girih.array import reductions as r
from girih.array.array import Array
from girih.array.linear_algebra import matmul as matmul
from girih.array.linear_algebra import outer as outer
from girih.array.linear_algebra import tensordot as tensordot
from girih.array.linear_algebra import vecdot as vecdot
from girih.array.make import apply, as_array, cast
from girih.array.manipulation import diagonal as _diagonal
from girih.array.manipulation import matrix_transpose as matrix_transpose

LinAlgError = np.linalg.LinAlgError


def _square(a: Any) -> Array:
    """A floating array of square matrices.

    Raises:
        LinAlgError: NumPy's.
    """
    x = as_array(a)
    if x.ndim < 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    if x.shape[-1] != x.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return x if x.dtype.kind in "fc" else cast(x, np.float64)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Of vectors (any order) and of matrices (Frobenius, 1, inf)."""
    x = as_array(x)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    if axis is None and ord is None:
        made = e.sqrt(r.sum(e.square(e.absolute(x))))
        return made.reshape((1,) * x.ndim) if keepdims else made
    if axis is None:
        axis = tuple(range(x.ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    size = e.absolute(x)
    if len(axes) == 1 or ord in (None, "fro"):
        return _vector_norm(size, 2 if ord in (None, "fro") else ord, axes, keepdims)
    summed = axes[1] if ord in (np.inf, -np.inf) else axes[0]
    if ord not in (1, -1, np.inf, -np.inf):
        raise TypeError(f"girih.array has no matrix norm of order {ord!r}: expected 'fro', 1, -1, inf or -inf")
    return (r.max if ord > 0 else r.min)(r.sum(size, summed, keepdims=True), axes, keepdims=keepdims)


def _vector_norm(size: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord == np.inf:
        return r.max(size, axes, keepdims=keepdims)
    if ord == -np.inf:
        return r.min(size, axes, keepdims=keepdims)
    if ord == 0:
        return r.sum(cast(size != 0, size.dtype), axes, keepdims=keepdims)
    if ord == 1:
        return r.sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return e.sqrt(r.sum(e.square(size), axes, keepdims=keepdims))
    return e.power(r.sum(e.power(size, float(ord)), axes, keepdims=keepdims), 1 / ord)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    x = as_array(x)
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return _vector_norm(e.absolute(x if x.dtype.kind in "fc" else cast(x, np.float64)), ord, axes, keepdims)


def cholesky(a: Any, /) -> Array:
    x = _square(a)
    return apply("aten.linalg_cholesky", x.shape, x.dtype, self=x)


def inv(a: Any, /) -> Array:
    x = _square(a)
    return apply("aten.linalg_inv", x.shape, x.dtype, A=x)


def det(a: Any, /) -> Array:
    x = _square(a)
    return apply("aten.linalg_det", x.shape[:-2], x.dtype, A=x)


def solve(a: Any, b: Any, /) -> Array:
    """x of a · x = b."""
    x, y = _square(a), as_array(b)
    kind = np.result_type(x.dtype, y.dtype)
    x, y = cast(x, kind), cast(y, kind)
    if y.shape[0 if y.ndim == 1 else -2] != x.shape[-1]:
        raise ValueError(f"solve: shapes {x.shape} and {y.shape} do not fit")
    if y.ndim == 1:
        return solve(x, y.reshape((-1, 1)))[..., 0]
    from girih.array.make import broadcast_shapes

    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return apply("aten.linalg_solve", (*batch, *y.shape[-2:]), kind, A=x, B=y)


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Array, Array, int, Any]:
    """Of matrices of full rank, by the normal equations' Cholesky factor: (solution, residuals, rank, None).

    Less exact than NumPy's for ill-conditioned matrices: the condition number is squared.
    """
    x, y = as_array(a), as_array(b)
    factor = cholesky(matmul(x.T, x))
    right = matmul(x.T, y if y.ndim > 1 else y.reshape((-1, 1)))
    solution = solve(factor.T, solve(factor, right))
    away = matmul(x, solution) - (y if y.ndim > 1 else y.reshape((-1, 1)))
    residuals = r.sum(e.square(away), 0)
    return (solution if y.ndim > 1 else solution[:, 0]), residuals, x.shape[1], None


def matrix_power(a: Any, n: int, /) -> Array:
    x = _square(a)
    if n < 0:
        return matrix_power(inv(x), -n)
    made = None
    while n:
        if n & 1:
            made = x if made is None else matmul(made, x)
        n >>= 1
        x = matmul(x, x) if n else x
    if made is None:
        from girih.array.creation import eye
        from girih.array.manipulation import broadcast_to

        return broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape)
    return made


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    return r.sum(_diagonal(x, offset, -2, -1), -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    return _diagonal(x, offset, -2, -1)
