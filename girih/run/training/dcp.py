"""To and from torch.distributed.checkpoint (DCP): an explicit export and import.

DCP keeps what a checkpoint holds as a pickle, which PyTorch reads by running it. The import here does not: a reader of
its own admits the few classes of PyTorch that such a file names, each by its exact name, and makes inert records of
them, so that no code of any library runs and no class of PyTorch is touched. Tensors in DCP's files are read by
PyTorch's `torch.load(weights_only=True)`, which is as strict. What is no tensor is left out, and named.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import uuid
import zipfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from girih.run.training.checkpoint import (
    DCP_METADATA,
    MANIFEST,
    TORCH_DTYPES,
    CheckpointError,
    CheckpointManifest,
    CheckpointReader,
    read_manifest,
)
from girih.run.training.saving import Saving, append
from girih.run.worker.parts import Tensor
from girih.store import durable
from girih.store.manifest import ArrayEntry, Chunk, tiles
from girih.store.stored import replacing

LARGEST_METADATA = 1 << 30
SUMMARY_FORMAT = 1
PLAIN_NAME = re.compile(r"[\w.-]{1,200}")


# ------------------------------------------------------------------------------------------- export


def export_dcp(directory: str | Path, out: str | Path) -> CheckpointManifest:
    """Write a checkpoint in DCP's format, tensor by tensor; `import_dcp` and PyTorch's tools read it.

    out: a new directory. Beside DCP's files it has girih.json with the step and the seed.

    Raises:
        CheckpointError: the checkpoint is damaged, or `out` exists or cannot be written.
    """
    manifest, goal = read_manifest(directory), Path(out).absolute()
    if os.path.lexists(goal):
        raise CheckpointError(f"{goal} exists: give a new directory for the export")
    beside = goal.with_name(f".{goal.name}.{uuid.uuid4().hex[:12]}")
    try:
        beside.mkdir(parents=True)
        with CheckpointReader(directory, manifest) as reader:
            _write_dcp(beside, manifest, reader)
        summary = {"step": manifest.step, "seed": manifest.seed, "format": SUMMARY_FORMAT}
        (beside / MANIFEST).write_text(json.dumps(summary) + "\n")
        os.rename(beside, goal)
    except OSError as error:
        raise CheckpointError(f"{goal} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return manifest


def _write_dcp(folder: Path, manifest: CheckpointManifest, reader: CheckpointReader) -> None:
    from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, SavePlan
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    entries, items, chunks = {}, [], {}
    for path, entry in manifest.entries.items():
        properties = TensorProperties(dtype=TORCH_DTYPES[entry.dtype])
        parts = [ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)) for chunk in entry.chunks]
        entries[path] = TensorStorageMetadata(properties, torch.Size(entry.shape), parts)
        for number, (chunk, part) in enumerate(zip(entry.chunks, parts, strict=True)):
            index = MetadataIndex(path, part.offsets, number)
            data = TensorWriteData(part, properties, torch.Size(entry.shape))
            items.append(WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data))
            chunks[index] = path, chunk

    class ChunkPlanner(DefaultSavePlanner):
        """Gives DCP's writer the tensor of each item."""

        def resolve_data(self, write_item: Any) -> Tensor:
            path, chunk = chunks[write_item.index]
            return reader.tensor(path, chunk.box)

    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(True)
    plans = writer.prepare_global_plan([SavePlan(items)])
    results = list(writer.write_data(plans[0], ChunkPlanner()).wait()) if items else []
    writer.finish(Metadata(entries), [results])


# ------------------------------------------------------------------------------------------- import


@dataclass(frozen=True)
class Stored:
    """A tensor that DCP has saved: `length` bytes of a file."""

    file: str
    start: int
    length: int


@dataclass(frozen=True)
class DcpContents:
    """What a directory of DCP holds. tensors: dtype, shape, and where each chunk is. others: paths of what is no
    tensor."""

    tensors: Mapping[str, tuple[str, tuple[int, ...], tuple[tuple[Chunk, Stored], ...]]]
    others: tuple[str, ...]


def import_dcp(
    source: str | Path, directory: str | Path, step: int = 0, seed: int = 0
) -> tuple[CheckpointManifest, list[str]]:
    """Make a checkpoint of DCP's files, chunk by chunk; the paths of what is no tensor and was left out.

    step, seed: of the run, where `source` has no girih.json that says so.

    Raises:
        CheckpointError: `source` is damaged or holds anything but data, or `directory` cannot be written.
    """
    foreign = read_metadata(source)
    step, seed = _summary(Path(source) / MANIFEST, step, seed)
    saving = Saving(directory)
    try:
        folder = saving.begin()
        manifest = _import(Path(source), foreign, folder, step, seed)
        saving.publish(manifest)
    except OSError as error:
        raise CheckpointError(
            f"{directory}: {error.filename or 'a file'} cannot be written: {error.strerror}"
        ) from error
    finally:
        saving.end()
    return manifest, list(foreign.others)


