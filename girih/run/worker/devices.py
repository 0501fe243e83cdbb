"""The device of each worker: processors, or the GPUs of this host, one for each worker.

NCCL wants a GPU of its own for each rank. Threads of one process hand references to each other, and processes and ranks
under GIRIH_TRANSPORT=gloo send through the host's memory: of those several may share a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from girih.machine import MachineError
from girih.run.transport.gloo import TRANSPORT, through_host


def check_device(device: str, workers: int, shares: bool = False) -> None:
    """Raises MachineError where workers of this host, so many, cannot have this device, before any is started.

    shares: they are threads of one process, and may share a GPU.
    """
    for number in range(workers):
        device_of(device, number, workers, shares)


def device_of(device: str, number: int, workers: int, shares: bool = False) -> Any:
    """The torch.device of worker `number` of the `workers` that this host has; see `check_device`.

    device: `cpu`, `cuda`, or one GPU by its number, as `cuda:1`.
    """
    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise MachineError(f"no device {device!r}: expected cpu, cuda, or a GPU by its number, as cuda:1") from error
    if kind.type == "cpu":
        return kind
    if kind.type != "cuda":
        raise MachineError(f"device {device!r}: workers compute on cpu or cuda; other devices are not supported")
    if not torch.cuda.is_available():
        raise MachineError(f"device {device!r}: PyTorch sees no GPU here: start with device='cpu'")
    there = torch.cuda.device_count()
    if kind.index is not None and kind.index >= there:
        raise MachineError(f"device {device!r}: this host has {there} GPU{'s' * (there > 1)}, counted from cuda:0")
    needed = 1 if kind.index is not None else there
    if workers > needed and not shares and not through_host():
        raise MachineError(
            f"{workers} workers on this host, and device {device!r} is {needed} GPU{'s' * (needed > 1)}: NCCL takes "
            f"one for each worker. Plan for {needed}; or, slowly, through the host's memory: set {TRANSPORT}=gloo, or "
            "take backend threads, and workers share GPUs"
        )
    return torch.device("cuda", number % there if kind.index is None else kind.index)
