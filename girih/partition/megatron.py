"""Megatron-LM's tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053, §3), on blocks recognised in the graph.

On the devices of the innermost level of the machine:

- MLP: the first matrix is cut by columns, the second by rows; what lies between, each device computes of its columns.
- Attention: the matrices of queries, keys and values are cut by columns, whole heads to each device; the output's by
  rows.
- The embedding is cut along the vocabulary, and with it the matrix in front of the loss; the loss of each token is
  computed from the parts (parallel cross-entropy).
- Everything else (norms, residuals, dropouts, other embeddings) is computed by each device for itself.

So a block has one all-reduce in the forward pass (the paper's g) and one in the backward pass (f), of
[batch, sequence, hidden] each. The batch is divided over the outer levels, which is data parallelism.

Blocks are recognised by their dataflow, not by names. From the input of each product with a weight we walk back to the
products with weights before it; if a cut of their columns can be followed through every operator between and ends as a
cut of the terms of that product, and nowhere else, these are a block. Then all cuts are followed through the backward
pass and the update as well; a block whose cut cannot be followed everywhere is left whole, and the certificate says so.

Where we differ: a weight that stacks queries, keys and values, as GPT-2's was released, holds no device's heads side by
side. Megatron stores it in another order; here its attention is left whole. Vocabularies are not padded: parts are
uneven. What is left open (where sums of parts are reduced, how the gradients of outer levels meet) the exact search
chooses.

Cost: one walk over the nodes for each candidate block, then the exact search over few choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from girih.graph import Graph, Node
from girih.layout import PARTIAL, REPLICATE, Layout, Mesh
from girih.ops import Description
from girih.ops.derive import divisible, passing_sets
from girih.ops.expressions import Affine
from girih.ops.known import descriptions
from girih.partition.baselines import along, along_the_batch, batch_dimensions
from girih.partition.exact import exact
from girih.partition.heads import heads_apart
from girih.partition.layers import graph_makers
from girih.partition.options import SECONDS, division_codes, joined_codes, value_layouts
from girih.partition.problem import Candidates, Objective
from girih.partition.strategy import PASS, REPEAT, SearchError, SearchResult

ATTENTION, NETWORK, VOCABULARY = "attention block", "MLP", "vocabulary"
PRODUCTS = frozenset({"girih.head_product", "aten.bmm", "aten.mm"})
EMBEDDINGS = frozenset({"girih.embedding", "aten.embedding"})


def megatron(graph: Graph, objective: Objective, *, seconds: float = 60.0) -> SearchResult:
    """Megatron-LM's tensor parallelism on the innermost level, data parallelism outside of it.

    Raises:
        SearchError: the graph has no block that can be divided so.
    """
    apart = heads_apart(graph)
    mesh = objective.machine.mesh
    inner = len(objective.machine.levels[-1].axes)
    within = Mesh(mesh.sizes[mesh.axes - inner :])
    found = recognised(apart, within.devices)
    if not any(block.kind != VOCABULARY for block in found.blocks):
        raise SearchError(
            "this program has no attention block or MLP (products with two weights, one behind the other) that divides "
            f"over {within.devices} devices as Megatron's do{found.left_whole}: search with `exact` or `data`, or take "
            "as many devices in a host as divide the heads"
        )
    candidates = _candidates(apart, mesh, Mesh(mesh.sizes[: mesh.axes - inner]), found.flow)
    result = exact(apart, objective, rules=SECONDS, candidates=candidates, seconds=seconds, space=found.space)
    return result if apart is graph else replace(result, graph=apart)


# ------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Block:
    """kind: ATTENTION, NETWORK or VOCABULARY. cuts: of each parameter, by its input's name, the dimension that is cut."""

    kind: str
    cuts: Mapping[str, int]


