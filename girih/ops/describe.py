"""From a node of a graph to its description, cached by operator, shapes and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from girih.graph import Argument, Graph, Node, Ref
from girih.ops.catalogue import catalogue
from girih.ops.language import DescriptionError, TensorSymbol
from girih.ops.operator import Description, TensorType, describe


def description_of(graph: Graph, node: Node) -> Description | None:
    """What a node with one output computes, for its shapes; None if nobody has described it (it then runs undivided).

    Nodes of equal operator, shapes and attributes share one Description object.
    """
    descriptions = descriptions_of(graph, node) if len(node.outputs) == 1 else ()
    return descriptions[0] if descriptions else None


def first_description(graph: Graph, node: Node) -> Description | None:
    """The description of a node's first output; what can be divided is the same for all of them."""
    descriptions = descriptions_of(graph, node)
    return descriptions[0] if descriptions else None


def descriptions_of(graph: Graph, node: Node) -> tuple[Description, ...]:
    """What a node computes, one Description for each of its outputs; none if nobody has described it."""
    names: list[str] = []
    tensors: list[TensorType] = []
    attributes: list[tuple[str, Argument]] = []
    for name, argument in node.arguments:
        if isinstance(argument, Ref):
            names.append(name)
            tensors.append(_type(graph, argument))
        elif isinstance(argument, tuple) and any(isinstance(item, Ref) for item in argument):
            for position, item in enumerate(argument):
                if isinstance(item, Ref):
                    names.append(f"{name}.{position}")
                    tensors.append(_type(graph, item))
        else:
            attributes.append((name, argument))
    key = node.operator, tuple(tensors), tuple(names), tuple(attributes)
    several = len(node.outputs) > 1
    descriptions = []
    for result, name in enumerate(node.outputs):
        output = graph.values[name]
        description = _describe(*key, TensorType(output.shape, output.dtype), result if several else None)
        if description is None:
            return ()
        descriptions.append(description)
    return tuple(descriptions)


def describe_call(
    operator: str,
    tensors: Mapping[str, TensorType],
    attributes: Mapping[str, Any],
    output: TensorType,
    result: int | None = None,
) -> Description | None:
    """What a call computes that is not in a graph: tensors by schema name (`tensors.0` in a list), attributes.

    result: which of several results `output` is.
    """
    return _describe(operator, tuple(tensors.values()), tuple(tensors), tuple(attributes.items()), output, result)


def _type(graph: Graph, ref: Ref) -> TensorType:
    value = graph.values[ref.name]
    return TensorType(value.shape, value.dtype)


@lru_cache(maxsize=65536)
def _describe(
    operator: str,
    tensors: tuple[TensorType, ...],
    names: tuple[str, ...],
    attributes: tuple[tuple[str, Any], ...],
    output: TensorType,
    result: int | None,
) -> Description | None:
    item = catalogue().get(operator)
    if item is None or (item.results > 1) != (result is not None):
        return None
    if item.condition is not None:
        symbols = {
            name: TensorSymbol(number, name, tensor.shape, tensor.dtype)
            for number, (name, tensor) in enumerate(zip(names, tensors, strict=True))
        }
        if not item.condition(symbols, dict(attributes)):
            return None
    try:
        return describe(item, tensors, names, dict(attributes), output, result)
    except DescriptionError:
        return None
