"""What a checkpoint holds: entries by path, their chunks, and where the bytes of each chunk are.

A manifest is data: JSON with a checksum (`girih.run.training.sealed`). A chunk is kept in blocks, one after another:
it is halved along its longest dimension until a block has at most `block` bytes. Each block is a box, whose elements
are its bytes, little end first and in row-major order, with a checksum of its own; so who needs a part of a chunk,
along whatever dimension it is cut, reads and checks little more than that.

Checksums are the first 128 bits of SHA-256: processors of today compute it at 1 to 2 GB/s, BLAKE2b half as fast; CRC-32
is faster still but lets one of 4 billion damages pass.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from girih.run.training.sealed import SealError, fields, items, natural, naturals, seal, text, unseal
from girih.run.worker.parts import Box

KIND = "checkpoint"
FORMAT = 2
BLOCK_BYTES = 1 << 20
FILE_NAME = r"[a-z]{1,20}-[0-9a-f]{1,16}(\.bin)?"
CHECKSUM = r"[0-9a-f]{32}"
DTYPES = {
    name: getattr(torch, name)
    for name in (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bfloat16", "float16",
        "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    )
    if hasattr(torch, name)
}  # fmt: skip
"""By name: a manifest names no other attribute of PyTorch."""


@dataclass(frozen=True)
class Chunk:
    """A box of an entry: bytes `start` to `stop` of a file. checksums: of each of its blocks."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    stop: int
    checksums: tuple[str, ...]

    @property
    def box(self) -> Box:
        return tuple((offset, offset + size) for offset, size in zip(self.offsets, self.sizes, strict=True))


@dataclass(frozen=True)
class Entry:
    """A whole tensor, in chunks that do not overlap and leave nothing out."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * int(DTYPES[self.dtype].itemsize)


@dataclass(frozen=True)
class Manifest:
    """step: how many were done. seed: of the run. folder: in which the files are. files: their bytes, by name.
    block: the most bytes of a block. digest: of the manifest itself, once it was written."""

    step: int
    seed: int
    folder: str
    files: Mapping[str, int]
    entries: Mapping[str, Entry]
    block: int = BLOCK_BYTES
    digest: str = ""


def checksum(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


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


# ------------------------------------------------------------------------------------------- as text


def to_bytes(manifest: Manifest) -> bytes:
    return seal(
        KIND,
        FORMAT,
        {
            "step": manifest.step,
            "seed": manifest.seed,
            "byteorder": "little",
            "block": manifest.block,
            "folder": manifest.folder,
            "files": dict(manifest.files),
            "entries": {
                path: {
                    "dtype": entry.dtype,
                    "shape": entry.shape,
                    "chunks": [
                        {
                            "offsets": chunk.offsets,
                            "sizes": chunk.sizes,
                            "file": chunk.file,
                            "bytes": [chunk.start, chunk.stop],
                            "checksums": chunk.checksums,
                        }
                        for chunk in entry.chunks
                    ],
                }
                for path, entry in manifest.entries.items()
            },
        },
    )


def from_bytes(data: bytes) -> Manifest:
    """Read a manifest, and check that all of it fits together.

    Raises:
        SealError: it does not.
    """
    content, digest = unseal(KIND, FORMAT, data)
    known = fields(content, "step", "seed", "byteorder", "block", "folder", "files", "entries")
    text(known["byteorder"], "little")
    block = natural(known["block"], 1 << 40)
    if block < 16:
        raise SealError(f"has blocks of {block} bytes")
    files = {text(name, FILE_NAME): natural(size) for name, size in fields(known["files"]).items()}
    seed = known["seed"]
    if type(seed) is not int or seed.bit_length() > 1024:
        raise SealError(f"has the seed {str(seed)[:60]!r}, which is no whole number of at most 1024 bits")
    entries = {}
    for path, entry in fields(known["entries"]).items():
        try:
            entries[path] = _entry(entry, files, block)
        except SealError as error:
            raise SealError(f"{error}, in the entry {path[:200]!r}") from error
    _check_files(files, entries.values())
    return Manifest(natural(known["step"]), seed, text(known["folder"], FILE_NAME), files, entries, block, digest)


def _entry(content: Any, files: Mapping[str, int], block: int) -> Entry:
    fields(content, "dtype", "shape", "chunks")
    if not isinstance(content["dtype"], str) or content["dtype"] not in DTYPES:
        raise SealError(f"has the dtype {str(content['dtype'])[:60]!r}, which is none of {', '.join(DTYPES)}")
    itemsize = DTYPES[content["dtype"]].itemsize
    shape = naturals(content["shape"])
    if prod(size for size in shape if size) * itemsize > 1 << 62:
        raise SealError(f"has the shape {list(shape)}, which is too large")
    chunks = []
    for chunk in items(content["chunks"]):
        fields(chunk, "offsets", "sizes", "file", "bytes", "checksums")
        offsets, sizes = naturals(chunk["offsets"], len(shape)), naturals(chunk["sizes"], len(shape))
        start, stop = naturals(chunk["bytes"], 2)
        name = text(chunk["file"], FILE_NAME)
        checksums = tuple(text(item, CHECKSUM) for item in items(chunk["checksums"]))
        if any(offset + size > length for offset, size, length in zip(offsets, sizes, shape, strict=True)):
            raise SealError(f"has a chunk at {list(offsets)} of {list(sizes)} outside of the shape {list(shape)}")
        if stop - start != prod(sizes) * itemsize or stop > files.get(name, -1):
            raise SealError(f"has a chunk at bytes {start} to {stop} of {name}, which does not fit")
        if len(checksums) != count_blocks(sizes, itemsize, block):
            raise SealError(f"has {len(checksums)} checksums for a chunk of {list(sizes)}")
        chunks.append(Chunk(offsets, sizes, name, start, stop, checksums))
    if not tiles(shape, [chunk.box for chunk in chunks]):
        raise SealError(f"has chunks that overlap or leave something out of {list(shape)}")
    return Entry(content["dtype"], shape, tuple(chunks))


def _check_files(files: Mapping[str, int], entries: Iterable[Entry]) -> None:
    """Every byte of every file belongs to one chunk."""
    ranges: dict[str, list[tuple[int, int]]] = {name: [] for name in files}
    for entry in entries:
        for chunk in entry.chunks:
            ranges[chunk.file].append((chunk.start, chunk.stop))
    for name, boxes in ranges.items():
        at = 0
        for start, stop in sorted(boxes):
            if start != at:
                break
            at = stop
        if at != files[name]:
            raise SealError(f"has chunks that do not fill the file {name}")


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