@dataclass(frozen=True)
class Recognised:
    """blocks: what is divided; whole: how many attention blocks are not. flow: what follows for nodes and values."""

    blocks: tuple[Block, ...]
    whole: int
    flow: Flow

    def count(self, kind: str) -> int:
        return sum(block.kind == kind for block in self.blocks)

    @property
    def left_whole(self) -> str:
        if not self.whole:
            return ""
        many = _many(self.whole, ATTENTION)
        return f"; {many} left whole: the heads do not divide, or one weight stacks queries, keys and values"

    @property
    def space(self) -> str:
        parts = [_many(self.count(kind), kind) for kind in (ATTENTION, NETWORK)]
        parts += ["the vocabulary"] * bool(self.count(VOCABULARY))
        return (
            f"Megatron-LM: {', '.join(parts)} divided over {self.flow.devices} devices, all else repeated there; the "
            f"batch over the others{self.left_whole}"
        )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def recognised(graph: Graph, devices: int) -> Recognised:
    """The blocks of a graph that divide over so many devices, and what follows for every node and value."""
    blocks, whole = _blocks(graph, devices)
    blocks += _vocabularies(graph, devices)
    while True:
        flow = Flow(graph, devices).followed(blocks)
        if not flow.stuck:
            return Recognised(tuple(blocks), whole, flow)
        whole += sum(blocks[number].kind == ATTENTION for number in flow.stuck)
        blocks = [block for number, block in enumerate(blocks) if number not in flow.stuck]


@dataclass(frozen=True)
class Weighted:
    """A product with a parameter. columns, terms: the parameter's dimension that the product's result has, and the one
    that it sums over; other: the name of the other factor."""

    parameter: str
    columns: int
    terms: int
    other: str


def _blocks(graph: Graph, devices: int) -> tuple[list[Block], int]:
    """Attention blocks and MLPs by their forward pass alone, and how many attention blocks there are besides."""
    weighted, makers = _weighted(graph), graph_makers(graph)
    used: set[int] = set()
    found, whole = [], 0
    for last, product in weighted.items():
        first, attends = _before(graph, makers, weighted, last)
        if not first or used & {last, *first}:
            continue
        cuts = {weighted[number].parameter: weighted[number].columns for number in first}
        alone = product.parameter not in cuts and len(cuts) == len(first)  # no weight is used twice
        block = Block(ATTENTION if attends else NETWORK, {**cuts, product.parameter: product.terms})
        flow = Flow(graph, devices).followed([block], forward=True)
        if alone and not flow.stuck and flow.ends == {last}:
            found.append(replace(block, cuts={**block.cuts, **flow.beside()}))
            used |= {last, *first}
        else:
            whole += attends
    return found, whole


def _weighted(graph: Graph) -> dict[int, Weighted]:
    """The products of the forward pass with a parameter of two dimensions, by node."""
    known, parameters = descriptions(graph), {item.name for item in graph.inputs if item.role == "parameter"}
    viewed = {name: (name, (0, 1)) for name in parameters if len(graph.values[name].shape) == 2}
    found = {}
    for number, (node, description) in enumerate(zip(graph.nodes, known, strict=True)):
        if description is None:
            continue
        if node.operator == "aten.permute" and node.inputs[0] in viewed:
            parameter, order = viewed[node.inputs[0]]
            dims = node.attributes["dims"]
            viewed[node.outputs[0]] = parameter, tuple(order[dim] for dim in dims)  # type: ignore[index,misc,union-attr]
        elif node.operator == "aten.mm" and node.phase == "forward":
            left, right = node.inputs
            if (left in viewed) == (right in viewed):
                continue
            parameter, order = viewed[left] if left in viewed else viewed[right]
            columns, terms = order if left in viewed else reversed(order)
            found[number] = Weighted(parameter, columns, terms, right if left in viewed else left)
    return found


