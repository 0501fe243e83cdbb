"""Keys by identity: equal things are told apart, and none is lost while its key lives; what is kept with a graph."""

from __future__ import annotations

import pickle

from graphs import perceptron

from girih.graph import Graph, kept_with_graph
from girih.graph.graph import Same


def test_one_thing_is_one_key_and_an_equal_one_is_another() -> None:
    one, two = [1, 2], [1, 2]
    assert Same(one) == Same(one)
    assert len({Same(one): 0, Same(two): 1, Same(one): 2}) == 2
    assert Same(one) != one


def test_a_key_keeps_its_thing_alive() -> None:
    keys = [Same([number]) for number in range(1000)]
    assert len(set(keys)) == 1000
    assert [key.item for key in keys] == [[number] for number in range(1000)]


def test_what_is_kept_with_a_graph_is_computed_once_and_is_in_no_pickle_of_it() -> None:
    """Its micro-batches are graphs many times as large, which no worker needs."""
    asked: list[int] = []

    @kept_with_graph
    def parts(graph: Graph, count: int) -> list[Graph]:
        asked.append(count)
        return [perceptron(1) for _ in range(count)]

    graph = perceptron(1)
    before = len(pickle.dumps(graph))
    assert parts(graph, 50) is parts(graph, 50)
    assert parts(perceptron(1), 50) is not parts(graph, 50)
    assert asked == [50, 50]
    assert len(pickle.dumps(graph)) == before
    again = pickle.loads(pickle.dumps(graph))
    assert again.nodes == graph.nodes
    assert len(parts(again, 2)) == 2
