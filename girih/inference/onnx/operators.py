"""What an ONNX operator is here: a name, the opset since which it means that, and a function of tensors that PyTorch
computes.

Pages (`pages/`) hold operators. Of a function's parameters those before `*` are the operator's inputs in their order,
and those behind it its attributes. An attribute of older opsets that became an input later is given by that input's
name, so that one function serves both. Parameters in `known` are given as Python numbers and lists: shapes and axes,
which must not depend on data; those in `rather` are, where they do not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class OnnxOperator:
    """known, rather: names of parameters that are given by value. since: the first opset for which the function is
    right. exact: does the function take unsigned operands as they are, and not as int64?"""

    name: str
    function: Function
    known: frozenset[str] = frozenset()
    since: int = 1
    rather: frozenset[str] = frozenset()
    exact: bool = False

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs in order; without the last one where it takes any number."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(name for name, item in self.parameters.items() if item.kind in kinds)

    @cached_property
    def is_variadic(self) -> bool:
        return any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in self.parameters.values())


def operator(
    name: str, *, known: Iterable[str] = (), since: int = 1, rather: Iterable[str] = (), exact: bool = False
) -> Callable[[Function], OnnxOperator]:
    """Decorates the function of an operator."""
    return lambda function: OnnxOperator(name, function, frozenset(known), since, frozenset(rather), exact)


def each(functions: Mapping[str, Function]) -> tuple[OnnxOperator, ...]:
    """Operators that one expression computes, by name."""
    return tuple(OnnxOperator(name, function) for name, function in functions.items())


def named(functions: Mapping[str, Function]) -> tuple[OnnxOperator, ...]:
    """Operators of one tensor that are PyTorch's functions."""

    def of(function: Function) -> Function:
        return lambda x: function(x)

    return tuple(OnnxOperator(name, of(function)) for name, function in functions.items())


def pairs(functions: Mapping[str, Function]) -> tuple[OnnxOperator, ...]:
    """The same for operators of two tensors, broadcast."""

    def of(function: Function) -> Function:
        return lambda a, b: function(a, b)

    return tuple(OnnxOperator(name, of(function)) for name, function in functions.items())


def collected(pages: Iterable[ModuleType]) -> dict[str, tuple[OnnxOperator, ...]]:
    """All operators of pages by name, the latest first."""
    found: dict[str, list[OnnxOperator]] = {}
    for page in pages:
        for item in vars(page).values():
            for one in item if isinstance(item, tuple) else (item,):
                if isinstance(one, OnnxOperator):
                    found.setdefault(one.name, []).append(one)
    return {name: tuple(sorted(items, key=lambda item: -item.since)) for name, items in found.items()}
