"""The user's tensors in files while a run has newer ones: they keep their addresses and numbers, and take no memory.

A run has a copy of a model's weights and of the optimizer's state. The user's own must stay readable meanwhile, by
whatever holds them (views, optimizers, averages), so neither tensors nor storages are exchanged: their numbers are
written to a file without a name, and the file is mapped over the very pages that they lie in (`mmap(2)`, MAP_FIXED),
which gives these pages to the system; what reads them then reads the file's. Back they come by the reverse: a region is
allocated, filled and moved over the pages (`mremap(2)`). A process that is forked meanwhile shares the file.

State that the optimizer did not have before would need memory that the process never had. It stays in files, which are
mapped anew (MAP_PRIVATE): they are this process's own, and only what is written into them takes memory.

Set aside are storages of `LEAST` bytes and more whose pages are private memory of this process, or of a file that has
no name any more: no other file, no memory that is shared or pinned. Linux only; elsewhere, and where the disk is full,
tensors stay where they are.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import torch

Tensor = Any  # torch is untyped for the type checker
Ranges = list[tuple[int, int]]

LEAST = 1 << 18
MOST = 8192  # a process may have 65,530 ranges of pages (vm.max_map_count), and each tensor here adds up to three
PIECE = 1 << 24
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
FIXED, MAY_MOVE_TO = 0x10, 0x3  # MAP_FIXED; MREMAP_MAYMOVE | MREMAP_FIXED


class Held(NamedTuple):
    """A storage that is set aside; no freed page is ever mapped over while it is held. size: the bytes that it had.
    stays: it is to lie in a file at the end, too."""

    storage: Any
    size: int
    stays: bool


class Aside:
    """What is set aside. directory: where the files are, or None for the folder for temporary files."""

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory
        self._held: dict[int, Held] = {}  # by address

    def take(self, tensors: Iterable[Tensor]) -> None:
        """Set tensors aside; those that cannot be, and those that are already, stay as they are."""
        if not sys.platform.startswith("linux"):
            return
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors if _may(tensor)}
        found = [(start, storage) for start, storage in storages.items() if start not in self._held]
        private = {stays: _private(stays) for stays in (False, True)} if found else {}
        for start, storage in found:
            first, last = _pages(start, storage.nbytes())
            kinds = [stays for stays, ranges in private.items() if _inside(ranges, first, last)]
            if len(self._held) >= MOST or not kinds:
                continue
            with suppress(OSError):
                self._to_file(first, last, mmap.MAP_SHARED)
                self._held[start] = Held(storage, storage.nbytes(), kinds[0])

    def copied(self, tensor: Tensor) -> Tensor:
        """A copy that is set aside from the beginning, and stays in a file."""
        if tensor.nbytes < LEAST or len(self._held) >= MOST or not sys.platform.startswith("linux"):
            return tensor.clone()
        pages = mmap.mmap(-1, tensor.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        copy = torch.frombuffer(pages, dtype=tensor.dtype).view(tensor.shape)
        try:
            self._to_file(*_pages(copy.data_ptr(), copy.nbytes), mmap.MAP_SHARED, numbers=False)
        except OSError:
            return tensor.clone()
        self._held[copy.data_ptr()] = Held(copy.untyped_storage(), copy.nbytes, True)
        return copy.copy_(tensor)

    def back(self) -> None:
        """All is this process's alone again, and in memory, but for what stays in files; where the system gives no
        memory, the rest stays as it is, and can be used."""
        held, self._held = self._held, {}
        for start, (storage, size, stays) in held.items():
            if storage.data_ptr() == start and storage.nbytes() == size:  # nobody has put other memory there
                with suppress(OSError):
                    if stays:
                        self._to_file(*_pages(start, size), mmap.MAP_PRIVATE)
                    else:
                        _to_memory(*_pages(start, size))

    def _to_file(self, first: int, last: int, mapping: int, numbers: bool = True) -> None:
        """Map a file over pages. numbers: it has theirs. Raises OSError where there is no room; nothing has happened
        then."""
        with tempfile.TemporaryFile(prefix="girih-aside-", dir=self.directory, buffering=0) as file:
            if not numbers:
                os.posix_fallocate(file.fileno(), 0, last - first)  # else a full disk would end the process later
            for at in range(first, last, PIECE) if numbers else ():
                piece = memoryview((ctypes.c_char * (min(at + PIECE, last) - at)).from_address(at)).cast("B")
                while piece:
                    piece = piece[file.write(piece) :]
            _map(first, last - first, mapping | FIXED, file.fileno())


def _may(tensor: Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    if tensor.device.type != "cpu" or tensor.untyped_storage().nbytes() < LEAST or tensor.is_shared():
        return False
    return not (torch.cuda.is_initialized() and tensor.is_pinned())


def _pages(start: int, size: int) -> tuple[int, int]:
    """The whole pages among so many bytes from an address: the first byte, and that behind the last."""
    return -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + size) // mmap.PAGESIZE * mmap.PAGESIZE


def _private(nameless: bool) -> Ranges:
    """This process's ranges of private memory, in order, without a file behind it, or with one that is `nameless`;
    neighbours are joined."""
    ranges: Ranges = []
    with open("/proc/self/maps", encoding="utf-8") as lines:
        for line in lines:
            where, rights, _, _, inode, *name = line.split()
            kind = inode == "0" if not nameless else name[-1:] == ["(deleted)"]
            if rights[:2] != "rw" or rights[3] != "p" or not kind:
                continue
            first, last = (int(end, 16) for end in where.split("-"))
            if ranges and ranges[-1][1] == first:
                ranges[-1] = ranges[-1][0], last
            else:
                ranges.append((first, last))
    return ranges


def _inside(ranges: Ranges, first: int, last: int) -> bool:
    at = bisect.bisect_right(ranges, (first, sys.maxsize)) - 1
    return at >= 0 and ranges[at][0] <= first and last <= ranges[at][1]


def _to_memory(first: int, last: int) -> None:
    """Raises OSError where the system gives no memory; the file stays mapped then."""
    size = last - first
    new = _map(0, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    ctypes.memmove(new, first, size)
    if _system().mremap(new, size, size, MAY_MOVE_TO, ctypes.c_void_p(first)) != first:
        number = ctypes.get_errno()
        _system().munmap(new, size)
        raise OSError(number, "mremap")


def _map(address: int, size: int, flags: int, file: int) -> int:
    found = int(_system().mmap(address, size, READ_WRITE, flags, file, 0) or 0)
    if found in (0, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return found


@cache
def _system() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = library.mremap.restype = pointer
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    library.mremap.argtypes = [pointer, size, size, number, pointer]
    library.munmap.argtypes = [pointer, size]
    return library
