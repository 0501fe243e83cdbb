"""Run operators and whole graphs on PyTorch: one meaning for the worker, the tests and the user.

`interpret` runs the undivided graph on one device: it is the oracle that every plan is compared with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import torch

from girih.graph import Graph, GraphError, Node, Ref
from girih.kernels.own import KERNELS
from girih.ops.catalogue import catalogue
from girih.ops.gate import is_name, is_safe

Tensor = Any  # torch is untyped for the type checker
Observer = Callable[[Node, tuple[Tensor, ...]], None]


@cache
def resolve(operator: str) -> Callable[..., Any]:
    """The PyTorch function behind `aten.mm`, `aten.add.Tensor` or `girih.NAME`.

    Graphs from files were at the gate before (`girih.ops.gate`); a captured one may also call operators of the user's
    own program. Of PyTorch's, those that are not listed must at least open no file, and write to no argument.

    Raises:
        GraphError: no such operator in this PyTorch or in `KERNELS`, or one that no graph may call.
    """
    space, _, rest = operator.partition(".")
    if not is_name(operator):
        raise GraphError(f"{operator!r} is no operator's name: expected such as aten.mm or aten.add.Tensor")
    if space == "girih":
        if operator not in KERNELS:
            raise GraphError(f"{operator!r} is unknown; girih's own operators are {', '.join(sorted(KERNELS))}")
        return KERNELS[operator]
    name, _, overload = rest.partition(".")
    described = catalogue().get(operator)
    if described is not None and described.module:
        import_module(described.module)
    try:
        packet = getattr(getattr(torch.ops, space), name)
        function = getattr(packet, overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise GraphError(f"PyTorch {torch.__version__} has no operator {operator!r}") from error
    if not isinstance(function, torch._ops.OpOverload):
        raise GraphError(f"PyTorch {torch.__version__} has no operator {operator!r}: {operator} is something else")
    if space == "aten" and not is_safe(operator) and (why := _harm(function)):
        raise GraphError(f"{operator} {why}: a graph holds functions of tensors and numbers alone")
    return function  # type: ignore[no-any-return]


def _harm(operator: Any) -> str:
    """What an operator of PyTorch's does beside computing; "" for nothing that its schema says."""
    for item in operator._schema.arguments:
        if item.name == "filename":
            return "opens a file"
        if item.is_out or (item.alias_info is not None and item.alias_info.is_write):
            return f"writes to {item.name}"
    return ""


def call(operator: str, arguments: Mapping[str, Any], device: Any = None) -> Any:
    """Apply an operator to arguments by name: tensors, numbers, strings for dtypes, tuples for lists.

    device: where operators without tensor arguments put their result.
    """
    plain = {name: as_torch(name, value) for name, value in arguments.items()}
    if device is not None and makes_from_nothing(operator):
        plain["device"] = device
    return resolve(operator)(**plain)


@cache
def makes_from_nothing(operator: str) -> bool:
    """Does an operator take no tensor, so that it must be told on which device its result is to be?"""
    function = resolve(operator)
    if isinstance(function, torch._ops.OpOverload):
        types = {item.name: str(item.type) for item in function._schema.arguments}
    else:
        types = {name: str(item.annotation) for name, item in inspect.signature(function).parameters.items()}
    return "device" in types and not any("Tensor" in kind for kind in types.values())


def as_torch(name: str, value: Any) -> Any:
    """An argument as PyTorch takes it: lists for tuples, and dtypes for their names."""
    if isinstance(value, tuple):
        return [as_torch("", item) for item in value]
    if name == "dtype" and isinstance(value, str):
        return getattr(torch, value)
    return value


def evaluate(node: Node, values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """One node's outputs from the values it reads."""

    def fill(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return values[argument.name]
        if isinstance(argument, tuple):
            return tuple(fill(item) for item in argument)
        return argument

    try:
        results = call(node.operator, {name: fill(value) for name, value in node.arguments})
    except Exception as error:
        error.add_note(f"in node {node.name!r}: {node.operator}, {node.source or 'no source line'}")
        raise
    return (results,) if len(node.outputs) == 1 else tuple(results)


def interpret(graph: Graph, inputs: Mapping[str, Tensor], observe: Observer | None = None) -> dict[str, Tensor]:
    """The graph's outputs by name; values are freed after their last use.

    inputs: a tensor for each of the graph's inputs, by name. They are not written to, but an output may
    share memory with an input. observe: called after every node with the node and what it made.

    Raises:
        ValueError: an input is missing or has another shape or dtype than the graph says.
    """
    _check_inputs(graph, inputs)
    values = dict(inputs)
    wanted = {output.name for output in graph.outputs}
    last = {name: users[-1] if users else -1 for name, users in graph.consumers.items()}
    with torch.no_grad():
        for index, node in enumerate(graph.nodes):
            results = evaluate(node, values)
            values.update(zip(node.outputs, results, strict=True))
            if observe is not None:
                observe(node, results)
            for name in {*node.inputs, *node.outputs}:
                if last[name] <= index and name not in wanted:
                    del values[name]
    return {output.name: values[output.name] for output in graph.outputs}


def _check_inputs(graph: Graph, inputs: Mapping[str, Tensor]) -> None:
    for item in graph.inputs:
        expected = graph.values[item.name]
        if item.name not in inputs:
            raise ValueError(f"input {item.name!r} ({item.role} {item.path!r}) is missing")
        tensor = inputs[item.name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        if (tuple(tensor.shape), dtype) != (expected.shape, expected.dtype):
            raise ValueError(
                f"input {item.name!r} must be {expected.dtype}{list(expected.shape)}, got {dtype}{list(tensor.shape)}"
            )
