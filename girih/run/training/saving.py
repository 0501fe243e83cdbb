"""How a checkpoint is written: beside the one that is there, which it replaces in one step.

Each worker writes the boxes that it reports (of equal copies the lowest rank writes) into a file of a new folder, and
syncs it. Then the driver syncs the folder and replaces the manifest, which names the folder: until that one step the
checkpoint before is whole, and from then on the new one. A lock, which the system takes from a dead process, keeps two
savers apart; its holder removes what savers left that died. Where a file system knows no locks nobody is kept out, and
only the folder that was replaced is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET
from msgspec.structs import replace

from girih.graph import Graph, Input
from girih.program import Program
from girih.run.training.checkpoint import (
    DCP_METADATA,
    MANIFEST,
    Answer,
    CheckpointError,
    CheckpointManifest,
    read_manifest,
)
from girih.run.worker.initial import key_of
from girih.run.worker.parts import Tensor, box_of, cut, reporters
from girih.store import durable, places
from girih.store.manifest import ArrayEntry, Box, Chunk, from_bytes
from girih.store.sealed import LARGEST_BYTES, StoredError
from girih.store.stored import ArrayWriter, replacing

LOCK = "girih.lock"
FOLDER = re.compile(r"state-[0-9a-f]{12}")
DCP_FILE = re.compile(r"__\d+_\d+\.distcp")  # of checkpoints in the format of girih's first version
SLICE_SECONDS = 1.0
"""A worker reports to the driver about so often, so that a long save does not look as if it hung."""


@dataclass(frozen=True)
class WrittenShard:
    """What one worker wrote: its file and that file's bytes, and the chunks that it has of each entry, by path."""

    file: str
    bytes: int
    chunks: Mapping[str, list[Chunk]]


def append(writer: ArrayWriter, path: str, offsets: Iterable[int], tensor: Tensor) -> Iterator[int]:
    """Write a box of an entry; yields the bytes of each block when it is written."""

    def bytes_of(box: Box) -> Any:
        plain = cut(tensor, box).detach().cpu().resolve_conj().resolve_neg().contiguous()
        return memoryview(plain.reshape(-1).view(torch.uint8).numpy())

    return writer.append(path, tuple(offsets), tuple(tensor.shape), tensor.dtype.itemsize, bytes_of)


def write(
    folder: str, program: Program, rank: int, state: Mapping[str, Tensor]
) -> Generator[int, None, WrittenShard | None]:
    """Write this worker's boxes into the folder; yields the bytes that each stride wrote, returns what `publish` needs.

    Raises:
        OSError: the folder is not there, or the disk is full.
    """
    own = [item for item in kept_inputs(program.graph) if rank in reporters(program, item.name)]
    if not own:
        return None
    name = f"rank-{rank}.bin"
    with replacing(os.path.join(folder, name), name) as writer:
        for item in own:
            offsets = (start for start, _ in box_of(program, item.name, rank))
            yield from append(writer, key_of(item), offsets, state[item.name])
    return WrittenShard(name, writer.at, writer.chunks)


class Writing:
    """A `write` that is done in slices of about a second."""

    def __init__(self, strides: Generator[int, None, WrittenShard | None], rank: int, folder: str) -> None:
        self._strides = strides
        self._rank = rank
        self._folder = folder
        self._bytes = 0
        self._end: Answer | None = None

    def go_on(self) -> Answer:
        """The value is how many bytes are written so far; or, when all are, what `write` returns, in a tuple."""
        began = time.monotonic()
        try:
            while self._end is None:
                self._bytes += next(self._strides)
                if time.monotonic() - began > SLICE_SECONDS:
                    return Answer(value=self._bytes)
        except StopIteration as end:
            self._end = Answer(value=(end.value,))
        except OSError as error:
            place = error.filename or os.path.join(self._folder, f"rank-{self._rank}.bin")
            self._end = Answer(
                f"worker {self._rank} cannot write {place}: {error.strerror}; make room, or give a directory that all "
                "workers can write into: what was there before is whole"
            )
        return self._end


def kept_inputs(graph: Graph) -> list[Input]:
    """The state that a checkpoint holds: all but data of the program, which comes with the program."""
    return [item for item in graph.state_inputs if item.name not in graph.data_inputs]


def manifest_of(
    program: Program, written: Iterable[WrittenShard | None], step: int, seed: int, data: Mapping[str, int]
) -> CheckpointManifest:
    """All entries of the program's state, with the chunks that the workers wrote. data: checksums of its data."""
    parts = [part for part in written if part is not None]
    entries = {}
    for item in kept_inputs(program.graph):
        value, key = program.graph.values[item.name], key_of(item)
        chunks = tuple(chunk for part in parts for chunk in part.chunks.get(key, ()))
        entries[key] = ArrayEntry(value.dtype, value.shape, chunks)
    files = {part.file: part.bytes for part in parts}
    known = dict(data) or UNSET
    return CheckpointManifest(step=step, seed=seed, data=known, files=files, entries=entries)