def _before(
    graph: Graph, makers: Mapping[str, int], weighted: Mapping[int, Weighted], last: int
) -> tuple[set[int], bool]:
    """The products with weights from which one product's other factor is made, without any between; are there products
    of activations between?"""
    first: set[int] = set()
    seen: set[int] = set()
    attends = False
    names = [weighted[last].other]
    while names:
        number = makers.get(names.pop())
        if number is None or number in seen:
            continue
        seen.add(number)
        if number in weighted:
            first.add(number)
            continue
        attends |= graph.nodes[number].operator in PRODUCTS
        names += graph.nodes[number].inputs
    return first, attends


def _vocabularies(graph: Graph, devices: int) -> list[Block]:
    """Tables of tokens, and the products in front of the loss of as many columns: one block where they share it."""
    shapes = {item.name: graph.values[item.name].shape for item in graph.inputs if item.role == "parameter"}
    tokens = _of_batch(graph)
    tables = {
        node.inputs[0]: 0
        for node in graph.nodes
        if node.operator in EMBEDDINGS and node.phase == "forward" and node.inputs[1] in tokens
        if len(shape := shapes.get(node.inputs[0], ())) == 2 and shape[0] > shape[1]
    }
    rows = {shapes[name][0] for name in tables}
    found: list[Block] = []
    for product in _weighted(graph).values():
        if shapes[product.parameter][product.columns] in rows:
            block = Block(VOCABULARY, {product.parameter: product.columns})
            flow = Flow(graph, devices).followed([block], forward=True)
            ends = {graph.nodes[number].operator for number in flow.ends}
            if not flow.stuck and "aten.logsumexp" in ends:
                found.append(replace(block, cuts={**block.cuts, **flow.beside()}))
    shared = {name for block in found for name in block.cuts}
    return found + [Block(VOCABULARY, {name: 0}) for name in tables if name not in shared]


def _of_batch(graph: Graph) -> set[str]:
    """The values that depend on the batch, and on no parameter."""
    found = {item.name for item in graph.inputs if item.role == "batch"}
    other = {item.name for item in graph.inputs if item.role in ("parameter", "state", "buffer")}
    for node in graph.nodes:
        (found if other.isdisjoint(node.inputs) and not found.isdisjoint(node.inputs) else other).update(node.outputs)
    return found


# ------------------------------------------------------------------------------------------- following cuts


