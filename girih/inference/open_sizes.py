"""A rewritten program for every size of its open dimensions, where it is one.

A captured graph has sizes as numbers: a reshape to [64, 512] is for a batch of 64. Here each such number becomes a size
of an input again, where the shapes say which: the program is gone through on fake tensors whose open dimensions are the
example's times a prime each, so that what is missing in a reshape names the dimension. That is a guess, and numbers may
have come of sizes in other ways (a mean that divides by 64); so the program is compared with the model at other sizes,
and PyTorch's exporter then proves that shapes hold for all. Cost: linear in the graph, and the calls for comparison."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from girih.graph import Graph, Node
from girih.inference.trial import same
from girih.kernels.evaluate import evaluate

Tensor = Any
Open = Mapping[int, str]
"""Names of a tensor's open dimensions."""
PRIMES = (10007, 10009, 10037, 10039)
_aten = torch.ops.aten
UNFIT = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What PyTorch's operators, and their checks of shapes, raise for arguments that do not fit each other."""
RESHAPES = (_aten.reshape.default, _aten.view.default, _aten._unsafe_view.default)
SIZED = {"aten.reshape": "shape", "aten.view": "size", "aten._unsafe_view": "size", "aten.expand": "size"}
"""Operators of a graph that have sizes as numbers, and under which name."""


