"""Edge lists as text and Parquet: read by Python where small, compiled where large, refused by line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from girih.gnn import Adjacency, DataError, load
from girih.gnn.data import lists
from girih.gnn.data.lists import _parse


def readers(graph: Adjacency) -> list[tuple[int, int]]:
    """(read, reading) of each edge."""
    reading = np.repeat(np.arange(graph.vertices), graph.degrees)
    return list(zip(graph.neighbours.tolist(), reading.tolist(), strict=True))


@pytest.fixture(params=["python", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to parse; the second as for files that are large."""
    if request.param == "compiled":
        monkeypatch.setattr(lists, "_parse", _parse.machine)
    return str(request.param)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.txt", "# a comment\n0 1\n\n1\t2\n  2  0 \n"),
        ("names.csv", "source,target\n0,1\n1,2\n2,0"),
        ("other.el", "% of another kind\r\n0;1\r\n1;2\r\n2;0\r\n"),
        ("edges.txt.gz", "0 1\n1 2\n// like this\n2 0\n"),
    ],
)
def test_lists_of_all_kinds(way: str, tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    graph = load(path).graph
    assert readers(graph) == [(2, 0), (0, 1), (1, 2)]
    assert graph.weights is None


def test_weights(way: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    words = ["0.5", "-2", "1e-3", "+4" if way == "python" else "4", "123456789012345678901234567890", "1.17549435e-38",
             "7.", ".25", "2.5E2"]  # fmt: skip
    path.write_text("from,to,weight\n" + "".join(f"{place},0,{word}\n" for place, word in enumerate(words)))
    graph = load(path).graph
    assert graph.weights is not None
    assert graph.weights.tolist() == [np.float32(float(word)) for word in words]
    assert load(path, weighted=False).graph.weights is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1\n1 x\n", "edges.txt:2: no edge in '1 x': invalid literal"),
        ("# of\n0 1\n\n1 2 3\n", "edges.txt:4: no edge in '1 2 3': expected 2 columns, as in the first line, got 3"),
        ("0 1\n1\n", "edges.txt:2: no edge in '1': expected 2 columns"),
        ("0 1\n1 2.5\n", "edges.txt:2: no edge"),
        ("0 1 nan\n", "edges.txt:1: an edge's values must be finite"),
        ("# none\nsource target\n", "edges.txt has no edges"),
        ("", "edges.txt has no edges"),
        ("3\n", "edges.txt:1: expected 'source target' or 'source target weight', got '3'"),
        ("0 1 2 3\n", "edges.txt:1: expected .* weighted=False leaves out all but the first two"),
        ("a b\n0 1\n0 -1\n", "edges.txt:3: no vertex -1"),
    ],
)
def test_lines_that_are_refused(way: str, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        load(path)


def test_vertices_out_of_range_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("# three\n0 1\n1 2\n2 7\n")
    with pytest.raises(DataError, match=r"edges.txt:4: no vertex 7: there are 3 vertices, from 0"):
        load(path, vertices=3)
    assert load(path, vertices=9).vertices == 9


def test_blocks_cut_anywhere(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    pairs = random.integers(0, 100, (200, 2))
    path = tmp_path / "edges.txt"
    np.savetxt(path, pairs, "%d", header="source target", comments="")
    whole = load(path).graph
    for size in (1, 17, 64):
        monkeypatch.setattr(lists, "BLOCK_BYTES", size)
        graph = load(path).graph
        assert np.array_equal(graph.neighbours, whole.neighbours)
        assert np.array_equal(graph.offsets, whole.offsets)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt.gz"
    data = gzip.compress(b"0 1\n1 0\n" * 4000)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"edges.txt.gz .*end-of-stream"):
        load(path)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "edges.parquet"
    parquet.write_table(pyarrow.table({"src": [0, 1], "dst": [1, 2], "weight": [0.5, 1.0], "other": [1, 1]}), path)
    graph = load(path).graph
    assert readers(graph) == [(0, 1), (1, 2)]
    assert graph.weights is not None
    assert graph.weights.tolist() == [0.5, 1.0]
    for table, says in (
        ({"a": [0], "b": [1]}, "has the columns a, b: expected source, target"),
        ({"src": [0], "dst": [None]}, "the column dst is null"),
        ({"src": [0, 1], "dst": [1, None]}, "a value is missing in rows 0 to 1"),
        ({"src": [0.5], "dst": [1]}, "the column src is double, not whole numbers"),
        ({"src": [0, 3], "dst": [1, -2]}, "edges.parquet: row 1: no vertex -2"),
    ):
        parquet.write_table(pyarrow.table(table), path)
        with pytest.raises(DataError, match=says):
            load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="is no Parquet file, or damaged"):
        load(path)
