"""Checkpoints of a training run: data with checksums, sharded as the program divides.

    DIR/girih.json                the manifest (`girih.store.manifest`), which names the folder
    DIR/state-<id>/rank-<n>.bin   what worker n wrote: the bytes of its boxes, one after another

Each worker wrote the boxes that it reports (`girih.run.training.saving`), and reads only the blocks that its boxes
under its own program meet: a run may be resumed with other divisions or another number of devices. Entries are keyed
by path, as in the module's state_dict. Reading runs no code, whoever wrote the files, and every byte is held against
its checksum when it is read. `girih.run.training.dcp` converts to and from torch.distributed.checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET, UnsetType

from girih.program import Program
from girih.run.worker.initial import key_of
from girih.run.worker.parts import Box, Tensor, box_of, shape_of
from girih.store import durable, stored
from girih.store.manifest import DTYPES, Manifest, from_bytes
from girih.store.sealed import LARGEST_BYTES, Natural, StoredError

MANIFEST = "girih.json"
DCP_METADATA = ".metadata"
TORCH_DTYPES = {name: getattr(torch, name) for name in DTYPES if hasattr(torch, name)}
"""By name: a manifest names no other attribute of PyTorch."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, or does not belong to this program."""


class CheckpointManifest(Manifest, frozen=True, kw_only=True):
    """What a checkpoint holds. step: how many were done. seed: of the run. data: checksums of what the program has as
    data, such as a graph's features, which are not held."""

    KIND = "checkpoint"

    step: Natural
    seed: int
    data: dict[str, Natural] | UnsetType = UNSET


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


def read_manifest(directory: str | Path) -> CheckpointManifest:
    """What the checkpoint holds.

    Raises:
        CheckpointError: no checkpoint there, one of another format, or a damaged one.
    """
    path, data = Path(directory) / MANIFEST, b""
    try:
        with durable.opened(str(path)) as file:
            if file.size > LARGEST_BYTES:
                raise StoredError(f"has {file.size} bytes, more than the {LARGEST_BYTES} of any manifest")
            data = file.bytes(0, file.size)
        return from_bytes(data, CheckpointManifest)
    except FileNotFoundError as error:
        if (Path(directory) / DCP_METADATA).exists():
            raise CheckpointError(_old(directory)) from error
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {MANIFEST}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except StoredError as error:
        if (Path(directory) / DCP_METADATA).exists() and _is_first_format(data[:1000]):
            raise CheckpointError(_old(directory)) from error
        raise CheckpointError(f"{path} {error}: resume from another checkpoint") from error


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


def check_data(manifest: CheckpointManifest, directory: str | Path, checksums: Mapping[str, int]) -> None:
    """Training goes on with the data that the checkpoint was trained on; an old checkpoint does not say which.

    Raises:
        CheckpointError: it is other data, naming what differs.
    """
    if isinstance(manifest.data, UnsetType) or not checksums:
        return
    then = manifest.data
    if other := [name for name in {**then, **checksums} if then.get(name) != checksums.get(name)]:
        raise CheckpointError(
            f"{directory} was trained on other data: {' and '.join(other)} differ from what is given now, by their "
            "checksums: give the data of then, or load the checkpoint's weights into the network and start anew"
        )


def read(
    directory: str | Path, manifest: Manifest, program: Program, rank: int, paths: Iterable[str]
) -> Iterator[tuple[str, Tensor]]:
    """This worker's boxes, one by one, by input name; only the blocks that they meet are read.

    Raises:
        CheckpointError: a file is missing, damaged or another one.
    """
    wanted = set(paths)
    with CheckpointReader(directory, manifest) as reader:
        for item in program.graph.state_inputs:
            if key_of(item) in wanted:
                yield item.name, reader.tensor(key_of(item), box_of(program, item.name, rank))


class CheckpointReader(stored.ArrayReader[Manifest]):
    """The tensors of a checkpoint. A context manager."""

    def __init__(self, directory: str | Path, manifest: Manifest) -> None:
        super().__init__(manifest, str(Path(directory) / manifest.folder))

    def tensor(self, path: str, box: Box | None = None) -> Tensor:
        """A box of an entry, or all of it.

        Raises:
            CheckpointError: a file is missing, damaged or another one.
        """
        entry = self.manifest.entries[path]
        shape = entry.shape if box is None else shape_of(box)
        part = torch.empty(shape, dtype=TORCH_DTYPES[entry.dtype])
        elements = part.reshape(-1).view(torch.uint8).numpy().view(DTYPES[entry.dtype]).reshape(shape)
        try:
            self.read(path, box, elements)
        except (OSError, StoredError) as error:
            raise CheckpointError(self.words(error, path)) from error
        return part

    def words(self, error: OSError | StoredError, path: str) -> str:
        """What is wrong, in one line. path: of the entry that was read."""
        if isinstance(error, StoredError):
            return f"{Path(self.folder) / error.file} {error}: resume from another checkpoint"
        if isinstance(error, FileNotFoundError):
            return (
                f"{error.filename} is gone, which held {path!r}: the checkpoint was replaced while it was read, or "
                "the file was removed: resume again, or from another checkpoint"
            )
        return f"{error.filename or self.folder} cannot be read: {error.strerror}"


def damages(directory: str | Path) -> list[str]:
    """What is wrong with a checkpoint whose manifest can be read, each as one line: every byte is read and checked."""
    with CheckpointReader(directory, read_manifest(directory)) as reader:
        return list(dict.fromkeys(reader.words(error, path) for path, error in reader.damages()))
