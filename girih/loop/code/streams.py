"""Random numbers in a loop: a stream for each iteration, whichever worker runs it.

`gl.random()` draws SplitMix64's numbers (Steele et al. 2014). A NumPy `Generator` gives two words for each run, the
key of a counter-based bit generator (Philox; Salmon et al. 2011): iteration n draws what `Generator(Philox(key=key,
counter=[0, n, 0, 0]))` draws. Compiled code sets the counter in Philox's own memory, since Numba has the Generator's
methods but cannot make one; where that memory looks otherwise than it is known to, that is an error.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from girih.layout.jit import numba

BUFFER_POSITION, HAS_HALF = 4, 14
"""In 32-bit words of Philox's state: how much of its buffer of four words is used, and whether half a word is left."""
EMPTY = 4


@dataclass(frozen=True)
class Stream:
    """A worker's Generator. counter: four words of 64 bits; state: what lies around its buffer, in words of 32."""

    generator: np.random.Generator
    counter: np.ndarray
    state: np.ndarray


def key_of(generator: np.random.Generator) -> np.ndarray:
    """The key of one execution's streams; the Generator gives another one to the next."""
    return generator.integers(0, 1 << 64, 2, dtype=np.uint64)


def stream_of(key: np.ndarray) -> Stream:
    """
    Raises:
        RuntimeError: this NumPy keeps Philox's state otherwise.
    """
    bits = np.random.Philox(key=key, counter=[1, 2, 3, 4])
    address = bits.ctypes.state_address
    places = (ctypes.c_uint64 * 2).from_address(address)
    state = np.ctypeslib.as_array((ctypes.c_uint32 * 16).from_address(address))
    inside = [abs(place - address) < 1 << 12 for place in places]
    counter = np.ctypeslib.as_array((ctypes.c_uint64 * 4).from_address(places[0])) if all(inside) else np.zeros(4)
    if counter.tolist() != [1, 2, 3, 4] or state[BUFFER_POSITION] != EMPTY or state[HAS_HALF] != 0:
        raise RuntimeError(
            f"NumPy {np.__version__} keeps the state of Philox otherwise than is known here: use gl.random()"
        )
    return Stream(np.random.Generator(bits), counter, state)


@numba.njit(nogil=True, cache=True)
def begin_stream(counter, state, number):  # type: ignore[no-untyped-def]
    """What the iteration of this number draws comes next."""
    counter[0] = 0
    counter[1] = number
    counter[2] = 0
    counter[3] = 0
    state[BUFFER_POSITION] = EMPTY
    state[HAS_HALF] = 0


STRIDE = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@numba.njit(nogil=True, cache=True, inline="always")
def mixed(state):  # type: ignore[no-untyped-def]
    """64 random bits of a state: SplitMix64's finaliser."""
    z = (state ^ (state >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def begin_random(state, number):  # type: ignore[no-untyped-def]
    """state: [seed, where the stream is]. The stream of an iteration depends on the seed and its number alone."""
    state[1] = mixed(state[0] + np.uint64(number) * STRIDE)


@numba.njit(nogil=True, cache=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1), in steps of 2⁻²⁴: finer ones would be rounded up to 1 in float32."""
    state[1] += STRIDE
    return np.float64(mixed(state[1]) >> np.uint64(40)) * 2.0**-24
