"""Where a rule's source is in a graph, and the graph with its target in that place (TASO §2.3.1, §2.7, Fig. 2.6).

A match binds the rule's inputs to values, and its symbols to sizes and attributes. Shapes are checked: equal symbols
are equal sizes, the split points are those of the split trees, and both sides make tensors of the same shapes. Nodes of
the source that others read too stay. A replacement that would make a circle is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from girih.graph import Argument, Graph, Node, Value, without_unread
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Expression, Rule, RuleError, Term, Variable, walk
from girih.rewrite.rules.vocabulary import (
    SPLIT,
    Call,
    Operand,
    Tree,
    call_of,
    made,
    operator_named,
    parameters,
    symbol_of,
    trees_of,
)

COMMUTING = frozenset({"aten.add.Tensor", "aten.mul.Tensor", "aten.maximum", "aten.minimum"})


@dataclass(frozen=True)
class Match:
    """The source of a rule in a graph. names: of each variable and term the value that it is there. trees: the split
    trees of inputs that the source splits, where the graph splits them."""

    rule: Rule
    names: Mapping[Expression, str]
    symbols: Mapping[str, Argument]
    trees: Mapping[Expression, tuple[Tree, ...]]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.names[item] for item in self.rule.source)


class NodeIndex:
    """What matching looks at: which nodes make a value, by operator, and by what they read.

    In a graph one node makes a value; in an e-graph, whose classes are values, each of several. Nodes with several
    results match no rule.
    """

    def __init__(self, values: Mapping[str, Value], nodes: Iterable[Node]) -> None:
        self.values = values
        self.nodes = tuple(node for node in nodes if len(node.outputs) == 1)

    @staticmethod
    def of(graph: Graph) -> NodeIndex:
        return NodeIndex(graph.values, graph.nodes)

    @cached_property
    def makers(self) -> dict[tuple[str, str], list[Node]]:
        """The nodes by (the first value that they make, operator)."""
        nodes: dict[tuple[str, str], list[Node]] = {}
        for node in self.nodes:
            nodes.setdefault((node.outputs[0], node.operator), []).append(node)
        return nodes

    @cached_property
    def by_operator(self) -> dict[str, list[str]]:
        """The values that nodes of an operator make."""
        made: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            made.setdefault(node.operator, {})[node.outputs[0]] = None
        return {operator: list(names) for operator, names in made.items()}

    @cached_property
    def readers(self) -> dict[tuple[str, str], list[str]]:
        """By (value, operator): what such nodes make of it."""
        made: dict[tuple[str, str], dict[str, None]] = {}
        for node in self.nodes:
            for name in node.inputs:
                made.setdefault((name, node.operator), {})[node.outputs[0]] = None
        return {key: list(names) for key, names in made.items()}


Bound = tuple[dict[Expression, str], dict[str, Argument]]


def matches(
    rule: Rule,
    index: NodeIndex,
    seen: set[tuple[object, ...]] | None = None,
    wanted: Callable[[Mapping[Expression, str]], bool] | None = None,
) -> Iterator[Match]:
    """All places where the rule's source is, in the order of the graph. What the rule makes must be of what it reads:
    inputs of the target that the source does not have cannot be bound.

    seen: places that were looked at before, which are not looked at again; to these are added. wanted: whether a place
    is worth a look.
    """
    order = _order(rule)
    if order is None:
        return
    seen = set() if seen is None else seen
    for names, symbols in _roots(rule.source, index, ({}, {})):
        key = (*(names[item] for item in order), *sorted(symbols.items(), key=lambda item: item[0]))
        if key in seen or (wanted is not None and not wanted(names)):
            continue
        seen.add(key)
        match = Match(rule, names, dict(symbols), {})  # its own: sizes and trees are added
        if len(set(match.outputs)) == len(match.outputs) and _holds(match, index):
            yield match


@cache
def _order(rule: Rule) -> tuple[Expression, ...] | None:
    """What the source consists of; None where the rule cannot be applied."""
    source = tuple(walk(rule.source))
    known = {item.name for item in source if isinstance(item, Variable)}
    needed = {item.name for item in walk(rule.target) if isinstance(item, Variable)}
    return None if needed - known or any(isinstance(item, Variable) for item in rule.source) else source


def _roots(roots: tuple[Expression, ...], index: NodeIndex, bound: Bound) -> Iterator[Bound]:
    if not roots:
        yield bound
        return
    first, *rest = roots
    if first in bound[0]:
        yield from _roots(tuple(rest), index, bound)
        return
    assert isinstance(first, Term)
    reached = _reached(first, index, bound[0])
    for name in index.by_operator.get(_operator(first), []) if reached is None else reached:
        for more in _match(first, name, index, bound):
            yield from _roots(tuple(rest), index, more)


def _reached(term: Term, index: NodeIndex, names: Mapping[Expression, str]) -> list[str] | None:
    """The values that the term can be, as something it reads is known; None where nothing is."""
    operator = _operator(term)
    for argument in term.arguments:
        below = [names[argument]] if argument in names else None
        if below is None and isinstance(argument, Term):
            below = _reached(argument, index, names)
        if below is not None:
            return list(dict.fromkeys(made for name in below for made in index.readers.get((name, operator), [])))
    return None


@cache
def _operator(term: Term) -> str:
    return "aten.slice.Tensor" if term.operator == SPLIT else operator_named(term.operator)


def _match(item: Expression, name: str, index: NodeIndex, bound: Bound) -> Iterator[Bound]:
    """The ways in which an expression is a value."""
    names, symbols = bound
    if item in names:
        if names[item] == name:
            yield bound
        return
    if isinstance(item, Variable):
        yield {**names, item: name}, symbols
        return
    for node in index.makers.get((name, _operator(item)), []):
        found = _attributes(item, node, symbols)
        if found is None or len(node.inputs) != len(item.arguments):
            continue
        orders = [node.inputs]
        if node.operator in COMMUTING and len(node.inputs) == 2 and node.attributes.get("alpha", 1) == 1:
            orders.append(node.inputs[::-1])
        for order in orders:
            if any(names.get(argument, value) != value for argument, value in zip(item.arguments, order, strict=True)):
                continue
            ways = [({**names, item: name}, found)]
            for argument, value in zip(item.arguments, order, strict=True):
                ways = [more for way in ways for more in _match(argument, value, index, way)]
            yield from ways


def _attributes(term: Term, node: Node, symbols: dict[str, Argument]) -> dict[str, Argument] | None:
    """The symbols, with what the node has for those of the term's attributes; None if it has something else."""
    if term.operator == SPLIT:
        at = node.attributes
        return symbols if at.get("step", 1) == 1 else None
    found, known = symbols, dict(term.attributes)
    for item in parameters(node.operator):
        if item.kind != "attribute" and item.name not in known:
            continue
        has = node.attributes.get(item.name, item.default)
        found_or_none = _equal(known.get(item.name, item.default), has, found)  # type: ignore[arg-type]
        if found_or_none is None:
            return None
        found = found_or_none
    return found