@dataclass
class Flow:
    """What follows from cuts of parameters.

    cuts: of values, by dimension; variables: the index variable that divides a node. sums: values that each device may
    have a part of, to be added up. ends: nodes whose terms are divided. stuck: numbers of the blocks of which a cut
    cannot be followed; origins: from which blocks the cut of a value comes.
    """

    graph: Graph
    devices: int
    cuts: dict[str, int] = field(default_factory=dict)
    variables: dict[int, int] = field(default_factory=dict)
    sums: set[str] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    stuck: set[int] = field(default_factory=set)
    origins: dict[str, frozenset[int]] = field(default_factory=dict)

    def followed(self, blocks: Sequence[Block], forward: bool = False) -> Flow:
        """With the cuts of these blocks. forward: through the forward pass alone."""
        for number, block in enumerate(blocks):
            for name in self.alike(block):
                self.cuts[name], self.origins[name] = block.cuts[self.weights[name]], frozenset([number])
        known = descriptions(self.graph)
        passed = [number for number, node in enumerate(self.graph.nodes) if not forward or node.phase == "forward"]
        for number in passed:
            self.carry(number, known[number])
        for number in reversed(passed):
            self.ask(number, known[number])
        return self

    @cached_property
    def weights(self) -> dict[str, str]:
        """The parameter of each input of the optimizer's that has its shape, and of each parameter itself."""
        values, inputs = self.graph.values, self.graph.inputs
        names = {item.path: item.name for item in inputs if item.role == "parameter"}
        found = {item.name: names.get(item.path.partition("/")[0], "") for item in inputs if item.role == "state"}
        found |= {name: name for name in names.values()}
        return {own: name for own, name in found.items() if name and values[own].shape == values[name].shape}

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """Of each value, (node, operand)."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number, node in enumerate(self.graph.nodes):
            for operand, name in enumerate(node.inputs):
                found.setdefault(name, []).append((number, operand))
        return found

    def alike(self, block: Block) -> list[str]:
        return [own for own, name in self.weights.items() if name in block.cuts]

    def carry(self, number: int, description: Description | None) -> None:
        """What the cuts of a node's inputs mean for it and for its result."""
        node = self.graph.nodes[number]
        cut = [operand for operand, name in enumerate(node.inputs) if name in self.cuts]
        if not cut:
            if description is not None and _sums_passed(description, [name in self.sums for name in node.inputs]):
                self.sums.update(node.outputs)
            return
        origin = frozenset().union(*(self.origins[node.inputs[operand]] for operand in cut))
        variable = self.variable(node, cut, description)
        if description is None or variable is None:
            self.stuck |= origin
            return
        self.variables[number] = variable
        if variable >= description.outputs:
            self.ends.add(number)
            if description.reducer == "sum":
                self.sums.update(node.outputs)
            return
        dimension = _dimension(description.place, description.output.shape, variable, description, self.devices)
        if dimension is None:
            self.stuck |= origin
        else:
            self.cuts[node.outputs[0]], self.origins[node.outputs[0]] = dimension, origin

    def variable(self, node: Node, cut: Sequence[int], description: Description | None) -> int | None:
        """The one index variable that the cuts of a node's inputs divide."""
        if description is None:
            return None
        found = set()
        for operand in cut:
            dimension = self.cuts[node.inputs[operand]]
            for read in description.reads[operand]:
                found.add(_leading(read[dimension], description.inputs[operand].shape[dimension], description, self.devices))
        variable = found.pop() if len(found) == 1 else None
        able = variable is not None and divisible(description)[variable] and description.sizes[variable] >= self.devices
        return variable if able else None

    def ask(self, number: int, description: Description | None) -> None:
        """A node that has no cut inputs is divided where all that read its result want a part of it."""
        node = self.graph.nodes[number]
        if number in self.variables or description is None or any(name in self.sums for name in node.inputs):
            return
        if any(item.name in node.outputs for item in self.graph.outputs) or node.outputs[0] in self.sums:
            return
        dimension = self.wanted(node.outputs[0], self.readers.get(node.outputs[0], ()))
        if dimension is None:
            return
        index, size = description.place[dimension], description.output.shape[dimension]
        variable = _leading(index, size, description, self.devices)
        if variable is not None and divisible(description)[variable] and description.sizes[variable] >= self.devices:
            self.variables[number], self.cuts[node.outputs[0]] = variable, dimension

    def wanted(self, name: str, readers: Sequence[tuple[int, int]]) -> int | None:
        """The dimension by which all readers take a part of a value."""
        found: set[int | None] = set()
        for number, operand in readers:
            description = descriptions(self.graph)[number]
            if description is None or number not in self.variables:
                return None
            for read in description.reads[operand]:
                found.add(_dimension(read, self.graph.values[name].shape, self.variables[number], description, self.devices))
        return found.pop() if len(found) == 1 else None

    def beside(self) -> dict[str, int]:
        """The cuts of other parameters, of biases, that follow from those of the nodes that read them."""
        found = {}
        for item in self.graph.inputs:
            if item.role == "parameter" and item.name not in self.cuts:
                readers = [(number, operand) for number, operand in self.readers.get(item.name, ())
                           if self.graph.nodes[number].phase == "forward"]  # fmt: skip
                dimension = self.wanted(item.name, readers)
                if dimension is not None:
                    found[item.name] = dimension
        return found


