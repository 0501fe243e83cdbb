"""Sources in files of NumPy: npy, npz and raw memory. Others are in `girih.capture.lazy.stored_sources`.

A file is read where its elements lie, so that a part costs its own bytes. Members of compressed archives cannot be
entered in the middle: a part is found by unpacking what comes before it, which is not held.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from girih.capture.lazy.sources import Source, SourceError

Stamp = tuple[int, int]
"""When a file was modified (nanoseconds), and its bytes."""

_LOCAL_HEADER = 30
_SKIPPED_AT_ONCE = 1 << 20


def stamp_of(path: str) -> Stamp:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


@dataclass(frozen=True)
class InFile(Source):
    """What lies in one file that must not change from the time when it was opened. path: absolute."""

    path: str
    stamp: Stamp
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def name(self) -> str:
        return self.path

    def check(self) -> None:
        try:
            same = stamp_of(self.path) == self.stamp
        except OSError as error:
            raise SourceError(f"{self.name}: {error.strerror}; it was there when it was opened") from None
        if not same:
            raise SourceError(f"{self.name}: the file has changed since it was opened: open it again")

    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        self.check()
        return self.load_now(starts, stops)

    @abstractmethod
    def load_now(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        """A part of the file, which is as it was."""


@dataclass(frozen=True)
class Raw(InFile):
    """Elements one after another from byte `offset`. stored: their dtype, with its byte order; columns: Fortran's."""

    offset: int
    stored: str
    columns: bool

    def load_now(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        kind = np.dtype(self.stored)
        if self._in_a_run(starts, stops):
            elements = np.fromfile(
                self.path, kind, (stops[0] - starts[0]) * self._row, offset=self._place(starts[0], kind)
            )
            return elements.reshape(stops[0] - starts[0], *self.shape[1:])
        order = "F" if self.columns else "C"
        mapped = np.memmap(self.path, kind, "r", self.offset, self.shape, order)  # type: ignore[call-overload]
        return mapped[tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))]

    def opened(self) -> AbstractContextManager[BinaryIO]:
        return open(self.path, "rb", buffering=0)

    def load_into(self, opened: Any, starts: tuple[int, ...], stops: tuple[int, ...], out: np.ndarray) -> None:
        kind = np.dtype(self.stored)
        if kind != out.dtype or not out.flags.c_contiguous or not self._in_a_run(starts, stops):
            super().load_into(opened, starts, stops, out)
            return
        self.check()
        opened.seek(self._place(starts[0], kind))
        left = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while left.nbytes:
            count = opened.readinto(left)
            if not count:
                raise SourceError(f"{self.name}: the file ends {left.nbytes} bytes before the rows that are read")
            left = left[count:]

    def _in_a_run(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> bool:
        """Do the elements of a part lie one behind the other in the file?"""
        whole = zip(starts[1:], stops[1:], self.shape[1:], strict=True)
        in_rows = len(self.shape) == 1 or (bool(self.shape) and not self.columns)
        return in_rows and all(stop - start == size for start, stop, size in whole)

    @property
    def _row(self) -> int:
        return math.prod(self.shape[1:])

    def _place(self, row: int, kind: np.dtype) -> int:
        """The byte at which a row begins."""
        return self.offset + row * self._row * kind.itemsize


@dataclass(frozen=True)
class Packed(InFile):
    """A compressed member of an npz file."""

    member: str
    stored: str
    columns: bool

    @property
    def name(self) -> str:
        return f"{self.path}: {self.member.removesuffix('.npy')}"

    def load_now(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        shape = self.shape
        if self.columns:  # the file has the transposed array in rows
            shape, starts, stops = shape[::-1], starts[::-1], stops[::-1]
        kind = np.dtype(self.stored)
        row = math.prod(shape[1:]) * kind.itemsize
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            _header(file, self.name)
            left = starts[0] * row
            while left > 0 and (skipped := len(file.read(min(left, _SKIPPED_AT_ONCE)))):
                left -= skipped
            content = file.read((stops[0] - starts[0]) * row)
        rows = np.frombuffer(content, kind).reshape(-1, *shape[1:])
        part = rows[(slice(None), *(slice(start, stop) for start, stop in zip(starts[1:], stops[1:], strict=True)))]
        return part.T if self.columns else part


def npy(path: str) -> Source:
    """The array of an npy file.

    Raises:
        SourceError: it is no npy file, or holds Python objects. OSError: it cannot be opened.
    """
    path = os.path.abspath(path)
    with open(path, "rb") as file:
        shape, columns, kind = _header(file, path)
        offset = file.tell()
    source = Raw(path, stamp_of(path), shape, kind.newbyteorder("="), offset, kind.str, columns)
    _long_enough(source, source.stamp[1] - offset)
    return source


def npz(path: str) -> dict[str, Source]:
    """The arrays of an npz file by name. Raises as `npy`."""
    path = os.path.abspath(path)
    stamp = stamp_of(path)
    sources: dict[str, Source] = {}
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for entry in archive.infolist():
                if not entry.filename.endswith(".npy"):
                    continue
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as member:
                    shape, columns, kind = _header(member, f"{path}: {name}")
                    length = member.tell()
                native = kind.newbyteorder("=")
                if entry.compress_type == zipfile.ZIP_STORED:
                    offset = _begin(file, entry) + length
                    sources[name] = Raw(path, stamp, shape, native, offset, kind.str, columns)
                else:
                    sources[name] = Packed(path, stamp, shape, native, entry.filename, kind.str, columns)
                _long_enough(sources[name], entry.file_size - length)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{path} is no npz file: {error}") from None
    return sources


def raw(path: str, dtype: Any, shape: tuple[int, ...] | None, offset: int = 0, order: str = "C") -> Source:
    """Elements without a header, as `np.memmap`. shape: by default one dimension to the end of the file.

    Raises:
        SourceError: the file is too short for the shape. OSError: it cannot be opened.
    """
    path = os.path.abspath(path)
    kind = np.dtype(dtype)
    with open(path, "rb"):  # may it be read?
        stamp = stamp_of(path)
    if order not in ("C", "F"):
        raise SourceError(f"{path}: order {order!r}: expected 'C' or 'F'")
    if kind.hasobject:
        raise SourceError(f"{path}: dtype {kind}: Python objects cannot be read from raw memory")
    if shape is None:
        if (stamp[1] - offset) % kind.itemsize or offset > stamp[1]:
            raise SourceError(
                f"{path}: {stamp[1] - offset} bytes from byte {offset} are no whole number of {kind} elements"
            )
        shape = ((stamp[1] - offset) // kind.itemsize,)
    source = Raw(path, stamp, shape, kind.newbyteorder("="), offset, kind.str, order == "F")
    _long_enough(source, stamp[1] - offset)
    return source


def _header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, Fortran order, dtype) of an npy file, which is read up to its elements."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns, kind = read(file)
    except ValueError as error:
        raise SourceError(f"{name} is no npy file: {error}") from None
    if kind.hasobject:
        raise SourceError(f"{name} holds Python objects (dtype {kind}): save it with a numeric dtype")
    return shape, columns, kind


def _begin(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """The byte of an archive where an uncompressed member begins: after its name and its extra field."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER)
    name, extra = struct.unpack("<HH", header[26:30])
    return entry.header_offset + _LOCAL_HEADER + int(name) + int(extra)


def _long_enough(source: Source, there: int) -> None:
    if there < source.nbytes:
        raise SourceError(
            f"{source.name}: {there} bytes for {source.dtype}{list(source.shape)}, which takes {source.nbytes}: "
            "the file was cut off, or the shape is not its own"
        )
