"""Sparse matrices among lazy arrays: a value, a row and a column for each stored element (SciPy's COO).

The three are arrays like others, so a sparse matrix takes part in the one graph: products with dense arrays are
`girih.sparse_product`, sums and dense copies `girih.embedding_gradient`, everything by element works on the values.
CSR's row offsets become row numbers, so that a worker's share of the stored elements may begin anywhere. Cut in equal
parts, in the order of rows, they are row tiles of unequal height with equally many stored elements, however skewed the
matrix is (Spartan §3.4 cuts fine tiles and steals work instead). The price: a product's rows are partial sums, which
are added up over the workers. The size of every sparse matrix is known, because no operation here changes which
elements are stored: there is nothing to sample.

What is not there raises by name: sums of sparse matrices, their products with one another, indexing, and whatever would
make a dense array without saying so (`toarray` says so).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, cast, from_memory
from girih.array.core.indexing import get
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.shapes.creation import ones, zeros
from girih.array.functions.shapes.manipulation import broadcast_to


class SparseArray:
    """A sparse matrix. values: of the stored elements; rows, columns: their places; lazy arrays of one dimension.

    Elements that are stored twice add up; by `from_scipy` there are none.
    """

    __slots__ = ("columns", "rows", "shape", "values")
    __array_ufunc__ = None  # NumPy's arrays leave operators to this class
    ndim = 2

    def __init__(self, values: Array, rows: Array, columns: Array, shape: tuple[int, int]) -> None:
        self.values = values
        self.rows = rows
        self.columns = columns
        self.shape = shape

    # ------------------------------------------------------------------------------------------- shape and dtype

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """How many elements are stored."""
        return self.values.size

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of values, rows and columns together. Exact."""
        return self.values.nbytes + self.rows.nbytes + self.columns.nbytes

    @property
    def T(self) -> SparseArray:
        """Rows and columns exchanged: nothing is moved or computed."""
        return SparseArray(self.values, self.columns, self.rows, self.shape[::-1])

    def __repr__(self) -> str:
        return f"<SparseArray {self.dtype}{list(self.shape)} with {self.nnz} stored elements>"

    # ------------------------------------------------------------------------------------------- products

    def __matmul__(self, other: Any) -> Array:
        """With a dense matrix or vector.

        Raises:
            TypeError: with a sparse one. ValueError: NumPy's, where sizes do not fit.
        """
        if _is_sparse(other):
            raise TypeError("sparse @ sparse is not supported by girih.array: use one.toarray(), or SciPy")
        x = as_array(other)
        if x.ndim not in (1, 2):
            raise ValueError(f"sparse @ x: x has {x.ndim} dimensions: expected 1 or 2")
        if x.shape[0] != self.shape[1]:
            raise ValueError(
                f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {x.shape[0]} is different from "
                f"{self.shape[1]})"
            )
        kind = np.result_type(self.dtype, x.dtype)
        matrix = cast(x, kind).reshape((x.shape[0], -1)) if x.ndim == 1 else cast(x, kind)
        if self.nnz == 0:
            return zeros((self.shape[0], *x.shape[1:]), kind)
        result = apply(
            "girih.sparse_product",
            (self.shape[0], matrix.shape[1]),
            kind,
            values=cast(self.values, kind),
            rows=self.rows,
            columns=self.columns,
            x=matrix,
            count=self.shape[0],
        )
        return result.reshape((self.shape[0],)) if x.ndim == 1 else result

    def __rmatmul__(self, other: Any) -> Array:
        """A dense matrix or vector with this one: (selfᵀ @ otherᵀ)ᵀ."""
        x = as_array(other)
        return self.T @ x if x.ndim == 1 else (self.T @ x.T).T

    dot = __matmul__

    # ------------------------------------------------------------------------------------------- by element

    def with_values(self, values: Array) -> SparseArray:
        """Other values in the same places."""
        if values.shape != self.values.shape:
            raise ValueError(f"values of shape {values.shape} for {self.nnz} stored elements")
        return SparseArray(values, self.rows, self.columns, self.shape)

    def map(self, function: Callable[[Array], Array]) -> SparseArray:
        """The function of all stored values at once; of what is not stored it is taken to be 0."""
        return self.with_values(function(self.values))

    def astype(self, dtype: Any) -> SparseArray:
        return self.with_values(cast(self.values, dtype))

    def multiply(self, other: Any) -> SparseArray:
        """Element by element with a number or with a dense array that broadcasts to this shape: a mask, a row, …"""
        if _is_sparse(other):
            raise TypeError("sparse * sparse is not supported by girih.array: multiply by the other's toarray()")
        return self.with_values(self.values * self._at_stored(other))

    __mul__ = __rmul__ = multiply

    def __truediv__(self, other: Any) -> SparseArray:
        return self.with_values(self.values / self._at_stored(other))

    def __pow__(self, power: Any) -> SparseArray:
        if not isinstance(power, (int, float)) or power <= 0:
            raise TypeError(f"sparse ** {power!r}: expected a positive number, so that 0 stays 0")
        return self.with_values(self.values**power)

    def __neg__(self) -> SparseArray:
        return self.with_values(-self.values)

    def __abs__(self) -> SparseArray:
        return self.with_values(abs(self.values))

    def _at_stored(self, other: Any) -> Any:
        """A number as it is; of a dense array the elements in the places that are stored."""
        if _is_sparse(other):
            raise TypeError("an operation of two sparse matrices is not supported by girih.array: use toarray()")
        x = other if isinstance(other, (int, float, complex)) else as_array(other)
        if not isinstance(x, Array) or x.ndim == 0:
            return x
        if x.ndim == 2 and 1 in x.shape and x.shape != self.shape:  # a row or a column is read by one index
            by_row = x.shape[0] != 1
            broadcast_to(x, self.shape)  # raises where it does not fit
            return get(x.reshape((-1,)), self.rows if by_row else self.columns)
        if x.ndim == 1:
            broadcast_to(x, self.shape)
            return get(x, self.columns) if x.shape[0] != 1 else x
        return get(broadcast_to(x, self.shape), (self.rows, self.columns))

    # ------------------------------------------------------------------------------------------- reductions

    def sum(self, axis: int | None = None, dtype: Any = None) -> Array:
        """Over all elements, or down the columns (0), or along the rows (1)."""
        if axis is None:
            return reductions.sum(self.values, dtype=dtype)
        kind = reductions.sum(self.values, dtype=dtype).dtype
        return self._collected(cast(self.values, kind), axis_of(axis, 2))

    def mean(self, axis: int | None = None) -> Array:
        count = self.size if axis is None else self.shape[axis_of(axis, 2)]
        return self.sum(axis) / count

    def getnnz(self, axis: int | None = None) -> Any:
        """Stored elements: of all, of each column (0) or of each row (1)."""
        if axis is None:
            return self.nnz
        return self._collected(ones(self.values.shape, np.int64), axis_of(axis, 2))

    def _collected(self, values: Array, axis: int) -> Array:
        return _sums(values, self.columns if axis == 0 else self.rows, self.shape[1 - axis])

    # ------------------------------------------------------------------------------------------- conversion

    def toarray(self) -> Array:
        """The matrix as a dense array, which is computed when it is needed."""
        places = cast(self.rows, np.int64) * self.shape[1] + self.columns
        return _sums(self.values, places, self.size).reshape(self.shape)

    todense = toarray

    def to_scipy(self) -> Any:
        """SciPy's CSR array, computed."""
        from scipy import sparse

        values, rows, columns = (x.compute() for x in (self.values, self.rows, self.columns))
        return sparse.coo_array((values, (rows, columns)), self.shape).tocsr()

    def compute(self) -> Any:
        return self.to_scipy()

    # ------------------------------------------------------------------------------------------- what is not there

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a sparse matrix does not become a dense array by itself: use toarray()")

    def _dense(self, *_: Any) -> NoReturn:
        raise TypeError(
            "this operation of a sparse matrix would make a dense array, or is of two sparse ones: use toarray()"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __rtruediv__ = __rpow__ = __mod__ = __floordiv__ = _dense
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _dense  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> NoReturn:
        raise TypeError("indexing a sparse matrix is not supported by girih.array: use toarray(), or SciPy before")


def from_scipy(matrix: Any) -> SparseArray:
    """SciPy's sparse matrix or array of any format. Duplicates are added up; later writes to it are not seen.

    Raises:
        TypeError: it is not sparse, not of two dimensions, or of a dtype that girih has not.
    """
    from scipy import sparse

    if not sparse.issparse(matrix):
        raise TypeError(f"from_scipy: expected a sparse matrix of SciPy, got {type(matrix).__name__}")
    if len(matrix.shape) != 2:
        raise TypeError(f"from_scipy: expected two dimensions, got shape {matrix.shape}")
    rows = sparse.csr_array(matrix, copy=True)
    rows.sum_duplicates()
    kind = np.int32 if max(rows.shape) <= np.iinfo(np.int32).max else np.int64
    places = np.repeat(np.arange(rows.shape[0], dtype=kind), np.diff(rows.indptr))
    content = (rows.data, places, rows.indices.astype(kind, copy=False))
    values, *where = (from_memory(part, copy=False) for part in content)
    return SparseArray(values, where[0], where[1], (int(rows.shape[0]), int(rows.shape[1])))


def _sums(values: Array, places: Array, size: int) -> Array:
    """For each place below `size`, the sum of the values that have it."""
    if values.size == 0 or size == 0:
        return zeros((size,), values.dtype)
    if values.dtype.kind == "b":
        return _sums(cast(values, np.int64), places, size) != 0
    arguments = {"grad": values.reshape((-1, 1)), "indices": places, "rows": size}
    return apply("girih.embedding_gradient", (size, 1), values.dtype, **arguments).reshape((size,))


def _is_sparse(item: Any) -> bool:
    return isinstance(item, SparseArray) or hasattr(item, "tocsr")
