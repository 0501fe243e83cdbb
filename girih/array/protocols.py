"""NumPy's own functions on girih arrays: the function of the same name in the namespace `here`, girih.array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from girih.array.core.unsupported import missing


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
    return _written(_named(space, function.__name__), inputs, options, {})


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
