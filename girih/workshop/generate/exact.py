"""A description as a function of many tensors at once: the values of thousands of terms in one pass.

Whole numbers are those modulo 2**64, so that sums and products are exact whatever their size, and so is a division by
an odd number (of the elements of a window of 3×3). Functions that whole numbers do not have (exp, rsqrt, …) are
computed in float64; `hashes` then sees nine digits.

Cost: the index space of the operator, for each term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba
from girih.ops.derive.reference import FUNCTIONS, REDUCERS
from girih.ops.expressions import (
    Affine,
    Applied,
    Choice,
    Constant,
    DescriptionError,
    Expression,
    OpaqueRead,
    Piecewise,
    Position,
    Read,
    Reduce,
    walk,
)
from girih.ops.operator import Description

Array = NDArray[Any]
Function = Callable[[Sequence[Array]], Array]
"""From operands, each (terms, elements), to results (terms, elements)."""

LEAST = -(1 << 62)
DIGITS = 1e9
EXACT = frozenset(
    ("add", "sub", "mul", "neg", "max", "min", "abs", "sign", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")
)
"""Functions that NumPy computes in whole numbers."""


def is_exact(description: Description) -> bool:
    """Can it be computed in whole numbers?"""
    for item in walk(description.body):
        if isinstance(item, Constant) and not _is_whole(item.value):
            return False
        if isinstance(item, Reduce) and item.reducer == "logsumexp":
            return False
        if isinstance(item, OpaqueRead):
            return False
        if isinstance(item, Applied) and item.function not in EXACT:
            divisor = item.arguments[1] if item.function == "div" else None
            if not isinstance(divisor, Constant) or not _is_whole(divisor.value) or not int(divisor.value) % 2:
                return False
    return description.operator.padding in (None, 0, -np.inf)


def _is_whole(value: Any) -> bool:
    return bool(value in (np.inf, -np.inf) or float(value).is_integer())


def function_of(description: Description, exact: bool) -> Function:
    """The operator for many operands at once. exact: in whole numbers.

    Raises:
        DescriptionError: opaque, or not to be computed in whole numbers.
    """
    if exact and not is_exact(description):
        raise DescriptionError(f"{description.operator.name} is not exact in whole numbers")
    grid = [
        np.arange(size).reshape([-1 if axis == number else 1 for axis in range(description.rank)])
        for number, size in enumerate(description.sizes)
    ]
    rank, outputs = description.rank, description.outputs
    shape = description.sizes[:outputs]
    compute = _Compiler(description, grid, exact).compiled(description.body)
    place = None
    if any(index.variable != number for number, index in enumerate(description.place)):
        strides = [prod(description.output.shape[number + 1 :]) for number in range(len(description.output.shape))]
        position: Array = np.zeros((1,) * rank, np.int64)
        for index, stride in zip(description.place, strides, strict=True):
            position = position + _index(index, grid) * stride
        place = np.broadcast_to(position, (*shape, *(1,) * (rank - outputs))).reshape(-1)
    size = prod(description.output.shape)

    def function(operands: Sequence[Array]) -> Array:
        many = len(operands[0]) if operands else 1
        with np.errstate(all="ignore"):
            values = compute(operands)
        values = np.broadcast_to(values, (many, *shape, *(1,) * (rank - outputs))).reshape(many, -1)
        if place is None:
            return values
        result = np.zeros((many, size), values.dtype)
        result[:, place] = values
        return result

    return function


def _index(index: Affine, grid: Sequence[Array]) -> Array:
    total: Array = np.full((1,) * len(grid), index.constant, np.int64)
    for variable, coefficient in index.terms:
        total = total + coefficient * grid[variable]
    return total


class _Compiler:
    """Places of all reads are computed once."""

    def __init__(self, description: Description, grid: list[Array], exact: bool) -> None:
        self.description = description
        self.grid = grid
        self.exact = exact
        self.dtype = np.int64 if exact else np.float64

    def compiled(self, item: Expression) -> Function:
        if isinstance(item, Constant):
            constant = self._number(item.value)
            return lambda operands: constant
        if isinstance(item, Position):
            positions = _index(item.index, self.grid)[None].astype(self.dtype)
            return lambda operands: positions
        if isinstance(item, Read):
            return self._read(item)
        if isinstance(item, Applied):
            return self._applied(item)
        if isinstance(item, Choice):
            condition, yes, no = map(self.compiled, (item.condition, item.yes, item.no))
            return lambda operands: np.where(condition(operands), yes(operands), no(operands))
        if isinstance(item, Reduce):
            return self._reduced(item)
        if isinstance(item, Piecewise):
            parts = [self.compiled(part) for part in item.parts]
            position = _index(item.index, self.grid)[None]

            def pieces(operands: Sequence[Array]) -> Array:
                result = parts[0](operands)
                for bound, part in zip(item.bounds[1:], parts[1:], strict=False):
                    result = np.where(position >= bound, part(operands), result)
                return result

            return pieces
        raise DescriptionError(f"{self.description.operator.name} is opaque")

    def _number(self, value: float | int | bool) -> Array:
        if self.exact and value in (np.inf, -np.inf):
            return np.int64(-LEAST if value > 0 else LEAST)  # type: ignore[return-value]
        return self.dtype(value)  # type: ignore[return-value]

    def _places(self, read: Read) -> tuple[Array, bool]:
        """Where it reads in the flat tensor, over the indices that it uses; one behind the end: outside."""
        shape = self.description.inputs[read.tensor].shape
        place: Array = np.zeros((1,) * len(self.grid), np.int64)
        inside: Array = np.ones((1,) * len(self.grid), bool)
        for number, index in enumerate(read.index):
            if index is None:
                raise DescriptionError("whole slices")
            at = _index(index, self.grid)
            inside = inside & (at >= 0) & (at < shape[number])
            place = place + np.clip(at, 0, shape[number] - 1) * prod(shape[number + 1 :])
        outside = prod(shape)
        return np.where(inside, place, outside), bool(inside.all())

    def _read(self, read: Read) -> Function:
        places, whole = self._places(read)
        flat, shape, number = places.reshape(-1), places.shape, read.tensor
        if whole:
            return lambda operands: operands[number][:, flat].reshape(-1, *shape)
        padding = self._number(self.description.operator.padding or 0)

        def padded(operands: Sequence[Array]) -> Array:
            values = operands[number]
            values = np.concatenate((values, np.full((len(values), 1), padding, values.dtype)), axis=1)
            return values[:, flat].reshape(-1, *shape)

        return padded

    def _applied(self, item: Applied) -> Function:
        arguments = [self.compiled(one) for one in item.arguments]
        if self.exact and item.function == "div":
            divisor = item.arguments[1]
            assert isinstance(divisor, Constant)
            inverse = np.uint64(pow(int(divisor.value), -1, 1 << 64)).view(np.int64)
            return lambda operands: arguments[0](operands) * inverse
        function = FUNCTIONS[item.function]
        return lambda operands: function(*(one(operands) for one in arguments))

    def _reduced(self, item: Reduce) -> Function:
        product = self._product(item)
        if product is not None:
            return product
        body = self.compiled(item.body)
        axes = tuple(variable + 1 for variable in item.variables)
        sizes = [size if number in item.variables else 1 for number, size in enumerate(self.description.sizes)]

        def reduced(operands: Sequence[Array]) -> Array:
            values = body(operands)
            values = np.broadcast_to(values, np.broadcast_shapes(values.shape, (1, *sizes)))
            return REDUCERS[item.reducer](values, axis=axes, keepdims=True)

        return reduced

    def _product(self, item: Reduce) -> Function | None:
        """Σ of a product of two reads, without an array of the whole index space."""
        body = item.body
        if item.reducer != "sum" or not isinstance(body, Applied) or body.function != "mul":
            return None
        if not all(isinstance(one, Read) for one in body.arguments) or self.description.operator.padding not in (
            None,
            0,
        ):
            return None
        rank, summed = len(self.grid), set(item.variables)
        order = [axis for axis in range(rank) if axis not in summed] + sorted(summed)
        sizes = self.description.sizes
        kept = [1 if axis in summed else sizes[axis] for axis in range(rank)]
        inner = prod(sizes[axis] for axis in summed)
        places = []
        for one in body.arguments:
            assert isinstance(one, Read)
            at = np.broadcast_to(self._places(one)[0], sizes).transpose(order)
            places.append((one.tensor, np.ascontiguousarray(at.reshape(-1, inner))))
        (first, at_first), (second, at_second) = places

        def product(operands: Sequence[Array]) -> Array:
            one, other = (np.ascontiguousarray(operands[number]) for number in (first, second))
            result: Array = _contract(one, other, at_first, at_second)
            return result.reshape(-1, *kept)

        return product


@numba.njit(cache=True, nogil=True)
def _contract(one: Array, other: Array, at_one: Array, at_other: Array) -> Array:  # pragma: no cover - compiled
    """result[t, e] = Σ k one[t, at_one[e, k]] · other[t, at_other[e, k]], without what is outside."""
    many, outside_one, outside_other = one.shape[0], one.shape[1], other.shape[1]
    result = np.zeros((many, at_one.shape[0]), one.dtype)
    for term in range(many):
        for element in range(at_one.shape[0]):
            total = result[term, element]
            for step in range(at_one.shape[1]):
                a, b = at_one[element, step], at_other[element, step]
                if a < outside_one and b < outside_other:
                    total += one[term, a] * other[term, b]
            result[term, element] = total
    return result


# ------------------------------------------------------------------------------------------------ fingerprints


def hashes(values: Array, salt: int) -> NDArray[np.uint64]:
    """One number for each row: equal rows have equal ones, others almost never (1 of 2**64 for random numbers).

    salt: of the shape, so that equal contents of other shapes differ.
    """
    random = np.random.default_rng([salt, values.shape[1]])
    factors = random.integers(0, 1 << 63, values.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    if values.dtype != np.int64:
        values = _rounded(values)
    with np.errstate(over="ignore"):
        return mixed((values.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64) + np.uint64(salt))


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits spread over the whole word (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))


def _rounded(values: Array) -> NDArray[np.int64]:
    """Nine digits of each number."""
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
        whole = np.rint(mantissa * DIGITS).astype(np.int64) * 4096 + exponent
    whole = np.where(np.abs(values) < 1e-12, 0, whole)
    return np.ascontiguousarray(np.where(np.isnan(values), 1, np.where(np.isinf(values), 2, whole)))
