"""Arrays in files: written block by block with a checksum of each, read back whole or in boxes.

A file that is whole by itself has the blocks of its arrays, then its manifest, then the manifest's length: `replacing`,
`write` and `reading` are for those. Where workers write side by side each has an `ArrayWriter` for a file of its own,
and the manifest is a file beside them.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Self

import numpy as np
from numpy.typing import NDArray

from girih.store import durable, places
from girih.store.durable import File
from girih.store.manifest import (
    BLOCK_BYTES,
    DTYPES,
    ArrayEntry,
    Box,
    Chunk,
    Kept,
    Manifest,
    blocks,
    checksum,
    from_bytes,
)
from girih.store.sealed import LARGEST_BYTES, StoredError

OPEN_FILES = 64
LENGTH_BYTES = 16
SYNC_BYTES = 256 << 20
"""After so many bytes a writer waits for the disk: at the end the wait is short, too."""


# ------------------------------------------------------------------------------------------- writing


class ArrayWriter:
    """A file to which the blocks of arrays are appended.

    write: appends to the file. sync: waits for the disk. name: of the file in the manifest. chunks: what was written of
    each array.
    """

    def __init__(
        self, write: Callable[[Any], object], sync: Callable[[], object], name: str = "", block: int = BLOCK_BYTES
    ) -> None:
        self.name = name
        self.block = block
        self.at = 0
        self.chunks: dict[str, list[Chunk]] = {}
        self._write, self._sync = write, sync
        self._synced = 0
        self._put: dict[str, tuple[Any, list[tuple[int, ...]]]] = {}  # of each array its dtype, and ends of its boxes

    def append(
        self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], itemsize: int, cut: Callable[[Box], Any]
    ) -> Iterator[int]:
        """Write a box of an array; yields the bytes of each block when it is written.

        cut: the bytes of a box within this box, in row-major order.

        Raises:
            OSError: the disk is full.
        """
        start, checksums = self.at, []
        for box, size in blocks(sizes, itemsize, self.block):
            data = cut(box)
            checksums.append(checksum(data))
            self._write(data)
            self.at += size
            if self.at - self._synced >= SYNC_BYTES:
                self._sync()
                self._synced = self.at
            yield size
        self.chunks.setdefault(name, []).append(Chunk(offsets, sizes, self.name, (start, self.at), tuple(checksums)))

    def put(self, name: str, array: NDArray[Any], offsets: tuple[int, ...] | None = None) -> None:
        """Write an array, or the box of it that begins at these offsets, for `end`. What is put of one name makes up
        the whole array.

        Raises:
            OSError: the disk is full.
        """
        dtype: Any = array.dtype.name
        own = array.astype(DTYPES[dtype], copy=False)

        def cut(box: Box) -> Any:
            return np.ascontiguousarray(own[tuple(slice(*edges) for edges in box)]).reshape(-1).view(np.uint8).data

        offsets = (0,) * array.ndim if offsets is None else offsets
        ends = tuple(offset + size for offset, size in zip(offsets, array.shape, strict=True))
        self._put.setdefault(name, (dtype, []))[1].append(ends)
        if array.size:
            deque(self.append(name, offsets, array.shape, own.itemsize, cut), maxlen=0)

    def end(self, kind: type[Manifest], **content: Any) -> None:
        """Write the manifest of all that was put, of a face's kind and with the fields that this adds.

        Raises:
            StoredError: there is more to say than any manifest may. OSError: the disk is full.
        """
        entries = {
            name: ArrayEntry(dtype, tuple(map(max, *ends, ends[0])), tuple(self.chunks.get(name, ())))
            for name, (dtype, ends) in self._put.items()
        }
        data = kind(files={"": self.at}, entries=entries, block=self.block, **content).to_bytes()
        if len(data) > LARGEST_BYTES:
            raise StoredError(f"has a manifest of {len(data)} bytes, more than the {LARGEST_BYTES} of any")
        self._write(data)
        self._write(b"%015d\n" % len(data))


@contextmanager
def replacing(path: str, name: str = "", block: int = BLOCK_BYTES) -> Iterator[ArrayWriter]:
    """A writer whose file takes the place of what is at the path, or URL, in one step, when the body has ended.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    with places.replacing(path) as (write, sync):
        yield ArrayWriter(write, sync, name, block)


def write(path: str, arrays: Mapping[str, NDArray[Any]], kind: type[Manifest], **content: Any) -> None:
    """Give a file arrays, and what else a face says, in one step.

    Raises:
        OSError: it cannot be written, and what was there is as it was; or the disk does not confirm that it is there.
    """
    with replacing(path) as writer:
        for name, array in arrays.items():
            writer.put(name, array)
        writer.end(kind, **content)
    places.sync(path)


