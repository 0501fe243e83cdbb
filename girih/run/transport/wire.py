"""Python objects with tensors in them, over a pipe or packed: tensors are raw bytes beside the pickle, copied once."""

from __future__ import annotations

import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

Tensor = Any  # torch is untyped for the type checker
Packed = tuple[bytes, list[np.ndarray]]
"""A pickle, and the bytes of its tensors."""


def _rebuild(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    kind = getattr(torch, dtype)
    if len(buffer) == 0:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(buffer, dtype=torch.uint8).view(kind).reshape(shape)


class _Pickler(pickle.Pickler):
    def reducer_override(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return NotImplemented
        flat = item.detach().cpu().contiguous().as_strided((item.numel(),), (1,)).view(torch.uint8).numpy()
        return _rebuild, (pickle.PickleBuffer(flat), str(item.dtype).removeprefix("torch."), tuple(item.shape))


def _apart(item: Any) -> tuple[io.BytesIO, list[memoryview]]:
    """The pickle, and the bytes of its tensors, which are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    text = io.BytesIO()
    _Pickler(text, protocol=5, buffer_callback=buffers.append).dump(item)
    return text, [buffer.raw() for buffer in buffers]


def pack(item: Any) -> Packed:
    """An object as pickles and NumPy arrays, for other carriers, such as Ray; of a view only what it shows."""
    text, raw = _apart(item)
    return text.getvalue(), [np.asarray(part) for part in raw]


def unpack(packed: Packed) -> Any:
    """The object; its tensors are copies, since the carrier's memory is its own."""
    text, arrays = packed
    return pickle.loads(text, buffers=[bytearray(part) for part in arrays])


def send(connection: Connection, item: Any) -> None:
    """Send an object; of a view only what it shows travels."""
    text, raw = _apart(item)
    connection.send_bytes(pickle.dumps([part.nbytes for part in raw]))
    connection.send_bytes(text.getbuffer())
    for part in raw:
        if part.nbytes:
            connection.send_bytes(part)


def receive(connection: Connection) -> Any:
    """Receive what `send` sent.

    Raises:
        EOFError, OSError: the other side is gone.
    """
    sizes = pickle.loads(connection.recv_bytes())
    text = connection.recv_bytes()
    buffers = []
    for size in sizes:
        buffer = bytearray(size)
        if size:
            connection.recv_bytes_into(buffer)
        buffers.append(buffer)
    return pickle.loads(text, buffers=buffers)
