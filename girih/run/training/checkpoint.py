"""Checkpoints of a training run: data with checksums, sharded as the program divides.

    DIR/girih.json                the manifest (`girih.run.training.manifest`), which names the folder
    DIR/state-<id>/rank-<n>.bin   what worker n wrote: the bytes of its boxes, one after another

Each worker wrote the boxes that it reports (`girih.run.training.saving`), and reads only the blocks that its boxes
under its own program meet: a run may be resumed with other divisions or another number of devices. Entries are keyed
by path, as in the module's state_dict. Reading runs no code, whoever wrote the files, and every byte is held against
its checksum when it is read. `girih.run.training.dcp` converts to and from torch.distributed.checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from girih.lower import Program
from girih.run.training import durable
from girih.run.training.manifest import DTYPES, Chunk, Manifest, blocks, checksum, from_bytes
from girih.run.training.sealed import LARGEST_BYTES, SealError
from girih.run.worker.initial import key_of
from girih.run.worker.parts import Box, Tensor, box_of, narrow, relative, shape_of

MANIFEST = "girih.json"
DCP_METADATA = ".metadata"
OPEN_FILES = 64


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, or does not belong to this program."""


@dataclass(frozen=True)
class Answer:
    """A worker's reply that does not end the run. error: what was wrong, or "". value: what was asked for."""

    error: str = ""
    value: Any = None


def agreed(answers: Iterable[Answer]) -> list[Any]:
    """The values.

    Raises:
        CheckpointError: one worker has an error; the first one's.
    """
    answers = list(answers)
    for answer in answers:
        if answer.error:
            raise CheckpointError(answer.error)
    return [answer.value for answer in answers]


def read_manifest(directory: str | Path) -> Manifest:
    """What the checkpoint holds.

    Raises:
        CheckpointError: no checkpoint there, one of another format, or a damaged one.
    """
    path = Path(directory) / MANIFEST
    try:
        descriptor, size = durable.open_regular(str(path))
    except FileNotFoundError as error:
        if (Path(directory) / DCP_METADATA).exists():
            raise CheckpointError(_old(directory)) from error
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {MANIFEST}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if size > LARGEST_BYTES:
            raise SealError(f"has {size} bytes, more than the {LARGEST_BYTES} of any manifest")
        data = bytearray(size)
        count = durable.read_into(descriptor, memoryview(data), 0)
        return from_bytes(bytes(data[:count]))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except SealError as error:
        if (Path(directory) / DCP_METADATA).exists() and _is_first_format(bytes(data) if size < 1000 else b""):
            raise CheckpointError(_old(directory)) from error
        raise CheckpointError(f"{path} {error}: resume from another checkpoint") from error
    finally:
        durable.close(descriptor)


def _is_first_format(data: bytes) -> bool:
    try:
        return bool(json.loads(data).get("format") == 1)
    except (ValueError, AttributeError, RecursionError):
        return False


def _old(directory: str | Path) -> str:
    return (
        f"{directory} is a checkpoint of torch.distributed.checkpoint, as girih's first version wrote it: convert it "
        f"with `girih checkpoint import {directory} NEW`, then resume from NEW"
    )


def check_entries(manifest: Manifest, directory: str | Path, program: Program, others: Iterable[str]) -> list[str]:
    """The paths of the program's state that the checkpoint holds.

    others: paths that it need not hold.

    Raises:
        CheckpointError: entries are missing, or have another shape or dtype.
    """
    held, spare = manifest.entries, set(others)
    paths = []
    for item in program.graph.state_inputs:
        key, value = key_of(item), program.graph.values[item.name]
        if key not in held:
            if key not in spare:
                raise CheckpointError(f"{directory} holds no {key!r}; it has {sorted(held)[:8]}")
            continue
        if (held[key].shape, held[key].dtype) != (value.shape, value.dtype):
            raise CheckpointError(
                f"{directory}: {key!r} is {held[key].dtype}{list(held[key].shape)}, the program has "
                f"{value.dtype}{list(value.shape)}"
            )
        paths.append(key)
    return paths


