"""What travels between workers and servers: one frame for a message, a header of 24 bytes and then arrays as they lie.

All numbers are little-endian. Rows are numbered within the server's partition. Messages of one sender arrive in the
order in which they were sent; every one has a number, and says the last number of the other side that was received.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

# From workers to servers.
HELLO, UPDATE, PULL, FORGET, CLOCK, BYE = 1, 2, 3, 4, 5, 6
# From servers to workers.
ROWS, PUSH, AGE, ACK, LAGGARDS, WELCOME, FAREWELL = 16, 17, 18, 19, 20, 21, 22
ASK = 7
"""A worker that waits asks for which others; a server answers with LAGGARDS."""
CONTROL = 32
"""From and to the session; the rest is MessagePack."""

HALF, WANTS_ACK, VERSIONED = 1, 2, 4
"""Flags: floats of 16 bits; please acknowledge; version numbers behind the rows."""

HEADER = struct.Struct("<BBHIIiII")


class Header(NamedTuple):
    """kind: as above. table: its number. sequence: the message's number on its way from this sender to this receiver.
    received: the last number that came from the other side; applied: the last whose updates are in the rows. clock: of
    an update, the tick that it belongs to; of a pull, the age that the rows need; else the sender's clock. rows: how
    many rows or entries."""

    kind: int
    table: int = 0
    flags: int = 0
    sequence: int = 0
    received: int = 0
    clock: int = 0
    rows: int = 0
    applied: int = 0

    def pack(self) -> bytes:
        return HEADER.pack(*self)


def message(header: Header, *arrays: NDArray[Any]) -> bytes:
    """Header and arrays as one frame."""
    return b"".join([HEADER.pack(*header), *[array.tobytes() for array in arrays]])


def header_of(frame: bytes) -> Header:
    return Header._make(HEADER.unpack_from(frame))


class FrameReader:
    """The arrays behind a header, one after another; they are views of the frame and cannot be written."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._place = HEADER.size

    def take(self, dtype: Any, count: int) -> NDArray[Any]:
        part = np.frombuffer(self._frame, dtype, count, self._place)
        self._place += part.nbytes
        return part


# ------------------------------------------------------------------------------------------- values


def encoded(content: Any) -> bytes:
    """Numbers, strings, lists, dictionaries and NumPy arrays as MessagePack: what reads it runs nothing.

    Raises:
        TypeError: there is something else in it.
    """
    return msgspec.msgpack.encode(content, enc_hook=_array_out)


def decoded(data: bytes | memoryview) -> Any:
    return msgspec.msgpack.decode(data, ext_hook=_array_in)


def _array_out(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise TypeError(f"{type(value).__name__}: expected numbers, strings, lists, dictionaries and NumPy arrays")
    head = msgspec.msgpack.encode([value.dtype.str, list(value.shape)])
    return msgspec.msgpack.Ext(1, len(head).to_bytes(4, "little") + head + np.ascontiguousarray(value).tobytes())


def _array_in(code: int, data: memoryview) -> Any:
    size = int.from_bytes(data[:4], "little")
    dtype, shape = msgspec.msgpack.decode(data[4 : 4 + size])
    return np.frombuffer(bytearray(data[4 + size :]), np.dtype(dtype)).reshape(shape)