def _leading(index: Affine | None, size: int, description: Description, devices: int) -> int | None:
    """The index variable whose parts are parts of a dimension of this size: the dimension's own, or that which leads
    where several are merged and its parts are alike (whole heads)."""
    if index is None or index.constant or not index.terms:
        return None
    variable, step = max(index.terms, key=lambda term: term[1])
    whole = description.sizes[variable] * step == size and step > 0
    even = len(index.terms) == 1 or description.sizes[variable] % devices == 0
    return variable if whole and even else None


def _dimension(
    position: Sequence[Affine | None], shape: Sequence[int], variable: int, description: Description, devices: int
) -> int | None:
    """The dimension whose parts are parts of an index variable, if it is at no other place."""
    found = [number for number, index in enumerate(position)
             if index is None or any(variable == own for own, _ in index.terms)]  # fmt: skip
    if len(found) != 1:
        return None
    leading = _leading(position[found[0]], shape[found[0]], description, devices)
    return found[0] if leading == variable else None


def _sums_passed(description: Description, sums: Sequence[bool]) -> list[int]:
    """The numbers of the sets of inputs through which sums of parts may pass, where all of a set are such."""
    return [number for number, members in enumerate(passing_sets(description)) if all(sums[item] for item in members)]


# ------------------------------------------------------------------------------------------- what may be chosen


def _candidates(graph: Graph, mesh: Mesh, outer: Mesh, flow: Flow) -> Candidates:
    """Fixed on the innermost level, but for where sums are reduced; along the batch outside of it."""
    inner = mesh.axes - outer.axes
    carriers = batch_dimensions(graph)
    split = along_the_batch(graph, outer, carriers) if outer.axes else {}
    divisions: dict[int, np.ndarray] = {}
    for number, (node, description) in enumerate(zip(graph.nodes, descriptions(graph), strict=True)):
        if description is None:
            continue
        passed = _sums_passed(description, [name in flow.sums for name in node.inputs])
        own = [flow.variables[number]] if number in flow.variables else [REPEAT, *(PASS - item for item in passed)]
        outside = split.get(number)
        if outside is None:
            outside = division_codes(description, outer, SECONDS)
        codes = joined_codes(description, outside, np.asarray([[code] * inner for code in own], np.int64), mesh)
        if len(codes):
            divisions[number] = codes
    return Candidates(_layouts(graph, mesh, outer, flow, carriers), divisions)


def _layouts(
    graph: Graph, mesh: Mesh, outer: Mesh, flow: Flow, carriers: Mapping[str, int]
) -> dict[str, tuple[Layout, ...]]:
    inner = mesh.axes - outer.axes
    entering = {item.name: item.role for item in graph.inputs}
    leaving = {item.name for item in graph.outputs}
    found: dict[str, tuple[Layout, ...]] = {}
    for name, value in graph.values.items():
        cut, stored = flow.cuts.get(name, REPLICATE), name in entering or name in leaving
        within = [cut, *([PARTIAL] if name in flow.sums and not stored else [])]
        across: tuple[Layout, ...]
        if entering.get(name) in ("parameter", "state", "buffer"):
            across = ((REPLICATE,) * outer.axes,)
        elif name in carriers and value.shape[carriers[name]] >= outer.devices:
            across = (along(value, carriers[name], outer),)
        else:
            floating = value.dtype.startswith(("float", "bfloat")) and not stored
            across = value_layouts(value.shape, floating, outer, SECONDS)
        both = [(*one, *(code,) * inner) for one in across for code in within]
        found[name] = tuple(layout for layout in both if _fits(value.shape, layout, mesh))
    for old, new in graph.updates.items():
        found[new] = found[old]
    return {name: layouts for name, layouts in found.items() if layouts}


def _fits(shape: Sequence[int], layout: Layout, mesh: Mesh) -> bool:
    parts = [prod(size for size, code in zip(mesh.sizes, layout, strict=True) if code == dimension)
             for dimension in range(len(shape))]  # fmt: skip
    return all(part <= max(size, 1) for part, size in zip(parts, shape, strict=True))
