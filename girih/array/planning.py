"""Plans of array programs: the exact search by bytes, with the tilings of live arrays given.

It is the search, the space and the price of PyTorch steps. Two rules differ: what is small may be held in copies and
computed by everybody, since a number that all need is cheaper made than sent; and the mesh has one axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from girih.graph import Graph
from girih.layout import Layout
from girih.lower import Blocks
from girih.machine import Machine, machine
from girih.partition.exact import exact
from girih.partition.options import Rules
from girih.partition.problem import Candidates
from girih.plans import Plan, goal_of

SMALL = 1 << 13
"""Up to so many elements an array may be held in copies, and a node computed by everybody."""
RULES = Rules(small=SMALL)


@cache
def machine_of(workers: int) -> Machine:
    """Workers of this host as a mesh of one axis."""
    found = machine(f"local:{workers}")
    axes = (workers,) if workers > 1 else ()
    return replace(found, levels=tuple(replace(level, axes=axes) for level in found.levels))


def plan_arrays(
    graph: Graph, workers: int, layouts: Mapping[str, Layout], blocks: Blocks | None = None, seconds: float = 10.0
) -> Plan:
    """The plan that moves least, in blocks. layouts: of the inputs that lie with the workers already."""
    where = machine_of(workers)
    given = Candidates({name: (layout,) for name, layout in layouts.items()}, {})
    found = exact(graph, goal_of("bytes", where), rules=RULES, candidates=given, seconds=seconds)
    return Plan(graph, where, found.strategy, found.certificate, "exact", "bytes", None, {}, blocks=blocks or Blocks())
