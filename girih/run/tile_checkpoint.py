"""Checkpoints of live tiles, in a directory or at an fsspec URL that all workers reach.

A tile never changes, so a checkpoint writes only the tiles that the one before has not, one file for each worker's
part, and beside them what a program that is under way has made so far. A file is written under another name and
renamed; the manifest is written when all files are there, and only then are those removed that it no longer names. So
the last checkpoint is whole at any moment.

    girih-<id>/manifest.json, girih-<id>/tile-<key>.<rank>.pt, girih-<id>/step-<number>.<rank>.pt

Files are torch.save's: they keep strides, and which buffers share memory, so that a program goes on to the same bits.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from girih.run.parts import Tensor
from girih.run.worker import Running

MANIFEST = "manifest.json"
FORMAT = 1
HELD = "held"


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
        names = [*map(_tile, self.tiles), *([self.step] if self.step else [])]
        return {_file(name, rank) for name in names for rank in range(self.workers)}

    def text(self) -> str:
        entries = {
            "format": FORMAT,
            "workers": self.workers,
            "tiles": sorted(self.tiles),
            "step": self.step,
            "at": self.at,
        }
        return json.dumps(entries)


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
        _system(place)[0].makedirs(_system(place)[1], exist_ok=True)
        _write(place, MANIFEST, lambda file: file.write(Manifest(0).text().encode()))
    except Exception as error:
        raise CheckpointPlaceError(
            f"checkpoint={parent!r}: {type(error).__name__}: {error}; give a directory that can be written, or a URL "
            "that fsspec knows"
        ) from error
    return place


def replace(place: str, before: Manifest, after: Manifest) -> None:
    """`after`, whose files are there, becomes the checkpoint; files of `before` that it does not name go."""
    _write(place, MANIFEST, lambda file: file.write(after.text().encode()))
    system, root = _system(place)
    for name in sorted(before.files() - after.files()):
        system.rm_file(f"{root}/{name}")


def remove(place: str) -> None:
    system, root = _system(place)
    if system.exists(root):
        system.rm(root, recursive=True)


def read_manifest(place: str) -> Manifest:
    """The checkpoint at a place: what has been kept of a run whose driver is gone."""
    system, root = _system(place)
    found = json.loads(system.cat_file(f"{root}/{MANIFEST}"))
    return Manifest(found["workers"], frozenset(found["tiles"]), found["step"], found["at"])


# ------------------------------------------------------------------------------------------- a worker


def check(place: str) -> None:
    """Can this worker read what the driver has written, and write beside it?

    Raises:
        CheckpointPlaceError: it cannot.
    """
    system, root = _system(place)
    if not system.exists(f"{root}/{MANIFEST}"):
        raise CheckpointPlaceError(
            f"a worker does not see the checkpoints at {place!r}: give a directory that all hosts share, or a URL"
        )
    name = f"check-{uuid.uuid4().hex}"
    _write(place, name, lambda file: file.write(b""))
    system.rm_file(f"{root}/{name}")


def save_tiles(place: str, rank: int, tiles: Mapping[int, Tensor]) -> None:
    for key, tensor in tiles.items():
        _save(place, _file(_tile(key), rank), tensor)


def load_tiles(place: str, rank: int, keys: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    for key in keys:
        yield key, _load(place, _file(_tile(key), rank))


def save_step(place: str, name: str, rank: int, step: Running, held: Mapping[int, Tensor]) -> None:
    """The step's buffers; those that lie in a held tile as views of it."""
    keys = {tensor.untyped_storage().data_ptr(): key for key, tensor in held.items() if tensor.numel()}
    slots: dict[int, Any] = {}
    for slot, item in enumerate(step.slots):
        if item is None:
            continue
        key = keys.get(item.untyped_storage().data_ptr()) if item.numel() else None
        if key is not None and item.dtype == held[key].dtype:
            item = (HELD, key, tuple(item.shape), item.stride(), item.storage_offset())
        slots[slot] = item
    _save(place, _file(name, rank), {"at": step.at, "slots": slots})


def load_step(place: str, name: str, rank: int, step: Running, held: Mapping[int, Tensor]) -> None:
    """Into a step that has just begun."""
    found = _load(place, _file(name, rank))
    step.slots[:] = [None] * len(step.slots)
    for slot, item in found["slots"].items():
        if isinstance(item, tuple):
            _, key, shape, stride, offset = item
            item = held[key].as_strided(shape, stride, offset)
        step.slots[slot] = item
    step.at = found["at"]


# ------------------------------------------------------------------------------------------- files


def _tile(key: int) -> str:
    return f"tile-{key}"


def _file(name: str, rank: int) -> str:
    return f"{name}.{rank}.pt"


def _system(place: str) -> tuple[Any, str]:
    """The file system, and the path in it."""
    import fsspec

    system, root = fsspec.core.url_to_fs(place)
    return system, str(root)


def _write(place: str, name: str, write: Callable[[Any], object]) -> None:
    """A file that is there whole or not at all."""
    system, root = _system(place)
    unfinished = f"{root}/{name}.{uuid.uuid4().hex[:8]}.part"
    try:
        with system.open(unfinished, "wb") as file:
            write(file)
        system.mv(unfinished, f"{root}/{name}")
    except BaseException:
        with contextlib.suppress(OSError):
            system.rm_file(unfinished)
        raise


def _save(place: str, name: str, content: Any) -> None:
    _write(place, name, lambda file: torch.save(content, file))


def _load(place: str, name: str) -> Any:
    system, root = _system(place)
    with system.open(f"{root}/{name}", "rb") as file:
        return torch.load(file, weights_only=True)
