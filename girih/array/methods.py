"""What gives Array and universal functions their methods: NumPy's functions, which lie higher than the classes.

`x + y` is `add(x, y)`, `x.sum()` is `sum(x)`, `x[…]` is `indexing.get`, and NumPy's own functions of x are those of the
same name in `girih.array`. The tables say which. `girih.array` attaches them, once, before anybody has an array.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from girih.array.core import indexing, writing
from girih.array.core.array import Array
from girih.array.core.builder import as_array
from girih.array.core.dtypes import SUPPORTED
from girih.array.core.evaluation import BORDER, WITH_FUNCTION
from girih.array.core.order import strides_of
from girih.array.core.small import small
from girih.array.core.universal import UniversalFunction
from girih.array.core.unsupported import missing
from girih.array.core.views import ComplexPart, view
from girih.array.functions import products, ufunc_methods, whole
from girih.array.functions.elementwise import logic, numerics
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions import reduce as reductions
from girih.array.functions.reductions import scans, sorting
from girih.array.functions.shapes import arrangement, creation, manipulation, picking

Function = Callable[..., Any]

# ------------------------------------------------------------------------------------------- operators


def _leads(other: Any) -> bool:
    """Does the other operand decide what an operator means, as sparse matrices do?"""
    return getattr(other, "__array_ufunc__", other) is None


def _repeats(x: Array, other: Any) -> bool:
    """Is x a number, as an element or a sum, by which a sequence is repeated?"""
    return isinstance(other, (list, tuple, str, bytes)) and not x.shape and x.dtype.kind in "iu"


def power(x: Array, exponent: Any) -> Any:
    """x ** exponent. NumPy's operator on complex numbers, unlike its function, has simpler ones for some exponents."""
    if x.dtype.kind == "c" and not x.scalar and type(exponent) in (int, float):
        simpler = {-1: e.reciprocal, 0.5: e.sqrt, 2: e.square}.get(exponent)
        if simpler is not None:
            return simpler(x)
    return e.power(x, exponent)


def _multiply(x: Array, other: Any) -> Any:
    if _repeats(x, other):
        return other * x.__index__()
    return NotImplemented if _leads(other) else e.multiply(x, other)


def _multiply_reflected(x: Array, other: Any) -> Any:
    return other * x.__index__() if _repeats(x, other) else e.multiply(other, x)


def _matmul(x: Array, other: Any) -> Any:
    return NotImplemented if _leads(other) else products.matmul(x, other)


def _raise(x: Array, other: Any) -> Any:
    return e.square(x) if type(other) is int and other == 2 else power(x, other)  # int8 of truth values, as NumPy


def _equal(x: Array, other: Any) -> Any:
    """x == other; no number equals None or a text."""
    return creation.zeros_like(x, bool) if other is None or isinstance(other, str) else logic.equal(x, other)


def _not_equal(x: Array, other: Any) -> Any:
    return creation.ones_like(x, bool) if other is None or isinstance(other, str) else logic.not_equal(x, other)


def _number(x: Array, refusal: str) -> Any:
    if x.shape:
        raise TypeError(refusal)
    return x.compute()[()]


def _hash(x: Array) -> int:
    """The hash of a number: it can be a key of a dictionary, as NumPy's scalars can."""
    return hash(_number(x, "unhashable type: 'Array'; numbers are hashable, and what x.tolist() has in it"))


def _round(x: Array, digits: int | None = None) -> Any:
    return round(_number(x, "round() takes a number: np.round(x) rounds arrays"), digits)


def _contains(x: Array, value: Any) -> bool:
    return bool(reductions.any(_equal(x, value)))


def _iterate(x: Array) -> Iterator[Any]:
    if not x.shape:
        raise TypeError("iteration over a 0-d array")
    x.persist()
    return (indexing.get(x, position) for position in range(x.shape[0]))


