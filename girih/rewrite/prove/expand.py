"""From a rule to sums of products: both sides in index notation, as the descriptions of its operators say.

Descriptions are functions of tensors and attributes, written for numbers; here they are given polynomials of symbols
in place of sizes, attributes and indices (`Symbolic`), so that what comes out holds for all of them. The size of a
result follows from how its indices read: `s·y + d·u - p` stays within a tensor of size h that has p more on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

from girih.ops import expressions
from girih.ops.catalogue import catalogue
from girih.ops.expressions import Applied, Choice, Constant, DescriptionError, Expression, Piecewise
from girih.ops.language import Over, PendingReduce, parameter_names
from girih.ops.operator import Operator
from girih.rewrite.prove.checker import divided, nonnegative
from girih.rewrite.prove.terms import (
    Facts,
    Fold,
    Function,
    Guard,
    Power,
    Read,
    Term,
    Terms,
    branch,
    guarded,
    linear,
    number,
    put,
    summed,
    times,
    value_of,
    written,
)
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Expression as Item, Rule, RuleError, Variable, walk
from girih.rewrite.rules.rule import Term as Call
from girih.rewrite.rules.vocabulary import MISSING, SPLIT, operator_named, parameters

MANY = 6
Tree: TypeAlias = "Extent | tuple[Tree, Tree]"


class UnprovableError(ValueError):
    """What the notation cannot say of a rule, with the reason."""


class DifferentShapesError(UnprovableError):
    """The two sides make tensors of other shapes, for some sizes."""


class MismatchError(UnprovableError):
    """Two sizes that have to be the same, and are not for all values of their symbols."""

    def __init__(self, one: Extent, other: Extent) -> None:
        super().__init__(f"sizes {written(one)} and {written(other)} are not the same for all shapes")
        self.one = one
        self.other = other


@dataclass(frozen=True)
class Symbolic(Expression):
    """A polynomial that descriptions take for a size, an attribute, an index or a number.

    Descriptions ask for special sizes only to say the same more simply, so a symbol is no number in particular.
    """

    extent: Extent

    def _with(self, other: Any, operation: Callable[[Extent, Extent], Extent]) -> Any:
        if isinstance(other, Symbolic):
            return Symbolic(operation(self.extent, other.extent))
        if isinstance(other, int):
            return Symbolic(operation(self.extent, Extent.of(other)))
        return None

    def __add__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: a + b)
        return super().__add__(other) if value is None else value

    def __radd__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: b + a)
        return super().__radd__(other) if value is None else value

    def __sub__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: a - b)
        return super().__sub__(other) if value is None else value

    def __rsub__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: b - a)
        return super().__rsub__(other) if value is None else value

    def __mul__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: a * b)
        return super().__mul__(other) if value is None else value

    def __rmul__(self, other: Any) -> Any:
        value = self._with(other, lambda a, b: a * b)
        return super().__rmul__(other) if value is None else value

    def __neg__(self) -> Any:
        return Symbolic(-self.extent)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        quotient, rest = divided(self.extent, extent_of(other))
        return plain(quotient), plain(rest)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return divmod(Symbolic(Extent.of(other)), self)

    def __mod__(self, other: Any) -> Any:
        return divmod(self, other)[1]

    def __floordiv__(self, other: Any) -> Any:
        return plain(floor(self.extent, extent_of(other)))

    def __rmod__(self, other: Any) -> Any:
        return divmod(Symbolic(Extent.of(other)), self)[1]

    def __rfloordiv__(self, other: Any) -> Any:
        return Symbolic(Extent.of(other)) // self

    def __lt__(self, other: Any) -> Any:
        if not isinstance(other, (int, Symbolic)):
            return super().__lt__(other)
        if any(name.startswith("$") for name in (extent_of(other) - self.extent).symbols):
            return super().__lt__(other)
        return self._below(extent_of(other) - self.extent)

    def __gt__(self, other: Any) -> Any:
        if not isinstance(other, (int, Symbolic)):
            return super().__gt__(other)
        if any(name.startswith("$") for name in (extent_of(other) - self.extent).symbols):
            return super().__gt__(other)
        return self._below(self.extent - extent_of(other))

    def _below(self, gap: Extent) -> bool:
        """Is the gap above zero, where sizes are not 1?"""
        least = Facts(least=dict.fromkeys(gap.symbols, 2))
        if nonnegative(gap - 1, least):
            return True
        if nonnegative(-gap, least):
            return False
        raise DescriptionError(f"the sign of {gap} is not known for all sizes")

    def __bool__(self) -> bool:
        return bool(self.extent.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Symbolic)) and self.extent == extent_of(other)

    def __hash__(self) -> int:
        return hash(self.extent)


FLOORS: dict[str, tuple[Extent, Extent]] = {}
"""What a symbol of a rounded quotient is, by its name, which says the same."""


def floor(numerator: Extent, divisor: Extent) -> Extent:
    """The quotient rounded down: a polynomial and, of what does not divide, a symbol."""
    quotient, rest = divided(numerator, divisor)
    if not rest.terms:
        return quotient
    if rest.number is not None and divisor.number is not None:
        return quotient + rest.number // divisor.number
    name = f"floor(({written(rest)})/({written(divisor)}))"
    FLOORS[name] = (rest, divisor)
    return quotient + Extent.of(name)


def extent_of(item: Any) -> Extent:
    if isinstance(item, Symbolic):
        return item.extent
    if isinstance(item, int):
        return Extent.of(int(item))
    raise UnprovableError(f"an index that is {item!r} is not affine")


def plain(extent: Extent) -> Any:
    """A number where it is one."""
    return extent.number if extent.number is not None else Symbolic(extent)


At: TypeAlias = "Callable[[tuple[Extent, ...]], Terms]"


@dataclass(frozen=True, eq=False)
class Tensor:
    """An input or an intermediate result. at: its element at an index, which lies in its shape. trees: how each
    dimension was concatenated."""

    shape: tuple[Extent, ...]
    at: At
    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class Element(Expression):
    tensor: Tensor
    index: tuple[Extent, ...]


@dataclass
class Scope:
    """Of one rule. sizes: of index variables that were made."""

    facts: Facts
    sizes: dict[str, Extent] = field(default_factory=dict)
    made: int = 0

    def variable(self) -> str:
        self.made += 1
        return f"${self.made}"


@dataclass(frozen=True, eq=False)
class Symbol:
    """A tensor as descriptions see it. log: of what is read."""

    tensor: Tensor
    name: str
    log: list[Element]
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(map(plain, self.tensor.shape))

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)

    def __getitem__(self, index: Any) -> Element:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) != self.rank or any(isinstance(item, slice) for item in items):
            raise UnprovableError("its description reads whole slices")
        element = Element(self.tensor, tuple(map(extent_of, items)))
        self.log.append(element)
        return element

    def broadcast(self, indices: tuple[Any, ...]) -> Element:
        aligned = indices[len(indices) - self.rank :]
        return self[tuple(0 if size == 1 else index for size, index in zip(self.shape, aligned, strict=True))]


# ------------------------------------------------------------------------------------------------ rules


@dataclass(frozen=True)
class Expanded:
    """Both sides of a rule at an element of each output. radices: the parts of each output's dimensions, by which its
    index is written (the channels of a grouped convolution are groups by channels of a group)."""

    source: tuple[Terms, ...]
    target: tuple[Terms, ...]
    facts: Facts


def expanded(rule: Rule, radix: Extent | None = None) -> Expanded:
    """The terms of both sides, with the shapes that the rule declares. radix: output dimensions that are multiples of
    it are indexed by two variables, the second one below it.

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
            tensors[item] = Tensor(shape, _reader(item.name), shape)
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
            if inner is None or divided(size, inner)[0].number == 1:
                index.append(Extent.of(name := scope.variable()))
                ranges[name] = size
            else:
                high, low = scope.variable(), scope.variable()
                ranges[high], ranges[low] = divided(size, inner)[0], inner
                index.append(Extent.of(high) * inner + Extent.of(low))
        scope.sizes |= ranges
        for side, tensor in zip(sides, (first, second), strict=True):
            side.append(tensor.at(tuple(index)))
    facts = Facts(ranges, scope.facts.least, FLOORS)
    return Expanded(tuple(sides[0]), tuple(sides[1]), facts)


