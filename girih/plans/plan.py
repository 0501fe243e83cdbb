"""Plan: a Graph, a Machine, a Strategy, the Program that follows from them, what it costs, and its certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from girih.cost.roofline_costs import compute, transfer_seconds
from girih.cost.scratch import Scratch
from girih.graph import Graph
from girih.lower import Blocks, Overlap, Program, blocked, lower, overlapped, scheduled
from girih.machine import Machine
from girih.machine.units import format_bytes
from girih.memory.accounts import MemoryUse
from girih.memory.again import sequenced
from girih.memory.apart import lifetimes_by_class, moved_apart
from girih.memory.lifetimes import Lifetimes, lifetimes, unlike, widest
from girih.memory.moves import moved
from girih.memory.pieces import InPieces, in_pieces
from girih.memory.places.addresses import Addresses
from girih.memory.residency import Residency
from girih.partition import Certificate, Strategy
from girih.partition.search import is_seconds
from girih.partition.space.problem import Objective
from girih.plans.arenas import arenas
from girih.plans.rewritten import Rewrite
from girih.plans.scratch import account, followed, notes_of

Observe = Callable[[str, float], None]


class PlanError(ValueError):
    """A plan that cannot be made, read or run; the message says what was given, what was expected, what to do."""


@dataclass(frozen=True)
class Costs:
    """What a strategy costs: predictions for one step.

    seconds: an estimate: under the objective `time` the simulated step, else of the slowest device arithmetic or memory
    traffic by the roofline plus transfers, nothing overlapped.
    bytes: received by all devices together (exact). peak: bytes of the device that needs most, exact by liveness, but
    for kernels whose scratch was not measured (`Plan.told_scratch`).
    simulated: seconds of the step, simulated when it was planned; None where that was not done.
    """

    name: str
    seconds: float
    bytes: int
    peak: int
    simulated: float | None = None


@dataclass(frozen=True, repr=False)
class Plan:
    """A Graph, a Machine, a Strategy, and what is known of them.

    model: what was planned, as the command line names it, or "". batch: (input name, path) pairs of the batch.
    initial: recipes for the initial state, by path. memory: the limit for each device in bytes, or None.
    baselines: what other ways would cost. overlap: how far the program's exchanges overlap with computation.
    blocks: how the program is cut into blocks, or None. schedule: the order of a pipeline's work
    (`girih.lower.schedule`). Where not all fits on the devices, pieces: steps that are computed in pieces
    (`girih.memory.pieces`); sequence: the program's steps in an order in which some come again
    (`girih.memory.again`), or None; residency: when each storage is on the device, or None; residencies: the same for
    each class of devices, where they do different things (`girih.memory.apart`);
    unlimited: seconds of the step if all did fit, simulated; memory_bound: seconds below which no way keeps the limit
    with this order of steps (`girih.memory.bound`), by the prices of then; room: bytes that the residency was made
    for, fewer than the limit where addresses take the rest (`arenas`), or None. rewrites: by which rules the graph was
    rewritten before it was divided (`girih.plans.rewritten`). undivided: of a step in micro-batches the graph of the
    whole batch, with which runs are compared; or None: that is `graph`. keys: by key of the model's `state_dict` its
    tensor's path, or None: paths are keys. constants: what was planned with for each item of a batch that is no
    tensor, as Python writes it. simulated: seconds of the step, simulated when it was planned, or None. notes: what
    the reader should know, such as that another search ran than was asked for. scratch: by what the scratch memory of
    libraries' kernels was told when the plan was made, as its file says; None: it is made here and now. state: asks
    for the user's tensors by path, as they are then; never saved. file: which one it was read from, or "". trusted:
    the user answers for the functions and operators that it names: it is the user's own, or was loaded so.
    """

    graph: Graph
    machine: Machine
    strategy: Strategy
    certificate: Certificate
    search: str
    objective: str
    memory: int | None
    initial: dict[str, tuple[str, float, float]]
    model: str = ""
    scalars: dict[str, float] = field(default_factory=dict)
    baselines: tuple[Costs, ...] = ()
    ranges: dict[str, int] = field(default_factory=dict)
    overlap: Overlap = field(default_factory=Overlap)
    blocks: Blocks | None = None
    keys: Mapping[str, str] | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    simulated: float | None = None
    notes: tuple[str, ...] = ()
    scratch: Scratch | None = field(default=None, compare=False)
    state: Callable[[], Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    schedule: str = "graph"
    sequence: tuple[int, ...] | None = None
    residency: Residency | None = None
    residencies: tuple[Residency, ...] = ()
    pieces: tuple[InPieces, ...] = ()
    unlimited: float | None = None
    memory_bound: float | None = None
    room: int | None = None
    rewrites: tuple[Rewrite, ...] = ()
    undivided: Graph | None = None
    file: str = field(default="", compare=False)
    trusted: bool = field(default=True, compare=False)

    @cached_property
    def program(self) -> Program:
        if self.residency is None and not self.residencies:
            return self.unmoved
        assert self.memory is not None
        if self.residency is None:
            return moved_apart(self.lifetimes_by_class, self.residencies, self.memory)
        return moved(self.lifetimes, self.residency, self.room or self.memory)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Of the program without movements, with the largest part of each storage that a device has; of a large machine
        on the first and the last device."""
        return self._walked[0]

    @cached_property
    def _walked(self) -> tuple[Lifetimes, Scratch]:
        """These, and by what the scratch memory in them was told."""
        notes = notes_of(self.unmoved, self.machine, self.scratch)
        devices = unlike(self.unmoved, followed(self.machine))
        lives = widest([lifetimes(self.unmoved, device, notes.threads, notes) for device in devices])
        return lives, notes.record

    @cached_property
    def lifetimes_by_class(self) -> tuple[Lifetimes, ...]:
        """The same for each class of devices that do the same, where not all do."""
        notes = notes_of(self.unmoved, self.machine, self.scratch)
        return lifetimes_by_class(self.unmoved, followed(self.machine), notes.threads, notes)

    @cached_property
    def unmoved(self) -> Program:
        """The program without movements."""
        return self.lowered if self.sequence is None else sequenced(self.lowered, self.sequence)

    @cached_property
    def lowered(self) -> Program:
        """The program with everything on the devices, each step once, whatever the memory limit."""
        plain = lower(self.graph, self.strategy, Objective(self.objective, self.machine).transfers)
        plain = scheduled(plain, self.schedule, self.machine)
        if self.pieces:
            return in_pieces(plain, self.pieces)
        return overlapped(plain, self.overlap) if self.blocks is None else blocked(plain, self.blocks)

    @cached_property
    def _memory(self) -> tuple[tuple[MemoryUse, ...], Scratch]:
        if self.machine.devices > 1:
            return account(self.program, self.machine, self.scratch)
        lives, told = self._alone
        assert lives.use is not None
        return (lives.use,), told

    @cached_property
    def _alone(self) -> tuple[Lifetimes, Scratch]:
        """On one device: lifetimes in the program with its movements, and by what the scratch memory was told."""
        if self.program is self.unmoved and (known := self._walked)[0].use is not None:
            return known
        notes = notes_of(self.program, self.machine, self.scratch)
        return lifetimes(self.program, 0, notes.threads, notes), notes.record

    @property
    def memory_by_device(self) -> tuple[MemoryUse, ...]:
        """Memory of each device; of a large machine only of the first and the last device."""
        return self._memory[0]

    @property
    def told_scratch(self) -> Scratch:
        """By what the scratch memory in `memory_by_device` was told."""
        return self._memory[1]

    @cached_property
    def peak(self) -> int:
        """Bytes of the device that needs most. In an arena, new state that was not made where the old lay is copied
        there when all steps are done: `Addresses.peak` has these copies, which no other run makes, and this has not."""
        return max(use.peak for use in self.memory_by_device)

    @cached_property
    def arenas(self) -> tuple[Addresses, ...]:
        """Where everything lies on each device in one region of memory, if it is run on processors; () where some state
        has no address that stays from step to step."""
        alone = (self._alone[0],) if self.machine.devices == 1 else ()
        return arenas(self.program, self.machine, self.scratch, self.memory or 0, alone)

    @property
    def arena(self) -> Addresses | None:
        """The largest of `arenas`."""
        return max(self.arenas, key=lambda item: item.bytes, default=None)

    @property
    def no_arena(self) -> str:
        """Why a run cannot have everything at its address within the memory limit; "" where it can."""
        if self.arena is None:
            return "some state of the plan has no address that stays from step to step"
        if self.memory is None or self.arena.bytes <= self.memory:
            return ""
        return (
            f"addresses leave gaps, so that it would need {format_bytes(self.arena.bytes)} ({self.arena.bytes} bytes), "
            f"more than the limit of {format_bytes(self.memory)}"
        )

    @cached_property
    def bytes_received(self) -> np.ndarray:
        """[devices]: what each receives in one step. Exact."""
        return self.program.bytes_received()

    @cached_property
    def compute(self) -> tuple[np.ndarray, np.ndarray]:
        """(arithmetic operations, seconds by the roofline) of each device in one step: [devices]."""
        return compute(self.graph, self.machine, self.strategy)

    @cached_property
    def costs(self) -> Costs:
        """The predictions for one step."""
        if self.objective == "time":  # simulated by the search already
            cost = self.certificate.cost
            return Costs(self.search, cost, int(self.bytes_received.sum()), self.peak, cost)
        seconds = float((self.compute[1] + transfer_seconds(self.program, self.machine)).max())
        return Costs(self.search, seconds, int(self.bytes_received.sum()), self.peak, self.simulated)

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def limit(self) -> int:
        """Bytes that a device may hold: the plan's limit, or, where it has none, what the machine has."""
        return self.machine.device.memory_bytes if self.memory is None else self.memory

    @property
    def fits(self) -> bool:
        """Does each device hold no more than the plan's limit, or, where it has none, than it has?"""
        room = self.machine.figures("memory_bytes")
        return all(
            use.peak <= (room[use.device] if self.memory is None else self.memory) for use in self.memory_by_device
        )

    def held(
        self, sequence: tuple[int, ...] | None, residency: Residency | None = None, room: int | None = None
    ) -> Plan:
        """The plan with another sequence, and another residency, for so much room; what does not depend on them is not
        computed again."""
        plan: Plan = replace(self, sequence=sequence, residency=residency, residencies=(), room=room)
        names = ("lowered", "unmoved", "lifetimes", "_walked") if sequence == self.sequence else ("lowered",)
        plan.__dict__.update({name: self.__dict__[name] for name in names if name in self.__dict__})
        return plan

    def told(self, **changes: Any) -> Self:
        """The plan with other words about it: fields on which its programs and their memory do not depend, such as
        `simulated` and `notes`. Nothing is computed again."""
        plan = replace(self, **changes)
        known = {name: value for name, value in self.__dict__.items() if name not in plan.__dict__ and name != "costs"}
        plan.__dict__.update(known)
        return plan

    def held_apart(self, residencies: tuple[Residency, ...]) -> Plan:
        """The plan with other residencies of its classes; what does not depend on them is not computed again."""
        plan: Plan = replace(self, residency=None, residencies=residencies)
        names = ("lowered", "unmoved", "lifetimes", "lifetimes_by_class")
        plan.__dict__.update({name: self.__dict__[name] for name in names if name in self.__dict__})
        return plan


def check_seconds(name: str, seconds: Any) -> None:
    """Raises PlanError unless it is a finite number of seconds of more than 0."""
    if not is_seconds(seconds) or seconds == 0:
        raise PlanError(f"{name} must be a finite number of more than 0, got {seconds!r}")
