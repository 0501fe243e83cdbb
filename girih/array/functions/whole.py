"""NumPy's functions that few call on large arrays: evaluated whole, with NumPy.

Such a function computes the arrays that it is given, calls NumPy's function of the same name in the caller's process,
and gives the arrays of its result back as girih arrays in memory. So values, dtypes, shapes, warnings and errors are
NumPy's by construction, and errors come with the call. The price: the arguments and the result must fit into the
caller's memory, and the workers do nothing meanwhile. Each docstring begins with `NOTE`, and `explain` of a result
names the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, from_memory
from girih.array.core.evaluation import BORDER
from girih.array.core.small import SmallArray, computed, only_numpy, wrote
from girih.array.core.small import ours as of_numpy

NOTE = "Evaluated whole, with NumPy."

NAMES = {
    "polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub roots vander",
    "windows": "bartlett blackman hamming hanning kaiser",
    "files and texts": "array2string array_repr array_str frombuffer fromfile fromiter fromregex fromstring genfromtxt "
    "loadtxt savetxt",
    "index arrays": "diag_indices ix_ mask_indices ravel_multi_index tril_indices triu_indices unravel_index",
    "parts and orders": "ediff1d insert packbits setxor1d sort_complex unpackbits unwrap",
    "functions of parts": "apply_along_axis apply_over_axes ndenumerate piecewise",
    "dates": "busday_count busday_offset datetime_as_string is_busday isnat",
    "numbers": "array_equiv asarray_chkfinite geomspace histogram2d histogramdd",
}
WRITING = "place put put_along_axis putmask"
"""What writes into its first argument."""
OF_TYPES = (
    "common_type diag_indices_from iscomplexobj isrealobj isscalar iterable ndim shape size tril_indices_from "
    "triu_indices_from"
)
"""What looks at shapes and dtypes only: nothing is computed, NumPy sees arrays of no memory in place of girih's."""


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function, evaluated whole: of girih arrays, also in lists, tuples and dictionaries."""
    name = f"{function.__module__ or 'numpy.random'}.{function.__name__}"

    def evaluated(*arguments: Any, **options: Any) -> Any:
        operands, more = plain(arguments), plain(options)
        before = (*arguments, *options.values())
        return _ours(function(*operands, **more), name, list(zip((*operands, *more.values()), before, strict=True)))

    return as_numpys(evaluated, function, NOTE)


def writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function that writes into its first argument, evaluated whole: of a copy, which is then assigned."""

    def evaluated(x: Any, *arguments: Any, **options: Any) -> None:
        if not isinstance(x, Array):
            raise TypeError(f"girih.array.{function.__name__} writes into girih arrays, not into {type(x).__name__}")
        content = plain(x)
        if not x.scalar:
            content.flags.writeable = x.writeable
        function(content, *plain(arguments), **plain(options))
        if not x.scalar:  # of which NumPy writes a copy
            x[...] = content

    return as_numpys(evaluated, function, NOTE)


def of_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function of shapes and dtypes."""

    def evaluated(*arguments: Any, **options: Any) -> Any:
        operands, more = plain(arguments, _type_of), plain(options, _type_of)
        return _ours(function(*operands, **more), function.__name__, ())

    return as_numpys(evaluated, function, "Of shapes and dtypes alone: computes nothing.")


def plain(item: Any, of_array: Callable[[Array], Any] | None = None) -> Any:
    """What NumPy takes: girih arrays computed (or what `of_array` makes of them), also in lists and dictionaries.

    Raises:
        TypeError: a sparse matrix.
    """
    if isinstance(item, Array) or hasattr(item, "tocsr"):
        x = as_array(item)
        return of_array(x) if of_array else x.compute()[()] if x.scalar else x.compute()
    if isinstance(item, dict):
        return {key: plain(part, of_array) for key, part in item.items()}
    if isinstance(item, (tuple, list)):
        return (list if type(item) is list else tuple)(plain(part, of_array) for part in item)
    return item


def _type_of(x: Array) -> np.ndarray:
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def _ours(result: Any, name: str, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """NumPy's arrays and scalars in a result as girih arrays.

    pairs: what NumPy was called with, and what that was before. An array that NumPy gives back as it is stays what it
    was; what shows a part of one is read-only: writing to it would not be seen there.
    """
    if type(result) in (tuple, list):
        return type(result)(_ours(part, name, pairs) for part in result)
    if isinstance(result, np.generic):
        return as_array(result).as_scalar()
    if not isinstance(result, np.ndarray):
        return result
    same = [as_array(before) for item, before in pairs if item is result]
    if same:
        return same[0]
    if result.nbytes < BORDER.bytes or only_numpy((result,)):
        shown = any(isinstance(item, np.ndarray) and np.may_share_memory(item, result) for item, _ in pairs)
        result = result if result.base is None else result.copy()
        result.flags.writeable = not shown
        return of_numpy(result)
    ours = from_memory(result, copy=result.base is not None)
    ours.writeable = not any(isinstance(item, np.ndarray) and np.may_share_memory(item, result) for item, _ in pairs)
    if ours.ndim:
        ours.expression.source += f" ({name}, evaluated whole)"
    return ours


def as_numpys(function: Callable[..., Any], model: Callable[..., Any], note: str = "") -> Callable[..., Any]:
    """The function with the name, the signature and the docstring of NumPy's, and a note in front of that."""
    named = wraps(model, updated=())(function)
    named.__module__ = "girih.array"
    named.__doc__ = f"{note}\n\n{inspect.getdoc(model) or ''}".lstrip()
    return named


def nditer(op: Any, *arguments: Any, **options: Any) -> np.nditer:
    """numpy.nditer of the values; what is written goes into small arrays, whose memory NumPy has.

    Raises:
        TypeError: it asks to write, and an array is not small.
    """
    arrays = op if isinstance(op, (tuple, list)) else (op,)
    writes = any("write" in flag for flag in np.ravel(options.get("op_flags", ())).tolist())
    if writes and not all(isinstance(x, SmallArray) for x in arrays if isinstance(x, Array)):
        raise TypeError("nditer writes into small arrays alone: write the loop as operations on whole arrays")
    wrote()
    return np.nditer(computed(op), *arguments, **options)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: kind(getattr(np, name))
    for kind, names in ((whole, " ".join(NAMES.values())), (writing, WRITING), (of_types, OF_TYPES))
    for name in names.split()
}
"""By NumPy's name: all of them are names of `girih.array`."""
