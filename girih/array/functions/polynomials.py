"""Polynomials by their coefficients, the highest power first; NumPy's other functions of them are evaluated whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array
from girih.array.functions.shapes import creation
from girih.array.functions.whole import plain


def polyval(p: Any, x: Any) -> Any:
    """The polynomial's values, by Horner's scheme."""
    if isinstance(x, np.poly1d):
        return np.polyval(plain(p), x)
    p, x = as_array(p), as_array(x)
    values: Array = creation.zeros_like(x)
    for number in range(p.shape[0]):
        values = values * x + p[number]
    return values


class poly1d(np.poly1d):  # noqa: N801 - NumPy's name
    """NumPy's, which holds its few coefficients in memory; called with an array of ours it gives one of ours."""

    def __init__(self, c_or_r: Any, r: bool = False, variable: str | None = None) -> None:
        super().__init__(plain(c_or_r), r, variable)
