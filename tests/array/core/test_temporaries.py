"""Results without a name are written over; what anybody has is not."""

from __future__ import annotations

import functools
import itertools
import operator
import tracemalloc

import numpy as np
import pytest
from borders import of_small

import girih.array as gnp

COUNT = 40_000
"""Elements of arrays that are written over: 320 kB."""


def given(space):
    numbers = np.random.default_rng(0)
    return [space.asarray(numbers.random(COUNT)) for _ in range(3)]


def kept(a, b, c):
    return a


class Holder:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return self.x


PROGRAMS = {
    "a sum of sums": lambda a, b, c: (a + b) + (b * c) - 2 * (c - a) / b,
    "a conditional": lambda a, b, c: (a + b if len(a) < 2 else c) + (b if len(a) > 2 else a * c),
    "a name inside": lambda a, b, c: (d := a + b) * c + (d - c) + d,
    "a call": lambda a, b, c: kept(a, b, c) + b * c - kept(a + b, b, c),
    "an operator of somebody else's": lambda a, b, c: (Holder(a) + 1) + b,
    "a list's": lambda a, b, c: [a + b, c][0] + [a, b * c][1] + [a, b, c][1],
    "a generator's": lambda a, b, c: sum(x + y for x, y in itertools.pairwise([a, b, c, a])),
    "reduced": lambda a, b, c: functools.reduce(operator.add, [a, b, c]) + functools.reduce(operator.mul, (a, b)),
    "accumulated": lambda a, b, c: functools.reduce(operator.sub, list(itertools.accumulate([a, b, c]))),
    "mapped": lambda a, b, c: next(map(operator.add, [a, b], [b, c])) + c,
    "of other dtypes": lambda a, b, c: (a > 0.5) + (a + b) + ((a * 9).astype(int) + (b * 9).astype(int)) / 2,
    "of other shapes": lambda a, b, c: (a[:3] + 1)[:, None] + (a + b) - (a[:1] * 2) + (b + 1)[::-1],
    "of itself": lambda a, b, c: (a + b) * (a + b) + (a * a),
}


@of_small
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_numpys_and_nothing_else_changes(name):
    expected = PROGRAMS[name](*given(np))
    arrays, before = given(gnp), given(np)
    np.testing.assert_array_equal(np.asarray(PROGRAMS[name](*arrays)), expected)
    for x, content in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x.compute(), content)


@of_small
def test_what_an_array_of_objects_holds_is_not_written_to():
    """It refers to each of its elements once, as the interpreter does to a result."""
    objects = np.empty(2, object)
    objects[0], objects[1] = gnp.ones(COUNT) + 0, gnp.ones(COUNT) + 1
    made = objects + 1.0
    assert [float(x[0]) for x in objects] == [1.0, 2.0]
    assert [float(x[0]) for x in made] == [2.0, 3.0]
    assert float(np.add.reduce(objects)[0]) == 3.0
    assert [float(x[0]) for x in objects] == [1.0, 2.0]


@of_small
def test_an_expression_takes_the_memory_of_one_array():
    a, b, c = given(gnp)
    tracemalloc.start()
    try:
        x = (a + b) * c - a + 2 * (c + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert x.shape == (COUNT,)
    assert peak < 2.5 * x.nbytes  # 2 (c + 1) beside the rest; with an array for each operation 3
