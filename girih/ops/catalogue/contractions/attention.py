"""Scaled dot-product attention, and its gradients, as one operator each: no matrix of scores is ever whole.

    out[b, h, t]       = Σ over the keys k of p[b, h, t, k] · value[b, n, k]
    p[b, h, t, k]      = exp(scale · query[b, h, t]·key[b, n, k] + mask[b, h, t, k] - logsumexp[b, h, t])

Heads of the query come in groups that share the head n of keys and values (h = groups · n + g). Examples, heads and
rows of the query divide; keys and values are then read whole, and gradients by them are added up over the rows. The
first index variables of the results of a gradient are those of the gradient by the query, so that one division holds
for all of them: its dimensions of size 1 stand for keys and features, which do not divide.

`first`: causally, row t of the query sees the keys up to t + first.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from girih.ops.derive.temporaries import SLICE_BYTES, KernelCall, Measured
from girih.ops.language import LogSumExp, Over, Select, Sum, fn
from girih.ops.operator import operator

exp, once, at_most = fn("exp"), fn("once"), fn("le")
ROWS, KEYS = 256, 512
"""The largest blocks of PyTorch's kernel on processors (ATen/native/cpu/FlashAttentionKernel.cpp)."""


def rows_piece(attributes, piece):
    """Where the piece's rows begin, counted from its first key."""
    keys = piece.start("k") if "k" in piece.names else 0
    return {**attributes, "first": attributes["first"] + piece.start("t") - keys}


# ------------------------------------------------------------------------------------------- scratch


def attention_bound(work: KernelCall) -> int:
    """At most: the blocks of each thread, operands in other orders or types, and what parts of the keys or of the heads
    make before it is put together."""
    query, key, value = (work.inputs[name] for name in ("query", "key", "value"))
    mask = work.inputs.get("mask")
    width = 8 if query.item_bytes == 8 else 4
    blocks = work.threads * (ROWS * KEYS + ROWS * (4 + query.shape[-1] + value.shape[-1])) * width * 3
    masks = 0 if mask is None else 2 * mask.elements * width
    rows = prod(query.shape[:3]) * (2 * value.shape[-1] + query.shape[-1] + 8) * width
    return blocks + masks + 2 * rows + 2 * (key.elements + value.elements) * width + 4 * SLICE_BYTES


def attention_operations(work: KernelCall) -> int:
    query, key, value = (work.inputs[name] for name in ("query", "key", "value"))
    return 2 * prod(query.shape[:3]) * key.shape[2] * (query.shape[3] + value.shape[3])


def fewer_examples(work: KernelCall, count: int) -> KernelCall:
    whole = work.inputs["query"].shape[0]
    shrunk = lambda item: replace(item, shape=(count, *item.shape[1:])) if item.shape[:1] == (whole,) else item
    return replace(work, inputs={name: shrunk(item) for name, item in work.inputs.items()}, output=shrunk(work.output))


KNOWN = Measured(attention_bound, attention_operations, lambda work: work.inputs["query"].shape[0], fewer_examples)
KNOWN_BACKWARD = Measured(
    lambda work: 3 * attention_bound(work), lambda work: 3 * attention_operations(work), KNOWN.images, fewer_examples
)


# ------------------------------------------------------------------------------------------- meaning


def score(query, key, mask, causal, scale, first):
    """score(b, n, h, t, k): what the softmax is taken of."""

    def element(b, n, h, t, k):
        value = scale * Sum(lambda d: query[b, h, t, d] * key[b, n, k, d])
        if mask is not None:
            at = mask.broadcast((b, h, t, k))
            value = Select(at, value, -inf) if mask.dtype == "bool" else value + at
        return Select(at_most(k, t + first), value, -inf) if causal else value

    return element


def row_of(x, *at):
    """A number for which all features of a row are read."""
    return once(Sum(lambda c: x[(*at, c)]))


def groups_of(query, key):
    return query.shape[1] // max(key.shape[1], 1)


