"""Edges become compressed rows: the same ones in memory and over files, with what is mended said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from girih.gnn import DataError
from girih.gnn.data.edges import Edges, Mending, compress

VERTICES = 50


def random_edges(seed: int, weighted: bool, count: int = 400, blocks: int = 7) -> tuple[Edges, np.ndarray, np.ndarray]:
    """Edges in blocks, their pairs and values."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, VERTICES, (count, 2))
    values = random.random((count, 1)).astype(np.float32)
    parts = np.array_split(np.arange(count), blocks)
    rows = [(pairs[part, 0], pairs[part, 1], values[part] if weighted else None) for part in parts]
    return Edges("edges", rows, VERTICES, columns=int(weighted)), pairs, values


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("loops", ["keep", "drop"])
def test_rows_are_those_of_scipy(weighted: bool, undirected: bool, loops: str) -> None:
    edges, pairs, values = random_edges(0, weighted)
    graph, own, _ = compress(edges, Mending(loops, undirected=undirected))
    ones = values[:, 0] if weighted else np.ones(len(pairs), np.float32)
    kept = pairs[:, 0] != pairs[:, 1] if loops == "drop" else np.ones(len(pairs), bool)
    matrix = sparse.coo_array((ones[kept], (pairs[kept, 1], pairs[kept, 0])), shape=(VERTICES, VERTICES)).tocsr()
    if undirected:
        matrix = (matrix + matrix.T - sparse.diags_array(matrix.diagonal())).tocsr()
    matrix.sort_indices()
    kinds = matrix.data > 0
    assert np.array_equal(graph.offsets, matrix.indptr)
    assert np.array_equal(graph.neighbours, matrix.indices[kinds])
    assert graph.neighbours.dtype == np.int32
    if weighted:
        assert own is not None
        np.testing.assert_allclose(own[:, 0], matrix.data, rtol=1e-6)
    else:
        assert own is None


@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_larger_than_memory_is_the_same(weighted: bool) -> None:
    """Blocks go to a file, and are dealt out to ranges of vertices."""
    whole, values, notes = compress(random_edges(1, weighted)[0], Mending())
    for memory in (48 * 100, 48):
        graph, own, said = compress(random_edges(1, weighted)[0], Mending(memory=memory))
        assert np.array_equal(graph.offsets, whole.offsets)
        assert np.array_equal(graph.neighbours, whole.neighbours)
        assert said == notes
        assert (values is None and own is None) or np.array_equal(values, own)


def test_duplicates() -> None:
    def edges(weighted: bool) -> Edges:
        values = np.array([[1], [2], [4]], np.float32) if weighted else None
        return Edges("edges", [(np.array([0, 1, 0]), np.array([1, 0, 1]), values)], 2, columns=int(weighted))

    graph, values, notes = compress(edges(True), Mending())
    assert graph.neighbours.tolist() == [1, 0]
    assert values is not None
    assert values[:, 0].tolist() == [2, 5]
    assert notes == ("1 duplicate edge added up",)
    _, values, _ = compress(edges(True), Mending(duplicates="drop"))
    assert values is not None
    assert values[:, 0].tolist() == [2, 1]
    graph, _, notes = compress(edges(False), Mending())
    assert graph.edges == 2
    assert notes == ("1 duplicate edge dropped",)
    _, counts, _ = compress(edges(False), Mending(duplicates="sum"))
    assert counts is not None
    assert counts[:, 0].tolist() == [1, 2]
    graph, _, _ = compress(edges(False), Mending(duplicates="keep"))
    assert graph.neighbours.tolist() == [1, 0, 0]
    with pytest.raises(DataError, match="edge from 0 to 1 occurs several times: duplicates='sum'"):
        compress(edges(False), Mending(duplicates="error"))


@pytest.mark.parametrize(
    ("pairs", "options", "says"),
    [
        ([(0, 1), (5, 0)], {"vertices": 5}, "edge 1: no vertex 5: there are 5 vertices, from 0"),
        ([(0, 1), (-1, 0)], {}, "edge 1: no vertex -1: vertices are numbers from 0"),
        ([(0, 1), (2**40, 0)], {}, r"no vertex 1099511627776: expected numbers below 2147483647"),
        ([(0, 1), (0, 2**30)], {}, r"2 edges and a vertex 1073741824: number vertices from 0 without gaps"),
        ([], {}, "has no edges"),
        ([(1, 1)], {"self_loops": "error"}, "edge 0: vertex 1 has an edge to itself"),
        ([(1, 1)], {"self_loops": "drop"}, "has no edges"),
        ([(1, 1)], {"self_loops": "never"}, "no self_loops='never': expected one of keep, drop, error"),
        ([(1, 1)], {"duplicates": "never"}, "no duplicates='never': expected one of sum, drop, keep, error, None"),
        ([(1, 1)], {"undirected": True, "vertices": 2, "sources": 3}, "vertices of two kinds"),
    ],
)
def test_edges_that_are_refused(pairs: list[tuple[int, int]], options: dict, says: str) -> None:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    known = {name: options.pop(name) for name in ("vertices", "sources") if name in options}
    with pytest.raises(DataError, match=says):
        compress(Edges("edges", [(table[:, 0], table[:, 1], None)], **known), Mending(**options))


def test_values_must_be_finite() -> None:
    block = (np.array([0, 1]), np.array([1, 0]), np.array([[1], [np.nan]], np.float32))
    with pytest.raises(DataError, match="edge 1: an edge's values must be finite"):
        compress(Edges("edges", [block], columns=1), Mending())
