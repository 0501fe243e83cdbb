"""Attention written so that its keys divide: taken apart, or by blocks of keys.

Apart, it is the products and the softmax of which `girih.attention` is made, each a node that divides:

    %o, %l = girih.attention(%q, %k, %v)    →    %s = girih.head_product(%q, %kᵀ)      (scaled, masked)
                                                 %m = girih.logsumexp(%s)
                                                 %p = girih.softmax_from(%s, %m)
                                                 %o = girih.head_product(%p, %v)

Its gradients become the scores once more, and five products. The scores are then values of the graph, so that keys
divide, rules find them, and memory is planned for them; as one operator nobody holds them.

By blocks of keys it stays an operator that holds no scores, and leaves to the graph to put together what each block
gives, by the logarithms of the sums of exponentials (Liu et al., "Ring attention", ICLR 2024):

    %o, %l = girih.attention(%q, %k, %v)    →    %p, %t = girih.attention_blocks(%q, %k, %v, blocks)
                                                 %m = girih.logsumexp(%t)                            (of all blocks)
                                                 %w = girih.softmax_from(%t, %m)
                                                 %o = girih.product_sum(%p, %w)

Blocks are a dimension, along which devices divide the operator, and its keys and values with it: a logarithm and a sum
are reduced. Its gradients by keys and values stay where these are; that by the query is a sum over the blocks. Nothing
else is held or sent, so that the search decides between keys and rows of the query, or divides both.

Results differ by rounding. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import gcd, inf

from girih.graph import Argument, Graph, Node, Ref
from girih.rewrite.writer import Division, Writer, rewritten

FORWARD, BACKWARD = "girih.attention", "girih.attention_backward"
BLOCKS, BLOCKS_BACKWARD = "girih.attention_blocks", "girih.attention_blocks_backward"
HALVES = ("bfloat16", "float16")
TURNED = (0, 1, 3, 2)


@dataclass(frozen=True)
class TakeAttentionApart:
    """Attention as products and a softmax."""

    def apply(self, graph: Graph) -> Graph:
        rules: dict[str, Division] = {
            FORWARD: partial(_forward, graph),
            BACKWARD: _backward,
        }
        return rewritten(graph, rules)


@dataclass(frozen=True)
class AttentionByKeys:
    """Attention by blocks of keys. blocks: into how many the keys of a node, by its name, are cut; others stay."""

    blocks: Mapping[str, int]

    def apply(self, graph: Graph) -> Graph:
        rules: dict[str, Division] = {
            FORWARD: partial(_forward_by_keys, graph, self.blocks),
            BACKWARD: partial(_backward_by_keys, self.blocks),
        }
        return rewritten(graph, rules)


def key_blocks(graph: Graph, devices: int) -> dict[str, int]:
    """Into how many equal blocks, at most one for each device, the keys of attention could be cut, by the name of its
    node: where examples and heads that have keys of their own are fewer than devices."""
    found = {}
    for node in graph.nodes:
        if node.operator in (FORWARD, BACKWARD):
            arguments = dict(node.arguments)
            key, both = arguments["key"], arguments.get("causal") and arguments.get("mask") is not None
            assert isinstance(key, Ref)
            batch, heads, keys, _ = graph.values[key.name].shape
            count = gcd(keys, devices)
            if batch * heads < devices and count > 1 and not both:
                found[node.name] = count
    return found


def has_key_blocks(graph: Graph) -> bool:
    return any(node.operator in (BLOCKS, BLOCKS_BACKWARD) for node in graph.nodes)


@dataclass(frozen=True)
class _Parts:
    """What both directions are made of. at: the arguments of the node."""

    writer: Writer
    at: dict[str, Argument]

    def operand(self, name: str) -> str:
        item = self.at[name]
        assert isinstance(item, Ref)
        return item.name

    def shape(self, x: str) -> tuple[int, ...]:
        return self.writer.values[x].shape

    def cast(self, x: str, dtype: str, name: str = "") -> str:
        if self.writer.values[x].dtype == dtype and not name:
            return x
        return self.writer.one("aten._to_copy", self.shape(x), dtype, name, self=Ref(x), dtype=dtype)

    @property
    def dtype(self) -> str:
        return self.writer.values[self.operand("query")].dtype

    @property
    def exact(self) -> str:
        return "float32" if self.dtype in HALVES else self.dtype

    @property
    def groups(self) -> int:
        return self.shape(self.operand("query"))[1] // self.shape(self.operand("key"))[1]

    def product(self, a: str, b: str, name: str = "") -> str:
        shape = (*self.shape(a)[:3], self.shape(b)[3])
        return self.writer.one("girih.head_product", shape, self.dtype, name, self=Ref(a), mat2=Ref(b))

    def turned(self, x: str) -> str:
        return self.writer.permute(x, TURNED)

    def of_each_head(self, name: str) -> str:
        """Keys or values, once for each head of the query."""
        x = self.operand(name)
        if self.groups == 1:
            return x
        batch, heads, *rest = self.shape(x)
        wide = (batch, heads, self.groups, *rest)
        apart = self.writer.reshape(x, (batch, heads, 1, *rest))
        spread = self.writer.one("aten.expand", wide, self.dtype, self=Ref(apart), size=wide)
        return self.writer.reshape(spread, (batch, heads * self.groups, *rest))

    def together(self, a: str, b: str, name: str) -> None:
        """A gradient by keys or values: a product, added up over the heads that share them."""
        if self.groups == 1:
            self.product(a, b, name)
            return
        made = self.product(a, b)
        batch, heads, *rest = self.shape(made)
        apart = self.writer.reshape(made, (batch, heads // self.groups, self.groups, *rest))
        shape = (batch, heads // self.groups, *rest)
        self.writer.one("aten.sum.dim_IntList", shape, self.dtype, name, self=Ref(apart), dim=(2,), keepdim=False)

    def scores(self) -> str:
        product = self.cast(self.product(self.operand("query"), self.turned(self.of_each_head("key"))), self.exact)
        shape = self.shape(product)
        emit = self.writer.one
        scores = emit("aten.mul.Tensor", shape, self.exact, self=Ref(product), other=self.at["scale"])
        hidden = ""
        if self.at.get("causal"):
            every = self.writer.one("aten.full", shape[2:], "bool", size=shape[2:], fill_value=True, dtype="bool")
            seen = emit("aten.tril", shape[2:], "bool", self=Ref(every), diagonal=self.at.get("first", 0))
            hidden = emit("aten.logical_not", shape[2:], "bool", self=Ref(seen))
        elif self.at.get("mask") is not None:
            mask = self.operand("mask")
            if self.writer.values[mask].dtype != "bool":
                other = Ref(self.cast(mask, self.exact))
                return emit("aten.add.Tensor", shape, self.exact, self=Ref(scores), other=other)
            hidden = emit("aten.logical_not", self.shape(mask), "bool", self=Ref(mask))
        if not hidden:
            return scores
        filled: dict[str, Argument] = {"self": Ref(scores), "mask": Ref(hidden), "value": -inf}
        return self.writer.emit("aten.masked_fill.Scalar", ((shape, self.exact),), ("",), filled)[0]

    def shares(self, scores: str, total: str) -> str:
        arguments = {"input": Ref(scores), "logsumexp": Ref(total)}
        return self.writer.one("girih.softmax_from", self.shape(scores), self.exact, **arguments)

    def mean(self) -> str:
        """For each row the scalar product of the result and its gradient."""
        pair = {name: Ref(self.cast(self.operand(item), self.exact)) for name, item in (("a", "grad"), ("b", "output"))}
        shape = (*self.shape(self.operand("grad"))[:3], 1)
        return self.writer.one("girih.product_sum", shape, self.exact, **pair, dims=(3,))

    def seen(self, total: str) -> str:
        """The logarithms of sums of exponentials, 0 for a row that sees no key, as masks can have it."""
        if self.at.get("mask") is None:
            return total
        shape, dtype = self.shape(total), self.writer.values[total].dtype
        nothing = self.writer.one("aten.eq.Scalar", shape, "bool", self=Ref(total), other=-inf)
        filled: dict[str, Argument] = {"self": Ref(total), "mask": Ref(nothing), "value": 0.0}
        return self.writer.emit("aten.masked_fill.Scalar", ((shape, dtype),), ("",), filled)[0]

    def told(self, graph: Graph, total: str, sums: str) -> None:
        """The logarithms as the second result of the attention, where somebody reads it."""
        if graph.consumers.get(sums) or any(item.name == sums for item in graph.outputs):
            self.cast(self.writer.reshape(total, graph.values[sums].shape), graph.values[sums].dtype, sums)


def _forward(graph: Graph, writer: Writer, node: Node) -> bool:
    parts = _Parts(writer, dict(node.arguments))
    scores = parts.scores()
    shape = (*parts.shape(scores)[:3], 1)
    total = parts.seen(writer.one("girih.logsumexp", shape, "float64", input=Ref(scores), dims=(3,)))
    shares = parts.cast(parts.shares(scores, total), parts.dtype)
    out, sums = node.outputs
    parts.product(shares, parts.of_each_head("value"), out)
    parts.told(graph, total, sums)
    return True


def _backward(writer: Writer, node: Node) -> bool:
    parts = _Parts(writer, dict(node.arguments))
    scores = parts.scores()
    shape = (*parts.shape(scores)[:3], 1)
    shares = parts.shares(scores, writer.reshape(parts.operand("logsumexp"), shape))
    grad = parts.operand("grad")
    mean = parts.mean()
    along = parts.cast(parts.product(grad, parts.turned(parts.of_each_head("value"))), parts.exact)
    arguments = {"grad": Ref(along), "output": Ref(shares), "sum": Ref(mean)}
    change = writer.one("girih.softmax_gradient", parts.shape(scores), parts.exact, **arguments)
    scaled = {"self": Ref(change), "other": parts.at["scale"]}
    change = parts.cast(writer.one("aten.mul.Tensor", parts.shape(scores), parts.exact, **scaled), parts.dtype)
    by_query, by_key, by_value = node.outputs
    parts.product(change, parts.of_each_head("key"), by_query)
    parts.together(parts.turned(change), parts.operand("query"), by_key)
    parts.together(parts.turned(parts.cast(shares, parts.dtype)), grad, by_value)
    return True


def _forward_by_keys(graph: Graph, blocks: Mapping[str, int], writer: Writer, node: Node) -> bool:
    count = blocks.get(node.name, 1)
    if count == 1:
        return False
    parts = _Parts(writer, dict(node.arguments))
    out, sums = node.outputs
    size = parts.shape(out)
    whole, of_rows = (count, *size), (count, *size[:3], 1)
    results = (whole, parts.dtype), (of_rows, parts.exact)
    found, totals = writer.emit(BLOCKS, results, ("", ""), {**parts.at, "blocks": count})
    total = writer.one("girih.logsumexp", (1, *of_rows[1:]), "float64", input=Ref(totals), dims=(0,))
    total = parts.seen(total)
    weights = parts.cast(parts.shares(totals, total), parts.dtype)
    pair = {"a": Ref(found), "b": Ref(weights)}
    together = writer.one("girih.product_sum", (1, *size), parts.dtype, **pair, dims=(0,))
    writer.reshape(together, size, out)
    parts.told(graph, total, sums)
    return True


def _backward_by_keys(blocks: Mapping[str, int], writer: Writer, node: Node) -> bool:
    count = blocks.get(node.name, 1)
    if count == 1:
        return False
    parts = _Parts(writer, dict(node.arguments))
    arguments = {name: item for name, item in node.arguments if name != "output"}
    arguments |= {"mean": Ref(parts.mean()), "blocks": count}
    by_query, *others = node.outputs
    shape = parts.shape(by_query)
    results = [((count, *shape), parts.dtype)] + [(parts.shape(name), parts.dtype) for name in others]
    each = writer.emit(BLOCKS_BACKWARD, results, ("", *others), arguments)[0]
    summed: dict[str, Argument] = {"self": Ref(each), "dim": (0,), "keepdim": False}
    writer.one("aten.sum.dim_IntList", shape, parts.dtype, by_query, **summed)
    return True
