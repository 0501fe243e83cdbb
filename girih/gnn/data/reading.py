"""`load`: data of a path, of a generator's name, or of another library's object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data import generators, objects, planetoid, stored
from girih.gnn.data.data import SPLITS, Data
from girih.gnn.data.edges import MEMORY, Mending
from girih.gnn.data.errors import DataError
from girih.gnn.data.lists import TABLES, table_edges, text_edges
from girih.gnn.data.objects import Parts, as_array, from_edges, split_of
from girih.machine.units import MachineError, parse_bytes

Array = NDArray[Any]
TEXTS = (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el", "")
EXPECTED = (
    "expected an .npz file, planetoid's ind.NAME.* files, an edge list (.txt, .csv, .tsv, .edges, .gz), .mtx, "
    ".parquet, or an object of torch_geometric, networkx or SciPy"
)


def load(
    source: Any,
    *,
    x: Any = None,
    labels: Any = None,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    vertices: int | None = None,
    weighted: bool | None = None,
    self_loops: str = "keep",
    duplicates: str | None = None,
    undirected: bool = False,
    connected: bool = False,
    dtype: str = "float32",
    memory: str | int = MEMORY,
    folder: str | None = None,
    check: bool = True,
) -> Data:
    """Read, check and mend data for a graph network.

    source: an .npz file that `save` wrote, or with torch_geometric's names (edge_index, x, y, train_mask, …), or of
        SciPy's sparse matrices; planetoid's files (`ind.cora.graph`, or their folder); an edge list, `source target`
        or `source target weight` a line, where the target reads the source (.txt, .csv, .tsv, .gz); a Parquet file with
        columns of these names; a Matrix Market file; a generator's name with its options, such as
        `"community:vertices=1000"` or `"karate"`; or an object: torch_geometric's Data, a networkx graph, a sparse
        matrix of SciPy, an Adjacency.
    x, labels, train, validation, test: arrays, or paths of .npy, .csv or .txt files, in place of what the source has.
        Splits are masks or vertices' numbers.
    vertices: how many there are, where an edge list does not reach the last. weighted: whether an edge list has
        weights (default: if it has a third column).
    self_loops, duplicates, undirected: what is done with edges, see `Mending`. By default self loops stay, weights of
        an edge that occurs twice are added up, and edges without weights count once; torch_geometric's edges stay as
        they are. connected: refuse a graph of several components.
    dtype: of the features. memory: what edges may take while they are sorted, such as "500MB"; what is more goes to a
        temporary file, in `folder`. check: compare every byte of an .npz with its checksum.

    Raises:
        DataError: the source is damaged or does not fit; names file and line, or the vertex. OSError: it is not there.
    """
    try:
        most = parse_bytes(memory) if isinstance(memory, str) else memory
    except (MachineError, ValueError) as error:
        raise DataError(f"memory={memory!r}: {error}") from error
    mending = Mending(self_loops, duplicates, undirected, most, folder)
    given = {"x": x, "labels": labels, "train": train, "validation": validation, "test": test}
    found = _read(source, mending, vertices, weighted, check)
    _check_used(source, found, mending, vertices, weighted)
    changed = {name: _file_array(item, name) for name, item in given.items() if item is not None}
    if isinstance(found, Data):
        data = found
        if changed or (data.x is not None and data.x.dtype != dtype):
            kept = {name: getattr(data, name) for name in given}
            data = data.but(**_typed({**kept, **changed}, data.vertices, dtype))
    else:
        name = str(source) if isinstance(source, str | Path) else f"the {type(source).__name__}"
        graph, rest = found["graph"], {key: found[key] for key in ("edge_features", "names", "notes") if key in found}
        parts = {name: found.get(name) for name in given}
        data = Data(graph, name=name, **rest, **_typed({**parts, **changed}, graph.vertices, dtype))
    if connected and data.components > 1:
        raise DataError(f"{data.name} has {data.components} components between which there is no edge: expected one")
    return data


def _check_used(
    source: Any, found: Data | Parts, mending: Mending, vertices: int | None, weighted: bool | None
) -> None:
    """
    Raises:
        DataError: options are given that only edges have that are read, and this source has other ones.
    """
    path = isinstance(source, str | Path)
    listed = path and Path(source).suffix not in (".npz", ".mtx") and not isinstance(found, Data)
    listed = listed and not Path(source).is_dir()
    given = {"vertices": vertices, "weighted": weighted} if not listed else {}
    if isinstance(source, Adjacency) or (isinstance(found, Data) and not (path and planetoid.find(Path(source)))):
        plain = Mending()
        given |= {
            name: getattr(mending, name)
            for name in ("self_loops", "duplicates", "undirected")
            if getattr(mending, name) != getattr(plain, name)
        }
    if named := [f"{name}={value!r}" for name, value in given.items() if value is not None]:
        what = source if path else f"a {type(source).__name__}"
        raise DataError(
            f"{what} is a graph that is there already, and {', '.join(named)} says how edges are read: leave it out, "
            "or give the edges (a torch_geometric Data, a SciPy matrix, an edge list)"
        )


def _read(source: Any, mending: Mending, vertices: int | None, weighted: bool | None, check: bool) -> Data | Parts:
    if isinstance(source, Data):
        return source
    if isinstance(source, Adjacency):
        return {"graph": source}
    if isinstance(source, str | Path):
        return _read_path(source, mending, vertices, weighted, check)
    if hasattr(source, "edge_index") or (isinstance(source, dict) and "edge_index" in source):
        return objects.from_geometric(source, mending)
    if hasattr(source, "adj_t"):
        raise DataError("the Data has adj_t and no edge_index: load it before ToSparseTensor is applied")
    if hasattr(source, "is_directed") and hasattr(source, "edges"):
        return objects.from_networkx(source, mending)
    if hasattr(source, "tocoo"):
        return objects.from_sparse(source, mending)
    raise DataError(f"no graph can be read from {type(source).__name__}: {EXPECTED}")


def _read_path(
    source: str | Path, mending: Mending, vertices: int | None, weighted: bool | None, check: bool
) -> Data | Parts:
    path = Path(source)
    if not path.exists():
        if isinstance(source, str) and (made := generators.by_name(source, mending)) is not None:
            return made
        raise FileNotFoundError(2, f"there is no such file; {EXPECTED}", str(source))
    if (known := planetoid.find(path)) is not None:
        as_published = replace(mending, self_loops="drop") if mending.self_loops == "keep" else mending
        return planetoid.read(*known, as_published)
    kind = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if path.is_dir():
        return _reddit(path, mending, check)
    if kind == ".npz":
        data = stored.read(path, check)
        return data if data is not None else _archive(path, mending, check)
    if kind == ".mtx":
        from scipy.io import mmread

        try:
            return objects.from_sparse(mmread(path), mending)
        except ValueError as error:
            raise DataError(f"{path} is damaged, or no Matrix Market file: {error}") from error
    if kind in TABLES:
        return from_edges(table_edges(path, vertices, weighted), mending)
    if kind in TEXTS:
        return from_edges(text_edges(path, vertices, weighted), mending)
    raise DataError(f"{path}: files that end in {path.suffix} are not read: {EXPECTED}")


def _archive(path: Path, mending: Mending, check: bool) -> Parts:
    """An .npz file that others wrote."""
    arrays = dict(stored.mapped(path, check))
    if "edge_index" in arrays:
        return objects.from_geometric(arrays, mending)
    from scipy import sparse

    if {"indices", "indptr", "shape"} <= arrays.keys():
        return objects.from_sparse(_rows(path, arrays, ""), mending)
    if {"adj_indices", "adj_indptr", "adj_shape"} <= arrays.keys():
        parts = objects.from_sparse(_rows(path, arrays, "adj_"), mending)
        if "attr_indices" in arrays:
            parts["x"] = _rows(path, arrays, "attr_").toarray()
        elif "attr_matrix" in arrays:
            parts["x"] = arrays["attr_matrix"]
        return parts | {"labels": arrays.get("labels")}
    if {"row", "col", "shape"} <= arrays.keys():
        rows = (arrays.get("data", np.ones(len(arrays["row"]))), (arrays["row"], arrays["col"]))
        return objects.from_sparse(sparse.coo_array(rows, shape=tuple(arrays["shape"])), mending)
    raise DataError(
        f"{path} has the arrays {', '.join(sorted(arrays))}: expected those of girih.gnn.save, or edge_index with x, "
        "y, train_mask, val_mask and test_mask, or a sparse matrix of scipy.sparse.save_npz"
    )


def _rows(path: Path, arrays: dict[str, Array], prefix: str) -> Any:
    from scipy import sparse

    values = arrays.get(f"{prefix}data")
    own = [arrays[f"{prefix}{part}"] for part in ("indices", "indptr")]
    try:
        matrix = sparse.csr_array(
            (np.ones(len(own[0]), np.float32) if values is None else values, *own),
            shape=tuple(map(int, arrays[f"{prefix}shape"])),
        )
        matrix.check_format()
    except (ValueError, KeyError) as error:
        raise DataError(f"{path} has a damaged matrix: {error}") from error
    if bytes(arrays.get("format", np.array(b"csr")).tobytes()).strip(b"\0")[:3] == b"csc":
        raise DataError(f"{path} has a matrix in compressed columns: save its tocsr()")
    return matrix


def _reddit(folder: Path, mending: Mending, check: bool) -> Parts:
    """Reddit's published files (Hamilton et al. 2017): reddit_graph.npz and reddit_data.npz."""
    if not (folder / "reddit_graph.npz").exists():
        raise DataError(f"{folder} is a folder without a data set: {EXPECTED}")
    parts = _archive(folder / "reddit_graph.npz", mending, check)
    arrays = stored.mapped(folder / "reddit_data.npz", check)
    kinds = arrays["node_types"]
    return parts | {
        "x": arrays["feature"], "labels": arrays["label"],
        **{name: kinds == number for number, name in enumerate(SPLITS, 1)},
    }  # fmt: skip


