"""Edges in any order → compressed rows, in bounded memory.

Edges come in blocks, and are kept: in memory, or in a temporary file where they are more than may be held, and are
counted there by the vertex that reads. Then, range of vertices by range, edges are sorted by (vertex, neighbour) as one
number each. A range is as large as may be held, so that 100 M lines of text need a pass over the text, two over the
edges, which count them and deal them out to ranges, and a sort of each range. Results that are too large for memory lie
in a temporary file that has no name any more; it goes when nobody uses it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.errors import DataError
from girih.machine.units import counted

Array = NDArray[Any]
Block = tuple[Array, Array, "Array | None"]
"""(read, reading, values): of each edge the vertex that is read, the vertex that reads it, and its row of values."""

SELF_LOOPS = ("keep", "drop", "error")
DUPLICATES = ("sum", "drop", "keep", "error")
MEMORY = 2 << 30
BYTES_PER_EDGE = 48
"""What an edge takes while its range is sorted, about."""
SPARSE_NUMBERS = 64
"""How many times as many vertices as edges are taken for a mistake, where nobody says how many there are."""


@dataclass(frozen=True)
class Mending:
    """What is done with edges that a graph may not want. Each says in the data's notes how often it did.

    self_loops: of `SELF_LOOPS`. duplicates: `sum` adds the values of an edge that occurs several times, and counts it
    where edges have none; `drop` takes the first; `keep` leaves all; `error` refuses. By default `sum` for edges that
    have values, `drop` for others. undirected: each edge counts in both directions. memory: bytes that edges may take
    while they are sorted; what is more goes to a temporary file. folder: of that file.

    Raises:
        DataError: there is no such mending.
    """

    self_loops: str = "keep"
    duplicates: str | None = None
    undirected: bool = False
    memory: int = MEMORY
    folder: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("self_loops", SELF_LOOPS), ("duplicates", (*DUPLICATES, None))):
            if getattr(self, name) not in known:
                raise DataError(f"no {name}={getattr(self, name)!r}: expected one of {', '.join(map(str, known))}")


@dataclass(frozen=True)
class Edges:
    """Edges as they come. name: for messages. vertices, sources: how many there are, where that is known. columns: of
    values; 0: edges have none. where: the place of an edge by its number, such as `edges.txt:12`."""

    name: str
    blocks: Iterable[Block]
    vertices: int | None = None
    sources: int | None = None
    columns: int = 0
    dtype: Any = np.float32
    where: Callable[[int], str] | None = None

    def place(self, edge: int) -> str:
        return f"{self.name}: edge {edge}" if self.where is None else self.where(edge)


@dataclass
class _Spool:
    """Blocks of edges, kept in memory, or in a file behind that. count: of edges."""

    mending: Mending
    kind: np.dtype
    count: int = 0
    blocks: list[Array] = field(default_factory=list)
    file: IO[bytes] | None = None

    def put(self, rows: Array) -> None:
        self.count += len(rows)
        if self.file is None and self.count * BYTES_PER_EDGE <= self.mending.memory:
            self.blocks.append(rows)
            return
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.mending.folder)  # noqa: SIM115 (as long as the spool)
        for block in (*self.blocks, rows):
            block.tofile(self.file)
        self.blocks.clear()

    def parts(self) -> Iterator[Array]:
        """The edges, in the order in which they came."""
        if self.file is None:
            yield from self.blocks
            return
        self.file.seek(0)
        step = max(1, self.mending.memory // (8 * self.kind.itemsize))
        while len(rows := np.fromfile(self.file, self.kind, step)):
            yield rows

    def whole(self) -> Array:
        rows = list(self.parts())
        self.blocks.clear()
        return np.concatenate(rows) if rows else np.empty(0, self.kind)


def room_for(shape: tuple[int, ...], dtype: Any, mending: Mending) -> Array:
    """A new array, in memory, or in a temporary file without a name where it is larger than may be held."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= mending.memory:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=mending.folder) as file:
        file.truncate(size)
        return np.memmap(file, dtype, "r+", shape=shape)