ARITHMETIC: dict[str, Function] = {
    "add": e.add, "sub": e.subtract, "mul": e.multiply, "truediv": e.divide, "floordiv": e.floor_divide,
    "mod": e.remainder, "pow": e.power, "matmul": products.matmul, "and": logic.bitwise_and, "or": logic.bitwise_or,
    "xor": logic.bitwise_xor, "lshift": logic.left_shift, "rshift": logic.right_shift,
}  # fmt: skip
"""Each has an operator, one with the operands exchanged, and one in place."""
SPECIAL: dict[str, Function] = {
    "__mul__": _multiply, "__rmul__": _multiply_reflected, "__matmul__": _matmul, "__pow__": _raise,
    "__divmod__": e.divmod, "__rdivmod__": lambda x, other: e.divmod(other, x),
    "__neg__": e.negative, "__pos__": e.positive, "__abs__": e.absolute, "__invert__": logic.invert,
    "__lt__": logic.less, "__le__": logic.less_equal, "__gt__": logic.greater, "__ge__": logic.greater_equal,
    "__eq__": _equal, "__ne__": _not_equal, "__hash__": _hash, "__trunc__": Array.__int__, "__round__": _round,
    "__contains__": _contains, "__iter__": _iterate, "__getitem__": indexing.get, "__setitem__": writing.assign,
}  # fmt: skip


def _operators() -> Iterator[tuple[str, Function]]:
    for name, function in ARITHMETIC.items():
        in_place = power if name == "pow" else function
        yield f"__{name}__", lambda x, other, function=function: function(x, other)
        yield f"__r{name}__", lambda x, other, function=function: function(other, x)
        yield f"__i{name}__", lambda x, other, function=in_place: writing.update(x, function, other)
    for name, function in SPECIAL.items():
        yield name, lambda x, *others, function=function: function(x, *others)


# ------------------------------------------------------------------------------------------- methods


def _reshape(x: Array, *shape: Any, order: str = "C") -> Array:
    return manipulation.reshape(x, shape[0] if len(shape) == 1 else shape, order=order)


def _transpose(x: Array, *axes: Any) -> Array:
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return manipulation.transpose(x, order)


def _flatten(x: Array, order: str = "C") -> Array:
    return manipulation.ravel(x, order).copy()


def _fill(x: Array, value: Any) -> None:
    if x.scalar:  # of which NumPy fills a copy
        return
    if not isinstance(value, Array):
        one = np.empty((), x.dtype)
        one.fill(value)  # NumPy's errors
        value = one[()]
    writing.assign(x, ..., value)


def _conj(x: Array) -> Array:
    """The conjugate, which of real numbers is the array itself."""
    return e.conjugate(x) if x.dtype.kind == "c" else x  # type: ignore[no-any-return]


def _sort(x: Array, axis: int = -1, kind: str | None = None) -> None:
    """Sort in place; `np.sort` makes another array."""
    writing.assign(x, ..., sorting.sort(x, axis))


def _partition(x: Array, kth: Any, axis: int = -1, kind: str = "introselect") -> None:
    """Partition in place; `np.partition` makes another array."""
    writing.assign(x, ..., sorting.partition(x, kth, axis))


def _compress(x: Array, condition: Any, axis: int | None = None) -> Array:
    return picking.compress(condition, x, axis)


METHODS: dict[str, Function] = {
    "reshape": _reshape, "transpose": _transpose, "flatten": _flatten, "fill": _fill, "conj": _conj,
    "conjugate": _conj, "sort": _sort, "partition": _partition, "compress": _compress,
    "all": reductions.all, "any": reductions.any, "argmax": reductions.argmax, "argmin": reductions.argmin,
    "argpartition": sorting.argpartition, "argsort": sorting.argsort, "astype": manipulation.astype,
    "choose": numerics.choose, "clip": e.clip, "cumprod": scans.cumprod, "cumsum": scans.cumsum,
    "diagonal": manipulation.diagonal, "dot": products.dot, "max": reductions.max, "mean": reductions.mean,
    "min": reductions.min, "nonzero": picking.nonzero, "prod": reductions.prod,
    "put": whole.FUNCTIONS["put"], "ravel": manipulation.ravel, "repeat": manipulation.repeat, "round": e.round,
    "searchsorted": sorting.searchsorted, "squeeze": manipulation.squeeze, "std": reductions.std,
    "sum": reductions.sum, "swapaxes": manipulation.swapaxes, "take": picking.take, "trace": reductions.trace,
    "var": reductions.var,
}  # fmt: skip
UFUNC_METHODS: dict[str, Function] = {
    "reduce": ufunc_methods.reduce, "accumulate": ufunc_methods.accumulate, "outer": ufunc_methods.outer,
    "at": ufunc_methods.at, "reduceat": ufunc_methods.reduceat,
}  # fmt: skip


