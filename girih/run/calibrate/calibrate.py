"""Calibrate a machine: measure what operators, links and copies take in its workers, into the store of costs.

The workers are those of a run: the same processes (or threads), threads of each, transport. All measure the same thing
at the same time, because in a run they compute at the same time. What is measured: every different call of the given
programs, in steps of them where that can be; about a hundred common calls for the roofline; the links in each pattern
by message size; packing and combining; what the driver takes to hand a batch in. What the store has already in the same
setting is not measured again, unless `again`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

from girih.cost.calls import Call
from girih.cost.device_calls import local_calls
from girih.cost.pricing import handed_bytes, most_instructions, price
from girih.cost.profile import SEND, Moving, Profile, save_profile
from girih.cost.roofline import fit
from girih.cost.setting import setting_of, threads_of
from girih.cost.store import Measurement, Setting, Store
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.host import cores_here
from girih.layout import Links, Mesh, Replicated, Sharding, Transfers
from girih.machine import Machine, MachineError, machine
from girih.machine.sizes import SizeTable
from girih.partition.strategy import Strategy
from girih.program import Program, StartStep, Step, TransferStep, lower
from girih.run.calibrate.common_calls import common_calls
from girih.run.calibrate.measure_links import (
    SIZES,
    Between,
    CopyTask,
    HandTask,
    LinkTask,
    meetings,
    patterns,
    sizes_of,
)
from girih.run.calibrate.measure_moves import Moved, MoveTask
from girih.run.calibrate.measure_operators import LEAST_ROUNDS, OperatorTask, Sample, Task
from girih.run.calibrate.measure_steps import Copied, Stepped, StepTask, can_be_stepped, drawn_batch, exchanging
from girih.run.engines.crew import Crew, Status
from girih.run.engines.engine import CALIBRATED, Engine, engine_of
from girih.run.engines.launcher import refusal_alone
from girih.run.training.session import Run
from girih.run.worker.service import Options

Observe = Callable[[str, float], None]

LINK_SHARE, COPY_SHARE, STEP_SHARE = 0.25, 0.1, 0.3  # of the budget; operators that steps do not show have the rest,
MOVE_SHARE = 0.05  # for copies to the large memory; it comes on top
PREPARE_SHARE = 0.15  # of which this for making inputs and the first executions
MOST_SECONDS = 0.25  # for each call
HANDED = (1 << 10, 1 << 16, 1 << 20, 1 << 23)  # bytes of a batch
HANDINGS = 9
MOST_ROUNDS = 30  # steps of a program
BESIDES = 1e-6  # seconds of an instruction besides, until steps tell
WEAK, MOST_FACTOR = 0.1, 10.0  # how much weighs that factors are 1, and by how much they may differ
WORKER_SECONDS = 300.0  # beyond the budget, after which a worker counts as hung
CHUNK_CALLS, CHUNK_BYTES = 400, 256 << 20  # that are measured in the same rounds


def calibrate(
    machine_name: str,
    *,
    store_path: str | Path,
    programs: Sequence[Program] = (),
    data: Sequence[Mapping[str, Any]] = (),
    budget_seconds: float = 45.0,
    backend: str | Engine = "processes",
    threads: int = 0,
    largest_bytes: int = SIZES[-1],
    again: bool = False,
    observe: Observe | None = None,
) -> Profile:
    """Measure `local:N`, or the GPUs `cuda:N`, and keep the measurements and the profile.

    programs: whose calls are measured beside the common ones; they must be for N devices. data: of each program the
    tensors that are a part of it, by path, as `plan.origin.data.data_tensors()` gives them: in which order the
    neighbours in a graph lie decides how fast they are read. Other operands are drawn, and so is data of which there is
    none here, or more than 256 MB. budget_seconds: about how
    long measuring takes, besides starting the workers; calls that are slow themselves take longer. threads: of each
    worker process; 0: the cores divided by the workers. largest_bytes: of messages, and of what common calls read and
    write. again: measure what is known, too. observe: told what is being measured, and which share of all is done.

    Raises:
        MachineError: another machine than local:N and cuda:N, a program for another number of devices, data of another
            program, a store that is none.
        WorkerError: a worker failed or could not start.
    """
    where = machine(machine_name)
    if not 0 < budget_seconds < float("inf"):
        raise MachineError(f"budget_seconds must be a finite number of more than 0, got {budget_seconds!r}")
    if not (where.here or where.on_gpus):
        raise MachineError(f"{machine_name!r} is not here: only local:N and cuda:N can be calibrated")
    device = "cuda" if where.on_gpus else "cpu"
    try:
        engine = engine_of(backend, CALIBRATED)
    except ValueError as error:
        raise MachineError(str(error)) from error
    for program in programs:
        if program.mesh.devices != where.devices:
            raise MachineError(f"a program for {program.mesh.devices} devices cannot be measured on {machine_name}")
    if why := _misfit(programs, data):
        raise MachineError(why)
    workers = where.devices
    if why := refusal_alone("calibrate"):
        raise MachineError(why)
    threads = threads or threads_of(workers, engine.one_process)
    setting = setting_of(threads, workers, device, engine.one_process)
    note = observe or _silent
    note("start workers", 0.0)
    options = Options(timeout=WORKER_SECONDS + budget_seconds, device=device, threads=threads)
    with Store(store_path) as store:
        crew = engine.crew(idle_program(workers), options)
        steps = _Steps()
        try:
            crowded = device == "cpu" and threads * workers > cores_here()
            wanted = _wanted(programs, largest_bytes)
            if device == "cpu":
                fit_here = [program for program in programs if can_be_stepped(program, where, threads)]
                steps = _steps(crew, store, setting, fit_here, budget_seconds * STEP_SHARE, crowded, again, note)
                wanted = [[call for call in group if call.key not in steps.keys] for group in wanted]
            _operators(crew, store, setting, wanted, data, budget_seconds, crowded, again, note)
            between: Between = "one clock" if crew.carries and not crowded else "nothing"
            links = tuple(measured_links(crew, budget_seconds * LINK_SHARE, largest_bytes, note, between))
            copy, combine = _copies(crew, workers, budget_seconds * COPY_SHARE, largest_bytes, note)
            handing, besides = handed_as_in_steps(measured_handing(crew, largest_bytes), steps.handing)
            moving = as_in_steps(measured_moving(crew, budget_seconds * MOVE_SHARE), steps.copies)
        finally:
            crew.close()
        roofline = fit(store.samples(setting), where.device)
        measured = setting, roofline, links, copy, combine, _now(), crew.carries
        profile = Profile(machine_name, engine.name, *measured, handing, engine.one_process, moving, besides)
        profile = _with_exchanges_as_in_steps(profile, where, steps.exchanging)
        save_profile(store, profile)
    note("done", 1.0)
    return profile


# ------------------------------------------------------------------------------------------- operators


def _wanted(programs: Sequence[Program], largest: int) -> list[list[Call]]:
    """The different calls of each program, in the order in which it executes them, so that a call finds in the caches
    what it finds in a step; then the common ones, by about how long they take. None comes twice."""
    groups = [list(local_calls(program, over=True).calls) for program in programs]
    groups.append(sorted((call for call in common_calls() if call.work.bytes <= largest), key=_size))
    seen: set[str] = set()
    wanted = []
    for group in groups:
        new = {call.key: call for call in group if call.key not in seen}
        seen.update(new)
        wanted.append(list(new.values()))
    return wanted


class Handed(NamedTuple):
    """Of a program's steps the bytes that a worker is handed, its instructions, and the seconds besides these."""

    bytes: float
    instructions: int
    seconds: float


