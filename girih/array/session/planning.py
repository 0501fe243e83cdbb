"""Plans of array programs: the exact search by bytes (or Spartan's), with the tilings of live arrays given.

It is the search, the space and the price of PyTorch steps. One rule differs: what is small may be held in copies and
computed by everybody, since a number that all need is cheaper made than sent. Workers that are only counted are a mesh
of one axis. On a machine whose links differ, what is minimised is time, in place of bytes. Arrays may be held in a
second layout under a budget (`girih.partition.searches.tiled`); copies of arrays that stay stay, too. What users'
functions were seen to update is priced in place of whole results (`girih.array.session.profile`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from girih.array.session.profile import Look, Observations
from girih.graph import Graph, Output
from girih.layout import Sharding
from girih.machine import Machine, machine
from girih.partition.searches.plan_cache import PlanCache
from girih.partition.searches.tiled import Wanted
from girih.partition.space.choice import without_copies
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Plan
from girih.program import CACHE_BYTES, Blocks
from girih.rewrite import Pass, apply
from girih.rewrite.passes.by_rules import ByRules
from girih.rewrite.passes.factorisations import DivideFactorisations
from girih.rewrite.passes.running_sums import DivideRunningSums
from girih.rewrite.passes.sums_by_label import SumByLabel
from girih.rewrite.passes.tile_functions import DivideTileFunctions
from girih.rewrite.rules.further import arrays

SMALL = 1 << 13
"""Up to so many elements an array may be held in copies, and a node computed by everybody."""
RULES = Rules(small=SMALL)
WHOLE = Sharding(())
"""How everything lies with one worker."""


LOOK = 1.1
"""A first look at what a function updates may move so many times what the plan without it moves: tiles are of equal
size, where parts of arrays that lie already may differ by one."""


@cache
def machine_of(workers: int) -> Machine:
    """Workers of this host as a mesh of one axis."""
    host = machine(f"local:{workers}")
    axes = (workers,) if workers > 1 else ()
    return replace(host, levels=tuple(replace(level, axes=axes) for level in host.levels))


@dataclass(frozen=True, eq=False)
class Tiled:
    """A plan, and how it came about.

    wanted: what was searched for. copies: all second copies, each with what it is a copy of. staying: those that stay
    with the workers. looks: outputs that say what users' functions updated. told: what was seen of them before.
    """

    plan: Plan
    wanted: Wanted
    copies: Mapping[str, str]
    staying: Mapping[str, str]
    looks: Mapping[str, Look] = field(default_factory=dict)
    told: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        """Without copies."""
        return without_copies(self.plan.graph, self.copies)


@dataclass(frozen=True, eq=False)
class Planned:
    """tiled: how the plan came about. peak: the most bytes on a worker. refused: why it is more than there may be, or
    ""."""

    number: int
    plan: Plan
    tiled: Tiled
    peak: int
    refused: str
    _tiles: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    def layout(self, name: str) -> Sharding:
        return self.plan.strategy.layouts[name]

    def tiles(self, name: str) -> tuple[int, ...]:
        """The bytes of a value on each worker."""
        if name not in self._tiles:
            program = self.plan.program
            regions = program.layout_regions(name)
            elements = (regions[..., 1] - regions[..., 0]).prod(axis=-1)
            self._tiles[name] = tuple((elements * program.graph.values[name].item_bytes).tolist())
        return self._tiles[name]


@dataclass(frozen=True, eq=False)
class Unplanned:
    """A program that one worker computes without a plan: nothing is divided, and nothing is worth blocks.

    graph: before any pass. make: its plan, when somebody asks how it is computed.
    """

    graph: Graph
    make: Callable[[], Planned]

    @cached_property
    def plan(self) -> Plan:
        return self.make().plan

    def layout(self, name: str) -> Sharding:
        return WHOLE

    def tiles(self, name: str) -> tuple[int, ...]:
        return (self.graph.values[name].bytes,)


def objective_of(machine: Machine) -> str:
    """`bytes`, unless a byte takes longer over some links than over others."""
    links = machine.links
    return "time" if len(set(zip(links.seconds_per_byte, links.latency, strict=True))) > 1 else "bytes"


def passes(workers: int, held: float = math.inf) -> tuple[Pass, ...]:
    """What rewrites an array program once the workers are known. held: bytes of an array that they hold whole."""
    divided = DivideFactorisations(workers, SMALL, CACHE_BYTES), DivideTileFunctions(workers), DivideRunningSums(held)
    return *divided, SumByLabel()


def known_functions(graph: Graph, ones: frozenset[str]) -> Graph:
    """The graph with functions that PyTorch has under a name in the place of what the program writes: one kernel for
    1 / (1 + exp(-x)). ones: its inputs that are the number 1."""
    return ByRules(arrays(), ones).apply(graph) if ones else graph


def plan_observed(
    graph: Graph,
    where: Machine,
    wanted: Wanted,
    known: PlanCache,
    blocks: Blocks,
    seen: Observations,
    held: float = math.inf,
) -> Tiled:
    """`plan_arrays`, with what users' functions were seen to update where that moves less; what was not seen yet will
    be, where that moves little more."""
    plain, workers = plan_arrays(graph, where, wanted, known, blocks, held), where.devices
    cost = plain.plan.certificate.cost
    other = seen.observing(graph, workers)
    if other is None or cost == 0:
        return replace(plain, told=seen.told(graph, workers, False))
    observing = plan_arrays(other.graph, where, wanted, known, blocks, held)
    if observing.plan.certificate.cost > cost * (LOOK if other.new else 1):
        return replace(plain, told=seen.told(graph, workers, False))
    return replace(observing, looks=other.looks, told=seen.told(graph, workers, True))


def plan_arrays(
    graph: Graph,
    where: Machine,
    wanted: Wanted,
    known: PlanCache,
    blocks: Blocks | None = None,
    held: float = math.inf,
) -> Tiled:
    """The plan that moves least, in blocks, of the graph after the passes for so many workers as `where` has.

    wanted: search, budget of copies, and how inputs lie. known: what was found for graphs of the same form. held: bytes
    of an array that the workers hold whole.
    """
    graph, objective = apply(graph, passes(where.devices, held)), Objective(objective_of(where), where)
    tiling, certificate = known.tiled(graph, objective, replace(wanted, rules=RULES))
    tiled = tiling.graph
    staying = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    entering = {item.name for item in tiled.inputs}
    filled = {node.name for node in tiled.nodes if node.operator == "aten.clone"}
    copies = {
        copy: name for copy, name in tiling.copies.items() if name in staying and (copy in entering or copy in filled)
    }
    copied = tuple(Output(copy, "result") for copy in copies if copy not in entering)
    tiled = replace(tiled, outputs=(*tiled.outputs, *copied))
    choice = Choice(tiling.strategy, routes=objective.unit, blocks=blocks or Blocks())
    plan = Plan(tiled, where, choice, certificate, Goal(wanted.search.name, objective.name))
    return Tiled(plan, wanted, tiling.copies, copies)