class Saving:
    """One save: `begin`, then writers write into `folder`, then `publish`; `end` in any case."""

    def __init__(self, goal: str | Path) -> None:
        self.goal = Path(goal).absolute()
        self.folder = ""
        self._lock: durable.Lock | None = None
        self._made_goal = False
        self._before = ""

    def begin(self) -> str:
        """Make the folder to write into; what dead savers left goes.

        Raises:
            CheckpointError: something else lies at the goal, another run is saving there, or it cannot be written.
        """
        check_goal(self.goal)
        with _clear(self.goal):
            self._made_goal = durable.make_folder(str(self.goal))
            try:
                self._lock = durable.Lock(str(self.goal / LOCK))
            except durable.LockedError as error:
                raise CheckpointError(
                    f"{self.goal}: another run is saving a checkpoint there: wait for it, or give another directory"
                ) from error
            with contextlib.suppress(CheckpointError, OSError):
                self._before = read_manifest(self.goal).folder
                self._clean(self._before)
            self.folder = str(self.goal / f"state-{uuid.uuid4().hex[:12]}")
            durable.make_folder(self.folder)
        return self.folder

    def publish(self, manifest: CheckpointManifest) -> None:
        """The folder, with what the manifest says, becomes the checkpoint.

        Raises:
            CheckpointError: files are missing, or the disk is full; what was there before is whole.
        """
        data = replace(manifest, folder=os.path.basename(self.folder)).to_bytes()
        with _clear(self.goal):
            if len(data) > LARGEST_BYTES:
                raise CheckpointError(
                    f"{self.goal}: the list of {len(manifest.entries)} tensors takes {len(data)} bytes"
                )
            try:
                from_bytes(data, CheckpointManifest)  # what would be refused is not published
            except StoredError as error:
                raise CheckpointError(f"{self.goal}: the program's state cannot be saved: it {error}") from error
            for name, size in manifest.files.items():
                if os.stat(os.path.join(self.folder, name)).st_size != size:
                    raise CheckpointError(
                        f"{self.goal}: {name} changed while it was saved: does another run save there?"
                    )
            durable.sync_folder(self.folder)
            durable.sync_folder(str(self.goal))
            places.exchange(str(self.goal / MANIFEST), data)
        try:
            durable.sync_folder(str(self.goal))
        except OSError as error:
            raise CheckpointError(
                f"{self.goal}: the new checkpoint is there, but the disk does not confirm it: {error.strerror}; save "
                "again"
            ) from error
        with contextlib.suppress(OSError):  # it is there; what cannot be removed now goes with the next save
            self._clean(os.path.basename(self.folder))
        self.folder, self._made_goal = "", False

    def _clean(self, keep: str) -> None:
        """Remove what belongs to no checkpoint any more."""
        for name in os.listdir(self.goal):
            path = str(self.goal / name)
            if FOLDER.fullmatch(name) and name != keep:
                if name == self._before or (self._lock is not None and self._lock.works):
                    durable.remove_folder(path)
            elif name == DCP_METADATA or DCP_FILE.fullmatch(name) or _is_unfinished(name):
                durable.remove(path)

    def _may_be_named(self) -> bool:
        """Is the folder the checkpoint's, although `publish` did not come to its end, or can nobody tell?"""
        try:
            return read_manifest(self.goal).folder == os.path.basename(self.folder)
        except CheckpointError:
            return os.path.lexists(self.goal / MANIFEST) and not (self.goal / DCP_METADATA).exists()

    def end(self) -> None:
        """Let others save. An unfinished save leaves nothing behind."""
        if self.folder and not self._may_be_named():
            with contextlib.suppress(OSError):
                durable.remove_folder(self.folder)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._made_goal:
            durable.remove_empty(str(self.goal))


@contextlib.contextmanager
def _clear(goal: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{goal}: the checkpoint cannot be written: {error.filename or goal}: {error.strerror}; make room or give "
            "another directory: what was there before is whole"
        ) from error


def check_goal(goal: Path) -> None:
    """A checkpoint may be written here.

    Raises:
        CheckpointError: there is something that is no checkpoint.
    """
    with _clear(goal):
        if not os.path.lexists(goal):
            return
        names = os.listdir(goal) if goal.is_dir() else None
    if names is None or not (MANIFEST in names or all(_is_rubbish(name) for name in names)):
        raise CheckpointError(f"{goal} exists and is no checkpoint: it is left alone; give another directory")


def _is_rubbish(name: str) -> bool:
    """May a saver have left it that died before there was a checkpoint?"""
    return name == LOCK or FOLDER.fullmatch(name) is not None or _is_unfinished(name)


def _is_unfinished(name: str) -> bool:
    """Is it a manifest that its writer did not live to finish?"""
    whole = durable.PART.fullmatch(name)
    return whole is not None and whole[1] == MANIFEST