@dataclass
class _Steps:
    """What steps of programs told. keys: of the calls that were measured. exchanging: of a program, the seconds of a
    step that its exchanges take. handing: what steps took besides their instructions."""

    keys: set[str] = field(default_factory=set)
    copies: list[Copied] = field(default_factory=list)
    exchanging: list[tuple[Program, float]] = field(default_factory=list)
    handing: list[Handed] = field(default_factory=list)


def _steps(
    crew: Crew,
    store: Store,
    setting: Setting,
    programs: Sequence[Program],
    budget_seconds: float,
    crowded: bool,
    again: bool,
    note: Observe,
) -> _Steps:
    """Measure the calls of programs in steps of them. What fails there is left to be measured apart."""
    told = _Steps()
    for number, program in enumerate(programs):
        found = local_calls(program, over=True)
        known = told.keys if again else store.measured(setting, list(found.calls)).keys()
        note(f"steps {number} of {len(programs)}", STEP_SHARE * number / len(programs))
        answers, took = stepped(crew, program, budget_seconds / len(programs), crowded)
        replies = [reply for reply in answers if isinstance(reply, Stepped)]
        if len(replies) < len(answers):
            continue
        samples: dict[int, list[Sample]] = {}
        for rank, reply in enumerate(replies):
            for at, sample in reply.calls.items():
                samples.setdefault(int(found.numbers[at, rank]), []).append(sample)
            told.copies += reply.copies
        measured = {which: _measurement(own) for which, own in samples.items()}
        rows = [(found.calls[which], row) for which, row in measured.items()]
        store.put(setting, [(call, row) for call, row in rows if call.key not in known])
        told.keys.update(call.key for call, _ in rows)
        if not program.orders:
            seconds = {which: row.seconds for which, row in measured.items()}
            told.exchanging.append((program, exchanging(program, replies, seconds)))
        besides = np.asarray(took) - np.max([reply.steps for reply in replies], axis=0)
        told.handing.append(Handed(handed_bytes(program), most_instructions(program), float(np.median(besides))))
    return told