def least_values(rule: Rule) -> dict[str, int]:
    """1 for sizes, strides and groups: no tensor is empty. 0 for what only pads."""
    least: dict[str, int] = {}
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Call):
            for name, value in item.attributes:
                for symbol in _symbols(value):
                    least[symbol] = max(least.get(symbol, 0), 0 if name in ("padding", "pad") else 1)
    for _, shape in rule.shapes:
        least |= dict.fromkeys((symbol for size in shape for symbol in size.symbols if symbol not in least), 1)
    for name, shape in rule.shapes:
        del name
        least |= {symbol: 1 for size in shape if len(size.terms) == 1 for symbol in size.symbols}
    return least


def extents_in(rule: Rule) -> set[str]:
    """Symbols that are written in a rule."""
    return set(least_values(rule))


def _symbols(value: Attribute) -> frozenset[str]:
    if isinstance(value, tuple):
        return frozenset(symbol for item in value for symbol in _symbols(item))
    return value.symbols if isinstance(value, Extent) else frozenset()


def _shape(tensor: Tensor) -> str:
    return f"[{', '.join(map(written, tensor.shape))}]"


def _reader(name: str) -> At:
    return lambda index: (Term(factors=(Read(name, index),)),)


# ------------------------------------------------------------------------------------------------ operators


