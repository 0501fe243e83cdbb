"""Checkpoints of what loops share: arrays, accumulators, and where the loops' random numbers stand.

A checkpoint is one file (`girih.store.stored`): after a kill, a full disk or a power cut there is the old one or the
new one. All of it is held against its checksums before anything is changed. Files of girih's first version, which are
NumPy's `.npz`, are read.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec
import numpy as np

from girih.loop.arrays import Accumulator, Array
from girih.loop.parallel import ParallelLoop
from girih.store import places, stored
from girih.store.manifest import Manifest
from girih.store.sealed import StoredError

FIRST_VERSION = 1


class LoopManifest(Manifest, frozen=True, kw_only=True):
    """What a checkpoint of loops holds. others: what is no array, by name."""

    KIND = "loop checkpoint"

    others: dict[str, Any]


class FirstLoopHead(msgspec.Struct):
    """What a checkpoint of girih's first version says of itself. sums: the CRC-32 of each array."""

    version: int
    sums: dict[str, int]
    others: dict[str, Any]


class LoopCheckpointError(ValueError):
    """A checkpoint that is damaged, or of other arrays."""


def save(path: str | os.PathLike[str], **shared: Array | Accumulator | ParallelLoop) -> None:
    """Write arrays, accumulators and loops to a file, or to a URL of fsspec, each by a name.

    Of a loop it is kept how often it was executed, on which its random numbers depend.

    Raises:
        TypeError: something else was given. OSError: it could not be written; an old checkpoint is as it was.
    """
    arrays: dict[str, np.ndarray] = {}
    others: dict[str, Any] = {}
    for name, item in shared.items():
        if isinstance(item, Array):
            arrays[name] = item.values
        elif isinstance(item, Accumulator):
            others[name] = {"accumulator": list(item.parts)}
        elif isinstance(item, ParallelLoop):
            others[name] = {"executions": item.executions}
        else:
            raise TypeError(f"{name} is {type(item).__name__}: checkpoints hold arrays, accumulators and loops")
    write(path, arrays, others)


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], others: dict[str, Any]) -> None:
    """Write arrays, and what JSON can say, each by a name.

    Raises:
        OSError: it could not be written; an old checkpoint is as it was.
    """
    try:
        stored.write(os.fspath(path), arrays, LoopManifest, others=others)
    except OSError as error:
        error.filename = os.fspath(path)  # what was being written, which a full disk does not say
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, what JSON could say), as `write` was given them.

    Raises:
        FileNotFoundError: there is no such file. LoopCheckpointError: it is damaged.
    """
    place = os.fspath(path)
    try:
        with places.opened(place if places.is_url(place) else os.path.realpath(place)) as file:
            if file.bytes(0, 4) == b"PK\3\4":
                return _first_version(place, BytesIO(file.bytes(0, file.size)))
            reader = stored.reading(LoopManifest, file)
            return {name: reader.read(name) for name in reader.manifest.entries}, reader.manifest.others
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no checkpoint {place}") from None
    except StoredError as error:
        raise LoopCheckpointError(f"{place} is no whole checkpoint: it {error}") from error
    except OSError as error:
        raise LoopCheckpointError(f"{place} is no whole checkpoint: {error}") from error


def _first_version(place: str, kept: BytesIO) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A `.npz` file whose array `head` is JSON."""
    try:
        with np.load(kept, allow_pickle=False) as file:
            head = msgspec.json.decode(str(file["head"]), type=FirstLoopHead)
            arrays = {name.removeprefix("array."): file[name] for name in file.files if name != "head"}
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, OSError, EOFError, NotImplementedError,
            AttributeError, RecursionError) as error:  # fmt: skip
        raise LoopCheckpointError(f"{place} is no whole checkpoint: {error}") from error
    if head.version != FIRST_VERSION:
        raise LoopCheckpointError(f"{place} is of version {head.version}: expected {FIRST_VERSION}")
    for name, item in arrays.items():
        if checksum(item) != head.sums.get(name):
            raise LoopCheckpointError(f"{place} is damaged: array {name} has another checksum than when it was written")
    return arrays, head.others


def checksum(array: np.ndarray, so_far: int = 0) -> int:
    """CRC-32 of an array's bytes, behind those of arrays whose checksum is given."""
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"", so_far)


def restore(path: str | os.PathLike[str], **shared: Array | Accumulator | ParallelLoop) -> None:
    """Read back what `save` wrote, into arrays, accumulators and loops of the same names; nothing or all of it.

    Raises:
        FileNotFoundError: there is no such file. LoopCheckpointError: it is damaged, or it has no item of such a name,
            or one of another shape or dtype.
    """
    place = os.fspath(path)
    arrays, others = read(place)
    for name, wanted in shared.items():
        _check(place, name, wanted, arrays, others)
    for name, wanted in shared.items():
        if isinstance(wanted, Array):
            wanted.values[...] = arrays[name]
        elif isinstance(wanted, Accumulator):
            wanted.parts = list(others[name]["accumulator"])
        else:
            wanted.executions = int(others[name]["executions"])


def _check(place: str, name: str, wanted: Any, arrays: dict[str, np.ndarray], others: dict[str, Any]) -> None:
    if isinstance(wanted, Array):
        if name not in arrays:
            raise LoopCheckpointError(f"{place} has no array {name}: it has {', '.join(sorted(arrays)) or 'none'}")
        found = arrays[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise LoopCheckpointError(
                f"{place} has {name} as {found.dtype}{list(found.shape)}: expected {wanted.dtype}{list(wanted.shape)}"
            )
        return
    kind = "accumulator" if isinstance(wanted, Accumulator) else "executions"
    item = others.get(name, {})
    if isinstance(item, dict) and kind in item and not _fits(kind, item[kind]):
        expected = "a list of numbers" if kind == "accumulator" else "a whole number from 0"
        raise LoopCheckpointError(
            f"{place} is damaged: {name}: {kind}: expected {expected}, there is {item[kind]!r:.60}"
        )
    if not isinstance(item, dict) or kind not in item:
        raise LoopCheckpointError(f"{place} has no {'accumulator' if kind == 'accumulator' else 'loop'} {name}")


def _fits(kind: str, item: Any) -> bool:
    if kind == "executions":
        return type(item) is int and 0 <= item < 1 << 63
    return isinstance(item, list) and all(type(part) in (int, float, bool) for part in item)
