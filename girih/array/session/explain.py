"""What girih chose for an array program: the tiling of every array, bytes moved, gap, and what others would move."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from girih.array.core.array import Array
from girih.array.core.builder import as_array
from girih.array.core.dtypes import SUPPORTED
from girih.array.core.evaluation import BORDER
from girih.array.core.small import SmallArray
from girih.array.session.clusters import current
from girih.array.session.materialised import Materialised
from girih.array.session.planning import RULES, Tiled
from girih.capture.lazy.expressions import needed
from girih.machine.machine import two_axes
from girih.machine.units import format_bytes
from girih.partition import SearchResult
from girih.partition.searches.data_parallel import along
from girih.partition.searches.exact import exact
from girih.partition.searches.tiled import Wanted
from girih.partition.searches.tiled import tiled as tiled_by
from girih.partition.space.copies import Held
from girih.partition.space.problem import Candidates, Objective
from girih.plans.plan import Costs, Plan
from girih.report.notebook import notebook_html
from girih.report.tables import operators_table, render, summary, tensors_table
from girih.search.table import search_of


@dataclass(frozen=True)
class Explanation:
    """A plan of an array program with the costs of other tilings beside it. observed: what users' functions were seen
    to update before it was made."""

    plan: Plan
    observed: tuple[str, ...] = ()

    def __rich__(self) -> RenderableType:
        seen = [Text(line) for line in self.observed]
        return Group(summary(self.plan), *seen, Text(), tensors_table(self.plan), Text(), operators_table(self.plan))

    def __str__(self) -> str:
        return render(self)

    def __repr__(self) -> str:
        return str(self)

    @property
    def bytes(self) -> int:
        """Bytes that one evaluation moves between workers. Exact."""
        return int(self.plan.bytes_received.sum())

    def against(self) -> dict[str, int]:
        """Bytes that other tilings move, by name."""
        return {item.name: item.bytes for item in self.plan.baselines}

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as one page (HTML) to look at, with its simulated time and what the other tilings take.

        Raises:
            MissingLibraryError: bokeh is not installed (extra `report`).
        """
        # Simulation and the page take as long to load as all the rest of girih.array.
        from girih.plans.predict import predict
        from girih.report.page import write_page

        plain = self.plan.but(blocks=None)  # operator by operator: the page shows no blocks
        write_page(os.fspath(path), plain, predict(plain).timeline, others=self.plan.baselines)

    def _repr_html_(self) -> str:
        return notebook_html(self.plan)


@dataclass(frozen=True)
class AtOnce:
    """What NumPy computed at once in this process: an array of so many bytes, below the border of small work, or of a
    dtype that only NumPy has (then border is infinite)."""

    bytes: int
    dtype: np.dtype
    border: float

    def __str__(self) -> str:
        how = "computed at once, by NumPy in this process"
        if self.dtype.name not in SUPPORTED:
            return f"{how}: only NumPy has arrays of dtype {self.dtype}"
        size, border = format_bytes(self.bytes), "any" if math.isinf(self.border) else format_bytes(int(self.border))
        return f"{how}: {size}, and a plan for the workers pays from {border} on (girih.cluster(small=BYTES))"

    __repr__ = __str__


def explain(x: Any) -> Explanation | AtOnce:
    """How x will be computed; of what was evaluated already, how it was; of what is small, that NumPy computed it.

    Raises:
        ValueError: x is an array in memory: nothing was or will be computed. TypeError: x is no girih array.
    """
    if not isinstance(x, Array):
        raise TypeError(f"explain: expected an array of girih.array, got {type(x).__name__}: nothing is to be computed")
    if isinstance(x, SmallArray):
        return AtOnce(x.nbytes, x.dtype, BORDER.bytes)
    expression = as_array(x).expression
    place: Materialised | None = expression.kept
    if place is not None and expression.content is None:
        return _explained(place.plan, place.cluster.tiled_of(place.plan))
    if expression.is_leaf:
        where = f"explain: this array, of {expression.source or 'no line that is known'}, is in memory or in a file"
        raise ValueError(f"{where}; nothing is computed for it")
    cluster = current()
    plan = cluster.plan_of(needed([expression], cluster.streams))
    return _explained(plan, cluster.tiled_of(plan))


def _explained(plan: Plan, tiled: Tiled | None) -> Explanation:
    return Explanation(with_others(plan, tiled), tiled.told if tiled is not None else ())


def with_others(plan: Plan, tiled: Tiled | None = None) -> Plan:
    """The plan beside the other search's, and beside tilings of every array by rows, by columns and by blocks.

    What lies with the workers already lies so for all of them. tiled: how the plan came about; without it inputs are
    taken to be loaded.
    """
    held = {name: (lies[0],) for name, lies in ((tiled.wanted.held or {}) if tiled is not None else {}).items()}
    plain = plan.but(graph=plan.graph if tiled is None else tiled.graph, blocks=None)
    others = [_searched(plain, "spartan" if plan.search == "exact" else "exact", held)]
    if tiled is not None and tiled.copies:
        others.insert(0, replace(_searched(plain, plan.search, held), name=f"{plan.search}, no second copies"))
    others += [_tiled(plain, name, dimension, held) for name, dimension in (("rows", 0), ("columns", -1))]
    if len(plan.machine.levels) == 1 and len(two_axes(plan.machine.devices)) == 2:
        others.append(_blocks(plain))
    return plan.but(baselines=tuple(others))


def _searched(plan: Plan, search: str, held: Held) -> Costs:
    objective = Objective(plan.objective, plan.machine)
    tiling, certificate = tiled_by(plan.graph, objective, Wanted(search_of(search, 10.0), 0, held, RULES))
    found = SearchResult(tiling.strategy, certificate, tiling.graph)
    return plan.divided_by(found, "greedy (Spartan)" if search == "spartan" else search).costs


def _tiled(plan: Plan, name: str, dimension: int, held: Held) -> Costs:
    layouts = {}
    for key, value in plan.graph.values.items():
        at = dimension % len(value.shape) if value.shape else None
        lies = tuple(item.codes for item in held.get(key, ()))
        layouts[key] = lies or (along(value, at, plan.machine.mesh),)
    return _costs(plan, name, layouts)


def _blocks(plan: Plan) -> Costs:
    """A tiling by blocks: the outer axis cuts the first dimension, the inner one the last."""
    axes = two_axes(plan.machine.devices)
    where = replace(plan.machine, levels=tuple(replace(level, axes=axes) for level in plan.machine.levels))
    layouts = {}
    for key, value in plan.graph.values.items():
        last = len(value.shape) - 1
        codes = [
            dimension if value.shape and value.shape[dimension] >= axes[0] * axes[1] else -1
            for dimension in ((0, last) if value.shape else (0, 0))
        ]
        layouts[key] = (tuple(codes),)
    return _costs(plan.but(machine=where), "blocks", layouts)


def _costs(plan: Plan, name: str, layouts: dict[str, Any]) -> Costs:
    objective = Objective(plan.objective, plan.machine)
    found = exact(plan.graph, objective, rules=RULES, candidates=Candidates(layouts, {}), seconds=10.0)
    return plan.divided_by(found, name).costs


__all__ = ["Array", "Explanation", "explain"]
