"""NumPy's functions on small arrays: computed at once by NumPy itself, under the names of `girih.array`.

Every function here that NumPy has too is asked twice: if all that it is given is small, and what it makes is small,
it is NumPy's function, called now (`girih.array.core.small`); else it is girih's, which grows a graph. What a function
makes is at most the broadcast shape of its arguments, but for those of `MADE`, of which the table says how many bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial, update_wrapper, wraps
from importlib import import_module
from sys import getrefcount
from types import MethodType, ModuleType
from typing import Any

import numpy as np

from girih.array.core import chains
from girih.array.core.array import Array
from girih.array.core.builder import from_memory
from girih.array.core.memory import keep_freed
from girih.array.core.small import (
    BORDER,
    LATER,
    NATIVE,
    PLAIN,
    SINGLE,
    Deferred,
    SmallArray,
    computed,
    deferred,
    known,
    now,
    only_numpy,
    ours,
    product_bytes,
    small,
    taken,
    wrote,
)  # fmt: skip
from girih.array.core.universal import UniversalFunction
from girih.array.functions import whole
from girih.array.functions.elementwise.information import check_device

Function = Callable[..., Any]

# ------------------------------------------------------------------------------------------- bytes of results


def _sized(at: int, name: str = "shape") -> Function:
    """The bytes of an array whose shape is an argument."""

    def count(*items: Any, dtype: Any = float, **options: Any) -> float:
        shape = items[at] if len(items) > at else options.get(name, ())
        return float(_product(shape) * np.dtype(dtype).itemsize)

    return count


def _product(shape: Any) -> float:
    return math.prod(map(float, shape)) if isinstance(shape, (tuple, list)) else float(shape)


def _arange(*items: Any, **options: Any) -> float:
    start, stop, step = (options.get(name) for name in ("start", "stop", "step"))
    first, *rest = (*items, *(item for item in (start, stop, step) if item is not None))
    first, last = (0, first) if not rest else (first, rest[0])
    return 8 * abs(float(last - first) / float(rest[1] if len(rest) > 1 and rest[1] else 1))


def _spaced(*items: Any, **options: Any) -> float:
    count = items[2] if len(items) > 2 else options.get("num", 50)
    return 8.0 * float(count) * max(1, *map(np.size, items[:2]))


def _square(*items: Any, **options: Any) -> float:
    """Of `eye(N, M)` and others with one or two sizes."""
    rows = items[0] if items else options.get("N", options.get("n", 0))
    columns = items[1] if len(items) > 1 and items[1] is not None else options.get("M", rows)
    return 8 * float(rows) * float(columns)


def _times(x: Any, many: Any = 1, *_: Any, **options: Any) -> float:
    """Of `repeat` and `tile`: the array as often as an argument says."""
    many = options.get("repeats", options.get("reps", many))
    many = float(np.max(many, initial=0)) if np.ndim(many) else float(many)
    return float(np.asarray(x).nbytes) * many


def _tiled(x: Any, many: Any = 1, **options: Any) -> float:
    return float(np.asarray(x).nbytes) * _product(options.get("reps", many))


def _padded(x: Any, width: Any = 0, *_: Any, **options: Any) -> float:
    widest = 2 * float(np.max(np.asarray(options.get("pad_width", width), float), initial=0))
    x = np.asarray(x)
    return math.prod(size + widest for size in x.shape) * x.itemsize


def _all_pairs(*items: Any, **_: Any) -> float:
    """Of `outer`, `kron`, `convolve`, and of others that are counted by their work: each element with each."""
    return 8 * math.prod(float(np.size(item)) for item in items if isinstance(item, (np.ndarray, list, tuple)))


def _slid(x: Any, y: Any, *_: Any, **options: Any) -> float:
    """Of `convolve` and `correlate`: the result, and as many bytes as there are products, of which ten go through the
    processor in the time of one element that comes from memory."""
    sizes = float(np.size(options.get("a", x))), float(np.size(options.get("v", y)))
    return max(8 * sum(sizes), math.prod(sizes))


def _tensordot(a: Any, b: Any, axes: Any = 2, **_: Any) -> float:
    """Of a matrix product: BLAS does the work in less time than that of so many bytes."""
    a, b = np.asarray(a), np.asarray(b)
    if isinstance(axes, (int, np.integer)):
        along = list(range(a.ndim - int(axes), a.ndim))
    else:
        along = np.ravel(axes[0]).tolist()
    joined = math.prod(float(a.shape[axis]) for axis in along) or 1.0
    return max(float(a.nbytes), float(b.nbytes), max(a.itemsize, b.itemsize) * (a.size / joined) * (b.size / joined))


def _contracted(x: Any, y: Any = None, *_: Any, **options: Any) -> float:
    x, y = np.asarray(x), np.asarray(options.get("b", options.get("x2", y)))
    return float(product_bytes(x, y))


def _einsum(*items: Any, **_: Any) -> float:
    text = items[0]
    if not isinstance(text, str) or "." in text:
        return _all_pairs(*items)
    inputs, _arrow, output = text.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for letters, x in zip(inputs.split(","), items[1:], strict=False):
        sizes |= dict(zip(letters, np.shape(x), strict=False))
    letters = output if _arrow else "".join(one for one in sizes if inputs.count(one) == 1)
    work = math.prod(sizes.values())  # without `optimize` NumPy goes through all of it
    return max(8.0 * math.prod(sizes.get(one, 1) for one in letters), float(work))


def _grid(*items: Any, **options: Any) -> float:
    return len(items) * _all_pairs(*items) if not options.get("sparse") else 0.0


def _diagonal(v: Any, k: Any = 0, **_: Any) -> float:
    v = np.asarray(v)
    return float(v.itemsize) * (v.size + abs(float(k))) ** 2 if v.ndim == 1 else float(v.nbytes)


def _counted(*_: Any, minlength: int = 0, **_options: Any) -> float:
    """Of `bincount`: the largest number is not looked for, which takes as long as a third of the counting."""
    return 8.0 * float(minlength)


def _taken(a: Any, indices: Any = 0, axis: Any = None, *_: Any, **options: Any) -> float:
    a, picks = np.asarray(a), np.size(options.get("indices", indices))
    axis = options.get("axis", axis)
    rows = a.size if axis is None or not -a.ndim <= axis < a.ndim else a.shape[axis]
    return float(picks * a.nbytes / max(rows, 1))


def _factors(a: Any, *_: Any, **_options: Any) -> float:
    a = np.asarray(a)
    return float(a.itemsize) * math.prod(a.shape[:-2]) * max(a.shape[-2:], default=1) ** 2


def _covariance(m: Any, *_: Any, **_options: Any) -> float:
    return 8.0 * float(max(np.shape(m), default=1) if np.ndim(m) > 1 else 1) ** 2


def _binned(x: Any, bins: Any = 10, *_: Any, **options: Any) -> float:
    bins = options.get("bins", bins)
    return 8.0 * float(bins) if isinstance(bins, (int, np.integer)) else 0.0


def _transformed(a: Any, n: Any = None, *_: Any, **options: Any) -> float:
    n, a = options.get("n", n), np.asarray(a)
    return 16.0 * a.size * (1 if n is None else float(n) / max(1, min(a.shape, default=1)))


MADE: dict[str, Function] = {
    **dict.fromkeys(("zeros", "ones", "empty"), _sized(0)), "full": _sized(0), "indices": _sized(0, "dimensions"),
    "fromfunction": _sized(1), "resize": _sized(1, "new_shape"), "arange": _arange, "linspace": _spaced,
    "logspace": _spaced, "geomspace": _spaced, "eye": _square, "identity": _square, "tri": _square, "repeat": _times,
    "tile": _tiled, "pad": _padded, "outer": _all_pairs, "kron": _all_pairs, "convolve": _slid,
    "correlate": _slid, "tensordot": _tensordot, "einsum": _einsum, "dot": _contracted, "inner": _contracted,
    "matmul": _contracted, "vdot": _contracted, "meshgrid": _grid, "diag": _diagonal, "diagflat": _diagonal,
    "bincount": _counted, "take": _taken, "svd": _factors, "qr": _factors, "cov": _covariance,
    "corrcoef": _covariance, "histogram": _binned, "histogram_bin_edges": _binned, "vander": _all_pairs,
    **dict.fromkeys(("fftfreq", "rfftfreq"), lambda n, *_, **__: 8.0 * n),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"), _transformed),
}  # fmt: skip
"""By name: the bytes of what a function makes of its arguments, at most, or of the work that it is."""
ALIKE, BRIEF, PAIRS, SHAPE, SQUARE, RANGE = range(6)
"""What `small.c` knows of how much functions make, in its words."""
OF_PAIRS: tuple[Function, ...] = (_all_pairs, _contracted, _slid, _tensordot)
"""What makes at most a number of each element with each."""
FREE = frozenset(("broadcast_to", "broadcast_arrays", "sliding_window_view", "may_share_memory", "shares_memory"))
"""What makes nothing, however large it is."""
OTHERS: dict[str, Function] = {"unique_values": partial(np.unique, equal_nan=False)}
"""What answers in the place of NumPy's function of the name: ours sorts, as NumPy's did."""
AS_THEY_ARE = frozenset(
    """
    load save savez savez_compressed savetxt loadtxt genfromtxt fromfile frombuffer fromregex fromiter fromstring
    vectorize poly1d result_type can_cast promote_types isdtype issubdtype min_scalar_type broadcast_shapes einsum_path
    printoptions set_printoptions get_printoptions errstate seterr geterr seterrcall geterrcall setbufsize getbufsize
    base_repr binary_repr format_float_positional format_float_scientific typename mintypecode ndindex iterable
    finfo iinfo dtype isscalar
    """.split()  # noqa: SIM905
)
"""What stays girih's alone: files, dtypes, settings."""

