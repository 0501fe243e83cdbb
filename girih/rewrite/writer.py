"""How a pass puts several nodes in the place of one: `rewritten` goes through a graph, a `Writer` emits nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from girih.graph import Argument, Graph, Node, Ref, Value, without_unread

Shape: TypeAlias = tuple[int, ...]


class Writer:
    """A graph as it is written anew, node by node. Methods emit nodes of common operators, and name what they make.

    like: the node that is being replaced, whose place in the program the new ones have, and whose name begins theirs.
    """

    def __init__(self, graph: Graph) -> None:
        self.values = dict(graph.values)
        self.nodes: list[Node] = []
        self.like: Node

    def emit(
        self, operator: str, results: Sequence[tuple[Shape, str]], names: Sequence[str], arguments: dict[str, Argument]
    ) -> tuple[str, ...]:
        """results: shape and dtype of each. names: of those that the graph has already; "" of others."""
        outputs = tuple(name or self._new(operator) for name in names)
        self.values |= {name: Value(name, shape, dtype) for name, (shape, dtype) in zip(outputs, results, strict=True)}
        operands = tuple(arguments.items())
        self.nodes.append(replace(self.like, name=outputs[0], operator=operator, arguments=operands, outputs=outputs))
        return outputs

    def _new(self, operator: str) -> str:
        stem = f"{self.like.name}.{operator.split('.')[1]}"
        number = len(self.nodes)
        while (name := f"{stem}.{number}") in self.values:
            number += 1
        self.values[name] = Value(name, (), "float32")  # so that the next one has another name
        return name

    def one(self, operator: str, shape: Shape, type: str, name: str = "", /, **arguments: Argument) -> str:
        """A node with one result, of a type."""
        return self.emit(operator, ((shape, type),), (name,), arguments)[0]

    def instead(self, operator: str, /, **arguments: Argument) -> bool:
        """A node that makes the result of the one that is being replaced, under its name; True."""
        value = self.values[self.like.outputs[0]]
        self.one(operator, value.shape, value.dtype, value.name, **arguments)
        return True

    def reshape(self, x: str, shape: Shape, name: str = "") -> str:
        value = self.values[x]
        if value.shape == shape and not name:
            return x
        return self.one("aten.reshape", shape, value.dtype, name, self=Ref(x), shape=shape)

    def permute(self, x: str, dims: Shape, name: str = "") -> str:
        value = self.values[x]
        shape = tuple(value.shape[dim] for dim in dims)
        return self.one("aten.permute", shape, value.dtype, name, self=Ref(x), dims=dims)

    def part(self, x: str, dim: int, start: int, stop: int, name: str = "") -> str:
        """x[…, start:stop, …]."""
        value = self.values[x]
        shape = (*value.shape[:dim], stop - start, *value.shape[dim + 1 :])
        if shape == value.shape and not name:
            return x
        where: dict[str, Argument] = {"dim": dim, "start": start, "end": stop, "step": 1}
        return self.one("aten.slice.Tensor", shape, value.dtype, name, self=Ref(x), **where)

    def full(self, shape: Shape, number: int, dtype: str) -> str:
        return self.one("aten.full", shape, dtype, size=shape, fill_value=number, dtype=dtype)

    def pad(self, x: str, *more: int) -> str:
        """Zeros behind the elements of each dimension."""
        value = self.values[x]
        shape = tuple(size + count for size, count in zip(value.shape, more, strict=True))
        flat = tuple(number for count in reversed(more) for number in (0, count))
        return self.one("aten.constant_pad_nd", shape, value.dtype, self=Ref(x), pad=flat, value=0)


Division: TypeAlias = Callable[[Writer, Node], bool]
"""Emits others in place of a node, the last ones with the names of its results, and says whether it did."""


def rewritten(graph: Graph, divisions: Mapping[str, Division]) -> Graph:
    """The graph with nodes of these operators divided; itself, if none was. Cost: linear in the nodes."""
    if not any(node.operator in divisions for node in graph.nodes):
        return graph
    writer, divided = Writer(graph), False
    for node in graph.nodes:
        writer.like, divide = node, divisions.get(node.operator)
        if divide is None or not divide(writer, node):
            writer.nodes.append(node)
        else:
            divided = True
    if not divided:
        return graph
    return without_unread(replace(graph, values=writer.values, nodes=tuple(writer.nodes)))
