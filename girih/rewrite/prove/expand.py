"""From a rule to sums of products: both sides in index notation, as the descriptions of its operators say.

Descriptions are functions of tensors and attributes, written for numbers; here they are given polynomials of symbols
in place of sizes, attributes and indices (`Symbolic`), so that what comes out holds for all of them. The size of a
result follows from how its indices read: `s·y + d·u - p` stays within a tensor of size h that has p more on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from girih.ops import expressions
from girih.ops.catalogue import catalogue
from girih.ops.expressions import DescriptionError, Expression
from girih.ops.language import Over, parameter_names
from girih.ops.operator import Operator
from girih.rewrite.prove.arithmetic import divided
from girih.rewrite.prove.notation import At, Element, Notation, Scope, Symbol, Tensor, Tree
from girih.rewrite.prove.symbolic import (
    FLOORS,
    DifferentShapesError,
    MismatchError,
    Symbolic,
    UnprovableError,
    extent_of,
    floor,
    plain,
)
from girih.rewrite.prove.terms import Facts, Guard, Read, Term, Terms, guarded, linear, put, summed, written
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Rule, RuleError, Variable, walk
from girih.rewrite.rules.rule import Expression as Item
from girih.rewrite.rules.rule import Term as Call
from girih.rewrite.rules.vocabulary import MISSING, OWN_DEFAULTS, SPLIT, operator_named, parameters

SIZES = frozenset(("kernel_size", "stride", "dilation", "groups"))
"""Attributes of which no operator takes a number below one."""
MANY = 6
"""More dimensions than a result has."""


# ------------------------------------------------------------------------------------------------ rules


@dataclass(frozen=True)
class Expanded:
    """Both sides of a rule at an element of each output."""

    source: tuple[Terms, ...]
    target: tuple[Terms, ...]
    facts: Facts


@lru_cache(maxsize=64)
def expanded(rule: Rule, radix: Extent | None = None) -> Expanded:
    """The terms of both sides, with the shapes that the rule declares. radix: output dimensions that are multiples of
    it are indexed by two variables, the second one below it (groups, and the channels of a group).

    Kept for the next who asks: shapes are solved, a proof is looked for and replayed one after the other.

    Raises:
        UnprovableError: an operator has no index notation for symbols, or the shapes do not fit for all sizes.
        RuleError: what is no rule.
    """
    scope = Scope(Facts(least=least_values(rule)))
    declared = dict(rule.shapes)
    tensors: dict[Item, Tensor] = {}
    for item in (*walk(rule.source), *walk(rule.target)):
        if item in tensors:
            continue
        if isinstance(item, Variable):
            if item.name not in declared:
                raise UnprovableError(f"the shape of {item.name} is not declared")
            shape = declared[item.name]
            tensors[item] = Tensor(shape, _reader(item.name, shape), shape)
            continue
        tensors[item] = _applied(item, [tensors[argument] for argument in item.arguments], scope)
    sides: list[list[Terms]] = [[], []]
    ranges: dict[str, Extent] = {}
    for one, other in zip(rule.source, rule.target, strict=True):
        first, second = tensors[one], tensors[other]
        if first.shape != second.shape:
            raise DifferentShapesError(f"{one} has the shape {_shape(first)}, {other} has {_shape(second)}")
        index = []
        for size in first.shape:
            inner = radix if radix is not None and not divided(size, radix)[1].terms else None
            if size.number == 1:
                index.append(Extent())
            elif inner is None or divided(size, inner)[0].number == 1:
                index.append(Extent.of(name := scope.variable()))
                ranges[name] = size
            else:
                high, low = scope.variable(), scope.variable()
                ranges[high], ranges[low] = divided(size, inner)[0], inner
                index.append(Extent.of(high) * inner + Extent.of(low))
        scope.sizes |= ranges
        for side, tensor in zip(sides, (first, second), strict=True):
            side.append(tensor.at(tuple(index)))
    facts = Facts(ranges, scope.facts.least, FLOORS, (), sizes_in(rule))
    return Expanded(tuple(sides[0]), tuple(sides[1]), facts)


def least_values(rule: Rule) -> dict[str, int]:
    """The least value of each symbol of a rule: 1 for sizes, strides and groups, as no tensor is empty; 0 for what only
    pads."""
    least: dict[str, int] = {}
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Call):
            for name, value in item.attributes:
                for symbol in _symbols(value):
                    least[symbol] = max(least.get(symbol, 0), 0 if name in ("padding", "pad") else 1)
    for _, shape in rule.shapes:
        least |= dict.fromkeys((symbol for size in shape for symbol in size.symbols if symbol not in least), 1)
    for _, shape in rule.shapes:
        least |= {symbol: 1 for size in shape if len(size.terms) == 1 for symbol in size.symbols}
    return least


def sizes_in(rule: Rule) -> frozenset[str]:
    """Symbols that are above zero in every graph: of shapes, and of attributes that are sizes. Others, such as what a
    tensor is multiplied by, may be anything there."""
    used = {symbol for _, shape in rule.shapes for size in shape for symbol in size.symbols}
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Call):
            used.update(symbol for name, value in item.attributes if name in SIZES for symbol in _symbols(value))
    return frozenset(used)


def _symbols(value: Attribute) -> frozenset[str]:
    if isinstance(value, tuple):
        return frozenset(symbol for item in value for symbol in _symbols(item))
    return value.symbols if isinstance(value, Extent) else frozenset()


def _shape(tensor: Tensor) -> str:
    return f"[{', '.join(map(written, tensor.shape))}]"


def _reader(name: str, shape: tuple[Extent, ...]) -> At:
    """Elements of an input. An index lies within its dimension, so that it is 0 in one of size 1."""
    single = [size.number == 1 for size in shape]

    def at(index: tuple[Extent, ...]) -> Terms:
        places = tuple(Extent() if one else place for one, place in zip(single, index, strict=True))
        return (Term(factors=(Read(name, places),)),)

    return at


# ------------------------------------------------------------------------------------------------ operators


def _applied(call: Call, operands: Sequence[Tensor], scope: Scope) -> Tensor:
    if call.operator == SPLIT:
        return _side(call, operands)
    name = operator_named(call.operator)
    operator = catalogue()[name]
    log: list[Element] = []
    arguments = _arguments(call, name, operands, log)
    if name == "aten.convolution" and len(operands) == 2:  # its description reads as many channels as the kernel has
        if len(operands[0].shape) != len(operands[1].shape) or len(operands[0].shape) < 3:
            raise UnprovableError(f"{call}: its operands have no such dimensions")
        channels = operands[1].shape[1] * extent_of(arguments["groups"])
        if channels != operands[0].shape[1]:
            raise MismatchError(operands[0].shape[1], channels)
    try:
        shape = _shape_of(call, operator, arguments, log, scope)
    except (DescriptionError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, (UnprovableError, RuleError)):
            raise
        raise UnprovableError(f"{call}: {name} is not described for symbols ({error})") from error
    size, trees, meaning = shape

    def at(index: tuple[Extent, ...]) -> Terms:
        try:
            return meaning(index)
        except (DescriptionError, TypeError, AttributeError, IndexError) as error:
            raise UnprovableError(f"{call}: {name} is not described for symbols ({error})") from error

    return Tensor(size, at, trees)


def _side(call: Call, operands: Sequence[Tensor]) -> Tensor:
    (operand,) = operands
    dim = dict(call.attributes).get("dim")
    if not isinstance(dim, int) or not -len(operand.shape) <= dim < len(operand.shape) or call.result not in (0, 1):
        raise RuleError(f"{call}: a side of what was concatenated is written split(x, dim=1)[0] or [1]")
    dim %= len(operand.shape)
    tree = operand.trees[dim]
    if isinstance(tree, Extent):
        raise RuleError(f"{call}: its operand was not concatenated along dimension {dim}")
    start = length(tree[0]) if call.result else Extent()
    side = tree[call.result or 0]
    shape = (*operand.shape[:dim], length(side), *operand.shape[dim + 1 :])
    trees = (*operand.trees[:dim], side, *operand.trees[dim + 1 :])
    return Tensor(shape, lambda i: operand.at((*i[:dim], i[dim] + start, *i[dim + 1 :])), trees)


def length(tree: Tree) -> Extent:
    return tree if isinstance(tree, Extent) else length(tree[0]) + length(tree[1])


def _arguments(call: Call, name: str, operands: Sequence[Tensor], log: list[Element]) -> dict[str, Any]:
    """By the names of the description's parameters."""
    operator, known, pending = catalogue()[name], dict(call.attributes), list(operands)
    values: dict[str, Any] = {}
    for item in parameters(name):
        if item.kind == "tensor" and pending and item.name not in known:
            values[item.name] = Symbol(pending.pop(0), item.name, log)
        elif item.kind == "tensors":
            values[item.name] = [Symbol(tensor, item.name, log) for tensor in pending]
            pending = []
        elif item.name in known or item.name in OWN_DEFAULTS.get(name, ()):
            value = _attribute(known.pop(item.name, item.default))
            number_or_symbol = isinstance(value, (int, Symbolic)) and not isinstance(value, bool)
            rank = len(operands[0].shape) - 2 if operands else 1
            values[item.name] = (value,) * rank if item.many and number_or_symbol else value
        elif item.default is MISSING:
            raise RuleError(f"{call}: {name} needs {item.name!r}")
    if pending or known:
        what = f"{len(pending)} tensors more than it takes" if pending else f"no attribute {sorted(known)}"
        raise RuleError(f"{call}: {name} has {what}")
    if "self" in values and "self" not in operator.parameters and "x" in operator.parameters:
        values["x"] = values.pop("self")
    return values


