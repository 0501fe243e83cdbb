"""Checkpoints of live tiles, in a directory or at an fsspec URL that all workers reach.

A tile never changes, so a checkpoint writes only the tiles that the one before has not, one file for each worker's
part, and beside them what a program that is under way has made so far. The manifest is written when all files are
there, and only then are those removed that it no longer names. So the last checkpoint is whole at any moment.

    girih-<id>/manifest.json, girih-<id>/tile-<key>.<rank>, girih-<id>/step-<number>.<rank>, girih-<id>/driver.lock

Files (`girih.store.stored`) have the bytes of buffers, and say of which run, tile or step, and worker they are, which
strides tensors have, and which of them share a buffer: a program goes on to the same bits, and no other file is ever
taken for one of its own.

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
from typing import Annotated, Any

import msgspec
import torch

from girih.run.errors import IDLE, Where, WorkerError
from girih.run.tiles.spill import Streamed
from girih.run.training.checkpoint import TORCH_DTYPES, Answer, CheckpointError
from girih.run.worker.parts import Tensor, relative
from girih.run.worker.worker import Running
from girih.store import durable, places
from girih.store.manifest import Manifest
from girih.store.places import is_url, system_of
from girih.store.sealed import Natural, StoredError, seal, unseal
from girih.store.stored import reading, replacing

MANIFEST = "manifest.json"
FORMAT = 2
LOCK = "driver.lock"
NAME = r"^([a-z]{1,10}-\d{1,20})?\Z"


class CheckpointPlaceError(ValueError):
    """A directory or URL in which checkpoints cannot be kept."""


@dataclass(frozen=True)
class TilesKept:
    """What a checkpoint holds. tiles: keys. step: the name of the step that was under way, or "", and at which
    instruction it was."""

    workers: Natural
    tiles: frozenset[Natural] = frozenset()
    step: Annotated[str, msgspec.Meta(pattern=NAME)] = ""
    at: Natural = 0

    def files(self) -> set[str]:
        names = [*map(tile_name, self.tiles), *([self.step] if self.step else [])]
        return {file_of(name, rank) for name in names for rank in range(self.workers)}

    def to_bytes(self) -> bytes:
        return seal("tiles", FORMAT, vars(self) | {"tiles": sorted(self.tiles)})


class TensorEntry(msgspec.Struct, frozen=True):
    """A tensor: which elements of which buffer."""

    dtype: str
    shape: tuple[Natural, ...]
    strides: tuple[Natural, ...]
    offset: Natural
    buffer: Natural
    conjugate: bool
    negative: bool


class TileManifest(Manifest, frozen=True, kw_only=True):
    """What a file of tensors holds. of: run, name, and worker. tensors: by number, that of a step by slot. at: the
    instruction at which the step was; held: where in which held tile its other buffers lie, by slot."""

    KIND = "tile"

    of: tuple[str, str, int]
    tensors: dict[int, TensorEntry]
    at: Natural = 0
    held: dict[Natural, list[Any]] = msgspec.field(default_factory=dict)


# ------------------------------------------------------------------------------------------- files


def tile_name(key: int) -> str:
    return f"tile-{key}"


def file_of(name: str, rank: int) -> str:
    return f"{name}.{rank}"


def words(error: OSError) -> str:
    return " ".join((error.strerror or str(error) or type(error).__name__).split())


@contextlib.contextmanager
def clear_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or path} cannot be written: {words(error)}; make room: the checkpoint before is whole"
        ) from error


def is_plain(tensor: Any) -> bool:
    return not (tensor.is_conj() or tensor.is_neg())


def save(place: str, name: str, rank: int, tensors: Mapping[int, Tensor], **more: Any) -> None:
    """Tensors by number, with their strides; those that share a buffer share it. more: of a step."""
    numbers: dict[int, int] = {}
    buffers: list[Any] = []
    entries = {}
    for number, tensor in tensors.items():
        storage = tensor.untyped_storage()
        place_of = storage.data_ptr() if storage.nbytes() else -1
        if place_of not in numbers:
            numbers[place_of] = len(buffers)
            every = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            every.set_(storage, 0, (storage.nbytes(),), (1,))
            buffers.append(every.cpu().numpy())
        dtype = str(tensor.dtype).removeprefix("torch.")
        where = tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), numbers[place_of]
        entries[number] = TensorEntry(dtype, *where, tensor.is_conj(), tensor.is_neg())
    of, path = (place.rpartition("/")[2], name, rank), f"{place}/{file_of(name, rank)}"
    with clear_errors(path), replacing(path) as writer:
        for number, buffer in enumerate(buffers):
            writer.put(str(number), buffer)
        writer.end(TileManifest, of=of, tensors=entries, **more)


def load(place: str, name: str, rank: int) -> tuple[dict[int, Tensor], TileManifest]:
    """What `save` wrote: tensors, and what it says of them.

    Raises:
        CheckpointError: the file is missing, damaged or another one.
    """
    path = f"{place}/{file_of(name, rank)}"
    try:
        with places.opened(path) as file:
            reader = reading(TileManifest, file)
            kept = reader.manifest
            if kept.of != (place.rpartition("/")[2], name, rank):
                raise StoredError(f"is the file of {kept.of}")
            buffers = {key: torch.empty(entry.shape, dtype=torch.uint8) for key, entry in kept.entries.items()}
            for number, buffer in buffers.items():
                reader.read(number, into=buffer.numpy())
        tensors = {number: _tensor(entry, buffers) for number, entry in kept.tensors.items()}
    except (StoredError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
        why = str(error) if isinstance(error, StoredError) else "has a manifest that makes no sense"
        raise CheckpointError(f"{path} {why}: what it held is lost, the program has to start anew") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {words(error)}") from error
    return tensors, kept


def _tensor(entry: TensorEntry, buffers: Mapping[str, Tensor]) -> Tensor:
    tensor = torch.empty(0, dtype=TORCH_DTYPES[entry.dtype])
    tensor.set_(buffers[str(entry.buffer)].untyped_storage(), entry.offset, entry.shape, entry.strides)
    tensor = tensor.conj() if entry.conjugate else tensor
    return torch._neg_view(tensor) if entry.negative else tensor


# ------------------------------------------------------------------------------------------- the driver


def new_place(parent: str) -> str:
    """A place for one run's checkpoints under a directory or URL, made now.

    Raises:
        CheckpointPlaceError: nothing can be written there.
    """
    parent = parent.removeprefix("file://")
    if not is_url(parent):
        parent = os.path.abspath(os.path.expanduser(parent))
    place = f"{parent.rstrip('/')}/girih-{uuid.uuid4().hex[:12]}"
    try:
        system_of(place)[0].makedirs(system_of(place)[1], exist_ok=True)
        places.exchange(f"{place}/{MANIFEST}", TilesKept(0).to_bytes())
    except Exception as error:
        raise CheckpointPlaceError(
            f"checkpoint={parent!r}: {type(error).__name__}: {error}; give a directory that can be written, or a URL "
            "that fsspec knows"
        ) from error
    return place


class Guard:
    """Says that the driver of a place lives; where the place is local, what dead drivers left beside it goes."""

    def __init__(self, place: str) -> None:
        self._lock: durable.Lock | None = None
        if not is_url(place):
            with contextlib.suppress(OSError, durable.LockedError):
                self._lock = durable.Lock(f"{place}/{LOCK}")
                self._lock.say(_boot())
                _remove_dead(Path(place))

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _remove_dead(own: Path) -> None:
    for folder in own.parent.glob("girih-*"):
        lock = folder / LOCK
        with contextlib.suppress(OSError, durable.LockedError):
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


def replace(place: str, before: TilesKept, after: TilesKept) -> None:
    """`after`, whose files are there, becomes the checkpoint; files of `before` that it does not name go.

    Raises:
        CheckpointError: the manifest cannot be written; `before` is still the checkpoint.
    """
    path = f"{place}/{MANIFEST}"
    with clear_errors(place):
        places.sync(path)
        places.exchange(path, after.to_bytes())
        places.sync(path)
    for name in sorted(before.files() - after.files()):
        with contextlib.suppress(OSError):  # the checkpoint is there without it
            places.remove(f"{place}/{name}")


def remove(place: str) -> None:
    system, root = system_of(place)
    if system.exists(root):
        system.rm(root, recursive=True)


def read_manifest(place: str) -> TilesKept:
    """The checkpoint at a place: what has been kept of a run whose driver is gone.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    try:
        with places.opened(f"{place}/{MANIFEST}") as file:
            return unseal("tiles", FORMAT, file.bytes(0, file.size), TilesKept)
    except OSError as error:
        raise CheckpointError(f"{place}/{MANIFEST} cannot be read: {words(error)}") from error
    except StoredError as error:
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
    path = f"{place}/check-{uuid.uuid4().hex}"
    places.exchange(path, b"")
    places.remove(path)


def save_tiles(place: str, rank: int, tiles: Mapping[int, Tensor]) -> None:
    """Write tiles, each into a file.

    Raises:
        CheckpointError: the disk is full, say.
    """
    for key, tensor in tiles.items():
        save(place, tile_name(key), rank, {0: tensor})


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
    save(place, name, rank, own, at=step.at, held=lying)


def load_step(place: str, name: str, rank: int, step: Running, held: Mapping[int, Tensor | Streamed]) -> None:
    """Into a step that has just begun.

    Raises:
        CheckpointError: a file is missing, damaged or another one; the step is as it was.
    """
    tensors, kept = load(place, name, rank)
    slots: list[Any] = [None] * len(step.slots)
    try:
        for slot, tensor in tensors.items():
            slots[slot] = tensor
        for slot, where in kept.held.items():
            slots[slot] = _lying(where, held)
    except (ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{place}/{file_of(name, rank)} does not fit the program that is under way") from error
    step.slots[:] = slots
    step.at = kept.at


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