def _applied(call: Call, operands: Sequence[Tensor], scope: Scope) -> Tensor:
    if call.operator == SPLIT:
        return _side(call, operands)
    name = operator_named(call.operator)
    operator = catalogue()[name]
    log: list[Element] = []
    arguments = _arguments(call, name, operands, log)
    if name == "aten.convolution" and len(operands) == 2:  # its description reads as many channels as the kernel has
        channels = operands[1].shape[1] * extent_of(arguments["groups"])
        if len(operands[0].shape) != len(operands[1].shape):
            raise UnprovableError(f"{call}: its operands have not as many dimensions")
        if channels != operands[0].shape[1]:
            raise MismatchError(operands[0].shape[1], channels)
    try:
        shape = _shape_of(call, operator, arguments, log, scope)
    except (DescriptionError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, (UnprovableError, RuleError)):
            raise
        raise UnprovableError(f"{call}: {name} is not described for symbols ({error})") from error
    size, trees, meaning = shape

    def at(index: tuple[Extent, ...]) -> Terms:
        try:
            return meaning(index)
        except (DescriptionError, TypeError, AttributeError) as error:
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
        elif item.name in known or (item.default is not MISSING and name == "aten.convolution"):
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
    notation = _Notation(operator, scope)
    tensors = [item for value in values.values() for item in (value if isinstance(value, list) else [value])]
    tensors = [item for item in tensors if isinstance(item, Symbol)]
    if operator.elementwise:
        shape = _broadcast(call, [item.tensor.shape for item in tensors])

        def scalars(index: tuple[Extent, ...]) -> Expression:
            places = tuple(map(plain, index))
            read = {name: item.broadcast(places) if isinstance(item, Symbol) else item for name, item in used.items()}
            body = operator.describe(**read)
            return expressions.value_of(body if operator.result is None else body)

        trees = _trees(shape, scalars(tuple(map(Extent.of, names := [scope.variable() for _ in shape]))), names, log)
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
        trees = list(_trees(shape, None, names, log))
        for name, parts in joined.items():
            tree: Tree = parts[0]
            sources = [item.trees[names.index(name)] for item in (value.tensor for value in tensors)]
            if len(sources) == len(parts) and call.operator == "cat":
                tree = sources[0]
                for other in sources[1:]:
                    tree = (tree, other)
                trees[names.index(name)] = tree
        return shape, tuple(trees), lambda index: notation.terms(meaning(*map(plain, index)))
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


