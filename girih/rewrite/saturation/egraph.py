"""An e-graph of tensors: classes of values that are equal, each with all nodes that make it.

After egg (Willsey et al., POPL 2021): nodes are kept once by operator and arguments, classes are joined by a
union-find, and congruence is restored after all joins of a round. A class is named as the first value in it, and has
that value's shape and dtype, so that nodes are `girih.graph.Node` and rules match as in a graph.
What differs: a node with several results makes a class of its own, of which the results are taken; operands of what
commutes are sorted; and joins of joins, and slices of slices, are also kept as one, so that three products that became
one are the same in whatever order that was.

Cost: a node is added in constant time, a round of joins is linear in the nodes that read what was joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from girih.graph import Argument, Graph, Node, Ref, Value
from girih.graph.graph import references
from girih.rewrite.rules.apply import COMMUTING
from girih.rewrite.rules.vocabulary import Call

RESULT = "girih.rewrite.result"
"""One of the results of a node that has several: arguments `of` and `number`."""
SLICE, CAT = "aten.slice.Tensor", "aten.cat"

Key = tuple[str, tuple[tuple[str, Argument], ...]]


def _key(operator: str, arguments: tuple[tuple[str, Argument], ...]) -> Key:
    return operator, tuple(sorted(arguments, key=lambda item: item[0]))


class EGraph:
    """Grows by `add` and `join`; `rebuild` restores that equal nodes are in one class."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[str, Value] = {item.name: graph.values[item.name] for item in graph.inputs}
        """Shape and dtype of each class, and of what became part of one."""
        self.nodes: dict[str, dict[Key, Node]] = {name: {} for name in self.values}
        """The nodes of each class: by operator and arguments, so that equal ones are one."""
        self.several: dict[Key, Node] = {}
        """Nodes with several results, as they were in the graph."""
        self._leader: dict[str, str] = {}
        self._rank: dict[str, int] = {name: number for number, name in enumerate(self.values)}
        self._class: dict[Key, str] = {}
        self._readers: dict[str, dict[Key, None]] = {name: {} for name in self.values}
        self._pending: list[str] = []
        self._fresh = 0
        self.size = 0
        """Nodes."""
        for node in graph.nodes:
            self._of_graph(node)
        self.rebuild()

    # -------------------------------------------------------------------------------------------- growing

    def find(self, name: str) -> str:
        """The class that a value is in now."""
        leader = name
        while leader in self._leader:
            leader = self._leader[leader]
        while name != leader:
            self._leader[name], name = leader, self._leader[name]
        return leader

    def insert(self, graph: Graph) -> dict[str, str]:
        """All nodes of another graph of the same inputs. Returns the classes of its values."""
        at = {item.name: self.find(item.name) for item in graph.inputs}
        for node in graph.nodes:
            if len(node.outputs) > 1:
                renamed = node.renamed(lambda name: at[name])
                of = self._class.get(_key(node.operator, self._now_of(node.operator, renamed.arguments)))
                if of is None:
                    raise KeyError(f"{node.name}: a node with several results that the first graph has not")
                for number, name in enumerate(node.outputs):
                    at[name] = self.find(self._class[_key(RESULT, (("of", Ref(self.find(of))), ("number", number)))])
                continue
            value = graph.values[node.outputs[0]]
            renamed = node.renamed(lambda name: at[name])
            at[node.outputs[0]] = self.add(Call(node.operator, renamed.arguments), value.shape, value.dtype)
        return at

    def add(self, call: Call, shape: tuple[int, ...], dtype: str) -> str:
        """The class of what a call makes."""
        return self._add(call.operator, call.arguments, Value("", shape, dtype))

    def _of_graph(self, node: Node) -> None:
        if len(node.outputs) == 1:
            (name,) = node.outputs
            made = self._add(node.operator, node.arguments, self.graph.values[name], name)
            if made != name:  # the same was computed before
                self._leader[name] = made
            return
        key = _key(node.operator, self._now_of(node.operator, node.arguments))
        first = self.graph.values[node.outputs[0]]
        of = self._add(node.operator, node.arguments, replace(first, name=""), f"{node.name}()")
        self.several[key] = node
        for number, name in enumerate(node.outputs):
            made = self._add(RESULT, (("of", Ref(of)), ("number", number)), self.graph.values[name], name)
            if made != name:
                self._leader[name] = made

    def _add(self, operator: str, arguments: tuple[tuple[str, Argument], ...], value: Value, name: str = "") -> str:
        arguments = self._now_of(operator, arguments)
        key = _key(operator, arguments)
        known = self._class.get(key)
        if known is not None:
            return self.find(known)
        if not name:
            name, self._fresh = f"{operator.split('.')[1]}.e{self._fresh}", self._fresh + 1
        node = Node(name, operator, arguments, (name,))
        self.values[name] = Value(name, value.shape, value.dtype)
        self.nodes[name] = {key: node}
        self._rank[name] = len(self._rank)
        self._readers[name] = {}
        self._class[key] = name
        self.size += 1
        for read in node.inputs:
            self._readers[read][key] = None
        for same, how in self._as_one(node):
            self.join(self._add(how.operator, how.arguments, same), name)
        return self.find(name)

    def _now_of(self, operator: str, arguments: tuple[tuple[str, Argument], ...]) -> tuple[tuple[str, Argument], ...]:
        """With the classes of now, and the operands of what commutes in order."""
        found = tuple((name, self._now(value)) for name, value in arguments)
        if operator in COMMUTING:
            refs = [value for _, value in found if isinstance(value, Ref)]
            if len(refs) == 2 and dict(found).get("alpha", 1) == 1:
                order = iter(sorted(refs, key=lambda ref: self._rank[ref.name]))
                found = tuple((name, next(order) if isinstance(value, Ref) else value) for name, value in found)
        return tuple(item for item in found if item != ("step", 1)) if operator == SLICE else found

    def _now(self, argument: Argument) -> Argument:
        if isinstance(argument, Ref):
            return Ref(self.find(argument.name))
        return tuple(map(self._now, argument)) if isinstance(argument, tuple) else argument

    def _as_one(self, node: Node) -> Iterator[tuple[Value, Call]]:
        """What a join of joins, or a slice of a slice, is as one: cat(cat(a, b), c) = cat(a, b, c), along one
        dimension, and x[2:7][1:3] = x[3:5]."""
        at, value = dict(node.arguments), self.values[node.name]
        if node.operator == CAT:
            parts = self.parts(node.arguments)
            if len(parts) > len(node.inputs):
                whole = tuple(map(Ref, parts))
                yield value, Call(CAT, tuple((key, whole if key == "tensors" else item) for key, item in at.items()))
        if node.operator == SLICE and at.get("step", 1) == 1:
            (name,) = node.inputs
            for inner in list(self.nodes[name].values()):
                before = dict(inner.arguments)
                if inner.operator != SLICE or before.get("step", 1) != 1 or before.get("dim", 0) != at.get("dim", 0):
                    continue
                start, skipped = at.get("start") or 0, before.get("start") or 0
                dim = at.get("dim", 0)
                assert isinstance(start, int)
                assert isinstance(skipped, int)
                assert isinstance(dim, int)
                if start < 0 or skipped < 0:
                    continue
                first = start + skipped
                as_one = {**before, "start": first, "end": first + value.shape[dim]}
                yield value, Call(SLICE, tuple(as_one.items()))

    def parts(self, arguments: tuple[tuple[str, Argument], ...]) -> list[str]:
        """What a join joins, by its arguments: of joins along the same dimension, what they join."""
        known = dict(arguments)
        found: list[str] = []
        for name in (self.find(ref.name) for ref in references(known["tensors"])):
            joins = [
                item
                for item in self.nodes[name].values()
                if item.operator == CAT and dict(item.arguments).get("dim", 0) == known.get("dim", 0)
            ]
            inner = max(joins, key=lambda item: len(item.inputs), default=None)  # the one of what is no join
            found.extend([name] if inner is None else inner.inputs)
        return found

    def in_order(self, names: Sequence[str]) -> bool:
        """Is each value older than the next?"""
        ranks = [self._rank[name] for name in names]
        return all(first < second for first, second in pairwise(ranks))

    # -------------------------------------------------------------------------------------------- joining

    def join(self, first: str, second: str) -> None:
        """Say that two values are equal."""
        first, second = self.find(first), self.find(second)
        if first == second:
            return
        if self._rank[first] > self._rank[second]:
            first, second = second, first
        self._leader[second] = first
        self.nodes[first].update(self.nodes.pop(second))
        self._readers[first].update(self._readers.pop(second))
        self._pending.append(first)

    def rebuild(self) -> None:
        """Nodes that read equal values are equal: until that is so."""
        while self._pending:
            name = self.find(self._pending.pop())
            readers, self._readers[name] = self._readers[name], {}
            for key in readers:
                made = self._class.pop(key, None)
                if made is None:
                    continue
                made = self.find(made)
                node = self.nodes[made].pop(key)
                arguments = self._now_of(node.operator, node.arguments)
                new = _key(node.operator, arguments)
                if key in self.several:
                    self.several[new] = self.several.pop(key)
                other = self._class.get(new)
                if other is not None:
                    self.size -= 1
                    self.join(made, other)
                    made = self.find(made)
                self._class[new] = made
                self.nodes[made][new] = Node(made, node.operator, arguments, (made,))
                for read in self.nodes[made][new].inputs:
                    self._readers[read][new] = None
        for name, nodes in self.nodes.items():
            for key, node in nodes.items():
                if node.outputs[0] != name:
                    nodes[key] = Node(name, node.operator, node.arguments, (name,))

    # -------------------------------------------------------------------------------------------- looking

    def every(self) -> Iterator[Node]:
        """Each node, as a node that makes its class."""
        for nodes in self.nodes.values():
            yield from nodes.values()

    def constants(self, known: Collection[str]) -> frozenset[str]:
        """The classes of what is known before, and of what any of their nodes makes of such alone."""
        constant = {self.find(name) for name in known}
        waiting = [node for node in self.every() if node.inputs]
        while True:
            new = [node for node in waiting if constant.issuperset(node.inputs)]
            if not new:
                return frozenset(constant)
            constant.update(node.name for node in new)
            waiting = [node for node in waiting if node.name not in constant]

    def several_of(self, node: Node) -> Node | None:
        """The node with several results, as it was in the graph, that a node of an own class stands for."""
        return self.several.get(_key(node.operator, node.arguments))

    def results_of(self, name: str, count: int) -> tuple[str, ...]:
        """The classes of the results of such a node, by its own class."""
        keys = [_key(RESULT, (("of", Ref(name)), ("number", number))) for number in range(count)]
        return tuple(self.find(self._class[key]) for key in keys)

    def as_graph(self) -> Graph:
        """The classes as values, for what asks of shapes; without nodes."""
        return replace(self.graph, values=self.values, nodes=(), outputs=())

    @property
    def roots(self) -> Mapping[str, str]:
        """By output of the graph, its class."""
        return {output.name: self.find(output.name) for output in self.graph.outputs}
