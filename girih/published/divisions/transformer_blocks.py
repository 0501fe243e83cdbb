"""Blocks of a transformer that divide as Megatron-LM divides them, recognised by their dataflow.

A cut of a weight is followed through the operators that read it, by their descriptions: where the one index variable
that a cut divides places the result, the result is cut along it; where it is a term of a sum, devices have parts of the
sum. Names of weights and modules do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from girih.graph import Graph, Node, kept_with_graph
from girih.machine.units import counted
from girih.ops import Description
from girih.ops.derive.divisions import divisible, passing_sets
from girih.ops.expressions import Affine
from girih.ops.known import descriptions, several_descriptions

ATTENTION, NETWORK, VOCABULARY = "attention block", "MLP", "vocabulary"
PRODUCTS = frozenset({"girih.head_product", "aten.bmm", "aten.mm", "girih.attention"})
PASSING = frozenset({"aten.reshape", "aten.permute", "aten.add.Tensor"})
"""Sums of parts are added to one another and then reduced, as the paper has it; not behind a norm, as could be."""
EMBEDDINGS = frozenset({"girih.embedding", "aten.embedding"})


@dataclass(frozen=True)
class TransformerBlock:
    """kind: ATTENTION, NETWORK or VOCABULARY. cuts: of each parameter, by its input's name, the dimension cut."""

    kind: str
    cuts: Mapping[str, int]


@dataclass(frozen=True)
class Recognised:
    """blocks: what is divided; whole: how many attention blocks are not. flow: what follows for nodes and values."""

    blocks: tuple[TransformerBlock, ...]
    whole: int
    flow: Flow

    def count(self, kind: str) -> int:
        return sum(block.kind == kind for block in self.blocks)

    @property
    def left_whole(self) -> str:
        if not self.whole:
            return ""
        count = counted(self.whole, ATTENTION)
        return f"; {count} left whole: heads do not divide, or one weight stacks queries, keys and values"

    @property
    def space(self) -> str:
        parts = [counted(count, kind) for kind in (ATTENTION, NETWORK) if (count := self.count(kind))]
        parts += ["the vocabulary"] * bool(self.count(VOCABULARY))
        return f"{', '.join(parts)} divided over {counted(self.flow.devices, 'device')}{self.left_whole}"


@kept_with_graph
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


def _blocks(graph: Graph, devices: int) -> tuple[list[TransformerBlock], int]:
    """Attention blocks and MLPs by their forward pass alone, and how many attention blocks there are besides."""
    weighted = _weighted(graph)
    products: defaultdict[str, set[int]] = defaultdict(set)  # where the step is in micro-batches, one for each of them
    for number, product in weighted.items():
        products[product.parameter].add(number)
    used: set[int] = set()
    blocks: list[TransformerBlock] = []
    whole: set[str] = set()
    for last, product in weighted.items():
        first, attends = _before(graph, weighted, last, used)
        if not first:
            continue
        cuts = {weighted[number].parameter: weighted[number].columns for number in first}
        if product.parameter not in cuts and len(cuts) == len(first):  # no weight is used twice
            block = TransformerBlock(ATTENTION if attends else NETWORK, {**cuts, product.parameter: product.terms})
            flow = Flow(graph, devices).followed([block], forward=True)
            if not flow.stuck and flow.ends == products[product.parameter]:
                blocks.append(replace(block, cuts={**block.cuts, **flow.beside()}))
                used = used.union(*(products[name] for name in block.cuts))
                continue
        if attends:
            whole.add(product.parameter)
    return blocks, len(whole)


@kept_with_graph
def _weighted(graph: Graph) -> dict[int, Weighted]:
    """The products of the forward pass with a parameter of two dimensions, by node."""
    known, parameters = descriptions(graph), {item.name for item in graph.inputs if item.role == "parameter"}
    viewed: dict[str, tuple[str, tuple[int, ...]]]
    viewed = {name: (name, (0, 1)) for name in parameters if len(graph.values[name].shape) == 2}
    by_weight = {}
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
            by_weight[number] = Weighted(parameter, columns, terms, right if left in viewed else left)
    return by_weight