def stepped(crew: Crew, program: Program, seconds: float, crowded: bool) -> tuple[list[Stepped | str], list[float]]:
    """What each worker measured in about so many seconds of steps of a program, or why it could not; and the seconds of
    each step from handing the batch in to its results."""
    replies = _ask(crew, StepTask(program, crowded))
    took = []
    if not _told(replies):
        run = Run(program, _Measuring(crew), seed=0, steps=0, observe=None)
        batch = drawn_batch(program)
        try:
            for _ in range(int(min(max(seconds / max(replies), LEAST_ROUNDS), MOST_ROUNDS))):
                began = time.perf_counter()
                run.step(batch)
                took.append(time.perf_counter() - began)
        except _NoStepError as error:
            replies = list(error.args)
    last = crew.command("measure", [{} for _ in range(crew.size)])
    return (replies if _told(replies) else last), took


def _told(replies: Sequence[Any]) -> bool:
    """Has a worker said why it cannot go on?"""
    return any(isinstance(reply, str) for reply in replies)


class _NoStepError(Exception):
    """A step that workers could not end; its arguments are their replies."""


class _Measuring:
    """A crew whose steps are those of a StepTask."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self.program = crew, crew.program
        self.rank, self.size, self.carries = crew.rank, crew.size, crew.carries

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        assert name == "step"
        replies = self._crew.command("measure", [{"given": own["inputs"]} for own in fields])
        if _told(replies):
            raise _NoStepError(*replies)
        return replies

    def status(self) -> list[Status]:
        return self._crew.status()

    def close(self) -> None:
        self._crew.close()


def _operators(
    crew: Crew,
    store: Store,
    setting: Setting,
    wanted: list[list[Call]],
    data: Sequence[Mapping[str, Any]],
    budget_seconds: float,
    crowded: bool,
    again: bool,
    note: Observe,
) -> None:
    known = {} if again else store.measured(setting, [call for group in wanted for call in group])
    groups = [[call for call in group if call.key not in known] for group in wanted]
    count = sum(map(len, groups))
    share = budget_seconds * (1 - LINK_SHARE - COPY_SHARE - STEP_SHARE - PREPARE_SHARE) / max(1, count)
    done = 0
    of_groups = [*data, *({} for _ in groups)]  # the common calls have none
    for part, own in ((part, own) for group, own in zip(groups, of_groups, strict=False) for part in _chunks(group)):
        note(f"operators {done} of {count}", STEP_SHARE + (1 - LINK_SHARE - COPY_SHARE - STEP_SHARE) * done / count)
        replies = _ask(crew, OperatorTask(part, min(share, MOST_SECONDS) * len(part), crowded, _named(part, own)))
        rows = []
        for number, call in enumerate(part):
            samples = [reply[number] for reply in replies if isinstance(reply[number], Sample)]
            if samples:
                rows.append((call, _measurement(samples)))
        store.put(setting, rows)
        done += len(part)


def _misfit(programs: Sequence[Program], data: Sequence[Mapping[str, Any]]) -> str:
    """Why data is not that of the programs; "" if it is. Kernels trust indices, also those beyond the rows."""
    if data and len(data) != len(programs):
        return f"data of {len(data)} programs: expected as many as there are programs, {len(programs)}"
    for program, own in zip(programs, data, strict=False):
        for item in program.graph.inputs:
            if item.role == "data" and item.path in own:
                tensor, value = own[item.path], program.graph.values[item.name]
                given = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
                if given != (value.shape, value.dtype):
                    return (
                        f"data {item.path!r} is {given[1]}{list(given[0])}, and the program was planned with "
                        f"{value.dtype}{list(value.shape)}: give the data of its plan"
                    )
    return ""


def _named(calls: Sequence[Call], data: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a program's data that its calls are given whole; none where they are too large to send along."""
    paths = {operand.source for call in calls for operand in call.operands}
    named = {path: data[path] for path in sorted(paths) if path in data}
    return named if sum(tensor.nbytes for tensor in named.values()) <= CHUNK_BYTES else {}


