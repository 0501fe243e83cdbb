"""Graphs in pieces: orders, cuts by what was learned, what the page says, and cuts anew between epochs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from girih import gnn
from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.cost import CostModel, Layer
from girih.gnn.partitioner.features import Access
from girih.gnn.partitioner.learning import measured, moved, repartitioner
from girih.gnn.partitioner.orders import ORDERS, ordered, reordered
from girih.gnn.partitioner.partition import partition

ACCESS = Access(line=4, caches=(400,))


def blocks(sizes: tuple[int, ...], shuffled: bool = True, seed: int = 0) -> Adjacency:
    """Groups whose members all read each other, one edge from each to the next; numbered at random."""
    random = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])
    edges = [(i, j) for a, b in pairwise(starts) for i in range(a, b) for j in range(a, i)]
    edges += [(int(a), int(a) - 1) for a in starts[1:-1]]
    names = random.permutation(starts[-1]) if shuffled else np.arange(starts[-1])
    first, second = names[np.array(edges)].T
    return Adjacency.of_edges(np.concatenate([first, second]), np.concatenate([second, first]), int(starts[-1]))


def edges_of(graph: Adjacency, names: np.ndarray) -> set[tuple[int, int]]:
    reading = np.repeat(np.arange(graph.vertices), graph.degrees)
    return set(zip(names[reading].tolist(), names[graph.neighbours].tolist(), strict=True))


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_has_each_vertex_once_and_the_graph_stays_the_same(order: str) -> None:
    graph = blocks((6, 9, 5, 3))
    places, parts = ordered(graph, order, 3)
    assert sorted(places.tolist()) == list(range(23))
    assert (parts is not None) == (order in ("metis", "kahip", "dealt"))
    assert parts is None or (len(parts), parts[0], parts[-1]) == (4, 0, 23)
    again = reordered(graph, places)
    assert edges_of(again, places) == edges_of(graph, np.arange(23))
    assert all((np.diff(again.neighbours[a:b]) >= 0).all() for a, b in pairwise(again.offsets))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("vertices", [0, 1, 5])
def test_a_graph_without_edges_has_every_order(order: str, vertices: int) -> None:
    graph = Adjacency(np.zeros(vertices + 1, np.int64), np.zeros(0, np.int32), vertices)
    one = partition(graph, 3, "vertices", order)
    assert sum(one.vertices) == vertices
    assert one.imbalance >= 1


@pytest.mark.parametrize("order", ["bfs", "rcm", "metis", "kahip"])
def test_orders_by_neighbours_bring_groups_together(order: str) -> None:
    graph = blocks((8, 8, 8, 8))
    assert sum(partition(graph, 4, "vertices", order).reads) < sum(partition(graph, 4, "vertices").reads) / 2


def test_pieces_that_are_dealt_are_alike_in_vertices_and_edges() -> None:
    """In each layer then no piece waits for another, which no cut of a skewed graph by its whole cost reaches."""
    graph = gnn.rmat(600, 6000).graph
    one = partition(graph, 3, "edges", "dealt", cut="parts")
    assert max(one.vertices) - min(one.vertices) <= 1
    assert max(one.edges) <= 1.1 * min(one.edges)
    for piece in range(3):
        assert (np.diff(graph.degrees[one.members(piece)]) <= 0).all()


def test_weights_follow_their_edges() -> None:
    graph = Adjacency.of_edges(np.array([1, 2, 0, 2]), np.array([0, 0, 1, 1]), 3)
    weighted = Adjacency(graph.offsets, graph.neighbours, 3, np.array([1.0, 2.0, 3.0, 4.0]))
    again = reordered(weighted, [2, 1, 0])
    assert again.offsets.tolist() == [0, 0, 2, 4]
    assert again.neighbours.tolist() == [0, 2, 0, 1]
    assert again.weights is not None
    assert again.weights.tolist() == [4.0, 3.0, 2.0, 1.0]
    with pytest.raises(ValueError, match="each of the 3 vertices once"):
        reordered(graph, [0, 1, 1])


def test_what_vertices_and_edges_have_moves_with_them() -> None:
    """The features of a vertex and of an edge say which they are."""
    graph = blocks((6, 9, 5, 3))
    edges = np.column_stack([np.repeat(np.arange(23), graph.degrees), graph.neighbours]).astype(float)
    data = gnn.Data(graph, np.arange(23.0)[:, None], np.arange(23), train=np.arange(23) < 5, edge_features=edges)
    one = partition(data, 3, "edges", "rcm")
    again = one.arranged(data)
    assert one.order is not None
    assert again.x is not None
    assert again.labels is not None
    assert again.train is not None
    assert again.x[:, 0].tolist() == again.labels.tolist() == one.order.tolist()
    assert again.train.tolist() == (one.order < 5).tolist()
    reading = np.repeat(np.arange(23), again.graph.degrees)
    assert again.edge_features is not None
    assert (again.edge_features == np.column_stack([one.order[reading], one.order[again.graph.neighbours]])).all()


def test_what_a_partition_says() -> None:
    graph = blocks((4, 12), shuffled=False)
    model = CostModel((Layer(10, 4), Layer(4, 3)), ACCESS)
    one = partition(graph, 2, model, cut="recursive")
    best = partition(graph, 2, model)
    assert best.certificate.gap == 0
    assert one.certificate.bound == best.certificate.cost <= one.certificate.cost
    assert best.totals == pytest.approx(best.costs.sum(axis=0))
    assert best.certificate.cost == pytest.approx(best.totals.max())
    assert best.imbalance == pytest.approx(best.totals.max() / best.totals.mean())
    assert float(best.certificate.statistics["bound of any pieces"]) <= best.certificate.cost
    assert sum(best.edges) == graph.edges
    assert np.concatenate([best.members(0), best.members(1)]).tolist() == list(range(16))
    page = str(best)
    assert page.splitlines()[0] == "16 vertices in 2 pieces, in the order 'given'"
    assert len(page.splitlines()) == 5
    assert "predicted seconds" in page
    equal = partition(graph, 2, "edges")
    assert equal.certificate.unit == "edges"
    assert max(equal.edges) == equal.certificate.cost


def test_the_order_whose_largest_piece_is_least_is_taken() -> None:
    graph = blocks((8, 8, 8, 8))
    model = CostModel((Layer(10, 4),), ACCESS)
    each = {name: partition(graph, 4, model, name).certificate.cost for name in ("given", "rcm", "metis")}
    best = partition(graph, 4, model, tuple(each))
    assert best.certificate.cost == min(each.values())
    assert best.named == min(each, key=lambda name: each[name])
    arranged = best.arranged(graph)
    assert np.diff(arranged.offsets[list(best.cuts)]).tolist() == list(best.edges)


def test_rows_of_others_count_where_they_have_a_price() -> None:
    graph = blocks((10, 6), shuffled=False)
    model = CostModel((Layer(10, 4),), Access(line=4, caches=()))
    free = partition(graph, 2, model)
    dear = partition(graph, 2, model, row_seconds=free.certificate.cost / 10)
    assert sum(dear.reads) < sum(free.reads)
    assert dear.cuts == (0, 10, 16)
    assert dear.certificate.gap < 1e-9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pieces": 0}, "expected at least 1"),
        ({"cost": "time"}, "no cost 'time': expected a CostModel"),
        ({"order": "random"}, "no order 'random': expected one of given"),
        ({"order": ()}, "expected the name of an order"),
        ({"cut": "middle"}, "no cut 'middle'"),
        ({"cut": "parts"}, "expected the order metis or kahip"),
        ({"row_seconds": 1.0}, "count, in seconds, where cost is a CostModel"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        partition(**{"graph": blocks((3, 3)), "pieces": 2, **options})


def test_a_bipartite_graph_is_cut_as_it_is_numbered() -> None:
    graph = Adjacency.of_edges(np.array([5, 6, 2, 0]), np.array([0, 0, 1, 2]), 3, 7)
    assert partition(graph, 2, "edges").edges == (2, 2)
    with pytest.raises(ValueError, match="bipartite graph"):
        partition(graph, 2, "edges", "metis")


@pytest.mark.parametrize(("order", "library"), [("metis", "pymetis"), ("kahip", "kahip")])
def test_a_library_that_is_not_there_is_named(order: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(ImportError, match=rf"needs {library}: install it with `pip install 'girih\[gnn\]'`"):
        partition(blocks((3, 3)), 2, "edges", order)


# ------------------------------------------------------------------------------------------- between epochs


def times_of(graph: Adjacency, vertex: float, edge: float) -> Callable[[tuple[int, ...]], np.ndarray]:
    def taken(cuts: tuple[int, ...]) -> np.ndarray:
        return np.array([np.diff(cuts) * vertex + np.diff(graph.offsets[list(cuts)]) * edge])

    return taken


def test_a_cut_moves_until_it_is_balanced_and_then_stays() -> None:
    graph = blocks((20, 5, 5, 5, 5), shuffled=False)
    taken = times_of(graph, 30.0, 1.0)  # a vertex is as 30 edges, which the guess does not know
    cutter = repartitioner(graph, 2, CostModel((Layer(10, 0),), Access(caches=())), epochs=20)
    first = cutter.partition
    for _ in range(8):
        cutter = cutter.after(taken(cutter.partition.cuts))
    assert 1 <= cutter.moves <= 3
    least = min(taken((0, cut, 40)).max() for cut in range(41))
    assert taken(cutter.partition.cuts).max() <= 1.02 * least < taken(first.cuts).max()
    stayed = cutter.after(taken(cutter.partition.cuts))
    assert stayed.partition is cutter.partition
    assert stayed.model.samples == cutter.model.samples + 2


@pytest.mark.parametrize("options", [{"row_seconds": 1e6}, {"threshold": 0.9}, {"epochs": 1}])
def test_a_move_that_does_not_pay_is_not_made(options: dict[str, Any]) -> None:
    graph = blocks((20, 5, 5, 5, 5), shuffled=False)
    cutter = repartitioner(graph, 2, CostModel((Layer(10, 0),), Access(caches=())), **{"epochs": 20, **options})
    for _ in range(3):
        cutter = cutter.after(times_of(graph, 10.0, 1.0)(cutter.partition.cuts))
    assert cutter.moves == 0


def test_a_piece_on_a_slower_core_gets_less() -> None:
    graph = blocks((5,) * 16, shuffled=False)
    alike, slower = times_of(graph, 30.0, 1.0), np.array([1.0, 1.5])
    cutter = repartitioner(graph, 2, CostModel((Layer(10, 0),), Access(caches=())), epochs=50)
    for _ in range(20):
        cutter = cutter.after(alike(cutter.partition.cuts) * slower)
    least = min((alike((0, cut, 80)) * slower).max() for cut in range(81))
    assert (alike(cutter.partition.cuts) * slower).max() <= 1.05 * least  # a vertex is 2 %
    assert cutter.moves <= 4


def test_vertices_that_change_their_piece_are_counted() -> None:
    assert moved((0, 5, 10), (0, 5, 10)) == 0
    assert moved((0, 5, 10), (0, 8, 10)) == 3
    assert moved((0, 0, 10), (0, 10, 10)) == 10


def test_pieces_of_all_cuts_are_measured_by_turns() -> None:
    clock = iter(np.cumsum([0.0, *[1.0] * 100]))
    asked = []
    times = measured([lambda *piece: asked.append(piece)] * 2, 2, [(0, 3, 3, 5), (0, 5)], lambda: next(clock), 3)
    assert [one.tolist() for one in times] == [[[[1.0, 0.0, 1.0]] * 2] * 3, [[[1.0]] * 2] * 3]
    assert asked[:6] == [(0, 0, 3), (0, 3, 5), (1, 0, 3), (1, 3, 5), (0, 0, 5), (1, 0, 5)]
    assert len(asked) == 18
