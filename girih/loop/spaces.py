"""Iteration spaces: the keys of a loop's iterations, with a value for each."""

from __future__ import annotations

import builtins
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from girih.loop.capture.body import KnownSpace as Known
from girih.loop.capture.values import Scalar
from girih.loop.code.entries import Column, Entries, Ragged, taken
from girih.loop.reading import Parse, read_text

SPLIT, RANDOMIZE = 1, 2
"""Streams of random numbers of their own: a user's generator of the same seed may have made the data."""


@dataclass(frozen=True, eq=False)
class Space:
    """The iterations of loops.

    entries: with their keys, for a sparse space. starts, stops: the indices of each dimension, for a space that has all
    of them; values: an array of their values, if they have any. relabelled: for a dimension that `randomize` has
    permuted, the old index of each new one.
    """

    stops: tuple[int, ...]
    starts: tuple[int, ...] = ()
    entries: Entries | None = None
    values: np.ndarray | None = None
    relabelled: tuple[tuple[int, np.ndarray], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """One more than the largest index of each dimension."""
        return self.stops

    @property
    def known(self) -> Known:
        """What the analysis is told."""
        if self.entries is not None:
            return Known(self.stops, self.entries.values, self.entries.tuple_value)
        values = () if self.values is None else (Scalar(str(self.values.dtype)),)
        return Known(self.stops, values, False, self.starts)

    def __len__(self) -> int:
        if self.entries is not None:
            return len(self.entries)
        return int(np.prod([max(0, stop - start) for start, stop in zip(self.starts, self.stops, strict=True)]))

    def listed(self) -> Entries:
        """The entries of a space that has all indices, as a list."""
        if self.entries is not None:
            return self.entries
        ranges = [np.arange(start, stop) for start, stop in zip(self.starts, self.stops, strict=True)]
        keys = tuple(item.reshape(-1) for item in np.meshgrid(*ranges, indexing="ij"))
        columns: tuple[Column, ...] = () if self.values is None else (self.values[keys],)
        return Entries(keys, columns, self.stops)

    def numbers(self) -> np.ndarray:
        """The numbers of the listed entries, by which iterations draw: of a space that has all indices, their own."""
        if self.entries is not None:
            return np.arange(len(self))
        return np.ravel_multi_index(self.listed().keys, self.stops).astype(np.int64)

    def map(self, function: Callable[..., Any]) -> Space:
        """The same keys with other values: function(values), of whole columns at once, gives one column or a tuple."""
        entries = self.listed()
        made = function(*entries.columns)
        columns = made if isinstance(made, tuple) else (made,)
        return replace(self, entries=_entries(entries.keys, columns, entries.shape, isinstance(made, tuple)), starts=())

    def group_by(self, dim: int) -> Space:
        """A space of one dimension, with an entry for each index of `dim` that there is.

        Its value is a tuple of arrays: the other indices of the group's entries, and their values.
        """
        entries = self.listed()
        if not 0 <= dim < len(entries.keys):
            raise ValueError(f"dim={dim}: expected one of {builtins.range(len(entries.keys))}")
        order = np.argsort(entries.keys[dim], kind="stable")
        keys, counts = np.unique(entries.keys[dim], return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        others = [entries.keys[other] for other in builtins.range(len(entries.keys)) if other != dim]
        columns = []
        for column in (*others, *entries.columns):
            if isinstance(column, Ragged) or column.ndim > 1:
                raise ValueError("group_by takes entries whose values are single numbers")
            columns.append(Ragged(np.ascontiguousarray(column[order]), offsets))
        grouped = Entries((_compact(keys),), tuple(columns), (entries.shape[dim],), True)
        return Space(grouped.shape, entries=grouped)

    def randomize(self, *dims: int, seed: int = 0) -> Space:
        """The indices of these dimensions (all, by default) permuted at random, so that heavy ones are spread.

        Arrays that are subscripted by them must be permuted alike: `relabelled` has each new index's old one.
        """
        entries = self.listed()
        generator = np.random.default_rng([seed, RANDOMIZE])
        keys, labels = list(entries.keys), dict(self.relabelled)
        for dim in dims or builtins.range(len(keys)):
            old = generator.permutation(entries.shape[dim])
            new = np.empty_like(old)
            new[old] = np.arange(len(old))
            keys[dim] = _compact(new[keys[dim]])
            labels[dim] = labels[dim][old] if dim in labels else old
        return replace(
            self, starts=(), entries=replace(entries, keys=tuple(keys)), relabelled=tuple(sorted(labels.items()))
        )

    def split(self, fraction: float, seed: int = 0) -> tuple[Space, Space]:
        """Two spaces of the same shape; each entry is in the second with probability fraction, else in the first."""
        entries = self.listed()
        held = np.random.default_rng([seed, SPLIT]).random(len(entries)) < fraction
        return tuple(  # type: ignore[return-value]
            Space(entries.shape, entries=taken(entries, chosen), relabelled=self.relabelled)
            for chosen in (np.flatnonzero(~held), np.flatnonzero(held))
        )

    def __repr__(self) -> str:
        kind = "dense" if self.entries is None else "sparse"
        return f"<girih {kind} space {' × '.join(map(str, self.stops))}, {len(self):,} iterations>"


def sparse(
    source: Any,
    values: Any = None,
    *,
    shape: Sequence[int] | None = None,
    parse: Parse | None = None,
    keys: int | Sequence[str] | None = None,
) -> Space:
    """An iteration space of keys with values.

    source: a file (`.npz` of SciPy or with arrays `keys0`, `keys1`, …, `values`; `.parquet`; any other is text), a
    SciPy sparse array, or arrays of keys, one for each dimension, with `values`. values: an array with a number or a
    row for each entry, a Ragged column, or a tuple of such columns, which makes each entry's value a tuple. shape: one
    more than the largest index, by default of those that there are. parse: for text, of a line: (key, value). keys: of
    text without parse, how many numbers of a line are the key; of Parquet, the names of the key's columns.

    Raises:
        ValueError: a key is negative or lies outside the shape, or columns differ in length; a line of a text file
            cannot be parsed (its number and text are named).
    """
    if isinstance(source, str | os.PathLike):
        return _from_file(Path(source), shape, parse, keys)
    if hasattr(source, "tocoo"):
        found = source.tocoo()
        row, column = found.coords if hasattr(found, "coords") else (found.row, found.col)
        return Space(tuple(found.shape), entries=_entries((row, column), (found.data,), tuple(found.shape)))
    given = (source,) if isinstance(source, np.ndarray) and source.ndim == 1 else tuple(source)
    columns = () if values is None else values if isinstance(values, tuple) else (values,)
    made = _entries(given, columns, None if shape is None else tuple(shape), isinstance(values, tuple))
    return Space(made.shape, entries=made)


def dense(values: Any) -> Space:
    """A space of all indices of an array, each with the element as its value."""
    given = np.ascontiguousarray(values)
    return Space(given.shape, (0,) * given.ndim, values=given)


def range(*sizes: int | tuple[int, int]) -> Space:
    """A space of all indices, without values: each size is a number n, for 0 ≤ i < n, or a pair (start, stop).

    Of one dimension the key is a number, of several a tuple.
    """
    if not sizes:
        raise ValueError("a space has at least one dimension: give its size")
    pairs = [(0, size) if isinstance(size, int | np.integer) else tuple(size) for size in sizes]
    for start, stop in pairs:
        if start < 0 or stop < start:
            raise ValueError(f"a dimension from {start} to {stop}: expected 0 ≤ start ≤ stop")
    return Space(tuple(int(stop) for _, stop in pairs), tuple(int(start) for start, _ in pairs))


def _from_file(path: Path, shape: Sequence[int] | None, parse: Parse | None, keys: int | Sequence[str] | None) -> Space:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix == ".npz":
        try:
            if not zipfile.is_zipfile(path):
                raise zipfile.BadZipFile("it is no zip file")
            made = _from_npz(path)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path} is no whole .npz file: {error}") from error
    elif path.suffix in (".parquet", ".pq"):
        made = _from_parquet(path, keys)
    else:
        number = keys if isinstance(keys, int) else None
        indices, columns, is_tuple = read_text(path, parse, number)
        made = _entries(indices, columns, None if shape is None else tuple(shape), is_tuple)
    if shape is not None:
        made = _entries(made.keys, made.columns, tuple(shape), made.tuple_value)
    return Space(made.shape, entries=made)


def _from_npz(path: Path) -> Entries:
    with np.load(path) as file:
        names = set(file.files)
        if {"format", "shape", "data"} <= names:
            import scipy.sparse

            found = scipy.sparse.load_npz(path).tocoo()
            return _entries((found.row, found.col), (found.data,), tuple(found.shape))
        indices: list[np.ndarray] = []
        while f"keys{len(indices)}" in names:
            indices.append(file[f"keys{len(indices)}"])
        if not indices:
            raise ValueError(f"{path} has arrays {', '.join(sorted(names))}: expected keys0, keys1, … and values")
        return _entries(tuple(indices), (file["values"],) if "values" in names else (), None)


def _from_parquet(path: Path, keys: int | Sequence[str] | None) -> Entries:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'girih[loops]'") from error
    table = parquet.read_table(path)
    names = table.column_names
    chosen = list(names[:2] if keys is None else names[:keys] if isinstance(keys, int) else keys)
    missing = [name for name in chosen if name not in names]
    if missing:
        raise ValueError(f"{path} has columns {', '.join(names)}: there is no {missing[0]}")
    for name in chosen:
        if table.column(name).null_count or not pyarrow.types.is_integer(table.column(name).type):
            kind, nulls = table.column(name).type, table.column(name).null_count
            raise ValueError(
                f"{path}: column {name} is {kind} with {nulls} nulls: expected keys, integers without nulls"
            )
    arrays = {name: table.column(name).to_numpy() for name in names}
    rest = [name for name in names if name not in chosen]
    columns = tuple(arrays[name] for name in rest)
    return _entries(tuple(arrays[name] for name in chosen), columns, None, len(columns) > 1)


def _entries(
    keys: Sequence[Any], columns: Sequence[Any], shape: tuple[int, ...] | None, is_tuple: bool = False
) -> Entries:
    """Checked, and keys in as few bytes as they need."""
    if not keys:
        raise ValueError("a space has at least one dimension: give an array of keys for each")
    arrays = []
    for dim, item in enumerate(keys):
        found = np.asarray(item)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            given = f"{found.dtype}{list(found.shape)}"
            raise ValueError(f"keys of dimension {dim} are {given}: expected integers, one for each entry")
        arrays.append(found)
    count = len(arrays[0])
    sizes = [len(item) for item in (*arrays, *columns)]
    if set(sizes) != {count}:
        raise ValueError(f"columns of {', '.join(map(str, sizes))} entries: expected equal numbers")
    least = [int(item.min()) if count else 0 for item in arrays]
    most = [int(item.max()) if count else -1 for item in arrays]
    sizes = [high + 1 for high in most] if shape is None else list(shape)
    if len(sizes) != len(arrays):
        raise ValueError(f"shape {tuple(sizes)} for keys of {len(arrays)} dimensions")
    for dim, (low, high, size) in enumerate(zip(least, most, sizes, strict=True)):
        if low < 0 or high >= size:
            at = int(np.argmax((arrays[dim] < 0) | (arrays[dim] >= size)))
            raise ValueError(f"entry {at} has key {int(arrays[dim][at])} in dimension {dim}: expected 0 ≤ key < {size}")
    made = tuple(column if isinstance(column, Ragged) else np.ascontiguousarray(column) for column in columns)
    for number, column in enumerate(made):
        dtype = column.data.dtype if isinstance(column, Ragged) else column.dtype
        if dtype.kind not in "biuf":
            raise ValueError(f"values of column {number} are {dtype}: expected numbers")
    return Entries(tuple(_compact(item) for item in arrays), made, tuple(map(int, sizes)), is_tuple)


def _compact(keys: np.ndarray) -> np.ndarray:
    small = not len(keys) or int(keys.max()) < 2**31
    return np.ascontiguousarray(keys, dtype=np.int32 if small else np.int64)


@dataclass(frozen=True)
class Text:
    """Lines of a file, and what is to be done with each: recorded, and done in one go when a space is made of it."""

    path: Path
    steps: tuple[Callable[[Any], Any], ...] = ()

    def map(self, function: Callable[[Any], Any]) -> Text:
        """Also apply a function to what each line has become; None leaves it out."""
        return Text(self.path, (*self.steps, function))

    def space(self, shape: Sequence[int] | None = None) -> Space:
        """The iteration space of the (key, value) pairs that lines have become.

        Raises:
            ValueError: a function failed; the line's number and text are named.
        """
        return sparse(self.path, parse=self._parsed, shape=shape)

    def _parsed(self, line: str) -> Any:
        found: Any = line
        for step in self.steps:
            if found is None:
                return None
            found = step(found)
        return found


def text(path: str | Path) -> Text:
    """The lines of a text file; nothing is read before `space()`."""
    return Text(Path(path))
