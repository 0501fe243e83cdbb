"""Copies between a device's memory and the large memory behind it.

Two copiers, one for each direction, do what they are given in order beside computation: threads where the device is a
processor, streams where it is a GPU (SwapAdvisor §4.3.1 has three streams: computing, out, in). A copy in makes its
target only when the copies out that it waits for have let go of theirs, so that the memory that they leave is really
free.

Where workers compute on all cores of a processor, a thread that copies takes one of theirs: operators that share their
work among all cores wait for the one that copies, and two threads of Python wait for each other. Workers then copy
themselves, on all their cores, which takes less of a step. Only where copies have to wait for a disk do threads pay
nevertheless: they leave the core to computing meanwhile.

On a GPU nothing waits on the host: events order the three streams. All tensors come from the memory of the computing
stream, which the allocator hands out again as soon as nobody holds it; so whoever lets go of what a copy reads or
writes has the computing stream wait for the copy first. What is allocated at each step is then what the program says.

The large memory is the host's, pinned, for a GPU; for a processor it is files without names, in the folder for
temporary files, or in the one that the environment names (`GIRIH_SPILL`). A buffer has one place there, which every
application of the program uses again.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np
import torch

from girih.host import memory_here
from girih.machine.names import cores_for_copies
from girih.machine.units import format_bytes
from girih.program import MoveStep, Program
from girih.program.liveness import overwritten
from girih.run.arena.region import Region
from girih.run.tiles.spill import mapped
from girih.run.worker.parts import Tensor

SPILL = "GIRIH_SPILL"
MOVES = 1  # position in the measured seconds: waiting for copies counts as transfers
Slots = list[Any]
When = Literal["now", "beside", "latest"]
"""When copies are made: by the worker, where the program starts them; beside computation, by threads; by the worker,
those out as late, and those in as early as they may, so that the most memory is in use that ever can be."""
WAITED = 16
"""Copies in that found their files no longer in memory and waited for a disk, before copies go to threads."""


class BegunCopy(Protocol):
    """A copy that has begun: `concurrent.futures.Future`, or `Later`."""

    def result(self) -> Tensor: ...


class Later:
    """A copy that is made only when its result is asked for."""

    def __init__(self, copy: Callable[[], Tensor]) -> None:
        self.copy = copy
        self.copied: Tensor | None = None

    def result(self) -> Tensor:
        if self.copied is None:
            self.copied = self.copy()
        return self.copied


def copy_alone(target: Tensor, source: Tensor) -> Tensor:
    """The target with the elements of a tensor of its shape and dtype, copied by this thread alone.

    PyTorch's `copy_` would share it out among OpenMP threads of this thread's own, as many as there are cores: they
    wait for more behind each copy, on the cores that compute.
    """
    lazy = source.is_conj() or source.is_neg()  # its elements are not as they lie
    if lazy or target.stride() != source.stride() or not torch.ops.aten.is_non_overlapping_and_dense(source):
        return target.copy_(source)
    into, data = (item.detach().as_strided((item.numel(),), (1,)).view(torch.uint8) for item in (target, source))
    np.copyto(into.numpy(), data.numpy())
    return target


@dataclass
class MoveUnderway:
    """What the slot of a copy's target holds until the copy ends."""

    done: BegunCopy


