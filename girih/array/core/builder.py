"""How arrays are made from arrays: a call of the catalogue's operator, with the user's line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from girih.array.core.array import UNKNOWN, Array
from girih.array.core.dtypes import loop_dtypes, name_of
from girih.array.core.growth import Growth
from girih.array.core.order import in_order
from girih.capture.lazy import expressions
from girih.capture.source import find_source
from girih.ops.flags import signals

Shape = tuple[int, ...]
_growth = Growth()


def apply(operator: str, shape: Sequence[int], dtype: np.dtype | str, /, **arguments: Any) -> Array:
    """An ATen operator (or one of girih's own) on arrays and attributes by the names of its schema.

    shape, dtype: of the result, which the caller knows by NumPy's rules. What has no elements needs no computing.
    It is evaluated where the graph that it needs has reached its limit.

    Raises:
        NotImplementedError: numbers are computed, and `np.errstate` asks for more than warnings.
    """
    name = dtype if isinstance(dtype, str) else name_of(dtype)
    for size in shape:
        if size.__class__ is not int:  # an element of an array of ours, as a size
            shape = tuple(map(index, shape))
            break
    if 0 in shape:
        operator, arguments = "aten.full", {"size": tuple(shape), "fill_value": 0, "dtype": name}
    attributes: dict[str, Any] = {}
    own = ordered = True
    for key, item in arguments.items():
        if isinstance(item, Array):
            attributes[key] = item.expression
            own = False
            ordered = ordered and (item.layout is None or in_order(item))
        elif isinstance(item, (tuple, list)):
            attributes[key] = _operand(item)
            ordered = ordered and _in_order(item)
        else:
            attributes[key] = item
    if not own:
        _check_error_state(operator, name)
    result = Array(expressions.call(operator, attributes, tuple(shape), name, find_source(sys._getframe(1))))
    result.scalar = not shape and not own
    if not ordered:
        result.layout = UNKNOWN
    if _growth.reached(result.expression):
        result.persist()
    return result


def apply_several(
    operator: str, results: Sequence[tuple[Sequence[int], np.dtype | str]], /, **arguments: Any
) -> tuple[Array, ...]:
    """An operator that makes several arrays at once; shape and dtype of each as for `apply`."""
    attributes = {name: _operand(item) for name, item in arguments.items()}
    for _, dtype in results:
        _check_error_state(operator, dtype if isinstance(dtype, str) else name_of(dtype))
    types = tuple((tuple(shape), dtype if isinstance(dtype, str) else name_of(dtype)) for shape, dtype in results)
    return tuple(map(Array, expressions.several(operator, attributes, types, find_source(sys._getframe(1)))))


def _check_error_state(operator: str, dtype: str) -> None:
    """Workers do not look at the processor's flags, so that no exception can be promised.

    Raises:
        NotImplementedError: `np.errstate` asks for more than warnings, of what computes numbers.
    """
    if not signals(operator, dtype):
        return
    for what, how in np.geterr().items():
        if how not in ("ignore", "warn"):
            raise NotImplementedError(
                f"np.errstate({what}={how!r}): girih arrays are computed later and elsewhere, where nobody sees that a "
                "number overflows or is divided by zero. Look at the result, as by np.isfinite(x).all(), or compute "
                "this part by NumPy (x.compute())"
            )


def _in_order(item: Any) -> bool:
    if isinstance(item, Array):
        return item.layout is None or in_order(item)
    return not isinstance(item, tuple) or all(map(_in_order, item))


def _operand(item: Any) -> Any:
    if isinstance(item, Array):
        return item.expression
    if isinstance(item, (tuple, list)):
        return tuple(map(_operand, item))
    return item


def as_array(item: Any, dtype: Any = None) -> Array:
    """The argument if it is one of our arrays, else an array of what NumPy makes of it."""
    if isinstance(item, Array):
        return item if dtype is None else cast(item, dtype)
    if hasattr(item, "tocsr"):
        raise TypeError(f"{type(item).__name__} is sparse: use girih.array.from_scipy, or its toarray()")
    content = np.asarray(item) if dtype is None else np.asarray(item, dtype)
    return from_memory(content, copy=isinstance(item, np.ndarray) or content.base is not None)


def from_memory(content: np.ndarray, copy: bool) -> Array:
    """An array in memory. copy: it may be written to later by somebody else."""
    name = name_of(content.dtype)
    if content.ndim == 0:
        return number(content, content.dtype)
    native = content.dtype.newbyteorder("=")
    copy = copy or not content.flags.writeable
    held = np.array(content, native, order="C") if copy else np.ascontiguousarray(content, native)
    x = Array(expressions.data(held, name, find_source(sys._getframe(1))))
    if not content.flags.c_contiguous:
        x.layout = UNKNOWN  # NumPy keeps its order
    return x


def number(value: Any, dtype: np.dtype) -> Array:
    """A number as an array without dimensions."""
    return Array(expressions.number(value, dtype, name_of(dtype), find_source(sys._getframe(1))))


def cast(x: Array, dtype: Any) -> Array:
    """x in another dtype; x itself where it has it."""
    goal = np.dtype(dtype)
    if x.dtype == goal:
        return x
    if x.dtype.kind == "c" and goal.kind == "b":
        return elementwise(np.not_equal, "aten.ne.Tensor", x, 0)
    if x.dtype.kind == "c" and goal.kind != "c":
        x = apply("aten.real", x.shape, "float32" if x.dtype.itemsize == 8 else "float64", self=x)
        return cast(x, goal)
    return apply("aten._to_copy", x.shape, goal, self=x, dtype=name_of(goal))


def kind_of(item: Any) -> Any:
    """A dtype, or the type of a Python number: its dtype is weak."""
    if not isinstance(item, Array) and _is_number(item):
        return int if isinstance(item, int) else float if isinstance(item, float) else complex
    return item.dtype


def operands(*items: Any) -> list[Any]:
    """Arrays, and Python numbers as they are."""
    return [item if isinstance(item, Array) or _is_number(item) else as_array(item) for item in items]


def _is_number(item: Any) -> bool:
    """Is it a Python number, whose dtype is weak?"""
    return isinstance(item, (int, float, complex)) and not isinstance(item, (bool, np.generic))


def typed(item: Any, dtype: np.dtype) -> Array:
    """An operand in the dtype in which it is computed with.

    Raises:
        OverflowError: NumPy's, for a Python number that does not fit.
    """
    if isinstance(item, Array):
        return cast(item, dtype)
    return Array(expressions.number(dtype.type(item) if dtype.kind != "b" else bool(item), dtype, name_of(dtype)))


def elementwise(ufunc: np.ufunc, operator: str, *items: Any, names: tuple[str, ...] = ("self", "other")) -> Array:
    """An operator at every position of broadcast operands; dtypes are those of NumPy's ufunc.

    Raises:
        TypeError: NumPy's: no such dtypes. ValueError: NumPy's: shapes that do not broadcast.
    """
    inputs = operands(*items)
    kinds = tuple([item.dtype if isinstance(item, Array) else kind_of(item) for item in inputs])
    *inner, result = loop_dtypes(ufunc, kinds, 1)
    arrays = [typed(item, dtype) for item, dtype in zip(inputs, inner, strict=True)]
    shape = broadcast_shapes(*[x.shape for x in arrays])
    return apply(operator, shape, result, **dict(zip(names, arrays, strict=False)))


def exactly(ufunc: np.ufunc, operator: str, x: Any) -> Array:
    """A function of one operand, of complex numbers by NumPy's own (`girih.kernels.exact`)."""
    x = as_array(x)
    return elementwise(ufunc, operator.replace("aten.", "girih.") if x.dtype.kind == "c" else operator, x)


def choice(condition: Any, x: Any, y: Any) -> Array:
    """Elements of x where the condition holds, else of y, in NumPy's dtype of both; whole numbers of Python wrap
    around."""
    pair = operands(x, y)
    dtype = np.result_type(*(item.dtype if isinstance(item, Array) else item for item in pair))
    pair = [np.asarray(item).astype(dtype) if isinstance(item, int) else item for item in pair]
    first, second = (typed(as_array(item), dtype) for item in pair)
    mask = as_array(condition)
    mask = mask if mask.dtype.kind == "b" else elementwise(np.not_equal, "aten.ne.Tensor", mask, 0)
    shape = broadcast_shapes(mask.shape, first.shape, second.shape)
    return apply("aten.where.self", shape, dtype, condition=mask, self=first, other=second).as_written()


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape to which all broadcast, with NumPy's message where they do not fit."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " ".join("(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")" for shape in shapes)
        raise ValueError(f"operands could not be broadcast together with shapes {text}") from None


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that an argument names, non-negative and sorted; None names all.

    Raises:
        AxisError, ValueError: NumPy's.
    """
    if axis is None:
        return tuple(range(rank))
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, rank)))


def no_axis(axis: Any, rank: int) -> Any:
    """The axis that a reduction was given, by NumPy's rule that 0 and -1 are none of what has no dimensions."""
    return () if not rank and isinstance(axis, (int, np.integer)) and axis in (0, -1) else axis


def line_axis(axis: Any, rank: int) -> Any:
    """The axis that a scan was given, which takes what has no dimensions as one element along axis 0 or -1."""
    return axis if no_axis(axis, rank) is axis else None


def axis_of(axis: int, rank: int) -> int:
    return int(np.lib.array_utils.normalize_axis_index(axis, rank))
