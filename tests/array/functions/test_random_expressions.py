"""Random expressions, evaluated in random portions, are what NumPy makes of them: on one worker, two and four."""

from __future__ import annotations

import numpy as np
from array_expressions import BINARY, UNARY, build
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.array as gnp

steps = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 30), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=random_cases(25), deadline=None)
@given(steps=steps, rows=st.integers(1, 6) | st.sampled_from([700, 2500]), columns=st.integers(1, 6))
def test_random_expressions(cluster, steps, rows, columns):
    random = np.random.default_rng(rows * 7 + columns)
    leaves = [random.normal(size=(rows, columns)), random.normal(size=(columns, 3))]
    expected = build(np, leaves, steps, lambda x: None)
    got = build(gnp, [gnp.array(x) for x in leaves], steps, lambda x: x.persist())
    for first, second in zip(expected, got, strict=True):
        assert (second.shape, second.dtype) == (first.shape, first.dtype)
        np.testing.assert_allclose(second.compute(), first, rtol=1e-9, atol=1e-9)