def _before(graph: Graph, weighted: Mapping[int, Weighted], last: int, used: set[int]) -> tuple[set[int], bool]:
    """The products with weights from which one product's other factor is made, without any between; are there products
    of activations between? Nothing where one of them is used."""
    first: set[int] = set()
    seen: set[int] = set()
    attends = False
    names = [weighted[last].other]
    while names:
        number = graph.producer.get(names.pop())
        if number is None or number in seen:
            continue
        seen.add(number)
        if number in weighted:
            first.add(number)
            if not used.isdisjoint((number, last)):
                return set(), False
            continue
        attends |= graph.nodes[number].operator in PRODUCTS
        names += graph.nodes[number].inputs
    return first, attends


def _vocabularies(graph: Graph, devices: int) -> list[TransformerBlock]:
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
    blocks: list[TransformerBlock] = []
    for product in {product.parameter: product for product in _weighted(graph).values()}.values():
        if shapes[product.parameter][product.columns] in rows:
            block = TransformerBlock(VOCABULARY, {product.parameter: product.columns})
            flow = Flow(graph, devices).followed([block], forward=True)
            ends = {graph.nodes[number].operator for number in flow.ends}
            if not flow.stuck and "girih.logsumexp" in ends:
                blocks.append(replace(block, cuts={**block.cuts, **flow.beside()}))
    shared = {name for block in blocks for name in block.cuts}
    return blocks + [TransformerBlock(VOCABULARY, {name: 0}) for name in tables if name not in shared]


def _of_batch(graph: Graph) -> set[str]:
    """The values that depend on the batch, and on no parameter."""
    names = {item.name for item in graph.inputs if item.role == "batch"}
    other = {item.name for item in graph.inputs if item.role in ("parameter", "state", "buffer", "data")}
    for node in graph.nodes:
        (names if other.isdisjoint(node.inputs) and not names.isdisjoint(node.inputs) else other).update(node.outputs)
    return names


# ------------------------------------------------------------------------------------------- following cuts


