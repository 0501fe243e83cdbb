"""The features of Table 4.2 by their definitions, and what a cache lacks by one that is simulated plainly."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.features import Access, features


def rows(*lists: list[int], sources: int) -> Adjacency:
    """A graph whose vertex v reads lists[v], in that order."""
    offsets = np.cumsum([0, *map(len, lists)])
    return Adjacency(offsets, np.array([read for one in lists for read in one], np.int32), sources)


def test_the_example_of_the_paper() -> None:
    """v1 with neighbours v3, v4, v6 and v8: three runs (§4.4.1)."""
    graph = rows([3, 4, 6, 8], sources=9)
    (counts,) = features(graph, [(100, False)], Access(line=32, caches=())).between([0, 1], (100, False))
    assert counts.tolist() == [1, 4, 3, 3, 7 + 4 + 4]  # ⌈200 / 32⌉ and twice ⌈100 / 32⌉


@given(st.data())
@settings(max_examples=60)
def test_features_of_any_range_by_their_definitions(data: st.DataObject) -> None:
    vertices = data.draw(st.integers(1, 8))
    lists = [data.draw(st.lists(st.integers(0, vertices - 1), max_size=8)) for _ in range(vertices)]
    width, line, cache = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 20))
    graph = rows(*lists, sources=vertices)
    counted = features(graph, [(9, False), (width, False)], Access(line, (4 * cache,)))
    held: OrderedDict[int, None] = OrderedDict()
    expected: list[list[int]] = []
    for some in 2 * lists:
        runs: list[list[int]] = []
        lacking = 0
        for read in some:
            if runs and read - runs[-1][-1] in (0, 1):
                runs[-1].append(read)
            else:
                runs.append([read])
            if read in held:
                held.move_to_end(read)
            else:
                lacking += 1
                held[read] = None
                if len(held) > max(1, cache // width):
                    held.popitem(last=False)
        sizes = [len(set(run)) for run in runs]
        loads = [sum(-(-size * each // line) for size in sizes) for each in (1, width)]
        expected.append([1, len(some), len(runs), *loads, lacking])
    start = data.draw(st.integers(0, vertices))
    stop = data.draw(st.integers(start, vertices))
    expected = expected[vertices:]  # of the second of two epochs
    total = np.sum(expected[start:stop], axis=0, dtype=int) if stop > start else np.zeros(6, int)
    assert counted.between([start, stop], (width, False))[0].tolist() == total.tolist()


def test_what_is_read_backwards_is_added() -> None:
    """Vertex 0 reads all others, and backwards they read it."""
    graph = rows([1, 2, 4], [], [], [], [], sources=5)
    access = Access(line=2, caches=(1000,))
    both = features(graph, [(3, True)], access).between(range(6), (3, True))
    assert both[:, :5].tolist() == [[1, 3, 2, 2, 5], *[[1, 1, 1, 1, 2]] * 2, [1, 0, 0, 0, 0], [1, 1, 1, 1, 2]]
    assert both[:, 5].tolist() == [0] * 5  # a cache of 1,000 bytes has had all since the epoch before
    with pytest.raises(ValueError, match="count layers that read forwards alone"):
        features(rows([6], sources=7), [(3, True)])


def test_what_is_asked_wrongly_is_said() -> None:
    graph = rows([0], sources=1)
    with pytest.raises(ValueError, match="rows of 4 values: these were counted for rows of 3 values, both ways"):
        features(graph, [(3, True)]).of((4, False))
    with pytest.raises(ValueError, match="expected how many values each layer gathers"):
        features(graph, [])
    with pytest.raises(ValueError, match="expected whole numbers of at least 1"):
        Access(line=0)