@dataclass(frozen=True)
class Sizes:
    """A program's inputs: an example, the open dimensions of each, and the model as it was, a function of them."""

    example: tuple[Tensor, ...]
    open: tuple[Open, ...]
    answer: Callable[..., Any]

    @property
    def known(self) -> dict[str, int]:
        """The sizes that the example has, by name."""
        pairs = zip(self.example, self.open, strict=True)
        return {name: tensor.shape[dim] for tensor, names in pairs for dim, name in names.items()}

    def at(self, sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        """The example, repeated or cut to other sizes."""
        return tuple(map(lambda tensor, names: _resized(tensor, names, sizes), self.example, self.open))

    def others(self) -> tuple[dict[str, int], ...]:
        """Sizes for comparison, each name another one: some larger, some smaller, and 1."""
        known = list(self.known.items())
        ways: tuple[Callable[[int, int], int], ...] = (
            lambda size, k: size + 1 + 2 * k,
            lambda size, k: 2 * size + 3 + 2 * k,
            lambda size, k: max(2, size // 2 - k),
            lambda size, k: 1,
        )
        return tuple({name: way(size, number) for number, (name, size) in enumerate(known)} for way in ways)


def _resized(tensor: Tensor, names: Open, sizes: Mapping[str, int]) -> Tensor:
    for dim, name in names.items():
        tensor = tensor.index_select(dim, torch.arange(sizes[name]) % tensor.shape[dim])
    return tensor


def opened(module: torch.fx.GraphModule, sizes: Sizes) -> tuple[torch.fx.GraphModule, tuple[Tensor, ...]] | None:
    """The program for all sizes, and inputs of other sizes than the example's; None where none was found that computes
    what the model does."""
    if not 0 < len(sizes.known) <= len(PRIMES) or 0 in sizes.known.values():
        return None
    pairs = zip(sizes.example, sizes.open, strict=True)
    if any(tensor.shape[dim] != sizes.known[name] for tensor, names in pairs for dim, name in names.items()):
        return None
    try:
        program = _with_sizes(module, sizes)
    except UNFIT:  # a number that came of a size does not fit
        return None
    compared = []
    for other in sizes.others():
        inputs = sizes.at(other)
        try:
            with torch.no_grad():
                expected = sizes.answer(*inputs)
        except Exception:  # the user's model is not for this size, and may say so as it likes
            continue
        try:
            with torch.no_grad():
                alike = same(program(*inputs), tree_leaves(expected))
        except UNFIT:
            return None
        if not alike:
            return None
        compared.append(inputs)
    return (program, compared[0]) if len(compared) > 1 else None


def _with_sizes(module: torch.fx.GraphModule, sizes: Sizes) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    known = sizes.known
    prime = dict(zip(known, PRIMES, strict=False))
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    first: dict[str, torch.fx.Node] = {}
    values: dict[torch.fx.Node, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        for node, tensor, names in zip(inputs, sizes.example, sizes.open, strict=True):
            values[node] = _empty(tensor, names, {name: known[name] * prime[name] for name in known})
            for dim, name in names.items():
                if name not in first:
                    with graph.inserting_after(inputs[-1]):
                        first[name] = graph.call_function(_aten.sym_size.int, (node, dim))
                    values[first[name]] = values[node].shape[dim]
        for node in list(graph.nodes):
            if node in values or node.op == "output":
                continue
            if node.op == "get_attr":
                values[node] = getattr(module, node.target)
                continue
            _open(node, graph, known, prime, first, values)
            arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*arguments, **named)
    program = torch.fx.GraphModule(module, graph)
    graph.lint()
    return program


def _empty(tensor: Tensor, names: Open, sizes: Mapping[str, int]) -> Tensor:
    """A tensor without numbers like this one, whose open dimensions have these sizes."""
    shape = [sizes[names[dim]] if dim in names else size for dim, size in enumerate(tensor.shape)]
    return torch.empty(shape, dtype=tensor.dtype)


def resized(
    graph: Graph, weights: Mapping[str, Tensor], inputs: Sequence[str], sizes: Sizes, wanted: Mapping[str, int]
) -> Graph | None:
    """The graph with other sizes of its open dimensions, nodes and values under the same names; None where its numbers
    do not fit. It is a guess, to be compared with the model. inputs: the names of the tensors of `sizes`."""
    known = sizes.known
    if not 0 < len(known) <= len(PRIMES) or 0 in known.values():
        return None
    prime = dict(zip(known, PRIMES, strict=False))
    enlarged = {name: known[name] * prime[name] for name in known}
    nodes: list[Node] = []
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            large = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in weights.items()}
            other = dict(large)
            for name, tensor, open in zip(inputs, sizes.example, sizes.open, strict=True):
                large[name], other[name] = _empty(tensor, open, enlarged), _empty(tensor, open, wanted)
            for node in graph.nodes:
                one = two = node
                key, source = SIZED.get(node.operator, ""), node.inputs[0] if node.inputs else ""
                shape: Any = node.attributes.get(key)
                if isinstance(shape, tuple) and shape:
                    numbers, named = _numbers(shape, large[source], node.operator != "aten.expand", known, prime)
                    one = _with(node, key, _as_it_is(numbers, large[source]), named, enlarged)
                    two = _with(node, key, _as_it_is(numbers, other[source]), named, wanted)
                large.update(zip(node.outputs, evaluate(one, large), strict=True))
                other.update(zip(node.outputs, evaluate(two, other), strict=True))
                nodes.append(two)
    except UNFIT:
        return None
    values = {name: replace(value, shape=tuple(other[name].shape)) for name, value in graph.values.items()}
    return replace(graph, nodes=tuple(nodes), values=values)


def _with(
    node: Node, key: str, numbers: Sequence[int], named: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> Node:
    shape = tuple(
        number * math.prod(sizes[name] for name in names) for number, names in zip(numbers, named, strict=True)
    )
    return replace(node, arguments=tuple((name, shape if name == key else item) for name, item in node.arguments))


def _as_it_is(numbers: Sequence[int], source: Tensor) -> list[int]:
    """Sizes of an expansion that stay as they are (-1), as numbers."""
    new = len(numbers) - source.dim()
    return [source.shape[i - new] if number == -1 else number for i, number in enumerate(numbers)]


def _open(
    node: torch.fx.Node,
    graph: torch.fx.Graph,
    known: Mapping[str, int],
    prime: Mapping[str, int],
    first: Mapping[str, torch.fx.Node],
    values: dict[torch.fx.Node, Any],
) -> None:
    """Replace numbers of a shape by open sizes."""
    if node.target not in RESHAPES and node.target is not _aten.expand.default:
        return
    key = "shape" if node.target is _aten.reshape.default else "size"
    shape = node.kwargs.get(key, node.args[1] if len(node.args) > 1 else None)
    source = values[node.kwargs.get("self", node.args[0] if node.args else None)]  # type: ignore[index]
    if not isinstance(shape, (list, tuple)) or any(not isinstance(size, int) or size < 0 for size in shape):
        return
    numbers, named = _numbers(shape, source, node.target in RESHAPES, known, prime)
    entries: list[Any] = list(numbers)
    with graph.inserting_before(node):
        for i, names in enumerate(named):
            for name in names:
                before = entries[i]
                entries[i] = first[name] if before == 1 else graph.call_function(operator.mul, (first[name], before))
                value = values.get(before, before) if isinstance(before, torch.fx.Node) else before
                values[entries[i]] = value * known[name] * prime[name]
    if key in node.kwargs:
        node.kwargs = {**node.kwargs, key: entries}
    else:
        node.args = (node.args[0], entries, *node.args[2:])


def _numbers(
    shape: Sequence[int], source: Tensor, reshapes: bool, known: Mapping[str, int], prime: Mapping[str, int]
) -> tuple[list[int], list[list[str]]]:
    """(a shape's sizes without those that are open, -1 where an expansion leaves one as it is; which are open, each).

    source: what is reshaped or expanded, its open dimensions a prime each as large."""
    numbers = list(shape)
    named: list[list[str]] = [[] for _ in shape]
    if reshapes:
        missing = source.numel() // max(math.prod(shape), 1)
        for name in [name for name, number in prime.items() for _ in range(_power(missing, number))]:
            i = next((i for i, number in enumerate(numbers) if number % known[name] == 0), -1)  # the outermost
            if i < 0:
                raise ValueError(f"no size of {shape} is a multiple of {name}, which is {known[name]}")
            numbers[i] //= known[name]
            named[i].append(name)
    else:
        new = len(shape) - source.dim()
        for i, size in enumerate(shape):
            found = next((name for name, number in known.items() if number == size > 1), None)
            if i >= new and source.shape[i - new] != 1:
                numbers[i] = -1  # as it is
            elif found is not None and [found] not in named:
                numbers[i] = 1
                named[i].append(found)
    return numbers, named


def _power(number: int, prime: int) -> int:
    count = 0
    while number and number % prime == 0:
        number, count = number // prime, count + 1
    return count
