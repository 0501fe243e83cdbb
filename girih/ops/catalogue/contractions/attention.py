"""Scaled dot-product attention, and its gradients, as one operator each: no matrix of scores is ever whole.

    out[b, h, t]       = Σ over the keys k of p[b, h, t, k] · value[b, n, k]
    p[b, h, t, k]      = exp(scale · query[b, h, t]·key[b, n, k] + mask[b, h, t, k] - logsumexp[b, h, t])

Heads of the query come in groups that share the head n of keys and values (h = groups · n + g). Examples, heads and
rows of the query divide; keys and values are then read whole, and gradients by them are added up over the rows. The
first index variables of the results of a gradient are those of the gradient by the query, so that one division holds
for all of them: its dimensions of size 1 stand for keys and features, which do not divide.

`first`: causally, row t of the query sees the keys up to t + first.

Keys divide in `girih.attention_blocks`, whose first dimension s numbers equal blocks of them:

    out[s, b, h, t, e] = Σ over the keys k of block s of exp(score[b, h, t, k] - total[s, b, h, t]) · value[b, n, k]
    total[s, b, h, t]  = log Σ over the keys k of block s of exp(score[b, h, t, k])

What all keys give is a sum over s, weighted by exp(total[s] - log Σ over s of exp(total[s])): both are reductions that
devices share (`girih.rewrite.passes.key_blocks`). Of its gradients those by keys and values lie where the keys do, and
that by the query is a sum over s.
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


def block_piece(attributes, piece):
    """Which blocks of the keys the piece has, or a part of one; where its rows begin, counted from its first key."""
    first = attributes["first"] + piece.start("t") - piece.start("s") * piece.size("k") - piece.start("k")
    return {**attributes, "blocks": piece.length("s"), "first": first}


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
KNOWN_BLOCKS = Measured(lambda work: attention_bound(work) + 2 * work.output.bytes, KNOWN.operations)
KNOWN_BLOCKS_BACKWARD = Measured(KNOWN_BACKWARD.bound, KNOWN_BACKWARD.operations)


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


def found(query, key, value, scale, mask, causal, first, keys):
    """(out(s, b, n, h, t, e), total(s, b, n, h, t)): what rows find in the block s of so many keys."""
    own, at = score(query, key, mask, causal, scale, first), lambda s, k: keys * s + k

    def summed(s, b, n, h, t):
        return LogSumExp(lambda k: once(own(b, n, h, t, at(s, k))), sizes=(keys,))

    def total(s, b, n, h, t):
        read = once(Sum(lambda k, c: value[b, n, at(s, k), c], sizes=(keys, value.shape[3])))
        return Select(True, summed(s, b, n, h, t), read)

    def out(s, b, n, h, t, e):
        all_of = once(summed(s, b, n, h, t))
        least = Select(at_most(all_of, -inf), 0, all_of)  # of a row that sees no key
        share = lambda k: once(exp(once(own(b, n, h, t, at(s, k))) - least))
        result = Sum(lambda k: share(k) * value[b, n, at(s, k), e], sizes=(keys,))
        return Select(True, result, row_of(value, b, n, at(s, 0)))  # its features are made together

    return out, total


@operator("girih.attention", results=2, piece=rows_piece, temporary=KNOWN)
def attention(query, key, value, scale, mask=None, causal=False, first=0):
    """The result, and the logarithm of the sum of the exponentials of each row's scores."""
    groups = groups_of(query, key)
    out, total = found(query, key, value, scale, mask, causal, first, key.shape[2])
    if groups == 1:
        return lambda b, h, t, e: out(0, b, h, h, t, e), lambda b, h, t: total(0, b, h, h, t)
    sizes = (query.shape[0], key.shape[1], groups, query.shape[2])
    return (
        Over(
            (*sizes, value.shape[3]),
            lambda b, n, g, t, e: ((b, groups * n + g, t, e), out(0, b, n, groups * n + g, t, e)),
        ),
        Over(sizes, lambda b, n, g, t: ((b, groups * n + g, t), total(0, b, n, groups * n + g, t))),
    )