def _file_array(item: Any, name: str) -> Any:
    """An array that is given, or of a file."""
    if not isinstance(item, str | Path):
        return item
    path = Path(item)
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open(encoding="utf-8") as file:
            first = file.readline()
        if not first:
            raise ValueError("it is empty")
        skip = int(first[:1].isalpha())
        separator = next((mark for mark in ",;\t" if mark in first), None)
        whole = name != "x"
        return np.loadtxt(path, np.int64 if whole else np.float32, delimiter=separator, skiprows=skip,
                          ndmin=1 if whole else 2)  # fmt: skip
    except ValueError as error:
        raise DataError(f"{path} has no numbers for {name}: {error}") from error


def _typed(parts: Parts, vertices: int, dtype: str) -> Parts:
    """Fields in the types of a Data."""
    typed: Parts = split_of(parts, vertices)
    if parts["x"] is not None:
        x = as_array(parts["x"])
        if x.dtype.kind not in "fiub":
            raise DataError(f"features are {x.dtype}: expected numbers")
        typed["x"] = x if x.dtype == dtype else x.astype(dtype)
    if parts["labels"] is not None:
        labels = as_array(parts["labels"])
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype.kind not in "fiub":
            raise DataError(f"labels are {labels.dtype}: expected whole numbers from 0; number the classes")
        whole = labels.ndim == 1 and (labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all()))
        typed["labels"] = labels.astype(np.int64 if whole else np.float32, copy=False)
    return typed
