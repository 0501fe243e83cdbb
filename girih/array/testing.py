"""numpy.testing: its comparisons take arrays of ours, which are computed; all else is NumPy's."""

from __future__ import annotations

from typing import Any

from numpy import testing

from girih.array.functions.whole import whole

COMPARISONS = frozenset(
    {"assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal",
     "assert_array_almost_equal_nulp", "assert_array_equal", "assert_array_less", "assert_array_max_ulp",
     "assert_equal"}
)  # fmt: skip


def __getattr__(name: str) -> Any:
    member = getattr(testing, name)
    return whole(member) if name in COMPARISONS else member