class HostMemory:
    """Places in the large memory, by buffer. directory: where its files are, if the device is a processor."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.directory = os.environ.get(SPILL)
        self.places: dict[str, Tensor] = {}

    def place(self, buffer: str, like: Tensor) -> Tensor:
        """Where a buffer lies, in the order of elements of a dense tensor; uninitialised when it is new."""
        known = self.places.get(buffer)
        if known is None or known.stride() != like.stride() or known.shape != like.shape:
            known = self.places[buffer] = self.empty(like)
        return known

    def empty(self, like: Tensor) -> Tensor:
        if self.device.type != "cpu":
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, pin_memory=True)
        try:
            flat = mapped((like.numel(),), like.dtype, self.directory)
        except OSError as error:
            where = self.directory or tempfile.gettempdir()
            raise OSError(
                f"a tensor of {format_bytes(like.numel() * like.element_size())} cannot leave memory for a file in "
                f"{where}: {error.strerror}; make room there, or name another directory in the environment's {SPILL}"
            ) from error
        return flat.as_strided(like.shape, like.stride())

    def keep(self, buffer: str, tensor: Tensor) -> Tensor:
        """A contiguous copy of a tensor in the large memory: state that lies there from the beginning."""
        place = self.empty(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))
        self.places.pop(buffer, None)
        return place.copy_(tensor)


@dataclass
class Copiers:
    """The two copiers of a worker, and the large memory.

    copied: bytes so far, (out, in). region: where copies in make their targets.
    """

    host: HostMemory
    device: Any
    copied: list[int] = field(default_factory=lambda: [0, 0])
    when: When = "beside"
    region: Region | None = None

    def __post_init__(self) -> None:
        self.threads = {
            out: ThreadPoolExecutor(1, thread_name_prefix=f"girih-copy-{'out' if out else 'in'}")
            for out in (True, False)
        }
        self._waited = 0

    def out(self, source: Tensor, buffer: str) -> BegunCopy:
        place = self.host.place(buffer, source)
        self.copied[0] += source.nbytes
        held = [source]  # the copier lets go of it before anybody hears that the copy has ended
        if self.when == "beside":
            return self.threads[True].submit(lambda: copy_alone(place, held.pop()))
        later = Later(lambda: place.copy_(held.pop()))
        if self.when == "now":
            later.result()
        return later

    def into(self, source: BegunCopy | Tensor, buffer: str, after: list[BegunCopy]) -> BegunCopy:
        def copy() -> Tensor:
            for other in after:
                other.result()
            tensor = source if isinstance(source, torch.Tensor) else source.result()
            self.copied[1] += tensor.nbytes
            with nullcontext() if self.region is None else self.region.making(buffer):
                target = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)
            return copy_alone(target, tensor) if self.when == "beside" else target.copy_(tensor)

        if self.when == "beside":
            return self.threads[False].submit(copy)
        later, before = Later(copy), _read_from_disk()
        later.result()
        self._waited += _read_from_disk() > before
        if self.when == "now" and self._waited >= WAITED:
            self.when = "beside"
        return later

    def settle(self) -> None:
        """Return when what was copied out can be read here."""

    def close(self) -> None:
        for pool in self.threads.values():
            pool.shutdown(cancel_futures=True)


def _read_from_disk() -> int:
    """How often this thread has waited for pages of memory to be read from a disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


@dataclass(slots=True)
class StreamCopy:
    """A copy on a stream of its own. held: the tensor of the device that it reads, until the computing stream waits."""

    target: Tensor
    held: Tensor | None
    computing: Any
    event: Any

    def result(self) -> Tensor:
        self.computing.wait_event(self.event)
        self.held = None
        return self.target


class StreamCopiers:
    """The two copiers of a worker on a GPU; see `Copiers`. What is copied out lies in pinned memory of the host."""

    def __init__(self, host: HostMemory, device: Any) -> None:
        self.host = host
        self.device = device
        self.copied = [0, 0]
        self.when: When = "beside"  # copies hold what they hold by the order of the program, whenever they run
        self.region: Region | None = None
        self._computing = torch.cuda.current_stream(device)
        self._streams = {out: torch.cuda.Stream(device) for out in (True, False)}

    def _copied(self, out: bool, target: Tensor, source: Tensor, before: StreamCopy | None = None) -> StreamCopy:
        """The copy, behind what is computed so far, and behind another one."""
        stream = self._streams[out]
        stream.wait_event(self._computing.record_event())
        if before is not None:
            stream.wait_event(before.event)
        torch.cuda.set_stream(stream)
        try:
            target.copy_(source, non_blocking=True)
        finally:
            torch.cuda.set_stream(self._computing)
        self.copied[not out] += source.nbytes
        return StreamCopy(target, source if out else None, self._computing, stream.record_event())

    def out(self, source: Tensor, buffer: str) -> StreamCopy:
        return self._copied(True, self.host.place(buffer, source), source)

    def into(self, source: BegunCopy | Tensor, buffer: str, after: list[BegunCopy]) -> StreamCopy:
        for other in after:
            other.result()  # its memory may be the target's
        before = source if isinstance(source, StreamCopy) else None
        tensor: Tensor = source if before is None else before.target
        target = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.device)
        return self._copied(False, target, tensor, before)

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.settle()