def _attribute(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_attribute, value))
    return plain(value) if isinstance(value, Extent) else value


FROM_NOTHING: Mapping[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]] = {
    "size": lambda values: tuple(values["size"]),
    "m": lambda values: (values["n"], values["m"]),
    "n": lambda values: (values["n"], values["n"]),
}
"""The shape of a tensor that is made from attributes alone."""


Meaning: TypeAlias = "Callable[[tuple[Extent, ...]], Terms]"


def _shape_of(
    call: Call, operator: Operator, values: dict[str, Any], log: list[Element], scope: Scope
) -> tuple[tuple[Extent, ...], tuple[Tree, ...], Meaning]:
    used = {name: value for name, value in values.items() if name in operator.parameters}
    notation = Notation(operator, scope)
    tensors = [item for value in values.values() for item in (value if isinstance(value, list) else [value])]
    tensors = [item for item in tensors if isinstance(item, Symbol)]
    if operator.elementwise:
        shape = _broadcast(call, [item.tensor.shape for item in tensors])

        def scalars(index: tuple[Extent, ...]) -> Expression:
            places = tuple(map(plain, index))
            read = {name: item.broadcast(places) if isinstance(item, Symbol) else item for name, item in used.items()}
            body = operator.describe(**read)
            return expressions.value_of(body)

        names = [scope.variable() for _ in shape]
        scalars(tuple(map(Extent.of, names)))
        trees = _trees(shape, names, log)
        return shape, trees, lambda index: notation.terms(scalars(index))
    meaning = operator.describe(**used)
    if isinstance(meaning, Over):
        return _over(meaning, notation, log)
    if not tensors:
        key = next((key for key in FROM_NOTHING if key in values), None)
        if key is None:
            raise UnprovableError("the shape of what it makes does not follow from its attributes")
        shape = tuple(map(extent_of, FROM_NOTHING[key](values)))
        return shape, shape, lambda index: notation.terms(meaning(*map(plain, index)))
    failure: Exception | None = None
    for rank in sorted(range(MANY), key=lambda rank: rank != len(tensors[0].tensor.shape)):
        names = [scope.variable() for _ in range(rank)]
        log.clear()
        try:
            if len(parameter_names(meaning, rank)) != rank:
                continue
            body = meaning(*(Symbolic(Extent.of(name)) for name in names))
            joined = notation.explore(expressions.value_of(body))
            shape = tuple(_size(name, log, joined, scope) for name in names)
        except MismatchError:
            raise
        except (TypeError, ValueError, IndexError, StopIteration, RuntimeError) as error:
            failure = failure or error
            continue
        joined_trees = list(_trees(shape, names, log))
        for name, parts in joined.items():
            sources = [item.trees[names.index(name)] for item in (value.tensor for value in tensors)]
            if len(sources) == len(parts) and call.operator == "cat":
                tree: Tree = sources[0]
                for other in sources[1:]:
                    tree = (tree, other)
                joined_trees[names.index(name)] = tree
        return shape, tuple(joined_trees), lambda index: notation.terms(meaning(*map(plain, index)))
    raise UnprovableError(str(failure) if failure else "its result has too many dimensions")


