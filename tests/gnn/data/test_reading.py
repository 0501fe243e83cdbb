"""`load` takes files and objects of many kinds to the same Data, and says what is wrong with others."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from scipy import sparse

from girih.gnn import DataError, community, karate, load, rmat, save


@pytest.fixture
def geometric() -> Any:
    from torch_geometric.data import Data

    random = np.random.default_rng(0)
    edges = torch.from_numpy(random.integers(0, 20, (2, 90)))
    train = torch.arange(20) < 10
    return Data(
        x=torch.randn(20, 5), edge_index=edges, y=torch.arange(20) % 3, train_mask=train,
        val_mask=torch.arange(20) == 12, test_mask=torch.arange(20) > 15,
    )  # fmt: skip


def dense(data: Any) -> np.ndarray:
    """Row v has how often v reads each vertex, or with what weight."""
    graph = data.graph
    ones = np.ones(graph.edges, np.float32) if graph.weights is None else graph.weights
    matrix = np.zeros((graph.vertices, graph.sources), np.float32)
    np.add.at(matrix, (np.repeat(np.arange(graph.vertices), graph.degrees), graph.neighbours), ones)
    return matrix


def test_geometric_data_stays_as_it_is(geometric: Any) -> None:
    data = load(geometric)
    expected = np.zeros((20, 20), np.float32)
    np.add.at(expected, tuple(geometric.edge_index.flip(0).numpy()), 1)
    assert np.array_equal(dense(data), expected)
    assert data.edges == 90  # with duplicates and self loops, as torch_geometric computes
    assert np.array_equal(data.x, geometric.x.numpy())
    assert (data.features, data.classes) == (5, 3)
    assert np.array_equal(data.train, geometric.train_mask.numpy())
    assert np.array_equal(data.validation, geometric.val_mask.numpy())
    once = load(geometric, self_loops="drop", duplicates="drop")
    assert once.edges < 90
    assert not np.diag(dense(once)).any()
    geometric.edge_attr = torch.rand(90, 3, dtype=torch.float64)
    with_features = load(geometric)
    assert with_features.edge_features is not None
    assert with_features.edge_features.dtype == np.float64
    order = np.lexsort(geometric.edge_index.numpy())
    assert np.array_equal(with_features.edge_features, geometric.edge_attr.numpy()[order])


def test_the_karate_club_is_that_of_other_libraries() -> None:
    from torch_geometric.datasets import KarateClub

    own, other = karate(), load(KarateClub()[0])
    graph = networkx.karate_club_graph()
    assert np.array_equal(dense(own), dense(other))
    assert np.array_equal(dense(own) > 0, networkx.to_numpy_array(graph) > 0)
    assert np.array_equal(own.x, other.x)
    assert np.array_equal(own.labels, other.labels)
    assert np.array_equal(own.train, other.train)
    weighted = load(graph)
    assert np.array_equal(dense(weighted), networkx.to_numpy_array(graph, dtype=np.float32))


def test_networkx_with_features_and_words() -> None:
    graph = networkx.DiGraph()
    for place, name in enumerate("cab"):
        graph.add_node(name, x=[float(place), 1.0], label="even" if place % 2 == 0 else "odd")
    graph.add_edge("c", "a")
    graph.add_edge("a", "b", weight=2.0)
    data = load(graph)
    assert data.graph.neighbours.tolist() == [0, 1]
    assert data.graph.offsets.tolist() == [0, 0, 1, 2]  # a reads c, b reads a
    assert data.graph.weights is not None
    assert data.graph.weights.tolist() == [1, 2]  # as networkx has it where an edge has no weight
    assert data.notes == ("1 of 2 edges have no weight, and count as 1",)
    assert data.names == ("even", "odd")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 0]
    assert data.x is not None
    assert data.x.tolist() == [[0, 1], [1, 1], [2, 1]]


def test_sparse_matrices_and_archives(tmp_path: Path, geometric: Any) -> None:
    matrix = sparse.random_array((12, 12), density=0.3, rng=0, format="csr", dtype=np.float32)
    assert np.array_equal(dense(load(matrix)), matrix.toarray())
    assert load(matrix.astype(bool)).graph.weights is None
    path = tmp_path / "matrix.npz"
    sparse.save_npz(path, matrix)
    assert np.array_equal(dense(load(path)), matrix.toarray())
    np.savez_compressed(
        path, adj_data=matrix.data, adj_indices=matrix.indices, adj_indptr=matrix.indptr, adj_shape=(12, 12),
        attr_matrix=np.eye(12), labels=np.arange(12) % 2,
    )  # fmt: skip
    data = load(path)
    assert np.array_equal(dense(data), matrix.toarray())
    assert (data.features, data.classes) == (12, 2)
    np.savez(path, **{name: item.numpy() for name, item in geometric.to_dict().items()})
    assert np.array_equal(dense(load(path)), dense(load(geometric)))
    from scipy.io import mmwrite

    mmwrite(tmp_path / "matrix.mtx", matrix)
    assert np.allclose(dense(load(tmp_path / "matrix.mtx")), matrix.toarray())
    np.savez(path, a=np.arange(3))
    with pytest.raises(DataError, match=r"matrix.npz has the arrays a: expected those of girih.gnn.save"):
        load(path)
    np.savez(path, a=np.array([{}]))
    with pytest.raises(DataError, match=r"matrix.npz is damaged, or no .npz file of arrays: Object arrays"):
        load(path)


def write_planetoid(folder: Path, name: str = "cora") -> None:
    """A data set in the form of Cora: 6 vertices for training, 700 more, 500 of which validate, 29 tested."""
    random = np.random.default_rng(0)
    known, taught = 706, 6
    tested = random.permutation(np.arange(known, known + 30))
    tested = tested[tested != known + 7]  # in no file, as in Citeseer
    hot = np.eye(3, dtype=np.int32)

    def features(count: int) -> Any:
        return sparse.csr_matrix(sparse.random_array((count, 9), density=0.3, rng=random, dtype=np.float32))

    allx, ally = features(known), hot[random.integers(0, 3, known)]
    lists = {v: random.integers(0, known, 3).tolist() for v in range(known + 30)}
    lists[0] += [0, 5, 5]
    for v in range(known + 30):
        for u in lists[v]:
            if v not in lists[u]:
                lists[u].append(v)
    parts = {
        "x": allx[:taught], "y": ally[:taught], "allx": allx, "ally": ally, "tx": features(len(tested)),
        "ty": hot[random.integers(0, 3, len(tested))], "graph": lists,
    }  # fmt: skip
    for part, item in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(item, protocol=2))
    np.savetxt(folder / f"ind.{name}.test.index", tested, "%d")


def test_planetoid_files_as_torch_geometric_reads_them(tmp_path: Path) -> None:
    from torch_geometric.io import read_planetoid_data

    write_planetoid(tmp_path, "citeseer")
    other = load(read_planetoid_data(str(tmp_path), "citeseer"))
    for place in (tmp_path, tmp_path / "ind.citeseer.graph", tmp_path / "ind.citeseer.test.index"):
        data = load(place)
        assert np.array_equal(dense(data), dense(other))
        assert np.array_equal(data.x, other.x)
        known = data.labels >= 0
        assert (~known).sum() == 1
        assert np.array_equal(data.labels[known], other.labels[known])
        assert np.array_equal(data.train, other.train)
        assert np.array_equal(data.validation, other.validation)
        assert np.array_equal(data.test[known], other.test[known])


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("this must not run",))


@pytest.mark.parametrize(
    ("part", "content", "says"),
    [
        ("graph", pickle.dumps(Evil()), "ind.cora.graph is damaged, or no file of a data set: it names .*print"),
        ("allx", b"nothing", "ind.cora.allx is damaged"),
        ("allx", pickle.dumps([1]), "ind.cora.allx has list: expected a matrix"),
        ("graph", pickle.dumps([1]), "ind.cora.graph has list: expected lists of neighbours"),
        ("graph", pickle.dumps({0: [7000]}, 2), "ind.cora.graph: edge 0: no vertex 7000"),
        ("test.index", b"1 2\nx\n", "ind.cora.test.index cannot be read"),
        ("test.index", b"0\n2\n", "ind.cora.test.index has 2 vertices from 0: expected 29, which follow the 706"),
        ("ty", None, "ind.cora.ty cannot be read: No such file"),
    ],
)
def test_planetoid_files_that_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture, part: str, content: bytes | None, says: str
) -> None:
    write_planetoid(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        load(tmp_path)
    assert capsys.readouterr().out == ""


def test_what_is_given_beside_an_edge_list(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 3\n")
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    (tmp_path / "labels.csv").write_text("label\n0\n1\n0\n1\n")
    data = load(
        tmp_path / "edges.txt", x=tmp_path / "x.npy", labels=tmp_path / "labels.csv", train=[0, 1],
        test=[False, False, False, True],
    )  # fmt: skip
    assert (data.features, data.classes, data.vertices) == (3, 2, 4)
    assert data.x is not None
    assert data.x.dtype == np.float32
    assert load(tmp_path / "edges.txt", x=tmp_path / "x.npy", dtype="float64").x.dtype == np.float64
    assert data.train is not None
    assert data.train.tolist() == [True, True, False, False]
    assert data.target().tolist() == [0, 1, -100, -100]
    assert data.components == 1
    assert data.directed
    with pytest.raises(DataError, match="has 5 components between which there is no edge: expected one"):
        load(tmp_path / "edges.txt", vertices=8, connected=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": np.ones((3, 2))}, r"features of shape \[3, 2\]: expected a row for each of 4 vertices"),
        ({"x": np.array([[0.0], [1], [np.nan], [3]])}, "has nan as feature 0 of vertex 2: features must be finite"),
        ({"x": np.array([["a"]] * 4)}, "expected numbers"),
        ({"labels": [0, 1, 2]}, "has 3 labels for 4 vertices"),
        ({"labels": [0, 1, 2, -3]}, "has the label -3 at vertex 3"),
        ({"labels": [-1, -1, -1, -1]}, "has no label but -1"),
        ({"labels": [0.5, 1, 2, 2]}, "expected a whole number for each vertex"),
        ({"labels": ["a", "b", "c", "d"]}, "expected whole numbers from 0; number the classes"),
        ({"labels": np.array([[0, 1], [2, 0], [1, 1], [0, 0]])}, "labels of vertex 1 that are neither 0 nor 1"),
        ({"train": [0, 1], "test": [1, 2]}, "has vertex 1 for test and for train, with 0 more"),
        ({"train": [0, 9]}, "the split 'train' has vertex 9: there are 4 vertices"),
        ({"train": [0, 0]}, "the split 'train' has vertex 0 several times"),
        ({"train": np.ones((4, 10), bool)}, "where there are several splits in columns, choose one"),
        ({"train": np.zeros(4, bool)}, "has no vertex for training"),
        ({"labels": [0, 1, -1, 0], "train": [2]}, "has vertex 2 for training, which has no label"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], says: str) -> None:
    matrix = sparse.coo_array(([1, 1], ([0, 1], [1, 2])), shape=(4, 4))
    with pytest.raises(DataError, match=says):
        load(matrix, **given)


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("nowhere.npz", FileNotFoundError, "there is no such file; expected an .npz file"),
        (3, DataError, "no graph can be read from int: expected"),
        ("rmat:vertices=10", DataError, "rmat:vertices=10: rmat.* missing 1 required positional argument: 'edges'"),
        ("rmat:vertices=ten", DataError, "expected rmat:option=number,…, got 'vertices=ten'"),
        ("grid:rows=0,columns=3", DataError, "grid: rows=0: expected a whole number from 1"),
        ({"edge_index": np.zeros((3, 2))}, DataError, r"edge_index of float64\[3, 2\]: expected integers"),
    ],
)
def test_sources_that_are_refused(source: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load(source)


def test_memory_is_read_as_elsewhere() -> None:
    assert load("grid:rows=3,columns=4", memory="1MB").vertices == 12
    with pytest.raises(DataError, match="memory='much'"):
        load("karate", memory="much")


@pytest.mark.parametrize(
    "name",
    [
        "rmat:vertices=300,edges=2000,features=3,classes=2",
        "barabasi_albert:vertices=300,degree=3",
        "grid:rows=9,columns=5",
        "community:vertices=300,classes=3",
    ],
)
def test_generators_give_the_same_graph_in_little_memory(name: str) -> None:
    data, again = load(name), load(name, memory=20_000)
    assert np.array_equal(data.graph.neighbours, again.graph.neighbours)
    assert np.array_equal(data.graph.offsets, again.graph.offsets)
    assert (data.x is None and again.x is None) or np.array_equal(data.x, again.x)
    assert not data.directed
    other = load(f"{name},seed=1") if not name.startswith("grid") else None
    assert other is None or other.edges != data.edges


def test_what_generators_make() -> None:
    grid = load("grid:rows=9,columns=5")
    assert np.array_equal(dense(grid), networkx.to_numpy_array(networkx.grid_2d_graph(9, 5)))
    grown = load("barabasi_albert:vertices=2000,degree=4")
    assert grown.components == 1
    assert grown.graph.degrees.max() > 10 * grown.graph.degrees.mean()
    web = rmat(1024, 8000)
    assert web.graph.degrees.max() > 10 * web.graph.degrees.mean()
    parts = community(1000, classes=5, mixing=0.1)
    readers = np.repeat(np.arange(1000), parts.graph.degrees)
    inside = (parts.labels[readers] == parts.labels[parts.graph.neighbours]).mean()
    assert 0.85 < inside < 0.97  # 0.9, and a fifth of the tenth
    assert parts.train is not None
    assert parts.train.sum() == 600


def test_options_that_a_source_does_not_take_are_refused(tmp_path: Path, geometric: Any) -> None:
    data = community(30)
    save(data, tmp_path / "graph.npz")
    for source in (data, data.graph, tmp_path / "graph.npz", "community:vertices=30"):
        for options in ({"undirected": True}, {"self_loops": "error"}, {"duplicates": "drop"}, {"weighted": True}):
            with pytest.raises(DataError, match=f"is there already, and {next(iter(options))}=.* says how edges"):
                load(source, **options)
    for source in (geometric, sparse.eye_array(4, format="csr")):
        with pytest.raises(DataError, match="vertices=9 says how edges are read"):
            load(source, vertices=9)


def test_both_directions_of_geometric_edges_count_once_where_asked_for(geometric: Any) -> None:
    geometric.edge_index = torch.tensor([[0, 1, 1], [1, 0, 2]])
    assert dense(load(geometric, undirected=True)).sum() == 4
    assert load(geometric, undirected=True, duplicates="keep").edges == 6


def test_entries_that_are_no_edges_are_none() -> None:
    matrix = sparse.csr_array(np.ones((3, 3), bool))
    matrix.setdiag(False)
    assert matrix.nnz == 9
    assert np.array_equal(dense(load(matrix)), matrix.toarray())
    with pytest.raises(DataError, match="complex entries"):
        load(sparse.csr_array(np.eye(3) * 1j))
