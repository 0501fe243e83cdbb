"""A worker: one device's instructions and the state that it keeps from step to step."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from girih.program import BlockStep, ComputeStep, Program
from girih.program.liveness import overwritten
from girih.program.places.addresses import Addresses
from girih.run.arena.arena import ArenaError
from girih.run.arena.region import Region, refusal
from girih.run.errors import IDLE, NOT_BEGUN, MemberError, StepError, where
from girih.run.tiles.spill import mapped
from girih.run.transport.transport import NoTransport, Transport
from girih.run.worker.instructions import Instruction, compile_instructions
from girih.run.worker.moves import copiers_of
from girih.run.worker.parts import Tensor, box_of, held_box, shape_of

COMPUTING = (ComputeStep, BlockStep)


@dataclass
class Times:
    """Measured seconds of a worker, summed over `steps` steps; `kernels` are the operators' own calls."""

    steps: int = 0
    total: float = 0.0
    kernels: float = 0.0
    transfers: float = 0.0

    @property
    def other(self) -> float:
        """What the worker itself takes."""
        return self.total - self.kernels - self.transfers


@dataclass
class MeasuredInterval:
    """An instruction as it was measured: its position in the program, and when it began and ended (perf_counter)."""

    step: int
    start: float
    stop: float


@dataclass
class Running:
    """A step that is under way: its buffers, the position of the next step of the program, and the seconds of kernels,
    transfers and all."""

    slots: list[Any]
    at: int = 0
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    took: float = 0.0


