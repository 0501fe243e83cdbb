"""Small arrays: NumPy's arrays and numbers in this process, with which NumPy computes as the program is written.

A plan of known work costs some hundred microseconds, a NumPy call on a small array less than one. So what is small
(`BORDER`: the result, and what it is made of) makes no graph. A `SmallArray` has a NumPy array; its views are NumPy's
views, writes to it are NumPy's writes, and errors and warnings are NumPy's and come where NumPy raises them. Among
large arrays it is a constant: its `expression` is a copy of what it has at that moment.

An element of a small array is a number of NumPy's own types, which also has `compute()`. All other results are arrays
of ours, `x.sum()` too.

The calls that scripts make most are done by `small.c`, where that could be compiled (`girih.cost.compiled`): it
takes operators, elements and views of few bytes, and leaves all else to `InPython`. NumPy's own arrays would be as
quick, but have no `compute()`. A class that inherits from them is not: NumPy takes 0.4 µs longer to make its results
than its own, as long as operators in Python take.

Of small arrays some megabytes large element-wise results come later: they are `Deferred`, calls of a chain
(`girih.array.core.chains`), until something needs the value. All that looks at `held` does.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from sys import getrefcount
from typing import Any

import numpy as np

from girih.array.core import chains
from girih.array.core.array import NO_SLOTS, UNKNOWN, Array, Layout, no_attribute
from girih.array.core.builder import apply, from_memory, number
from girih.array.core.dtypes import SUPPORTED, name_of
from girih.array.core.evaluation import BORDER
from girih.array.core.temporaries import HELD, LEAST_BYTES, OPERAND, takes, temporaries
from girih.capture.lazy.expressions import Expression
from girih.cost.compiled import extension

_LIKE_LARGE: dict[str, Any] = {"scalar": True, "compute": lambda self: np.array(self), "persist": lambda self: self}
"""What an element of a small array has beside NumPy's number: what an element of a large one has."""
NUMBERS: dict[type, Any] = {
    kind: type(kind.__name__, (kind,), {"__slots__": (), "__module__": "girih.array", **_LIKE_LARGE})
    for kind in (np.dtype(name).type for name in SUPPORTED)
    if kind is not np.bool_  # of which there are two objects alone
}
"""By NumPy's type of a number: the type of an element. Arithmetic with elements gives NumPy's own numbers."""
SINGLE = frozenset({int, float, complex, bool, np.bool_, *NUMBERS, *NUMBERS.values()})
"""Types of numbers."""
PLAIN = SINGLE | {str, bytes, slice, type(None), type(Ellipsis), np.ndarray, type, np.dtype}
"""Types of what NumPy is given as it is; of other objects it is asked first whether arrays are in them."""
PLACES = frozenset({int, slice, type(None), type(Ellipsis), np.int64, np.int32, NUMBERS[np.int64]})
"""Types of indices that choose what is a view, or an element."""
_new, _array = object.__new__, np.ndarray


class HeldInPython:
    """What `small.c` has as `Held`: an object with NumPy's array, or its number."""

    __slots__ = ("__weakref__", "_constant", "held")

    held: Any
    shape = property(lambda self: self.held.shape, lambda self, value: setattr(self.held, "shape", value))
    dtype = property(lambda self: self.held.dtype)
    ndim = property(lambda self: self.held.ndim)
    size = property(lambda self: self.held.size)
    nbytes = property(lambda self: self.held.nbytes)
    itemsize = property(lambda self: self.held.itemsize)
    T = property(lambda self: small(self.held.T))


NATIVE = extension(Path(__file__).with_name("small.c"), "array", np.get_include(), np.__version__)
Held: Any = HeldInPython if NATIVE is None else NATIVE.Held


