"""numpy.linalg: norms, determinants, equations; factorisations are `factors.py`, eigenvalues `eigenvalues.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, apply_several, as_array, axis_of, broadcast_shapes, cast
from girih.array.core.unsupported import missing
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.elementwise.numerics import cross as cross_product
from girih.array.functions.products import einsum
from girih.array.functions.products import matmul as matmul
from girih.array.functions.products import outer as outer
from girih.array.functions.products import tensordot as tensordot
from girih.array.functions.products import vecdot as vecdot
from girih.array.functions.reductions import reduce as r
from girih.array.functions.shapes.creation import eye
from girih.array.functions.shapes.manipulation import broadcast_to, expand_dims, moveaxis, squeeze
from girih.array.functions.shapes.manipulation import diagonal as _diagonal
from girih.array.functions.shapes.manipulation import matrix_transpose as matrix_transpose
from girih.array.linalg.eigenvalues import eig as eig
from girih.array.linalg.eigenvalues import eigh as eigh
from girih.array.linalg.eigenvalues import eigsh as eigsh
from girih.array.linalg.eigenvalues import eigvals as eigvals
from girih.array.linalg.eigenvalues import eigvalsh as eigvalsh
from girih.array.linalg.factors import cholesky as cholesky
from girih.array.linalg.factors import inexact, matrices, real_dtype, square, svdvals
from girih.array.linalg.factors import lstsq as lstsq
from girih.array.linalg.factors import matrix_rank as matrix_rank
from girih.array.linalg.factors import pinv as pinv
from girih.array.linalg.factors import qr as qr
from girih.array.linalg.factors import svd as svd

LinAlgError = np.linalg.LinAlgError


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors or of matrices, in all of NumPy's orders.

    Raises:
        ValueError: NumPy's.
    """
    x = as_array(x)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    if axis is None and (ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1)):
        result = e.sqrt(r.sum(e.square(e.absolute(x))))
        return result.reshape((1,) * x.ndim) if keepdims else result
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (int(axis),)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return _vector_norm(e.absolute(x), 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rows, columns = (axis_of(dim, x.ndim) for dim in axes)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    if ord in (None, "fro", "f"):
        return _vector_norm(e.absolute(x), 2, axes, keepdims)
    if ord in (2, -2, "nuc"):
        S = svdvals(moveaxis(x, (rows, columns), (-2, -1)))
        result = r.sum(S, -1) if ord == "nuc" else S[..., 0] if ord == 2 else S[..., -1]
        return expand_dims(result, (rows, columns)) if keepdims else result
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError("Invalid norm order for matrices.")
    summed = columns if ord in (np.inf, -np.inf) else rows
    result = (r.max if ord > 0 else r.min)(r.sum(e.absolute(x), summed, keepdims=True), (rows, columns), keepdims=True)
    return result if keepdims else squeeze(result, (rows, columns))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of each matrix in the last two dimensions."""
    return norm(x, ord, (-2, -1), keepdims)


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


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


def inv(a: Any, /) -> Array:
    x = square(a)
    return apply("aten.linalg_inv", x.shape, x.dtype, A=x)


def det(a: Any, /) -> Array:
    x = square(a)
    return apply("aten.linalg_det", x.shape[:-2], x.dtype, A=x)


def slogdet(a: Any, /) -> SlogdetResult:
    """(sign, logarithm of the absolute value) of the determinant."""
    x = square(a)
    shapes = (x.shape[:-2], x.dtype), (x.shape[:-2], real_dtype(x))
    return SlogdetResult(*apply_several("aten.linalg_slogdet", shapes, A=x))


def solve(a: Any, b: Any, /) -> Array:
    """x of a · x = b; b is a vector, or matrices.

    Raises:
        LinAlgError, ValueError: NumPy's; that a is singular shows when it is computed.
    """
    x, y = square(a), inexact(b)
    kind = np.result_type(x.dtype, y.dtype)
    x, y = cast(x, kind), cast(y, kind)
    if y.ndim == 0:
        raise ValueError("solve: Input operand 1 does not have enough dimensions (has 0, gufunc core requires 1)")
    if y.shape[0 if y.ndim == 1 else -2] != x.shape[-1]:
        raise ValueError(f"solve: shapes {x.shape} and {y.shape} do not fit")
    if y.ndim == 1:
        return solve(x, y.reshape((-1, 1)))[..., 0]
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x = x if x.ndim - 2 >= len(batch) else broadcast_to(x, (*batch, *x.shape[-2:]))
    y = y if y.ndim - 2 >= len(batch) else broadcast_to(y, (*batch, *y.shape[-2:]))
    if x.expression.operator == "aten.linalg_cholesky":  # triangular: half the work, and nothing to factorise
        return apply("aten.linalg_solve_triangular", y.shape, kind, self=x, B=y, upper=False)
    return apply("aten.linalg_solve", (*batch, *y.shape[-2:]), kind, A=x, B=y)


def matrix_power(a: Any, n: int, /) -> Array:
    x = square(a)
    if n < 0:
        return matrix_power(inv(x), -n)
    x, power = as_array(a), None  # whole numbers stay whole
    while n:
        if n & 1:
            power = x if power is None else matmul(power, x)
        n >>= 1
        x = matmul(x, x) if n else x
    if power is None:
        return broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape).copy()
    return power


def cond(x: Any, p: Any = None) -> Array:
    """The condition number by a norm; None: the ratio of the extreme singular values."""
    x = matrices(x)
    if p is None or p in (2, -2):
        S = svdvals(x)
        return S[..., -1] / S[..., 0] if p == -2 else S[..., 0] / S[..., -1]
    return norm(x, p, axis=(-2, -1)) * norm(inv(x), p, axis=(-2, -1))


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """The product of all; the first and the last may be vectors. In the order that takes the fewest multiplications.

    Raises:
        ValueError, LinAlgError: NumPy's.
    """
    factors = [as_array(x) for x in arrays]
    if len(factors) < 2:
        raise ValueError("Expecting at least two arrays.")
    if any(x.ndim != 2 for x in factors[1:-1]) or any(x.ndim not in (1, 2) for x in factors):
        raise LinAlgError("multi_dot takes matrices; the first and the last may be vectors")
    letters = [chr(ord("a") + number) for number in range(len(factors) + 1)]
    parts = ["".join(pair) for pair in pairwise(letters)]
    parts[0], parts[-1] = parts[0][2 - factors[0].ndim :], parts[-1][: factors[-1].ndim]
    goal = letters[0] * (factors[0].ndim - 1) + letters[-1] * (factors[-1].ndim - 1)
    best = "optimal" if len(factors) <= 6 else "greedy"  # there are as many orders as n!
    return einsum(f"{','.join(parts)}->{goal}", *factors, optimize=best, out=out)


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Array:
    """x of tensordot(a, x, x.ndim) = b. axes: of a, moved to the end before.

    Raises:
        LinAlgError: NumPy's.
    """
    x, y = as_array(a), as_array(b)
    if axes is not None:
        last = [axis_of(dim, x.ndim) for dim in axes]
        x = x.transpose([*(dim for dim in range(x.ndim) if dim not in last), *last])
    shape = x.shape[y.ndim :]
    if x.size != y.size * math.prod(shape) or y.size != math.prod(shape):
        raise LinAlgError(f"tensorsolve: a of shape {x.shape} makes no square matrix for b of shape {y.shape}")
    return solve(x.reshape((y.size, -1)), y.reshape(-1)).reshape(shape)


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse with respect to tensordot(a, b, ind).

    Raises:
        ValueError, LinAlgError: NumPy's.
    """
    x = as_array(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    size = math.prod(x.shape[:ind])
    return inv(x.reshape((size, -1))).reshape((*x.shape[ind:], *x.shape[:ind]))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    return r.sum(_diagonal(x, offset, -2, -1), -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    return _diagonal(x, offset, -2, -1)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along an axis; they broadcast in the others."""
    first, second = as_array(x1), as_array(x2)
    if first.shape[axis] != 3 or second.shape[axis] != 3:
        raise ValueError(
            f"Both input arrays must be (arrays of) 3-dimensional vectors, but they are {first.shape[axis]} and "
            f"{second.shape[axis]} dimensional instead."
        )
    return cross_product(first, second, axis=axis)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, globals())