class Worker:
    """Runs one device's share of a program.

    progress: integers that the worker keeps up to date, as NOT_BEGUN. They may lie in memory that others can see.
    timeline: measure every instruction; the last step's are in `intervals`.
    addresses: where everything lies in the worker's arena, on a processor; None: there is none. `without` says why:
        what is given here, or what is found out.
    strict: memory that has no place there is refused; else it is given from elsewhere, and counted.

    Raises:
        ValueError: the strategy lets an updated value lie otherwise than the input that it replaces.
        ArenaError: there can be no arena, and memory is to come from nowhere else.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        transport: Transport | None = None,
        *,
        device: Any = "cpu",
        progress: MutableSequence[int] | None = None,
        timeline: bool = False,
        addresses: Addresses | None = None,
        strict: bool = False,
        without: str = "",
    ) -> None:
        graph = program.graph
        self.program = program
        self.rank = rank
        self.device = torch.device(device)
        self.transport: Transport = transport if transport is not None else NoTransport()
        self.progress: MutableSequence[int] = progress if progress is not None else list(NOT_BEGUN)
        self.times = Times()
        self.timeline = timeline
        self.intervals: list[MeasuredInterval] = []
        self.state: dict[str, Tensor] = {}
        self._slot = {name: number for number, name in enumerate(program.places)}
        self._updates = {item.name: graph.updates.get(item.name) for item in graph.state_inputs}
        for old, new in self._updates.items():
            if new is not None and box_of(program, old, rank) != box_of(program, new, rank):
                raise ValueError(f"{new!r} replaces {old!r} but lies elsewhere: give both one layout")
        self._shapes = {item.name: shape_of(box_of(program, item.name, rank)) for item in graph.inputs}
        written = {buffer for step in program.steps_of(rank) for buffer in step.targets}
        entering = {item.name for item in graph.inputs}
        self._elsewhere = [item.name for item in graph.outputs if item.name not in written | entering]
        self._positions = program.order_of(rank)  # in the program's steps, of each instruction
        self.region, self.without = _region(program, addresses, self.device, strict)
        if addresses is None and without:
            self.without = without
        if strict and self.region is None:
            raise ArenaError(self.without)
        self.copiers = copiers_of(self.device, program.mesh.devices, self.region) if program.host else None
        self._overwritten = overwritten(program.graph, program.steps_of(rank), program.host)
        self._instructions = compile_instructions(
            program, rank, self._slot, self.transport, self.device, self.progress, self.copiers
        )
        if self.region is not None:
            self._instructions = self.region.placed(program, rank, self._slot, self._instructions)

    @property
    def slots(self) -> Mapping[str, int]:
        """The number of each buffer, by which instructions know it."""
        return self._slot

    @property
    def instructions(self) -> Sequence[Instruction]:
        """What it does in a step, one instruction after another."""
        return self._instructions

    def step(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run the program once.

        inputs: by name, this device's part of everything that is not state. The dictionary is emptied: what nobody
            else holds is freed after its last use.
        Returns this device's parts of the outputs that replace nothing; the others became the new state.

        Raises:
            StepError: an instruction failed. The worker's state is lost.
        """
        running = self.begin(inputs)
        self.advance(running, len(self.program.steps))
        return self.finish(running)

    def begin(self, inputs: dict[str, Tensor]) -> Running:
        """A step of which nothing is done yet; inputs as for `step`."""
        with self._serving():
            running = Running(self._fill(inputs))
        self.progress[0] += 1
        return running

    def advance(self, running: Running, stop: int) -> None:
        """Run the instructions before the program's step `stop`. Between two calls no transfer may be under way.

        Raises:
            StepError: an instruction failed.
        """
        began = perf_counter()
        try:
            with torch.no_grad(), self._serving():
                if self.timeline:
                    self._run_timed(running.slots, running.seconds)
                else:
                    self._run(running.slots, running.seconds, running.at, stop)
        except Exception as error:
            raise self._failed(error) from (error.__cause__ if isinstance(error, MemberError) else error)
        running.at = stop
        running.took += perf_counter() - began

    def attempt(self, running: Running) -> StepError | None:
        """Run all instructions. After a failure what is left to compute is zeros, and exchanges go on with them: no
        peer waits for this worker, and what it held before is as it was. The step's results are then worth nothing.

        Returns the failure, if there was one.

        Raises:
            StepError: an exchange failed, or there was no memory for the zeros.
        """
        try:
            self.advance(running, len(self.program.steps))
        except StepError as failure:
            at = self.progress[1]
            if failure.in_transfer or not isinstance(self.program.steps[at], COMPUTING):
                raise
            self._go_on(running, at)
            self.progress[1] = IDLE
            return failure
        return None

    def _go_on(self, running: Running, at: int) -> None:
        try:
            with torch.no_grad(), self._serving():
                for index in self._positions[bisect_left(self._positions, at) :]:
                    step = self.program.steps[index]
                    if isinstance(step, COMPUTING):
                        self._nothing(step.writes, running.slots)
                    else:
                        self._run(running.slots, running.seconds, index, index + 1)
        except Exception as error:
            raise self._failed(error) from error

    def _nothing(self, writes: Iterable[str], slots: list[Any]) -> None:
        """Zeros: numbers of elements are among what is made, and zero is one of any tensor's."""
        program = self.program
        for name in writes:
            shape = shape_of(held_box(program, name, program.places[name], self.rank))
            dtype = getattr(torch, program.graph.values[program.value_of[name]].dtype)
            if name in program.files:  # of which there may be more than memory
                slots[self._slot[name]] = mapped(shape, dtype).zero_()
            else:
                slots[self._slot[name]] = torch.zeros(shape, dtype=dtype, device=self.device)

    def _run(self, slots: list[Any], seconds: list[float], start: int, stop: int) -> None:
        progress, positions = self.progress, self._positions
        first, last = bisect_left(positions, start), bisect_left(positions, stop)
        for position, instruction in zip(positions[first:last], self._instructions[first:last], strict=True):
            progress[1] = position
            instruction.run(slots, seconds)

    def _serving(self) -> AbstractContextManager[None]:
        """New tensors lie in the arena, if there is one."""
        return nullcontext() if self.region is None else self.region.serving()

    def _failed(self, error: Exception) -> StepError:
        """At the instruction that progress tells."""
        at = self.progress[1]
        if self.region is not None and (refused := self.region.arena.refusal()):
            cause = error.__cause__ if isinstance(error, MemberError) else error
            return StepError(self.rank, where(self.program, at), _out_of_memory(refused, cause or error))
        if isinstance(error, MemberError):
            return StepError(self.rank, where(self.program, at, error.node), error.__cause__ or error)
        return StepError(self.rank, where(self.program, at), error)

    def finish(self, running: Running) -> dict[str, Tensor]:
        """What the step made, once all its instructions are done."""
        began = perf_counter()
        with self._serving():
            outputs = self._collect(running.slots)
        if self.region is not None:
            self.region.learn()
        self.progress[1] = IDLE
        self.times.steps += 1
        self.times.kernels += running.seconds[0]
        self.times.transfers += running.seconds[1]
        self.times.total += running.took + perf_counter() - began
        return outputs

    def _run_timed(self, slots: list[Any], seconds: list[float]) -> None:
        if self.device.type == "cuda":
            self._run_by_events(slots, seconds)
            return
        self.intervals = []
        for position, instruction in zip(self._positions, self._instructions, strict=True):
            self.progress[1] = position
            start = perf_counter()
            instruction.run(slots, seconds)
            self.intervals.append(MeasuredInterval(position, start, perf_counter()))

    def _run_by_events(self, slots: list[Any], seconds: list[float]) -> None:
        """An instruction of a GPU is queued here and done there: it takes what lies between two events."""
        stream = torch.cuda.current_stream(self.device)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(self._instructions) + 1)]
        torch.cuda.synchronize(self.device)
        began = perf_counter()
        events[0].record(stream)
        for position, instruction, event in zip(self._positions, self._instructions, events[1:], strict=True):
            self.progress[1] = position
            instruction.run(slots, seconds)
            event.record(stream)
        torch.cuda.synchronize(self.device)
        at = [began + events[0].elapsed_time(event) / 1e3 for event in events]
        self.intervals = [
            MeasuredInterval(position, start, stop)
            for position, start, stop in zip(self._positions, at[:-1], at[1:], strict=True)
        ]

    def _fill(self, inputs: dict[str, Tensor]) -> list[Any]:
        slots: list[Any] = [None] * len(self._slot)
        for name, shape in self._shapes.items():
            if name in self._updates:
                held = self.state
                keep = self._updates[name] is None or name in self.program.host  # where the next new state will lie
            else:
                held, keep = inputs, False
            if name not in held:
                known = "its state was never set, or was lost in a failed step" if name in self._updates else "missing"
                raise ValueError(f"worker {self.rank}: input {name!r}: {known}")
            tensor = held[name] if keep else held.pop(name)
            if tensor.shape != shape:
                raise ValueError(
                    f"worker {self.rank}: its part of {name!r} must be {list(shape)}, got {list(tensor.shape)}"
                )
            if self.region is not None and not keep and isinstance(tensor, torch.Tensor):
                tensor = self.region.entering(name, tensor)
            slots[self._slot[name]] = tensor
            if name in self._overwritten:
                assert self.copiers is not None
                self.copiers.host.places[self._overwritten[name]] = tensor
        return slots

    def _collect(self, slots: list[Any]) -> dict[str, Tensor]:
        self._nothing(self._elsewhere, slots)
        outputs = {
            output.name: slots[self._slot[output.name]]
            for output in self.program.graph.outputs
            if output.replaces is None
        }
        readers = Counter(self._updates.values())
        if self.region is None:
            for name in outputs:
                readers.pop(name, None)
        else:  # the memory of outputs is the next step's
            outputs = {name: self.region.leaving(tensor) for name, tensor in outputs.items()}
            for name in outputs.keys() - readers.keys():
                slots[self._slot[name]] = None
        for old, new in self._updates.items():
            if new is None:
                continue
            self.state[old] = self._settled(old, new, slots[self._slot[new]])
            readers[new] -= 1
            if readers[new] == 0:  # what was copied goes before the next is
                slots[self._slot[new]] = None
        return outputs

    def settle(self) -> None:
        """Return when the state can be read, what lies in the large memory too."""
        if self.copiers is not None:
            self.copiers.settle()

    def take_state(self, state: Mapping[str, Tensor]) -> None:
        """Set this device's parts of parameters, buffers and optimizer state, by name; they are copied."""
        with self._serving():
            self._take_state(state)

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in state.items():
            if tuple(tensor.shape) != self._shapes[name]:
                raise ValueError(
                    f"worker {self.rank}: its part of {name!r} must be {list(self._shapes[name])}, "
                    f"got {list(tensor.shape)}"
                )
            if name in self.program.host:
                assert self.copiers is not None
                self.copiers.settle()
                self.state[name] = self.copiers.host.keep(name, tensor)
            elif self.region is None:
                self.state[name] = tensor.to(self.device, copy=True, memory_format=torch.contiguous_format)
            else:
                self.state.pop(name, None)
                self.state[name] = self._state_in_place(name, tensor)

    def _state_in_place(self, name: str, tensor: Tensor) -> Tensor:
        """A contiguous copy of state where state lies in the arena."""
        assert self.region is not None
        with self.region.making(name):
            place = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        return place.copy_(tensor)

    def _in_place(self, old: str, tensor: Tensor) -> Tensor:
        """New state where the old lay, contiguous. Where it is part of something larger, or lies elsewhere, it is
        copied; the old is gone by then, or nobody has it but the state."""
        assert self.region is not None
        start = self.region.start_of(old)
        if start is None:
            return settle(tensor)
        if tensor.data_ptr() == start and is_settled(tensor):
            return tensor
        self.state.pop(old, None)
        return self._state_in_place(old, tensor)

    def _settled(self, old: str, new: str, tensor: Tensor) -> Tensor:
        """New state as it is kept. In the large memory it lies over the old, or changes places with it."""
        if new not in self.program.host:
            return settle(tensor) if self.region is None else self._in_place(old, tensor)
        assert self.copiers is not None
        host = self.copiers.host
        if not tensor.is_contiguous():
            self.copiers.settle()
            return self.state[old].copy_(tensor)
        if old not in self._overwritten:
            host.places[new] = self.state[old]
        return tensor


def _region(program: Program, addresses: Addresses | None, device: Any, strict: bool) -> tuple[Region | None, str]:
    """The worker's arena, or why there is none."""
    if addresses is None:
        return None, "nothing has a planned address"
    if why := refusal(program, device):
        return None, why
    try:
        return Region(addresses, strict), ""
    except ArenaError as error:
        return None, str(error)


def _out_of_memory(refused: str, error: BaseException) -> Exception:
    """PyTorch's own error, with what is known here."""
    own: Exception = torch.OutOfMemoryError(refused)
    own.__cause__ = error
    return own


def settle(tensor: Tensor) -> Tensor:
    """A tensor as state is kept: contiguous, and not a view that keeps something larger alive.

    So a step computes the same bits whether its state comes from the step before or from a checkpoint.
    """
    return tensor if is_settled(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def is_settled(tensor: Tensor) -> bool:
    return bool(tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes)
