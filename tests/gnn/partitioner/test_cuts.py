"""Cuts against all that there are: the largest piece is the least, with and without what is read of others."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.contiguous import best_cut, lower_bound, recursive_cut
from girih.gnn.partitioner.exchange import best_exchanging_cut, largest, rows_read

COSTS = st.one_of(
    st.lists(st.integers(0, 4).map(float), max_size=9),  # ties, and vertices that cost nothing
    st.lists(st.floats(0, 1e9), max_size=9),  # sums that are rounded
    st.lists(st.sampled_from([0.0, 1e-3, 1.0, 1e6]), max_size=9),  # one vertex is more than a share
)


def running_of(costs: list[float]) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(costs)])


def every_cut(vertices: int, pieces: int) -> list[tuple[int, ...]]:
    return [(0, *cuts, vertices) for cuts in combinations_with_replacement(range(vertices + 1), pieces - 1)]


def largest_piece(running: np.ndarray, cuts: tuple[int, ...]) -> float:
    return max(float(running[stop] - running[start]) for start, stop in pairwise(cuts))


def check_form(cuts: tuple[int, ...], vertices: int, pieces: int) -> None:
    assert len(cuts) == pieces + 1
    assert list(cuts) == sorted(cuts)
    assert (cuts[0], cuts[-1]) == (0, vertices)


@given(COSTS, st.integers(1, 5))
@settings(max_examples=200)
def test_the_largest_piece_is_the_least_of_all_cuts(costs: list[float], pieces: int) -> None:
    running = running_of(costs)
    cuts = best_cut(running, pieces)
    check_form(cuts, len(costs), pieces)
    least = min(largest_piece(running, other) for other in every_cut(len(costs), pieces))
    assert largest_piece(running, cuts) == least
    assert len(costs) < pieces or len(set(cuts)) == pieces + 1  # no piece is empty
    assert least >= lower_bound(running, pieces) * (1 - 1e-12)


@given(COSTS, st.integers(1, 6))
@settings(max_examples=60)
def test_the_published_cut_is_a_cut_no_better_than_the_best(costs: list[float], pieces: int) -> None:
    running = running_of(costs)
    cuts = recursive_cut(running, pieces)
    check_form(cuts, len(costs), pieces)
    assert largest_piece(running, cuts) >= largest_piece(running, best_cut(running, pieces))


def test_the_largest_piece_of_many_vertices_is_the_least() -> None:
    """Against a dynamic programme over all ends."""
    costs = np.random.default_rng(0).pareto(1.1, 300)
    running = running_of(list(costs))
    fastest = running.copy()
    for _ in range(6):
        spans = running[None, :] - running[:, None]
        fastest = np.where(spans >= 0, np.maximum(fastest[:, None], spans), np.inf).min(axis=0)
    assert largest_piece(running, best_cut(running, 7)) == fastest[-1]


def test_the_best_cut_leaves_no_piece_needlessly_small() -> None:
    assert best_cut(running_of([1.0] * 12), 4) == (0, 3, 6, 9, 12)
    assert best_cut(running_of([9.0, 1.0, 1.0, 1.0, 1.0]), 3) == (0, 1, 3, 5)


@given(st.data())
@settings(max_examples=120)
def test_with_what_is_read_of_others_no_cut_is_better(data: st.DataObject) -> None:
    vertices = data.draw(st.integers(1, 7))
    ends = st.integers(0, vertices - 1)
    edges = data.draw(st.lists(st.tuples(ends, ends), max_size=20))
    read, reading = np.array(edges, int).reshape(-1, 2).T
    graph = Adjacency.of_edges(read, reading, vertices)
    running = running_of(data.draw(st.lists(st.floats(0, 4), min_size=vertices, max_size=vertices)))
    pieces, each = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0.1, 1.0, 5.0]))
    least = min(largest(running, graph, cuts, each) for cuts in every_cut(vertices, pieces))
    cuts, bound = best_exchanging_cut(running, graph, pieces, each)
    check_form(cuts, vertices, pieces)
    assert largest(running, graph, cuts, each) == pytest.approx(least)
    assert bound == pytest.approx(least)
    # With fewer places to cut at, the answer may be worse and says by how much at most.
    cuts, bound = best_exchanging_cut(running, graph, pieces, each, candidates=3)
    check_form(cuts, vertices, pieces)
    assert bound <= least + 1e-9
    assert largest(running, graph, cuts, each) >= least - 1e-9


def test_rows_are_read_once_and_only_of_others() -> None:
    graph = Adjacency.of_edges(np.array([3, 3, 0, 1, 2]), np.array([0, 1, 1, 2, 3]), 4)
    assert rows_read(graph, (0, 2, 2, 4)).tolist() == [1, 0, 1]


def test_a_cut_follows_the_communities_where_reading_is_dear() -> None:
    """Two groups that read among themselves, the first of 5 vertices: equal pieces would cut the other."""
    groups = [range(5), range(5, 8)]
    edges = np.array([(one, other) for group in groups for one in group for other in group if one != other])
    graph = Adjacency.of_edges(edges[:, 0], edges[:, 1], 8)
    running = running_of([1.0] * 8)
    assert best_cut(running, 2) == (0, 4, 8)
    assert best_exchanging_cut(running, graph, 2, 1.0)[0] == (0, 5, 8)
