"""What the blocks of a loop read of files: each stored chunk once, however many blocks and windows lie in it.

A block is some hundred kilobytes, a chunk of a Zarr store or an HDF5 file some megabytes that are read and unpacked as
a whole. Slices that are shifted against each other, as those of a stencil, are windows of one array. So the rows that
the windows of an array show in a block are read once for all of them, up to the end of a chunk, and held until the
blocks are behind them. Beside what the windows show, which the accounts have, this takes memory: as much as the
evaluation has left (`Part.room`). Where chunks do not fit into it, blocks are read one by one. What a block computes
with is contiguous either way, so that its bits do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from girih.capture.lazy.sources import Source, Window
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


def reading(form: LoopForm, outside: list[Any]) -> list[Any]:
    """What a loop reads, for one thread that computes its chunks in order: windows of one array share what is read."""
    groups: dict[Hashable, list[_Shown]] = {}
    for item in _shown(form, outside):
        groups.setdefault(item.key, []).append(item)
    result = list(outside)
    for group in groups.values():
        room = min(outside[item.register].part.room for item in group) // len(groups)
        rows = _rows_at_once(group, room)
        if rows:
            shared = _Held(group, rows)
            for item in group:
                result[item.register] = outside[item.register].read_by(shared.reader(item))
    return result


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
            return rows if rows > 1 or len(group) > 1 else 0
    return 0


def _stored(source: Source, chunks: tuple[int, ...], box: Box, dimension: int) -> int:
    """Bytes of the chunks in which a row lies, for each of their rows."""
    sizes = [
        -(-stop // size) * size - start // size * size
        for place, ((start, stop), size) in enumerate(zip(box, chunks, strict=True))
        if place != dimension
    ]
    return prod(sizes) * source.dtype.itemsize


class _Held:
    """The rows of an array that the current block needs, and those behind them that were read with them.

    pieces: (first row, row behind the last, elements) one behind the other: the rest of what was read before, and what
    was read last. rows: of whose multiples reading ends.
    """

    def __init__(self, group: list[_Shown], rows: int) -> None:
        self.source = group[0].source
        self.dimension = group[0].dimension
        self.box = _around(group)
        self.first = min(item.first for item in group)
        self.last = max(item.last for item in group)
        self.rows = rows
        self.pieces: list[tuple[int, int, Tensor]] = []

    def reader(self, item: _Shown) -> Callable[[Box], Tensor]:
        """What reads a part of a window, whose box is in the coordinates of the window."""
        before, behind = item.first - self.first, self.last - item.last

        def read(box: Box) -> Tensor:
            part = [(begin + start, begin + stop) for begin, (start, stop) in zip(item.origin, box, strict=True)]
            start, stop = part[self.dimension]
            self._bring(start - before, stop + behind)
            return self._part(part)

        return read

    def _bring(self, first: int, last: int) -> None:
        """Have the rows of a block, and let go of those before it."""
        if self.pieces and self.pieces[0][0] <= first and last <= self.pieces[-1][1]:
            return
        start = first
        if self.pieces and self.pieces[0][0] <= first < self.pieces[-1][1]:
            start = self.pieces[-1][1]
            box = [*self.box]
            box[self.dimension] = first, start
            self.pieces = [
                (first, start, self._part(box).clone())
            ]  # what else was read with it goes before more is read
        else:
            self.pieces = []
        stop = min(-(-last // self.rows) * self.rows, self.box[self.dimension][1])
        box = [*self.box]
        box[self.dimension] = start, stop
        content = self.source.read([side[0] for side in box], [side[1] for side in box])
        self.pieces.append((start, stop, torch.from_numpy(content)))

    def _part(self, part: Sequence[tuple[int, int]]) -> Tensor:
        """A part of what is there; contiguous."""
        first, last = part[self.dimension]
        tensors = []
        for start, stop, tensor in self.pieces:
            for place, ((begin, end), side) in enumerate(zip(part, self.box, strict=True)):
                if place != self.dimension:
                    tensor = tensor.narrow(place, begin - side[0], end - begin)
            low, high = max(first, start), min(last, stop)
            if low < high:
                tensors.append(tensor.narrow(self.dimension, low - start, high - low))
        return tensors[0].contiguous() if len(tensors) == 1 else torch.cat(tensors, self.dimension)
