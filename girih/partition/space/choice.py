"""What a search chose, free of names, and the Graph and Strategy that it means.

A TilingByNumber speaks of values and nodes by number, so that it fits every graph of the same form: the next iteration
of a loop (`girih.partition.searches.plan_cache`). Where a value is held in two layouts, applying it writes the second
copy into the Graph: as a node `aten.clone` behind the one that makes the value; of a view as the view taken once more;
of an input that is loaded where it is wanted as a second input with the same path. What follows (lowering, memory,
prediction, workers) need not know of copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from girih.graph import Graph, Input, Node, Ref
from girih.layout import Layout, Mesh
from girih.partition.space.copies import CopyProblem, copying
from girih.partition.space.problem import Objective
from girih.partition.strategy import Strategy

Division = tuple[int, ...]


@dataclass(frozen=True)
class TilingByNumber:
    """Layouts, divisions and what is read, by number; values count as inputs first, then what the nodes make.

    layouts: of each value, one or two. divisions: of each node, two where it is run for each copy. reads: of each node,
    run and operand, which copy. loaded: inputs whose second copy is an input, since it is loaded or lies already.
    """

    mesh: Mesh
    layouts: tuple[tuple[Layout, ...], ...]
    divisions: tuple[tuple[Division, ...], ...]
    reads: tuple[tuple[tuple[int, ...], ...], ...]
    loaded: frozenset[int]


@dataclass(frozen=True)
class Tiling:
    """A graph with the strategy for it; `copies`: the names of second copies, each with what it is a copy of."""

    graph: Graph
    strategy: Strategy
    copies: dict[str, str]


def value_order(graph: Graph) -> Iterator[str]:
    """The names of all values: inputs, then what the nodes make."""
    for item in graph.inputs:
        yield item.name
    for node in graph.nodes:
        yield from node.outputs


def choice_of(item: CopyProblem, labels: np.ndarray, objective: Objective, held: frozenset[str]) -> TilingByNumber:
    """What the labels mean: the copy that is cheaper to make is the first, and each operand reads the nearer one."""
    single, graph, first_node = item.single, item.single.graph, len(item.holds)
    tables = single.problem.tables
    pair = iter(single.problem.pairs)
    chosen = [item.holds[number][labels[number]] for number in range(first_node)]
    for name in held:
        number = single.variable[name]
        already = item.holds[number][0]
        chosen[number] = (*already, *(label for label in chosen[number] if label not in already))
    divisions: list[tuple[Division, ...]] = []
    reads: list[tuple[tuple[int, ...], ...]] = []
    for place, node in enumerate(graph.nodes):
        runs = item.runs[place][labels[first_node + place]]
        divisions.append(tuple(tuple(single.options[place].divisions[run].tolist()) for run in runs))
        nearest: list[list[int]] = [[] for _ in runs]
        for _ in node.inputs:
            _, number, table = next(pair)
            for run, near in zip(runs, nearest, strict=True):
                near.append(int(np.argmin(tables[table][run, list(chosen[number])])))
        reads.append(tuple(map(tuple, nearest)))
        for name in node.outputs:
            _, number, table = next(pair)
            if len(chosen[number]) == 1:
                continue
            one, two = chosen[number]
            if len(runs) == 2:
                swapped = tables[table][runs, (two, one)].sum() < tables[table][runs, (one, two)].sum()
            else:
                moves = copying(single, number, graph.values[name], objective)
                row = tables[table][runs[0]]
                swapped = row[two] + moves[two, one] < row[one] + moves[one, two]
            chosen[number] = (two, one) if swapped else (one, two)
    layouts = tuple(
        tuple(single.layouts[number][label] for label in chosen[number])
        for number in (single.variable[name] for name in value_order(graph))
    )
    loaded = frozenset(
        number
        for number, entry in enumerate(graph.inputs)
        if len(layouts[number]) > 1 and (entry.name not in held or len(item.holds[single.variable[entry.name]][0]) > 1)
    )
    return TilingByNumber(single.mesh, layouts, tuple(divisions), tuple(reads), loaded)


def applied(graph: Graph, choice: TilingByNumber) -> Tiling:
    """The graph with its second copies, and the strategy for it."""
    order = list(value_order(graph))
    layouts = {name: held[0] for name, held in zip(order, choice.layouts, strict=True)}
    second = {name: held[1] for name, held in zip(order, choice.layouts, strict=True) if len(held) > 1}
    if not second:
        return Tiling(graph, Strategy.of_codes(choice.mesh, tuple(runs[0] for runs in choice.divisions), layouts), {})
    copy_of: dict[str, str] = {}
    values = dict(graph.values)
    for name, layout in second.items():
        copy = f"{name}.copy"
        while copy in values:
            copy += "'"
        copy_of[name] = copy
        values[copy] = replace(graph.values[name], name=copy)
        layouts[copy] = layout
    inputs: list[Input] = []
    nodes: list[Node] = []
    divisions: list[Division] = []

    def fill(name: str, like: Node | None) -> None:
        clone = Node(copy_of[name], "aten.clone", (("self", Ref(name)),), (copy_of[name],))
        if like is not None:
            clone = replace(clone, phase=like.phase, source=like.source, scope=like.scope)
        nodes.append(clone)
        divisions.append(second[name])

    waiting: dict[str, Node | None] = {}  # second layouts that nobody has read yet, each with who made the first

    for number, item in enumerate(graph.inputs):
        inputs.append(item)
        if number in choice.loaded:
            inputs.append(replace(item, name=copy_of[item.name]))
        elif item.name in second:
            waiting[item.name] = None
    for node, runs, reads in zip(graph.nodes, choice.divisions, choice.reads, strict=True):
        for name in [name for name, *copies in zip(node.inputs, *reads, strict=True) if any(copies)]:
            if name in waiting:
                fill(name, waiting.pop(name) or node)
        for run, (division, which) in enumerate(zip(runs, reads, strict=True)):
            again = copy_of[node.outputs[0]] if run else None
            nodes.append(_reading(node, which, copy_of, again))
            divisions.append(division)
        if len(runs) == 1:
            for name in node.outputs:
                if name in second:
                    waiting[name] = node
    for name, maker in waiting.items():
        fill(name, maker)
    whole = Graph(values, tuple(nodes), tuple(inputs), graph.outputs)
    copies = {copy: name for name, copy in copy_of.items()}
    return Tiling(whole, Strategy.of_codes(choice.mesh, tuple(divisions), layouts), copies)


def without_copies(graph: Graph, copies: Mapping[str, str]) -> Graph:
    """The graph that was tiled, from the one with second copies in it: the inverse of `applied`."""
    kept = {name: value for name, value in graph.values.items() if name not in copies}
    nodes = tuple(
        node.renamed(lambda name: copies.get(name, name)) for node in graph.nodes if node.outputs[0] not in copies
    )
    inputs = tuple(item for item in graph.inputs if item.name not in copies)
    return Graph(kept, nodes, inputs, tuple(item for item in graph.outputs if item.name not in copies))


def _reading(node: Node, which: tuple[int, ...], copy_of: dict[str, str], again: str | None) -> Node:
    """The node, each operand from the copy that is said; `again`: the name of what it makes in its second run."""
    copies = iter(which)

    def name_of(name: str) -> str:
        return copy_of[name] if next(copies) else name

    reading = node.renamed(name_of)
    return reading if again is None else replace(reading, name=again, outputs=(again,))
