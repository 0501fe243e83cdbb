"""Data that changes while it is used is noticed: a mapped file by its size, its time, and a sample of its bytes, arrays
by checksums."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from girih.gnn.data.errors import DataError

SAMPLES = 64
SAMPLE_BYTES = 4096


@dataclass(frozen=True)
class Watch:
    """A file as it was. nanoseconds: when it was last written. sample: a checksum of some of its bytes."""

    path: str
    bytes: int
    nanoseconds: int
    inode: int
    sample: int

    @classmethod
    def of(cls, path: str) -> Watch:
        """The file as it is now; it is read at 64 places."""
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ino, _sample(path, status.st_size))

    def check(self) -> None:
        """Raises DataError if the file is gone, or is another one, or has been written.

        A file that others have replaced in one step is still there for who has mapped it, and is refused all the same:
        what is computed from it would not be what the path says.
        """
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise DataError(f"{self.path} is gone while it is used ({error.strerror}): {_CURE}") from error
        if status.st_size != self.bytes:
            self._refuse(f"had {self.bytes} bytes and has {status.st_size} now")
        if status.st_ino != self.inode:
            self._refuse("was replaced by another file")
        if _sample(self.path, self.bytes) != self.sample:
            self._refuse("has other contents now")
        if status.st_mtime_ns != self.nanoseconds:
            self._refuse("was written")

    def _refuse(self, what: str) -> None:
        raise DataError(f"{self.path} {what} while it is used: {_CURE}")


_CURE = "what was learned until now is as it was; save it, load the graph again, and go on from there"


def checksums(arrays: Mapping[str, Any]) -> dict[str, int]:
    """A checksum of each array's bytes, by name; how its elements lie in memory does not matter."""
    return {name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in arrays.items()}


def fingerprints(arrays: Mapping[str, Any]) -> dict[str, int]:
    """As `checksums`, at the pace of memory, for checks in every step; these are in no file."""
    return {name: xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data) for name, array in arrays.items()}


def _sample(path: str, size: int) -> int:
    """A checksum of up to 64 pages, evenly over the file."""
    checksum = 0
    step = max(SAMPLE_BYTES, size // SAMPLES)
    with open(path, "rb", buffering=0) as file:
        for at in range(0, size, step):
            file.seek(at)
            checksum = zlib.crc32(file.read(SAMPLE_BYTES), checksum)
    return checksum