AnyCopiers = Copiers | StreamCopiers


def copiers_of(device: Any, workers: int, region: Region | None = None) -> AnyCopiers:
    """Copiers between a device and the large memory behind it, of one of so many workers."""
    host = HostMemory(device)
    if device.type == "cuda":
        return StreamCopiers(host, device)
    when: When = "beside" if cores_for_copies(workers, torch.get_num_threads()) else "now"
    return Copiers(host, device, when=when, region=region)


def spilled_bytes(program: Program, device: int) -> int:
    """The bytes of all places that a device takes in the large memory, which it keeps from step to step."""
    shared = overwritten(program.graph, program.steps_of(device), program.host).values()  # in the place of the old

    def size(buffer: str) -> int:
        shape = program.part_shape(buffer, program.places[buffer], device)
        return prod(shape) * program.graph.values[program.value_of[buffer]].item_bytes

    return sum(size(buffer) for buffer in program.host.difference(shared))


def refusal(program: Program, workers: Iterable[int], device: str = "cpu") -> str:
    """Why these workers of this host cannot move their tensors to files, or, where they compute on GPUs, to its memory;
    "" where they can."""
    if not program.host:
        return ""
    named = os.environ.get(SPILL)
    where = Path(named or tempfile.gettempdir())
    needed = sum(spilled_bytes(program, worker) for worker in workers)
    if device != "cpu":
        if needed <= (here := memory_here()):
            return ""
        return (
            f"{format_bytes(needed)} of tensors are to be moved to this host's memory, and it has "
            f"{format_bytes(here)}: plan with a higher limit"
        )
    if not where.is_dir():
        wrong = "there is no such directory" if not where.exists() else "it is no directory"
    elif not os.access(where, os.W_OK | os.X_OK):
        wrong = "nothing can be written there"
    elif (free := shutil.disk_usage(where).free) < needed:
        wrong = f"{format_bytes(free)} are free there"
    else:
        return ""
    what = f"{format_bytes(needed)} of tensors are to be moved to files in {where}"
    told = f"which the environment's {SPILL} names" if named else "the folder for temporary files"
    return f"{what}, {told}, and {wrong}: name another directory in {SPILL}"


class StartMove:
    """The start of a copy: its target's slot holds the copy under way."""

    __slots__ = ("after", "buffer", "copiers", "out", "source", "target")

    def __init__(self, step: MoveStep, after: tuple[str, ...], slots: Mapping[str, int], copiers: AnyCopiers) -> None:
        self.source, self.target = slots[step.source], slots[step.target]
        self.after = [slots[name] for name in after]
        self.out = step.out
        self.buffer = step.target
        self.copiers = copiers

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        source = slots[self.source]
        if self.out:
            slots[self.target] = MoveUnderway(self.copiers.out(source, self.buffer))
        else:
            after = [slots[slot].done for slot in self.after if isinstance(slots[slot], MoveUnderway)]
            held = source.done if isinstance(source, MoveUnderway) else source
            slots[self.target] = MoveUnderway(self.copiers.into(held, self.buffer, after))
        seconds[MOVES] += perf_counter() - began


class FinishMove:
    """The end of a copy."""

    __slots__ = ("target",)

    def __init__(self, step: MoveStep, slots: Mapping[str, int]) -> None:
        self.target = slots[step.target]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        slots[self.target] = slots[self.target].done.result()
        seconds[MOVES] += perf_counter() - began


class Move:
    """All of a copy."""

    __slots__ = ("finish", "start")

    def __init__(self, step: MoveStep, slots: Mapping[str, int], copiers: AnyCopiers) -> None:
        self.start = StartMove(step, (), slots, copiers)
        self.finish = FinishMove(step, slots)

    def run(self, slots: Slots, seconds: list[float]) -> None:
        self.start.run(slots, seconds)
        self.finish.run(slots, seconds)
