"""The measured peak of memory, to hold against `girih.program.life.accounts.memory_use`.

PyTorch's profiler reports every allocation and release of its CPU allocator, with sizes. Every tensor of the step
(state and inputs) is made anew after profiling has begun, so that the sum of all events is the memory in use: exact for
all that PyTorch allocates, its kernels' temporaries included, also those that it hands to oneDNN, in the bytes that
were asked for. Not seen: what libraries (MKL's buffers, gloo) allocate by themselves. On CUDA the statistics of the
caching allocator are read, in the bytes that were asked for too; what libraries keep there for themselves, as cuBLAS
its workspaces, is there before, made by a first product. A worker that has an arena asks that, which counts the same
bytes for this worker alone.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from girih.run.worker.worker import Worker

Tensor = Any  # torch is untyped for the type checker


def peak_bytes(worker: Worker, inputs: dict[str, Tensor]) -> int:
    """The most memory in bytes that one step holds at once on this worker, state included.

    The step really runs (exchanges too, so all workers must be asked); the state is as before afterwards. The whole
    process is measured: let nothing else run in it.
    """
    worker.settle()
    saved = {name: _Outside.of(tensor) for name, tensor in worker.state.items()}
    batch = {name: _Outside.of(inputs.pop(name)) for name in list(inputs)}
    worker.state.clear()
    gc.collect()
    when = None if worker.copiers is None else worker.copiers.when
    try:
        if worker.copiers is not None:
            worker.copiers.when = "latest"
        if worker.region is not None:
            worker.region.restart()
            _run(worker, saved, batch)
            return worker.region.use().peak
        with _quiet():
            return (_cuda if worker.device.type == "cuda" else _cpu)(worker, saved, batch)
    finally:
        if worker.copiers is not None and when is not None:
            worker.copiers.when = when
        worker.take_state({name: item.tensor() for name, item in saved.items()})


@dataclass(frozen=True)
class _Outside:
    """A tensor in memory that is not PyTorch's."""

    data: bytearray
    dtype: Any
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> _Outside:
        flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        return _Outside(bytearray(flat.numpy().data), tensor.dtype, tuple(tensor.shape))

    def tensor(self) -> Tensor:
        if not self.data:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(self.data, dtype=torch.uint8).view(self.dtype).reshape(self.shape)


def _run(worker: Worker, state: dict[str, _Outside], inputs: dict[str, _Outside]) -> None:
    worker.take_state({name: item.tensor() for name, item in state.items()})
    worker.step({name: item.tensor().to(worker.device, copy=True) for name, item in inputs.items()})


def _cpu(worker: Worker, state: dict[str, _Outside], inputs: dict[str, _Outside]) -> int:
    # That of `torch.profiler` is the same, but loads PyTorch's compiler, which takes a second in each worker.
    from torch.autograd.profiler import profile

    with profile(use_kineto=True, profile_memory=True) as profiler:
        _run(worker, state, inputs)
    events = profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    return highest(change for _, change in sorted(changes, key=lambda item: item[0]))


def highest(changes: Iterable[int]) -> int:
    """The greatest sum of the changes so far."""
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _cuda(worker: Worker, state: dict[str, _Outside], inputs: dict[str, _Outside]) -> int:
    take_workspaces(worker.device)
    before = requested(worker.device)
    torch.cuda.reset_peak_memory_stats(worker.device)
    _run(worker, state, inputs)
    torch.cuda.synchronize(worker.device)
    return requested(worker.device, "peak") - before


def requested(device: Any, when: str = "current") -> int:
    """Bytes that were asked of the caching allocator of a GPU and not given back: now, or at the `peak`. They are not
    rounded to its blocks, and are not what it holds of the GPU."""
    return int(torch.cuda.memory_stats(device).get(f"requested_bytes.all.{when}", 0))


def take_workspaces(device: Any) -> None:
    """Have the libraries take the memory of a GPU that they keep: this thread's workspaces of cuBLAS and cuBLASLt."""
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            ones = torch.ones(64, 64, dtype=dtype, device=device)
            torch.addmm(ones[0], ones, ones)
            torch.mm(ones, ones)
    torch.cuda.synchronize(device)


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler writes about itself to the process's standard error: not here."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
