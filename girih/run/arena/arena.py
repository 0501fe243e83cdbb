"""Arenas: PyTorch's CPU allocator served from one region of a fixed size, while a worker's step runs.

`arena.c` says how. It is compiled once for each version of its text, with the C compiler that `CC` names, or `cc`, into
the user's cache. Where there is no compiler, or no libc10 whose import table can be changed (it is not Linux with ELF),
`library` says why not, and the run goes on without.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from girih.machine.units import format_bytes

SOURCE = Path(__file__).with_name("arena.c")
OWN, COPIES_IN, OTHERS = 0, 1, -1  # lanes: threads whose requests come in the same order in every step
REQUEST = np.dtype([(name, np.int64) for name in ("lane", "number", "begin", "end", "size", "start")])
STATE = ("live", "peak", "refused", "largest", "misses", "logged", "ticks")


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

    functions = ctypes.CDLL(str(_compiled()))
    functions.arena_make.restype = ctypes.c_void_p
    functions.arena_make.argtypes = [ctypes.c_size_t]
    functions.arena_close.argtypes = [ctypes.c_void_p]
    functions.arena_enter.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
    functions.arena_state.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    functions.arena_begin.argtypes = [ctypes.c_void_p, ctypes.c_int]
    functions.arena_lane.restype = ctypes.c_long
    functions.arena_lane.argtypes = [ctypes.c_long]
    functions.arena_log.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    functions.arena_plan.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_long]
    functions.arena_holds.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    if not functions.arena_hook():
        raise ArenaError("memory is not held in one region: PyTorch's libc10 asks for memory in an unknown way")
    return functions


def _compiled() -> Path:
    text = SOURCE.read_bytes()
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "girih" / "arena"
    built = folder / f"{hashlib.sha256(text).hexdigest()[:16]}-{os.uname().machine}.so"
    if built.exists():
        return built
    compiler = os.environ.get("CC", "cc").split()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # two processes may compile at once
            own = Path(scratch) / "arena.so"
            command = [*compiler, "-O2", "-shared", "-fPIC", "-o", str(own), str(SOURCE), "-ldl", "-lpthread"]
            subprocess.run(command, check=True, capture_output=True, text=True)
            own.replace(built)
    except OSError as error:
        raise ArenaError(f"memory is not held in one region: {' '.join(compiler)} cannot be run: {error}") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise ArenaError(f"memory is not held in one region: {' '.join(compiler)} fails: {last}") from error
    return built


class Arena:
    """A region of `size` bytes, all of them touched. It goes with its last tensor, after `close`
    (which happens where nobody holds the Arena any more).

    Raises:
        ArenaError: there can be none. MemoryError: the system does not give that much memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._library = library()
        self._arena = self._library.arena_make(size)
        if self._arena is None:
            raise MemoryError(f"the system does not give {format_bytes(size)} of memory in one piece")
        self.close = weakref.finalize(self, self._library.arena_close, self._arena)

    @contextmanager
    def serving(self, lane: int = OWN, kernels: bool = True) -> Iterator[None]:
        """This thread's tensors lie here; with `kernels`, those of its kernels' OpenMP threads too."""
        self._library.arena_enter(self._arena, lane, kernels)
        try:
            yield
        finally:
            self._library.arena_enter(None, OTHERS, kernels)

    def enter(self, lane: int) -> None:
        """This thread's tensors lie here from now on, until the thread ends."""
        self._library.arena_enter(self._arena, lane, 0)

    @contextmanager
    def in_lane(self, lane: int) -> Iterator[None]:
        """What this thread asks for counts as another's."""
        before = self._library.arena_lane(lane)
        try:
            yield
        finally:
            self._library.arena_lane(before)

    def holds(self, tensor: Any) -> bool:
        return bool(self._library.arena_holds(self._arena, tensor.untyped_storage().data_ptr()))

    def state(self, restart: bool = False) -> dict[str, int]:
        """Bytes that are live and were at most (as asked for, not rounded), and of the last request that was refused
        (and the largest free block then); requests that did not get their planned address.

        restart: the peak is counted from now on."""
        numbers = np.zeros(len(STATE), np.uint64)
        self._library.arena_state(self._arena, numbers.ctypes.data, restart)
        return dict(zip(STATE, numbers.tolist(), strict=True))

    def begin(self, log: bool = False) -> None:
        """A step begins: requests are counted from here; with `log`, written down."""
        self._library.arena_begin(self._arena, log)

    def log(self) -> np.ndarray:
        """The requests since `begin`, as REQUEST says; begin and end in events, end -1 for what still lies there."""
        requests = np.zeros(self.state()["logged"], REQUEST)
        self._library.arena_log(self._arena, requests.ctypes.data)
        return requests

    def plan(self, lane: int, starts: np.ndarray) -> None:
        """Where the next steps' requests shall lie, in their order; -1 says anywhere."""
        starts = np.ascontiguousarray(starts, np.int64)
        self._library.arena_plan(self._arena, lane, starts.ctypes.data, len(starts))

    def refusal(self) -> str:
        """What was asked and what was free at the last request that did not fit; "" where there was none."""
        state = self.state()
        if not state["refused"]:
            return ""
        free = self.size - state["live"]
        return (
            f"{format_bytes(state['refused'])} ({state['refused']} bytes) do not fit into the "
            f"{format_bytes(self.size)} that this worker may hold: {format_bytes(free)} are free, at most "
            f"{format_bytes(state['largest'])} of them in one piece; give it more memory"
        )
