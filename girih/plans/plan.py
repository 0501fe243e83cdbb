"""Plan: the one place that composes the rooms.

program → capture → Graph → partition → Strategy → lower → Program → run, with predictions and a certificate, as one
file that a person can save, read, compare, load and run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.cost.roofline_costs import compute, transfer_seconds
from girih.cost.scratch import Scratch
from girih.graph import Graph
from girih.lower import Blocks, Overlap, Program, blocked, lower, overlapped, scheduled
from girih.machine import Machine, MachineError, machine
from girih.machine.machine import parse_bytes, with_memory
from girih.memory.accounts import MemoryUse
from girih.partition import Certificate, Strategy
from girih.partition.solver.clock import Clock
from girih.partition.space.problem import Objective
from girih.partition.table import SEARCHES
from girih.plans.inputs import program_of

if TYPE_CHECKING:
    from girih.plans.predict import Prediction
    from girih.run.training.training import TrainingRun

OBJECTIVES = ("bytes", "seconds", "time")

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
class Plan:
    """A Graph, a Machine, a Strategy, and what is known of them.

    model: what was planned, as the command line names it, or "". batch: (input name, path) pairs of the batch.
    initial: recipes for the initial state, by path. memory: the limit for each device in bytes, or None.
    baselines: what other ways would cost. overlap: how far the program's exchanges overlap with computation.
    blocks: how the program is cut into blocks, or None. schedule: the order of a pipeline's work
    (`girih.lower.schedule`). keys: by key of the model's `state_dict` its tensor's path, or
    None: paths are keys. constants: what was planned with for each item of a batch that is no tensor, as Python writes
    it. simulated: seconds of the step, simulated when it was planned, or None. notes: what the reader should know, such
    as that another search ran than was asked for. scratch: by what the scratch memory of libraries' kernels was told
    when the plan was made, as its file says; None: it is made here and now. state: asks for the user's tensors by path,
    as they are then; never saved. file: which one it was read from, or "". trusted: the user answers for the functions
    and operators that it names: it is the user's own, or was loaded so.
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
    file: str = field(default="", compare=False)
    trusted: bool = field(default=True, compare=False)

    @cached_property
    def program(self) -> Program:
        plain = lower(self.graph, self.strategy, goal_of(self.objective, self.machine).transfers)
        plain = scheduled(plain, self.schedule, self.machine)
        return overlapped(plain, self.overlap) if self.blocks is None else blocked(plain, self.blocks)

    @cached_property
    def _memory(self) -> tuple[tuple[MemoryUse, ...], Scratch]:
        from girih.plans.scratch import account

        return account(self, self.program)

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
        return max(use.peak for use in self.memory_by_device)

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
        return costs_of(self)

    @property
    def gap(self) -> float:
        return self.certificate.gap

    def predict(self, *, machine: str | Machine | None = None, store: str | Path | None = None) -> Prediction:
        """What a step takes, by simulating the program on this machine or on another one with the same mesh.

        store: the file in which `girih calibrate` keeps what it measured; without it, by data sheets alone.

        Raises:
            PlanError: the other machine has another mesh, or the store is none.
        """
        from girih.plans.predict import predict

        return predict(self, machine=machine, store=store)

    def report(self, path: str | Path, *, store: str | Path | None = None) -> None:
        """Write the plan as one page (HTML) to look at, with its predicted timeline; see `predict`."""
        from girih.plans.compare import simulated_alternatives
        from girih.report.page import write_page

        write_page(path, self, self.predict(store=store).timeline, others=simulated_alternatives(self, store=store))

    def _repr_html_(self) -> str:
        from girih.report.notebook import notebook_html

        return notebook_html(self)

    def __repr__(self) -> str:
        from girih.report import tables

        return f"<Plan: {tables.title(self)}>"

    def __str__(self) -> str:
        from girih.report import tables

        return tables.render(tables.summary(self))

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON (gzipped if the name ends in .gz): whole, or the file is as it was before.

        Raises:
            PlanError: it cannot be written, or calls a function that has no import name.
        """
        from girih.plans.file import save

        save(self, path)

    def start(
        self,
        *,
        backend: str = "processes",
        model: Any = None,
        resume: str | Path | None = None,
        seed: int = 0,
        timeout: float = 120.0,
        measure: bool = False,
    ) -> TrainingRun:
        """Start the workers; a context manager with `step`, `state_dict`, `save`.

        backend: `processes` (of this host, with shared memory between them) or `threads` (inside this process).
        model: take the weights from this module instead of the one that was planned. Whichever it is, and the planned
        optimizer, their tensors are taken as they are now.
        resume: a directory that `save` wrote, under this plan or another one of the same program. It is read as data:
        no code of it runs, and a file that is damaged, or of another checkpoint, is refused.
        measure: note when each instruction of a step begins and ends, for `timeline()` of the run.

        Raises:
            PlanError: before anything starts, if the plan cannot run here.
        """
        from girih.run.training.training import start_training

        check_seconds("timeout", timeout)
        return start_training(
            self, backend=backend, model=model, resume=resume, seed=seed, timeout=timeout, measure=measure
        )


def plan(
    step: Any,
    batch: Any,
    *,
    machine: str | Machine = "local:2",
    memory: str | int | None = None,
    search: str = "exact",
    objective: str = "bytes",
    compare: tuple[str, ...] = ("single", "data"),
    seconds: float = 60.0,
    model: str = "",
    store: str | Path | None = None,
    observe: Observe | None = None,
) -> Plan:
    """Lay a training step (or an Inference) out over a machine.

    batch: example tensors, real, meta or fake, in the nesting that the step takes. memory: the limit for each device.
    search: one of `girih.partition.SEARCHES`. objective: `bytes` (Tofu's: communicate least, all work divided, every
    tensor held once), `seconds` (the roofline of the pieces plus transfers) or `time` (the simulated step, in which
    computing and transfers overlap and operators may be placed: `exact` then goes on with the sampled search). compare:
    searches whose costs are put beside. seconds: the time after which the search returns the best so far, with its
    gap. store: measured costs (`girih calibrate`), for `time` and for the simulated step.

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program.
        PlanError: for a search or objective that does not exist, or a memory limit that cannot be met.
    """
    check_seconds("seconds", seconds, none=True)
    _machine(machine, memory)  # what is wrong with it is told before anything is captured
    note = observe or (lambda what, share: None)
    note("capture", 0.0)
    own = program_of(step, batch, model)
    made = plan_graph(
        own.graph,
        machine=machine,
        memory=memory,
        search=search,
        objective=objective,
        compare=compare,
        seconds=seconds,
        store=store,
        observe=observe,
    )
    return own.in_plan(made)


def plan_graph(
    graph: Graph,
    *,
    machine: str | Machine = "local:2",
    memory: str | int | None = None,
    search: str = "exact",
    objective: str = "bytes",
    compare: tuple[str, ...] = (),
    seconds: float = 60.0,
    store: str | Path | None = None,
    observe: Observe | None = None,
) -> Plan:
    """Lay a graph out over a machine; see `plan`."""
    note = observe or (lambda what, share: None)
    check_seconds("seconds", seconds, none=True)
    where, limit = _machine(machine, memory)
    for name in (search, *compare):
        if name not in SEARCHES:
            raise PlanError(f"no search {name!r}: expected one of {', '.join(SEARCHES)}")
    if objective not in OBJECTIVES:
        raise PlanError(f"no objective {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    from girih.plans.predict import by_measurements, calibrated

    if objective == "time":
        where = calibrated(where, store)
    goal = goal_of(objective, where)
    from girih.search.memory_limit import begins_with, fit, ran, searched, widest_overlap

    search, notes = ran(search, objective)

    clock, first, given = Clock(), begins_with(search, objective, where, limit), graph
    note(f"search {first}", 0.0)
    found = searched(first, graph, goal, seconds / 2 if objective == "time" and first == search else seconds)
    graph = found.graph or graph
    result = fit(graph, goal, found, search, limit, seconds, note)
    made = Plan(graph, where, result.strategy, result.certificate, search, objective, limit, {})
    made = replace(made, schedule=found.schedule)
    made = replace(made, overlap=widest_overlap(made))
    if objective == "time":
        from girih.search.fastest import fastest

        made = fastest(made, seconds=seconds, clock=clock, store=store, note=note)
    from girih.plans.compare import compared, simulated_step

    notes = (*notes, *by_measurements(where, store))
    made = replace(made, simulated=simulated_step(made, store), notes=notes)
    baselines, missing = compared(made, given, compare, seconds=seconds, store=store, note=note)
    return replace(made, baselines=baselines, notes=(*notes, *missing))


def goal_of(objective: str, where: Machine) -> Objective:
    """What is minimised, as the searches over tables know it: `time` begins with `seconds`."""
    return Objective("seconds" if objective == "time" else objective, where)


def load(path: str | Path, *, trust: bool = False) -> Plan:
    """Read a plan that `save` wrote. A plan file is data: nothing in it is run, neither now nor when it is started, but
    girih's own operators and those of PyTorch that are pure functions.

    trust: you answer for whoever wrote the file. It may then name functions, which are imported now and called when the
    plan runs, and operators of other libraries that are registered in this program.

    Raises:
        PlanError: if there is no such file, or it is no plan, of another version, damaged, larger than can be read, or
            names what needs your trust.
    """
    from girih.plans.file import load as read

    return read(path, trust=trust)


def check_seconds(name: str, seconds: Any, *, none: bool = False) -> None:
    """Raises PlanError unless it is a finite number of seconds of more than 0. none: 0 is allowed."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not (seconds >= 0 if none else seconds > 0) or not seconds < float("inf"):
        raise PlanError(f"{name} must be a finite number of {'at least' if none else 'more than'} 0, got {seconds!r}")