@operator("girih.attention_blocks", results=2, piece=block_piece, temporary=KNOWN_BLOCKS)
def attention_blocks(query, key, value, scale, blocks, mask=None, causal=False, first=0):
    """The same under each block of the keys."""
    groups = groups_of(query, key)
    out, total = found(query, key, value, scale, mask, causal, first, key.shape[2] // blocks)
    if groups == 1:
        return lambda s, b, h, t, e: out(s, b, h, h, t, e), lambda s, b, h, t, x: total(s, b, h, h, t)
    sizes = (blocks, query.shape[0], key.shape[1], groups, query.shape[2])
    return (
        Over(
            (*sizes, value.shape[3]),
            lambda s, b, n, g, t, e: ((s, b, groups * n + g, t, e), out(s, b, n, groups * n + g, t, e)),
        ),
        Over((*sizes, 1), lambda s, b, n, g, t, x: ((s, b, groups * n + g, t, x), total(s, b, n, groups * n + g, t))),
    )


def gradients(grad, query, key, value, mean, logsumexp, scale, mask, causal, first, keys, beside_rows):
    """(by query, by key, by value), of a block of so many keys: functions of (s, b, n, g, t, d), (s, b, n, k, d) and
    (s, b, n, k, e). mean: a function of (b, h, t); beside_rows: what else is read of a row."""
    own, at = score(query, key, mask, causal, scale, first), lambda s, k: keys * s + k
    rows, groups = query.shape[2], groups_of(query, key)

    def share(b, n, h, t, k):
        return once(exp(once(own(b, n, h, t, k)) - logsumexp[b, h, t]))

    def change(b, n, h, t, k):
        """The gradient of a score."""
        along = once(Sum(lambda e: grad[b, h, t, e] * value[b, n, k, e]))
        return once(share(b, n, h, t, k) * (along - mean(b, h, t)) * scale)

    def beside(s, b, n, h, t):
        """The work of the other two gradients: as much as these products are."""
        by_key = Sum(lambda k, d: query[b, h, t, d] * key[b, n, at(s, k), d], sizes=(keys, query.shape[3]))
        by_value = Sum(lambda k, e: grad[b, h, t, e] * value[b, n, at(s, k), e], sizes=(keys, value.shape[3]))
        return once(by_key) + once(by_value)

    def rows_read(value_, b, h, t):
        """All results read the same of what the query's rows have."""
        return Select(True, value_, row_of(grad, b, h, t) + beside_rows(b, h, t))

    def by_query(s, b, n, g, t, d):
        h = groups * n + g
        total = Sum(lambda k: change(b, n, h, t, at(s, k)) * key[b, n, at(s, k), d], sizes=(keys,))
        return rows_read(Select(True, total, beside(s, b, n, h, t)), b, h, t)

    def summed(element, n):
        """Over the rows, and the heads, that read a key."""
        if groups == 1:
            return Sum(lambda t: element(n, t), sizes=(rows,))
        return Sum(lambda g, t: element(groups * n + g, t), sizes=(groups, rows))

    def by_key(s, b, n, k, d):
        k = at(s, k)
        return summed(
            lambda h, t: rows_read(
                Select(True, change(b, n, h, t, k) * query[b, h, t, d], row_of(value, b, n, k)), b, h, t
            ),
            n,
        )

    def by_value(s, b, n, k, e):
        k = at(s, k)
        return summed(
            lambda h, t: rows_read(
                Select(True, share(b, n, h, t, k) * grad[b, h, t, e], row_of(value, b, n, k)), b, h, t
            ),
            n,
        )

    return by_query, by_key, by_value


@operator("girih.attention_backward", results=3, piece=rows_piece, temporary=KNOWN_BACKWARD)
def attention_backward(grad, query, key, value, output, logsumexp, scale, mask=None, causal=False, first=0):
    """The gradients by query, key and value."""
    batch, _, rows, width = query.shape
    heads, keys, groups = key.shape[1], key.shape[2], groups_of(query, key)
    mean = lambda b, h, t: once(Sum(lambda e: grad[b, h, t, e] * output[b, h, t, e]))
    read = lambda b, h, t: row_of(output, b, h, t)
    by_query, by_key, by_value = gradients(
        grad, query, key, value, mean, logsumexp, scale, mask, causal, first, keys, read
    )
    others = lambda b, n, k, d: by_key(0, b, n, k, d), lambda b, n, k, e: by_value(0, b, n, k, e)
    if groups == 1:
        sizes = (batch, heads, 1, 1, rows, width)
        return Over(sizes, lambda b, n, x, y, t, d: ((b, n, t, d), by_query(0, b, n, 0, t, d))), *others
    sizes = (batch, heads, 1, 1, groups, rows, width)
    result = lambda b, n, x, y, g, t, d: ((b, groups * n + g, t, d), by_query(0, b, n, g, t, d))
    return Over(sizes, result), *others


@operator("girih.attention_blocks_backward", results=3, piece=block_piece, temporary=KNOWN_BLOCKS_BACKWARD)
def attention_blocks_backward(
    grad, query, key, value, mean, logsumexp, scale, blocks, mask=None, causal=False, first=0
):  # fmt: skip
    """The gradients by query, of each block of the keys, by key and by value. mean: the sum over the features of what
    all keys gave, times `grad`."""
    batch, _, rows, width = query.shape
    heads, keys, groups = key.shape[1], key.shape[2] // blocks, groups_of(query, key)
    given = lambda b, h, t: mean[b, h, t, 0]
    by_query, by_key, by_value = gradients(
        grad, query, key, value, given, logsumexp, scale, mask, causal, first, keys, given
    )
    others = (
        Over(
            (blocks, batch, heads, keys, width),
            lambda s, b, n, k, d: ((b, n, keys * s + k, d), by_key(s, b, n, k, d)),
        ),
        Over(
            (blocks, batch, heads, keys, value.shape[3]),
            lambda s, b, n, k, e: ((b, n, keys * s + k, e), by_value(s, b, n, k, e)),
        ),
    )
    if groups == 1:
        sizes = (blocks, batch, heads, 1, 1, rows, width)
        return Over(sizes, lambda s, b, n, x, y, t, d: ((s, b, n, t, d), by_query(s, b, n, 0, t, d))), *others
    sizes = (blocks, batch, heads, 1, 1, groups, rows, width)
    result = lambda s, b, n, x, y, g, t, d: ((s, b, groups * n + g, t, d), by_query(s, b, n, g, t, d))
    return Over(sizes, result), *others