def _import(source: Path, foreign: DcpContents, folder: str, step: int, seed: int) -> CheckpointManifest:
    entries, name = {}, "rank-0.bin"
    with replacing(os.path.join(folder, name), name) as writer:
        for path, (dtype, shape, chunks) in foreign.tensors.items():
            for chunk, stored in chunks:
                deque(append(writer, path, chunk.offsets, _tensor(source, path, dtype, chunk, stored)), maxlen=0)
            entries[path] = ArrayEntry(dtype, shape, tuple(writer.chunks.get(path, ())))
    return CheckpointManifest(step=step, seed=seed, files={name: writer.at}, entries=entries)


def _tensor(source: Path, path: str, dtype: str, chunk: Chunk, stored: Stored) -> Tensor:
    data = _bytes_of(source / stored.file, stored.start, stored.length)
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):  # PyTorch does not look at the checksums that it writes
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if (member := archive.testzip()) is not None:
                    raise ValueError(f"the checksum of {member} does not fit")
        tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever PyTorch makes of damaged bytes
        raise CheckpointError(f"{source / stored.file} is damaged: {path!r} cannot be read from it") from error
    fits = isinstance(tensor, torch.Tensor) and (tuple(tensor.shape), tensor.dtype) == (
        chunk.sizes,
        TORCH_DTYPES[dtype],
    )
    if not fits or tensor.layout != torch.strided:
        raise CheckpointError(f"{source / stored.file} has something else than {path!r}, {dtype}{list(chunk.sizes)}")
    return tensor