# ------------------------------------------------------------------------------------------- chains

ROW_BY_ROW = frozenset("where clip astype round around isclose nan_to_num".split())  # noqa: SIM905
"""What does the same with each row, as universal functions do."""
ALONG = frozenset(
    "sum mean max min amax amin all any prod std var argmax argmin cumsum cumprod sort argsort median ptp".split()  # noqa: SIM905
)
"""What does so along another axis than the first."""
ENDS: dict[str, Any] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "amax": np.maximum, "amin": np.minimum,
    "all": np.logical_and, "any": np.logical_or, "prod": np.multiply, "mean": np.add,
}  # fmt: skip
"""What ends a chain: the universal function by which results of blocks become one."""


RANDOM = 1 / 16
"""A mask that changes as often, from one element to the next, is none that the processor foresees."""


def chosen(mask: Any, x: Any, y: Any, out: Any = None) -> Any:
    """NumPy's `where`, of a block: by copies of what lies side by side, or by arithmetic on bits where the processor
    would not foresee NumPy's branches."""
    if out is None:
        return np.where(mask, x, y)
    shares = any(np.may_share_memory(out, item) for item in (mask, x, y))
    if shares or mask.dtype != bool or mask.shape != out.shape:
        out[...] = np.where(mask, x, y)
        return out
    x, y = (np.asarray(item).astype(out.dtype, copy=False) for item in (x, y))  # numbers wrap around, as NumPy's do
    line = mask.reshape(-1)
    if out.dtype.itemsize != 8 or np.count_nonzero(line[1:] != line[:-1]) < RANDOM * line.size:
        np.copyto(out, y)
        np.copyto(out, x, where=mask)
        return out
    first, second = x.view(np.int64), y.view(np.int64)
    keep, bits = np.negative(mask.view(np.int8), dtype=np.int64), out.view(np.int64)  # all bits or none
    np.bitwise_xor(first, second, out=bits)
    np.bitwise_and(bits, keep, out=bits)
    np.bitwise_xor(bits, second, out=bits)
    return out


