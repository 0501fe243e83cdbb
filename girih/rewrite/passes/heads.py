"""Batch and heads apart: the graph of a transformer, written so that its products can be divided by heads.

PyTorch computes the products of attention as one batch: [batch, heads, rows, columns] is reshaped to
[batch · heads, rows, columns] before `aten.bmm`, and back behind it. A device that has some heads of all examples then
has no box of the merged dimension, and no layout says what it holds. Before → after:

    %a: [32, 16, 8] = aten.reshape(%q: [8, 4, 16, 8])
    %b: [32, 16, 16] = aten.bmm(%a, %k)               →    %b: [8, 4, 16, 16] = girih.head_product(%q, %k')
    %s: [8, 4, 16, 16] = aten.reshape(%b)

The numbers are the same, and so are the inputs and outputs of the graph. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from girih.graph import Argument, Graph, Node, Ref, Value, kept_with_graph, without_unread

PRODUCT = "aten.bmm"
Heads = tuple[int, int]  # how many examples, how many heads of each


@dataclass(frozen=True)
class SeparateHeads:
    """Keep batch and heads in two dimensions in products of matrices."""

    def apply(self, graph: Graph) -> Graph:
        return _apart(graph)


@kept_with_graph
def _apart(graph: Graph) -> Graph:
    heads = _heads(graph)
    return _Writer(graph, heads).written() if heads else graph


def _heads(graph: Graph) -> dict[str, Heads]:
    """(batch, heads) of the first dimension of each operand and result of a batch of products: as what is reshaped to
    it, or from it, has them in two. Products that share an operand, as it is or transposed, have the same."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for node in graph.nodes:
        if node.operator == PRODUCT or _transposes(node):
            for name in (*node.inputs, *node.outputs):
                leader[find(name)] = find(node.outputs[0])
    votes: dict[str, Counter[Heads]] = {}
    for node in graph.nodes:
        if node.operator != "aten.reshape":
            continue
        for one, other in ((node.inputs[0], node.outputs[0]), (node.outputs[0], node.inputs[0])):
            merged, apart = graph.values[one].shape, graph.values[other].shape
            alike = len(apart) == 4 and len(merged) == 3 and apart[2:] == merged[1:]
            if one in leader and alike and apart[0] * apart[1] == merged[0]:
                votes.setdefault(find(one), Counter())[apart[0], apart[1]] += 1
    factors = {name: next(iter(votes[root])) for name in leader if len(votes.get(root := find(name), ())) == 1}
    product = {name for node in graph.nodes if node.operator == PRODUCT for name in node.outputs}
    return {name: heads for name, heads in factors.items() if heads[1] > 1} if product & factors.keys() else {}


def _transposes(node: Node) -> bool:
    dims = node.attributes.get("dims")
    return node.operator == "aten.permute" and isinstance(dims, tuple) and len(dims) == 3 and dims[0] == 0


class _Writer:
    """The graph as it is written anew. heads: of values whose first dimension is batch · heads.

    stands: where a value is not written again, the name of one of the same shape and numbers. apart: the names of those
    with batch and heads in two dimensions.
    """

    def __init__(self, graph: Graph, heads: Mapping[str, Heads]) -> None:
        self.graph = graph
        self.heads = heads
        self.values: dict[str, Value] = {item.name: graph.values[item.name] for item in graph.inputs}
        self.nodes: list[Node] = []
        self.stands: dict[str, str] = {}
        self.apart: dict[str, str] = {}
        self.makers = {name: node for node in graph.nodes for name in node.outputs}

    def written(self) -> Graph:
        for node in self.graph.nodes:
            result = node.outputs[0]
            if node.operator == PRODUCT and result in self.heads:
                left, right = (Ref(self.in_two(name)) for name in node.inputs)
                self.apart[result] = self.emit(node, result, "girih.head_product", {"self": left, "mat2": right})
            elif node.operator == "aten.reshape":
                self.reshape(node)
            else:
                self.keep(node, self.whole)
        outputs = tuple(replace(item, name=self.whole(item.name)) for item in self.graph.outputs)
        return without_unread(Graph(self.values, tuple(self.nodes), self.graph.inputs, outputs))

    def keep(self, node: Node, name_of: Callable[[str], str]) -> None:
        self.nodes.append(node.renamed(name_of))
        self.values |= {name: self.graph.values[name] for name in node.outputs}

    def emit(self, like: Node, of: str, operator: str, arguments: dict[str, Argument], whole: bool = False) -> str:
        """A node that makes the numbers of a value, with batch and heads apart or in the value's own shape."""
        own = self.graph.values[of]
        name = f"{of}.{'merged' if whole else 'apart'}"
        while name in self.graph.values or name in self.values:
            name += "_"
        shape = own.shape if whole else (*self.heads[of], *own.shape[1:])
        if operator == "aten.reshape":
            arguments = {**arguments, "shape": shape}
        self.values[name] = replace(own, name=name, shape=shape)
        self.nodes.append(
            replace(like, name=name, operator=operator, arguments=tuple(arguments.items()), outputs=(name,))
        )
        return name

    def in_two(self, name: str) -> str:
        """The name of a value with batch and heads apart."""
        if name not in self.apart:
            self.apart[name] = self.split(name)
        return self.apart[name]

    def split(self, name: str) -> str:
        maker = self.makers.get(name)
        if maker is not None and _transposes(maker) and maker.inputs[0] in self.heads:
            dims = (0, 1, *(int(dim) + 1 for dim in maker.attributes["dims"][1:]))  # type: ignore[index,arg-type]
            return self.emit(maker, name, "aten.permute", {"self": Ref(self.in_two(maker.inputs[0])), "dims": dims})
        reshaped = maker is not None and maker.operator == "aten.reshape"
        source = self.as_it_stands(maker.inputs[0] if reshaped else name)  # type: ignore[union-attr]
        if self.values[source].shape == (*self.heads[name], *self.graph.values[name].shape[1:]):
            return source
        like = maker or next(node for node in self.graph.nodes if name in node.inputs)
        return self.emit(like, name, "aten.reshape", {"self": Ref(source)})

    def as_it_stands(self, name: str) -> str:
        """Where the numbers of a value are, in whatever shape."""
        return name if name in self.values else self.stands.get(name) or self.apart[name]

    def whole(self, name: str) -> str:
        """The name of a value in its own shape."""
        if name in self.values:
            return name
        if name not in self.stands:
            source = Ref(self.apart[name])
            self.stands[name] = self.emit(self.makers[name], name, "aten.reshape", {"self": source}, whole=True)
        return self.stands[name]

    def reshape(self, node: Node) -> None:
        result, source = node.outputs[0], self.as_it_stands(node.inputs[0])
        if source != node.inputs[0] and self.values[source].shape == self.graph.values[result].shape:
            self.stands[result] = source
        else:
            self.keep(node, self.as_it_stands)
