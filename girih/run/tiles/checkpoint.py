"""Checkpoints of live tiles, in a directory or at an fsspec URL that all workers reach.

A tile never changes, so a checkpoint writes only the tiles that the one before has not, one file for each worker's
part, and beside them what a program that is under way has made so far. A file is written under another name, synced
where the file system is a local one, and renamed; the manifest is written when all files are there, and only then are
those removed that it no longer names. So the last checkpoint is whole at any moment.

    girih-<id>/manifest.json, girih-<id>/tile-<key>.<rank>, girih-<id>/step-<number>.<rank>, girih-<id>/driver.lock

Files are data: a line of JSON with a checksum of its own (`girih.run.training.sealed`) and then the bytes of buffers,
each with its checksum in that line. It says of which run, tile or step, and worker the file is, which strides tensors
have, and which of them share a buffer, so that a program goes on to the same bits, and no other file is ever taken for
it.

The driver holds a lock in its directory while it lives. On a local file system a new run removes the directories of
drivers that died on this host since it was started: those whose lock is free and was taken under the same boot of the
system. Directories of other hosts, and what lies at URLs, are left alone.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from girih.run.errors import IDLE, Where, WorkerError
from girih.run.tiles.files import clear_errors, file_of, is_local, is_plain, load, save, system_of, words, write_file
from girih.run.tiles.spill import Streamed
from girih.run.training import durable
from girih.run.training.checkpoint import Answer, CheckpointError
from girih.run.training.sealed import SealError, fields, natural, naturals, seal, text, unseal
from girih.run.worker.parts import Tensor, relative
from girih.run.worker.worker import Running

MANIFEST = "manifest.json"
FORMAT = 2
LOCK = "driver.lock"
NAME = r"[a-z]{1,10}-\d{1,20}"


class CheckpointPlaceError(ValueError):
    """A directory or URL in which checkpoints cannot be kept."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds. tiles: keys. step: the name of the step that was under way, or "", and at which
    instruction it was."""

    workers: int
    tiles: frozenset[int] = frozenset()
    step: str = ""
    at: int = 0

    def files(self) -> set[str]:
        names = [*map(tile_name, self.tiles), *([self.step] if self.step else [])]
        return {file_of(name, rank) for name in names for rank in range(self.workers)}

    def to_bytes(self) -> bytes:
        content = {"workers": self.workers, "tiles": sorted(self.tiles), "step": self.step, "at": self.at}
        return seal("tiles", FORMAT, content)


# ------------------------------------------------------------------------------------------- the driver


def new_place(parent: str) -> str:
    """A place for one run's checkpoints under a directory or URL, made now.

    Raises:
        CheckpointPlaceError: nothing can be written there.
    """
    if "://" not in parent:
        parent = os.path.abspath(os.path.expanduser(parent))
    place = f"{parent.rstrip('/')}/girih-{uuid.uuid4().hex[:12]}"
    try:
        system_of(place)[0].makedirs(system_of(place)[1], exist_ok=True)
        write_file(place, MANIFEST, [Manifest(0).to_bytes()])
    except Exception as error:
        raise CheckpointPlaceError(
            f"checkpoint={parent!r}: {type(error).__name__}: {error}; give a directory that can be written, or a URL "
            "that fsspec knows"
        ) from error
    return place


class Guard:
    """Says that the driver of a place lives; where the place is local, what dead drivers left beside it goes."""

    def __init__(self, place: str) -> None:
        system, root = system_of(place)
        self._lock: durable.Lock | None = None
        if is_local(system):
            with contextlib.suppress(OSError, durable.HeldError):
                self._lock = durable.Lock(f"{root}/{LOCK}")
                self._lock.say(_boot())
                _remove_dead(Path(root))

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _remove_dead(own: Path) -> None:
    for folder in own.parent.glob("girih-*"):
        lock = folder / LOCK
        with contextlib.suppress(OSError, durable.HeldError):
            if folder != own and _boot() and lock.read_bytes() == _boot():
                holder = durable.Lock(str(lock))
                try:
                    if holder.works:
                        durable.remove_folder(str(folder))
                finally:
                    holder.release(keep=not holder.works)


def _boot() -> bytes:
    """This start of this host's system, or nothing where that has no name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return b""


def replace(place: str, before: Manifest, after: Manifest) -> None:
    """`after`, whose files are there, becomes the checkpoint; files of `before` that it does not name go.

    Raises:
        CheckpointError: the manifest cannot be written; `before` is still the checkpoint.
    """
    system, root = system_of(place)
    with clear_errors(place):
        if is_local(system):
            durable.sync_folder(root)
        write_file(place, MANIFEST, [after.to_bytes()])
        if is_local(system):
            durable.sync_folder(root)
    for name in sorted(before.files() - after.files()):
        with contextlib.suppress(OSError):  # the checkpoint is there without it
            system.rm_file(f"{root}/{name}")


def remove(place: str) -> None:
    system, root = system_of(place)
    if system.exists(root):
        system.rm(root, recursive=True)


