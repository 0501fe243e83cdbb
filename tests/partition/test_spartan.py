"""Spartan's greedy tiling: its order, its views, where it misses; and the appendix's reduction from NAE-3SAT."""

from __future__ import annotations

import numpy as np
import pytest
from counts import random_cases
from graphs import machine_of
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.array_programs import Clause, Program, least_squares, random_program, satisfiable, tiling_of_formula
from girih.graph import check
from girih.partition.searches.exact import exact
from girih.partition.searches.spartan import Spartan, TilingGraph
from girih.partition.searches.tiled import Wanted, tiled
from girih.partition.space.options import TOFU
from girih.partition.space.problem import Objective, build
from girih.program import lower
from girih.search.table import search_of

ROWS, COLUMNS = (0,), (1,)
TWO = Objective("bytes", machine_of((2,)))
FOUR = Objective("bytes", machine_of((2, 2)))
UNSATISFIABLE = ((1, 2, 3), (-1, 2, 3), (1, -2, 3), (1, 2, -3))  # each rules out two of the eight assignments

literals = st.integers(1, 4).flatmap(lambda variable: st.sampled_from([variable, -variable]))
clauses = st.lists(
    st.tuples(literals, literals, literals).filter(lambda clause: len({abs(n) for n in clause}) == 3),
    min_size=1,
    max_size=6,
)


def test_most_connected_arrays_come_first() -> None:
    made = Program()
    a, b, c = made.newarray(8, 8), made.newarray(8, 8), made.newarray(8, 8)
    ab = made.map(a, b)
    made.map(ab, c)
    made.map(ab, a)
    item = build(made.graph(), TWO, TOFU)
    found = TilingGraph(item, item.problem)
    beside = {name: found.connectivity[item.variable[name]] for name in item.graph.values}
    assert beside == {"a0": 2, "a1": 1, "a2": 1, "v0": 4, "v1": 2, "v2": 2}
    assert found.order()[0] == item.variable["v0"]


def test_a_view_follows_its_base_and_its_readers_count() -> None:
    """The scans want rows of two views of `a`, which only the readers of the views know: `a` lies by columns."""
    made = Program()
    a = made.newarray(8, 8)
    made.scan(made.swapaxis(a), 1)
    made.scan(made.swapaxis(a), 1)
    graph = made.graph()
    found = Spartan().search(graph, TWO)
    assert found.certificate.cost == 0
    assert found.strategy.layouts["a0"].codes == COLUMNS
    assert {found.strategy.layouts[node.name].codes for node in graph.nodes} == {ROWS}


def conflict() -> Program:
    """Fig. 11: C and D read the same array, D by a view; both have more neighbours than the array."""
    made = Program()
    a, x, y = made.newarray(8, 8), made.newarray(8, 8), made.newarray(8, 8)
    c = made.map(a, x)
    d = made.map(made.swapaxis(a), y)
    for array in (c, d):
        made.map(array)
        made.map(array)
    return made


def test_conflicting_views_cost_the_greedy_tiling_and_not_the_exact_one() -> None:
    graph = conflict().graph()
    assert exact(graph, TWO).certificate.cost == 0
    found = Spartan().search(graph, TWO)
    assert found.strategy.layouts["v0"].codes == found.strategy.layouts["v2"].codes == ROWS  # C and D
    assert found.certificate.cost == 8 * 8 * 8 / 2  # half of one array changes its device
    assert found.certificate.bound == 0
    # The same budget that Spartan would spend on a copy of A mends it.
    again, certificate = tiled(graph, TWO, Wanted(Spartan(), copies=8 * 8 * 8))
    assert certificate.cost == 0
    assert "a0" in again.copies.values()


@given(st.integers(0, 2**32), st.integers(2, 15), st.sampled_from([TWO, FOUR]))
@settings(max_examples=random_cases(80))
def test_greedy_is_never_below_exact_on_random_programs(seed: int, operators: int, goal: Objective) -> None:
    graph = random_program(np.random.default_rng(seed), operators)
    check(graph)
    assert len(graph.nodes) + len(graph.inputs) == operators
    best, found = exact(graph, goal).certificate, Spartan().search(graph, goal)
    assert best.gap == 0
    assert found.certificate.cost >= best.cost
    assert lower(graph, found.strategy, goal.transfers).bytes_received().sum() == found.certificate.cost


def test_programs_of_one_operator_are_refused() -> None:
    with pytest.raises(ValueError, match="1 operators: expected at least 2"):
        random_program(np.random.default_rng(0), 1)


# ------------------------------------------------------------------------------------------- least squares


@pytest.mark.parametrize("search", ["exact", "spartan"])
def test_least_squares_keep_the_ratings_by_rows_and_by_columns(search: str) -> None:
    users, movies, features = 960, 640, 8
    graph = least_squares(users, movies, features)
    check(graph)
    assert len(graph.nodes) + len(graph.inputs) == 14
    ratings = users * movies * 4
    found, certificate = tiled(graph, FOUR, Wanted(search_of(search), copies=ratings))
    # Each of four devices fetches three quarters of the features of all movies and of all users, twice.
    assert certificate.cost == 3 * 4 * features * 2 * (movies + users)
    assert {found.strategy.layouts[name].codes for name in ("a0", "a0.copy")} == {(0, 0), (1, 1)}
    assert certificate.cost < tiled(graph, FOUR, Wanted(search_of(search), copies=ratings - 1))[1].cost


# ------------------------------------------------------------------------------------------- NAE-3SAT


def exchanges(formula: list[Clause] | tuple[Clause, ...], devices: int, size: int) -> float:
    """The least cost of the formula's program, in exchanges of a whole array."""
    graph = tiling_of_formula(formula, size)
    check(graph)
    certificate = exact(graph, Objective("bytes", machine_of((devices,)))).certificate
    assert certificate.gap == 0
    return certificate.cost / (size * size * 8 * (devices - 1) / devices)


@given(clauses, st.sampled_from([2, 3]))
@settings(max_examples=random_cases(40))
def test_a_formula_is_satisfiable_exactly_where_its_program_costs_two_for_each_clause(
    formula: list[Clause], devices: int
) -> None:
    cost = exchanges(formula, devices, 6)
    if satisfiable(formula):
        assert cost == 2 * len(formula)
    else:
        assert cost >= 2 * len(formula) + 4


def test_an_unsatisfiable_formula_costs_one_clause_more() -> None:
    assert not satisfiable(UNSATISFIABLE)
    assert exchanges(UNSATISFIABLE, 2, 4) == 3 * 2 + 6
    assert satisfiable(UNSATISFIABLE[:3])
    assert exchanges(UNSATISFIABLE[:3], 2, 4) == 3 * 2
