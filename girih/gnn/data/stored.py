"""Data in one .npz file whose arrays are mapped: what `numpy.load` reads too.

An array is a member of the zip archive that is not compressed and begins at a multiple of 64 bytes, so that it can be
mapped where it lies. The archive has a checksum (CRC-32) of each member, which is compared when the file is opened; the
member `about` is JSON with a checksum of its own.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.data.data import SPLITS, Data
from girih.gnn.data.errors import DataError
from girih.gnn.data.watch import Watch
from girih.store import durable, sealed

Array = NDArray[Any]
KIND, FORMAT = "graph", 1
ALIGNED = 64
SLICE_BYTES = 1 << 26
PADDING = 0x6967  # the type of an extra field of a member that says nothing
ARRAYS = ("x", "labels", *SPLITS, "edge_features")
HEAD = struct.Struct("<4s5H3L2H")
EARLIEST = (1980, 1, 1, 0, 0, 0)


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says beside its arrays."""

    sources: Annotated[int, msgspec.Meta(ge=1)]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def save(data: Data, path: str | Path) -> None:
    """Write data into one .npz file, in one step: until it is whole, what was there stays.

    Raises:
        DataError: the name does not end in .npz. OSError: it cannot be written.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise DataError(f"{path}: data is saved in one file whose name ends in .npz")
    arrays: dict[str, Array] = {"offsets": data.graph.offsets, "neighbours": data.graph.neighbours}
    optional = {"weights": data.graph.weights, **{name: getattr(data, name) for name in ARRAYS}}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    about = sealed.seal(KIND, FORMAT, About(data.graph.sources, data.names, data.notes))
    with (
        durable.replacing(str(path)) as descriptor,
        os.fdopen(os.dup(descriptor), "r+b") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, array in {**arrays, "about": np.frombuffer(about, np.uint8)}.items():
            _write(archive, f"{name}.npy", array)
    durable.sync_folder(str(path.parent))


def _write(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    member = zipfile.ZipInfo(name, EARLIEST)
    at = archive.fp.tell() + HEAD.size + len(name) + 20 + 4  # type: ignore[union-attr]  # 20: of sizes above 4 GB
    member.extra = struct.pack("<HH", PADDING, -at % ALIGNED) + bytes(-at % ALIGNED)
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def read(path: Path, check: bool = True) -> Data | None:
    """What `save` wrote; None: the file is an archive of something else. check: compare every byte with its checksum.

    Raises:
        DataError: it is damaged, or no archive.
    """
    arrays = mapped(path, check)
    if "about" not in arrays:
        return None
    try:
        about = sealed.unseal(KIND, FORMAT, arrays["about"].tobytes(), About)
    except sealed.StoredError as error:
        raise DataError(f"{path} {error}") from error
    if missing := {"offsets", "neighbours"} - arrays.keys():
        raise DataError(f"{path} is damaged: it has no {' and no '.join(sorted(missing))}")
    graph = Adjacency(arrays["offsets"], arrays["neighbours"], about.sources, arrays.get("weights"))
    known: dict[str, Any] = {name: arrays[name] for name in ARRAYS if name in arrays}
    return Data(graph, names=about.names, notes=about.notes, name=str(path), watch=Watch.of(str(path)), **known)


def mapped(path: Path, check: bool = True) -> Mapping[str, Array]:
    """The arrays of an .npz file by name: mapped where they lie, or read, where they are compressed.

    Pages are private to this process: nothing is written into the file.

    Raises:
        DataError: it is damaged, or no archive, or has objects of Python.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            return {name: _array(path, archive, member, check) for name, member in zip(names, members, strict=True)}
    except (DataError, OSError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged archive leads to
        raise DataError(f"{path} is damaged, or no .npz file of arrays: {error}") from error


def _array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, check: bool) -> Array:
    with path.open("rb") as file:
        file.seek(member.header_offset)
        head = HEAD.unpack(file.read(HEAD.size))
        start = member.header_offset + HEAD.size + head[9] + head[10]
        file.seek(start)
        version = np.lib.format.read_magic(file) if member.compress_type == zipfile.ZIP_STORED else (0, 0)
        if version not in ((1, 0), (2, 0)) or not member.file_size:
            return _unpacked(archive, member)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = reader(file)
        offset = file.tell()
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if dtype.hasobject or (by_columns and len(shape) > 1) or offset % dtype.alignment or not size:
        return _unpacked(archive, member)
    if offset - start + size != member.file_size or start + member.file_size > path.stat().st_size:
        raise DataError(f"{path} is damaged: {member.filename} has not the size that it says")
    if check:
        _check_sum(path, start, member)
    return np.memmap(path, dtype, "c", offset, shape)


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        file.read()  # to the end, where the checksum is compared
        return array


def _check_sum(path: Path, start: int, member: zipfile.ZipInfo) -> None:
    checksum = 0
    left = member.file_size
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left and (part := file.read(min(left, SLICE_BYTES))):
            checksum, left = zlib.crc32(part, checksum), left - len(part)
    if left or checksum != member.CRC:
        raise DataError(f"{path} is damaged: {member.filename} does not fit its checksum")
