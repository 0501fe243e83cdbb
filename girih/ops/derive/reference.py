"""The reference implementation that follows from a description: evaluate its expression at every index.

NumPy broadcasting over the whole index space, one axis for each index variable: slow, exact, for small shapes. It is
what PyTorch's operators are checked against. Opaque functions have no reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.special
from numpy.typing import NDArray

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

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "complex": lambda real, imaginary: real + 1j * imaginary,
    "conj": np.conj,
    "polar": lambda size, angle: size * np.exp(1j * angle),
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_div": np.floor_divide,
    "trunc_div": lambda a, b: np.trunc(np.true_divide(a, b)),
    "remainder": np.remainder,
    "fmod": np.fmod,
    "pow": np.power,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
    "exp": np.exp,
    "once": lambda a: a,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "reciprocal": lambda a: 1.0 / a,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erfinv": scipy.special.erfinv,
    "lgamma": scipy.special.gammaln,
    "digamma": scipy.special.digamma,
    "sigmoid": scipy.special.expit,
    "hypot": np.hypot,
    "nextafter": np.nextafter,
    "gcd": np.gcd,
    "lcm": np.lcm,
    "i0": scipy.special.i0,
    "sinc": np.sinc,
    "signbit": np.signbit,
    "real": np.real,
    "imag": np.imag,
    "angle": np.angle,
    "copysign": np.copysign,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.bitwise_not,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}

REDUCERS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "logsumexp": scipy.special.logsumexp,
}


def has_reference(description: Description) -> bool:
    """Is everything in the description written out, with no opaque or external scalar function?"""
    return not any(
        isinstance(item, OpaqueRead) or (isinstance(item, Applied) and item.function not in FUNCTIONS)
        for item in walk(description.body)
    )


def evaluate(description: Description, inputs: list[Array]) -> Array:
    """The operator's result by its description alone, of the output's shape; dtype as NumPy computes.

    Raises:
        DescriptionError: if the description is opaque.
    """
    if not has_reference(description):
        raise DescriptionError(f"{description.operator.name} is opaque: it has no reference implementation")
    rank = description.rank
    grid = [
        np.arange(size).reshape([-1 if axis == number else 1 for axis in range(rank)])
        for number, size in enumerate(description.sizes)
    ]
    with np.errstate(all="ignore"):
        values = _evaluate(description.body, inputs, grid, description)
    values = np.broadcast_to(values, [*description.sizes[: description.outputs]] + [1] * (rank - description.outputs))
    values = values.reshape(description.sizes[: description.outputs])
    if all(index.variable == number for number, index in enumerate(description.place)):
        return values
    result = np.zeros(description.output.shape, values.dtype)
    outer = [axis.reshape(axis.shape[: description.outputs]) for axis in grid[: description.outputs]]
    if description.place:
        place = tuple(np.broadcast_to(_index(index, outer), values.shape) for index in description.place)
        result[place] = values
    else:
        result[()] = values.reshape(())
    return result


def _index(index: Affine, grid: list[Array]) -> Array:
    total: Array = np.asarray(index.constant)
    for variable, coefficient in index.terms:
        total = total + coefficient * grid[variable]
    return total


def _evaluate(expression: Expression, inputs: list[Array], grid: list[Array], description: Description) -> Array:
    if isinstance(expression, Constant):
        return cast(Array, expression.value)  # a Python number, whose dtype is weak
    if isinstance(expression, Position):
        return _index(expression.index, grid)
    if isinstance(expression, Read):
        return _read(expression, inputs, grid, description.operator.padding)
    if isinstance(expression, Applied):
        arguments = [_evaluate(item, inputs, grid, description) for item in expression.arguments]
        return FUNCTIONS[expression.function](*arguments)
    if isinstance(expression, Choice):
        condition, yes, no = (
            _evaluate(item, inputs, grid, description) for item in (expression.condition, expression.yes, expression.no)
        )
        return np.where(condition, yes, no)
    if isinstance(expression, Reduce):
        product = _product_sum(expression, inputs, grid)
        if product is not None:
            return product
        body = _evaluate(expression.body, inputs, grid, description)
        shape = list(np.broadcast_shapes(np.shape(body), *(grid[variable].shape for variable in expression.variables)))
        return REDUCERS[expression.reducer](
            np.broadcast_to(body, shape), axis=tuple(expression.variables), keepdims=True
        )
    if isinstance(expression, Piecewise):
        position = _index(expression.index, grid)
        result = _evaluate(expression.parts[0], inputs, grid, description)
        for bound, part in zip(expression.bounds[1:], expression.parts[1:], strict=False):
            result = np.where(position >= bound, _evaluate(part, inputs, grid, description), result)
        return result
    raise DescriptionError(f"{description.operator.name} is opaque: it has no reference implementation")


def _product_sum(reduction: Reduce, inputs: list[Array], grid: list[Array]) -> Array | None:
    """Σ of a product of two bare reads, as one contraction that needs no array of the whole index space; else None."""
    body = reduction.body
    if reduction.reducer != "sum" or not isinstance(body, Applied) or body.function != "mul":
        return None
    operands: list[Any] = []
    for read in body.arguments:
        if not isinstance(read, Read) or any(index is None or index.variable is None for index in read.index):
            return None
        variables = [index.variable for index in read.index if index is not None]
        if [grid[variable].size for variable in variables if variable is not None] != list(inputs[read.tensor].shape):
            return None
        operands += [inputs[read.tensor], variables]
    used = {variable for variables in operands[1::2] for variable in variables}
    if not set(reduction.variables) <= used:
        return None
    kept = sorted(used - set(reduction.variables))
    total: Array = np.einsum(*operands, kept)
    return total.reshape([grid[axis].size if axis in kept else 1 for axis in range(len(grid))])


def _read(read: Read, inputs: list[Array], grid: list[Array], padding: float | None) -> Array:
    array = inputs[read.tensor]
    if not array.shape:
        return array
    variables = [index.variable if index is not None else None for index in read.index]
    bare = [variable for variable in variables if variable is not None]
    if len(bare) == array.ndim == len(set(bare)) and all(
        grid[variable].size == size for variable, size in zip(bare, array.shape, strict=True)
    ):
        order = sorted(range(array.ndim), key=lambda dimension: bare[dimension])
        kept = dict(zip(bare, array.shape, strict=True))
        return array.transpose(order).reshape([kept.get(axis, 1) for axis in range(len(grid))])
    positions = [_index(index, grid) for index in read.index if index is not None]
    inside: Array | bool = True
    clipped = []
    for position, size in zip(positions, array.shape, strict=True):
        inside = inside & (position >= 0) & (position < size)
        clipped.append(np.clip(position, 0, max(size - 1, 0)))
    values = array[tuple(np.broadcast_arrays(*clipped))] if clipped else array
    return np.where(inside, values, padding) if padding is not None else values