@dataclass
class Flow:
    """What follows from cuts of parameters.

    cuts: of values, by dimension; variables: the index variable that divides a node. sums: values that each device may
    have a part of, to be added up. ends: nodes whose terms are divided. stuck: numbers of the blocks of which a cut
    cannot be followed; origins: from which blocks the cut of a value comes. whole: values at which a cut ends.
    """

    graph: Graph
    devices: int
    cuts: dict[str, int] = field(default_factory=dict)
    variables: dict[int, int] = field(default_factory=dict)
    sums: set[str] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    stuck: set[int] = field(default_factory=set)
    origins: dict[str, frozenset[int]] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()

    def followed(self, blocks: Sequence[TransformerBlock], forward: bool = False) -> Flow:
        """With the cuts of these blocks. forward: through the forward pass alone."""
        graph, known, owners = self.graph, descriptions(self.graph), _owners(self.graph)
        for number, block in enumerate(blocks):
            for parameter, dimension in block.cuts.items():
                for name in owners.get(parameter, ()):
                    self.cuts[name], self.origins[name] = dimension, frozenset([number])

        def passed(number: int) -> bool:
            return not forward or graph.nodes[number].phase == "forward"

        def onwards(number: int) -> Iterator[int]:
            if passed(number):
                self.carry(number, known[number])
                yield from self.readers(graph.nodes[number].outputs)

        def back(number: int) -> Iterator[int]:
            if passed(-number):
                self.ask(-number, known[-number])
                yield from (-maker for maker in self.makers(-number))

        _in_order(self.readers(list(self.cuts)), onwards)
        _in_order([-maker for number in self.variables for maker in self.makers(number)], back)
        return self

    def readers(self, names: Iterable[str]) -> Iterator[int]:
        """The nodes that read those values of which devices have parts."""
        return (
            number for name in names if name in self.cuts or name in self.sums for number in self.graph.consumers[name]
        )

    def makers(self, number: int) -> Iterator[int]:
        """The nodes that make the inputs of a node, if it is divided."""
        names = self.graph.nodes[number].inputs if number in self.variables else ()
        return (self.graph.producer[name] for name in names if name in self.graph.producer)

    def carry(self, number: int, description: Description | None) -> None:
        """What the cuts of a node's inputs mean for it and for its result."""
        node = self.graph.nodes[number]
        cut = [operand for operand, name in enumerate(node.inputs) if name in self.cuts]
        if not cut:
            if self.sets(node, description):
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
        for name, each in zip(node.outputs, several_descriptions(self.graph)[number], strict=True):
            dimension = _dimension(each.place, each.output.shape, variable, each, self.devices)
            if dimension is None:
                self.stuck |= origin
            elif name not in self.whole:
                self.cuts[name], self.origins[name] = dimension, origin

    def sets(self, node: Node, description: Description | None) -> list[int]:
        """The numbers of the sets of a node's inputs through which sums of parts pass, where all of a set are such."""
        if description is None or node.operator not in PASSING:
            return []
        sums = [name in self.sums for name in node.inputs]
        return [
            number for number, members in enumerate(passing_sets(description)) if all(sums[item] for item in members)
        ]

    def variable(self, node: Node, cut: Sequence[int], description: Description | None) -> int | None:
        """The one index variable that the cuts of a node's inputs divide."""
        if description is None:
            return None
        variables = set()
        for operand in cut:
            dimension = self.cuts[node.inputs[operand]]
            for read in description.reads[operand]:
                variables.add(
                    _leading(read[dimension], description.inputs[operand].shape[dimension], description, self.devices)
                )
        variable = variables.pop() if len(variables) == 1 else None
        able = variable is not None and divisible(description)[variable] and description.sizes[variable] >= self.devices
        return variable if able else None

    def ask(self, number: int, description: Description | None) -> None:
        """A node that has no cut inputs is divided where all that read its result want a part of it."""
        node = self.graph.nodes[number]
        if number in self.variables or description is None or any(name in self.sums for name in node.inputs):
            return
        if not _results(self.graph).isdisjoint(node.outputs) or node.outputs[0] in self.sums:
            return
        dimension = self.wanted(node.outputs[0], self.graph.consumers[node.outputs[0]])
        if dimension is None:
            return
        index, size = description.place[dimension], description.output.shape[dimension]
        variable = _leading(index, size, description, self.devices)
        if variable is not None and divisible(description)[variable] and description.sizes[variable] >= self.devices:
            self.variables[number], self.cuts[node.outputs[0]] = variable, dimension

    def wanted(self, name: str, readers: Iterable[int]) -> int | None:
        """The dimension by which all readers take a part of a value."""
        dimensions: set[int | None] = set()
        for number in readers:
            description = descriptions(self.graph)[number]
            if description is None or number not in self.variables:
                return None
            for operand, own in enumerate(self.graph.nodes[number].inputs):
                for read in description.reads[operand] if own == name else ():
                    shape = self.graph.values[name].shape
                    dimensions.add(_dimension(read, shape, self.variables[number], description, self.devices))
        return dimensions.pop() if len(dimensions) == 1 else None

    def beside(self) -> dict[str, int]:
        """The cuts of other parameters, of biases, that follow from those of the nodes that read them."""
        others, nodes = {}, self.graph.nodes
        for name in dict.fromkeys(name for number in sorted(self.variables) for name in nodes[number].inputs):
            if self.graph.role_of(name) == "parameter" and name not in self.cuts:
                readers = [number for number in self.graph.consumers[name] if nodes[number].phase == "forward"]
                dimension = self.wanted(name, readers)
                if dimension is not None:
                    others[name] = dimension
        return others


def _in_order(begin: Iterable[int], visit: Callable[[int], Iterable[int]]) -> None:
    """Visits these numbers, and those that a visit finds, which are larger, in rising order and each once."""
    seen = set(begin)
    waiting = sorted(seen)
    while waiting:
        for number in visit(heappop(waiting)):
            if number not in seen:
                seen.add(number)
                heappush(waiting, number)


@kept_with_graph
def _owners(graph: Graph) -> dict[str, list[str]]:
    """By parameter, it and each input of the optimizer's that has its shape."""
    values, inputs = graph.values, graph.inputs
    names = {item.path: item.name for item in inputs if item.role == "parameter"}
    keys = {item.name: names.get(item.path.partition("/")[0], "") for item in inputs if item.role == "state"}
    keys |= {name: name for name in names.values()}
    owners: dict[str, list[str]] = {}
    for own, name in keys.items():
        if name and values[own].shape == values[name].shape:
            owners.setdefault(name, []).append(own)
    return owners


@kept_with_graph
def _results(graph: Graph) -> frozenset[str]:
    return frozenset(item.name for item in graph.outputs)


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
    dimensions = [number for number, index in enumerate(position)
             if index is None or any(variable == own for own, _ in index.terms)]  # fmt: skip
    if len(dimensions) != 1:
        return None
    leading = _leading(position[dimensions[0]], shape[dimensions[0]], description, devices)
    return dimensions[0] if leading == variable else None