def read(
    directory: str | Path, manifest: Manifest, program: Program, rank: int, paths: Iterable[str]
) -> Iterator[tuple[str, Tensor]]:
    """This worker's boxes, one by one, by input name; only the blocks that they meet are read.

    Raises:
        CheckpointError: a file is missing, damaged or another one.
    """
    wanted = set(paths)
    with Reader(directory, manifest) as reader:
        for item in program.graph.state_inputs:
            if key_of(item) in wanted:
                yield item.name, reader.read(key_of(item), box_of(program, item.name, rank))


class Reader:
    """The tensors of a checkpoint. A context manager."""

    def __init__(self, directory: str | Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self.folder = Path(directory) / manifest.folder
        self._files: dict[str, int] = {}
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            durable.close(self._files.popitem()[1])

    def read(self, path: str, box: Box | None = None) -> Tensor:
        """A box of an entry, or all of it.

        Raises:
            CheckpointError: a file is missing, damaged or another one.
        """
        entry = self.manifest.entries[path]
        if box is None:
            box = tuple((0, size) for size in entry.shape)
        part = torch.empty(shape_of(box), dtype=DTYPES[entry.dtype])
        if part.numel():
            copied = sum(self._copy(path, entry.dtype, chunk, box, part) for chunk in entry.chunks)
            if copied != part.numel():
                raise CheckpointError(f"{self.folder}: the chunks of {path!r} do not fill {box}")
        return part

    def _copy(self, path: str, dtype: str, chunk: Chunk, box: Box, part: Tensor) -> int:
        """Copy what a chunk has of the box; how many elements."""
        if _common(chunk.box, box) is None:
            return 0
        at, copied = chunk.start, 0
        for number, (place, size) in enumerate(blocks(chunk.sizes, DTYPES[dtype].itemsize, self.manifest.block)):
            inside = zip(chunk.offsets, place, strict=True)
            block: Box = tuple((offset + start, offset + stop) for offset, (start, stop) in inside)
            common = _common(block, box)
            if common is not None:
                data = self._block(path, chunk.file, at, size, chunk.checksums[number])
                held = data.view(DTYPES[dtype]).view(shape_of(block))
                target = narrow(part, relative(common, box))
                target.copy_(narrow(held, relative(common, block)))
                copied += target.numel()
            at += size
        return copied

    def _block(self, path: str, name: str, at: int, size: int, expected: str) -> Tensor:
        if self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=torch.uint8)
        data = self._buffer[:size]
        view = memoryview(data.numpy())
        try:
            count = durable.read_into(self._file(name), view, at)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self.folder / name} is gone, which held {path!r}: the checkpoint was replaced while it was read, or "
                "the file was removed: resume again, or from another checkpoint"
            ) from error
        except OSError as error:
            raise CheckpointError(f"{self.folder / name} cannot be read: {error.strerror}") from error
        if count != size or checksum(view) != expected:
            raise CheckpointError(
                f"{self.folder / name} is damaged: bytes {at} to {at + size}, of {path!r}, do not fit their checksum: "
                "resume from another checkpoint"
            )
        return data

    def _file(self, name: str) -> int:
        if name not in self._files:
            if len(self._files) >= OPEN_FILES:
                durable.close(self._files.pop(next(iter(self._files))))
            if self.folder.is_symlink():
                raise CheckpointError(f"{self.folder} is a link: it may lead out of the checkpoint")
            self._files[name], size = durable.open_regular(str(self.folder / name))
            if size != self.manifest.files[name]:
                raise CheckpointError(
                    f"{self.folder / name} has {size} bytes, the checkpoint has {self.manifest.files[name]} there: the "
                    "file was cut or replaced: resume from another checkpoint"
                )
        return self._files[name]


def _common(one: Box, other: Box) -> Box | None:
    """What two boxes of the same tensor share."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return common if all(start < stop for start, stop in common) else None


def damages(directory: str | Path) -> list[str]:
    """What is wrong with a checkpoint whose manifest can be read, each as one line: every byte is read and checked."""
    manifest = read_manifest(directory)
    damaged: dict[str, None] = {}
    with Reader(directory, manifest) as reader:
        for path, entry in manifest.entries.items():
            for chunk in entry.chunks:
                try:
                    reader.read(path, chunk.box)
                except CheckpointError as error:
                    damaged[str(error)] = None
    return list(damaged)
