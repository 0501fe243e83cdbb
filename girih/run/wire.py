"""Python objects with tensors in them over a pipe: tensors travel as raw bytes beside the pickle, copied once."""

from __future__ import annotations

import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import torch

Tensor = Any  # torch is untyped for the type checker


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


def send(connection: Connection, item: Any) -> None:
    """Send an object; of a view only what it shows travels."""
    buffers: list[pickle.PickleBuffer] = []
    text = io.BytesIO()
    _Pickler(text, protocol=5, buffer_callback=buffers.append).dump(item)
    raw = [buffer.raw() for buffer in buffers]
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
