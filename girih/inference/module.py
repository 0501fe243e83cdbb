"""A graph of inference as a PyTorch module: one call for each node, weights as buffers.

What `torch.fx` knows of is what `torch.compile`, `torch.export` and TorchScript take.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from girih.graph import Argument, Graph, Node, Ref
from girih.inference.strided import CHANNELS_LAST, COLUMNS, laid, turned_product
from girih.inference.winograd import Winograd
from girih.kernels.evaluate import makes_from_nothing, resolve
from girih.kernels.onednn import CONVOLUTION, FUNCTIONS, PRODUCT, adds, packed
from girih.rewrite.ways import ROWS, Way

Tensor = Any


ATEN, ONEDNN, BY_TILES = "aten", "onednn", "winograd"
TURN, IN_COLUMNS = "turned", ", weight in columns"
"""Kernels of products: (BᵀAᵀ)ᵀ in the place of AB, and weights whose columns lie together."""


@dataclass(frozen=True)
class FusedCall:
    """Nodes that one call computes: a convolution or a product, the weight that is added to it, another tensor that is
    added (the other branch of a residual block), a function of that."""

    root: Node
    nodes: tuple[Node, ...]
    bias: str | None = None
    added: str | None = None
    function: str | None = None


def module_of(
    graph: Graph, weights: Mapping[str, Tensor], ways: Mapping[str, Way] | None = None
) -> torch.fx.GraphModule:
    """The module takes the graph's other inputs, in their order, and returns its outputs as a tuple.

    weights: tensors by the names of inputs. A convolution's bias that was added behind it goes into its call. ways: by
    the name of a node, the kernel and the layouts that were chosen for it, where it is not PyTorch's own: tensors are
    brought into the layout in which they are read, once for each, and weights into the order that oneDNN likes.
    """
    way_of: Mapping[str, Way] = ways or {}
    holder, traced = nn.Module(), torch.fx.Graph()
    made: dict[str, torch.fx.Node] = {}
    for item in graph.inputs:
        if item.name not in weights:
            made[item.name] = traced.placeholder(_identifier(item.name))

    def weight(tensor: Tensor) -> torch.fx.Node:
        name = f"weight_{len(list(holder.buffers()))}"
        holder.register_buffer(name, tensor)
        return traced.get_attr(name)

    lies: dict[str, str] = {}
    converted: dict[tuple[str, str], torch.fx.Node] = {}

    def of(argument: Argument, wanted: Mapping[str, str] | None = None) -> Any:
        if isinstance(argument, tuple):
            return [of(item, wanted) for item in argument]
        if not isinstance(argument, Ref):
            return argument
        name = argument.name
        if name not in made:
            made[name] = weight(weights[name])
        layout = ROWS if wanted is None or name in weights else wanted.get(name, ROWS)
        if name in weights or layout == lies.get(name, ROWS):
            return made[name]
        if (name, layout) not in converted:
            converted[name, layout] = traced.call_function(laid, (made[name], layout))
        return converted[name, layout]

    def wanted_by(node: Node) -> dict[str, str]:
        way = way_of.get(node.name)
        return {} if way is None else dict(zip(node.inputs, way.reads, strict=True))

    def call(node: Node, **more: torch.fx.Node) -> torch.fx.Node:
        way = way_of.get(node.name)
        if way is not None and node.operator == PRODUCT and way.kernel not in (ATEN, ONEDNN):
            return product(node, way)
        keywords = {name: of(value, wanted_by(node)) for name, value in node.arguments} | more
        if isinstance(keywords.get("dtype"), str):
            keywords["dtype"] = getattr(torch, keywords["dtype"])
        if makes_from_nothing(node.operator):
            keywords["device"] = torch.device("cpu")
        return traced.call_function(resolve(node.operator), (), keywords)

    def product(node: Node, way: Way) -> torch.fx.Node:
        operands = [
            weight(laid(weights[name], COLUMNS))
            if name in weights and way.kernel.endswith(IN_COLUMNS)
            else of(Ref(name), wanted_by(node))
            for name in node.inputs
        ]
        return traced.call_function(turned_product if way.kernel.startswith(TURN) else torch.mm, tuple(operands))

    def may_overwrite(kernel: FusedCall) -> bool:
        """May the result be written over what is added? That must be memory of its own, and not be read afterwards."""
        name, last = kernel.added, kernel.nodes[-1].name
        if name is None or name in leaving or name == kernel.root.inputs[0] or name not in graph.producer:
            return False
        maker = whole.get(graph.nodes[graph.producer[name]].name)
        readers = [ends.get(graph.nodes[reader].name) for reader in graph.consumers[name]]
        if maker is None or chosen.get(maker.root.name) != ONEDNN or None in readers:
            return False
        return all(position[reader] <= position[last] for reader in readers if reader is not None)

    def onednn(kernel: FusedCall) -> torch.fx.Node:
        root, bias = kernel.root, kernel.bias
        layout = way_of[root.name].makes
        over = layout == CHANNELS_LAST == lies.get(kernel.added or "") and may_overwrite(kernel)
        order, function, behind = packed(
            root.operator,
            root.attributes,
            weights[root.inputs[1]],
            graph.values[root.inputs[0]].shape,
            kernel.function,
            kernel.added is not None,
            over,
        )
        bias_or_none = None if bias is None else weight(weights[bias].reshape(-1))
        data = [of(Ref(root.inputs[0]), wanted_by(root))]
        if kernel.added is not None:  # as the result lies
            data.insert(0 if over else 1, of(Ref(kernel.added), {kernel.added: layout}))
        return traced.call_function(function, (*data, weight(order), bias_or_none, *behind))

    def by_tiles(kernel: FusedCall) -> torch.fx.Node:
        root, bias = kernel.root, None if kernel.bias is None else weights[kernel.bias]
        shape, relu = graph.values[root.inputs[0]].shape, kernel.function is not None
        name = f"convolution_{sum(1 for _ in holder.children())}"
        holder.add_module(name, Winograd(root.attributes, weights[root.inputs[1]], shape, bias, relu))
        return traced.call_module(name, (of(Ref(root.inputs[0]), wanted_by(root)),))

    chosen = {name: way.kernel for name, way in way_of.items()}
    whole = {kernel.nodes[-1].name: kernel for kernel in calls(graph, weights, chosen)}
    inside = {node.name for kernel in whole.values() for node in kernel.nodes[:-1]}
    ends = {node.name: last for last, kernel in whole.items() for node in kernel.nodes}
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    leaving = {output.name for output in graph.outputs}
    for node in graph.nodes:
        if node.name in inside:
            continue
        kind = chosen.get(whole[node.name].root.name) if node.name in whole else None
        if node.name not in whole:
            result = call(node)
        elif kind == ONEDNN:
            result = onednn(whole[node.name])
        elif kind == BY_TILES:
            result = by_tiles(whole[node.name])
        else:
            kernel = whole[node.name]
            bias = {} if kernel.bias is None else {"bias": weight(weights[kernel.bias].reshape(-1))}
            result = call(kernel.root, **bias)
        if len(node.outputs) == 1:
            made[node.outputs[0]] = result
        else:
            for number, output in enumerate(node.outputs):
                made[output] = traced.call_function(operator.getitem, (result, number))
        root = whole[node.name].root if node.name in whole else node
        if root.name in way_of:
            lies |= dict.fromkeys(node.outputs, way_of[root.name].makes)
    traced.output(tuple(of(Ref(output.name)) for output in graph.outputs))
    return torch.fx.GraphModule(holder, traced)


def calls(graph: Graph, weights: Collection[str], kernels: Mapping[str, str]) -> Iterator[FusedCall]:
    """Convolutions and products of weights, each with the nodes behind it that its call computes too: a bias; where the
    kernel is oneDNN's, a tensor that is added and a function of the result, and relu where it is Winograd's."""
    leaving = {output.name for output in graph.outputs}
    taken: set[str] = set()  # of two convolutions that are added the first computes the sum
    for root in graph.nodes:
        onednn = kernels.get(root.name) == ONEDNN
        functions = FUNCTIONS if onednn else ("aten.relu",) if kernels.get(root.name) == BY_TILES else ()
        if root.operator != CONVOLUTION and not (onednn and root.operator == PRODUCT):
            continue
        if len(root.inputs) != 2 or root.inputs[1] not in weights or root.attributes.get("bias") is not None:
            continue
        kernel = FusedCall(root, (root,))
        while (node := _only_reader(graph, kernel.nodes[-1], leaving)) is not None and kernel.function is None:
            if node.name in taken:
                break
            bias, other = _added(graph, node, kernel.nodes[-1].outputs[0], weights)
            if kernel.bias is None and kernel.added is None and bias is not None:
                kernel = replace(kernel, nodes=(*kernel.nodes, node), bias=bias)
            elif onednn and kernel.added is None and other is not None:
                kernel = replace(kernel, nodes=(*kernel.nodes, node), added=other)
            elif node.operator in functions and (kernel.added is None or adds(root.operator, node.operator)):
                kernel = replace(kernel, nodes=(*kernel.nodes, node), function=node.operator)
            else:
                break
        taken.update(node.name for node in kernel.nodes)
        yield kernel


def _only_reader(graph: Graph, node: Node, leaving: Collection[str]) -> Node | None:
    (name,) = node.outputs
    users = graph.consumers[name]
    return graph.nodes[users[0]] if len(users) == 1 and name not in leaving else None


def _added(graph: Graph, node: Node, of: str, weights: Collection[str]) -> tuple[str | None, str | None]:
    """What a node adds to a value: (a weight, with a number for each channel; what has the same shape and dtype)."""
    if node.operator != "aten.add.Tensor" or len(node.inputs) != 2 or node.attributes.get("alpha", 1) != 1:
        return None, None
    other = node.inputs[1] if node.inputs[0] == of else node.inputs[0]
    one, two = graph.values[of], graph.values[other]
    if other in weights:
        return other if _is_bias(two.shape, one.shape) else None, None
    return None, other if (one.shape, one.dtype) == (two.shape, two.dtype) else None


def _is_bias(shape: tuple[int, ...], of: tuple[int, ...]) -> bool:
    """Is it a number for each channel, which is the second dimension?"""
    rank = len(of)
    return len(shape) in (rank, rank - 1) and ((1,) * (rank - len(shape)) + shape) == (1, of[1], *(1,) * (rank - 2))


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
