"""What depends on weights alone: computed once, before a model is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from girih.graph import Graph, Input
from girih.kernels.evaluate import evaluate

Tensor = Any


def constants(graph: Graph, weights: Collection[str]) -> frozenset[str]:
    """The values that nodes make of inputs in `weights` and of nothing else, and these inputs."""
    known = set(weights)
    for node in graph.nodes:
        if node.inputs and known.issuperset(node.inputs):
            known.update(node.outputs)
    return frozenset(known)


def folded(graph: Graph, weights: Mapping[str, Tensor]) -> tuple[Graph, dict[str, Tensor]]:
    """The graph without the nodes of weights alone, and the weights that it reads now, by name of its inputs.

    A result of the graph that is of weights alone stays a node.
    """
    import torch

    known = constants(graph, weights)
    values = dict(weights)
    leaving = {output.name for output in graph.outputs}
    nodes = []
    with torch.no_grad():
        for node in graph.nodes:
            alone = known.issuperset(node.outputs)
            if alone:
                values.update(zip(node.outputs, evaluate(node, values), strict=True))
            if not alone or leaving.intersection(node.outputs):
                nodes.append(node)
    read = {name for node in nodes for name in node.inputs} | leaving
    own = {item.name: item for item in graph.inputs}
    inputs = tuple(item for item in graph.inputs if item.name not in weights)
    inputs += tuple(
        own.get(name, Input(name, "parameter", name))
        for name in values
        if name in read and name not in leaving - set(own)
    )
    made = {name for node in nodes for name in node.outputs} | {item.name for item in inputs}
    kept = {name: value for name, value in graph.values.items() if name in made}
    smaller = replace(graph, inputs=inputs, nodes=tuple(nodes), values=kept)
    return smaller, {item.name: values[item.name].contiguous() for item in inputs if item.name in values}
