"""Arenas: PyTorch's CPU allocator served from one region of a fixed size, at planned addresses, while a step runs.

`arena.c` says how; it is compiled into the user's cache (`girih.cost.compiled`). Where there is no compiler, or no
libc10 whose import table can be changed (it is not Linux with ELF), `library` says why not, and the run goes on
without.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from girih.cost.cache import usable_cache
from girih.cost.compiled import CompilerError, compiled
from girih.machine.units import format_bytes

SOURCE = Path(__file__).with_name("arena.c")
STATE = ("live", "peak", "refused", "largest", "misses", "outside", "outside_peak", "outside_requests")
REQUEST = np.dtype([(name, np.int64) for name in ("bytes", "start", "place", "begin", "end")])
"""One request for memory that a kernel made during a call.

start: the offset in the region at which it was served, or -1 where it was served outside. place: the offset at which
the next call's request is to be served, or -1 for anywhere in the call's runs, or -2 for the place of a result that has
this size. begin, end: how many requests and frees the call had made when the memory was taken and when it was freed;
end is -1 where it outlives the call."""
PRODUCT = 512
"""Rows and columns of a product for which MKL takes the buffers that it then keeps for all others."""


class ArenaError(RuntimeError):
    """There can be no arena here; the message says why."""


@cache
def library() -> ctypes.CDLL:
    """The compiled functions, with libc10's import table changed.

    Raises:
        ArenaError: there is no compiler, or no such table.
    """
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        raise ArenaError(f"memory is not held in one region on {sys.platform}: it needs 64-bit Linux")
    import torch  # noqa: F401 - its libc10 must be loaded

    folder = usable_cache("arena", say=False)
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as where:
        try:
            built = compiled(SOURCE, Path(where), ["-ldl", "-lpthread"])
        except CompilerError as error:
            raise ArenaError(f"memory is not held in one region: {error}") from error
        try:
            functions = ctypes.CDLL(str(built))
        except OSError as error:
            raise ArenaError(f"memory is not held in one region: {built} cannot be loaded: {error}") from error
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for name, result, arguments in (
        ("arena_make", pointer, [size, number]),
        ("arena_close", None, [pointer]),
        ("arena_enter", None, [pointer, number]),
        ("arena_ticket", pointer, [pointer, pointer, ctypes.c_long, pointer, ctypes.c_long]),
        ("arena_call", None, [pointer, pointer]),
        ("arena_failed", pointer, [pointer]),
        ("arena_requests", ctypes.c_long, [pointer, pointer, ctypes.c_long]),
        ("arena_teach", None, [pointer, pointer, pointer, ctypes.c_long]),
        ("arena_at", pointer, [pointer, size, size]),
        ("arena_back", None, [pointer]),
        ("arena_state", None, [pointer, pointer, number]),
        ("arena_start", size, [pointer]),
        ("arena_fill", None, [pointer, number]),
    ):
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    if not functions.arena_hook():
        raise ArenaError("memory is not held in one region: PyTorch's libc10 asks for memory in an unknown way")
    return functions


def possible() -> bool:
    """Can there be an arena in this process?"""
    try:
        library()
    except ArenaError:
        return False
    return True


def take_library_buffers() -> None:
    """Have MKL take now the buffers into which it packs matrices, for this thread and those of its kernels.

    It takes them from the system, once, and keeps them. Where the system refuses them, as under a limit that is
    reached, MKL says nothing and computes with kernels that need none: with other bits.
    """
    import torch

    with torch.no_grad():
        ones = torch.ones(PRODUCT, PRODUCT)
        torch.mm(ones, ones)
        torch.mm(ones.double(), ones.double())


class Arena:
    """A region of `size` bytes, all of them touched. It goes with its last tensor, after `close`
    (which happens where nobody holds the Arena any more).

    strict: a request that has no place is refused; else the C library serves it, and it is counted.

    Raises:
        ArenaError: there can be none. MemoryError: the system does not give that much memory.
    """

    def __init__(self, size: int, strict: bool = False) -> None:
        self.size = size
        self._library = library()
        self._arena = self._library.arena_make(size, strict)
        if self._arena is None:
            raise MemoryError(f"the system does not give {format_bytes(size)} of memory in one piece")
        self.start = int(self._library.arena_start(self._arena))
        self.close = weakref.finalize(self, self._library.arena_close, self._arena)
        self._enter = self._library.arena_enter
        self._call = self._library.arena_call

    @contextmanager
    def serving(self) -> Iterator[None]:
        """This thread's tensors lie here, and those of its kernels' OpenMP threads, where the ticket says."""
        self._enter(self._arena, 1)
        try:
            yield
        finally:
            self._call(self._arena, None)
            self._enter(None, 1)

    @contextmanager
    def at(self, address: int, size: int) -> Iterator[None]:
        """This thread's next tensor, of so many bytes, lies there, if that is free."""
        before = self._library.arena_at(self._arena, address, size)
        try:
            yield
        finally:
            self._library.arena_back(before)

    @contextmanager
    def away(self) -> Iterator[None]:
        """This thread's tensors lie elsewhere, and nobody counts them."""
        before = self._library.arena_at(None, 0, 0)
        try:
            yield
        finally:
            self._library.arena_back(before)

    def ticket(self, results: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]]) -> int:
        """What a call of a kernel may ask for. results: (first byte, bytes) of each; runs: from a first byte to one
        behind the last, of memory that nothing else has meanwhile. Lives as long as the arena."""
        table = np.array([(size, at) for at, size in results], np.uint64).reshape(-1, 2).T.copy()
        bounds = np.array(runs, np.uint64).reshape(-1, 2)
        made = self._library.arena_ticket(self._arena, table.ctypes.data, len(results), bounds.ctypes.data, len(runs))
        if made is None:
            raise MemoryError("the system does not give the memory for a table of addresses")
        return int(made)

    def call(self, ticket: int | None) -> None:
        """Tell the arena that the call of a kernel begins, and by which ticket to serve it; None: by none."""
        self._call(self._arena, ticket)

    def failed(self) -> Iterator[tuple[int, np.ndarray]]:
        """The tickets in whose calls a request found no place since the last time this was asked, each with the
        requests of its last call (`REQUEST`)."""
        while (ticket := self._library.arena_failed(self._arena)) is not None:
            yield int(ticket), self.requests(ticket)

    def requests(self, ticket: int) -> np.ndarray:
        """The requests that kernels made during the last call of a ticket (`REQUEST`)."""
        requests = np.zeros(self._library.arena_requests(ticket, None, 0), REQUEST)
        self._library.arena_requests(ticket, requests.ctypes.data, len(requests))
        return requests

    def teach(self, ticket: int, places: np.ndarray) -> None:
        """Tell the arena where to serve the requests of the next calls of this ticket. A call makes the same requests
        in the same order each time, so places has one offset for each; -1 leaves the choice among the call's runs to
        the arena."""
        places = np.ascontiguousarray(places, np.int64)
        self._library.arena_teach(self._arena, ticket, places.ctypes.data, len(places))

    def holds(self, tensor: Any) -> bool:
        start: int = tensor.untyped_storage().data_ptr()
        return 0 <= start - self.start < self.size

    def state(self, restart: bool = False) -> dict[str, int]:
        """What the arena has counted, in bytes as asked for, not rounded.

        live: what lies in the arena now. outside: what its threads asked for and the C library served. peak: the most
        of both together. refused: the last request that a strict arena refused; largest: the largest free piece at that
        moment. misses, outside_requests: how many requests found no place, and how many were served outside.

        restart: peaks and counts begin anew."""
        numbers = np.zeros(len(STATE), np.uint64)
        self._library.arena_state(self._arena, numbers.ctypes.data, restart)
        return dict(zip(STATE, numbers.tolist(), strict=True))

    def fill(self, byte: int) -> None:
        """Write this byte over all that is free, so that a test sees a kernel that reads memory before it wrote it."""
        self._library.arena_fill(self._arena, byte)

    def refusal(self) -> str:
        """What was asked and was refused last; "" where nothing was."""
        state = self.state()
        if not state["refused"]:
            return ""
        return (
            f"{format_bytes(state['refused'])} ({state['refused']} bytes) have no place in the arena of "
            f"{format_bytes(self.size)}, in which everything of a step has its planned address: this kernel asks for "
            "other memory than was planned. Plan again on this host, or start with arena='auto', which counts such "
            "memory and gives it from elsewhere"
        )