chains.INTO.add(chosen)


def chained(function: Any, name: str, items: tuple[Any, ...], options: dict[str, Any]) -> Deferred | None:
    """The call as a part of a chain; None where it is to be made at once."""
    if isinstance(function, np.ufunc):
        one = function.nout == 1 and function.signature is None and not options and function is not np.power
        return deferred(function, items) if one and len(items) == function.nin else None
    x = items[0] if items else None
    if name == "where":
        if len(items) != 3 or options:
            return None
        waits = any(type(item) is Deferred for item in items)  # else it is one pass over all
        return deferred(chosen if waits else np.where, items)
    if type(x) is not Deferred or not x.grows:
        return None  # what NumPy does in one pass as well
    if name == "astype":
        if len(items) != 2 or options or x.dtype.kind == "c" or np.dtype(items[1]).kind not in "biufc":
            return None
        return deferred(lambda block: block.astype(items[1]), items[:1])
    axis = options.get("axis", items[1] if len(items) > 1 else None)
    if name not in ALONG or len(items) > 2 or not {"axis", "keepdims", "ddof"}.issuperset(options):
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    if not all(type(one) is int and -x.ndim <= one < x.ndim for one in axes if axis is not None):
        return None
    numpys: Any = getattr(np, name)
    if axis is not None and all(one % x.ndim for one in axes):
        keeps = name in ("cumsum", "cumprod", "sort", "argsort")
        return (
            None
            if keeps and options.keys() - {"axis"}
            else deferred(partial(numpys, **{**options, "axis": axis}), (x,))
        )
    if name not in ENDS or "ddof" in options or x.dtype.char == "e":
        return None
    ufunc = ENDS[name]
    if name == "mean":
        count = x.size if axis is None else math.prod(x.shape[one] for one in axes)
        kind = np.float64 if x.dtype.kind in "biu" else x.dtype
        return deferred(partial(np.add.reduce, **{**options, "axis": axis, "dtype": kind}), (x,), partial(_mean, count))
    return deferred(partial(ufunc.reduce, **{**options, "axis": axis}), (x,), partial(_joined, ufunc))


