"""Tiles that are not in memory: files that are mapped, and sources that are read part by part.

A mapped tile is a tensor as any other, whose pages the system writes to disk and drops where memory is short. Its file
has no name: it is gone with the tensor, however the worker ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from girih.capture.lazy.sources import Part
from girih.run.worker.parts import Box, Cuts, Tensor, shape_of


def mapped(shape: tuple[int, ...], dtype: Any, directory: str | None = None) -> Tensor:
    """An uninitialised tensor in a file of its own, in this directory or the one for temporary files.

    Raises:
        OSError: there is no room on the disk.
    """
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    with tempfile.TemporaryFile(prefix="girih-tile-", dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would end the process when a page is written
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=dtype).view(shape)


def on_file(tensor: Tensor, directory: str | None = None) -> Tensor:
    """The same elements in a file."""
    on_disk = mapped(tuple(tensor.shape), tensor.dtype, directory)
    on_disk.copy_(tensor)
    return on_disk


class Streamed:
    """A worker's tile of a source, which is read where it is needed and not kept: only what a tile is asked for.

    by: what reads a box of the source, if not the source itself does.
    """

    __slots__ = ("box", "by", "part")

    nbytes = 0

    def __init__(self, part: Part, box: Box | None = None, by: Callable[[Box], Tensor] | None = None) -> None:
        self.part = part
        self.box = part.box if box is None else box
        self.by = by

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.box)

    def narrow(self, dimension: int, start: int, length: int) -> Streamed:
        """As a tensor's; reads nothing."""
        box = list(self.box)
        first = box[dimension][0] + start
        box[dimension] = (first, first + length)
        return Streamed(self.part, tuple(box), self.by)

    def cut(self, cuts: Cuts) -> Streamed:
        part = self
        for dimension, start, length in cuts:
            part = part.narrow(dimension, start, length)
        return part

    def __getitem__(self, rows: slice) -> Tensor:
        return self.narrow(0, rows.start, rows.stop - rows.start).read()

    def read_by(self, by: Callable[[Box], Tensor]) -> Streamed:
        return Streamed(self.part, self.box, by)

    def read(self) -> Tensor:
        if self.by is not None:
            return self.by(self.box)
        return torch.from_numpy(Part(self.part.source, self.box).read())

    def to(self, *_: Any) -> Streamed:
        return self

    def cpu(self) -> Tensor:
        return self.read()


def in_memory(tensor: Tensor | Streamed) -> Tensor:
    return tensor.read() if tensor.__class__ is Streamed else tensor