class InPython(Array):
    """A small array: NumPy's array or number, and what it can do. Simple cases are answered by `small.c`."""

    __slots__ = NO_SLOTS

    held: Any
    _constant: tuple[Expression, int]
    family = None
    path = ()

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def expression(self) -> Expression:  # type: ignore[override]
        """What it has now, as a constant of a graph; the same one as long as nobody writes to it.

        Raises:
            TypeError: only NumPy has such a dtype.
        """
        content = self.held
        if not content.ndim:
            return number(content, content.dtype).expression
        if any(stride == 0 and size > 1 for stride, size in zip(content.strides, content.shape, strict=True)):
            one = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in content.strides)
            return apply(
                "aten.expand", content.shape, self.dtype, self=small(content[one]), size=content.shape
            ).expression
        known, writes = getattr(self, "_constant", (None, -1))
        if known is None or known.shape != content.shape or (writes != WRITES[0] and not _same(known.content, content)):
            known = from_memory(content, copy=True).expression
        self._constant = (known, int(WRITES[0]))
        return known

    def lazily(self) -> Array:
        """As an array of a graph, which sees no later writes."""
        x = Array(self.expression)
        x.scalar, x.layout = self.scalar, self.layout
        return x

    @property
    def scalar(self) -> bool:  # type: ignore[override]
        return isinstance(self.held, np.generic)

    @property
    def writeable(self) -> bool:  # type: ignore[override]
        return bool(self.held.flags.writeable)

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return None if self.held.flags.c_contiguous else UNKNOWN

    strides = property(lambda self: self.held.strides)  # type: ignore[assignment]
    flags = property(lambda self: self.held.flags)  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------- values

    def compute(self) -> np.ndarray:
        return np.array(self.held)

    def persist(self) -> Array:
        self.held  # noqa: B018 - what is deferred is computed now
        return self

    def item(self, *args: Any) -> Any:
        return self.held.item(*args)

    def tolist(self) -> Any:
        return self.held.tolist()

    def __len__(self) -> int:
        return len(self.held) if self.held.ndim else super().__len__()

    def __float__(self) -> float:
        if isinstance(self.held, float):  # as NumPy's sums are
            return float(self.held)
        return float(self.held) if not self.held.ndim and self.held.dtype.kind != "c" else super().__float__()

    def __int__(self) -> int:
        return int(self.held) if not self.held.ndim and self.held.dtype.kind != "c" else super().__int__()

    def __bool__(self) -> bool:
        return bool(self.held) if self.held.size == 1 else super().__bool__()

    def copy(self, order: str = "C") -> Array:
        return SmallArray(np.array(self.held, order=order)[()] if self.scalar else self.held.copy(order))  # type: ignore[call-overload]

    def as_scalar(self) -> Array:
        return self if self.held.ndim else SmallArray(self.held[()])

    def as_written(self) -> Array:
        return self.lazily().as_written()

    def view(self, *dtype: Any) -> Any:
        return SmallArray(self.held.view(*dtype))

    # ------------------------------------------------------------------------------------------- elements

    def __getitem__(self, key: Any) -> Any:
        if type(key) not in PLACES and not (type(key) is tuple and PLACES.issuperset(map(type, key))):
            places = known(key)
            if places is LATER or _chosen_bytes(self.held, places) > BORDER.bytes:
                return Array.__getitem__(self.lazily(), key)
            key = places
        part = self.held[key]
        if type(part) is _array:
            return small(part)
        number_of = NUMBERS.get(type(part))
        return part if number_of is None else number_of(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        of_value = type(value)
        if type(key) not in PLACES and not (type(key) is tuple and PLACES.issuperset(map(type, key))):
            key = computed(key)
        elif of_value is Deferred and value.grows and self.writeable and _into(value, value.call, self.held[key]):
            return
        elif of_value is SmallArray and value.held.nbytes >= LEAST_BYTES and self._is_part(key, value.held):
            return  # x[key] += y has written already
        wrote()
        self.held[key] = value if of_value in PLAIN else computed(value)

    def _is_part(self, key: Any, part: Any) -> bool:
        """Is this what x[key] shows?"""
        return self.writeable and chains.same_place(self.held[key], part)

    def __iter__(self) -> Iterator[Any]:
        if not self.held.ndim:
            raise TypeError("iteration over a 0-d array")
        if self.held.ndim > 1:
            return map(small, self.held)
        number_of = NUMBERS.get(self.held.dtype.type)
        return iter(self.held) if number_of is None else map(number_of, self.held)

    def __contains__(self, value: Any) -> bool:
        return computed(value) in self.held

    def __hash__(self) -> int:
        if self.held.ndim:
            raise TypeError("unhashable type: 'Array'; numbers are hashable, and what x.tolist() has in it")
        return hash(self.held[()])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            given = taken(inputs)
            if given is not None and given[1] < BORDER.quick:
                return ours(ufunc(*given[0]))
        return Array.__array_ufunc__(self, ufunc, method, *inputs, **options)  # type: ignore[attr-defined]


def _missing(name: str) -> property:
    def read(_: Any) -> Any:
        raise no_attribute(name)

    return property(read)


for _name in ["base", "byteswap", "ctypes", "data", "dump", "dumps", "getfield", "resize", "setfield", "setflags"]:
    setattr(InPython, _name, _missing(_name))  # not by __getattr__, which makes all other attributes slower


class SmallArray(Held, InPython):  # type: ignore[misc]
    """A small array, or one of a dtype that only NumPy has: `held` is NumPy's array, or its number where NumPy gives a
    number."""

    __slots__ = ()
    __hash__ = InPython.__hash__


WRITES = np.zeros(1, np.int64)
"""How often a small array was written to: constants that were made since the last time are still right."""
COMPARED = 1 << 16
"""A constant of more bytes is made anew after any write: comparing costs as much."""


def _same(known: np.ndarray, content: np.ndarray) -> bool:
    return known.nbytes <= COMPARED and known.tobytes() == content.tobytes()


def wrote() -> None:
    """A small array will be written to: what is deferred is computed before."""
    WRITES[0] += 1
    if chains.pending:
        chains.settle()


def small(value: np.ndarray | np.generic) -> SmallArray:
    """NumPy's array or number as an array of ours; as `SmallArray(value)`, but quicker."""
    x = _new(SmallArray)
    x.held = value
    return x


# ------------------------------------------------------------------------------------------- what NumPy is given


class _Later:
    """The result is not small: the work belongs into a graph."""


LATER: Any = _Later()


def known(item: Any) -> Any:
    """What NumPy takes in the place of an argument, with lists and tuples; LATER where there is a large array in it."""
    kind = type(item)
    if kind is SmallArray or kind is Deferred:
        return item.held
    if kind in PLAIN:
        return item
    if kind is tuple or kind is list:
        parts = [part if type(part) in PLAIN else known(part) for part in item]
        return LATER if any(part is LATER for part in parts) else kind(parts)
    if isinstance(item, Array) or getattr(kind, "__array_ufunc__", kind) is None or hasattr(kind, "tocsr"):
        return LATER  # an array of a graph; or a sparse matrix, which decides what an operator means
    return item


def computed(item: Any) -> Any:
    """As `known`, with the values of large arrays."""
    if isinstance(item, Array):
        return item.held if isinstance(item, SmallArray) else item.compute()[()] if item.scalar else item.compute()
    if type(item) in (tuple, list):
        return type(item)(map(computed, item))
    return item


def result_bytes(arrays: list[Any]) -> int:
    """The bytes of what is made of arrays element by element, at most about: of the broadcast shape, and of each."""
    most = max((x.nbytes for x in arrays), default=0)
    if len(arrays) < 2:
        return most
    product = max(x.itemsize for x in arrays)
    for x in arrays:
        product *= x.size
    if product <= BORDER.bytes or all(x.shape == arrays[0].shape for x in arrays):
        return most
    try:
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError:
        return most
    size = max(x.itemsize for x in arrays)
    for extent in shape:
        size *= extent
    return max(size, most)


def arrays_of(items: Any) -> list[Any]:
    """NumPy's arrays and numbers among arguments."""
    return [item for item in items if isinstance(item, (np.ndarray, np.generic))]


def _chosen_bytes(x: Any, key: Any) -> int:
    """The bytes of x[key], at most; what only looks at parts of x, or chooses by a mask, has no more than x."""
    keys = key if type(key) is tuple else (key,)
    picks = [np.asarray(item) for item in keys if isinstance(item, (list, np.ndarray))]
    picks = [item for item in picks if item.dtype.kind in "iu"]
    if not picks:
        return 0
    most = max(item.size for item in picks) if len(picks) == 1 else result_bytes(picks) // 8
    if len(keys) == x.ndim and all(isinstance(item, (int, np.integer, list, np.ndarray)) for item in keys):
        return most * x.itemsize
    return most * x.nbytes // max(1, len(x)) if type(key) is not tuple else most * x.nbytes


def only_numpy(items: Iterable[Any]) -> bool:
    """Is there an array of a dtype that only NumPy has? All work on it is done at once."""
    parts = (part for item in items for part in (item if type(item) in (list, tuple) else (item,)))
    return any(x.dtype.name not in SUPPORTED for x in arrays_of(parts))


def taken(items: tuple[Any, ...], joined: bool = False) -> tuple[list[Any], float] | None:
    """What NumPy takes in the place of arguments, and how many bytes it makes of them at most, if that is element by
    element. None: one of them is large. joined: it makes as many as they have together.

    Where that is `BORDER.quick` or more, there may be arrays among them whose values are deferred (`now`)."""
    plain: list[Any] = []
    most, size, shape, alike = 0, 1, None, True
    for item in items:
        kind = type(item)
        if kind is SmallArray:
            x = item.held
        elif kind is np.ndarray:
            x = item
        elif kind in PLAIN:
            plain.append(item)
            continue
        elif kind is Deferred and item.grows:
            plain.append(item)
            most = max(most, item.nbytes, BORDER.quick)
            continue
        else:
            x = known(item)
            if x is LATER:
                return None
            plain.append(x)
            if kind is list or kind is tuple:
                most += sum([part.nbytes for part in x if isinstance(part, np.ndarray)])
            continue
        plain.append(x)
        most = most + x.nbytes if joined else max(most, x.nbytes)
        if shape is None:
            shape, size = x.shape, x.size
        elif x.shape != shape:
            alike = False
            size *= x.size
    if not alike and size * 16 >= BORDER.quick:
        return plain, max(most, result_bytes(arrays_of(plain)))
    return plain, most


def now(plain: Sequence[Any]) -> list[Any]:
    """What NumPy takes, with the values of what is deferred."""
    return [item.held if isinstance(item, SmallArray) else item for item in plain]


def ours(result: Any, before: tuple[Any, ...] = ()) -> Any:
    """NumPy's arrays and numbers in a result as arrays of ours. before: the arguments; what NumPy gives back as it is
    (`out=`) stays what it was.

    Raises:
        TypeError: elements are Python objects, or numbers of a size that girih does not have.
    """
    kind = type(result)
    if kind in NUMBERS:
        x = _new(SmallArray)
        x.held = result
        return x
    if kind is _array or isinstance(result, np.generic):
        dtype = result.dtype
        if dtype.char in "OgG":
            name_of(dtype)  # raises
        if not dtype.isnative:
            result = result.astype(dtype.newbyteorder("="))
        for item in before:
            if isinstance(item, SmallArray) and item.held is result:
                return item
        return small(result)
    if kind is tuple or kind is list:
        return kind(ours(part, before) for part in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return kind(*(ours(part, before) for part in result))
    return result


# ------------------------------------------------------------------------------------------- deferred


class Deferred(SmallArray):  # type: ignore[misc]
    """A small array whose value is a call of a chain until something needs it; from then on it is a SmallArray."""

    __slots__ = ()

    @property
    def held(self) -> Any:  # type: ignore[override]
        call = _slot.__get__(self)
        if type(call) is not chains.Call:
            return call  # which another thread has computed
        value = chains.computed(call)
        Deferred.show(self, value)
        return value

    def show(self, value: Any) -> None:
        """The value is there."""
        _slot.__set__(self, value)
        self.__class__ = SmallArray  # type: ignore[assignment]

    def __del__(self) -> None:
        call = _slot.__get__(self)
        if type(call) is chains.Call:
            chains.forget(call)

    @property
    def call(self) -> Any:
        """The call, or its value once that is there."""
        call = _slot.__get__(self)
        return call if type(call) is chains.Call and call.value is None else self.held

    @property
    def grows(self) -> bool:
        """Can a chain go on from it?"""
        call = _slot.__get__(self)
        return type(call) is chains.Call and not call.combine

    # what is asked of a call, of a value in another thread's hands, or of the array that it has become
    scalar = property(lambda self: not self.ndim)  # type: ignore[assignment]
    shape = property(lambda self: _slot.__get__(self).shape, lambda self, value: setattr(self.held, "shape", value))
    dtype = property(lambda self: _slot.__get__(self).dtype)  # type: ignore[assignment]
    ndim = property(lambda self: len(_slot.__get__(self).shape))  # type: ignore[assignment]
    size = property(lambda self: _slot.__get__(self).size)  # type: ignore[assignment]
    nbytes, itemsize = Array.nbytes, Array.itemsize

    def __len__(self) -> int:
        return self.shape[0] if self.ndim else super().__len__()


_slot: Any = vars(Held)["held"]


def deferred(
    function: Any, items: Sequence[Any], combine: Any = None, place: chains.Place | None = None
) -> Deferred | None:
    """A call on small arrays, NumPy's own and numbers as a part of a chain; None: it is to be made at once. place: as
    `chains.Call` has it."""
    taken = []
    for item in items:
        kind = type(item)
        if kind is Deferred:
            taken.append(item.call if item.grows else item.held)
        elif kind is SmallArray:
            taken.append(item.held[...] if type(item.held) is np.ndarray else item.held)
        elif kind is np.ndarray:  # which the program may write to
            if item.nbytes > COPIED:
                return None
            taken.append(item.copy())
        elif kind in SINGLE or isinstance(item, np.generic):
            taken.append(item)
        else:
            return None
    call = None if function is None else chains.record(function, taken, combine)
    if call is None:
        return None
    if call.value is not None:
        return small(call.value)  # type: ignore[return-value]
    call.place = place
    x: Deferred = _new(Deferred)
    _slot.__set__(x, call)
    chains.show(call, weakref.ref(x))
    return x


COPIED = 1 << 16
"""Bytes up to which an array of NumPy's is copied into a chain; a larger one ends it."""


def _into(value: Deferred, call: chains.Call | None, goal: Any) -> bool:
    """Write a call, of the value or that reads it, over what is there without an array between, if that can be."""
    own = value.call
    if call is None or type(own) is not chains.Call or type(goal) is not np.ndarray:
        return False
    shown = own.shown
    chains.forget(own)  # as a rule nobody has it but the statement
    chains.settle()
    done = chains.computed_into(call, goal, call is not own)
    if own.value is None:
        chains.show(own, shown)
    WRITES[0] += done
    return done


# ------------------------------------------------------------------------------------------- operators


def _fits(x: Any, y: Any) -> bool:
    """Is what is made of two operands element by element small?"""
    operands = arrays_of((x, y))
    return result_bytes(operands) < BORDER.bytes or only_numpy(operands)


def _stretches(y: Any, x: np.ndarray) -> bool:
    """Is what is made of x and y, element by element, as large as x, as far as is seen at first sight?"""
    return type(y) is _array and y.ndim > 0 and x.shape[-y.ndim :] == y.shape and y.itemsize <= x.itemsize


def _product_fits(x: Any, y: Any) -> bool:
    return product_bytes(x, y) < BORDER.bytes


def product_bytes(x: Any, y: Any) -> int:
    """The bytes of x @ y, at most."""
    if not isinstance(y, np.ndarray) or not x.ndim or not y.ndim:
        return int(x.nbytes)
    common = max(1, x.shape[-1])
    return max(x.nbytes, y.nbytes, (x.size // common) * (y.size // common) * max(x.itemsize, y.itemsize))


OVER: dict[str, tuple[Any, str]] = {
    "__add__": (np.add, "iufc"), "__sub__": (np.subtract, "iufc"), "__mul__": (np.multiply, "iufc"),
    "__truediv__": (np.true_divide, "fc"),
}  # fmt: skip
"""By operator, what is written over an operand that has no name, and the kinds of dtypes that it keeps."""


def _forward(name: str, function: Callable[[Any, Any], Any]) -> Callable[[SmallArray, Any], Any]:
    product = name == "__matmul__"  # of which no chains are
    into, written = OVER.get(name, (None, ""))
    fits = _product_fits if product else _fits
    chained = CHAINED.get(name)

    def applied(self: SmallArray, other: Any) -> Any:
        x, kind = self.held, type(other)
        if kind is SmallArray:
            y = other.held
            quick = x.nbytes * y.size < BORDER.quick or (
                x.shape[-y.ndim :] == y.shape and (x.nbytes < BORDER.bytes if product else not chains.may_begin(x))
            )
        elif kind in SINGLE:
            y = other
            quick = not chains.may_begin(x)
        else:
            y, quick = LATER, False
        if not quick:
            place, writes = None, chained is not None
            if writes and kind is not Deferred and (getrefcount(self) > OPERAND or not x.flags.owndata):
                place = chains.stands_alone(sys._getframe(1))
                writes = place is not None
            if chained is not None and writes:
                made = deferred(chained(other), (self, other), None, place)
                if made is not None:
                    return made
            y = known(other)
            if y is LATER or not ((_stretches(y, x) and x.nbytes < BORDER.bytes) or fits(x, y)):
                return getattr(Array, name)(self.lazily(), other)
        if into is not None and x.nbytes >= LEAST_BYTES and x.dtype.kind in written:
            alone = getrefcount(self) == OPERAND and getrefcount(x) == HELD
            other_alone = kind is SmallArray and getrefcount(other) == OPERAND and getrefcount(y) == HELD
            if alone or other_alone:
                left, right = temporaries(sys._getframe(1))
                if alone and left and takes(x, y):
                    return small(into(x, y, out=x))
                if other_alone and right and takes(y, x):
                    return small(into(x, y, out=y))
        result = function(x, y)
        kind = type(result)
        if kind is _array or kind in NUMBERS:
            whole: Any = _new(SmallArray)
            whole.held = result
            return whole
        return ours(result)

    return applied


def _reflected(name: str, function: Callable[[Any, Any], Any]) -> Callable[[SmallArray, Any], Any]:
    fits = _product_fits if name == "__rmatmul__" else _fits
    into, written = OVER.get(name.replace("__r", "__"), (None, ""))
    chained = CHAINED.get(name.replace("__r", "__"))

    def applied(self: SmallArray, other: Any) -> Any:
        if type(other) in SINGLE:
            x = self.held
            if not chains.may_begin(x):
                if (
                    into is not None
                    and x.nbytes >= LEAST_BYTES
                    and getrefcount(self) == OPERAND
                    and getrefcount(x) == HELD
                    and takes(x, other)
                    and x.dtype.kind in written
                    and temporaries(sys._getframe(1))[1]
                ):
                    return small(into(other, x, out=x))
                return ours(function(other, x))
        if isinstance(other, Array) and not isinstance(other, SmallArray):
            return getattr(Array, name.replace("__r", "__"))(other, self)  # Python asks the class below before that
        x, place, writes = self.held, None, chained is not None
        named = getrefcount(self) > OPERAND or not x.flags.owndata
        if chained is not None and type(other) in SINGLE and named:
            place = chains.stands_alone(sys._getframe(1))
            writes = place is not None
        if chained is not None and writes:
            made = deferred(chained(self), (other, self), None, place)
            if made is not None:
                return made
        y = known(other)
        if y is LATER or not fits(x, y):
            return getattr(Array, name)(self.lazily(), other)
        return ours(function(y, x))

    return applied


def _in_place(name: str, function: Callable[[Any, Any], Any]) -> Callable[[SmallArray, Any], Any]:
    forward = name.replace("__i", "__")
    chained = CHAINED.get(forward)

    def applied(self: SmallArray, other: Any) -> Any:
        if type(self.held) is not np.ndarray:  # a number, which NumPy does not write to
            return getattr(self, forward)(other)
        if type(other) is Deferred and chained is not None and other.grows and self.writeable:
            ufunc = chained(other)
            call = None if ufunc is None else chains.record(ufunc, [self.held[...], other.call])
            if _into(other, call, self.held):
                return self
        WRITES[0] += 1
        if chains.pending:
            chains.settle()
        kind = type(other)
        function(self.held, other.held if kind is SmallArray else other if kind in SINGLE else computed(other))
        return self

    return applied


def _alone(name: str, function: Callable[[Any], Any]) -> Callable[[SmallArray], Any]:
    ufunc = {"__neg__": np.negative, "__abs__": np.absolute, "__invert__": np.invert}.get(name, np.positive)

    def applied(self: SmallArray) -> Any:
        x = self.held
        if chains.may_begin(x) and (place := chains.stands_alone(sys._getframe(1))) is not None:
            made = deferred(ufunc, (self,), None, place)
            if made is not None:
                return made
        return small(function(x)) if _fits(x, None) else getattr(Array, name)(self.lazily())

    return applied


def _deferring(name: str, forward: str) -> Callable[..., Any]:
    """An operator of what is deferred: one more call; or, at once, that of its value. forward: its name without `r`."""
    at_once = getattr(SmallArray, name)

    def applied(self: Deferred, *other: Any) -> Any:
        if self.grows:
            items = (self, *other) if forward == name else (*other, self)
            made = deferred(CHAINED[forward](items[-1]) if other else ALONE[name], items)
            if made is not None:
                return made
        self.held  # noqa: B018 - which computes it
        return at_once(self, *other)

    return applied


def cube(x: Any, _: Any) -> Any:
    """x ** 3 by two products: NumPy's powers take many times as long."""
    return x * x * x if x.dtype.kind in "iuf" else x**3


def _power(exponent: Any) -> Callable[..., Any] | None:
    """What NumPy's operator computes: simpler functions for some exponents. Not of arrays of exponents, of which a
    single one may be an error."""
    if type(exponent) not in SINGLE:
        return None
    return cube if type(exponent) is int and exponent == 3 else operator.pow


def _always(ufunc: np.ufunc, _: Any) -> np.ufunc:
    return ufunc


ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift"
COMPARISONS = "lt le gt ge eq ne"
ALONE: dict[str, Any] = {
    "__neg__": np.negative, "__pos__": np.positive, "__abs__": np.absolute, "__invert__": np.invert,
}  # fmt: skip
_UFUNCS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
    "rshift": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
CHAINED: dict[str, Callable[[Any], Callable[..., Any] | None]] = {
    **{f"__{name}__": partial(_always, ufunc) for name, ufunc in _UFUNCS.items()}, "__pow__": _power,
}  # fmt: skip
"""By operator, what gives the function of a chain for the second operand."""
for _name in ARITHMETIC.split():
    _bare = _name.rstrip("_")
    setattr(InPython, f"__{_bare}__", _forward(f"__{_bare}__", getattr(operator, _name)))
    setattr(InPython, f"__r{_bare}__", _reflected(f"__r{_bare}__", getattr(operator, _name)))
    setattr(InPython, f"__i{_bare}__", _in_place(f"__i{_bare}__", getattr(operator, f"i{_bare}")))
    if _bare != "matmul":
        setattr(Deferred, f"__{_bare}__", _deferring(f"__{_bare}__", f"__{_bare}__"))
        setattr(Deferred, f"__r{_bare}__", _deferring(f"__r{_bare}__", f"__{_bare}__"))
for _name in COMPARISONS.split():
    setattr(InPython, f"__{_name}__", _forward(f"__{_name}__", getattr(operator, _name)))
    setattr(Deferred, f"__{_name}__", _deferring(f"__{_name}__", f"__{_name}__"))
for _name in ALONE:
    setattr(InPython, _name, _alone(_name, getattr(operator, _name)))
    setattr(Deferred, _name, _deferring(_name, _name))
setattr(InPython, "__divmod__", _forward("__divmod__", divmod))  # noqa: B010 - as the others
setattr(InPython, "__rdivmod__", _reflected("__rdivmod__", divmod))  # noqa: B010
IN_PYTHON = dict(vars(InPython))
"""What `small.c` asks, by name, where a call is not as simple as it takes."""
if NATIVE is not None:
    NATIVE.bind(SmallArray, NUMBERS, ours, IN_PYTHON, chains.pending, WRITES, BORDER.limits)