def compress(edges: Edges, mending: Mending) -> tuple[Adjacency, Array | None, tuple[str, ...]]:
    """(compressed rows, values of the edges in their order, what was mended).

    Linear in the edges, but for sorting; memory as `Mending` says, and 16 bytes for each vertex.

    Raises:
        DataError: a vertex is out of range, or an edge is refused; with its place.
    """
    if mending.undirected and edges.sources not in (None, edges.vertices):
        raise DataError(f"{edges.name} has vertices of two kinds: undirected=True is for edges among vertices of one")
    spool, largest, loops = _collected(edges, mending)
    vertices = edges.vertices
    if vertices is None:
        vertices = largest + 1
        if vertices > SPARSE_NUMBERS * spool.count + (1 << 20):
            raise DataError(
                f"{edges.name} has {spool.count} edges and a vertex {vertices - 1}: number vertices from 0 without "
                f"gaps, or say vertices={vertices}"
            )
    sources = edges.sources if edges.sources is not None else vertices
    graph, values, twice = _sorted(spool, vertices, sources, edges, mending)
    notes = []
    if loops:
        notes.append(f"{counted(loops, 'self loop')} {'dropped' if mending.self_loops == 'drop' else 'kept'}")
    if twice:
        done = {"sum": "added up", "drop": "dropped", "keep": "kept"}[_duplicates(edges, mending)]
        notes.append(f"{counted(twice, 'duplicate edge')} {done}")
    return graph, values, tuple(notes)


def _duplicates(edges: Edges, mending: Mending) -> str:
    return mending.duplicates or ("sum" if edges.columns else "drop")


def _collected(edges: Edges, mending: Mending) -> tuple[_Spool, int, int]:
    """(all edges, the largest vertex, self loops)."""
    known = max(edges.vertices or 0, edges.sources or 0)
    whole = np.int64 if known >= 2**31 else np.int32
    kind = np.dtype([("read", whole), ("reading", whole), ("values", edges.dtype, (edges.columns,))])
    spool, largest, loops, number = _Spool(mending, kind), -1, 0, 0
    for read, reading, values in edges.blocks:
        if not len(read):
            continue
        _check_range(edges, read, reading, number, np.iinfo(whole).max)
        if values is not None and not (finite := np.isfinite(values)).all():
            edge = int(np.argmin(finite.reshape(len(values), -1).all(1)))
            raise DataError(f"{edges.place(number + edge)}: an edge's values must be finite, got {values[edge]}")
        own = read == reading
        if own.any() and edges.sources in (None, edges.vertices):
            loops += int(own.sum())
            if mending.self_loops == "error":
                edge = int(np.argmax(own))
                raise DataError(
                    f"{edges.place(number + edge)}: vertex {read[edge]} has an edge to itself: self_loops='keep' or "
                    "'drop' allows it"
                )
        number += len(read)
        rows = np.empty(len(read), kind)
        rows["read"], rows["reading"] = read, reading
        if values is not None:
            rows["values"] = np.reshape(values, (len(rows), edges.columns))
        if mending.self_loops == "drop" and loops:
            rows, own = rows[~own], own[~own]
        if mending.undirected:
            back = rows[~own]
            back["read"], back["reading"] = back["reading"].copy(), back["read"].copy()
            rows = np.concatenate([rows, back])
        if len(rows):
            largest = max(largest, int(rows["read"].max()), int(rows["reading"].max()))
            spool.put(rows)
    if not spool.count:
        raise DataError(f"{edges.name} has no edges: a graph network has nothing to read there")
    return spool, largest, loops


