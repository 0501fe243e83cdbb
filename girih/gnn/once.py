"""What a step computes of its data alone is computed once, before the first step, and is data itself from then on.

The first sum over neighbours of most graph networks reads the features, which are the same in every step: such a sum,
with all that is computed of the features before and behind it, leaves the program. Nothing that is learned or drawn is
in it, so that its numbers are those that each step would compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from girih.gnn.partitioner.layers import FORWARDS
from girih.gnn.partitioner.search import READERS, pieces_of
from girih.graph import Graph, Input, Node, Output, without_unread
from girih.kernels.evaluate import interpret

Tensor = Any  # torch is untyped for the type checker


@dataclass(frozen=True)
class Once:
    """graph: a program without what is computed of its data alone. recipes: by the path of each data input that it has
    instead, the program that makes it, whose inputs are data. sums: which of the network's sums over neighbours are in
    these, counted from the first one."""

    graph: Graph
    recipes: Mapping[str, Graph]
    sums: tuple[int, ...]

    def tensors(self, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the recipes make of the data, by path; what the data already has of it is not made again."""
        made = {}
        for path, recipe in self.recipes.items():
            if path not in data:
                given = {item.name: data[item.path] for item in recipe.inputs}
                (made[path],) = interpret(recipe, given).values()
        return made


def once(graph: Graph) -> Once:
    """Take out of a program what it computes of its data alone, where sums over neighbours are in it and the result is
    no larger than the numbers that it is made of. Cost: linear in the nodes.

    A program stays as it is where no other sum would be left: that is no graph network any more, and is divided by its
    batch. Data that is not read any more is no input of the new program.
    """
    fixed = {item.name: item.path for item in graph.inputs if item.role == "data" and item.name not in graph.updates}
    maker: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        if node.phase == "forward" and node.inputs and all(name in fixed or name in maker for name in node.inputs):
            maker |= dict.fromkeys(node.outputs, number)
    alone = set(maker.values())
    read = {name for number, node in enumerate(graph.nodes) if number not in alone for name in node.inputs}
    read |= {item.name for item in graph.outputs}
    recipes = {}
    for name in (name for name in maker if name in read):
        recipe = _recipe(graph, name)
        sums = any(node.operator.startswith(READERS) for node in recipe.nodes)
        if sums and graph.values[name].bytes <= _numbers(recipe):
            recipes[name] = recipe
    homes = pieces_of(graph).homes
    readers = [n for n, node in enumerate(graph.nodes) if _sums_forward(node) and homes.get(n, 0) == 0]
    left = _with_inputs(graph, {name: f"once_{_digest(recipe)}" for name, recipe in recipes.items()})
    kept = {node.name for node in left.nodes}
    if not recipes or not any(node.operator.startswith(READERS) for node in left.nodes):
        return Once(graph, {}, ())
    gone = tuple(place for place, n in enumerate(readers) if graph.nodes[n].name not in kept)
    return Once(left, {f"once_{_digest(recipe)}": recipe for recipe in recipes.values()}, gone)


def _sums_forward(node: Node) -> bool:
    return node.operator in FORWARDS and node.phase == "forward"


def _numbers(recipe: Graph) -> int:
    """Bytes of the floating-point numbers that it reads."""
    read = [recipe.values[item.name] for item in recipe.inputs]
    return sum(value.bytes for value in read if "float" in value.dtype)


def _recipe(graph: Graph, name: str) -> Graph:
    """The part of a program that makes one value."""
    part = without_unread(replace(graph, outputs=(Output(name, "result"),)))
    return _with_read_inputs(part)


def _with_read_inputs(graph: Graph, also: Iterable[str] = ()) -> Graph:
    """The program without the data that it does not read."""
    read = {name for node in graph.nodes for name in node.inputs} | {item.name for item in graph.outputs} | {*also}
    inputs = tuple(item for item in graph.inputs if item.name in read)
    kept = {item.name for item in inputs} | {name for node in graph.nodes for name in node.outputs}
    return replace(graph, inputs=inputs, values={name: item for name, item in graph.values.items() if name in kept})


def _with_inputs(graph: Graph, paths: Mapping[str, str]) -> Graph:
    """The program with these values as data inputs of these paths."""
    known = {item.path: item.name for item in graph.inputs if item.role == "data"}  # of a step captured once more
    names = {name: known.get(path, name) for name, path in paths.items()}
    nodes = tuple(node.renamed(lambda name: names.get(name, name)) for node in graph.nodes)
    makers = {name for name in paths if names[name] == name}
    kept = [node for node in nodes if makers.isdisjoint(node.outputs)]
    added = tuple(Input(name, "data", path) for name, path in paths.items() if name in makers)
    others = [item.name for item in graph.inputs if item.role != "data"]
    inputs = sorted((*graph.inputs, *added), key=lambda item: item.role in ("batch", "scalar", "seed"))
    return _with_read_inputs(without_unread(replace(graph, inputs=tuple(inputs), nodes=tuple(kept))), others)


def _digest(recipe: Graph) -> str:
    """What tells a recipe from others, whatever its values are called."""
    names = {item.name: item.path for item in recipe.inputs}
    words = hashlib.sha256()
    for number, node in enumerate(recipe.nodes):
        words.update(repr((node.operator, node.renamed(names.__getitem__).arguments)).encode())
        names |= {name: f"{number}:{place}" for place, name in enumerate(node.outputs)}
    words.update(names[recipe.outputs[0].name].encode())  # which result of the last node
    return words.hexdigest()[:12]
