"""Masked sums whose masks are `labels == number` → sums by label: the points are read once, not once for each number.

    eq.1 = eq(labels, n1)                      values = stack(n1, n2, …)
    sum.2 = masked_sum(input, eq.1)            positions = label_positions(labels, values)
    count.4 = sum(_to_copy(eq.1, int64))   →   sums = sums_by_position(input, positions)
    sum.6 = masked_sum(input, eq.5)            counts = counts_by_position(positions)
    …                                          sum.2 = select(sums, 0, 0); count.4 = select(counts, 0, 0); …

Both are Σ over rows k of [labels[k] = number] · what row k has. The numbers are scalars that enter the graph: of one
dtype each is another one (`girih.capture.lazy.expressions.number`), so that a label has one position. Masks that
something else reads stay. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from girih.graph import Argument, Graph, Node, Ref, Value

WHOLE = frozenset({"int8", "int16", "int32", "int64", "uint8"})
FEWEST = 2
"""Numbers with which labels are compared; a single mask is as well off by itself."""


@dataclass(frozen=True)
class _Sum:
    """A sum that a mask chooses for. input: what is summed, None for a count. node: that makes it."""

    labels: str
    number: str
    input: str | None
    node: Node


@dataclass
class _Family:
    """Sums by the same labels. numbers: with the position of each."""

    labels: str
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SumByLabel:
    """Write one sum for all numbers that the same labels are compared with; its results keep their names."""

    def apply(self, graph: Graph) -> Graph:
        return _by_label(graph)


def _by_label(graph: Graph) -> Graph:
    sums = {item.node.name: item for item in _sums(graph)}
    families: dict[str, _Family] = {}
    for item in sums.values():
        family = families.setdefault(item.labels, _Family(item.labels))
        family.numbers.setdefault(item.number, len(family.numbers))
    families = {labels: family for labels, family in families.items() if len(family.numbers) >= FEWEST}
    if not families:
        return graph
    values, nodes = dict(graph.values), []
    for node in graph.nodes:
        one = sums.get(node.name)
        if one is None or one.labels not in families:
            nodes.append(node)
            continue
        family = families[one.labels]
        new, total = _total(graph, family, one)
        nodes.extend(_new(new, values))
        chosen = (("self", Ref(total)), ("dim", 0), ("index", family.numbers[one.number]))
        nodes.append(replace(node, operator="aten.select.int", arguments=chosen))
    return _without_unread(replace(graph, values=values, nodes=tuple(nodes)), sums.values())


def _sums(graph: Graph) -> Iterable[_Sum]:
    """The masked sums and counts of the graph whose masks compare labels with a number."""
    for node in graph.nodes:
        arguments = dict(node.arguments)
        if node.operator == "girih.masked_sum":
            masked = _mask(graph, arguments["mask"])
            if masked is not None:
                yield _Sum(*masked, _name(arguments["input"]), node)
        elif node.operator == "aten.sum.dim_IntList" and not arguments.get("keepdim", False):
            copy = _maker(graph, arguments["self"])
            if copy is not None and copy.operator == "aten._to_copy" and graph.values[copy.outputs[0]].dtype == "int64":
                masked = _mask(graph, dict(copy.arguments)["self"])
                if masked is not None:
                    yield _Sum(*masked, None, node)


def _mask(graph: Graph, mask: Argument) -> tuple[str, str] | None:
    """(labels, number) of a mask `labels == number`, in either order."""
    node = _maker(graph, mask)
    if node is None or node.operator != "aten.eq.Tensor":
        return None
    arguments = dict(node.arguments)
    pair = arguments["self"], arguments["other"]
    for labels, number in (pair, pair[::-1]):
        if not isinstance(labels, Ref) or not isinstance(number, Ref) or graph.role_of(number.name) != "scalar":
            continue
        one, other = graph.values[labels.name], graph.values[number.name]
        if len(one.shape) == 1 and other.shape == () and one.dtype == other.dtype and one.dtype in WHOLE:
            return labels.name, number.name
    return None


def _maker(graph: Graph, argument: Argument) -> Node | None:
    at = graph.producer.get(_name(argument))
    return None if at is None else graph.nodes[at]


def _name(argument: Argument) -> str:
    assert isinstance(argument, Ref)
    return argument.name


def _total(graph: Graph, family: _Family, item: _Sum) -> tuple[list[tuple[Node, Value]], str]:
    """What makes the sums (or counts) of all numbers, and their name."""
    labels, count = graph.values[family.labels], len(family.numbers)
    numbers = tuple(map(Ref, family.numbers))
    source, phase = item.node.source, item.node.phase

    def made(what: str, operator: str, shape: tuple[int, ...], dtype: str, **arguments: Argument) -> tuple[Node, Value]:
        name = f"{what}.{family.labels}"  # which no operator has
        return Node(name, operator, tuple(arguments.items()), (name,), phase, source), Value(name, shape, dtype)

    stack = made("values", "aten.stack", (count,), labels.dtype, tensors=numbers, dim=0)
    known: dict[str, Argument] = {"labels": Ref(labels.name), "values": Ref(stack[0].name)}
    positions = made("positions", "girih.label_positions", labels.shape, "int64", **known)
    where: dict[str, Argument] = {"positions": Ref(positions[0].name), "groups": count}
    if item.input is None:
        total = made("counts", "girih.counts_by_position", (count,), "int64", **where)
    else:
        summed = graph.values[item.node.outputs[0]]
        total = made(f"sums.{item.input}", "girih.sums_by_position", (count, *summed.shape), summed.dtype,
                     input=Ref(item.input), **where)  # fmt: skip
    return [stack, positions, total], total[0].name


def _new(new: Iterable[tuple[Node, Value]], values: dict[str, Value]) -> Iterable[Node]:
    """Those of these nodes that the graph does not have yet."""
    for node, value in new:
        if value.name not in values:
            values[value.name] = value
            yield node


def _without_unread(graph: Graph, sums: Iterable[_Sum]) -> Graph:
    """Without the masks, and copies of them, that only the sums read."""
    candidates = {node for item in sums for node in item.node.inputs}
    candidates |= {name for node in graph.nodes if node.outputs[0] in candidates for name in node.inputs}
    read = {output.name for output in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        masks = node.operator in ("aten.eq.Tensor", "aten._to_copy") and node.outputs[0] in candidates
        if not masks or not read.isdisjoint(node.outputs):
            kept.append(node)
            read.update(node.inputs)
    nodes = tuple(reversed(kept))
    names = (*(item.name for item in graph.inputs), *(name for node in nodes for name in node.outputs))
    return replace(graph, values={name: graph.values[name] for name in names}, nodes=nodes)
