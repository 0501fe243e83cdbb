"""Shapes that depend on data are numbers as soon as somebody asks; errors name the line that made the array."""

from __future__ import annotations

import re

import numpy as np
import pytest
from borders import of_large

import girih.array as gnp

CALLS = [
    lambda np, x: x[x > 0], lambda np, x: x[x > 9], lambda np, x: x[x[:, 0] > 0], lambda np, x: x[:, x[0] > 0],
    lambda np, x: np.nonzero(x > 0)[1], lambda np, x: np.flatnonzero(x > 0), lambda np, x: np.argwhere(x > 1),
    lambda np, x: np.unique(np.round(x)), lambda np, x: np.unique(np.round(x), return_counts=True)[1],
    lambda np, x: np.extract(x > 0, x), lambda np, x: np.compress(x[:, 0] > 0, x, 0), lambda np, x: x[x > 0] * 2 + 1,
    lambda np, x: x[x > 0][::-1][:3], lambda np, x: x[x > 0][x[x > 0] < 1], lambda np, x: np.sort(x[x > 0]),
    lambda np, x: np.setdiff1d(np.round(x), [0, 1]), lambda np, x: np.concatenate([x[x > 1], x[x < -1]]),
    lambda np, x: np.repeat(x[:, 0], (x[:, 0] > 0).astype(int)), lambda np, x: np.trim_zeros(np.round(x[0])),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("workers", [1, 3])
def test_shapes_are_numpys(workers, number):
    content = np.random.default_rng(5).normal(size=(7, 4))
    expected = CALLS[number](np, content)
    with gnp.cluster(workers=workers, backend="threads"):
        made = CALLS[number](gnp, gnp.array(content))
        assert made.shape == expected.shape
        assert all(type(size) is int for size in made.shape)
        assert (len(made), made.size, made.dtype) == (len(expected), expected.size, expected.dtype)
        assert "nan" not in repr(made)
        np.testing.assert_array_equal(made.compute(), expected)


def here(offset: int) -> str:
    """The line that is so many lines below the caller's."""
    import sys

    frame = sys._getframe(1)
    return re.escape(f"test_shapes_of_data.py:{frame.f_lineno + offset}:")


@of_large
def test_errors_name_the_line_that_made_the_array(two):
    x = gnp.array(np.zeros((3, 3)))
    line = here(1)
    inverse = gnp.linalg.inv(x)
    for use in (
        lambda: inverse[inverse > 0].shape,
        lambda: gnp.nonzero(inverse),
        lambda: gnp.unique(inverse * 2).shape,
        lambda: float(inverse[inverse > 0].sum()),
    ):
        with pytest.raises(np.linalg.LinAlgError, match=line):
            use()
    line = here(1)
    picked = gnp.array(np.arange(3.0))[gnp.array([1, 5]) + gnp.array(0)]
    with pytest.raises(IndexError, match=line):
        picked.compute()
    changed = gnp.array(np.arange(3.0))
    line = here(1)
    changed[gnp.array([1, 5]) + gnp.array(0)] = 7
    with pytest.raises(IndexError, match=line):
        changed.compute()
