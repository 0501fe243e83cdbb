"""Which device computes which part of an operator, as a small grid (Tofu Fig. 11, FlexFlow Figs. 3.14 and 3.15).

Rows cut the sample dimension, columns every other index variable: parameters and channels, heads, positions. A cell
lists the devices that compute it: more than one where a mesh axis repeats the work; devices that take no part are in
no cell. Where an axis divides a reduction the cells are terms of a sum, not parts of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from girih.graph import Graph, Node
from girih.layout import Axis, Mesh, Partial, Replicated
from girih.ops import Description, first_description
from girih.ops.derive.classes import SAMPLE, classes
from girih.ops.derive.divisions import is_elementwise
from girih.partition.strategy import Strategy

MOST_CELLS = 64  # of a tile; devices of the innermost axes then share one


@dataclass(frozen=True)
class DrawnTile:
    """`cells`: for each cell, row by row, the devices that compute it. summed: the cells are terms of sums."""

    rows: int
    columns: int
    cells: tuple[tuple[int, ...], ...]
    summed: bool


@dataclass(frozen=True)
class AxisDivision:
    """What one mesh axis does to a node.

    what: `divides`, `sums`, `repeats` or `passes`. taking_part: coordinates of the axis that do it; the others idle.
    variable: the index variable, its class and size, or "". shares: where they are stated.
    """

    what: str
    taking_part: tuple[int, ...]
    variable: str = ""
    of_class: str = ""
    size: int = 0
    shares: tuple[int, ...] | None = None


def parameter_values(graph: Graph) -> frozenset[str]:
    """Values of the model rather than of a batch: state, what is made of it alone, gradients and updates of it."""
    names = {item.name for item in graph.state_inputs}
    outer = {item.name for item in graph.inputs if item.role in ("batch", "seed")}
    free = {item.name for item in graph.inputs} - outer
    for node in graph.nodes:
        if node.inputs and any(name in names for name in node.inputs) and all(name in free for name in node.inputs):
            names.update(node.outputs)
        if all(name in free for name in node.inputs):
            free.update(node.outputs)
    names.update(output.name for output in graph.outputs if output.replaces is not None)
    for node in reversed(graph.nodes):
        if names.intersection(node.outputs):
            names.update(_of_the_same(graph, node))
    return frozenset(names)


def _of_the_same(graph: Graph, node: Node) -> set[str]:
    """The inputs of a node that makes a value of the model which are such values too."""
    shapes = {graph.values[name].shape for name in node.outputs}
    if node.phase == "update":
        return {name for name in node.inputs if graph.values[name].shape}
    description = first_description(graph, node)
    if description is None:
        return set()
    if description.operator.view:
        return set(node.inputs)
    return {name for name in node.inputs if is_elementwise(description) and graph.values[name].shape in shapes}


def axis_divisions(
    graph: Graph, strategy: Strategy, number: int, parameters: frozenset[str]
) -> tuple[AxisDivision, ...]:
    """What each mesh axis does to one node. parameters: `parameter_values` of the graph."""
    node = graph.nodes[number]
    description = first_description(graph, node)
    described = () if description is None else _classes(
        description,
        tuple(name in parameters for name in node.inputs),
        any(name in parameters for name in node.outputs),
    )  # fmt: skip
    return tuple(
        _axis(description, described, axis, tuple(range(size)) if axis.on is None else axis.on)
        for axis, size in zip(strategy.divisions[number].axes, strategy.mesh.sizes, strict=True)
    )


def division_words(divisions: tuple[AxisDivision, ...], mesh: Mesh) -> str:
    """`i · Σk`: the index variable that each mesh axis divides, `Σ` before a reduction."""
    words = []
    for item, size in zip(divisions, mesh.sizes, strict=True):
        word = {"divides": item.variable, "sums": f"Σ{item.variable}", "repeats": "repeated"}.get(item.what, "passed")
        word += "" if item.shares is None else f"[{':'.join(map(str, item.shares))}]"
        words.append(word if len(item.taking_part) == size else f"{word}@{','.join(map(str, item.taking_part))}")
    return " · ".join(words) or "whole"


@lru_cache(maxsize=16384)
def _classes(description: Description, is_parameter: tuple[bool, ...], makes_parameter: bool) -> tuple[str, ...]:
    return classes(description, is_parameter, makes_parameter)


def _axis(
    description: Description | None, described: tuple[str, ...], axis: Axis, taking_part: tuple[int, ...]
) -> AxisDivision:
    if isinstance(axis, Replicated) or description is None:
        return AxisDivision("repeats", taking_part)
    if isinstance(axis, Partial):
        return AxisDivision("passes", taking_part)
    number = axis.dimension
    what = "sums" if number >= description.outputs else "divides"
    return AxisDivision(
        what, taking_part, description.names[number], described[number], description.sizes[number], axis.shares
    )


@lru_cache(maxsize=4096)
def tile_of(divisions: tuple[AxisDivision, ...], mesh: Mesh) -> DrawnTile:
    """The grid of cells that follows from what each mesh axis does."""
    drawn = drawn_axes(mesh)
    down = [axis for axis in drawn if divisions[axis].what != "repeats" and divisions[axis].of_class == SAMPLE]
    across = [axis for axis in drawn if divisions[axis].what != "repeats" and divisions[axis].of_class != SAMPLE]
    rows, columns = (prod(len(divisions[axis].taking_part) for axis in axes) for axes in (down, across))
    cells: list[list[int]] = [[] for _ in range(rows * columns)]
    # Of the axes that are not drawn the first coordinate stands for all.
    able = [item.taking_part if axis in drawn else item.taking_part[:1] for axis, item in enumerate(divisions)]
    for device, coordinates in enumerate(mesh.coordinates.tolist()):
        if any(at not in part for at, part in zip(coordinates, able, strict=True)):
            continue
        row = _position(coordinates, down, divisions)
        column = _position(coordinates, across, divisions)
        cells[row * columns + column].append(device)
    summed = any(item.what in ("sums", "passes") for item in divisions)
    return DrawnTile(rows, columns, tuple(map(tuple, cells)), summed)


def drawn_axes(mesh: Mesh) -> list[int]:
    """The outermost axes, as many as give no more cells than can be seen."""
    drawn: list[int] = []
    cells = 1
    for axis, size in enumerate(mesh.sizes):
        if cells * size > MOST_CELLS and drawn:
            break
        cells *= size
        drawn.append(axis)
    return drawn


def _position(coordinates: list[int], axes: list[int], divisions: tuple[AxisDivision, ...]) -> int:
    """The outer axis cuts first."""
    position = 0
    for axis in axes:
        able = divisions[axis].taking_part
        position = position * len(able) + able.index(coordinates[axis])
    return position