# ------------------------------------------------------------------------------------------- attributes


def _part(x: Array, name: str) -> Array:
    """A view of the real or of the imaginary parts, which lie at every other place of the whole."""
    strides = strides_of(x)
    part = view(x, ComplexPart(name), False if strides is None else tuple(2 * size for size in strides))
    return part.as_scalar() if x.scalar else part


def _real(x: Array) -> Array:
    return _part(x, "real") if x.dtype.kind == "c" else x


def _imag(x: Array) -> Array:
    if x.dtype.kind == "c":
        return _part(x, "imag")
    zeros = creation.zeros(x.shape, x.dtype)
    zeros.writeable = False
    return zeros.as_scalar() if x.scalar else zeros


def _set(name: str) -> Callable[[Array, Any], None]:
    """What sets this attribute of an array; numbers are not written to."""

    def write(x: Array, value: Any) -> None:
        if name == "imag" and x.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        if x.scalar:
            raise AttributeError(f"attribute {name!r} of a number is not writable")
        getattr(x, name)[...] = value

    return write


def _set_shape(x: Array, value: Any) -> None:
    """Raises AttributeError where NumPy would have to copy, ValueError where sizes do not fit."""
    shaped = _reshape(x, value)
    if shaped.shape == x.shape:
        return
    if not shaped.path:
        raise AttributeError("incompatible shape for in-place modification: write x = x.reshape(...), which copies")
    x.bind(shaped.expression)
    x.path, x.layout = shaped.path, shaped.layout


def _strides(x: Array) -> tuple[int, ...]:
    """Those of the array that NumPy would have, in bytes; what is not known is said to lie in C order."""
    in_order = (math.prod(x.shape[dim + 1 :]) for dim in range(x.ndim))
    return tuple(step * x.itemsize for step in (x.layout if isinstance(x.layout, tuple) else in_order))


@dataclass(frozen=True)
class Flags:
    """What NumPy's `flags` say of an array in memory; `writeable` is girih's own."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool
    writeable: bool

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


def _flags(x: Array) -> Flags:
    known = np.lib.stride_tricks.as_strided(np.zeros(1, x.dtype), x.shape, _strides(x)).flags  # no memory is read
    return Flags(known.c_contiguous, known.f_contiguous, not x.path, x.writeable)


def _view(x: Array, dtype: Any = None) -> Array:
    """The same elements; in another dtype a copy, computed whole by NumPy, that takes no writes.

    Raises:
        TypeError, ValueError: NumPy's, where the bytes do not fit.
    """
    if dtype is None or dtype == x.dtype:
        return indexing.get(x, ...)
    shown = as_array(x.compute().view(dtype))
    shown.writeable = False
    return shown


def _unpickled(value: np.ndarray, scalar: bool, with_function: bool = False) -> Array | np.ndarray:
    """A pickled array, in the process that loads it; NumPy's where a function on tiles refers to it."""
    if with_function:
        return value
    if value.nbytes < BORDER.bytes or value.dtype.name not in SUPPORTED:
        return small(value[()] if scalar else value)
    return as_array(value)


def _html(x: Array) -> str:
    """In a notebook: the value, and above it shape and dtype."""
    value = html.escape(np.array2string(x.compute(), threshold=200))
    return f"<pre>{html.escape(f'shape {x.shape}, {x.dtype}')}\n{value}</pre>"


ATTRIBUTES = {
    "shape": property(Array.shape.fget, _set_shape),  # type: ignore[attr-defined]
    "strides": property(_strides),
    "flags": property(_flags),
    "view": _view,
    "_repr_html_": _html,
    # pickled is the value, computed now: the workers and their tiles stay here
    "__reduce_ex__": lambda x, protocol: (_unpickled, (x.compute(), x.scalar, WITH_FUNCTION.get(False))),
    "T": property(manipulation.transpose),
    "mT": property(manipulation.matrix_transpose),
    "real": property(_real, _set("real")),
    "imag": property(_imag, _set("imag")),
    "flat": property(arrangement.FlatElements, _set("flat")),
}


