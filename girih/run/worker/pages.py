"""Pages of memory: large ones for large tensors, as NumPy has them for its arrays, and freed ones that are kept."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def large_pages() -> None:
    """Have PyTorch ask the kernel for pages of 2 MB under tensors that are larger, from its first tensor on.

    A new tensor of 40 MB takes 10,000 faults of small pages, which cost more than most element-wise operators on it:
    where they are not fused, array programs then take 1.1 to 2.3 times as long. PyTorch has no call for this, only a
    variable, which it reads when it makes its first tensor; processes that are started later inherit it.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed() -> None:
    """Have this process keep the memory that it frees, as a step of training asks for the same again.

    glibc gives blocks of 128 KB to 32 MB and more back to the kernel, which clears their pages when they are asked for
    again: a third of a small network's step. Only with glibc; elsewhere nothing changes.
    """
    _thresholds(2**31 - 1)


def give_back() -> None:
    """Have this process give blocks of 1 MB and more back to the kernel as soon as it frees them.

    What the process holds is then what its tensors hold. Otherwise glibc keeps freed blocks in between others, and what
    it holds may be several times that. It costs the clearing of pages: a fifth of a step, about. For good: the whole
    process does so from then on. Only with glibc.
    """
    _thresholds(1 << 20)


def trim() -> None:
    """Give memory that this process has freed, and kept, back to the kernel. Only with glibc; milliseconds."""
    if (of_glibc := _glibc("malloc_trim")) is not None:
        of_glibc(0)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _thresholds(size: int) -> None:
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(TRIM_THRESHOLD, size)
        mallopt(MMAP_THRESHOLD, size)
