"""Files of tiles: what is written whole or not at all, and read back only as it was written.

A file is a line of JSON with a checksum of its own (`girih.run.training.sealed`), and then the bytes of buffers, each
with its checksum in that line. Tensors keep their strides, and those that share a buffer share it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from girih.run.training import durable
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.manifest import DTYPES, checksum
from girih.run.training.sealed import SealError, fields, items, natural, naturals, seal, unseal
from girih.run.worker.parts import Tensor

FORMAT = 2
LONGEST_LINE = 64 << 20


def file_of(name: str, rank: int) -> str:
    return f"{name}.{rank}"


def system_of(place: str) -> tuple[Any, str]:
    """The file system, and the path in it."""
    import fsspec

    system, root = fsspec.core.url_to_fs(place)
    return system, str(root)


def is_local(system: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(system, LocalFileSystem)


def words(error: OSError) -> str:
    return " ".join((error.strerror or str(error) or type(error).__name__).split())


@contextlib.contextmanager
def clear_errors(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or place} cannot be written: {words(error)}; make room: the checkpoint before is whole"
        ) from error


def write_file(place: str, name: str, pieces: Iterable[bytes | memoryview]) -> None:
    """A file that is there whole or not at all."""
    system, root = system_of(place)
    goal = f"{root}/{name}"
    unfinished = f"{goal}.{uuid.uuid4().hex[:8]}.part"
    try:
        if is_local(system):
            descriptor = durable.create(unfinished)
            try:
                for piece in pieces:
                    durable.write_all(descriptor, piece)
                durable.sync(descriptor)
            finally:
                durable.close(descriptor)
            durable.rename(unfinished, goal)
        else:
            with system.open(unfinished, "wb") as file:
                for piece in pieces:
                    file.write(piece)
            system.mv(unfinished, goal)
    except BaseException:
        with contextlib.suppress(OSError):
            system.rm_file(unfinished)
        raise


def is_plain(tensor: Any) -> bool:
    return not (tensor.is_conj() or tensor.is_neg())


def save(place: str, name: str, rank: int, tensors: Mapping[int, Tensor], more: Mapping[str, Any]) -> None:
    """Tensors by number, with their strides; those that share a buffer share it."""
    numbers: dict[int, int] = {}
    buffers: list[memoryview] = []
    entries = {}
    for number, tensor in tensors.items():
        storage = tensor.untyped_storage()
        place_of = storage.data_ptr() if storage.nbytes() else -1
        if place_of not in numbers:
            numbers[place_of] = len(buffers)
            every = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            every.set_(storage, 0, (storage.nbytes(),), (1,))
            buffers.append(memoryview(every.cpu().numpy()))
        entries[str(number)] = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": tuple(tensor.shape),
            "strides": tensor.stride(),
            "offset": tensor.storage_offset(),
            "buffer": numbers[place_of],
            "conjugate": tensor.is_conj(),
            "negative": tensor.is_neg(),
        }
    head = seal(
        "tile",
        FORMAT,
        {
            "of": [place.rpartition("/")[2], name, rank],
            "tensors": entries,
            "buffers": [[len(buffer), checksum(buffer)] for buffer in buffers],
            "more": dict(more),
        },
    )
    with clear_errors(f"{place}/{file_of(name, rank)}"):
        write_file(place, file_of(name, rank), [head, *buffers])


def load(place: str, name: str, rank: int) -> tuple[dict[int, Tensor], Any]:
    """What `_save` wrote: tensors, and what was more.

    Raises:
        CheckpointError: the file is missing, damaged or another one.
    """
    path = f"{place}/{file_of(name, rank)}"
    try:
        with _open(place, file_of(name, rank)) as file:
            head = fields(unseal("tile", FORMAT, file.readline(LONGEST_LINE))[0], "of", "tensors", "buffers", "more")
            if head["of"] != [place.rpartition("/")[2], name, rank]:
                raise SealError(f"is the file of {head['of']}")
            buffers = [_buffer(file, number, *items(item)) for number, item in enumerate(items(head["buffers"]))]
            if file.read(1):
                raise SealError("is longer than it was")
        tensors = {natural(int(number)): _tensor(entry, buffers) for number, entry in fields(head["tensors"]).items()}
    except (SealError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
        why = str(error) if isinstance(error, SealError) else "has a head that makes no sense"
        raise CheckpointError(f"{path} {why}: what it held is lost, the program has to start anew") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {words(error)}") from error
    return tensors, head["more"]


def _open(place: str, name: str) -> Any:
    system, root = system_of(place)
    if is_local(system):
        return os.fdopen(durable.open_regular(f"{root}/{name}")[0], "rb")
    return system.open(f"{root}/{name}", "rb")


def _buffer(file: Any, number: int, size: int, expected: str) -> Tensor:
    """The next buffer of the file, read and checked in one go."""
    buffer = torch.empty(natural(size, 1 << 48), dtype=torch.uint8)
    view = memoryview(buffer.numpy())
    done = 0
    while done < size and (count := file.readinto(view[done:])):
        done += count
    if done < size:
        raise SealError("was cut")
    if checksum(view) != expected:
        raise SealError(f"is damaged: the checksum of buffer {number} does not fit")
    return buffer


def _tensor(entry: Any, buffers: Sequence[Tensor]) -> Tensor:
    fields(entry, "dtype", "shape", "strides", "offset", "buffer", "conjugate", "negative")
    shape, strides = naturals(entry["shape"]), naturals(entry["strides"])
    storage = buffers[natural(entry["buffer"])].untyped_storage()
    tensor = torch.empty(0, dtype=DTYPES[entry["dtype"]])
    tensor.set_(storage, natural(entry["offset"]), shape, strides)
    if entry["conjugate"]:
        tensor = tensor.conj()
    return torch._neg_view(tensor) if entry["negative"] else tensor
