"""What the blocks of a loop read of files: each stored chunk once, however many blocks and windows lie in it.

A block is some hundred kilobytes, a chunk of a Zarr store or an HDF5 file some megabytes that are read and unpacked as
a whole. Slices that are shifted against each other, as those of a stencil, are windows of one array. So the rows that
the windows of an array show in a block are read once for all of them, up to the end of a chunk, and held until the
blocks are behind them. Beside what the windows show, which the accounts have, this takes memory: as much as the
evaluation has left (`Part.room`). Where chunks do not fit into it, blocks are read one by one. What a block computes
with is contiguous either way, so that its bits do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from girih.capture.lazy.sources import Reader, Source, Window
from girih.program.fusion.slicing import at_block
from girih.run.loops.form import LoopForm, Read
from girih.run.tiles.spill import Streamed
from girih.run.worker.parts import Box, Tensor


@dataclass(frozen=True)
class _Shown:
    """What each block reads of one register, some rows of a window. source: the array that the window shows, whose
    coordinates all numbers have. origin: where the window begins. box: of the register. first, last: the rows that the
    loop's first block reads; `last` is behind them."""

    register: int
    source: Source
    origin: tuple[int, ...]
    box: Box
    dimension: int
    first: int
    last: int

    @property
    def key(self) -> Hashable:
        return self.source.fingerprint, self.dimension, self.last - self.first


@contextmanager
def reading(form: LoopForm, outside: list[Any]) -> Iterator[list[Any]]:
    """What a loop reads, for one thread that computes its chunks in order: windows of one array share what is read.
    Files that are read stay open within."""
    groups: dict[Hashable, list[_Shown]] = {}
    for item in _shown(form, outside):
        groups.setdefault(item.key, []).append(item)
    result = list(outside)
    with ExitStack() as files:
        for group in groups.values():
            room = min(outside[item.register].part.room for item in group) // len(groups)
            rows = _rows_at_once(group, room)
            if rows:
                shared = _Held(group, rows, files.enter_context(Reader(group[0].source)))
                for item in group:
                    result[item.register] = outside[item.register].read_by(shared.read_by(item))
        yield result


def _shown(form: LoopForm, outside: list[Any]) -> Iterable[_Shown]:
    """Registers of which each block reads some rows, one behind those of the block before."""
    reads: dict[int, list[Read]] = {}
    for statement in form.body:
        if isinstance(statement, Read):
            reads.setdefault(int(statement.source.register[1:]), []).append(statement)
    for register, statements in reads.items():
        cuts = statements[0].source.cuts
        tile = outside[register]
        if len(statements) > 1 or len(cuts) != 1 or not isinstance(tile, Streamed):
            continue
        source, origin = _whole(tile.part.source)
        ((dimension, *ends),) = cuts
        low = form.span[0]
        first, last = at_block(tuple(ends), low, low + form.rows)
        later, _ = at_block(tuple(ends), low + form.rows, low + 2 * form.rows)
        if source is not None and later == last:
            box = tuple((begin + start, begin + stop) for begin, (start, stop) in zip(origin, tile.box, strict=True))
            begin = box[dimension][0]
            yield _Shown(register, source, origin, box, dimension, begin + first, begin + last)


def _whole(source: Source) -> tuple[Source | None, tuple[int, ...]]:
    """The array of a window, and where the window begins in it; None where it leaves out elements between."""
    if not isinstance(source, Window):
        return source, (0,) * len(source.shape)
    within = all(step == 1 for _, _, step in source.slices)
    return source.source if within else None, tuple(start for start, _, _ in source.slices)


def _around(group: list[_Shown]) -> Box:
    sides = zip(*(item.box for item in group), strict=True)
    return tuple((min(start for start, _ in side), max(stop for _, stop in side)) for side in sides)