def _joined(ufunc: Any, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else ufunc.reduce(np.stack(parts), axis=0)


def _mean(count: int, parts: list[Any]) -> Any:
    total = _joined(np.add, parts)
    return total / total.dtype.type(count)


# ------------------------------------------------------------------------------------------- functions

WRITING = frozenset((*whole.WRITING.split(), "copyto", "fill_diagonal"))
"""Functions that write into their first argument."""
COPIES = frozenset(("array", "asarray", "asanyarray", "from_dlpack"))
JOINS = frozenset("concatenate concat stack vstack hstack dstack column_stack append block array asarray".split())  # noqa: SIM905
"""What makes as many bytes as its arguments have together."""
ALONE = frozenset(("reshape", "transpose", "ravel", "flatten", "take", "repeat", "searchsorted", "compress"))
"""Methods whose arguments do not broadcast with the array."""


def call(
    function: Function, lazy: Function, items: tuple[Any, ...], options: dict[str, Any], name: str,
    estimate: Function | None = None,
) -> Any:  # fmt: skip
    """NumPy's function, if all is small, else ours. estimate: of the bytes that are made, where they may be more than
    those of the broadcast arguments."""
    given = taken(items, name in JOINS)
    more = _options(options, name, items) if options else options
    if given is None or more is None:
        return large(lazy, items, options)
    plain, count = given
    if count >= BORDER.quick:
        made = chained(function, name, items, more)
        if made is not None:
            return made
        plain = now(plain)
    if estimate is not None:
        try:
            count = max(count, estimate(*plain, **more))
        except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
            return large(lazy, items, options)  # arguments that girih refuses
    if count >= BORDER.tiny:
        keep_freed()
    if name in COPIES and not count:  # of lists: how much it is, and of which dtype, NumPy tells
        return own(function(*plain, **more))
    if count >= BORDER.bytes and name not in FREE and not only_numpy(plain):
        return large(lazy, items, options)
    if "out" in more:
        wrote()
    try:
        result = function(*plain, **more)
    except TypeError as error:
        if "unexpected keyword argument" in str(error) or "positional argument" in str(error):
            return large(lazy, items, options)  # an option that girih has, and NumPy has not
        raise
    theirs = [item for item in items if type(item) is np.ndarray]
    return ours(_apart(result, theirs) if theirs else result, (*items, *options.values()) if options else items)


def own(made: np.ndarray) -> Array:
    """NumPy's array, which nobody else has, as one of ours: nothing is copied."""
    if made.nbytes >= BORDER.tiny:
        keep_freed()
    if made.nbytes < BORDER.bytes or only_numpy((made,)):
        return ours(made)  # type: ignore[no-any-return]
    return from_memory(made, copy=False)


def _references(*items: Any) -> int:
    return getrefcount(items[0])


def _of_temporary() -> int:
    """How often a function's argument is referred to where the caller has no name for it; 0 where it cannot be told."""
    references = _references if NATIVE is None else NATIVE.Function(None, _references, PAIRS)  # as `asarray` is
    named = object()
    alone = references(object())
    return alone if alone < references(named) else 0


_TEMPORARY = _of_temporary()


def _apart(result: Any, theirs: list[np.ndarray]) -> Any:
    """What NumPy gives back, or shows, of the user's own arrays is copied: later writes to them are not seen."""
    if isinstance(result, np.ndarray):
        return result.copy() if any(np.may_share_memory(result, item) for item in theirs) else result
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_apart(part, theirs) for part in result))
    return type(result)(_apart(part, theirs) for part in result) if type(result) in (tuple, list) else result


