"""The graph as the page draws it: every node with its tile, its operands and the transfers that it causes."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import Mesh, part_shape
from girih.ops import first_description
from girih.program import ComputeStep, MoveStep, Program, StartStep, TransferStep
from girih.report.kinds import KINDS, kind_of
from girih.report.page.folds import Fold, folds
from girih.report.page.transfers import Traffic
from girih.report.tiles import (
    AxisDivision,
    DrawnTile,
    axis_divisions,
    division_words,
    drawn_axes,
    parameter_values,
    tile_of,
)
from girih.simulate.tasks import move_amounts

if TYPE_CHECKING:
    from girih.plans.plan import Plan

Item = TypeVar("Item", bound=Hashable)


class TextNumbers(Generic[Item]):
    """Items in the order in which they were first seen, each once; `number` finds or adds one."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def number(self, item: Item) -> int:
        return self._numbers.setdefault(item, len(self._numbers))

    @property
    def items(self) -> list[Item]:
        return list(self._numbers)


def graph_data(plan: Plan, traffic: Traffic, axes: list[str], texts: TextNumbers[str]) -> dict[str, Any]:
    """Columns of nodes, values and transfers; texts, tiles and divisions by number."""
    graph, program, mesh = plan.graph, plan.program, plan.strategy.mesh
    parameters = parameter_values(graph)
    values = {name: number for number, name in enumerate(graph.values)}
    tiles: TextNumbers[DrawnTile] = TextNumbers()
    divisions: TextNumbers[tuple[AxisDivision, ...]] = TextNumbers()
    folded = folds(graph)
    reads = _reads(program, texts)
    columns: dict[str, list[Any]] = {name: [] for name in NODE_COLUMNS}
    for number, node in enumerate(graph.nodes):
        divided = axis_divisions(graph, plan.strategy, number, parameters)
        description = first_description(graph, node)
        row = (
            texts.number(node.name),
            texts.number(node.operator),
            PHASES.index(node.phase),
            texts.number(node.scope),
            texts.number(node.source),
            KINDS.index(kind_of(graph, node)),
            tiles.number(tile_of(divided, mesh)),
            divisions.number(divided),
            texts.number(division_words(divided, mesh)),
            int(description is not None and description.operator.view),
            [values[name] for name in node.inputs],
            reads[number],
            [values[name] for name in node.outputs],
        )
        for column, item in zip(columns.values(), row, strict=True):
            column.append(item)
    return {
        "kinds": list(KINDS),
        "phases": list(PHASES),
        "axes": axes,
        "nodes": columns,
        "values": _values(plan, texts),
        "transfers": _transfers(program, traffic, values, texts),
        "tiles": [[tile.rows, tile.columns, tile.cells, int(tile.summed)] for tile in tiles.items],
        "divisions": [_division(divided, mesh) for divided in divisions.items],
        "folds": [_fold(plan, fold) for fold in folded],
        "sections": sections(graph, folded),
        "together": prod(size for axis, size in enumerate(mesh.sizes) if axis not in drawn_axes(mesh)),
        "steps": _steps(program),
    }


PHASES = ("forward", "backward", "update")
NODE_COLUMNS = (
    "name", "operator", "phase", "scope", "source", "kind", "tile", "division", "divided", "view", "inputs", "reads",
    "outputs",
)  # fmt: skip


def _division(divided: tuple[AxisDivision, ...], mesh: Mesh) -> list[list[Any]]:
    """For each axis [what it does, index variable, its class, its size, the coordinates that take part if not all]."""
    return [
        [item.what, item.variable, item.of_class, item.size, [] if len(item.taking_part) == size else item.taking_part]
        for item, size in zip(divided, mesh.sizes, strict=True)
    ]


def _reads(program: Program, texts: TextNumbers[str]) -> dict[int, list[int]]:
    """For each node the shape of the largest region that a device reads of each input."""
    return {
        step.node: [
            texts.number(_largest(part.needed.regions, program.graph.values[program.value_of[part.buffer]].shape))
            for part in step.reads
        ]
        for step in program.steps
        if isinstance(step, ComputeStep)
    }


def _largest(regions: NDArray[np.int64], shape: tuple[int, ...]) -> str:
    elements = (regions[..., 1] - regions[..., 0]).prod(axis=1)
    return _shape(part_shape(regions[int(np.argmax(elements))], shape))


def _shape(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes)) or "scalar"


def _values(plan: Plan, texts: TextNumbers[str]) -> dict[str, list[Any]]:
    graph, layouts = plan.graph, plan.strategy.layouts
    columns: dict[str, list[Any]] = {"name": [], "shape": [], "type": [], "layout": [], "part": [], "bytes": []}
    for name, value in graph.values.items():
        columns["name"].append(texts.number(name))
        columns["shape"].append(texts.number(_shape(value.shape)))
        columns["type"].append(texts.number(value.dtype))
        columns["layout"].append(texts.number(str(layouts[name])))
        columns["part"].append(texts.number(_largest(plan.program.layout_regions(name), value.shape)))
        columns["bytes"].append(value.bytes)
    return columns


def _transfers(
    program: Program, traffic: Traffic, values: dict[str, int], texts: TextNumbers[str]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"node": [], "value": [], "kind": [], "purpose": [], "bytes": []}
    for step, kind, amount in zip(program.transfers, traffic.kinds, traffic.amounts, strict=True):
        columns["node"].append(step.node)
        columns["value"].append(values[step.value])
        columns["kind"].append(texts.number(kind))
        columns["purpose"].append(texts.number(step.purpose))
        columns["bytes"].append(amount)
    amounts = move_amounts(program)
    for move in program.moves:
        columns["node"].append(move.node)
        columns["value"].append(values[move.value])
        columns["kind"].append(texts.number(move.purpose))
        columns["purpose"].append(texts.number(move.purpose))
        columns["bytes"].append(int(amounts[move.target].sum()))
    return columns


def _steps(program: Program) -> list[int]:
    """For each step n of a node n, -1 - t of a transfer or a move t, 0 where nothing takes time."""
    targets = [step.target for step in program.transfers] + [step.target for step in program.moves]
    number = {target: position for position, target in enumerate(targets)}
    positions: list[int] = []
    for step in program.steps:
        if isinstance(step, ComputeStep):
            positions.append(step.node)
        elif isinstance(step, TransferStep | MoveStep):
            positions.append(-1 - number[step.target])
        elif isinstance(step, StartStep):
            positions.append(-1 - number[step.transfer.target])
        else:
            positions.append(0)
    return positions


def _fold(plan: Plan, fold: Fold) -> list[Any]:
    """[start, period, count, first, last, in how many ways the copies are divided]."""
    divisions = plan.strategy.divisions
    ways = {divisions[start : start + fold.period] for start in range(fold.start, fold.stop, fold.period)}
    return [fold.start, fold.period, fold.count, fold.first, fold.last, len(ways)]


def sections(graph: Graph, folds: tuple[Fold, ...]) -> list[tuple[int, int, str]]:
    """(first node, one past the last, phase): the runs of phases; one run without a name if a fold has several."""
    runs: list[tuple[int, int, str]] = []
    for position, node in enumerate(graph.nodes):
        if runs and runs[-1][2] == node.phase:
            runs[-1] = (runs[-1][0], position + 1, node.phase)
        else:
            runs.append((position, position + 1, node.phase))
    whole = all(any(low <= fold.start and fold.stop <= high for low, high, _ in runs) for fold in folds)
    return runs if whole and len(runs) <= 6 else [(0, len(graph.nodes), "")]
