"""NumPy's functions on small arrays: computed at once by NumPy itself, under the names of `girih.array`.

Every function here that NumPy has too is asked twice: if all that it is given is small, and what it makes is small,
it is NumPy's function, called now (`girih.array.core.small`); else it is girih's, which grows a graph. What a function
makes is at most the broadcast shape of its arguments, but for those of `MADE`, of which the table says how many bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from girih.array.core import small
from girih.array.core.small import BORDER, LATER, SmallArray, at_once, computed, is_small, known, ours, product_bytes
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


def _counted(x: Any, *_: Any, minlength: int = 0, **_options: Any) -> float:
    x = np.asarray(x)
    return 8.0 * max(float(minlength), float(x.max()) if x.size and x.dtype.kind in "iu" else 0)


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
    n, a = options.get("n", options.get("s", n)), np.asarray(a)
    return 16.0 * a.size * (1 if n is None else _product(n))


MADE: dict[str, Function] = {
    **dict.fromkeys(("zeros", "ones", "empty"), _sized(0)), "full": _sized(0), "indices": _sized(0, "dimensions"),
    "fromfunction": _sized(1), "resize": _sized(1, "new_shape"), "arange": _arange, "linspace": _spaced,
    "logspace": _spaced, "geomspace": _spaced, "eye": _square, "identity": _square, "tri": _square, "repeat": _times,
    "tile": _tiled, "pad": _padded, "outer": _all_pairs, "kron": _all_pairs, "convolve": _all_pairs,
    "correlate": _all_pairs, "tensordot": _all_pairs, "einsum": _einsum, "dot": _contracted, "inner": _contracted,
    "matmul": _contracted, "vdot": _contracted, "meshgrid": _grid, "diag": _diagonal, "diagflat": _diagonal,
    "bincount": _counted, "take": _taken, "svd": _factors, "qr": _factors, "cov": _covariance,
    "corrcoef": _covariance, "histogram": _binned, "histogram_bin_edges": _binned, "vander": _all_pairs,
    **dict.fromkeys(("fftfreq", "rfftfreq"), lambda n, *_, **__: 8.0 * n),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"), _transformed),
}  # fmt: skip
"""By name: the bytes of what a function makes of its arguments, at most, or of the work that it is."""
LOOKS = frozenset(
    """
    asarray asanyarray ascontiguousarray array from_dlpack reshape ravel transpose permute_dims matrix_transpose squeeze
    expand_dims swapaxes moveaxis rollaxis flip fliplr flipud rot90 diagonal diag real imag atleast_1d atleast_2d
    atleast_3d broadcast_to broadcast_arrays split array_split hsplit vsplit dsplit unstack sliding_window_view
    real_if_close astype nan_to_num trim_zeros
    """.split()  # noqa: SIM905 - as elsewhere
)
"""What NumPy may answer by a view: of small arrays of ours it is one, which makes nothing; the user's own arrays are
copied before."""
FREE = frozenset(("broadcast_to", "broadcast_arrays", "sliding_window_view", "may_share_memory", "shares_memory"))
"""What makes nothing, however large it is."""
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

# ------------------------------------------------------------------------------------------- functions


def call(function: Function, lazy: Function, items: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """NumPy's function, if all is small, else ours."""
    result = _attempt(function, items, options)
    if result is not LATER:
        return result
    writes = function.__name__ in WRITING
    first = items[:1] if writes else ()
    given = (*first, *(_lazily(item) for item in items[len(first) :]))
    return lazy(*given, **{name: item if name == "out" else _lazily(item) for name, item in options.items()})


def _attempt(function: Function, items: tuple[Any, ...], options: dict[str, Any]) -> Any:
    name = function.__name__
    writes = name in WRITING
    if writes and items and type(items[0]) is SmallArray:
        return ours(
            function(items[0].held, *map(computed, items[1:]), **{key: computed(x) for key, x in options.items()})
        )
    plain, more = known(items), {key: known(item) for key, item in options.items()}
    if plain is LATER or any(item is LATER for item in more.values()):
        return LATER
    arrays = small.arrays_of((*plain, *more.values()))
    for item in plain:
        if type(item) in (list, tuple):
            arrays.extend(small.arrays_of(item))
    out = more.get("out")
    if more.get("copy") is False and name in COPIES and not any(type(item) is SmallArray for item in items):
        return LATER  # the user's own memory is never shared: girih says so
    if writes or (out is not None and type(options["out"]) is not SmallArray and not _of_held(options["out"])):
        return LATER  # into what is not ours: girih says so
    if "device" in more:
        check_device(more.pop("device"))
    if name not in FREE:
        joined = name in JOINS
        count = sum(x.nbytes for x in arrays) if joined else small.result_bytes(arrays)
        if name in MADE:
            try:
                count = max(count, MADE[name](*plain, **more))
            except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
                return LATER  # arguments that girih refuses
        if not is_small(count, arrays):
            return LATER
    if name in LOOKS:
        plain = tuple(np.array(item) if type(item) is np.ndarray and type(before) is not SmallArray else item
                      for item, before in zip(plain, items, strict=True))  # fmt: skip
    try:
        result = function(*plain, **more)
    except TypeError as error:
        if "unexpected keyword argument" in str(error) or "positional argument" in str(error):
            return LATER  # an option that girih has, and NumPy has not
        raise
    return ours(result, (*items, *options.values()))