def _equal(wanted: Attribute, has: Argument, symbols: dict[str, Argument]) -> dict[str, Argument] | None:
    name = symbol_of(wanted)
    if name is not None:
        if name in symbols:
            return symbols if symbols[name] == has else None
        return {**symbols, name: has}
    if isinstance(wanted, Extent):
        return symbols  # held against the sizes at the end
    if isinstance(has, tuple) and not isinstance(wanted, tuple):
        return symbols if all(item == wanted for item in has) else None
    if isinstance(wanted, tuple):
        if not isinstance(has, tuple) or len(has) != len(wanted):
            return None
        for one, other in zip(wanted, has, strict=True):
            known = _equal(one, other, symbols)
            if known is None:
                return None
            symbols = known
        return symbols
    return symbols if wanted == has else None


def _holds(match: Match, index: NodeIndex) -> bool:
    """Do the declared shapes hold, and do the nodes say what the rule says of these operands?"""
    symbols = dict(match.symbols)
    for name, shape in match.rule.shapes:
        has = index.values[match.names[Variable(name)]].shape if Variable(name) in match.names else None
        if has is None or len(has) != len(shape):
            return False
        for extent, size in zip(shape, has, strict=True):
            symbol = symbol_of(extent)
            if symbol is None:
                symbols.update(_solved(extent, size, symbols))
            elif symbols.setdefault(symbol, size) != size:
                return False
    numbers = {name: value for name, value in symbols.items() if isinstance(value, int)}
    for name, shape in match.rule.shapes:
        has = index.values[match.names[Variable(name)]].shape
        for extent, size in zip(shape, has, strict=True):
            if not extent.symbols <= numbers.keys() or extent.value(numbers) != size:
                return False
    assert isinstance(match.symbols, dict)
    match.symbols.update(symbols)
    operands: dict[Expression, Operand] = {}
    for item in _order(match.rule) or ():
        value = index.values[match.names[item]]
        if isinstance(item, Variable):
            operands[item] = Operand(value.name, value.shape, value.dtype, value.shape)
            continue
        if item.operator == SPLIT:
            _place(item, match, index, operands)
        read = [operands[argument] for argument in item.arguments]
        try:
            call = call_of(item, read, match.symbols)
            trees = trees_of(item, read, value.shape)
        except (RuleError, KeyError):
            return False
        if item.operator == SPLIT and not any(
            dict(call.arguments) == dict(node.arguments) | {"step": 1}
            for node in index.makers[value.name, "aten.slice.Tensor"]
        ):
            return False
        operands[item] = Operand(value.name, value.shape, value.dtype, trees)
    return True