# ------------------------------------------------------------------------------------------- reading


class ArrayReader(Generic[Kept]):
    """The arrays of a manifest. A context manager.

    folder: that of the manifest's files. whole: the file that the manifest ends, in place of a folder.
    """

    def __init__(self, manifest: Kept, folder: str = "", whole: File | None = None) -> None:
        self.manifest = manifest
        self.folder = folder
        self._files: dict[str, File] = {} if whole is None else {"": whole}
        self._buffer = np.empty(0, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def read(self, name: str, box: Box | None = None, into: NDArray[Any] | None = None) -> NDArray[Any]:
        """A box of an array, or all of it; only the blocks that it meets are read. into: an array of its
        shape and dtype to read into, else a new one.

        Raises:
            StoredError: a file is damaged or another one. OSError: it cannot be read.
        """
        entry = self.manifest.entries[name]
        if box is None:
            box = tuple((0, size) for size in entry.shape)
        part = np.empty([stop - start for start, stop in box], DTYPES[entry.dtype]) if into is None else into
        if part.size:
            copied = sum(self._copy(name, chunk, box, part) for chunk in entry.chunks)
            if copied != part.size:
                raise StoredError(f"has chunks of {name!r} that do not fill {box}")
        return part

    def _copy(self, name: str, chunk: Chunk, box: Box, part: NDArray[Any]) -> int:
        """Copy what a chunk has of the box; how many elements."""
        if _common(chunk.box, box) is None:
            return 0
        at, copied = chunk.bytes[0], 0
        for number, (place, size) in enumerate(blocks(chunk.sizes, part.itemsize, self.manifest.block)):
            inside = zip(chunk.offsets, place, strict=True)
            block: Box = tuple((offset + start, offset + stop) for offset, (start, stop) in inside)
            common = _common(block, box)
            if common is not None:
                data = self._block(name, chunk.file, at, size, chunk.checksums[number])
                held = data.view(part.dtype).reshape([stop - start for start, stop in block])
                target = part[_slices(common, box)]
                target[...] = held[_slices(common, block)]
                copied += target.size
            at += size
        return copied

    def _block(self, name: str, file: str, at: int, size: int, expected: str) -> NDArray[Any]:
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.uint8)
        data = self._buffer[:size]
        if self._file(file).read_into(data.data, at) != size or checksum(data) != expected:
            raise StoredError(f"is damaged: bytes {at} to {at + size}, of {name!r}, do not fit their checksum", file)
        return data

    def _file(self, name: str) -> File:
        if name not in self._files:
            if len(self._files) >= OPEN_FILES:
                self._files.pop(next(iter(self._files))).close()
            if os.path.islink(self.folder):
                raise StoredError("is a link: it may lead out of the checkpoint")
            file = self._files[name] = durable.opened(os.path.join(self.folder, name))
            if file.size != self.manifest.files[name]:
                raise StoredError(
                    f"has {file.size} bytes, the checkpoint has {self.manifest.files[name]} there: the file was cut or "
                    "replaced",
                    name,
                )
        return self._files[name]

    def damages(self) -> Iterator[tuple[str, StoredError | OSError]]:
        """What is wrong, chunk by chunk, with the array's name: every byte is read and checked."""
        for name, entry in self.manifest.entries.items():
            for chunk in entry.chunks:
                try:
                    self.read(name, chunk.box)
                except (StoredError, OSError) as error:
                    yield name, error


def reading(kind: type[Kept], file: File) -> ArrayReader[Kept]:
    """What `ArrayWriter.end` ended: of this kind, or refused.

    Raises:
        StoredError: it is damaged, or something else. OSError: it cannot be read.
    """
    length = file.bytes(max(0, file.size - LENGTH_BYTES), file.size)
    if re.fullmatch(rb"\d{15}\n", length) is None:
        raise StoredError(
            "is empty" if not file.size else f"is no {kind.KIND} of girih, or its end is damaged or missing"
        )
    stop = file.size - LENGTH_BYTES
    if not 0 < int(length) <= min(stop, LARGEST_BYTES):
        raise StoredError("is damaged: its manifest has no such length")
    manifest = from_bytes(file.bytes(stop - int(length), stop), kind)
    if manifest.files != {"": stop - int(length)}:
        raise StoredError("is longer or shorter than it was")
    return ArrayReader(manifest, whole=file)


def _common(one: Box, other: Box) -> Box | None:
    """What two boxes of the same array share."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return common if all(start < stop for start, stop in common) else None


def _slices(box: Box, held: Box) -> tuple[Any, ...]:
    """Where a box lies in what holds `held`; an array without dimensions is held as a whole."""
    return (..., *(slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, held, strict=True)))
