"""Cora, Citeseer, Pubmed as published: the files ind.NAME.x, .tx, .allx, .y, .ty, .ally, .graph and .test.index.

The files are pickles of Python 2. Only arrays, SciPy's sparse matrices, dictionaries and lists are taken from them:
nothing that they name is run. The split is the published one (Yang et al. 2016): 20 vertices of each class for
training, the 500 that follow for validation, and those of test.index. Vertices of Citeseer that are in no file are
isolated, with features of zero and no label. Duplicate edges and self loops are dropped, as PyTorch Geometric does.
"""

from __future__ import annotations

import codecs
import io
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.data.data import Data
from girih.gnn.data.edges import Edges, Mending, compress
from girih.gnn.data.errors import DataError

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph")
VALIDATION = 500


class _Sparse:
    """A matrix in compressed rows, as SciPy pickles it: its attributes, and no code."""

    data: Any
    indices: Any
    indptr: Any

    def dense(self) -> NDArray[np.float32]:
        state = vars(self)
        rows, columns = state.get("_shape") or state["shape"]
        offsets, where = np.asarray(self.indptr), np.asarray(self.indices)
        out = np.zeros((rows, columns), np.float32)
        out[np.repeat(np.arange(rows), np.diff(offsets)), where] = self.data
        return out


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in ("csr_matrix", "csr_array") and module.startswith("scipy.sparse"):
            return _Sparse
        if name == "_reconstruct" and module.endswith(("core.multiarray", "_core.multiarray")):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        allowed = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("collections", "defaultdict"): defaultdict,
            ("__builtin__", "list"): list,
            ("builtins", "list"): list,
            ("_codecs", "encode"): codecs.encode,
        }
        if (module, name) in allowed:
            return allowed[module, name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array, matrix, dictionary or list")


def find(path: Path) -> tuple[Path, str] | None:
    """(folder, name) where a path is a folder of such files, or one of them; else None."""
    if path.is_dir():
        graphs = sorted(path.glob("ind.*.graph"))
        if len(graphs) > 1:
            names = ", ".join(file.name.split(".", 1)[1].rsplit(".", 1)[0] for file in graphs)
            raise DataError(f"{path} has several data sets, {names}: give one, such as {graphs[0]}")
        return (path, graphs[0].name[4:-6]) if graphs else None
    if path.name.startswith("ind.") and path.name.count(".") >= 2:
        ending = ".test.index" if path.name.endswith(".test.index") else path.suffix
        return path.parent, path.name[4 : -len(ending)]
    return None


def read(folder: Path, name: str, mending: Mending) -> Data:
    """The data set of a name.

    Raises:
        DataError: a file is missing, damaged, or does not fit the others; it is named.
    """
    parts = {part: _unpickled(folder / f"ind.{name}.{part}") for part in PARTS}
    index_file = folder / f"ind.{name}.test.index"
    try:
        tested = np.loadtxt(index_file, np.int64, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{index_file} cannot be read: {error}") from error
    known, taught = len(parts["allx"]), len(parts["y"])
    if len(tested) != len(parts["tx"]) or not len(tested) or tested.min() < known:
        raise DataError(
            f"{index_file} has {len(tested)} vertices from {tested.min(initial=0)}: expected {len(parts['tx'])}, which "
            f"follow the {known} of allx"
        )
    lists = parts["graph"]
    vertices = max(int(tested.max()) + 1, max(lists, default=-1) + 1)
    x = np.zeros((vertices, parts["allx"].shape[1]), np.float32)
    labels = np.full(vertices, -1, np.int64)
    for part, own, rows in (("all", slice(0, known), "all"), ("t", tested, "test")):
        if parts[f"{part}x"].shape[1] != x.shape[1] or len(parts[f"{part}x"]) != len(parts[f"{part}y"]):
            raise DataError(f"{folder}/ind.{name}.{part}x does not fit .{part}y: other numbers of {rows} rows")
        x[own] = parts[f"{part}x"]
        hot = np.asarray(parts[f"{part}y"])
        labels[own] = np.where(hot.any(1), hot.argmax(1), -1)
    masks: dict[str, Any] = {split: np.zeros(vertices, bool) for split in ("train", "validation", "test")}
    masks["train"][:taught] = True
    masks["validation"][taught : taught + VALIDATION] = True
    masks["test"][tested] = True
    masks["validation"] &= ~masks["test"]
    reading = np.repeat(np.fromiter(lists, np.int64), [len(own) for own in lists.values()])
    read = np.concatenate([np.asarray(own, np.int64) for own in lists.values()]) if lists else reading
    edges = Edges(str(folder / f"ind.{name}.graph"), [(read, reading, None)], vertices)
    graph, _, notes = compress(edges, mending)
    return Data(graph, x, labels, **masks, notes=notes, name=f"{folder}/ind.{name}")


def _unpickled(path: Path) -> Any:
    try:
        item = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever a damaged pickle leads to
        raise DataError(f"{path} is damaged, or no file of a data set: {error}") from error
    if path.name.endswith(".graph"):
        if not isinstance(item, dict) or not item:
            raise DataError(f"{path} has {type(item).__name__}: expected lists of neighbours by vertex")
        return item
    table = item.dense() if isinstance(item, _Sparse) else item
    if not isinstance(table, np.ndarray) or table.ndim != 2:
        raise DataError(f"{path} has {type(item).__name__}: expected a matrix")
    return table
