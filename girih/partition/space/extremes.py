"""Which values may be held as partial maxima or minima, and which nodes let them pass.

Any value could be: what is whole, or split, becomes partial for nothing. But where no maximum is made upstream, or
nothing downstream keeps the order, this saves nothing, and each more way to hold a value costs a search time. So a
value may be held so only if it follows from a maximum that can be divided, over nodes that let it pass, and a reader
lets it pass further; or if several axes divide it and it cannot lie cut by some of them and whole along the others, for
want of elements, or since every value is held once: it is then combined over one axis before it is read, and over the
next where it is read. Most graphs have few of these, most nodes have the divisions that they would
have without.

Cost: one walk over the nodes, and a set of passages for each kind of node behind a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from girih.graph import Graph, Value
from girih.layout import REPLICATE, Mesh, full_layouts
from girih.ops import Description
from girih.ops.derive.divisions import divisible
from girih.ops.derive.passing import OPPOSITE, Passage, passages, passages_of_sums
from girih.ops.known import several_descriptions


@dataclass(frozen=True)
class Extremes:
    """values: by name the reducers of which a value may be partial results, besides sums. passed: by node the numbers
    of the passages (`girih.ops.derive.passing`) through which such results may pass."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    passed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


NO_EXTREMES = Extremes()


def extremes_of(graph: Graph, mesh: Mesh, once: bool = False) -> Extremes:
    """What of a graph may be partial maxima or minima. once: is every value held once, and not in copies?"""
    made: dict[str, set[str]] = {}  # by value, of what its makers can make it
    wanted: dict[str, set[str]] = {}  # by value, of what its readers let pass
    passed: dict[int, tuple[int, ...]] = {}
    for number, (node, several) in enumerate(zip(graph.nodes, several_descriptions(graph), strict=True)):
        if len(several) != 1:
            continue
        description = several[0]
        makes = _own(description)
        held = [made.get(name, set()) for name in node.inputs] if made else []
        if any(held):
            through = _through(description, held)
            makes |= {passage.makes for passage in through.values()}
            passed[number] = tuple(through)
            for passage in through.values():
                for operand in passage.inputs:
                    wanted.setdefault(node.inputs[operand], set()).add(passage.takes)
        if makes:
            made[node.outputs[0]] = makes
    for name, reducers in made.items():
        if mesh.axes == 1 or not (once or _small(graph.values[name], mesh)):
            made[name] = reducers & wanted.get(name, set())
    return Extremes({name: tuple(sorted(reducers)) for name, reducers in made.items() if reducers}, passed)


def _small(value: Value, mesh: Mesh) -> bool:
    """Can no layout cut it by all axes?"""
    return all(REPLICATE in layout for layout in full_layouts(value.shape, mesh))


def _own(description: Description) -> set[str]:
    """The reducer of a maximum or minimum that can be divided."""
    root = description.root
    if root is None or root.reducer not in OPPOSITE:
        return set()
    able = divisible(description)
    return {root.reducer} if any(able[number] and description.sizes[number] > 1 for number in root.variables) else set()


def _through(description: Description, held: list[set[str]]) -> dict[int, Passage]:
    """The passages through which what inputs may be partial results of passes; others become such for nothing."""
    first = len(passages_of_sums(description))
    return {
        number: passage
        for number, passage in enumerate(passages(description)[first:], start=first)
        if any(passage.takes in held[operand] for operand in passage.inputs)
    }
