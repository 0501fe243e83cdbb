"""Plans that experts make by hand, to compare with (FlexFlow §3.7.1; DLRM).

Each says where layers go and along what they are divided; the exact search fills in what the expert leaves open, so
that each is the best of its kind. Data parallelism is in `classic`, layers on devices are in `pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout import REPLICATE, Layout, Mesh, among
from girih.machine import Machine
from girih.ops.derive.divisions import passing_sets
from girih.ops.known import descriptions
from girih.partition.search import PlacingSearch, Search
from girih.partition.searches.data_parallel import (
    along,
    along_the_batch,
    batch_dimensions,
    data_parallel_candidates,
)
from girih.partition.searches.exact import exact
from girih.partition.space.options import SECONDS, SOAP
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import PASS, REPEAT, SearchError, SearchResult, check_placeable

Place = tuple[int, ...]  # a coordinate on each of the innermost axes


@dataclass(frozen=True)
class OneWeirdTrick(Search):
    """Krizhevsky 2014: convolutions by data parallelism, fully connected layers by their parameters."""

    name: ClassVar[str] = "one-weird-trick"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        flat = {
            item.path for item in graph.inputs if item.role == "parameter" and len(graph.values[item.name].shape) == 2
        }
        dense = {path.rpartition(".")[0] for path in flat}
        layouts: dict[str, tuple[Layout, ...]] = {}
        for item in graph.state_inputs:
            value = graph.values[item.name]
            layouts[item.name] = (along(value, 0 if _module(item.path) in dense and value.shape else None, mesh),)
        divisions = {
            number: codes
            for number, codes in along_the_batch(graph, mesh).items()
            if graph.nodes[number].scope not in dense
        }
        return exact(
            graph,
            objective,
            rules=SECONDS,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space="one weird trick: convolutions by samples, matrices by parameters",
        )


@dataclass(frozen=True)
class RnnExpert(PlacingSearch):
    """Wu et al. 2016 for recurrent networks: a replica on each host, and in it each layer on a device of its own.

    On a machine of one level, the outermost axis holds the replicas.
    """

    name: ClassVar[str] = "rnn-expert"

    def places(self, machine: Machine) -> Mesh:
        """The devices of a host, or those within the outermost axis."""
        inner = len(machine.levels[-1].axes)
        if inner == machine.mesh.axes > 1:
            inner -= 1
        return Mesh(machine.mesh.sizes[machine.mesh.axes - inner :])

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        machine = objective.machine
        places = _places(self.places(machine))
        cells = list(dict.fromkeys(_cell(node.scope) for node in graph.nodes if node.scope))
        homes = {node.scope: places[cells.index(_cell(node.scope)) % len(places)] for node in graph.nodes if node.scope}
        replicas = "hosts" if len(machine.levels) > 1 else "the outermost axis"
        return _placed(graph, objective, homes, self.seconds, f"replicas on {replicas}, layers on devices")


@dataclass(frozen=True)
class Hybrid(PlacingSearch):
    """For DLRM: embedding tables whole on devices, the rest by data parallelism.

    The largest table goes first to the emptiest device; what is not a table is replicated.
    """

    name: ClassVar[str] = "hybrid"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        read = {name for node in graph.nodes if "embedding" in node.operator for name in node.inputs}
        tables = [item for item in graph.inputs if item.role == "parameter" and item.name in read]
        places, held = _places(mesh), [0] * mesh.devices
        homes: dict[str, Place] = {}
        for item in sorted(tables, key=lambda table: -graph.values[table.name].bytes):
            device = held.index(min(held))
            held[device] += graph.values[item.name].bytes
            homes[_module(item.path)] = places[device]
        return _placed(graph, objective, homes, self.seconds, "tables on devices, the rest data parallel", others=True)


@dataclass(frozen=True)
class ExpertParallel(Search):
    """For mixtures of experts: each device has some of the experts, all else is data parallel (GShard).

    Lepikhin et al. 2020 (arXiv:2006.16668), §3.1: words go to the devices of their experts, and the answers back.

    Raises:
        SearchError: the program has no experts: no weights of three dimensions that batched products read.
    """

    name: ClassVar[str] = "experts"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        trained = [item for item in graph.inputs if item.role == "parameter"]
        stacks = {item.name: item.path for item in trained if _stack(graph, item.name)}
        if not stacks:
            raise SearchError(
                "this program has no experts (weights [experts, inputs, outputs] of batched products): search by "
                "`megatron`, `data` or `exact`"
            )
        copied = data_parallel_candidates(graph, mesh, sharded=False)
        paths = set(stacks.values())
        layouts = dict(copied.layouts) | {
            item.name: (along(graph.values[item.name], 0, mesh),)
            for item in graph.state_inputs
            if item.path.partition("/")[0] in paths and graph.values[item.name].shape
        }
        by_expert = along_the_batch(graph, mesh, batch_dimensions(graph, dict.fromkeys(stacks, 0)))
        divisions = dict(copied.divisions)
        for number, codes in by_expert.items():  # what carries words as well may follow either
            both = [codes, *([divisions[number]] if number in divisions else [])]
            divisions[number] = np.unique(np.concatenate(both), axis=0)
        return exact(
            graph,
            objective,
            rules=SECONDS,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space=f"{len(stacks)} stacks of experts divided among devices, the rest data parallel",
        )


@dataclass(frozen=True)
class ParameterServer(PlacingSearch):
    """Data parallelism without collectives: one device updates each weight (Li et al. 2014; FlexFlow §3.4.1).

    Every device has all weights. Each is updated by one of them, which has its optimizer state: it gathers the
    gradients of all replicas and hands out the new weight, once in a step. The largest weights
    first to the device with least; the rest is searched, as for `data`.
    """

    name: ClassVar[str] = "parameter-server"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        places, held = _places(mesh), [0] * mesh.devices
        homes: dict[str, Place] = {}
        owned = [item for item in graph.inputs if item.role == "parameter"]
        for item in sorted(owned, key=lambda weight: -graph.values[weight.name].bytes):
            device = held.index(min(held))
            held[device] += graph.values[item.name].bytes
            homes[item.path] = places[device]
        everywhere = (REPLICATE,) * mesh.axes
        home = {
            item.name: _at(place) for item in graph.state_inputs if (place := homes.get(item.path.partition("/")[0]))
        }
        layouts: dict[str, tuple[Layout, ...]] = {
            item.name: (home.get(item.name, everywhere) if item.role == "state" else everywhere,)
            for item in graph.state_inputs
        }
        divisions = along_the_batch(graph, mesh)
        home |= {new: home[old] for old, new in graph.updates.items() if old in home}
        for number, node in enumerate(graph.nodes):
            here = next((home[name] for name in (*node.outputs, *node.inputs) if name in home), None)
            if node.phase == "update" and here is not None:
                divisions[number] = np.asarray([here], np.int64)
                home |= dict.fromkeys(node.outputs, here)
        return exact(
            graph,
            objective,
            rules=SOAP,
            candidates=Candidates(layouts, divisions),
            seconds=self.seconds,
            space="data parallel, each weight updated on one device; other layouts searched",
        )


def _stack(graph: Graph, name: str) -> bool:
    """Is this a value of three dimensions of which batched products read, as it is or a view of it?"""
    readers = [graph.nodes[number] for number in graph.consumers[name]]
    views = [node for node in readers if len(node.inputs) == 1]
    readers += [graph.nodes[number] for node in views for made in node.outputs for number in graph.consumers[made]]
    return len(graph.values[name].shape) == 3 and any(node.operator == "aten.bmm" for node in readers)


def _placed(
    graph: Graph,
    objective: Objective,
    homes: Mapping[str, Place],
    seconds: float,
    space: str,
    others: bool = False,
) -> SearchResult:
    """The best plan in which modules compute, and keep their state, at their places.

    homes: by scope, coordinates on the innermost axes; the batch is split over the axes outside of them. others: what
    has no home is data parallel over all axes, its state replicated; else it is searched freely.
    """
    mesh = objective.machine.mesh
    inner = len(next(iter(homes.values()), ()))
    outer = Mesh(mesh.sizes[: mesh.axes - inner])
    split = along_the_batch(graph, outer)
    divisions = along_the_batch(graph, mesh) if others else {}
    for number, node in enumerate(graph.nodes):
        home = homes.get(node.scope)
        if home is None:
            continue
        outside = split[number] if number in split else _whole_or_passing(graph, number, outer)
        inside = np.broadcast_to(np.asarray(_at(home), np.int64), (len(outside), inner))
        divisions[number] = np.concatenate([outside, inside], axis=1)
    layouts: dict[str, tuple[Layout, ...]] = {}
    for item in graph.state_inputs:
        home = homes.get(_module(item.path))
        if home is not None:
            layouts[item.name] = ((REPLICATE,) * outer.axes + _at(home),)
        elif others:
            layouts[item.name] = ((REPLICATE,) * mesh.axes,)
    return exact(graph, objective, rules=SOAP, candidates=Candidates(layouts, divisions), seconds=seconds, space=space)


def _whole_or_passing(graph: Graph, number: int, mesh: Mesh) -> np.ndarray:
    """The divisions of a node that has no batch: repeated, or partial sums pass through it.

    Without these, a gradient that is summed over the uses of a weight would be reduced for each use.
    """
    description = descriptions(graph)[number]
    sets = 0 if description is None else len(passing_sets(description))
    return np.asarray([[code] * mesh.axes for code in (REPEAT, *(PASS - item for item in range(sets)))], np.int64)


def _places(mesh: Mesh) -> list[Place]:
    check_placeable(mesh)
    return [tuple(int(part) for part in row) for row in mesh.coordinates]


def _at(place: Place) -> tuple[int, ...]:
    return tuple(among(REPEAT, (at,)) for at in place)


def _module(path: str) -> str:
    """The module of a parameter, a buffer or a parameter's state: `cells.0.weight/momentum` → `cells.0`."""
    return path.partition("/")[0].rpartition(".")[0]


def _cell(scope: str) -> str:
    """The module that a linear layer of a recurrent cell belongs to: up to the last number, or the first word."""
    parts = scope.split(".")
    numbers = [position for position, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[-1] + 1]) if numbers else parts[0]