def _place(term: Term, match: Match, index: NodeIndex, operands: dict[Expression, Operand]) -> None:
    """Where an input of the rule that the source splits is split: where the graph does. Whatever is cut into two is the
    two joined."""
    (argument,) = term.arguments
    operand, dim = operands[argument], dict(term.attributes).get("dim", 0)
    if not isinstance(argument, Variable) or not isinstance(dim, int) or not -1 < dim < len(operand.shape):
        return
    size = operand.shape[dim]
    if not isinstance(operand.trees[dim], int):
        return
    for node in index.makers[match.names[term], "aten.slice.Tensor"]:
        at = node.attributes
        start, stop = at.get("start") or 0, at.get("end", size)
        if node.inputs != (operand.name,) or at.get("dim", 0) != dim:
            continue
        middle = stop if term.result == 0 else start
        whole = start == 0 if term.result == 0 else stop == size
        if whole and isinstance(middle, int) and 0 < middle < size:
            trees = (*operand.trees[:dim], (middle, size - middle), *operand.trees[dim + 1 :])
            operands[argument] = replace(operand, trees=trees)
            assert isinstance(match.trees, dict)
            match.trees[argument] = trees
            return


def _solved(extent: Extent, size: int, symbols: Mapping[str, Argument]) -> dict[str, Argument]:
    """The one symbol of a product, such as g · q, that is not known yet, by what the product is."""
    if len(extent.terms) != 1:
        return {}
    ((names, rest),) = extent.terms
    unknown = [name for name in names if name not in symbols]
    for name in names:
        value = symbols.get(name, 1)
        rest *= value if isinstance(value, int) else 0
    return {unknown[0]: size // rest} if len(unknown) == 1 and rest > 0 and size % rest == 0 else {}


def replaced(graph: Graph, match: Match) -> Graph | None:
    """The graph with the target in the place of the source; None where that would be a circle, where the target does
    not take these shapes, or makes others. Cost: linear in the nodes."""
    nodes, values = list(graph.nodes), dict(graph.values)
    like = next(node for node in graph.nodes if node.outputs[0] == match.outputs[0])
    known = {
        _signature(Call(node.operator, node.arguments)): node.outputs[0]
        for node in graph.nodes
        if len(node.outputs) == 1
    }
    added: list[Node] = []

    def name_of(call: Call, shape: tuple[int, ...], dtype: str) -> str:
        name = known.get(_signature(call), "")
        if not name:
            name = _fresh(values, call.operator)
            values[name] = Value(name, shape, dtype)
            known[_signature(call)] = name
            added.append(replace(like, name=name, operator=call.operator, arguments=call.arguments, outputs=(name,)))
        return name

    made_by_target = built(match, values, name_of)
    if made_by_target is None:
        return None
    stands = {old: new for old, new in zip(match.outputs, made_by_target, strict=True) if old != new}
    new_names = {node.outputs[0] for node in added}
    every = [
        node.renamed(lambda name: stands.get(name, name))
        if node.outputs[0] not in new_names and not stands.keys().isdisjoint(node.inputs)
        else node  # the very same, so that what is known of it still is
        for node in (*nodes, *added)
    ]
    return _named(graph, every, values, stands)


def built(
    match: Match, values: Mapping[str, Value], name_of: Callable[[Call, tuple[int, ...], str], str]
) -> tuple[str, ...] | None:
    """The values that the target makes, in the place of the source's; None where the target does not take these shapes,
    or makes others.

    name_of: the name of what a call makes, of a shape and a dtype: it may be there already.
    """
    operands: dict[Expression, Operand] = {}
    for item in _target(match.rule):
        if isinstance(item, Variable):
            value = values[match.names[item]]
            operands[item] = Operand(value.name, value.shape, value.dtype, match.trees.get(item, value.shape))
            continue
        read = [operands[argument] for argument in item.arguments]
        try:
            call = call_of(item, read, match.symbols)
            shape, dtype = made(call, tuple((operand.name, operand.shape, operand.dtype) for operand in read))
            trees = trees_of(item, read, shape)
        except (RuleError, KeyError):
            return None
        operands[item] = Operand(name_of(call, shape, dtype), shape, dtype, trees)
    for old, new in zip(match.outputs, match.rule.target, strict=True):
        if (values[old].shape, values[old].dtype) != (operands[new].shape, operands[new].dtype):
            return None
    return tuple(operands[new].name for new in match.rule.target)


@cache
def _target(rule: Rule) -> tuple[Expression, ...]:
    return tuple(walk(rule.target))


def _signature(call: Call) -> tuple[str, tuple[tuple[str, Argument], ...]]:
    return call.operator, tuple(sorted(call.arguments, key=lambda item: item[0]))


def _fresh(values: Mapping[str, Value], operator: str) -> str:
    stem, number = operator.split(".")[1], 0
    while (name := f"{stem}.r{number}") in values:
        number += 1
    return name


def _named(graph: Graph, nodes: list[Node], values: dict[str, Value], stands: Mapping[str, str]) -> Graph | None:
    """The graph of these nodes in an order in which each comes behind what it reads; outputs keep their names."""
    leaving = {output.name for output in graph.outputs}
    back = {new: old for old, new in stands.items() if old in leaving}
    if len(back) < sum(old in leaving for old in stands) or any(new in leaving for new in back):
        return None  # one value cannot leave under two names
    entering = {item.name for item in graph.inputs}
    if back.keys() & entering:
        return None
    dropped = set(back.values())
    kept = [node for node in nodes if not dropped.intersection(node.outputs)]

    def name_of(name: str) -> str:
        return back.get(name, name)

    renamed = []
    for node in kept:
        if not back.keys().isdisjoint((*node.inputs, *node.outputs)):
            outputs = tuple(map(name_of, node.outputs))
            node = replace(node.renamed(name_of), outputs=outputs, name=name_of(node.name))
        renamed.append(node)
    values = {name: value for name, value in values.items() if name not in back}
    ordered = _ordered(renamed, entering)
    if ordered is None:
        return None
    return without_unread(replace(graph, values=values, nodes=tuple(ordered)))


def _ordered(nodes: list[Node], entering: set[str]) -> list[Node] | None:
    """Behind what they read, otherwise in this order; None for a circle."""
    done = set(entering)
    maker = {name: node for node in nodes for name in node.outputs}
    ordered: list[Node] = []
    state: dict[int, int] = {}
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if done.issuperset(node.outputs):
                stack.pop()
                continue
            missing = [name for name in node.inputs if name not in done]
            if not missing:
                ordered.append(node)
                done.update(node.outputs)
                stack.pop()
                continue
            if state.get(id(node)) == 1:
                return None
            state[id(node)] = 1
            for name in missing:
                if state.get(id(maker[name])) == 1:
                    return None
                stack.append(maker[name])
    return ordered