def _bytes_of(path: Path, start: int, length: int | None, most: int = 1 << 62) -> bytes:
    try:
        with durable.opened(str(path)) as file:
            length = file.size if length is None else length
            if start + length > file.size or length > most:
                raise CheckpointError(f"{path} has {file.size} bytes, which does not fit: it was cut or replaced")
            return file.bytes(start, start + length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _summary(path: Path, step: int, seed: int) -> tuple[int, int]:
    if not path.exists():
        return step, seed
    try:
        data = json.loads(_bytes_of(path, 0, None, 100_000))
        if data["format"] == SUMMARY_FORMAT and type(data["step"]) is type(data["seed"]) is int:
            return data["step"], data["seed"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: remove it, and give step and seed") from error
    raise CheckpointError(f"{path} is none that girih's export writes: remove it, and give step and seed")


# ------------------------------------------------------------------------------------------- DCP's metadata


class InertRecord:
    """An object of the pickle: the name of its class, and its state."""

    kind = ""

    def __init__(self, *state: Any) -> None:
        self.state: Any = state

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def field(self, name: str) -> Any:
        if not isinstance(self.state, dict):
            raise TypeError(f"{self.kind} without fields")
        return self.state.get(name)


def _record(name: str) -> type[InertRecord]:
    return type("Admitted", (InertRecord,), {"kind": name})


def _admitted() -> dict[tuple[str, str], Any]:
    """What a pickle may name, and what it gets: records, tuples and names, made anew for each file."""
    checkpoint = "torch.distributed.checkpoint."
    classes: dict[tuple[str, str], Any] = {
        (checkpoint + "metadata", name): _record(name)
        for name in (
            "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties", "ChunkStorageMetadata",
            "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
        )
    }  # fmt: skip
    classes[checkpoint + "filesystem", "_StorageInfo"] = _record("_StorageInfo")
    classes["builtins", "getattr"] = _member  # so some releases of Python 3.11 write members of enumerations
    classes["torch", "Size"] = _sizes
    classes["torch.serialization", "_get_layout"] = _record("layout")
    classes["collections", "OrderedDict"] = dict
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"):
            classes[module, name] = _record("path")
    classes.update((("torch", name), name) for name in TORCH_DTYPES)
    return classes


def _member(record: Any, name: Any) -> InertRecord:
    """A member of DCP's one enumeration; of nothing else an attribute is read."""
    if getattr(record, "kind", "") != "_MEM_FORMAT_ENCODING" or not isinstance(name, str):
        raise ForeignNameError("it reads an attribute of what is no enumeration of DCP's")
    found: InertRecord = record(name)
    return found


def _sizes(numbers: Any = ()) -> tuple[int, ...]:
    if not isinstance(numbers, (tuple, list)) or not all(type(item) is int and 0 <= item < 1 << 62 for item in numbers):
        raise TypeError("sizes that are no whole numbers")
    return tuple(numbers)


class ForeignNameError(pickle.UnpicklingError):
    """A pickle names what is none of DCP's classes."""


class _Unpickler(pickle.Unpickler):
    """Finds nothing but what is admitted."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._names = _admitted()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._names:
            raise ForeignNameError(f"it names {module[:100]!r}, {name[:100]!r}, which is none of DCP's own classes")
        return self._names[module, name]


def read_metadata(source: str | Path) -> DcpContents:
    """What DCP says that its directory holds, read as data.

    Raises:
        CheckpointError: there is none, it is damaged, or it names anything else than DCP's own classes.
    """
    path = Path(source) / DCP_METADATA
    data = _bytes_of(path, 0, None, LARGEST_METADATA)
    try:
        top = _Unpickler(data).load()
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to mean
        why = str(error) if isinstance(error, ForeignNameError) else "it is damaged, or no metadata of DCP at all"
        raise CheckpointError(f"{path} is not read: {why}; nothing of it was run") from error
    try:
        return _foreign(top)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{path} is damaged, or of another version of PyTorch: {reason}") from error


def _foreign(top: Any) -> DcpContents:
    entries = _mapping(_of(top, "Metadata").field("state_dict_metadata"))
    stored: dict[tuple[str, tuple[int, ...]], Stored] = {}
    for index, info in _mapping(top.field("storage_data")).items():
        _of(index, "MetadataIndex")
        place = _of(info, "_StorageInfo")
        if place.field("transform_descriptors"):
            raise ValueError(f"{_text(index.field('fqn'))!r} was compressed or otherwise changed by an extension")
        file = _text(place.field("relative_path"))
        if PLAIN_NAME.fullmatch(file) is None or file in (".", ".."):
            raise ValueError(f"{file[:100]!r} is no plain name of a file")
        start, length = _sizes((place.field("offset"), place.field("length")))
        offset = index.field("offset")
        stored[_text(index.field("fqn")), _sizes(offset or ())] = Stored(file, start, length)
    tensors, others = {}, []
    for key, entry in entries.items():
        if isinstance(entry, InertRecord) and entry.kind == "BytesStorageMetadata":
            others.append(_text(key))
        else:
            tensors[_text(key)] = _tensor_entry(_text(key), _of(entry, "TensorStorageMetadata"), stored)
    return DcpContents(tensors, tuple(others))


def _tensor_entry(
    key: str, entry: InertRecord, stored: Mapping[tuple[str, tuple[int, ...]], Stored]
) -> tuple[str, tuple[int, ...], tuple[tuple[Chunk, Stored], ...]]:
    properties = _of(entry.field("properties"), "TensorProperties").state
    dtype = _text(properties[0] if isinstance(properties, tuple) else properties["dtype"])
    if dtype not in TORCH_DTYPES:
        raise ValueError(f"{key!r} has the dtype {dtype[:60]!r}")
    shape = _sizes(entry.field("size"))
    chunks = []
    for item in entry.field("chunks"):
        _of(item, "ChunkStorageMetadata")
        offsets, sizes = _sizes(item.field("offsets")), _sizes(item.field("sizes"))
        if 0 in sizes:
            continue
        if len(offsets) != len(shape) or len(sizes) != len(shape) or (key, offsets) not in stored:
            raise ValueError(f"{key!r} has a chunk at {list(offsets)} that is nowhere")
        chunks.append((Chunk(offsets, sizes, "", (0, 0), ()), stored[key, offsets]))
    if not tiles(shape, [chunk.box for chunk, _ in chunks]):
        raise ValueError(f"the chunks of {key!r} overlap, or leave something out")
    return dtype, shape, tuple(chunks)


def _of(item: Any, kind: str) -> InertRecord:
    if not isinstance(item, InertRecord) or item.kind != kind:
        raise TypeError(f"{type(item).__name__} where {kind} belongs")
    return item


def _mapping(item: Any) -> dict[Any, Any]:
    if not isinstance(item, dict):
        raise TypeError(f"{type(item).__name__} where a dictionary belongs")
    return item


def _text(item: Any) -> str:
    if not isinstance(item, str):
        raise TypeError(f"{type(item).__name__} where a string belongs")
    return item
