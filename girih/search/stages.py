"""Stages that are themselves divided: a dynamic programme over ranges of layers, submeshes, micro-batches.

After Alpa (Zheng et al., OSDI 2022, §5: stages are runs of layers, each on a sub-mesh, whose slowest decides how fast
micro-batches follow one another), with these differences. What a layer takes on a submesh is told by the
optimum of girih's own tables there (`girih.partition.searches.stages.divided_inside`), for which repeated layers are
priced once, and not by compiling and profiling each range. The order is one forward, one backward, so that a stage
which is the s-th from the end holds the activations of s micro-batches; what does not fit a device's memory is left
out. And this only proposes: the fastest by this estimate are made into whole plans, and simulated.

The estimate. On a submesh of n devices, divided in one way, a unit (a layer) computes, exchanges and sends its
micro-batches in `busy(m) / m` seconds each, and does once in a step what it does with its weights. For m micro-batches
through stages with times t it is Σ t + (m - 1) · max t, with what passes a border between stages in Σ. For a largest
time that is given, the least Σ is found by

    f[s, u, d] = min over n, v > u of t[n, s](u, v) + border(u, d) + f[s - 1, v, d + n]

where s stages are left, the first of which begins with unit u and has n devices from device d on, which are a submesh.
Largest times are tried in rising order, TRIED of them.

Beside these, interleaved pipelines (Narayanan et al., SC 2021, §2.2): p stages on neighbouring submeshes of one size,
divided in one way, each with v runs of units, cut so that the longest run is as short as can be. They are few, and each
is looked at: with r the times of the runs and d their sums on each stage, m micro-batches take m · max d +
(p - 1) / (p v) · Σ r, and what passes the borders; how much a stage holds is counted along its order
(`girih.program.schedule.sequence`).

Not searched: stages that are no run of units, submeshes that do not begin at a multiple of their size, the division of
a stage together with those beside it, and interleaved stages that differ in size or in the way they are divided.

Cost: one search over narrow tables for each shape of a submesh and each way to divide it; then, for each count of
micro-batches, TRIED · stages · devices / n · units² elementary operations of NumPy for each size n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph, kept_with_graph
from girih.layout import Layout, Submesh, part_shape, regions_of
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.ops.known import descriptions
from girih.partition import SearchResult, Strategy
from girih.partition.search import PlacingSearch
from girih.partition.searches.data_parallel import batch_dimensions
from girih.partition.searches.stages import (
    balanced,
    divided_inside,
    in_stages,
    machine_of,
    micro_batches,
    submesh_of,
    units_of,
    work_of,
)
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Candidates, Objective, build
from girih.partition.strategy import REPEAT, SearchError
from girih.plans.plan import Plan
from girih.program.schedule import sequence
from girih.search.judge import Judge
from girih.search.moves import Move
from girih.search.table import search_of

WITHIN = ("data", "megatron", "sharded", "experts")
ALONG_ROWS = ("data", "sharded", "experts")
"""How a stage may be divided over its devices; and those ways that divide the rows of a micro-batch."""
UNITS, STAGES, TRIED, WIDER = 40, 16, 12, 2.0
"""Units, beyond which neighbours are taken together; stages, at most; largest times of a stage that are tried; and
times the least that there can be, up to which they are."""
COUNTS = (2, 4, 8, 16, 32)
"""Micro-batches that are tried where the step has none."""
CHUNKS = 4
"""Runs of units on each stage of an interleaved pipeline, at most."""
NODES = 30_000
"""Nodes of a step in micro-batches, at most: each is lowered and simulated for each plan that is proposed."""
NODE, MEMBER = 300_000.0, 12_500.0
"""Nanoseconds of making a plan of a step in micro-batches and simulating it, for each of its nodes; and for each of the
machine's devices on top."""
DEVICES = 128
"""Of a machine, at most: beyond, the programme and the plans that it proposes take minutes."""
PROPOSED = 2
"""Plans that are made and simulated, at most, of those whose estimate is below the seconds of the best plan; besides an
interleaved one where its estimate is below all others."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """A run of units on a submesh. first, last: its units, the last one excluded. devices: of the submesh. within: the
    search that divides it, or "" for a stage on one device."""

    first: int
    last: int
    devices: range
    within: str


@dataclass(frozen=True)
class Pipeline:
    """What is proposed. seconds: of the step, an estimate. count: of micro-batches. stages: runs of units in their
    order, which go round the submeshes `laps` times."""

    seconds: float
    count: int
    stages: tuple[Stage, ...]
    laps: int = 1


@dataclass(frozen=True)
class Inner:
    """What units take on a submesh of a size, divided in one way: each an array [units].

    busy: seconds in a step of what grows with the batch; each: seconds of each micro-batch besides; once: seconds that
    a step takes besides, however many micro-batches it has. state, saved: bytes on a device of weights and what belongs
    to them, with their gradients; and of what the backward pass needs of the forward pass, of the whole batch.
    """

    size: int
    within: str
    busy: Floats
    each: Floats
    once: Floats
    state: Floats
    saved: Floats


@dataclass(frozen=True)
class DividedStages(PlacingSearch):
    """Stages on submeshes of the machine, each divided there: the fastest by an estimate, one forward, one backward.

    Raises:
        SearchError: no pipeline can be made of the step on this machine, within the memory of a device.
    """

    name: ClassVar[str] = "stages"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        objective = replace(objective, score=None)
        found = pipelines(graph, objective, objective.machine.device.memory_bytes, self.seconds)
        if not found:
            raise SearchError(
                "no pipeline can be made of this step: expected a training step of several modules, whose batch can be "
                "cut into micro-batches, on a machine of several devices that are alike, and stages that fit them"
            )
        return laid_out(graph, objective, found[0], self.seconds)


@dataclass(frozen=True)
class ProposedStages(Move):
    """The stages of `stages`, simulated: the best of the fastest few by the estimate.

    budget: of work, which it spends; None: it has its own seconds.
    """

    seconds: float = 60.0
    budget: Budget | None = field(default=None, compare=False, repr=False)

    name: ClassVar[str] = DividedStages.name
    changes: ClassVar[tuple[str, ...]] = DividedStages.changes

    def propose(self, plan: Plan, judge: Judge) -> Iterable[Plan]:
        room = plan.machine.device.memory_bytes if plan.memory is None else plan.memory
        budget, below = self.budget or Budget(self.seconds), plan.certificate.cost
        for found in proposed(plan.graph, judge.goal, room, below, budget, self.seconds):
            yield plan.divided_by(found, self.name)


def proposed(
    graph: Graph, objective: Objective, room: int, below: float, budget: Budget, seconds: float
) -> Iterator[SearchResult]:
    """The few pipelines of the least estimates that are below so many seconds of a step. room: bytes of each device.
    budget: of work, which it spends. seconds: of each search inside of a submesh.

    Raises:
        OutOfTimeError: the budget is too small for the tables.
    """
    objective = replace(objective, score=None, budget=budget)
    found = pipelines(graph, objective, room, seconds)
    plain, interleaved = [item for item in found if item.laps == 1], [item for item in found[:1] if item.laps > 1]
    for item in (*plain[:PROPOSED], *interleaved):
        work = (NODE + MEMBER * objective.machine.devices) * len(graph.nodes) * item.count / micro_batches(graph)
        if item.seconds > below:
            continue
        if not budget.affords(work):
            return
        budget.spend(work)
        with suppress(SearchError):
            yield laid_out(graph, objective, item, seconds)


def laid_out(graph: Graph, objective: Objective, item: Pipeline, seconds: float) -> SearchResult:
    """The strategy of a pipeline, with the graph in its micro-batches.

    Raises:
        SearchError: the graph cannot be divided so.
        OutOfTimeError: the objective has a budget, and it is too small for the tables.
    """
    names = list(dict.fromkeys(_units(graph, objective).values()))
    own = item.stages[: len(item.stages) // item.laps]
    runs = enumerate(item.stages)
    stage_of = {unit: run % len(own) for run, stage in runs for unit in names[stage.first : stage.last]}
    cut = graph if item.count == micro_batches(graph) else in_parts(graph, item.count)
    submeshes = [_known(submesh_of(objective.machine.mesh, stage.devices)) for stage in own]
    searches = [search_of(stage.within, seconds) if stage.within else None for stage in own]
    written, inside = divided_inside(cut, objective, submeshes, searches)
    stages = {number: stage_of[unit] for number, unit in _units(written, objective).items() if unit in stage_of}
    ways = Counter(
        f"{len(stage.devices)} devices each by {stage.within}" if stage.within else "one device each" for stage in own
    )
    told = ", ".join(f"{count} on {way}" for way, count in ways.items())
    space = f"{item.count} micro-batches through {len(submeshes)} stages ({told})"
    space += f", {item.laps} times round" if item.laps > 1 else ""
    result = in_stages(written, objective, stages, submeshes, inside, seconds=seconds, space=space)
    schedule = "1f1b" if item.laps == 1 else "interleaved"
    return replace(result, schedule=schedule, graph=None if written is graph else written)


def _known(submesh: Submesh | None) -> Submesh:
    assert submesh is not None
    return submesh


@kept_with_graph
def in_parts(graph: Graph, count: int) -> Graph:
    """The graph in so many micro-batches.

    Raises:
        SearchError: the batch cannot be cut so, or its micro-batches would have to meet in the forward pass.
    """
    from girih.capture.errors import CaptureError
    from girih.capture.micro_batches import in_micro_batches

    try:
        cut, meetings = in_micro_batches(graph, count)
    except CaptureError as error:
        raise SearchError(str(error)) from error
    if meetings:
        raise SearchError(f"all micro-batches would meet at {meetings[0].operator}, which needs {meetings[0].why}")
    return cut


def pipelines(graph: Graph, objective: Objective, room: int, seconds: float) -> list[Pipeline]:
    """For each count of micro-batches the fastest pipeline by the estimate, and the fastest interleaved one; the
    fastest of all first.

    room: bytes of each device. seconds: of work, of each search inside of a submesh.

    Raises:
        OutOfTimeError: the objective has a budget, and it is too small for the tables.
    """
    machine = objective.machine
    counts = counts_of(graph)
    if not 1 < machine.devices <= DEVICES or machine.groups or not counts:
        return []
    units = _units(graph, objective)
    names = list(dict.fromkeys(units.values()))
    if len(names) < 2:
        return []
    inner = list(_inner(graph, objective, units, names, seconds))
    borders = _borders(graph, units, names)
    rows = _rows(graph)
    ways = (_programme, _interleaved)
    found = [way(machine, inner, borders, count, rows, room) for count in counts for way in ways]
    return sorted((item for item in found if item is not None), key=lambda item: item.seconds)


def counts_of(graph: Graph) -> list[int]:
    """Into how many micro-batches a training step may be cut; only its own, where it is."""
    if not any(node.phase == "backward" for node in graph.nodes):
        return []
    if (own := micro_batches(graph)) > 1:
        return [own]
    rows = _rows(graph)
    return [count for count in COUNTS if rows and rows % count == 0 and count * len(graph.nodes) <= NODES]


def _rows(graph: Graph) -> int:
    """How many rows the batch has; 0 where its tensors have different numbers."""
    shapes = {graph.values[item.name].shape[:1] for item in graph.inputs if item.role == "batch"}
    return next(iter(shapes))[0] if len(shapes) == 1 and all(shapes) else 0


def _units(graph: Graph, objective: Objective) -> dict[int, str]:
    """The unit of each node; at most UNITS, of like work."""
    units = units_of(graph, 2)
    if len(set(units.values())) <= UNITS:
        return units
    work = work_of(graph, units, objective)
    group = dict(zip(work, balanced(list(work.values()), UNITS), strict=True))
    return {number: str(group[unit]) for number, unit in units.items()}


# ------------------------------------------------------------------------------------------- what units take


def _inner(
    graph: Graph, objective: Objective, units: Mapping[int, str], names: Sequence[str], seconds: float
) -> Iterator[Inner]:
    """What units take on every size of a submesh, in every way."""
    mesh = objective.machine.mesh
    for size in range(1, mesh.devices):
        starts = range(0, mesh.devices, size)
        submeshes = [submesh_of(mesh, range(at, at + size)) for at in starts]
        if mesh.devices % size or None in submeshes:
            continue
        submesh = _known(submeshes[0])
        for within in WITHIN if size > 1 else ("",):
            search = search_of(within, seconds) if within else None
            try:
                written, (strategy,) = divided_inside(graph, objective, (submesh,), (search,))
            except SearchError:
                continue
            own = units if written is graph else _units(written, objective)
            aim = replace(objective, machine=machine_of(objective.machine, submesh), budget=None)
            yield _priced(written, aim, strategy, own, names, within)


def _priced(
    graph: Graph,
    objective: Objective,
    strategy: Strategy | None,
    units: Mapping[int, str],
    names: Sequence[str],
    within: str,
) -> Inner:
    """What units take if the whole graph is divided so. What carries the batch is divided by the micro-batches, but for
    the launch of a kernel; a weight that is fetched is fetched for each of them; the rest is done once in a step."""
    mesh, launch = objective.machine.mesh, objective.machine.device.launch_seconds
    copying = 2 * mesh.devices * launch  # a message to each of the others, and one from each
    if strategy is None:
        whole = (REPEAT,) * mesh.axes
        strategy = Strategy.of_codes(mesh, [whole] * len(graph.nodes), dict.fromkeys(graph.values, whole))
    place = {name: number for number, name in enumerate(names)}
    busy, each, once, state, saved = np.zeros((5, len(names)))
    carried, kept, cut = batch_dimensions(graph), {item.name for item in graph.state_inputs}, micro_batches(graph) > 1
    problem = build(graph, objective, SECONDS, _fixed(strategy))
    tables, pairs = problem.problem.tables, iter(problem.problem.pairs)
    for number, node in enumerate(graph.nodes):
        moved = [(name, float(tables[next(pairs)[2]].min())) for name in (*node.inputs, *node.outputs)]
        moved = [(name, cost + copying if cost else 0.0) for name, cost in moved]
        if (at := place.get(units.get(number, ""), -1)) < 0:
            continue
        grows = node.phase != "update" and any(name in carried for name, _ in moved)
        computing = float(objective.node_costs(problem.options[number])[0])
        start = 0.0 if cut else min(launch, computing)
        (busy if grows else once)[at] += computing - (start if grows else 0.0)
        each[at] += start if grows else 0.0
        for name, cost in moved:
            if grows and name in kept and not cut:
                each[at] += cost
            else:
                (busy if grows and (name in carried or name in kept) else once)[at] += cost
    for name, unit, times in _held(graph, units):
        layout = regions_of(strategy.layouts[name], graph.values[name].shape, mesh)
        most = max(prod(part_shape(region, graph.values[name].shape)) for region in layout)
        (state if name in kept else saved)[place[unit]] += times * most * graph.values[name].item_bytes
    return Inner(mesh.devices, within, busy, each, once, state, saved)


def _fixed(strategy: Strategy) -> Candidates:
    """A strategy as the only candidates; equal divisions are one object, so that their tables are, too."""
    shared: dict[Layout, NDArray[np.int64]] = {}
    divisions = {
        number: shared.setdefault(division.codes, np.asarray([division.codes], np.int64))
        for number, division in enumerate(strategy.divisions)
    }
    return Candidates({name: (layout.codes,) for name, layout in strategy.layouts.items()}, divisions)


def _held(graph: Graph, units: Mapping[int, str]) -> Iterator[tuple[str, str, int]]:
    """(value, unit, how often): state, with a gradient for each parameter, and what the backward pass reads of what the
    forward pass makes; a view is what it is a view of."""
    known = descriptions(graph)
    root: dict[str, str] = {}
    makers: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        view = known[number]
        for name in node.outputs:
            makers[name] = number
            root[name] = root.get(node.inputs[0], node.inputs[0]) if view is not None and view.operator.view else name
    reading: dict[str, str] = {}
    saved: dict[str, None] = {}
    for number, node in enumerate(graph.nodes):
        for name in node.inputs:
            own = root.get(name, name)
            if number in units:
                reading.setdefault(own, units[number])
            if node.phase == "backward" and own in makers and graph.nodes[makers[own]].phase == "forward":
                saved.setdefault(own)
    for item in graph.state_inputs:
        if item.name in reading:
            yield item.name, reading[item.name], 2 if item.role == "parameter" else 1
    for name in saved:
        if makers[name] in units:
            yield name, units[makers[name]], 1


def _borders(graph: Graph, units: Mapping[int, str], names: Sequence[str]) -> Floats:
    """[units]: the bytes that a step brings from before each unit behind its beginning, and back; each value once."""
    place = {name: number for number, name in enumerate(names)}
    carried = batch_dimensions(graph)
    makers = {name: place[units[number]] for number, node in enumerate(graph.nodes) if number in units
              for name in node.outputs}  # fmt: skip
    first, last = dict(makers), dict(makers)
    for number, node in enumerate(graph.nodes):
        for name in node.inputs if number in units else ():
            if name in makers and name in carried:
                at = place[units[number]]
                first[name], last[name] = min(first[name], at), max(last[name], at)
    crossing = np.zeros(len(names) + 1)
    for name in makers:
        crossing[first[name] + 1] += graph.values[name].bytes
        crossing[last[name] + 1] -= graph.values[name].bytes
    return crossing.cumsum()[:-1]


# ------------------------------------------------------------------------------------------- the dynamic programme


def _programme(
    machine: Machine, inner: Sequence[Inner], borders: Floats, count: int, rows: int, room: int
) -> Pipeline | None:
    """The fastest pipeline of so many micro-batches of a batch of so many rows; None where none fits."""
    able = [item for item in inner if item.within not in ALONG_ROWS or rows % (count * item.size) == 0]
    most, sizes = min(len(borders), machine.devices, STAGES), sorted({item.size for item in able})
    ranges = [_ranges(item, count) for item in able]
    takes: dict[tuple[int, int], tuple[Floats, NDArray[np.int64]]] = {}  # by size, and stages from here on
    for size in sizes:
        own = [at for at, item in enumerate(able) if item.size == size]
        for left in range(1, most + 1):
            stacked = np.stack(
                [
                    np.where(state + saved * min(left, count) / count <= room, seconds, inf)
                    for seconds, state, saved in (ranges[at] for at in own)
                ]
            )
            takes[size, left] = stacked.min(axis=0), np.asarray(own)[stacked.argmin(axis=0)]
    crossing = _crossing(machine, borders / count)
    every = np.unique(np.concatenate([seconds[np.isfinite(seconds)] for seconds, _ in takes.values()]))
    low = bisect_left(every, True, key=lambda slowest: any(_fastest(takes, sizes, crossing, most, slowest)))
    near = every[low:][every[low:] <= WIDER * every[low]] if low < len(every) else every[:0]
    least, runs = inf, list[tuple[int, int, int, int]]()
    for slowest in near[np.unique(np.linspace(0, len(near) - 1, TRIED).astype(int))] if len(near) else ():
        if (count - 1) * slowest >= least:
            break
        for total, found in _fastest(takes, sizes, crossing, most, slowest):
            if (seconds := total + (count - 1) * float(slowest)) < least:
                least, runs = seconds, found
    if not runs:
        return None
    stages = [
        Stage(first, last, range(at, at + size), able[takes[size, left][1][first, last]].within)
        for left, (first, last, at, size) in zip(range(len(runs), 0, -1), runs, strict=True)
    ]
    return Pipeline(least, count, tuple(stages))


def _interleaved(
    machine: Machine, inner: Sequence[Inner], borders: Floats, count: int, rows: int, room: int
) -> Pipeline | None:
    """The fastest interleaved pipeline of so many micro-batches of a batch of so many rows; None where none fits."""
    best: Pipeline | None = None
    crossing = _crossing(machine, borders / count)
    for item in inner:
        number = machine.devices // item.size
        whole = item.within not in ALONG_ROWS or rows % (count * item.size) == 0
        if number > STAGES or count % number or not whole:
            continue
        seconds, state, saved = _ranges(item, count)
        for laps in range(2, min(len(borders) // number, CHUNKS) + 1):
            cut = np.asarray(balanced(np.diag(seconds, 1).tolist(), number * laps))
            ends = np.searchsorted(cut, np.arange(number * laps + 1))
            runs = [slice(first, last) for first, last in pairwise(ends.tolist())]
            takes, holds, saves = (np.asarray([column[run.start, run.stop] for run in runs]).reshape(laps, number)
                                   for column in (seconds, state, saved))  # fmt: skip
            held = holds.sum(axis=0) + [_most_held(stage, number, count, saves[:, stage]) for stage in range(number)]
            if held.max() > room:
                continue
            at = np.arange(number * laps) % number * item.size
            comes_over = np.where(at == 0, machine.devices // machine.mesh.sizes[0], at)  # round again: the longest way
            passing = float(crossing[comes_over, ends[:-1]][1:].sum()) / item.size
            total = count * takes.sum(axis=0).max() + (number - 1) / len(runs) * takes.sum() + passing
            if best is None or total < best.seconds:
                stages = tuple(Stage(run.start, run.stop, range(first, first + item.size), item.within)
                               for run, first in zip(runs, at.tolist(), strict=True))  # fmt: skip
                best = Pipeline(float(total), count, stages, laps)
    return best


def _most_held(stage: int, stages: int, count: int, saved: Floats) -> float:
    """The most bytes that a stage holds at once for micro-batches which come back. saved: of each of its runs, of the
    whole batch."""
    order = sequence(stage, stages, count, len(saved))
    return float(np.cumsum([-saved[lap] if backward else saved[lap] for backward, _, lap in order]).max()) / count


def _ranges(item: Inner, count: int) -> tuple[Floats, Floats, Floats]:
    """(seconds of a micro-batch, bytes of state, bytes saved of the whole batch) of each run of units, [first, last];
    of a run that is none infinite seconds."""
    per_part = item.busy / count + item.each + item.once / count
    sums = [np.concatenate(([0.0], column.cumsum())) for column in (per_part, item.state, item.saved)]
    seconds, state, saved = (column[None, :] - column[:, None] for column in sums)
    return np.where(np.tri(len(seconds), dtype=np.bool_), inf, seconds), state, saved


def _crossing(machine: Machine, borders: Floats) -> Floats:
    """[first device of a stage, unit]: seconds in which one device passes to the next stage, and back, what a
    micro-batch brings over the border before the unit."""
    links, places = machine.links, machine.mesh.coordinates
    result = np.zeros((machine.devices, len(borders) + 1))
    for device in range(1, machine.devices):
        axis = int(np.argmax(places[device] != places[device - 1]))
        result[device, :-1] = borders * links.seconds_per_byte[axis] + 2 * links.latency[axis]
    return result


def _fastest(
    takes: Mapping[tuple[int, int], tuple[Floats, NDArray[np.int64]]],
    sizes: Sequence[int],
    crossing: Floats,
    most: int,
    slowest: float,
) -> Iterator[tuple[float, list[tuple[int, int, int, int]]]]:
    """For each number of stages, of at least two: the least sum of seconds if no stage takes longer than the slowest,
    and its stages as (first unit, last unit, first device, devices)."""
    devices, ends_of = len(crossing), crossing.shape[1]
    after = np.full((devices + 1, ends_of), inf)  # [first device, first unit] of what is left
    after[devices, -1] = 0.0
    chosen: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for left in range(1, most + 1):
        now = np.full_like(after, inf)
        ends, widths = np.zeros((2, *after.shape), np.int64)
        for size in sizes:
            own = takes[size, left][0]
            starts = np.arange(0, devices, size)
            sums = np.where(own <= slowest, own, inf) + after[starts + size][:, None, :]
            last = sums.argmin(axis=2)
            least = np.take_along_axis(sums, last[..., None], 2)[..., 0] + crossing[starts] / size
            better = least < now[starts]
            now[starts] = np.where(better, least, now[starts])
            ends[starts] = np.where(better, last, ends[starts])
            widths[starts] = np.where(better, size, widths[starts])
        chosen.append((ends, widths))
        after = now
        if left == 1 or now[0, 0] == inf:
            continue
        stages, unit, at = [], 0, 0
        for ending, wide in reversed(chosen):
            stages.append((unit, int(ending[at, unit]), at, int(wide[at, unit])))
            unit, at = stages[-1][1], at + stages[-1][3]
        yield float(now[0, 0]), stages