def _broadcast(call: Call, shapes: list[tuple[Extent, ...]]) -> tuple[Extent, ...]:
    rank = max(map(len, shapes))
    result = []
    for dim in range(rank):
        sizes = {shape[dim - rank + len(shape)] for shape in shapes if dim - rank + len(shape) >= 0}
        sizes -= {Extent.of(1)}
        if len(sizes) > 1:
            raise MismatchError(*sorted(sizes, key=written)[:2])
        result.append(sizes.pop() if sizes else Extent.of(1))
    return tuple(result)


def _trees(shape: tuple[Extent, ...], names: list[str], log: list[Element]) -> tuple[Tree, ...]:
    trees: list[Tree] = list(shape)
    for element in log:
        for dim, index in enumerate(element.index):
            for place, name in enumerate(names):
                tree = element.tensor.trees[dim]
                if index == Extent.of(name) and element.tensor.shape[dim] == shape[place] and isinstance(tree, tuple):
                    trees[place] = tree
    return tuple(trees)


def _size(name: str, log: list[Element], joined: Mapping[str, list[Extent]], scope: Scope) -> Extent:
    """The extent of an output's dimension, from how its index reads."""
    if name in joined:
        return sum(joined[name], Extent())
    sizes = set()
    for element in log:
        for dim, index in enumerate(element.index):
            if name not in index.symbols:
                continue
            parts = linear(index, name)
            if parts is None:
                raise UnprovableError("an index is not affine")
            stride, rest = parts
            offset = put(rest, {other: Extent() for other in rest.symbols if other.startswith("$")})
            last = put(rest, {other: scope.sizes[other] - 1 for other in rest.symbols if other.startswith("$")})
            sizes.add(floor(element.tensor.shape[dim] - 1 - last - offset, stride) + 1)
    if len(sizes) > 1:
        raise MismatchError(*sorted(sizes, key=written)[:2])
    return sizes.pop() if sizes else Extent.of(1)