def _check_range(edges: Edges, read: Array, reading: Array, first: int, most: int) -> None:
    for numbers, limit in ((read, edges.sources if edges.sources is not None else edges.vertices),
                           (reading, edges.vertices)):  # fmt: skip
        if int(numbers.min()) >= 0 and int(numbers.max()) < (most if limit is None else limit):
            continue
        edge = int(np.argmax((numbers < 0) | (numbers >= (most if limit is None else limit))))
        if limit is None and numbers[edge] >= 0:
            why = f"expected numbers below {most}, or vertices= to say how many there are"
        else:
            why = f"there are {limit} vertices, from 0" if limit is not None else "vertices are numbers from 0"
        raise DataError(f"{edges.place(first + edge)}: no vertex {numbers[edge]}: {why}")


def _sorted(
    spool: _Spool, vertices: int, sources: int, edges: Edges, mending: Mending
) -> tuple[Adjacency, Array | None, int]:
    """(compressed rows, values, duplicates)."""
    duplicates = _duplicates(edges, mending)
    counted = duplicates == "sum" and not edges.columns
    columns = 1 if counted else edges.columns
    neighbours = room_for((spool.count,), np.int32 if max(vertices, sources) < 2**31 else np.int64, mending)
    values = room_for((spool.count, columns), edges.dtype, mending) if columns else None
    kept = np.zeros(vertices + 1, np.int64)
    filled = twice = 0
    for first, rows in _ranges(spool, vertices, mending):
        key = (rows["reading"].astype(np.int64) - first) * sources + rows["read"]
        own: Array = rows["values"]
        if edges.columns:
            order = np.argsort(key, kind="stable")  # so that sums have one order, and the first is the first
            key, own = key[order], rows["values"][order]
        else:
            key.sort()
        new = np.concatenate([[True], key[1:] != key[:-1]])
        again = len(key) - int(new.sum())
        twice += again
        if again and duplicates == "error":
            reading, read = divmod(int(key[int(np.argmin(new))]), sources)
            raise DataError(
                f"{edges.name}: the edge from {read} to {first + reading} occurs several times: duplicates='sum', "
                "'drop' or 'keep' allows it"
            )
        starts = np.flatnonzero(new)
        if counted:
            own = np.diff(starts, append=len(key)).reshape(-1, 1)
        elif again and duplicates == "sum":
            own = np.add.reduceat(own, starts, axis=0)
        elif again and duplicates == "drop":
            own = own[starts]
        if again and duplicates != "keep":
            key = key[starts]
        stop = filled + len(key)
        neighbours[filled:stop] = key % sources
        if values is not None:
            values[filled:stop] = own
        found = np.bincount(key // sources)
        kept[first + 1 : first + 1 + len(found)] = found
        filled = stop
    np.cumsum(kept, out=kept)
    if counted and not twice:  # every edge counts as one
        values = None
    return Adjacency(kept, neighbours[:filled], sources), None if values is None else values[:filled], twice


def _ranges(spool: _Spool, vertices: int, mending: Mending) -> Iterator[tuple[int, Array]]:
    """(first vertex, edges) of ranges of vertices, each as large as may be held while it is sorted."""
    most = max(1, mending.memory // BYTES_PER_EDGE)
    if spool.file is None:
        yield 0, spool.whole()
        return
    offsets = np.zeros(vertices + 1, np.int64)
    for rows in spool.parts():
        found = np.bincount(rows["reading"])
        offsets[1 : 1 + len(found)] += found
    np.cumsum(offsets, out=offsets)
    cuts = [0]
    while cuts[-1] < vertices:
        stop = int(np.searchsorted(offsets, offsets[cuts[-1]] + most, side="right")) - 1
        cuts.append(max(stop, cuts[-1] + 1))
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=mending.folder)) for _ in cuts[1:]]
        for rows in spool.parts():
            into = np.searchsorted(cuts, rows["reading"], side="right") - 1
            order = np.argsort(into, kind="stable")
            edges = np.searchsorted(into[order], np.arange(len(cuts)))
            rows = rows[order]
            for number, file in enumerate(files):
                rows[edges[number] : edges[number + 1]].tofile(file)
        spool.file.close()
        for first, file in zip(cuts, files, strict=False):
            file.seek(0)
            rows = np.fromfile(file, spool.kind)
            file.close()
            if len(rows):
                yield first, rows
