"""Random numbers within compiled loops: SplitMix64 (Steele et al. 2014), one state for each document or word.

A state depends on the seed, the sweep and the number of the document or word alone, so that what is drawn does not
depend on who draws it. A draw is an addition and two multiplications, and draws of one state overlap in a processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.layout.jit import numba
from girih.loop.code.streams import STRIDE, mixed

HALF = np.uint64(0xFFFFFFFF)


@numba.njit(nogil=True)
def started(seed: Any, sweep: Any, stream: Any) -> Any:
    """The state of a stream in a sweep."""
    state = mixed(np.uint64(seed) + STRIDE * np.uint64(sweep + 1))
    return mixed(state + STRIDE * np.uint64(stream + 1))


@numba.njit(nogil=True, inline="always")
def high(bits: Any) -> Any:
    """A float32 in [0, 1) of the upper bits."""
    return np.float32(bits >> np.uint64(40)) * np.float32(1 / (1 << 24))


@numba.njit(nogil=True, inline="always")
def low(bits: Any) -> Any:
    """A float64 in [0, 1) of the lower 32 bits, which are independent of the upper ones."""
    return np.float64(np.int64(bits & HALF)) * (1.0 / (1 << 32))
