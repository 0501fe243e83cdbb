"""What capture takes apart so that it divides is put together again, for libraries that compute the whole at once.

    girih.max_pool, mean, embedding                          → aten.max_poolNd, mean, embedding
    logsumexp, then exp(x − that)                            → aten._softmax
    logsumexp, then x − that                                 → aten._log_softmax
    mean, mean square around it, rsqrt, normalise            → aten.layer_norm
    girih.attention                                          → aten.scaled_dot_product_attention
    q·kᵀ as a product of batches, scaled, softmax, times v   → aten.scaled_dot_product_attention

A part that something else reads too stays beside the whole. Cost: linear in the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from girih.graph import Argument, Graph, Node, Ref
from girih.rewrite.writer import Writer, rewritten


@dataclass(frozen=True)
class Whole:
    """The pass; it has no options."""

    def apply(self, graph: Graph) -> Graph:
        """The graph with whole operators. Its results differ by rounding."""
        if not any(node.operator in RULES for node in graph.nodes):
            return graph
        maker = {name: node for node in graph.nodes for name in node.outputs}
        first = rewritten(graph, {name: partial(rule, Parts(graph, maker)) for name, rule in RULES.items()})
        maker = {name: node for node in first.nodes for name in node.outputs}
        return rewritten(first, {"aten.bmm": partial(_attention, Parts(first, maker))})


@dataclass(frozen=True)
class Parts:
    """A graph, and which node makes each of its values."""

    graph: Graph
    maker: dict[str, Node]

    def made_by(self, argument: Argument | None, operator: str) -> Node | None:
        """The node behind an argument, if it is of this operator."""
        node = self.maker.get(argument.name) if isinstance(argument, Ref) else None
        return node if node is not None and node.operator == operator else None

    def shape(self, argument: Argument) -> tuple[int, ...]:
        assert isinstance(argument, Ref)
        return self.graph.values[argument.name].shape

    def dtype(self, argument: Argument) -> str:
        assert isinstance(argument, Ref)
        return self.graph.values[argument.name].dtype


def _max_pool(parts: Parts, writer: Writer, node: Node) -> bool:
    at = dict(node.arguments)
    window = at["kernel_size"]
    assert isinstance(window, tuple)
    kept: dict[str, Argument] = {name: item for name, item in at.items() if name not in ("input", "ceil_mode")}
    more = {"ceil_mode": at["ceil_mode"]} if at.get("ceil_mode") else {}
    if len(parts.shape(at["input"])) != len(window) + 2:
        return False
    return writer.instead(f"aten.max_pool{len(window)}d", self=at["input"], **kept, **more)


def _mean(parts: Parts, writer: Writer, node: Node) -> bool:
    at = dict(node.arguments)
    dims, shape = at["dims"], parts.shape(at["input"])
    assert isinstance(dims, tuple)
    if at["count"] != math.prod(shape[dim] for dim in dims if isinstance(dim, int)):
        return False
    return writer.instead("aten.mean.dim", self=at["input"], dim=dims, keepdim=at["keepdim"])


def _embedding(parts: Parts, writer: Writer, node: Node) -> bool:
    at = dict(node.arguments)
    if at.get("first") is not None:
        return False
    return writer.instead("aten.embedding", weight=at["weight"], indices=at["indices"])


def _normaliser(parts: Parts, logsumexp: Argument, x: Argument) -> int | None:
    """The one axis over which logsumexp(x) was taken, kept."""
    node = parts.made_by(logsumexp, "girih.logsumexp")
    if node is None:
        return None
    at = dict(node.arguments)
    dims = at["dims"]
    if at["input"] != x or not isinstance(dims, tuple) or len(dims) != 1:
        return None
    return dims[0] if isinstance(dims[0], int) else None


def _softmax(whole: str, parts: Parts, writer: Writer, node: Node) -> bool:
    at = dict(node.arguments)
    dim = _normaliser(parts, at["logsumexp"], at["input"])
    if dim is None:
        return False
    return writer.instead(whole, self=at["input"], dim=dim, half_to_float=False)


def _layer_norm(parts: Parts, writer: Writer, node: Node) -> bool:
    at = dict(node.arguments)
    x, rank = at["input"], len(parts.shape(at["input"]))
    mean = parts.made_by(at["mean"], "girih.mean")
    inverse = parts.made_by(at["scale"], "aten.rsqrt")
    added = inverse and parts.made_by(dict(inverse.arguments)["self"], "aten.add.Tensor")
    square = added and parts.made_by(dict(added.arguments)["self"], "girih.centered_square_mean")
    if not mean or not added or not square:
        return False
    own, epsilon = dict(mean.arguments), dict(added.arguments)["other"]
    dims = own["dims"]
    assert isinstance(dims, tuple)
    around = dict(square.arguments)
    last = tuple(range(rank - len(dims), rank))
    same = own["input"] == x == around["input"] and around["mean"] == at["mean"] and around["dims"] == dims == last
    if not same or not isinstance(epsilon, float) or parts.dtype(x) not in ("float32", "float64"):
        return False
    sizes = parts.shape(x)[-len(dims) :]
    more: dict[str, Argument] = {}
    for name in ("weight", "bias"):
        if at.get(name) is not None:
            if math.prod(parts.shape(at[name])) != math.prod(sizes):
                return False
            ref = at[name]
            assert isinstance(ref, Ref)
            if parts.dtype(ref) != parts.dtype(x):
                return False  # half precision is normalised in float32 by weights of half; no kernel takes both
            more[name] = Ref(writer.reshape(ref.name, sizes))
    return writer.instead("aten.layer_norm", input=x, normalized_shape=sizes, **more, eps=epsilon)


def _attention(parts: Parts, writer: Writer, node: Node) -> bool:
    """The second product of an attention, whose four dimensions were made three."""
    at = dict(node.arguments)
    weights = parts.made_by(at["self"], "aten.reshape")
    soft = weights and parts.made_by(dict(weights.arguments)["self"], "aten._softmax")
    if not soft:
        return False
    scores = dict(soft.arguments)["self"]
    scale = 1.0
    for operator in ("aten.div.Tensor", "aten.mul.Tensor"):
        scaled = parts.made_by(scores, operator)
        if scaled is not None and isinstance(number := dict(scaled.arguments)["other"], (int, float)):
            scale = 1.0 / number if "div" in operator else float(number)
            scores = dict(scaled.arguments)["self"]
            break
    whole = parts.made_by(scores, "aten.reshape")
    product = whole and parts.made_by(dict(whole.arguments)["self"], "aten.bmm")
    if not product:
        return False
    both = dict(product.arguments)
    if len(parts.shape(dict(soft.arguments)["self"])) != 4 or dict(soft.arguments)["dim"] != 3:
        return False
    n, h, length, others = parts.shape(dict(soft.arguments)["self"])
    width, out = parts.shape(both["self"])[-1], parts.shape(at["mat2"])[-1]
    shapes = [parts.shape(item) for item in (both["self"], both["mat2"], at["mat2"])]
    batch = n * h
    if shapes != [(batch, length, width), (batch, width, others), (batch, others, out)]:
        return False
    if parts.dtype(both["self"]) != "float32":
        return False
    q = _four(parts, writer, both["self"], (n, h, length, width))
    k = writer.permute(_four(parts, writer, both["mat2"], (n, h, width, others)), (0, 1, 3, 2))
    v = _four(parts, writer, at["mat2"], (n, h, others, out))
    attention = writer.one(
        "aten.scaled_dot_product_attention", (n, h, length, out), "float32", "", query=Ref(q), key=Ref(k), value=Ref(v),
        scale=scale,
    )  # fmt: skip
    writer.reshape(attention, (batch, length, out), node.outputs[0])
    return True


def _fused_attention(parts: Parts, writer: Writer, node: Node) -> bool:
    """girih.attention, where nobody reads the logarithms of its sums."""
    at = dict(node.arguments)
    if at.get("first") or parts.graph.consumers.get(node.outputs[1]):
        return False
    more: dict[str, Argument] = {"attn_mask": at["mask"]} if at.get("mask") is not None else {}
    if parts.shape(at["query"])[1] != parts.shape(at["key"])[1]:
        more["enable_gqa"] = True
    operands = {name: at[name] for name in ("query", "key", "value")}
    causal = bool(at.get("causal", False))
    return writer.instead("aten.scaled_dot_product_attention", **operands, **more, is_causal=causal, scale=at["scale"])


def _four(parts: Parts, writer: Writer, x: Argument, shape: tuple[int, ...]) -> str:
    """x in four dimensions: what it was reshaped from, if that is it."""
    assert isinstance(x, Ref)
    before = parts.made_by(x, "aten.reshape")
    source = dict(before.arguments)["self"] if before else None
    if isinstance(source, Ref) and parts.shape(source) == shape:
        return source.name
    return writer.reshape(x.name, shape)


Rule = Callable[[Parts, Writer, Node], bool]
RULES: dict[str, Rule] = {
    "girih.attention": _fused_attention,
    "girih.max_pool": _max_pool,
    "girih.mean": _mean,
    "girih.embedding": _embedding,
    "girih.softmax_from": partial(_softmax, "aten._softmax"),
    "girih.log_softmax_from": partial(_softmax, "aten._log_softmax"),
    "girih.normalise": _layer_norm,
}
