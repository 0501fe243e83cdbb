"""Libraries that fail in their own ways; imported in the process in which they are tried, so without PyTorch."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any


def segfaults(model: Any, threads: int, fixed: Any) -> Any:
    def run(*inputs: Any) -> Any:
        ctypes.string_at(0)

    return run


def hangs(model: Any, threads: int, fixed: Any) -> Any:
    time.sleep(600)


def exits(model: Any, threads: int, fixed: Any) -> Any:
    os._exit(0)


def aborts(model: Any, threads: int, fixed: Any) -> Any:
    os.kill(os.getpid(), signal.SIGABRT)


def raises(model: Any, threads: int, fixed: Any) -> Any:
    print("what a library prints is not an answer", flush=True)
    raise ValueError("no such operator\nand more")


def zeros(model: Any, threads: int, fixed: Any) -> Any:
    return lambda *inputs: [0 * inputs[0]]
