"""Memory that this process frees and asks for again: arrays of some megabytes come and go with each operation."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 1 << 27
LARGEST_BYTES = 1 << 25
_kept = [False]


def keep_freed() -> None:
    """Have this process keep up to 128 MiB of the memory that it frees, of arrays of up to 32 MiB.

    glibc else gives arrays of a megabyte back to the kernel as soon as some of them are free, and the kernel clears
    their pages when they are asked for again, which takes several times as long as most operations on them: a stencil
    of NumPy's on arrays of 2 MB 3.6 times as long. Once, for the whole process. Only with glibc; elsewhere nothing
    changes.
    """
    if _kept[0]:
        return
    _kept[0] = True
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES)
