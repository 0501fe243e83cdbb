"""Both sides of a rule computed by PyTorch, on given sizes, attributes and integer tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from girih.graph import Ref
from girih.rewrite.prove.expand import least_values
from girih.rewrite.rules.rule import Expression, Rule, RuleError, Term, Variable, walk
from girih.rewrite.rules.vocabulary import Operand, call_of, trees_of

TOLERANCE = 1e-9
"""Relative; everything is computed in float64 from small integers, so that only quotients are rounded."""
MOST_ELEMENTS = 4096
MOST_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Instance:
    """symbols: sizes and attributes. tensors: by name, float64 with integer values."""

    symbols: Mapping[str, int]
    tensors: Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """Where the sides differ, and what they make there; reason: why there is nothing to compare. computable:
    can the target be computed?"""

    output: int
    source: Any
    target: Any
    reason: str = ""
    computable: bool = True


@contextmanager
def one_thread() -> Iterator[None]:
    """More would only wait for each other, where tensors are so small."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class InvalidError(ValueError):
    """Sizes and attributes that the source does not take."""


def symbols_of(rule: Rule) -> dict[str, int]:
    """Every symbol of a rule with the least value that it may have."""
    return dict(sorted(least_values(rule).items()))


def instances(rule: Rule, random: np.random.Generator, tries: int, most: int = 0) -> Iterator[Instance]:
    """Random ones whose shapes are none of them empty; sizes grow with the number of tries. most: of a size."""
    least = symbols_of(rule)
    for number in range(tries):
        spread = most or 2 + number * 4 // tries
        symbols = {name: low + int(random.integers(spread)) for name, low in least.items()}
        item = instance(rule, symbols, random)
        if item is not None:
            yield item


def instance(rule: Rule, symbols: Mapping[str, int], random: np.random.Generator) -> Instance | None:
    import torch

    tensors = {}
    for name, shape in rule.shapes:
        sizes = [size.value(symbols) for size in shape]
        if min(sizes, default=1) < 1 or np.prod(sizes) > MOST_ELEMENTS:
            return None
        tensors[name] = torch.from_numpy(random.integers(-3, 4, sizes).astype(np.float64))
    return Instance(symbols, tensors)


def difference(rule: Rule, item: Instance) -> Difference | None:
    """None where both sides are equal.

    Raises:
        InvalidError: the source does not take these shapes and attributes.
    """
    import torch

    source = computed(rule.source, item)
    try:
        target = computed(rule.target, item)
    except InvalidError as error:
        return Difference(0, None, None, f"the right side cannot be computed: {error}", False)
    for number, (one, other) in enumerate(zip(source, target, strict=True)):
        if one.shape != other.shape:
            return Difference(number, None, None, f"output {number}: {list(one.shape)} beside {list(other.shape)}")
        if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return Difference(number, one, other)
    return None


def computed(side: Sequence[Expression], item: Instance) -> list[Any]:
    """The outputs of a side.

    Raises:
        InvalidError: an operator does not take these shapes or attributes.
    """
    from girih.kernels.evaluate import call as compute

    values: dict[Expression, Any] = {}
    operands: dict[Expression, Operand] = {}
    for expression in walk(tuple(side)):
        if isinstance(expression, Variable):
            values[expression] = item.tensors[expression.name]
        else:
            read = [operands[argument] for argument in expression.arguments]
            held = {str(number): values[argument] for number, argument in enumerate(expression.arguments)}
            read = [Operand(str(at), operand.shape, operand.dtype, operand.trees) for at, operand in enumerate(read)]
            try:
                call = call_of(expression, read, item.symbols)
                _not_too_large(call.arguments)
                made = compute(call.operator, {name: _filled(value, held) for name, value in call.arguments})
                made = made.double() if made.is_floating_point() else made
            except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotImplementedError) as error:
                raise InvalidError(f"{expression}: {str(error).splitlines()[0]}") from error
            values[expression] = made
            operands[expression] = _operand(expression, read, made)
            continue
        shape = tuple(values[expression].shape)
        operands[expression] = Operand("", shape, "float64", shape)
    return [values[expression] for expression in side]


def _operand(expression: Term, read: list[Operand], made: Any) -> Operand:
    shape = tuple(made.shape)
    try:
        return Operand("", shape, "float64", trees_of(expression, read, shape))
    except RuleError as error:
        raise InvalidError(str(error)) from error


def _filled(argument: Any, held: Mapping[str, Any]) -> Any:
    if isinstance(argument, Ref):
        return held[argument.name]
    if isinstance(argument, tuple):
        return tuple(_filled(one, held) for one in argument)
    return argument


def _not_too_large(argument: Any) -> None:
    """Numbers in attributes are sizes, or add to sizes.

    Raises:
        InvalidError: they are too large to be tried.
    """
    numbers: list[int] = []

    def visit(item: Any) -> None:
        if isinstance(item, tuple):
            for one in item:
                visit(one)
        elif isinstance(item, int):
            numbers.append(max(1, abs(item)))

    visit(argument)
    if prod(numbers) > MOST_NUMBERS:
        raise InvalidError(f"attributes as large as {max(numbers)}")
