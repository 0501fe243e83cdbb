"""numpy.testing: its comparisons take arrays of ours, which are computed; all else is NumPy's."""

from __future__ import annotations

from functools import wraps
from typing import Any

from numpy import testing

from girih.array.core.array import Array

COMPARISONS = frozenset(
    {"assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal",
     "assert_array_almost_equal_nulp", "assert_array_equal", "assert_array_less", "assert_array_max_ulp",
     "assert_equal"}
)  # fmt: skip


def _computed(item: Any) -> Any:
    if isinstance(item, Array):
        return item.compute()[()]
    if isinstance(item, (list, tuple)):
        return type(item)(map(_computed, item)) if type(item) in (list, tuple) else tuple(map(_computed, item))
    return {key: _computed(value) for key, value in item.items()} if type(item) is dict else item


def __getattr__(name: str) -> Any:
    found = getattr(testing, name)
    if name not in COMPARISONS:
        return found

    @wraps(found)
    def compare(*items: Any, **options: Any) -> Any:
        return found(*map(_computed, items), **{key: _computed(item) for key, item in options.items()})

    return compare
