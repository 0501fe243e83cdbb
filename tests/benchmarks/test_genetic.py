"""The genetic algorithm: the thesis's examples number by number, and what holds of every order, pool and step."""

import numpy as np
import pytest
from counts import random_cases
from graphs import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from oracles import is_topological
from run_programs import training

from benchmarks.genetic.evaluate import SwapProblem, problem, seconds_of_step
from benchmarks.genetic.orders import crossed_orders, mutated_order
from benchmarks.genetic.pool import Pool, random_pool
from benchmarks.genetic.search import evolved
from girih.program.life.lifetimes import lifetimes

# Figure 4.1: tensors that each operator uses, the last of which it makes; all have 1 MB, A2 and A5 have 2.
USES = ("A0", "A0 W1 A1", "A0 W2 A2", "A2 W3 A3", "A3 W4 A4", "A1 A4 A5")
NAMES = ("A0", "A1", "A2", "A3", "A4", "A5", "W1", "W2", "W3", "W4")
LEFT, RIGHT = (0, 1, 2, 3, 4, 5), (0, 2, 3, 4, 1, 5)
COARSE, FINE = Pool((1, 2), (0, 0), (5,)), Pool((1, 2), (0, 1), (8, 1))


def figure_4_1() -> SwapProblem:
    """One unit of time for each operator and for each MB each way; the backward pass wants all activations."""
    rows = [[NAMES.index(name) for name in uses.split()] for uses in USES]
    sizes = np.array([2 if name in ("A2", "A5") else 1 for name in NAMES])
    used = np.concatenate(rows)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    nothing = np.zeros(len(NAMES), np.bool_)
    return SwapProblem(
        links=None,  # type: ignore[arg-type]
        used_starts=starts,
        used=used,
        writes=np.isin(np.arange(len(used)), starts[1:] - 1),
        user_starts=np.concatenate([[0], np.cumsum(np.bincount(used, minlength=len(NAMES)))]),
        takes_starts=np.zeros(len(rows) + 1, np.int64),
        takes=np.zeros(0, np.int64),
        sizes=sizes - 1,
        bytes=sizes,
        lasting=nothing,
        given=nothing,
        kept=np.array([name[0] == "A" for name in NAMES]),
        seconds=np.ones(len(rows)),
        rates=(1.0, 1.0),
    )


@pytest.mark.parametrize(
    ("order", "pool", "units"),
    [(LEFT, COARSE, 7), (RIGHT, COARSE, 7), (RIGHT, FINE, 6), (LEFT, FINE, 7)],
    ids=["b", "c", "d", "e"],
)
def test_figure_4_1(order, pool, units) -> None:
    """As published, but for (b): its drawing sends A1 out and back and takes 6 units; by Belady, A0 leaves."""
    assert seconds_of_step(figure_4_1(), np.array(order), pool) == units


def test_figure_4_5() -> None:
    """The first three of a parent, then the others as the other parent has them. Nodes are counted from 0."""
    one, two = np.array([0, 1, 3, 2, 4]), np.array([1, 2, 3, 0, 4])
    first, second = crossed_orders(one, two, 3)
    assert first.tolist() == [1, 2, 3, 0, 4]
    assert second.tolist() == [0, 1, 3, 2, 4]


@given(st.integers(0, 2**32), st.integers(1, 14), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=random_cases(40))
def test_children_keep_what_steps_need(seed, nodes, probability) -> None:
    random = np.random.default_rng(seed)
    links = lifetimes(alone(random_graph(random, nodes))).links
    parents = [mutated_order(random, links, links.captured, 1.0) for _ in range(2)]
    children = crossed_orders(*parents, int(random.integers(0, len(links.extra) + 1)))
    mutants = [mutated_order(random, links, child, probability) for child in children]
    assert all(is_topological(links, order) for order in (*parents, *children, *mutants))
    assert np.array_equal(mutated_order(random, links, parents[0], 0.0), parents[0])


@given(st.integers(0, 2**32), st.integers(1, 14))
@settings(max_examples=random_cases(30))
def test_no_step_is_faster_than_its_operators_and_its_copies_take_time(seed, nodes) -> None:
    random = np.random.default_rng(seed)
    lives = lifetimes(alone(random_graph(random, nodes)))
    seconds = random.random(len(lives.steps)) + 0.1
    item = problem(lives, seconds, (1e3, 1e3))
    if not item.size_table:
        return
    least = int(item.needs.max(axis=0) @ np.array(item.size_table))
    order = mutated_order(random, item.links, np.arange(len(seconds)), 1.0)
    pool = random_pool(
        random, item.size_table, 2 * item.size_table[-1] * int(item.needs.sum(axis=1).max()) + least, item.needs
    )
    took = seconds_of_step(item, order, pool)
    assert took >= seconds.sum() * (1 - 1e-12)
    ample = Pool(item.size_table, tuple(range(len(item.size_table))), (len(item.bytes),) * len(item.size_table))
    assert seconds_of_step(item, order, ample) == pytest.approx(seconds.sum())
    assert took >= seconds_of_step(item._replace(rates=(1e9, 1e9)), order, pool)


def test_generations_find_a_faster_step_than_the_random_ones() -> None:
    captured, *_ = training((64, 32, 48, 16))
    lives = lifetimes(alone(captured.graph))
    item = problem(lives, np.ones(len(lives.steps)), (3e3, 3e3))
    capacity = int(0.7 * lives.used.max())
    generations = []
    found = evolved(item, capacity, budget=0.5, population=12, observe=generations.append)
    assert found.generations == tuple(generations)
    assert found.best.seconds <= min(each.best for each in generations)
    assert found.best.seconds == seconds_of_step(item, found.best.order, found.best.pool) < np.inf
    assert found.best.pool.bytes <= capacity
    assert is_topological(item.links, found.best.order)
    again = evolved(item, capacity, budget=0.5, population=12)  # as far: loading loops took some of the first clock
    for mine, other in zip(again.generations, generations, strict=False):
        assert (mine.best, mine.mean, mine.worst) == (other.best, other.mean, other.worst)
    alone_pools = evolved(item, capacity, budget=0.0, population=4, orders=False)
    assert np.array_equal(alone_pools.best.order, np.arange(len(lives.steps)))
    alone_orders = evolved(item, capacity, budget=0.0, population=4, pools=False)
    assert 1 < len(alone_orders.best.pool.counts) < len(item.size_table)


def test_too_little_for_a_step_is_refused() -> None:
    captured, *_ = training((64, 32, 48, 16))
    lives = lifetimes(alone(captured.graph))
    item = problem(lives, np.ones(len(lives.steps)), (1e3, 1e3))
    with pytest.raises(ValueError, match="objects of"):
        evolved(item, int(max(item.size_table)), budget=0.0)
