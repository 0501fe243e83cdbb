"""The exact optimiser against brute force on small problems, and against itself on training steps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import training_steps
from counts import random_cases
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracles import brute_force

from girih.partition.solver import tables as loops
from girih.partition.solver.bounds import DualBound
from girih.partition.solver.elimination import Problem, cost_of, load, minimise
from girih.partition.solver.tables import Tables

QUICK = settings(max_examples=random_cases(60), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def problems(draw: st.DrawFn, forbidden: bool = True, largest: int = 4, variables: int = 7) -> Problem:
    """Any topology, pairs that repeat and come both ways round, shared tables, ties, inf."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, variables))
    domains = tuple(int(x) for x in random.integers(1, largest + 1, count))
    top = draw(st.sampled_from([1, 3, 1000, 10**9]))
    share = draw(st.sampled_from([0.0, 0.1, 0.3])) if forbidden else 0.0
    tables: list[np.ndarray] = []

    def table(shape: tuple[int, ...]) -> int:
        same = [t for t, x in enumerate(tables) if x.shape == shape]
        if same and random.random() < 0.5:
            return int(random.choice(same))
        new = random.integers(0, top + 1, shape).astype(float)
        new[random.random(shape) < share] = np.inf
        tables.append(new)
        return len(tables) - 1

    unary = tuple(table((d,)) if random.random() < 0.5 else -1 for d in domains)
    pairs = []
    for _ in range(draw(st.integers(0, 3 * count)) if count > 1 else 0):
        a, b = (int(x) for x in random.choice(count, 2, replace=False))
        pairs.append((a, b, table((domains[a], domains[b]))))
    return Problem(domains, unary, tuple(pairs), tuple(tables))


def optimum(problem: Problem) -> float:
    try:
        return brute_force(problem).cost
    except ValueError:
        return math.inf


def same(one: float, two: float) -> bool:
    return abs(one - two) <= 1e-9 * max(1.0, one) + 1e-6


@QUICK
@given(problems(), st.sampled_from([1, 4, 16, 2**24]))
def test_minimum_is_that_of_brute_force(problem: Problem, table_limit: int) -> None:
    best = optimum(problem)
    if best == math.inf:
        with pytest.raises(ValueError, match="infeasible"):
            minimise(problem, table_limit=table_limit)
        return
    found = minimise(problem, table_limit=table_limit)
    assert found.stopped == "optimal"
    assert found.cost == found.bound == cost_of(problem, found.labels)
    assert same(found.cost, best)


@QUICK
@given(problems(variables=8, largest=3), st.integers(0, 100))
def test_a_known_solution_changes_nothing(problem: Problem, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, problem.domains)
    best = optimum(problem)
    if best < math.inf:
        assert same(minimise(problem, upper=labels, table_limit=4).cost, best)


@QUICK
@given(problems(variables=8, largest=3))
def test_out_of_time_the_bound_still_holds(problem: Problem) -> None:
    best = optimum(problem)
    try:
        found = minimise(problem, seconds=-1.0, table_limit=2)
    except ValueError:
        assert best == math.inf
        return
    assert found.bound <= best * (1 + 1e-9) + 1e-6
    assert found.bound <= found.cost == cost_of(problem, found.labels)
    assert found.cost >= best
    assert (found.labels < problem.domains).all()
    assert found.stopped == ("optimal" if found.cost == found.bound else "time")


@QUICK
@given(problems(variables=8, largest=3))
def test_a_gap_is_enough_only_behind_the_work_that_should_close_it(problem: Problem) -> None:
    best = optimum(problem)
    assume(best < math.inf)
    near, closed = (minimise(problem, table_limit=2, enough=0.5, closing=work) for work in (0.0, 60.0))
    assert near.cost * 0.5 <= near.bound * (1 + 1e-9) + 1e-6
    assert same(closed.cost, best)


@QUICK
@given(problems(), st.integers(1, 12), st.integers(1, 30), st.booleans())
def test_dual_never_exceeds_the_optimum_nor_rules_it_out(
    problem: Problem, sweeps: int, entries: int, tight: bool
) -> None:
    factors = load(problem, Tables())
    factors.eliminate(entries)
    assume(factors.left)
    best = optimum(problem)
    bound = DualBound(factors)
    upper = best + (0.25 if tight else 2.0)  # whole costs: nothing but the optimum lies below
    values = [bound.value, *(bound.sweep(upper) for _ in range(sweeps))]
    assert values == sorted(values)
    if best == math.inf:
        return
    assert values[-1] <= best * (1 + 1e-12) + 1e-6
    factors.restrict(bound.alive())
    factors.eliminate(2**24)
    assert same(factors.constant, best)
    assert same(cost_of(problem, factors.labels()), best)


@QUICK
@given(problems(forbidden=False, variables=9, largest=3))
def test_reductions_keep_the_optimum(problem: Problem) -> None:
    factors = load(problem, Tables())
    factors.eliminate(6)
    other = factors.copy()
    other.eliminate(2**24)
    assert not other.left
    assert same(other.constant, cost_of(problem, other.labels()))
    assert same(other.constant, optimum(problem))
    if factors.left:  # the copy left its original alone; conditioning on each label of one gives the same least
        v = factors.variables()[0]
        costs = []
        for label in range(factors.sizes[v]):
            branch = factors.copy()
            branch.fix(v, label)
            branch.eliminate(2**24)
            costs.append(branch.constant)
        assert same(min(costs), other.constant)


