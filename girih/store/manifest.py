"""What is kept, as data: arrays by name, their chunks, where the bytes of each chunk are, and what a face says beside.

A manifest is JSON with a checksum (`girih.store.sealed`). A chunk is kept in blocks, one after another:
it is halved along its longest dimension until a block has at most `block` bytes. Each block is a box, whose elements
are its bytes, little end first and in row-major order, with a checksum of its own; so who needs a part of a chunk,
along whatever dimension it is cut, reads and checks little more than that.

Checksums are the first 128 bits of SHA-256: processors of today compute it at 1 to 2 GB/s, BLAKE2b half as fast; CRC-32
is faster still but lets one of 4 billion damages pass.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
import numpy as np

from girih.store.sealed import Natural, StoredError, seal, unseal

Box = tuple[tuple[int, int], ...]  # (start, stop) of each dimension, in the whole array's coordinates

FORMAT = 2
BLOCK_BYTES = 1 << 20
NAMES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bfloat16", "float16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
LACKING = {"bfloat16": "uint16", "complex32": "uint32"}  # in NumPy, which has them as whole numbers of the same bits
DTYPES = {name: np.dtype("uint8" if name.startswith("float8") else LACKING.get(name, name)) for name in NAMES}
"""By the names that PyTorch gives them."""
Dtype = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(NAMES)})\Z")]
FileName = Annotated[str, msgspec.Meta(pattern=r"^([a-z]{1,20}-[0-9a-f]{1,16}(\.bin)?)?\Z")]
Checksum = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]


class Chunk(msgspec.Struct, frozen=True):
    """A box of an entry. bytes: its first in a file, and one behind its last. checksums: of each of its blocks."""

    offsets: tuple[Natural, ...]
    sizes: tuple[Natural, ...]
    file: FileName
    bytes: tuple[Natural, Natural]
    checksums: tuple[Checksum, ...]

    @property
    def box(self) -> Box:
        return tuple((offset, offset + size) for offset, size in zip(self.offsets, self.sizes, strict=True))


class ArrayEntry(msgspec.Struct, frozen=True):
    """A whole array, in chunks that do not overlap and leave nothing out."""

    dtype: Dtype
    shape: tuple[Natural, ...]
    chunks: tuple[Chunk, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * DTYPES[self.dtype].itemsize


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept; a face derives its own, with what else it has to say. KIND: by which a file says whose it is.

    folder: in which the files are; "" where the manifest ends the only one, whose name is "". files: their bytes, by
    name. block: the most bytes of a block.
    """

    KIND: ClassVar[str] = "thing"

    byteorder: Literal["little"] = "little"
    block: Annotated[int, msgspec.Meta(ge=16, le=1 << 40)] = BLOCK_BYTES
    folder: FileName = ""
    files: dict[FileName, Natural]
    entries: dict[str, ArrayEntry]

    def to_bytes(self) -> bytes:
        return seal(self.KIND, FORMAT, self)

    @property
    def digest(self) -> str:
        """A checksum by which two readers know that they have read the same manifest."""
        return checksum(self.to_bytes())


Kept = TypeVar("Kept", bound=Manifest)


def from_bytes(data: bytes, kind: type[Kept]) -> Kept:
    """Read a manifest, and check that all of it fits together.

    Raises:
        StoredError: it does not.
    """
    manifest = unseal(kind.KIND, FORMAT, data, kind)
    if any(not name for name in manifest.files) == bool(manifest.folder):
        raise StoredError("has files without names, or no folder of files")
    ranges: dict[str, list[tuple[int, int]]] = {name: [] for name in manifest.files}
    for path, entry in manifest.entries.items():
        try:
            _check(entry, manifest)
        except StoredError as error:
            raise StoredError(f"{error}, in the entry {path[:200]!r}") from error
        for chunk in entry.chunks:
            ranges[chunk.file].append(chunk.bytes)
    for name, own in ranges.items():
        edges = [(0, 0), *sorted(own), (manifest.files[name],) * 2]
        if any(stop != start for (_, stop), (start, _) in itertools.pairwise(edges)):
            raise StoredError(f"has chunks that do not fill the file {name!r}")
    return manifest


