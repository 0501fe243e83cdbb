"""Plan: the one place that composes the rooms.

program → capture → Graph → partition → Strategy → lower → Program → run, with predictions and a certificate, as one
file that a person can save, read, compare, load and run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.graph import Graph, GraphError
from girih.graph import check as check_graph
from girih.layout import Mesh, kind_of
from girih.lower import Blocks, MemoryUse, Overlap, Program, ProgramError, blocked, lower, overlapped
from girih.lower import check as check_program
from girih.machine import Machine, MachineError, machine
from girih.machine.machine import parse_bytes, with_memory
from girih.machine.scratch import Scratch
from girih.partition import Certificate, Strategy
from girih.partition.clock import Clock
from girih.partition.problem import Objective
from girih.partition.searches import SEARCHES
from girih.plan_costs import compute, transfer_seconds
from girih.plan_inputs import constants_of, learning_rates, leaves_of, ranges_of, state_keys

if TYPE_CHECKING:
    from girih.plan_predict import Prediction
    from girih.plan_run import TrainingRun

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
    blocks: how the program is cut into blocks, or None. keys: by key of the model's `state_dict` its tensor's path, or
    None: paths are keys. constants: what was planned with for each item of a batch that is no tensor, as Python writes
    it. simulated: seconds of the step, simulated when it was planned, or None. notes: what the reader should know, such
    as that another search ran than was asked for. scratch: by what the scratch memory of libraries' kernels was told
    when the plan was made, as its file says; None: it is made here and now. state: asks for the user's tensors by path,
    as they are then; never saved.
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

    @cached_property
    def program(self) -> Program:
        plain = lower(self.graph, self.strategy, goal_of(self.objective, self.machine).transfers)
        return overlapped(plain, self.overlap) if self.blocks is None else blocked(plain, self.blocks)

    @cached_property
    def _memory(self) -> tuple[tuple[MemoryUse, ...], Scratch]:
        from girih.plan_scratch import account

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
        from girih.plan_predict import predict

        return predict(self, machine=machine, store=store)

    def report(self, path: str | Path, *, store: str | Path | None = None) -> None:
        """Write the plan as one page (HTML) to look at, with its predicted timeline; see `predict`."""
        from girih.plan_compare import simulated_alternatives
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
        """Write the plan as JSON (gzipped if the name ends in .gz)."""
        from girih.plan_file import save

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
        from girih.plan_run import start_training

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
    from girih.capture import capture, state_of

    note = observe or (lambda what, share: None)
    note("capture", 0.0)
    captured = capture(step, batch)
    check_graph(captured.graph)
    made = plan_graph(
        captured.graph,
        machine=machine,
        memory=memory,
        search=search,
        objective=objective,
        compare=compare,
        seconds=seconds,
        store=store,
        observe=observe,
    )
    state = partial(state_of, step, captured.graph)
    state()  # what is wrong with it is told now
    first = captured.initial.items()
    recipes: dict[str, tuple[str, float, float]] = {path: (item.kind, item.a, item.b) for path, item in first}
    return replace(
        made,
        initial=recipes,
        model=model,
        scalars=learning_rates(step),
        ranges=ranges_of(flatten_batch(batch)),
        keys=state_keys(step.model),
        constants=constants_of(batch),
        state=state,
    )


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
    where, limit = _machine(machine, memory)
    for name in (search, *compare):
        if name not in SEARCHES:
            raise PlanError(f"no search {name!r}: expected one of {', '.join(SEARCHES)}")
    if objective not in OBJECTIVES:
        raise PlanError(f"no objective {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    if objective == "time":
        from girih.plan_predict import calibrated

        where = calibrated(where, store)
    goal = goal_of(objective, where)
    from girih.plan_memory import begins_with, fit, ran, searched, widest_overlap

    search, notes = ran(search, objective)

    clock, first, given = Clock(), begins_with(search, objective, where, limit), graph
    note(f"search {first}", 0.0)
    found = searched(first, graph, goal, seconds / 2 if objective == "time" and first == search else seconds)
    graph = found.graph or graph
    result = fit(graph, goal, found, search, limit, seconds, note)
    made = Plan(graph, where, result.strategy, result.certificate, search, objective, limit, {})
    made = replace(made, overlap=widest_overlap(made))
    if objective == "time":
        from girih.plan_fastest import fastest

        made = fastest(made, seconds=seconds, clock=clock, store=store, note=note)
    from girih.plan_compare import compared, simulated_step

    made = replace(made, simulated=simulated_step(made, store), notes=notes)
    baselines, missing = compared(made, given, compare, seconds=seconds, store=store, note=note)
    return replace(made, baselines=baselines, notes=(*notes, *missing))


def goal_of(objective: str, where: Machine) -> Objective:
    """What is minimised, as the searches over tables know it: `time` begins with `seconds`."""
    return Objective("seconds" if objective == "time" else objective, where)


def flatten_batch(batch: Any) -> dict[str, Any]:
    """The tensors of a nested batch by path: `0`, `1/input_ids`."""
    return {path: leaf for path, leaf in leaves_of(batch) if hasattr(leaf, "shape")}


def load(path: str | Path) -> Plan:
    """Read a plan that `save` wrote.

    Raises:
        PlanError: if there is no such file, or it is no plan, of another version, or damaged.
    """
    from girih.plan_file import load as read

    return read(path)


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

    Graph and program keep their laws; every node and value has a place on the machine's mesh; what replaces an input
    lies as it does; nothing that leaves is a partial sum; the bytes of the certificate are those of the program; the
    memory limit is kept.

    Raises:
        PlanError: naming what is broken.
    """
    try:
        check_graph(made.graph)
    except GraphError as error:
        raise PlanError(f"the plan's graph is broken: {error}") from error
    mesh: Mesh = made.machine.mesh
    strategy = made.strategy
    if strategy.mesh != mesh:
        raise PlanError(f"the strategy is for a mesh {strategy.mesh}, the machine has {mesh}")
    if len(strategy.divisions) != len(made.graph.nodes):
        raise PlanError(f"{len(strategy.divisions)} divisions for {len(made.graph.nodes)} nodes")
    for name, value in made.graph.values.items():
        layout = strategy.layouts.get(name)
        if layout is None or len(layout) != mesh.axes or any(kind_of(code) >= len(value.shape) for code in layout):
            raise PlanError(f"value {name} {list(value.shape)} has layout {layout} on a mesh {mesh}")
    for old, new in made.graph.updates.items():
        if strategy.layouts[old] != strategy.layouts[new]:
            raise PlanError(f"{new} replaces {old} but lies otherwise: {strategy.layouts[new]}")
    for output in made.graph.outputs:
        if any(kind_of(code) == -2 for code in strategy.layouts[output.name]):
            raise PlanError(f"output {output.name} would leave the program as a partial sum")
    try:
        check_program(made.program)
    except ProgramError as error:
        raise PlanError(f"the plan's program is broken: {error}") from error
    if made.objective == "bytes" and round(made.certificate.cost) != int(made.bytes_received.sum()):
        raise PlanError(
            f"the certificate says {made.certificate.cost:.0f} bytes, the program moves {made.bytes_received.sum()}"
        )
    if made.memory is not None and made.peak > made.memory:
        raise PlanError(f"the plan needs {made.peak} bytes on a device, its limit is {made.memory}")