def read_manifest(place: str) -> Manifest:
    """The checkpoint at a place: what has been kept of a run whose driver is gone.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    system, root = system_of(place)
    try:
        manifest, _ = unseal("tiles", FORMAT, bytes(system.cat_file(f"{root}/{MANIFEST}")))
        fields(manifest, "workers", "tiles", "step", "at")
        step = manifest["step"] if manifest["step"] == "" else text(manifest["step"], NAME)
        return Manifest(
            natural(manifest["workers"]), frozenset(naturals(manifest["tiles"])), step, natural(manifest["at"])
        )
    except OSError as error:
        raise CheckpointError(f"{place}/{MANIFEST} cannot be read: {words(error)}") from error
    except SealError as error:
        raise CheckpointError(f"{place}/{MANIFEST} {error}: the checkpoint cannot be used") from error


def check_kept(replies: Sequence[Answer], kind: type[WorkerError]) -> None:
    """Raises an error of this kind if a worker could not write to the checkpoint, or read from it."""
    for rank, reply in enumerate(replies):
        if reply.error:
            raise kind(rank, Where(IDLE, 0), f"failed at the checkpoint: {reply.error}")


# ------------------------------------------------------------------------------------------- a worker


def check(place: str) -> None:
    """Can this worker read what the driver has written, and write beside it?

    Raises:
        CheckpointPlaceError: it cannot.
    """
    system, root = system_of(place)
    if not system.exists(f"{root}/{MANIFEST}"):
        raise CheckpointPlaceError(
            f"a worker does not see the checkpoints at {place!r}: give a directory that all hosts share, or a URL"
        )
    name = f"check-{uuid.uuid4().hex}"
    write_file(place, name, [b""])
    system.rm_file(f"{root}/{name}")


def save_tiles(place: str, rank: int, tiles: Mapping[int, Tensor]) -> None:
    """Write tiles, each into a file.

    Raises:
        CheckpointError: the disk is full, say.
    """
    for key, tensor in tiles.items():
        save(place, tile_name(key), rank, {0: tensor}, {})


def load_tiles(place: str, rank: int, keys: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    """The tiles by their keys, one by one.

    Raises:
        CheckpointError: a file is missing, damaged or another one.
    """
    for key in keys:
        tensors, _ = load(place, tile_name(key), rank)
        if 0 not in tensors:
            raise CheckpointError(
                f"{place}/{file_of(tile_name(key), rank)} holds no tile: the checkpoint cannot be used"
            )
        yield key, tensors[0]


def save_step(place: str, name: str, rank: int, step: Running, held: Mapping[int, Tensor | Streamed]) -> None:
    """The step's buffers; those that lie in a held tile as views of it.

    Raises:
        CheckpointError: the disk is full, say.
    """
    keys = {
        tensor.untyped_storage().data_ptr(): key
        for key, tensor in held.items()
        if not isinstance(tensor, Streamed) and tensor.numel()
    }
    sources = {id(item.part): (key, item.box) for key, item in held.items() if isinstance(item, Streamed)}
    own: dict[int, Tensor] = {}
    lying: dict[int, Any] = {}
    for slot, item in enumerate(step.slots):
        if item is None:
            continue
        if isinstance(item, Streamed):
            lying[slot] = [*sources[id(item.part)], item.box]
            continue
        key = keys.get(item.untyped_storage().data_ptr()) if item.numel() else None
        tile: Any = None if key is None else held[key]
        if tile is not None and item.dtype == tile.dtype and is_plain(item) and is_plain(tile):
            lying[slot] = [key, tuple(item.shape), item.stride(), item.storage_offset()]
        else:
            own[slot] = item
    save(place, name, rank, own, {"at": step.at, "held": {str(slot): where for slot, where in lying.items()}})


def load_step(place: str, name: str, rank: int, step: Running, held: Mapping[int, Tensor | Streamed]) -> None:
    """Into a step that has just begun.

    Raises:
        CheckpointError: a file is missing, damaged or another one; the step is as it was.
    """
    tensors, more = load(place, name, rank)
    slots: list[Any] = [None] * len(step.slots)
    try:
        for slot, tensor in tensors.items():
            slots[slot] = tensor
        for number, where in fields(fields(more, "at", "held")["held"]).items():
            slots[natural(int(number))] = _lying(where, held)
        at = natural(more["at"])
    except (SealError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{place}/{file_of(name, rank)} does not fit the program that is under way") from error
    step.slots[:] = slots
    step.at = at


def _lying(where: Any, held: Mapping[int, Tensor | Streamed]) -> Tensor | Streamed:
    """A view of a held tile, or a part of a source, which may have been read meanwhile."""
    if len(where) == 3:
        key, outer, inner = where
        item, box = held[key], tuple((start, stop) for start, stop in inner)
        cuts = relative(box, tuple((start, stop) for start, stop in outer))
        for dimension, start, length in cuts:
            item = item.narrow(dimension, start, length)
        return item
    key, shape, stride, offset = where
    return held[key].as_strided(shape, stride, offset)  # type: ignore[union-attr]


def tile_name(key: int) -> str:
    return f"tile-{key}"
