"""NumPy's own functions on girih arrays: the function of the same name here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """`np.add(x, y)`, and `np.add.reduce(x, …)` as the reduction that it is.

    Raises:
        TypeError: girih has no such function, or not with these options.
    """
    import girih.array as here

    if method == "__call__":
        return _named(here, ufunc.__name__, f"numpy.{ufunc.__name__}")(*inputs, **options)
    if method == "reduce" and ufunc.__name__ in REDUCTIONS:
        chosen = {name: item for name, item in options.items() if item is not None and name != "out"}
        axis = options.get("axis", 0)
        return _named(here, REDUCTIONS[ufunc.__name__], ufunc.__name__)(*inputs, **{**chosen, "axis": axis})
    raise TypeError(f"girih.array has no numpy.{ufunc.__name__}.{method}")


REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip


def apply_function(function: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> Any:
    """`np.concatenate([x, y])` and all others that NumPy lets other arrays answer.

    Raises:
        TypeError: girih has no such function.
    """
    import girih.array as here

    module = function.__module__ or "numpy"
    space: Any = here
    for part in module.split(".")[1:]:
        space = getattr(space, part, here)
    return _named(space, function.__name__, f"{module}.{function.__name__}")(*inputs, **options)


def _named(space: ModuleType, name: str, asked: str) -> Callable[..., Any]:
    found = getattr(space, name, None)
    if not callable(found):
        raise TypeError(f"girih.array has no {asked}: x.compute() gives a NumPy array")
    return found  # type: ignore[no-any-return]