def _trees(
    shape: tuple[Extent, ...], _: Expression | None, names: list[str], log: list[Element]
) -> tuple[Tree, ...]:
    trees: list[Tree] = list(shape)
    for element in log:
        for dim, index in enumerate(element.index):
            for place, name in enumerate(names):
                tree = element.tensor.trees[dim]
                if index == Extent.of(name) and element.tensor.shape[dim] == shape[place] and isinstance(tree, tuple):
                    trees[place] = tree
    return tuple(trees)


def _size(name: str, log: list[Element], joined: Mapping[str, list[Extent]], scope: Scope) -> Extent:
    """Of an output's dimension, by how its index reads."""
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
    meaning: Over, notation: _Notation, log: list[Element]
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
    return shape, _trees(shape, None, bare, log), terms


def _index(item: Any) -> Extent:
    return extent_of(item)


class _Notation:
    """Index expressions of one operator as terms."""

    def __init__(self, operator: Operator, scope: Scope) -> None:
        self.operator = operator
        self.scope = scope

    def explore(self, item: Expression) -> dict[str, list[Extent]]:
        """Goes through all that is read, and gives the sizes of what is concatenated along an index."""
        joined: dict[str, list[Extent]] = {}

        def visit(item: Expression) -> None:
            if isinstance(item, PendingReduce):
                visit(self._opened(item)[1])
            elif isinstance(item, Applied):
                for one in item.arguments:
                    visit(one)
            elif isinstance(item, Choice):
                for one in (item.condition, item.yes, item.no):
                    visit(one)
            elif isinstance(item, Piecewise):
                (name,) = extent_of(item.index).symbols
                bounds = [extent_of(bound) for bound in item.bounds]
                joined[name] = [high - low for low, high in zip(bounds, bounds[1:], strict=False)]
                for one in item.parts:
                    visit(one)

        visit(item)
        return joined

    def _opened(self, item: PendingReduce) -> tuple[list[tuple[str, Extent]], Expression]:
        sizes = None if item.sizes is None else list(map(extent_of, item.sizes))
        count = len(sizes) if sizes is not None else item.count
        names = [self.scope.variable() for _ in parameter_names(item.body, count)]
        if sizes is not None:
            self.scope.sizes |= dict(zip(names, sizes, strict=True))
        body = expressions.value_of(item.body(*(Symbolic(Extent.of(name)) for name in names)))
        if sizes is None:
            sizes = [self._read_size(name, body) for name in names]
            self.scope.sizes |= dict(zip(names, sizes, strict=True))
        return list(zip(names, sizes, strict=True)), body

    def _read_size(self, name: str, body: Expression) -> Extent:
        found: list[Extent] = []

        def visit(item: Expression) -> None:
            if isinstance(item, Element):
                for index, size in zip(item.index, item.tensor.shape, strict=True):
                    if index == Extent.of(name):
                        found.append(size)
            elif isinstance(item, Applied):
                for one in item.arguments:
                    visit(one)
            elif isinstance(item, Choice):
                for one in (item.condition, item.yes, item.no):
                    visit(one)

        visit(body)
        if not found:
            raise UnprovableError("no size follows for an index of a sum")
        if len(set(found)) > 1:
            raise MismatchError(*sorted(set(found), key=written)[:2])
        return found[0]

    def terms(self, item: Any) -> Terms:
        item = expressions.value_of(item)
        if isinstance(item, Constant):
            if isinstance(item.value, float) and item.value in (inf, -inf):
                return (Term(factors=(Function(str(item.value), ()),)),)
            return number(Fraction(item.value))
        if isinstance(item, Symbolic):
            return value_of(item.extent)
        if isinstance(item, Element):
            return guarded(item.tensor.at(item.index), self._inside(item))
        if isinstance(item, Choice):
            condition = self._condition(item.condition)
            yes, no = self.terms(item.yes), self.terms(item.no)
            if condition is None:
                return (Term(factors=(Function("select", (self.terms(item.condition), yes, no)),)),)
            return (*guarded(yes, condition), *no, *times(number(-1), guarded(no, condition)))
        if isinstance(item, Piecewise):
            index = extent_of(item.index)
            every: list[Term] = []
            for part, low, high in zip(item.parts, item.bounds, item.bounds[1:], strict=False):
                guards = []
                if low != 0:
                    guards.append((">=", index - extent_of(low)))
                if high is not item.bounds[-1]:
                    guards.append((">=", extent_of(high) - 1 - index))
                every += guarded(self.terms(part), guards)
            return tuple(every)
        if isinstance(item, PendingReduce):
            bound, body = self._opened(item)
            if item.reducer == "sum":
                return summed(self.terms(body), tuple(bound))
            guards = ()
            value: Terms
            if isinstance(body, Element) and item.reducer == "max" and self.operator.padding == -inf:
                guards, value = self._inside(body), body.tensor.at(body.index)
            else:
                value = self.terms(body)
            return (Term(factors=(Fold(item.reducer, (branch(value, tuple(bound), guards),)),)),)
        if isinstance(item, Applied):
            return self._function(item)
        raise UnprovableError(f"{type(item).__name__} has no normal form")

    def _inside(self, item: Element) -> tuple[Guard, ...]:
        """The conditions that a read is not outside of its tensor, where it may be."""
        guards: list[Guard] = []
        if self.operator.padding is None:
            return ()
        for index, size in zip(item.index, item.tensor.shape, strict=True):
            facts = Facts(self.scope.sizes, self.scope.facts.least, FLOORS)
            guards += [(">=", one) for one in (index, size - 1 - index) if not nonnegative(one, facts)]
        return tuple(guards)

    def _condition(self, item: Expression) -> list[Guard] | None:
        """Of indices alone, as guards that hold together; None if it is of values."""
        if not isinstance(item, Applied):
            return None
        if item.function == "and":
            parts = [self._condition(one) for one in item.arguments]
            return None if None in parts else [guard for part in parts for guard in part or ()]
        sides = [one if isinstance(one, Symbolic) else Symbolic(Extent.of(one.value))
                 if isinstance(one, Constant) and isinstance(one.value, int) else None for one in item.arguments]  # fmt: skip
        if len(sides) != 2 or None in sides:
            return None
        one, other = (extent_of(side) for side in sides)
        guards: dict[str, Guard] = {
            "eq": ("==", one - other), "ge": (">=", one - other), "le": (">=", other - one),
            "gt": (">=", one - other - 1), "lt": (">=", other - one - 1),
        }  # fmt: skip
        return [guards[item.function]] if item.function in guards else None

    def _function(self, item: Applied) -> Terms:
        name = item.function
        arguments = [self.terms(one) for one in item.arguments]
        if name == "add":
            return (*arguments[0], *arguments[1])
        if name == "sub":
            return (*arguments[0], *times(number(-1), arguments[1]))
        if name == "neg":
            return times(number(-1), arguments[0])
        if name == "mul":
            return times(*arguments)
        if name == "div":
            return times(arguments[0], _reciprocal(arguments[1]))
        if name == "reciprocal":
            return _reciprocal(arguments[0])
        if name in ("max", "min"):
            return (Term(factors=(Fold(name, tuple(map(branch, arguments))),)),)
        exponent = item.arguments[1] if name == "pow" else None
        if isinstance(exponent, Constant) and exponent.value in (2, 3):
            power = arguments[0]
            return prod_of([power] * int(exponent.value))
        return (Term(factors=(Function(name, tuple(arguments)),)),)


def prod_of(items: list[Terms]) -> Terms:
    result = number(1)
    for item in items:
        result = times(result, item)
    return result


def _reciprocal(terms: Terms) -> Terms:
    """Of a number and powers of sizes (which are not zero) exactly; else a function of which nothing is known."""
    if len(terms) == 1 and not terms[0].bound and not terms[0].guards:
        (term,) = terms
        if all(isinstance(factor, Power) and not factor.symbol.startswith("$") for factor in term.factors):
            powers = tuple(Power(factor.symbol, -factor.power) for factor in term.factors if isinstance(factor, Power))
            return (Term(1 / term.coefficient, (), (), powers),)
    return (Term(factors=(Function("reciprocal", (terms,)),)),)

