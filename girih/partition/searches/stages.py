"""Layers on submeshes of a machine: the stages of a pipeline, each of which may be divided over several devices.

The modules of a program are *units*, in the order in which they first compute. A run of units is a stage: it computes,
and keeps its state, on one submesh of the machine. What is computed in no module belongs to the stage that made its
first input; what is made of inputs and constants alone, to the only stage that reads it. The rest, and whether a value
that goes from stage to stage lies with its maker or with a reader, is left to the exact search.

Inside of a stage of several devices another search says how nodes are divided and how values lie: it divides the whole
graph on a machine that is the stage's submesh alone, and the stage takes from its answer what concerns its own nodes.
So a stage is divided as the submesh's optimum has it (data parallel, Megatron's, with sharded state), and repeated
layers are priced once for each shape of a submesh.

Cost: one pass over the graph; cutting n units into s stages O(n) for each of 60 halvings of the longest stage; one
search for each different shape of a submesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import prod

import numpy as np

from girih.graph import Graph, kept_with_graph
from girih.layout import (
    PARTIAL,
    REPLICATE,
    Layout,
    Mesh,
    Submesh,
    among,
    coordinates_of,
    full_layouts,
    kind_of,
    on_submesh,
    own_mesh,
)
from girih.machine import Machine
from girih.ops.known import several_descriptions
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.space.options import SOAP, options_at, whole_options
from girih.partition.space.problem import Candidates, Objective, value_variables
from girih.partition.strategy import PASS, REPEAT, SearchError, SearchResult, Strategy, check_placeable

HALVINGS = 60
REWRITINGS = 3
"""How often searches for different submeshes may write the graph otherwise, one after the other."""


def submesh_of(mesh: Mesh, devices: range) -> Submesh | None:
    """The submesh of a mesh that these devices are; None where they are none: no coordinates along each axis."""
    along = [tuple(np.unique(column).tolist()) for column in mesh.coordinates[devices.start : devices.stop].T]
    if prod(map(len, along)) != len(devices):
        return None
    return tuple(None if len(some) == size else some for some, size in zip(along, mesh.sizes, strict=True))


def equal_submeshes(mesh: Mesh, count: int) -> tuple[Submesh, ...]:
    """So many submeshes of a mesh, of as many devices each, which are neighbours.

    Raises:
        SearchError: the mesh has no such submeshes.
    """
    submeshes = _cut(mesh, count)
    if not submeshes:
        able = [number for number in range(2, mesh.devices + 1) if _cut(mesh, number)]
        raise SearchError(f"{count} stages are no equal parts of a mesh {mesh}: expected one of {able}")
    return submeshes


def _cut(mesh: Mesh, count: int) -> tuple[Submesh, ...]:
    """Equal submeshes of devices one behind the other; () where some would be none."""
    if count < 1 or mesh.devices % count:
        return ()
    each = mesh.devices // count
    found = [submesh_of(mesh, range(first, first + each)) for first in range(0, mesh.devices, each)]
    able = tuple(submesh for submesh in found if submesh is not None)
    return able if len(able) == count else ()


def machine_of(machine: Machine, submesh: Submesh) -> Machine:
    """A submesh of a machine as a machine of its own.

    Raises:
        SearchError: the machine's devices are not alike.
    """
    if machine.groups:
        raise SearchError(f"stages of several devices need devices that are alike: {machine} has several kinds")
    sizes = iter(size if some is None else len(some) for some, size in zip(submesh, machine.mesh.sizes, strict=True))
    axes = [tuple(size for size in islice(sizes, len(level.axes)) if size > 1) for level in machine.levels]
    levels = [replace(level, axes=own) for level, own in zip(machine.levels, axes, strict=True) if own]
    return replace(machine, levels=tuple(levels))


def divided_inside(
    graph: Graph, objective: Objective, submeshes: Sequence[Submesh], searches: Sequence[Search | None]
) -> tuple[Graph, tuple[Strategy | None, ...]]:
    """How each submesh would divide the whole graph by itself; None for a submesh of one device. The graph is the given
    one, or what a search has written in its place, which is then divided for all submeshes.

    Raises:
        SearchError: a search can make nothing of the graph on its submesh, or searches write it otherwise by turns.
        OutOfTimeError: the objective has a budget, and it is too small for the tables.
    """
    for _ in range(REWRITINGS):
        known: dict[tuple[Machine, Search], SearchResult] = {}
        inside: list[Strategy | None] = []
        for submesh, search in zip(submeshes, searches, strict=True):
            if search is None or own_mesh(submesh, objective.machine.mesh).devices == 1:
                inside.append(None)
                continue
            key = machine_of(objective.machine, submesh), search
            if key not in known:
                known[key] = search.search(graph, replace(objective, machine=key[0]))
            inside.append(known[key].strategy)
        written = [new for new in (item.graph for item in known.values()) if new is not None and new is not graph]
        if len(known) == 1 or not written:
            return (written or [graph])[0], tuple(inside)
        graph = written[0]
    raise SearchError(
        "searches for different submeshes of the machine write the graph otherwise by turns: name one of them"
    )


def in_stages(
    graph: Graph,
    objective: Objective,
    stages: Mapping[int, int],
    submeshes: Sequence[Submesh],
    inside: Sequence[Strategy | None],
    *,
    seconds: float,
    space: str,
) -> SearchResult:
    """The graph with each stage on its submesh of the machine, divided there as is said; what is left open the exact
    search chooses.

    stages: of the nodes that belong to one. inside: for each stage its division of the whole graph on the mesh of its
    submesh (`divided_inside`); None: every device of the submesh does, and holds, all.
    """
    mesh = objective.machine.mesh
    check_placeable(mesh)
    whole = [on_submesh((REPEAT,) * own_mesh(submesh, mesh).axes, submesh) for submesh in submeshes]
    makers = {name: stages.get(number) for number, node in enumerate(graph.nodes) for name in node.outputs}
    free = np.asarray([(REPEAT,) * mesh.axes, *whole], np.int64)
    shared: dict[tuple[Layout, ...], np.ndarray] = {}  # equal choices are one object, so that their tables are, too
    divisions: dict[int, np.ndarray] = {}
    for number, node in enumerate(graph.nodes):
        if (stage := stages.get(number)) is None:
            divisions[number] = free
            continue
        choices = [whole[stage]]
        if (own := inside[stage]) is not None:
            choices.insert(0, on_submesh(own.divisions[number].codes, submeshes[stage]))
            sums = any(kind_of(code) <= PASS for code in choices[0])
            if not (sums and any(makers.get(name, stage) != stage for name in node.inputs)):
                del choices[1:]
        key = tuple(dict.fromkeys(choices))
        divisions[number] = shared.setdefault(key, np.asarray(key, np.int64))
    candidates = Candidates(_layouts(graph, stages, submeshes, inside, mesh), divisions)
    several = tuple(dict.fromkeys(submesh for submesh, own in zip(submeshes, inside, strict=True) if own is not None))
    aim = replace(objective, submeshes=several)
    return exact(graph, aim, rules=SOAP, candidates=candidates, seconds=seconds, space=space)


def _layouts(
    graph: Graph, stages: Mapping[int, int], submeshes: Sequence[Submesh], inside: Sequence[Strategy | None], mesh: Mesh
) -> dict[str, tuple[Layout, ...]]:
    """Each value lies on the stage that makes it or on one that reads it; where both cost the same, with its maker: it
    is then sent late, when its reader is as far, and the maker does not wait.

    What enters the step, and what is used outside of stages, may have copies; not what passes from stage to stage: a
    broadcast takes as long as one message, but makes all devices meet. Partial sums do not leave their stage.
    """
    variable = value_variables(graph)
    entering = {variable[item.name] for item in graph.inputs}
    users: dict[int, set[int | None]] = {}
    makers = {variable[name]: stages.get(number) for number, node in enumerate(graph.nodes) for name in node.outputs}
    for number, node in enumerate(graph.nodes):
        for name in (*node.inputs, *node.outputs):
            users.setdefault(variable[name], set()).add(stages.get(number))

    def lies(name: str, stage: int, summed: bool) -> Layout:
        own, axes = inside[stage], own_mesh(submeshes[stage], mesh).axes
        codes = (REPLICATE,) * axes if own is None else own.layouts[name].codes
        leaves = any(kind_of(code) <= PARTIAL for code in codes) and not summed
        return on_submesh((REPLICATE,) * axes if leaves else codes, submeshes[stage])

    layouts = {}
    for name, number in variable.items():
        using = users.get(number, {None})
        some = sorted((stage for stage in using if stage is not None), key=lambda at: (at != makers.get(number), at))
        own = [lies(name, stage, len(using) == 1) for stage in some]
        if len(using) > 1 and number not in entering:  # so that each device of a stage passes on its share alone
            own += [
                on_submesh(layout, submeshes[stage])
                for stage in some
                if inside[stage] is not None
                for layout in full_layouts(graph.values[name].shape, own_mesh(submeshes[stage], mesh))
            ]
        if None in using:
            own.insert(0, (REPLICATE,) * mesh.axes)
        elif number in entering and len(some) > 1:
            own.insert(0, _on_all(own, mesh))
        layouts[name] = tuple(dict.fromkeys(own))
    return layouts


def _on_all(layouts: Sequence[Layout], mesh: Mesh) -> Layout:
    """On all devices of these layouts: cut along an axis where all do that alike, else in copies on the smallest
    submesh that has them."""
    codes = []
    for along, size in zip(zip(*layouts, strict=True), mesh.sizes, strict=True):
        if len(set(along)) == 1:
            codes.append(along[0])
            continue
        able = sorted({at for code in along for at in coordinates_of(code, size)})
        codes.append(among(REPLICATE, able))
    return tuple(codes)


# ------------------------------------------------------------------------------------------- what stages are made of


def stages_of(graph: Graph, objective: Objective, count: int) -> dict[int, int]:
    """The stage of each node, from 0, in so many runs of equal work; without those that depend on inputs and constants
    alone."""
    units = units_of(graph, count)
    work = work_of(graph, units, objective)
    stage = dict(zip(work, balanced(list(work.values()), count), strict=True))
    return {number: stage[unit] for number, unit in units.items()}


def work_of(graph: Graph, units: Mapping[int, str], objective: Objective) -> dict[str, float]:
    """The seconds that one device takes for each unit, by the roofline."""
    roofline, work = replace(objective, name="seconds"), dict.fromkeys(units.values(), 0.0)
    for number, unit in units.items():
        work[unit] += _seconds(graph, number, roofline)
    return work


def _seconds(graph: Graph, number: int, roofline: Objective) -> float:
    """The seconds that one device takes for a whole node."""
    node, mesh = graph.nodes[number], roofline.machine.mesh
    described = several_descriptions(graph)[number]
    inputs, outputs = (tuple(graph.values[name] for name in names) for names in (node.inputs, node.outputs))
    if not described:
        options = whole_options(inputs, outputs, mesh)
    else:
        items = tuple(value.item_bytes for value in (*inputs, *outputs))
        options = options_at(described, ((REPEAT,) * mesh.axes,), items, mesh)
    return float(roofline.node_costs(options)[0])


@kept_with_graph
def units_of(graph: Graph, least: int) -> dict[int, str]:
    """What stages are made of, in the order in which it first computes: for each node a repeated block of the model, or
    a module where there are fewer blocks than `least`."""
    blocks = {_block(node.scope) for node in graph.nodes if node.scope}
    name_of = _block if len(blocks) >= least else str
    makers: dict[str, str] = {}
    units: dict[int, str] = {}
    for number, node in enumerate(graph.nodes):
        before = (makers[name] for name in node.inputs if name in makers)
        unit = name_of(node.scope) if node.scope else next(before, None)
        if unit is not None:
            units[number] = unit
            makers.update(dict.fromkeys(node.outputs, unit))
    readers: dict[str, set[str | None]] = {}
    for number, node in reversed(list(enumerate(graph.nodes))):
        reading = {unit for name in node.outputs for unit in readers.get(name, ())}
        if number not in units and len(reading) == 1 and (only := next(iter(reading))) is not None:
            units[number] = only
        for name in node.inputs:
            readers.setdefault(name, set()).add(units.get(number))
    return units


def _block(scope: str) -> str:
    """`blocks.3.attention.query` → `blocks.3`: a module's name up to its first number, or its first word."""
    parts = scope.split(".")
    numbers = [position for position, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else parts[0]


def balanced(work: Sequence[float], stages: int) -> list[int]:
    """The stage of each piece of work, in runs, so that the largest stage is as small as can be; none is left empty
    where there are pieces enough."""

    def cut(most: float) -> list[int]:
        ends: list[int] = []
        stage, held = 0, 0.0
        for number, amount in enumerate(work):
            needed = stages - 1 - stage >= len(work) - number  # all that follow begin stages of their own
            if number and (held + amount > most or needed):
                stage, held = stage + 1, 0.0
            held += amount
            ends.append(stage)
        return ends

    low, high = max(work, default=0.0), float(sum(work))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if max(cut(middle), default=0) < stages else (middle, high)
    return cut(high)


def micro_batches(graph: Graph) -> int:
    """Into how many equal parts the step cuts its batch before it reads anything else of it; 1 where it does not."""
    values, counts = graph.values, set()
    for item in graph.inputs:
        if item.role != "batch" or not values[item.name].shape:
            continue
        reading = [node for node in graph.nodes if item.name in node.inputs]
        parts = {values[node.outputs[0]].shape for node in reading}
        cut = all(node.operator == "aten.slice.Tensor" and node.attributes.get("dim", 0) == 0 for node in reading)
        rows = {shape[0] * len(reading) for shape in parts if shape} if cut else set()
        if reading:
            counts.add(len(reading) if rows == {values[item.name].shape[0]} else 1)
    return counts.pop() if len(counts) == 1 else 1