# ------------------------------------------------------------------------------------------- NumPy's own functions


def apply_ufunc(
    here: ModuleType, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """`np.add(x, y)`, `np.add.reduce(x, …)` and the other methods; other libraries' functions are called on tiles.

    Raises:
        TypeError: girih has no such function, or not with these options.
    """
    known = getattr(np, ufunc.__name__, None) is ufunc or callable(vars(here).get(ufunc.__name__))
    if not known and method == "__call__" and ufunc.nout == 1 and ufunc.signature is None and not options:
        return here.map(ufunc, *inputs)
    function: Any = _named(here, ufunc.__name__)
    if method != "__call__":
        if not hasattr(function, method):
            raise TypeError(f"girih.array has no numpy.{ufunc.__name__}.{method}")
        function = getattr(function, method)
    where = {"where": options["where"]} if method == "__call__" and "where" in options else {}
    return _written(function, inputs, options, where)


def apply_function(here: ModuleType, function: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> Any:
    """`np.concatenate([x, y])` and all others that NumPy lets other arrays answer.

    Raises:
        TypeError: girih has no such function.
    """
    space: Any = here
    for part in (function.__module__ or "numpy").split(".")[1:]:
        space = getattr(space, part, here)
    found = _named(space, function.__name__)
    if found is function:  # of a part that is NumPy's own here, as np.strings
        found = whole.whole(function)
    return _written(found, inputs, options, {})


def _written(function: Any, inputs: Any, options: Mapping[str, Any], where: Mapping[str, Any]) -> Any:
    """The function's result; where `out` is NumPy's array, computed now and put there: `a += x` of NumPy's a.

    where: which elements are written, if not all are.
    """
    target = options.get("out")
    target = target[0] if isinstance(target, tuple) and len(target) == 1 else target
    if not isinstance(target, np.ndarray):
        return function(*inputs, **options)
    rest = {name: value for name, value in options.items() if name not in {"out", *where}}
    masks = {name: np.asarray(value) for name, value in where.items()}
    np.copyto(target, np.asarray(function(*inputs, **rest)), casting="same_kind", **masks)
    return target


def _named(space: ModuleType, name: str) -> Callable[..., Any]:
    """A function here by NumPy's name; TypeError, as NumPy's protocols have it, where there is none."""
    function = vars(space).get(name)
    if not callable(function):
        raise TypeError(str(missing(space.__name__, name, vars(space))))
    return function  # type: ignore[no-any-return]


def attach(namespace: ModuleType) -> None:
    """Give the classes their methods. namespace: girih.array, whose functions answer for NumPy's of the same name."""

    def array_namespace(x: Array, *, api_version: str | None = None) -> ModuleType:
        """Raises ValueError for another version of the standard than the namespace names."""
        own = namespace.__array_api_version__
        if api_version not in (None, "2021.12", "2022.12", "2023.12", own):
            raise ValueError(f"girih.array has version {own}, not {api_version!r}")
        return namespace

    def array_ufunc(x: Array, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return apply_ufunc(namespace, ufunc, method, inputs, options)

    def array_function(x: Array, function: Any, types: Any, inputs: Sequence[Any], options: Any) -> Any:
        return apply_function(namespace, function, inputs, options)

    answers: dict[str, Function] = {
        "__array_namespace__": array_namespace,
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
    }
    for name, member in (*ATTRIBUTES.items(), *answers.items(), *_operators()):
        setattr(Array, name, member)
    for owner, table in ((Array, METHODS), (UniversalFunction, UFUNC_METHODS)):
        for name, function in table.items():
            setattr(owner, name, _method(name, function))


def _method(name: str, function: Function) -> Function:
    """Some are universal functions, which a class would not bind to its instances."""

    @wraps(function)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return function(self, *args, **options)

    method.__name__ = name
    return method
