"""Plans of array programs: the exact search by bytes (or Spartan's), with the tilings of live arrays given.

It is the search, the space and the price of PyTorch steps. Two rules differ: what is small may be held in copies and
computed by everybody, since a number that all need is cheaper made than sent; and the mesh has one axis. Arrays may be
held in a second layout under a budget (`girih.partition.searches.tiled`); copies of arrays that stay stay, too. What
users' functions were seen to update is priced in place of whole results (`girih.array.session.profile`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from girih.array.session.profile import Look, Observations
from girih.graph import Graph, Output
from girih.lower import Blocks
from girih.machine import Machine, machine
from girih.partition.searches.plan_cache import Remembered
from girih.partition.searches.tiled import Wanted
from girih.partition.space.choice import without_copies
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective
from girih.plans.plan import Plan
from girih.rewrite.passes.sums_by_label import SumByLabel

SMALL = 1 << 13
"""Up to so many elements an array may be held in copies, and a node computed by everybody."""
RULES = Rules(small=SMALL)


LOOK = 1.1
"""A first look at what a function updates may move so many times what the plan without it moves: tiles are of equal
size, where parts of arrays that lie already may differ by one."""


@cache
def machine_of(workers: int) -> Machine:
    """Workers of this host as a mesh of one axis."""
    found = machine(f"local:{workers}")
    axes = (workers,) if workers > 1 else ()
    return replace(found, levels=tuple(replace(level, axes=axes) for level in found.levels))


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


def plan_observed(
    graph: Graph, workers: int, wanted: Wanted, known: Remembered, blocks: Blocks, seen: Observations
) -> Tiled:
    """`plan_arrays`, with what users' functions were seen to update where that moves less; what was not seen yet will
    be, where that moves little more."""
    plain = plan_arrays(graph, workers, wanted, known, blocks)
    cost = plain.plan.certificate.cost
    other = seen.observing(graph, workers)
    if other is None or cost == 0:
        return replace(plain, told=seen.told(graph, workers, False))
    made = plan_arrays(other.graph, workers, wanted, known, blocks)
    if made.plan.certificate.cost > cost * (LOOK if other.new else 1):
        return replace(plain, told=seen.told(graph, workers, False))
    return replace(made, looks=other.looks, told=seen.told(graph, workers, True))


def plan_arrays(graph: Graph, workers: int, wanted: Wanted, known: Remembered, blocks: Blocks | None = None) -> Tiled:
    """The plan that moves least, in blocks; sums over masks of the same labels are one.

    wanted: search, budget of copies, and how inputs lie. known: what was found for graphs of the same form.
    """
    where, graph = machine_of(workers), SumByLabel().apply(graph)
    tiling, certificate = known.tiled(graph, Objective("bytes", where), replace(wanted, rules=RULES))
    tiled = tiling.graph
    staying = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    entering = {item.name for item in tiled.inputs}
    filled = {node.name for node in tiled.nodes if node.operator == "aten.clone"}
    copies = {
        copy: name for copy, name in tiling.copies.items() if name in staying and (copy in entering or copy in filled)
    }
    made = tuple(Output(copy, "result") for copy in copies if copy not in entering)
    tiled = replace(tiled, outputs=(*tiled.outputs, *made))
    plan = Plan(
        tiled, where, tiling.strategy, certificate, wanted.search.name, "bytes", None, {}, blocks=blocks or Blocks()
    )
    return Tiled(plan, wanted, tiling.copies, copies)