def _check(entry: ArrayEntry, manifest: Manifest) -> None:
    itemsize, shape = DTYPES[entry.dtype].itemsize, entry.shape
    if prod(size for size in shape if size) * itemsize > 1 << 62:
        raise StoredError(f"has the shape {list(shape)}, which is too large")
    for chunk in entry.chunks:
        start, stop = chunk.bytes
        if not len(chunk.offsets) == len(chunk.sizes) == len(shape) or any(
            end > size for (_, end), size in zip(chunk.box, shape, strict=True)
        ):
            raise StoredError(f"has a chunk at {chunk.offsets} of {chunk.sizes} outside of the shape {list(shape)}")
        if stop - start != prod(chunk.sizes) * itemsize or stop > manifest.files.get(chunk.file, -1):
            raise StoredError(f"has a chunk at bytes {start} to {stop} of {chunk.file!r}, which does not fit")
        if len(chunk.checksums) != count_blocks(chunk.sizes, itemsize, manifest.block):
            raise StoredError(f"has {len(chunk.checksums)} checksums for a chunk of {list(chunk.sizes)}")
    if not tiles(shape, [chunk.box for chunk in entry.chunks]):
        raise StoredError(f"has chunks that overlap or leave something out of {list(shape)}")


def checksum(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


# ------------------------------------------------------------------------------------------- blocks and chunks


def blocks(sizes: tuple[int, ...], itemsize: int, most: int) -> Iterator[tuple[Box, int]]:
    """The blocks of a chunk in the order of their bytes: box within the chunk, and bytes."""
    if 0 in sizes:
        return
    lengths = _block_lengths(sizes, itemsize, most)
    grid = (range(0, size, length) for size, length in zip(sizes, lengths, strict=True))
    for starts in itertools.product(*grid):
        edges = zip(starts, lengths, sizes, strict=True)
        box = tuple((start, min(start + length, size)) for start, length, size in edges)
        yield box, prod(stop - start for start, stop in box) * itemsize


def count_blocks(sizes: tuple[int, ...], itemsize: int, most: int) -> int:
    """How many `blocks` has."""
    if 0 in sizes:
        return 0
    lengths = _block_lengths(sizes, itemsize, most)
    return prod(-(-size // length) for size, length in zip(sizes, lengths, strict=True))


def _block_lengths(sizes: tuple[int, ...], itemsize: int, most: int) -> tuple[int, ...]:
    lengths = list(sizes)
    while prod(lengths) * itemsize > most and max(lengths) > 1:
        longest = lengths.index(max(lengths))
        lengths[longest] = -(-lengths[longest] // 2)
    return tuple(lengths)


def tiles(shape: tuple[int, ...], boxes: list[Box]) -> bool:
    """Do the boxes fill the shape without overlapping? Linear where they form a grid, else by pairs."""
    if not all(stop > start for box in boxes for start, stop in box):
        return False
    if sum(prod(stop - start for start, stop in box) for box in boxes) != prod(shape):
        return False
    cuts = [sorted({edge for box in boxes for edge in box[axis]}) for axis in range(len(shape))]
    after = [dict(itertools.pairwise(edges)) for edges in cuts]
    if len(boxes) == prod(len(edges) - 1 for edges in cuts) and all(
        after[axis][start] == stop for box in boxes for axis, (start, stop) in enumerate(box)
    ):
        return len({tuple(start for start, _ in box) for box in boxes}) == len(boxes)
    edges = np.array(boxes, np.int64)
    for number, box in enumerate(edges[:-1]):
        others = edges[number + 1 :]
        if bool(((others[:, :, 0] < box[:, 1]) & (box[:, 0] < others[:, :, 1])).all(axis=1).any()):
            return False
    return True
