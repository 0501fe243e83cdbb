"""Layers on devices: model parallelism, and with micro-batches a pipeline (Huang et al. 2019, GPipe §2.2).

The modules of a program, in the order in which they first compute, are cut into as many runs as there are devices, so
that the longest run takes as little as it can (roofline seconds of forward, backward and update together). A run is a
stage: it computes, and keeps its state, on one device. What is computed in no module belongs to the stage that made its
first input; what is made of inputs and constants alone, to the only stage that reads it. The rest, and whether values
lie with their maker or with a reader, is left to the exact search.

A device walks the program's steps and computes its own: all micro-batches forward, then all backward. While the second
stage has the first micro-batch, the first stage has the second one, and m micro-batches take s stages about
(m + s - 1) / m of one stage's work, in place of s times it. Stages hold the activations of all micro-batches, or of s
at most in the order 1F1B (Narayanan et al. 2021); GPipe's re-computing of them is up to the model
(torch.utils.checkpoint).

Cost: one pass over the graph; cutting n modules into s stages O(n) for each of 60 halvings of the longest stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from girih.capture.micro_batches import micro_batches
from girih.graph import Graph
from girih.layout import REPLICATE, Layout, Mesh, among
from girih.ops.known import descriptions
from girih.partition.search import PlacingSearch
from girih.partition.searches.exact import exact
from girih.partition.space.options import SOAP, placed_at, whole_options
from girih.partition.space.problem import Candidates, Objective, value_variables
from girih.partition.strategy import REPEAT, SearchError, SearchResult, check_placeable

HALVINGS = 60


@dataclass(frozen=True)
class Pipeline(PlacingSearch):
    """GPipe: stages of equal work on all devices, through which micro-batches go one behind the other.

    Raises:
        SearchError: the step has no micro-batches.
    """

    name: ClassVar[str] = "pipeline"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        count = micro_batches(graph)
        if count == 1:
            raise SearchError(
                "a pipeline needs micro-batches, and this step works on its batch as a whole: plan with "
                "`--micro-batches 4`, or capture TrainingStep(…, micro_batches=4); the search `model` goes without"
            )
        return _in_stages(
            graph, objective, self.seconds, f"{count} micro-batches through stages, layers placed on devices"
        )


@dataclass(frozen=True)
class OneForwardOneBackward(Pipeline):
    """PipeDream-flush: the stages of `pipeline`, each of which goes backward as early as it can, in less memory.

    A stage holds the activations of no more micro-batches than there are stages (`girih.program.schedule`).
    """

    name: ClassVar[str] = "pipeline-1f1b"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return replace(super().search(graph, objective), schedule="1f1b")


@dataclass(frozen=True)
class ModelParallel(PlacingSearch):
    """Each layer on one device, neighbours together, in shares of equal work."""

    name: ClassVar[str] = "model"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return _in_stages(graph, objective, self.seconds, "layers placed on devices")


def _in_stages(graph: Graph, objective: Objective, seconds: float, space: str) -> SearchResult:
    mesh = objective.machine.mesh
    check_placeable(mesh)
    stages = stages_of(graph, objective)
    places = [_at(mesh, stage) for stage in range(mesh.devices)]
    everywhere = (REPEAT,) * mesh.axes
    free = np.asarray([everywhere, *places], np.int64)
    divisions = {
        number: np.asarray([places[stages[number]]], np.int64) if number in stages else free
        for number in range(len(graph.nodes))
    }
    candidates = Candidates(_layouts(graph, stages, mesh), divisions)
    return exact(graph, objective, rules=SOAP, candidates=candidates, seconds=seconds, space=space)


def _at(mesh: Mesh, *devices: int) -> Layout:
    """Whole on the devices, or on the smallest part of the mesh that has them all."""
    return tuple(among(REPLICATE, along.tolist()) for along in mesh.coordinates[list(devices)].T)


def _layouts(graph: Graph, stages: Mapping[int, int], mesh: Mesh) -> dict[str, tuple[Layout, ...]]:
    """Each value lies on the stage that makes it or on one that reads it; where both cost the same, with its maker: it
    is then sent late, when its reader is as far, and the maker does not wait.

    What enters the step, and what is used outside of stages, may have copies; not what passes from stage to stage: a
    broadcast takes as long as one message, but makes all devices meet.
    """
    variable = value_variables(graph)
    entering = {variable[item.name] for item in graph.inputs}
    users: dict[int, set[int | None]] = {}
    makers = {variable[name]: stages.get(number) for number, node in enumerate(graph.nodes) for name in node.outputs}
    for number, node in enumerate(graph.nodes):
        for name in (*node.inputs, *node.outputs):
            users.setdefault(variable[name], set()).add(stages.get(number))
    layouts = {}
    for name, number in variable.items():
        using = users.get(number, {None})
        some = sorted((stage for stage in using if stage is not None), key=lambda at: (at != makers.get(number), at))
        lies = tuple(_at(mesh, stage) for stage in some)
        if None in using:
            lies = ((REPLICATE,) * mesh.axes, *lies)
        elif number in entering and len(some) > 1:
            lies = (_at(mesh, *some), *lies)
        layouts[name] = lies
    return layouts


def stages_of(graph: Graph, objective: Objective) -> dict[int, int]:
    """The stage of each node, from 0; without those that depend on inputs and constants alone."""
    units = _units(graph, objective.machine.devices)
    roofline, work = Objective("seconds", objective.machine), dict.fromkeys(units.values(), 0.0)
    for number, unit in units.items():
        work[unit] += _seconds(graph, number, roofline)
    stage = dict(zip(work, balanced(list(work.values()), objective.machine.devices), strict=True))
    return {number: stage[unit] for number, unit in units.items()}


def _seconds(graph: Graph, number: int, roofline: Objective) -> float:
    """The seconds that one device takes for a whole node."""
    node, mesh = graph.nodes[number], roofline.machine.mesh
    description = descriptions(graph)[number]
    inputs, outputs = (tuple(graph.values[name] for name in names) for names in (node.inputs, node.outputs))
    if description is None:
        options = whole_options(inputs, outputs, mesh)
    else:
        items = tuple(value.item_bytes for value in (*inputs, *outputs))
        options = placed_at(description, ((REPEAT,) * mesh.axes,), items, mesh)
    return float(roofline.node_costs(options)[0])


def _units(graph: Graph, devices: int) -> dict[int, str]:
    """What stages are made of, in the order in which it first computes: for each node a repeated block of the model, or
    a module where blocks are too few."""
    blocks = {_block(node.scope) for node in graph.nodes if node.scope}
    name_of = _block if len(blocks) >= devices else str
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