def _machine(name: str | Machine, memory: str | int | None) -> tuple[Machine, int | None]:
    """The machine with the memory limit, and the limit in bytes."""
    try:
        if memory is None:
            return machine(name), None
        limit = parse_bytes(memory)
        return with_memory(machine(name), limit), limit
    except MachineError as error:
        raise PlanError(str(error)) from error


def costs_of(made: Plan) -> Costs:
    """The predictions for one step of a plan."""
    if made.objective == "time":  # simulated by the search already
        cost = made.certificate.cost
        return Costs(made.search, cost, int(made.bytes_received.sum()), made.peak, cost)
    seconds = float((made.compute[1] + transfer_seconds(made.program, made.machine)).max())
    return Costs(made.search, seconds, int(made.bytes_received.sum()), made.peak, made.simulated)


def check(made: Plan) -> None:
    """Prove the invariants of a plan.

    Graph and program keep their laws; every node and value has a place on the machine's mesh, and is divided as its
    operator can be; what replaces an input lies as it does; nothing that leaves is a partial sum; the bytes of the
    certificate are those of the program; the memory limit is kept. Of a plan from a file: its operators are harmless,
    and it is of a size that can be worked out.

    Raises:
        PlanError: naming what is broken.
    """
    from girih.plans.check import check as prove

    prove(made)
