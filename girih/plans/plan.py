"""Plan: a Graph, a Machine, a Choice, the Program that follows from them, what it costs, and its certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from girih.cost.roofline_costs import compute, transfer_seconds
from girih.cost.scratch import Scratch
from girih.graph import Graph
from girih.machine import Machine
from girih.machine.units import format_bytes
from girih.partition import SearchResult, Strategy
from girih.partition.search import is_seconds
from girih.plans.choice import Choice, lowering, moves, moving_lifetimes, ordering, unlowered, widest_lifetimes
from girih.plans.scratch import account, notes_of
from girih.program import Overlap, Program
from girih.program.life.accounts import MemoryUse
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.passes import Address, apply
from girih.program.places.addresses import Addresses
from girih.rewrite.certificate import Certificate

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


@dataclass(frozen=True)
class Goal:
    """What was asked for. search: by its name, the search whose answer the plan is. objective: what it minimises
    (`girih.partition.space.problem.Objective`). memory: the limit for each device in bytes, or None."""

    search: str
    objective: str
    memory: int | None = None


class ProgramData(Protocol):
    """Data that is a part of a program, such as the whole graph of a graph network: no batch brings it, and neither a
    plan's file nor a checkpoint holds it. checksums: of the user's arrays, by the names that the user knows."""

    @property
    def checksums(self) -> Mapping[str, int]: ...

    def data_tensors(self) -> Mapping[str, Any]:
        """The tensors that the program has of it, by path."""

    def check_unchanged(self) -> None:
        """Raises ValueError where it is no longer what it was."""


@dataclass(frozen=True)
class Origin:
    """What is known of the user's program beside its graph.

    model: what was planned, as the command line names it, or "". initial: recipes for the initial state, by path.
    scalars: learning rates by path. ranges: by path, one more than the largest number in each integer tensor of the
    batch. keys: by key of the model's `state_dict` its tensor's path, or None: paths are keys. constants: what was
    planned with for each item of a batch that is no tensor, as Python writes it. undivided: of a step in micro-batches
    the graph of the whole batch, with which runs are compared; or None: that is the plan's own. state: asks for the
    user's tensors by path, as they are then. data: what is a part of the program beside its weights, which is asked
    before each step whether it has changed since; neither is saved.
    """

    model: str = ""
    initial: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    undivided: Graph | None = None
    state: Callable[[], Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    data: ProgramData | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Predicted:
    """What was found out when the plan was made, and takes long to find out again.

    simulated: seconds of the step, simulated, or None. unlimited: where not all fits on the devices, seconds of the
    step if all did, simulated. memory_bound: seconds below which no way keeps the limit with this order of steps
    (`girih.search.memory.bound`), by the prices of then. baselines: what other ways would cost. notes: what the reader
    should know, such as that another search ran than was asked for.
    """

    simulated: float | None = None
    unlimited: float | None = None
    memory_bound: float | None = None
    baselines: tuple[Costs, ...] = ()
    notes: tuple[str, ...] = ()


NOUN_OF = {
    part.name: noun
    for noun, cls in {"choice": Choice, "goal": Goal, "origin": Origin, "predicted": Predicted}.items()
    for part in fields(cls)
}
"""By the name of a part of one of a plan's nouns, the field of the plan that has the noun."""

DEPENDS_ON: dict[str, tuple[str, ...]] = {
    "lowered": ("graph", "machine", "strategy", "routes", "schedule", "pieces", "overlap", "blocks"),
    "unmoved": ("lowered", "sequence"),
    "_walked": ("unmoved", "scratch"),
    "lifetimes": ("unmoved", "scratch"),
    "lifetimes_by_class": ("lifetimes",),
    "program": ("lifetimes_by_class", "residency", "room"),
    "_alone": ("program",),
    "_memory": ("program",),
    "peak": ("_memory",),
    "arenas": ("program", "memory"),
    "bytes_received": ("program",),
    "compute": ("graph", "machine", "strategy"),
    "costs": ("search", "objective", "certificate", "simulated", "peak", "compute"),
}
"""What a plan works out when it is asked for, each with the fields, their parts, and the lines above on which it
depends: `Plan.but` keeps what depends on nothing that has changed."""

GIVEN = {name for on in DEPENDS_ON.values() for name in on} - DEPENDS_ON.keys()