def _size(call: Call) -> float:
    """Orders calls by about how long they take: small ones then have many rounds together, large ones few."""
    return call.work.operations / 10 + call.work.bytes


def _chunks(calls: list[Call]) -> Iterator[tuple[Call, ...]]:
    """Calls that are measured together: some hundred, as far as their tensors do not take too much memory."""
    part: list[Call] = []
    held = 0.0
    for call in calls:
        if part and (len(part) == CHUNK_CALLS or held + call.work.bytes > CHUNK_BYTES):
            yield tuple(part)
            part, held = [], 0.0
        part.append(call)
        held += call.work.bytes
    if part:
        yield tuple(part)


def _ask(crew: Crew, task: Task) -> list[Any]:
    return crew.command("measure", [{"task": task} for _ in range(crew.size)])


def _measurement(samples: list[Sample]) -> Measurement:
    """The mean of all workers' medians, and the largest of their spreads."""
    seconds = float(np.mean([sample.seconds for sample in samples]))
    return Measurement(
        seconds, max(sample.spread for sample in samples), sum(sample.repeats for sample in samples), _now()
    )


# ------------------------------------------------------------------------------------------- links and copies


def measured_links(
    crew: Crew,
    budget_seconds: float,
    largest: int = SIZES[-1],
    note: Observe | None = None,
    between: Between = "nothing",
) -> Iterator[tuple[str, SizeTable]]:
    """(pattern, seconds by size) between the workers of any crew, whatever lies between them.

    largest: bytes of a message. A message takes at least a dozen turns, however long they are. between: what workers do
    between exchanges; with one clock for all, each must have cores of its own.
    """
    workers, tell = crew.size, note or _silent
    points = [(pattern, size) for pattern in patterns(workers) for size in sizes_of(pattern, workers, largest)]
    by_pattern: dict[str, list[tuple[int, Measurement]]] = {}
    for number, (pattern, size) in enumerate(points):
        tell(f"links {number} of {len(points)}", 1 - LINK_SHARE - COPY_SHARE + LINK_SHARE * number / len(points))
        task = LinkTask(pattern, size, budget_seconds / len(points), "nothing" if pattern == SEND else between)
        replies = _ask(crew, task)
        samples = [reply for reply in replies if reply is not None]
        if task.between == "one clock":
            samples = [meetings(samples, task.messages(workers))]
        by_pattern.setdefault(pattern, []).append((size, _measurement(samples)))
    for pattern, measurements in by_pattern.items():
        yield pattern, _table(measurements)


def _copies(
    crew: Crew, workers: int, budget_seconds: float, largest: int, note: Observe
) -> tuple[SizeTable, SizeTable]:
    note("copies", 1 - COPY_SHARE)
    sizes = sizes_of("", workers, largest)
    replies = _ask(crew, CopyTask(sizes, budget_seconds / len(sizes) / 2))
    tables = []
    for kind in (0, 1):
        measurements = [
            (size, _measurement([reply[number][kind] for reply in replies])) for number, size in enumerate(sizes)
        ]
        tables.append(_table(measurements))
    return tables[0], tables[1]


def measured_handing(crew: Crew, largest: int = HANDED[-1]) -> SizeTable:
    """What the driver takes to hand each worker so many bytes and to have its answer, besides what the worker computes;
    where every rank is its own driver, what the ranks take to have each other's answers."""
    import torch

    points = []
    for size in (size for size in HANDED if size <= largest):
        fields = [{"task": HandTask(torch.ones(size, dtype=torch.uint8))} for _ in range(crew.size)]
        took = []
        for _ in range(HANDINGS):
            began = time.perf_counter()
            replies = crew.command("measure", fields)
            took.append(time.perf_counter() - began - max(reply["computed"] for reply in replies))
        points.append((size, _measurement([Sample(float(np.median(took[1:])), 0.0, HANDINGS)])))
    return _table(points)


def measured_moving(crew: Crew, budget_seconds: float) -> Moving:
    """What copies to files, or from a GPU to the host's memory, and back take beside computation, and how much slower
    that is meanwhile; of all workers the mean."""
    replies: list[Moved] = _ask(crew, MoveTask(budget_seconds))
    figures = (np.mean([getattr(reply, name) for reply in replies]) for name in ("out", "back", "latency", "share"))
    out, back, latency, share = map(float, figures)
    return Moving(1 / out, 1 / back, latency, share)