def _rows_at_once(group: list[_Shown], room: int) -> int:
    """Of how many rows a multiple is read at once, so that what is held, and what unpacking takes, fits into the room:
    those of whole chunks if possible. 0: each block is read by itself."""
    source, dimension = group[0].source, group[0].dimension
    box, chunks = _around(group), source.chunks
    block = max(item.last for item in group) - min(item.first for item in group)
    others = [stop - start for place, (start, stop) in enumerate(box) if place != dimension]
    row = prod(others) * source.dtype.itemsize
    chunk = chunks[dimension] if chunks is not None else 1
    stored = row if chunks is None else _stored(source, chunks, box, dimension)
    more = max(1, source.read_at_once // max(row * chunk, 1))
    for rows in dict.fromkeys((chunk * more, chunk, 1)):
        unpacked = 2 * (block + rows) * stored if rows > 1 and chunks is not None else 0
        if (2 * block + rows) * row + unpacked <= room:
            return rows
    return 1 if len(group) == 1 else 0


def _stored(source: Source, chunks: tuple[int, ...], box: Box, dimension: int) -> int:
    """Bytes of the chunks in which a row lies, for each of their rows."""
    sizes = [
        -(-stop // size) * size - start // size * size
        for place, ((start, stop), size) in enumerate(zip(box, chunks, strict=True))
        if place != dimension
    ]
    return prod(sizes) * source.dtype.itemsize


class _Held:
    """The rows of an array that the current block needs, and those behind them that were read with them, in memory that
    all blocks use again: of memory that is new the system clears each page, which takes as long as to read it.

    first, stop: the rows that are there, in the order of `memory`. rows: of whose multiples reading ends.
    """

    def __init__(self, group: list[_Shown], rows: int, reader: Reader) -> None:
        self.dimension = group[0].dimension
        self.box = _around(group)
        self.begin = min(item.first for item in group)
        self.end = max(item.last for item in group)
        self.rows = rows
        self.reader = reader
        self.first = self.stop = 0
        sizes = [stop - start for start, stop in self.box]
        sizes[self.dimension] = min(self.end - self.begin + rows - 1, sizes[self.dimension])
        self.memory = np.empty(sizes, group[0].source.dtype)
        self.tensor = torch.from_numpy(self.memory)

    def read_by(self, item: _Shown) -> Callable[[Box], Tensor]:
        """What reads a part of a window, whose box is in the coordinates of the window."""
        before, behind = item.first - self.begin, self.end - item.last

        def read(box: Box) -> Tensor:
            part = [(begin + start, begin + stop) for begin, (start, stop) in zip(item.origin, box, strict=True)]
            start, stop = part[self.dimension]
            self._bring(start - before, stop + behind)
            return self._part(part)

        return read

    def _bring(self, first: int, last: int) -> None:
        """Have the rows of a block, and let go of those before it."""
        if self.first <= first and last <= self.stop:
            return
        kept = max(0, self.stop - first) if self.first <= first else 0
        if kept:
            self._rows(0, kept)[...] = self._rows(first - self.first, kept)  # NumPy minds that they may overlap
        self.first, self.stop = first, first + kept
        stop = min(-(-last // self.rows) * self.rows, self.box[self.dimension][1])
        box = [*self.box]
        box[self.dimension] = self.stop, stop
        goal = self._rows(kept, stop - self.stop)
        self.reader.into([side[0] for side in box], [side[1] for side in box], goal)
        self.stop = stop

    def _rows(self, start: int, count: int) -> np.ndarray:
        return self.memory[(*[slice(None)] * self.dimension, slice(start, start + count))]

    def _part(self, part: Sequence[tuple[int, int]]) -> Tensor:
        """A part of what is there; contiguous."""
        tensor = self.tensor
        for place, ((begin, end), side) in enumerate(zip(part, self.box, strict=True)):
            origin = self.first if place == self.dimension else side[0]
            tensor = tensor.narrow(place, begin - origin, end - begin)
        return tensor.contiguous()