@dataclass(frozen=True, repr=False)
class Plan:
    """A Graph, a Machine, a Choice, its certificate, and what is known of them.

    scratch: by what the scratch memory of libraries' kernels was told when the plan was made, as its file says; None:
    it is made here and now. file: which one it was read from, or "". trusted: the user answers for the functions and
    operators that it names: it is the user's own, or was loaded so.
    """

    graph: Graph
    machine: Machine
    choice: Choice
    certificate: Certificate
    goal: Goal
    origin: Origin = field(default_factory=Origin)
    predicted: Predicted = field(default_factory=Predicted)
    scratch: Scratch | None = field(default=None, compare=False)
    file: str = field(default="", compare=False)
    trusted: bool = field(default=True, compare=False)

    def but(self, **changes: Any) -> Self:
        """The same plan but for these fields, or these parts of its choice, goal, origin and predictions, each by its
        name. What does not depend on what changed is not worked out again (`DEPENDS_ON`).

            plan.but(overlap=Overlap(1, 1), notes=())
        """
        own = {name: value for name, value in changes.items() if name not in NOUN_OF}
        for name in changes.keys() - own.keys():
            noun = NOUN_OF[name]
            own[noun] = replace(own.get(noun, getattr(self, noun)), **{name: changes[name]})
        plan = replace(self, **own)
        stale = {name for name in GIVEN if self._part(name) is not plan._part(name) != self._part(name)}
        for name, on in DEPENDS_ON.items():
            if not stale.isdisjoint(on):
                stale.add(name)
        plan.__dict__.update({name: self.__dict__[name] for name in DEPENDS_ON.keys() - stale if name in self.__dict__})
        return plan

    def knowing(self, **known: Any) -> Self:
        """The same plan, which has worked these out already, each by its name in `DEPENDS_ON`: the caller has found
        them in another way, which tells the same."""
        if unknown := known.keys() - DEPENDS_ON.keys():
            raise ValueError(f"a plan does not work out {', '.join(sorted(unknown))}: expected of {list(DEPENDS_ON)}")
        plan = self.but()
        plan.__dict__.update(known)
        return plan

    @property
    def whole(self) -> Self:
        """The plan with everything on the devices, each step once, in the order of its program."""
        return self.but(sequence=None, residency=(), room=None, pieces=())

    def divided_by(self, found: SearchResult, search: str) -> Self:
        """The plan as a search of this name divides it, without what was chosen to keep its memory limit. A schedule of
        its own has its exchanges overlap already, so the plan's overlap is left out of it."""
        return self.whole.but(
            overlap=self.choice.overlap if found.schedule == "graph" else Overlap(),
            graph=found.graph or self.graph,
            strategy=found.strategy,
            schedule=found.schedule,
            certificate=found.certificate,
            search=search,
            baselines=(),
        )

    def _part(self, name: str) -> Any:
        return getattr(getattr(self, NOUN_OF[name]) if name in NOUN_OF else self, name)

    @property
    def strategy(self) -> Strategy:
        return self.choice.strategy

    @property
    def search(self) -> str:
        return self.goal.search

    @property
    def objective(self) -> str:
        return self.goal.objective

    @property
    def memory(self) -> int | None:
        return self.goal.memory

    @property
    def baselines(self) -> tuple[Costs, ...]:
        return self.predicted.baselines

    @property
    def notes(self) -> tuple[str, ...]:
        return self.predicted.notes

    @cached_property
    def program(self) -> Program:
        """What the devices do; as `girih.plans.choice.apply` makes it."""
        if not self.choice.residency:
            return self.unmoved
        return moves(self.choice, lambda _: self.lifetimes_by_class).apply(self.unmoved)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """The lifetimes of the program without movements, with the largest part of each storage that a device has; of a
        large machine on the first and the last device."""
        return self._walked[0]

    @cached_property
    def _walked(self) -> tuple[Lifetimes, Scratch]:
        """These, and by what the scratch memory in them was told."""
        notes = notes_of(self.unmoved, self.machine, self.scratch)
        return widest_lifetimes(self.unmoved, self.machine, notes), notes.record

    @cached_property
    def lifetimes_by_class(self) -> tuple[Lifetimes, ...]:
        """One for all devices that do the same: `lifetimes`, where all do."""
        if not self.unmoved.orders:
            return (self.lifetimes,)
        return moving_lifetimes(self.unmoved, self.machine, self.scratch)

    @cached_property
    def unmoved(self) -> Program:
        """The program without movements."""
        return apply(self.lowered, ordering(self.choice))

    @cached_property
    def lowered(self) -> Program:
        """The program with everything on the devices, each step once, whatever the memory limit."""
        return apply(unlowered(self.graph, self.choice), lowering(self.choice, self.machine))

    @cached_property
    def _memory(self) -> tuple[tuple[MemoryUse, ...], Scratch]:
        moved = self.program is not self.unmoved
        if self.machine.devices > 1 or (moved and not self.machine.here):  # elsewhere nobody asks for addresses
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
        return apply(self.program, (Address(self._each, self.memory or 0),)).addresses

    def _each(self, program: Program) -> Iterator[Lifetimes]:
        """The lifetimes on each device in the program with its movements."""
        if self.machine.devices == 1:
            yield self._alone[0]
            return
        notes = notes_of(program, self.machine, self.scratch)
        for device in range(self.machine.devices):
            yield lifetimes(program, device, notes.threads, notes)

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
        return Costs(self.search, seconds, int(self.bytes_received.sum()), self.peak, self.predicted.simulated)

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


def check_seconds(name: str, seconds: Any) -> None:
    """Raises PlanError unless it is a finite number of seconds of more than 0."""
    if not is_seconds(seconds) or seconds == 0:
        raise PlanError(f"{name} must be a finite number of more than 0, got {seconds!r}")
