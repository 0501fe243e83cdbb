"""A rule: two ways to compute the same tensors, and as text.

    associative: a[m, k], b[k, n], c[n, p]: mm(a, mm(b, c)) == mm(mm(a, b), c)
    one_product: x[m, k], a[k, n], b[k, p]:
        (mm(x, a), mm(x, b)) == (split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])

Before the colon: the inputs, with sizes that are symbols, numbers, or sums and products of both; equal symbols are
equal sizes, which is the side condition of the rule. Without declared inputs, shapes are as general as operators
allow. An operator is an ATen operator of `girih.ops` by its name behind "aten.", or one of the operators of rules;
attributes are keywords: numbers, booleans, words, tuples, or symbols. Equal terms are one node: what is written twice
is computed once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from girih.rewrite.rules.extent import Extent

Attribute: TypeAlias = "bool | int | float | str | Extent | tuple[Attribute, ...]"


class RuleError(ValueError):
    """A text that is no rule; the message says which part of it is not."""


@dataclass(frozen=True)
class Variable:
    """An input of a rule."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Term:
    """An operator applied. attributes: sorted by name. result: which of its results, for operators with several."""

    operator: str
    arguments: tuple[Expression, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    result: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Terms are keys while rules are matched: of a deep one the hash is computed once."""
        return hash((self.operator, self.arguments, self.attributes, self.result))

    def __getstate__(self) -> dict[str, Any]:
        """Another process has other hashes."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    def __str__(self) -> str:
        keywords = (f"{name}={_written(value)}" for name, value in self.attributes)
        call = f"{self.operator}({', '.join([*map(str, self.arguments), *keywords])})"
        return call if self.result is None else f"{call}[{self.result}]"


Expression: TypeAlias = "Variable | Term"


@dataclass(frozen=True)
class Rule:
    """source may be replaced by target: output by output the same tensors.

    shapes: of the inputs, by name, in the order in which they are declared; an input that is not there may have any
    shape that the operators allow.
    """

    source: tuple[Expression, ...]
    target: tuple[Expression, ...]
    shapes: tuple[tuple[str, tuple[Extent, ...]], ...] = ()
    name: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names, as they first appear: declared, then in the source, then in the target."""
        names = dict.fromkeys(name for name, _ in self.shapes)
        for side in (self.source, self.target):
            names.update(dict.fromkeys(item.name for item in walk(side) if isinstance(item, Variable)))
        return tuple(names)

    @property
    def reverse(self) -> Rule:
        return Rule(self.target, self.source, self.shapes, self.name and f"{self.name}_reversed")

    def __str__(self) -> str:
        declared = ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in self.shapes)
        sides = (_side(self.source), _side(self.target))
        return ": ".join(part for part in (self.name, declared, " == ".join(sides)) if part)


def walk(side: tuple[Expression, ...]) -> Iterator[Expression]:
    """Every variable and term of a side once, arguments before what uses them."""
    known: set[Expression] = set()

    def visit(item: Expression) -> Iterator[Expression]:
        if item in known:
            return
        if isinstance(item, Term):
            for argument in item.arguments:
                yield from visit(argument)
        known.add(item)
        yield item

    for item in side:
        yield from visit(item)


def operators(side: tuple[Expression, ...]) -> int:
    """How many operators a side has: several results of one operator count once."""
    return len({(item.operator, item.arguments, item.attributes) for item in walk(side) if isinstance(item, Term)})


# ------------------------------------------------------------------------------------------------------ text


def parse_all(text: str) -> tuple[Rule, ...]:
    """The rules of a text, between which are empty lines."""
    return tuple(parse(" ".join(rule.split())) for rule in text.strip().split("\n\n"))


def parse(text: str) -> Rule:
    """The rule that a text says; `str` of a rule is such a text again.

    Raises:
        RuleError: for what is no rule, with the part that is not understood.
    """
    parts = [part.strip() for part in split_outside(text, ":")]
    *front, equation = parts
    if len(front) > 2:
        raise RuleError(f"{text!r} has {len(front)} colons; a rule is 'name: inputs: source == target'")
    name = front.pop(0) if front and "[" not in front[0] else ""
    if len(front) > 1:
        raise RuleError(f"{text!r} declares inputs twice; a rule is 'name: inputs: source == target'")
    compared = _tree(equation)
    if not isinstance(compared, ast.Compare) or len(compared.ops) != 1 or not isinstance(compared.ops[0], ast.Eq):
        raise RuleError(f"{equation!r} is no rule: one '==' stands between the two sides")
    source, target = _read_side(compared.left), _read_side(compared.comparators[0])
    if len(source) != len(target):
        raise RuleError(f"{equation!r} has {len(source)} outputs on the left, {len(target)} on the right")
    shapes = tuple(_declared(front[0])) if front else ()
    return Rule(source, target, shapes, name)


def split_outside(text: str, separator: str) -> list[str]:
    """Split at a letter where it stands outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleError(f"{text!r} is no rule: {error}") from error


def _declared(text: str) -> Iterator[tuple[str, tuple[Extent, ...]]]:
    tree = _tree(text)
    seen: set[str] = set()
    for item in tree.elts if isinstance(tree, ast.Tuple) else [tree]:
        if not isinstance(item, ast.Subscript) or not isinstance(item.value, ast.Name):
            raise RuleError(f"{ast.unparse(item)!r} declares no input; an input is written 'a[m, k]'")
        if item.value.id in seen:
            raise RuleError(f"input {item.value.id!r} is declared twice")
        seen.add(item.value.id)
        sizes = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
        yield item.value.id, tuple(map(_size, sizes))


def _size(tree: ast.expr) -> Extent:
    match tree:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return Extent.of(number)
        case ast.Name(id=name):
            return Extent.of(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _size(left) + _size(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _size(left) - _size(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _size(left) * _size(right)
    raise RuleError(f"{ast.unparse(tree)!r} is no size: sizes are numbers, symbols, and their sums and products")


def _read_side(tree: ast.expr) -> tuple[Expression, ...]:
    return tuple(map(_read, tree.elts)) if isinstance(tree, ast.Tuple) else (_read(tree),)


def _read(tree: ast.expr) -> Expression:
    match tree:
        case ast.Name(id=name):
            return Variable(name)
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(result))) if result >= 0:
            term = _read(call)
            assert isinstance(term, Term)
            return Term(term.operator, term.arguments, term.attributes, result)
        case ast.Call(func=ast.Name() | ast.Attribute() as function, args=arguments, keywords=keywords):
            attributes = tuple(sorted((item.arg or "", _attribute(item.value)) for item in keywords))
            if any(not name for name, _ in attributes):
                raise RuleError(f"{ast.unparse(tree)!r}: attributes are written by name, 'dim=1'")
            return Term(ast.unparse(function), tuple(map(_read, arguments)), attributes)
    raise RuleError(f"{ast.unparse(tree)!r} is neither an input nor an operator with its arguments")


def _attribute(tree: ast.expr) -> Attribute:
    match tree:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(map(_attribute, items))
    return _size(tree)


def _side(side: tuple[Expression, ...]) -> str:
    return str(side[0]) if len(side) == 1 else f"({', '.join(map(str, side))})"


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))}{',' if len(value) == 1 else ''})"
    return str(value) if isinstance(value, Extent) else repr(value)