def _over(
    meaning: Over, notation: Notation, log: list[Element]
) -> tuple[tuple[Extent, ...], tuple[Tree, ...], Meaning]:
    sizes = tuple(map(extent_of, meaning.sizes))
    scope = notation.scope
    names = [scope.variable() for _ in sizes]
    scope.sizes |= dict(zip(names, sizes, strict=True))
    place, _body = meaning.body(*(Symbolic(Extent.of(name)) for name in names))
    last = {name: size - 1 for name, size in zip(names, sizes, strict=True)}
    shape = tuple(put(_index(item), last) + 1 for item in place)

    def terms(index: tuple[Extent, ...]) -> Terms:
        fresh = [scope.variable() for _ in sizes]
        scope.sizes |= dict(zip(fresh, sizes, strict=True))
        place, body = meaning.body(*(Symbolic(Extent.of(name)) for name in fresh))
        guards: list[Guard] = []
        known: dict[str, Extent] = {}
        for item, target in zip(map(_index, place), index, strict=True):
            name = next((name for name in fresh if item == Extent.of(name)), None)
            if name is not None and name not in known:
                known[name] = target
            else:
                guards.append(("==", item - target))
        if known:  # again, with the indices that are what they are
            values = {name: known.get(name, Extent.of(name)) for name in fresh}
            place, body = meaning.body(*(plain(values[name]) for name in fresh))
            guards = [(sign, put(extent, values)) for sign, extent in guards]
        bound = tuple((name, size) for name, size in zip(fresh, sizes, strict=True) if name not in known)
        return summed(guarded(notation.terms(expressions.value_of(body)), guards), bound)

    bare = [next((name for name in names if _index(item) == Extent.of(name)), "") for item in place]
    return shape, _trees(shape, bare, log), terms


def _index(item: Any) -> Extent:
    return extent_of(item)