def test_infeasible_problems_say_so() -> None:
    never = np.full((2, 2), np.inf)
    with pytest.raises(ValueError, match="infeasible"):
        minimise(Problem((2, 2), (-1, -1), ((0, 1, 0),), (never,)))
    # Each pair of three variables must differ, with two labels: no table is empty, yet no labels fit.
    differ = np.array([[np.inf, 0.0], [0.0, np.inf]])
    odd = Problem((2,) * 3, (-1,) * 3, ((0, 1, 0), (1, 2, 0), (2, 0, 0)), (differ,))
    for table_limit in (1, 2**24):
        with pytest.raises(ValueError, match="infeasible"):
            minimise(odd, table_limit=table_limit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": (-1,)}, "unary"),
        ({"domains": (2, 0)}, "variable 1 has no label"),
        ({"pairs": ((0, 1, 0),), "domains": (2, 3)}, r"table 0 .*\(2, 2\), not \(2, 3\)"),
        ({"tables": (np.full((2, 2), -1.0),)}, "below 0"),
        ({"tables": (np.full((2, 2), np.nan),)}, "nan"),
    ],
)
def test_malformed_problems_are_refused(change: dict, message: str) -> None:
    good = Problem((2, 2), (-1, -1), ((0, 1, 0),), (np.zeros((2, 2)),))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(good, **change)


def test_nothing_to_decide() -> None:
    assert minimise(Problem((), (), (), ())).cost == 0.0
    lone = minimise(Problem((3, 2), (0, -1), (), (np.array([5.0, 4.0, 6.0]),)))
    assert (lone.cost, lone.bound, lone.labels[0]) == (4.0, 4.0, 1)


@pytest.mark.parametrize("replicate", [False, True])
def test_repeated_layers_cost_as_one(replicate: bool) -> None:
    """A chain of equal layers: distinct eliminations stop growing with its length, or grow as its logarithm."""
    few, many = (minimise(training_steps.perceptron(2, layers, replicate)) for layers in (40, 160))
    assert few.stopped == many.stopped == "optimal"
    assert few.how == many.how == "elimination"
    assert many.statistics["variables"] >= 3.9 * few.statistics["variables"]
    assert many.statistics["eliminations"] <= few.statistics["eliminations"] + 16


@pytest.mark.parametrize(
    "problem",
    [
        training_steps.perceptron(3, 12),
        training_steps.perceptron(3, 4, True),
        training_steps.residual(2, (2, 2)),
        training_steps.transformer(3, 3),
        training_steps.recurrent(1, 2, 3),
    ],
    ids=["perceptron", "perceptron with copies", "residual", "transformer", "recurrent"],
)
def test_training_steps_are_solved(problem: Problem) -> None:
    found = minimise(problem)
    assert found.stopped == "optimal"
    assert found.cost == found.bound == cost_of(problem, found.labels)
    # No single variable can do better, and no random labels do.
    random = np.random.default_rng(0)
    for v in random.choice(len(problem.domains), 20, replace=False):
        labels = found.labels.copy()
        labels[v] = random.integers(problem.domains[v])
        assert cost_of(problem, labels) >= found.cost - 1e-6
    # The same problem with its variables in another order has the same optimum.
    order = random.permutation(len(problem.domains))
    to = np.argsort(order)
    shuffled = Problem(
        tuple(problem.domains[v] for v in order),
        tuple(problem.unary[v] for v in order),
        tuple((int(to[a]), int(to[b]), t) for a, b, t in problem.pairs),
        problem.tables,
    )
    assert same(minimise(shuffled).cost, found.cost)


def test_progress_is_observed_and_never_falls_back() -> None:
    seen: list[tuple[str, float]] = []
    found = minimise(training_steps.transformer(2, 2), table_limit=2**8, observe=lambda *what: seen.append(what))
    costs = [value for what, value in seen if what == "cost"]
    bounds = [value for what, value in seen if what == "bound"]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert costs[-1] == found.cost


@pytest.mark.parametrize("seed", range(6))
def test_tables_are_projected_to_the_same_bits_by_numpy_and_compiled(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    sizes, labels = tuple(random.integers(1, 6, 3).tolist()), int(random.integers(1, 9))
    monkeypatch.setattr(loops, "TOGETHER", 64)  # some labels at a time
    store = Tables()
    key = []
    for places in ((0, 3), (1, 2, 3), (3,), (2, 0), (3, 1)):
        array = random.random([(*sizes, labels)[place] for place in places]) * 10.0 ** random.integers(-9, 9)
        array[random.random(array.shape) < 0.2] = np.inf
        key.append((store.keep(array)[0], places))
    found = []
    for way in (loops._project.plain, loops._project.machine):
        monkeypatch.setattr(loops, "_project", way)
        found.append(store._computed(tuple(key), sizes, labels).tobytes())
    assert found[0] == found[1]
