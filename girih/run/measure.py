"""The measured peak of memory, to hold against `girih.lower.memory.memory_use`.

PyTorch's profiler reports every allocation and release of its CPU allocator, with sizes. Every tensor of the step
(state and inputs) is copied after profiling has begun, so that the sum of all events is the memory in use: exact for
all that PyTorch allocates, its kernels' temporaries included, in the bytes that were asked for. Not seen: what
libraries (oneDNN's scratch, gloo) allocate by themselves. On CUDA the caching allocator's own peak is read.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from girih.run.worker import Worker

Tensor = Any  # torch is untyped for the type checker


def peak_bytes(worker: Worker, inputs: dict[str, Tensor]) -> int:
    """The most memory in bytes that one step holds at once on this worker, state included.

    The step really runs (exchanges too, so all workers must be asked); the state is as before afterwards. The whole
    process is measured: let nothing else run in it.
    """
    saved = {name: _outside(tensor) for name, tensor in worker.state.items()}
    measure = _cuda if worker.device.type == "cuda" else _cpu
    try:
        return measure(worker, inputs)
    finally:
        worker.take_state({name: _inside(*item) for name, item in saved.items()})


def _outside(tensor: Tensor) -> tuple[bytearray, Any, Any]:
    """A tensor's contents in memory that is not PyTorch's."""
    flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    return bytearray(flat.numpy().data), tensor.dtype, tensor.shape


def _inside(data: bytearray, dtype: Any, shape: Any) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape).clone()


def _renew(tensors: dict[str, Tensor]) -> None:
    for name in tensors:
        tensors[name] = tensors[name].clone()


def _cpu(worker: Worker, inputs: dict[str, Tensor]) -> int:
    from torch.profiler import ProfilerActivity, profile

    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _renew(worker.state)
        _renew(inputs)
        worker.step(inputs)
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    return highest(change for _, change in sorted(changes, key=lambda item: item[0]))


def highest(changes: Iterable[int]) -> int:
    """The greatest sum of the changes so far."""
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _cuda(worker: Worker, inputs: dict[str, Tensor]) -> int:
    gc.collect()
    torch.cuda.synchronize(worker.device)
    held = {id(tensor): tensor.nbytes for tensor in (*worker.state.values(), *inputs.values())}
    torch.cuda.reset_peak_memory_stats(worker.device)
    before = torch.cuda.memory_allocated(worker.device) - sum(held.values())
    worker.step(inputs)
    torch.cuda.synchronize(worker.device)
    return int(torch.cuda.max_memory_allocated(worker.device) - before)
