"""What PyTorch has under a name is computed by that: the logistic function is one node, and one kernel."""

from __future__ import annotations

import numpy as np

import girih.array as gnp
from girih.array.session.planning import known_functions
from girih.capture.lazy.expressions import needed
from girih.graph import Graph


def graph_of(array: gnp.Array) -> tuple[Graph, frozenset[str]]:
    work = needed([array.expression])
    return work.graph(), work.ones


def operators(array: gnp.Array) -> list[str]:
    return [node.operator for node in known_functions(*graph_of(array)).nodes]


def test_a_logistic_function_is_one_node() -> None:
    x, y = gnp.array(np.linspace(-3, 3, 7)), gnp.array(np.linspace(-2, 4, 7))
    first, second = operators(1 / (1 + gnp.exp(-x))), operators(1 / (gnp.exp(-y) + 1))  # an assert would hold parts
    assert first == second == ["aten.sigmoid"]


def test_what_an_array_holds_is_still_made() -> None:
    x = gnp.array(np.linspace(-3, 3, 7))
    held = gnp.exp(-x)
    found = operators(1 / (1 + held))
    assert "girih.exp" in found


def test_other_numbers_stay_inputs() -> None:
    x = gnp.array(np.linspace(-3, 3, 7))
    for array in (2 / (1 + gnp.exp(-x)), 1 / (2 + gnp.exp(-x)), x * 1 + 1):
        graph, ones = graph_of(array)
        assert known_functions(graph, ones) is graph


def test_gradients_of_a_logistic_regression() -> None:
    random = np.random.default_rng(0)
    x, y, w = random.normal(size=(300, 5)), random.integers(0, 2, 300).astype(float), random.normal(size=5)
    with gnp.cluster(workers=2, backend="threads"):
        data, weights = gnp.array(x), gnp.array(w)
        for number in (1.0, 2.0, 1.0):  # programs that differ in their numbers alone
            error = 1 / (number + gnp.exp(-(data @ weights))) - gnp.array(y)
            expected = x.T @ (1 / (number + np.exp(-(x @ w))) - y)
            np.testing.assert_allclose((data.T @ error).compute(), expected, rtol=1e-9)