JOINS = frozenset("concatenate concat stack vstack hstack dstack column_stack append block array asarray".split())  # noqa: SIM905


WRITING = frozenset((*whole.WRITING.split(), "copyto", "fill_diagonal"))
"""Functions that write into their first argument."""
COPIES = frozenset(("array", "asarray", "asanyarray", "from_dlpack"))


def _of_held(out: Any) -> bool:
    return isinstance(out, tuple) and all(item is None or type(item) is SmallArray for item in out)


def _lazily(item: Any) -> Any:
    if type(item) is SmallArray:
        return item.lazily()
    if type(item) in (list, tuple):
        return type(item)(map(_lazily, item))
    return item


def answered(function: Function, lazy: Function) -> Function:
    """A function of ours that NumPy answers where all is small."""

    @wraps(lazy)
    def either(*items: Any, **options: Any) -> Any:
        return call(function, lazy, items, options)

    return either


class SmallOrLarge(UniversalFunction):
    """A universal function that NumPy's answers where all is small."""

    def __init__(self, lazy: UniversalFunction) -> None:
        self.__dict__.update(vars(lazy))
        self._lazy = lazy

    def __call__(self, *items: Any, **options: Any) -> Any:
        if not options:
            result = at_once(self.ufunc, items, options) if len(items) == self.nin else LATER
            if result is not LATER:
                return result
        return call(self.ufunc, self._lazy, items, options)


def _ufunc_method(name: str, lazy: Function) -> Function:
    def method(self: UniversalFunction, *items: Any, **options: Any) -> Any:
        function = getattr(self.ufunc, name)
        if name == "at" and items and type(items[0]) is SmallArray:
            function(items[0].held, *map(computed, items[1:]))
            return None
        result = LATER
        if isinstance(self, SmallOrLarge) and items and name != "at":
            plain, more = known(items), {key: known(item) for key, item in options.items()}
            fits = plain is not LATER and not any(item is LATER for item in more.values())
            out = options.get("out")
            if fits and (out is None or type(out) is SmallArray or _of_held(out)):
                arrays = small.arrays_of(plain)
                count = _all_pairs(*plain) if name == "outer" else small.result_bytes(arrays[:1])
                if name == "reduceat":
                    count = small.result_bytes(arrays[:1])
                if is_small(count, arrays):
                    result = ours(function(*plain, **more), (*items, *options.values()))
        if result is not LATER:
            return result
        return lazy(self, *(_lazily(item) for item in items),
                    **{key: item if key == "out" else _lazily(item) for key, item in options.items()})  # fmt: skip

    return method


# ------------------------------------------------------------------------------------------- methods


def _method(name: str, lazy: Function) -> Function:
    """A method of small arrays."""
    function = getattr(np, name, None)
    estimate = MADE.get(name)

    def method(self: SmallArray, *items: Any, **options: Any) -> Any:
        x = self.held
        if not items and not options and x.nbytes < BORDER.bytes and estimate is None:
            result = getattr(x, name)()
            return small.small(result) if type(result) is np.ndarray else ours(result, (self,))
        if name in WRITERS:
            if not self.scalar:
                getattr(x, name)(*map(computed, items), **{key: computed(item) for key, item in options.items()})
            return None
        plain, more = known(items), {key: known(item) for key, item in options.items()}
        out = options.get("out")
        fits = plain is not LATER and not any(item is LATER for item in more.values())
        if fits and (out is None or type(out) is SmallArray):
            arrays = small.arrays_of((x, *plain))
            count = small.result_bytes(arrays[:1] if name in ALONE else arrays)
            if estimate is not None and function is not None:
                count = max(count, estimate(x, *plain, **more))
            if is_small(count, arrays):
                more.pop("device", None)
                return ours(getattr(x, name)(*plain, **more), (self, *items, *options.values()))
        return lazy(self.lazily(), *(_lazily(item) for item in items),
                    **{key: item if key == "out" else _lazily(item) for key, item in options.items()})  # fmt: skip

    method.__name__ = name
    return method


WRITERS = frozenset(("fill", "sort", "partition", "put"))
ALONE = frozenset(("reshape", "transpose", "ravel", "flatten", "take", "repeat", "searchsorted", "compress"))
"""Methods whose arguments do not broadcast with the array."""


def _attribute(name: str) -> property:
    def read(x: SmallArray) -> Any:
        return ours(getattr(x.held, name), (x,))

    def write(x: SmallArray, value: Any) -> None:
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
        self._flat[computed(key)] = computed(value)


def _set_flat(x: SmallArray, value: Any) -> None:
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
                setattr(space, name, answered(function, lazy))
    for name, lazy in of_ufuncs.items():
        setattr(SmallOrLarge, name, _ufunc_method(name, lazy))
    for name, lazy in methods.items():
        setattr(SmallArray, name, _method(name, lazy))
    for name in ("T", "mT", "real", "imag"):
        setattr(SmallArray, name, _attribute(name))
    SmallArray.flat = property(Flat, _set_flat)  # type: ignore[attr-defined]