@operator("girih.attention", results=2, piece=rows_piece, temporary=KNOWN)
def attention(query, key, value, scale, mask=None, causal=False, first=0):
    """The result, and the logarithm of the sum of the exponentials of each row's scores."""
    own = score(query, key, mask, causal, scale, first)
    keys, width, groups = (key.shape[2],), value.shape[3], groups_of(query, key)
    total = lambda b, n, h, t: LogSumExp(lambda k: once(own(b, n, h, t, k)), sizes=keys)
    beside = lambda b, n, h, t: Select(True, total(b, n, h, t), once(Sum(lambda k, c: value[b, n, k, c])))

    def out(b, n, h, t, e):
        share = lambda k: once(exp(once(own(b, n, h, t, k)) - once(total(b, n, h, t))))
        result = Sum(lambda k: share(k) * value[b, n, k, e], sizes=keys)
        return Select(True, result, row_of(value, b, n, 0))  # its features are made together

    if groups == 1:
        return lambda b, h, t, e: out(b, h, h, t, e), lambda b, h, t: beside(b, h, h, t)
    sizes = (query.shape[0], key.shape[1], groups, query.shape[2])
    return (
        Over(
            (*sizes, width),
            lambda b, n, g, t, e: ((b, groups * n + g, t, e), out(b, n, groups * n + g, t, e)),
        ),
        Over(sizes, lambda b, n, g, t: ((b, groups * n + g, t), beside(b, n, groups * n + g, t))),
    )


@operator("girih.attention_backward", results=3, piece=rows_piece, temporary=KNOWN_BACKWARD)
def attention_backward(grad, query, key, value, output, logsumexp, scale, mask=None, causal=False, first=0):
    """The gradients by query, key and value."""
    own = score(query, key, mask, causal, scale, first)
    batch, rows, width = query.shape[0], query.shape[2], query.shape[3]
    heads, keys, groups = key.shape[1], key.shape[2], groups_of(query, key)
    at = lambda n, g: n if groups == 1 else groups * n + g

    def share(b, n, h, t, k):
        return once(exp(once(own(b, n, h, t, k)) - logsumexp[b, h, t]))

    def change(b, n, h, t, k):
        """The gradient of a score."""
        along = once(Sum(lambda e: grad[b, h, t, e] * value[b, n, k, e]))
        mean = once(Sum(lambda e: grad[b, h, t, e] * output[b, h, t, e]))
        return once(share(b, n, h, t, k) * (along - mean) * scale)

    def beside(b, n, h, t):
        """The work of the other two gradients: as much as these products are."""
        by_key = Sum(lambda k, d: query[b, h, t, d] * key[b, n, k, d])
        by_value = Sum(lambda k, e: grad[b, h, t, e] * value[b, n, k, e])
        return once(by_key) + once(by_value)

    def rows_read(value_, b, h, t):
        """All results read the same of what the query's rows have."""
        return Select(True, value_, row_of(grad, b, h, t) + row_of(output, b, h, t))

    def by_query(b, n, g, t, d):
        h = at(n, g)
        total = Sum(lambda k: change(b, n, h, t, k) * key[b, n, k, d], sizes=(keys,))
        return (b, h, t, d), rows_read(Select(True, total, beside(b, n, h, t)), b, h, t)

    def summed(element, n):
        """Over the rows, and the heads, that read a key."""
        if groups == 1:
            return Sum(lambda t: element(n, t), sizes=(rows,))
        return Sum(lambda g, t: element(groups * n + g, t), sizes=(groups, rows))

    def by_key(b, n, k, d):
        return summed(
            lambda h, t: rows_read(
                Select(True, change(b, n, h, t, k) * query[b, h, t, d], row_of(value, b, n, k)), b, h, t
            ),
            n,
        )

    def by_value(b, n, k, e):
        return summed(
            lambda h, t: rows_read(
                Select(True, share(b, n, h, t, k) * grad[b, h, t, e], row_of(value, b, n, k)), b, h, t
            ),
            n,
        )

    if groups == 1:
        return (
            Over((batch, heads, 1, 1, rows, width), lambda b, n, x, y, t, d: by_query(b, n, 0, t, d)),
            by_key,
            by_value,
        )
    sizes = (batch, heads, 1, 1, groups, rows, width)
    return Over(sizes, lambda b, n, x, y, g, t, d: by_query(b, n, g, t, d)), by_key, by_value
