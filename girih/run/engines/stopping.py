"""Threads that can be stopped wherever they run Python; a kernel that one has begun ends first.

Python ends with its main thread, and a thread that then comes back from a kernel written in C++ aborts the process. So
whoever has such threads stops them, also when Ctrl-C interrupts him, and what still computes at the end of the program
is waited for.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

LOOK_SECONDS = 0.05
EXIT_SECONDS = 10.0
"""That a kernel has left at the end of the program; one that takes longer has hung, or Ctrl-C ends the process."""
INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended, as shells say it."""


class StoppedError(BaseException):
    """Raised in a thread that is stopped, between any two of its steps."""


class WorkerThread(threading.Thread):
    """A daemon that `stop` stops. wake: puts an end to what it waits for, where that takes no notice of `stop`."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), *, name: str | None = None,
                 wake: Callable[[], None] = lambda: None) -> None:  # fmt: skip
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.wake = wake
        self._gate = threading.Lock()
        self._left = False
        _end_with_the_program()

    def run(self) -> None:
        begun = False
        while not self._left:
            try:
                if not begun:
                    begun = True
                    super().run()
                with self._gate:  # whoever stops it holds this, too: nothing is raised behind its end
                    self._left = True
                    _raise_in(self, None)
            except StoppedError:
                pass

    def stop(self) -> None:
        """Raise StoppedError in it, as soon as it runs Python. One that has not begun does nothing any more: Ctrl-C may
        have come while it was being started."""
        with self._gate:
            if self.ident is None:
                self._left = True
            elif not self._left:
                _raise_in(self, StoppedError)


def stop(threads: Iterable[WorkerThread], seconds: float) -> bool:
    """Stop them all, and wait so long until they have ended; have they?"""
    deadline = time.monotonic() + seconds
    running = [thread for thread in threads if thread is not threading.current_thread()]
    for thread in running:
        thread.wake()
        if not thread.is_alive():
            thread.stop()
    while (running := [thread for thread in running if thread.is_alive()]) and time.monotonic() < deadline:
        running[0].join(LOOK_SECONDS)
        for thread in running:  # again and again: code that catches everything has caught the first
            thread.stop()
    return not running


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C comes after the block: what puts things in order is not left half done."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Raise an error in another thread at its next step in Python. None: take back what was to be raised."""
    what = ctypes.py_object() if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), what)


@cache
def _end_with_the_program() -> None:
    atexit.register(_end)


def _end() -> None:
    """At the end of the program: no thread comes back from a kernel when there is no interpreter any more."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]
    try:
        ended = stop(threads, EXIT_SECONDS)
        interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    except KeyboardInterrupt:
        ended, interrupted = False, True
    if interrupted and not ended:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(INTERRUPTED)
