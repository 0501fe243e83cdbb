"""`recursive`: Tofu §5.2 as published: one mesh axis at a time, each tensor cut along one dimension a step.

k devices are k1·k2·…·km with ki >= ki+1. Step i divides what the steps before have left between ki groups, with the
same coarsened dynamic program (here: exact elimination), and never looks back. It is optimal among recursive plans
where costs commute (Tofu's theorem 1), and can be worse than `exact` where they do not, as with halos, uneven sizes
and operators that are too small to be divided along every step's best dimension.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout import Mesh, Sharding
from girih.machine import Level, Machine
from girih.ops import description_of
from girih.partition.search import Search
from girih.partition.searches.exact import solve
from girih.partition.space.options import SECONDS, TOFU, Rules, division_codes, layouts_of
from girih.partition.space.problem import Candidates, Objective, build
from girih.partition.strategy import REPEAT, SearchResult, Strategy
from girih.rewrite.certificate import Certificate


@dataclass(frozen=True)
class Recursive(Search):
    """One mesh axis after another, each tensor cut along one dimension a step (Tofu §5.2, as published)."""

    name: ClassVar[str] = "recursive"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        started = time.perf_counter()
        rules = SECONDS if objective.unit == "seconds" else TOFU
        mesh = objective.machine.mesh
        decided = Strategy(Mesh(()), (Sharding(()),) * len(graph.nodes), dict.fromkeys(graph.values, Sharding(())))
        steps: list[float] = []
        for axis in range(mesh.axes):
            machine = _first_axes(objective.machine, axis + 1)
            candidates = _extend(graph, decided, machine.mesh, rules)
            step = replace(objective, machine=machine)
            problem = build(graph, step, rules, candidates)
            solution = solve(problem.problem, step, self.seconds / mesh.axes)
            decided = problem.strategy(solution.labels)
            steps.append(solution.cost)
        cost = steps[-1] if steps else 0.0
        statistics: dict[str, float | int | str] = {
            "seconds to search": round(time.perf_counter() - started, 3),
            "cost after each axis": ", ".join(f"{step:.4g}" for step in steps),
        }
        certificate = Certificate(
            cost,
            0.0,
            objective.unit,
            "none: recursive plans only",
            "all axes are divided",
            "recursive plans",
            statistics,
        )
        return SearchResult(decided, certificate)


def _first_axes(machine: Machine, count: int) -> Machine:
    levels: list[Level] = []
    for level in machine.levels:
        taken = level.axes[: max(0, count - sum(len(item.axes) for item in levels))]
        if taken:
            levels.append(replace(level, axes=taken))
    return replace(machine, levels=tuple(levels), groups=())


def _extend(graph: Graph, decided: Strategy, mesh: Mesh, rules: Rules) -> Candidates:
    """The choices whose first axes are as decided."""
    stored = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    free = Rules(repeat=True, partial=rules.partial, small=rules.small, reductions=rules.reductions)
    layouts = {}
    for name, value in graph.values.items():
        prefix = decided.layouts[name].codes
        able = [item for item in layouts_of(value, mesh, free, name in stored) if item[:-1] == prefix]
        cutting = [item for item in able if item[-1] != -1]
        keep = rules.repeat or value.elements <= rules.small or not cutting
        layouts[name] = tuple(able if keep else cutting)
    divisions = {}
    for number, node in enumerate(graph.nodes):
        description = description_of(graph, node)
        if description is None:
            continue
        codes = division_codes(description, mesh, free)
        able_codes = codes[(codes[:, :-1] == np.asarray(decided.divisions[number].codes, np.int64)).all(axis=1)]
        cutting_codes = able_codes[able_codes[:, -1] != REPEAT]
        points = prod(description.sizes)
        keep_all = rules.repeat or points <= rules.small or not len(cutting_codes)
        divisions[number] = able_codes if keep_all else cutting_codes
    return Candidates(layouts, divisions)