def handed_as_in_steps(handing: SizeTable, steps: Sequence[Handed]) -> tuple[SizeTable, float]:
    """What handing a batch in takes, and each instruction, so that they come closest to what programs' steps took
    besides their instructions: a driver checks and divides the batch, too, and puts the results together."""
    if not steps:
        return handing, 0.0
    parts = [(handing.seconds(item.bytes), BESIDES * item.instructions) for item in steps]
    slower, besides = _factors(parts, [item.seconds for item in steps])
    return handing.scaled(slower, slower), BESIDES * besides


def _factors(parts: Sequence[tuple[float, float]], seconds: Sequence[float]) -> tuple[float, float]:
    """By what two parts of what programs take are multiplied so that their sums come closest to what they took, in
    relative errors; near 1 as far as the programs do not tell the parts apart."""
    told = np.asarray(parts) / np.asarray(seconds)[:, None]
    matrix = np.vstack([told, WEAK * np.eye(2)])
    first, second = lsq_linear(matrix, np.append(np.ones(len(told)), [WEAK, WEAK]), (1 / MOST_FACTOR, MOST_FACTOR)).x
    return float(first), float(second)


def as_in_steps(moving: Moving, copies: Sequence[Copied]) -> Moving:
    """Copies are so much slower, or faster, than in a loop as those of a program's steps were altogether."""
    if not copies:
        return moving
    rates = {True: moving.out_bytes_per_second, False: moving.in_bytes_per_second}
    slower = sum(copy.seconds for copy in copies) / sum(
        moving.latency_seconds + copy.bytes / rates[copy.out] for copy in copies
    )
    return Moving(rates[True] / slower, rates[False] / slower, moving.latency_seconds * slower, moving.share)


def _with_exchanges_as_in_steps(
    profile: Profile, where: Machine, exchanging: Sequence[tuple[Program, float]]
) -> Profile:
    """Exchanges that workers carry themselves take so much more, or less, than apart as those of programs' steps did: a
    step's find less in the caches, and workers that come to each other at other times each step. What each message
    takes, however small, and what its bytes take are told apart by the programs' different messages."""
    if not profile.carried:
        return profile
    tables: tuple[SizeTable, ...] = (profile.copy, profile.combine, *(table for _, table in profile.links))

    def with_tables(copy: SizeTable, combine: SizeTable, *links: SizeTable) -> Profile:
        patterns = tuple(zip((pattern for pattern, _ in profile.links), links, strict=True))
        return replace(profile, copy=copy, combine=combine, links=patterns)

    small = with_tables(*(table.latency for table in tables))
    parts, seconds = [], []
    for program, took in exchanging:
        latency, whole = (_exchange_seconds(program, where, own) for own in (small, profile))
        if took > 0 and whole > 0:
            parts.append((latency, whole - latency))
            seconds.append(took)
    if not parts:
        return profile
    factors = _factors(parts, seconds)
    return with_tables(*(table.scaled(*factors) for table in tables))


def _exchange_seconds(program: Program, where: Machine, profile: Profile) -> float:
    """What a program's exchanges take one behind the other, each as long as for the worker that has most to do."""
    prices = price(program, profile.applied(where), profile=profile).prices
    rows = [at for at, step in enumerate(program.steps) if _exchanges(step)]
    return float(prices.before[rows].max(axis=1).sum() + prices.after[rows].max(axis=1).sum())


def _exchanges(step: Step) -> bool:
    return isinstance(step.transfer if isinstance(step, StartStep) else step, TransferStep)


def _table(measurements: list[tuple[int, Measurement]]) -> SizeTable:
    """A smaller size never takes more than a larger one: where it seemed so, something else disturbed it."""
    sizes = tuple(size for size, _ in measurements)
    seconds = np.minimum.accumulate([measured.seconds for _, measured in reversed(measurements)])[::-1]
    return SizeTable(sizes, tuple(seconds.tolist()), tuple(measured.spread for _, measured in measurements))


# ------------------------------------------------------------------------------------------- workers


def idle_program(workers: int) -> Program:
    """The least program for so many workers, for a crew that measures instead of running it."""
    values = {name: Value(name, (), "float32") for name in "xy"}
    node = Node("y", "aten.neg", (("self", Ref("x")),), ("y",))
    graph = Graph(values, (node,), (Input("x", "batch", "x"),), (Output("y", "result"),))
    mesh = Mesh((workers,) if workers > 1 else ())
    whole = Sharding((Replicated(),) * mesh.axes)
    strategy = Strategy(mesh, (whole,), dict.fromkeys(values, whole))
    return lower(graph, strategy, Transfers(mesh, Links((1e-9,) * mesh.axes, (1e-5,) * mesh.axes)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _silent(what: str, share: float) -> None:
    pass
