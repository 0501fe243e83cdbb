"""NumPy's own functions on girih arrays: the function of the same name here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from girih.array.unsupported import missing


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """`np.add(x, y)`, `np.add.reduce(x, …)` and the other methods.

    Raises:
        TypeError: girih has no such function, or not with these options.
    """
    import girih.array as here

    found: Any = _named(here, ufunc.__name__)
    if method != "__call__":
        if not hasattr(found, method):
            raise TypeError(f"girih.array has no numpy.{ufunc.__name__}.{method}")
        found = getattr(found, method)
    return found(*inputs, **options)


def apply_function(function: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> Any:
    """`np.concatenate([x, y])` and all others that NumPy lets other arrays answer.

    Raises:
        TypeError: girih has no such function.
    """
    import girih.array as here

    space: Any = here
    for part in (function.__module__ or "numpy").split(".")[1:]:
        space = getattr(space, part, here)
    return _named(space, function.__name__)(*inputs, **options)


def _named(space: ModuleType, name: str) -> Callable[..., Any]:
    """A function here by NumPy's name; TypeError, as NumPy's protocols have it, where there is none."""
    found = vars(space).get(name)
    if not callable(found):
        raise TypeError(str(missing(space.__name__, name, vars(space))))
    return found  # type: ignore[no-any-return]