def _options(options: dict[str, Any], name: str, items: tuple[Any, ...]) -> dict[str, Any] | None:
    """The options that NumPy takes; None where girih must look at them."""
    more = {key: item if type(item) in PLAIN else known(item) for key, item in options.items()}
    if any(item is LATER for item in more.values()):
        return None
    if more.get("out") is not None:
        outs = options["out"] if isinstance(options["out"], tuple) else (options["out"],)
        if not all(item is None or isinstance(item, SmallArray) for item in outs):
            return None  # into what is not ours
    if "device" in more:
        check_device(more.pop("device"))
    if more.get("copy") is False and name in COPIES and not isinstance(items[0] if items else None, SmallArray):
        return None  # the user's own memory is never shared
    return more


def large(lazy: Function, items: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Our function, of arrays of a graph; `out` stays what it is, to be written to."""
    more = {name: item if name == "out" else _lazily(item) for name, item in options.items()}
    return lazy(*map(_lazily, items), **more)


def _lazily(item: Any) -> Any:
    if isinstance(item, SmallArray):
        return item.lazily()
    if type(item) in (list, tuple):
        return type(item)(map(_lazily, item))
    return item


def written(function: Function, lazy: Function, items: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A function that writes into its first argument."""
    if not items or not isinstance(items[0], SmallArray):
        return large(lazy, items, options)
    wrote()
    return function(*map(computed, items), **{key: computed(item) for key, item in options.items()})


ASKED = {
    **dict.fromkeys(("zeros", "ones", "empty", "full"), SHAPE), **dict.fromkeys(("eye", "identity"), SQUARE),
    "arange": RANGE,
}  # fmt: skip


def _rule(name: str) -> int | None:
    """How `small.c` bounds what a function makes; None: it does not."""
    estimate = MADE.get(name)
    if name in ASKED:
        return ASKED[name]
    if name == "where":
        return BRIEF
    if estimate in OF_PAIRS or name in JOINS:
        return PAIRS
    return ALIKE if estimate is None else None


def answered(name: str, function: Function, lazy: Function, space: str) -> Function:
    """A function of ours that NumPy answers where all is small. name: NumPy's of the function, by which tables go.
    space: the module that has it."""

    @wraps(lazy)
    def either(*items: Any, **options: Any) -> Any:
        return call(function, lazy, items, options, name, MADE.get(name))

    @wraps(lazy)
    def of_list(*items: Any, **options: Any) -> Any:
        alone = name == "asarray" and len(items) == 1 and not options and type(items[0]) is np.ndarray
        if alone and getrefcount(items[0]) <= _TEMPORARY and items[0].flags.owndata:
            return own(items[0])  # nobody else has it, who could write to it later
        return call(function, lazy, items, options, name)

    @wraps(lazy)
    def into(*items: Any, **options: Any) -> Any:
        return written(function, lazy, items, options)

    rule = None if name in WRITING else _rule(name)
    in_python = into if name in WRITING else of_list if name in ("array", "asarray") else either
    return in_python if NATIVE is None or rule is None else _quick(NATIVE.Function(function, in_python, rule), space)


def _quick(function: Any, space: str) -> Function:
    """A function of `small.c`, with the names of what it asks in Python."""
    update_wrapper(function, function.in_python.__wrapped__)
    function.found = (_found, (space, function.__name__))
    return function  # type: ignore[no-any-return]


def _found(space: str, name: str) -> Any:
    """What was pickled by its name."""
    return getattr(sys.modules.get(space) or import_module(space), name)


class SmallOrLarge(*(() if NATIVE is None else (NATIVE.Function,)), UniversalFunction):  # type: ignore[misc]
    """A universal function that NumPy's answers where all is small."""

    def __init__(self, lazy: UniversalFunction) -> None:
        if NATIVE is not None:
            NATIVE.Function.__init__(self, lazy.ufunc, self.in_python, BRIEF, lazy.nin)
        self.__dict__.update(vars(lazy))
        self._lazy = lazy
        self.found = (_found, ("girih.array", self.__name__))

    def in_python(self, *items: Any, **options: Any) -> Any:
        if len(items) == self.nin and not options and type(items[0]) is SmallArray:  # as nearly always
            x, y = items[0].held, items[-1]
            place = None
            if not chains.may_begin(x) or (
                x.nbytes < BORDER.bytes and (place := chains.stands_alone(sys._getframe(1))) is None
            ):
                if self.nin == 1:
                    return ours(self.ufunc(x))
                if self.nin == 2 and type(y) is SmallArray and y.held.shape == x.shape and y.nbytes < BORDER.bytes:
                    return ours(self.ufunc(x, y.held))
                if self.nin == 2 and type(y) in SINGLE:
                    return ours(self.ufunc(x, y))
            elif place is not None and self.nout == 1 and self.ufunc is not np.power and self.ufunc.signature is None:
                made = deferred(self.ufunc, items, None, place)
                if made is not None:
                    return made
        if (
            self.nin < len(items) <= self.nin + self.nout and "out" not in options
        ):  # as NumPy's, which takes them by position too
            items, options = items[: self.nin], {**options, "out": items[self.nin :]}
        return call(self.ufunc, self._lazy, items, options, self.__name__)

    __repr__ = UniversalFunction.__repr__
    if NATIVE is None:
        __call__ = in_python


def _ufunc_method(name: str, lazy: Function) -> Any:
    estimate = _all_pairs if name == "outer" else None

    @wraps(lazy)
    def method(self: SmallOrLarge, *items: Any, **options: Any) -> Any:
        function = getattr(self.ufunc, name)
        ours_of = partial(lazy, self)
        if name == "at":
            return written(function, ours_of, items, options)
        return call(function, ours_of, items, options, name, estimate)

    return method if NATIVE is None or name == "at" else _QuickMethod(name, method)


class _QuickMethod:
    """A method of universal functions that `small.c` answers: made for each of them when it is asked for first."""

    def __init__(self, name: str, in_python: Function) -> None:
        self._name = name
        self._in_python = in_python
        self.__doc__ = in_python.__doc__

    def __get__(self, of: SmallOrLarge | None, kind: type) -> Any:
        if of is None:
            return self._in_python
        assert NATIVE is not None
        rule = PAIRS if self._name == "outer" else ALIKE
        quick = NATIVE.Function(getattr(of.ufunc, self._name), MethodType(self._in_python, of), rule)
        quick.__name__, quick.__doc__, quick.found = self._name, self.__doc__, (getattr, (of, self._name))
        of.__dict__[self._name] = quick  # where it is looked for before here
        return quick


# ------------------------------------------------------------------------------------------- methods


def _method(name: str, lazy: Function) -> Function:
    """A method of small arrays."""
    estimate = MADE.get(name)
    numpys = getattr(np.ndarray, name, None)

    def method(self: SmallArray, *items: Any, **options: Any) -> Any:
        if type(self) is Deferred and self.grows:
            made = chained(name, name, (self, *items), options)
            if made is not None:
                return made
        x = self.held
        if not items and not options and x.nbytes < BORDER.bytes:
            result = getattr(x, name)()
            return small(result) if type(result) is np.ndarray else ours(result, (self,))
        if name in ALONE and x.nbytes < BORDER.bytes and estimate is None and not options:
            given = taken(items)
            if given is not None:
                return ours(getattr(x, name)(*now(given[0])), (self, *items))
        return call(_bound(name), lazy, (self, *items), options, name, estimate)

    def writes(self: SmallArray, *items: Any, **options: Any) -> None:
        wrote()
        if not self.scalar:  # of which NumPy writes a copy
            getattr(self.held, name)(*map(computed, items), **{key: computed(item) for key, item in options.items()})

    if numpys is not None and name in WRITERS:
        return writes
    rule = _rule(name)
    if NATIVE is None or numpys is None or rule not in (ALIKE, PAIRS):
        return method
    return NATIVE.Method(numpys, method, rule)  # type: ignore[no-any-return]


@cache
def _bound(name: str) -> Function:
    return lambda x, *items, **options: getattr(x, name)(*items, **options)


WRITERS = frozenset(("fill", "sort", "partition", "put"))
"""Methods that write into the array."""


def _attribute(name: str) -> property:
    def read(x: SmallArray) -> Any:
        return ours(getattr(x.held, name), (x,))

    if name == "mT":
        return property(lambda x: small(x.held.mT))

    def write(x: SmallArray, value: Any) -> None:
        wrote()
        setattr(x.held, name, computed(value))

    return property(read, write if name in ("real", "imag") else None)


class Flat:
    """x.flat of a small array: NumPy's."""

    def __init__(self, x: SmallArray) -> None:
        self._flat = x.held.flat

    def __len__(self) -> int:
        return len(self._flat)

    def __iter__(self) -> Any:
        return iter(self._flat)

    def __getitem__(self, key: Any) -> Any:
        return ours(self._flat[computed(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        wrote()
        self._flat[computed(key)] = computed(value)


def _set_flat(x: SmallArray, value: Any) -> None:
    wrote()
    x.held.flat = computed(value)


# ------------------------------------------------------------------------------------------- attached


def attach(
    spaces: Mapping[ModuleType, ModuleType], methods: Mapping[str, Function], of_ufuncs: Mapping[str, Function]
) -> None:
    """Let NumPy answer for what is small: the functions of modules, the methods of small arrays and of universal
    functions. spaces: NumPy's module for each of ours."""
    for space, numpys in spaces.items():
        for name, lazy in list(vars(space).items()):
            function = getattr(numpys, name, None)
            if name.startswith("_") or name in AS_THEY_ARE or not callable(function) or not callable(lazy):
                continue
            if lazy is function or isinstance(lazy, type) or isinstance(function, type):
                continue
            if isinstance(lazy, UniversalFunction):
                setattr(space, name, SmallOrLarge(lazy))
            elif getattr(lazy, "__module__", "").startswith("girih"):
                setattr(space, name, answered(function.__name__, OTHERS.get(name, function), lazy, space.__name__))
    for name, lazy in of_ufuncs.items():
        setattr(SmallOrLarge, name, _ufunc_method(name, lazy))
    for name, lazy in methods.items():
        setattr(SmallArray, name, _method(name, lazy))
    for name in ("mT", "real", "imag"):
        setattr(SmallArray, name, _attribute(name))
    SmallArray.flat = property(Flat, _set_flat)  # type: ignore[attr-defined]
