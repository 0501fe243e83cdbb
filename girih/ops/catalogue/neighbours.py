"""Graphs in compressed rows: vertex v reads `x[neighbours[e]]` for the edges e from offsets[v] to offsets[v + 1].

In index notation e belongs to v if `offsets[v] <= e < offsets[v + 1]`, as a row belongs to a group, and reads u if
`neighbours[e] = u`, as in a look-up. So v divides into ranges of vertices, each with the offsets of its own; e and u
divide into partial sums. `first` and `start` say where a piece of the edges, and of the rows that are read, begins.
Each edge belongs to one vertex and reads one row, and is priced so. Features may have several dimensions.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf

from girih.ops.derive.temporaries import read_by_edges, read_with_shares
from girih.ops.language import Concatenated, LogSumExp, Max, Select, Sum, equal, fn
from girih.ops.operator import operator

exp, at_most = fn("exp"), fn("le")


def graph_piece(attributes, piece):
    """Where the piece's edges, and the rows that they read, begin; offsets keep numbers of the whole graph's edges."""
    starts = {"first": attributes["first"] + piece.start("e"), "start": attributes["start"] + piece.start("u")}
    return {**attributes, **starts}


def edge_of(offsets, neighbours, v, e, u, first=0, start=0):
    """Is e an edge by which v reads u?"""
    return (offsets[v] <= e + first) & (e + first < offsets[v + 1]) & equal(neighbours[e], u + start)


@operator("girih.rows_here")
def rows_here(parts, worker):
    """A worker's own rows, and behind them the rows that it reads of others: what its piece of a graph reads."""
    sizes = [part.shape[0] for part in parts]
    return lambda i, *f: Concatenated(i, sizes, lambda part, j: parts[part][(j, *f)])


@operator("girih.pieces_joined", piece=lambda attributes, _: attributes)
def pieces_joined(parts):
    """What the pieces of a graph made, one behind the other. It divides anywhere: whoever has all of a part reads none
    of the others."""
    bounds = tuple(accumulate(part.shape[0] for part in parts))

    def from_part(number, i, f):
        here = parts[number][(i - (bounds[number] - parts[number].shape[0]), *f)]
        return (
            here
            if number + 1 == len(parts)
            else Select(at_most(i, bounds[number] - 1), here, from_part(number + 1, i, f))
        )

    return lambda i, *f: from_part(0, i, f)


# ------------------------------------------------------------------------------------------- sums and maxima


@operator("girih.neighbour_sum", piece=graph_piece, temporary=read_by_edges)
def neighbour_sum(x, offsets, neighbours, weights=None, mean=False, first=0, start=0):
    """Weights are of edges, or of edges and the first dimensions of the features."""

    def element(v, f, e, u):
        value = x[(u, *f)]
        if weights is not None:
            value = weights[(e, *f[: weights.rank - 1])] * value
        if mean:
            value = value / (offsets[v + 1] - offsets[v])
        return Select(edge_of(offsets, neighbours, v, e, u, first, start), value, 0)

    return lambda v, *f: Sum(lambda e, u: element(v, f, e, u), sizes=(neighbours.shape[0], x.shape[0]))


@operator("girih.edge_products", piece=graph_piece, temporary=read_by_edges)
def edge_products(a, b, offsets, neighbours, kept=0, first=0, start=0):
    """Products are summed over the features behind the first `kept` dimensions."""
    summed = a.shape[kept + 1 :]

    def element(e, f, v, u, s):
        return Select(edge_of(offsets, neighbours, v, e, u, first, start), a[(v, *f, *s)] * b[(u, *f, *s)], 0)

    sizes = (a.shape[0], b.shape[0], *summed)
    return lambda e, *f: Sum(lambda v, u, *s: element(e, f, v, u, s), sizes=sizes)


@operator("girih.neighbour_max", temporary=read_by_edges)
def neighbour_max(x, offsets, neighbours):
    sizes = (neighbours.shape[0], x.shape[0])

    def largest(v, f):
        return Max(lambda e, u: Select(edge_of(offsets, neighbours, v, e, u), x[(u, *f)], -inf), sizes=sizes)

    return lambda v, *f: Select(offsets[v] < offsets[v + 1], largest(v, f), 0)


@operator("girih.neighbour_ties", piece=graph_piece, temporary=read_by_edges)
def neighbour_ties(x, top, offsets, neighbours, first=0, start=0):
    def element(v, f, e, u):
        here = edge_of(offsets, neighbours, v, e, u, first, start)
        return Select(here & equal(x[(u, *f)], top[(v, *f)]), 1, 0)

    return lambda v, *f: Sum(lambda e, u: element(v, f, e, u), sizes=(neighbours.shape[0], x.shape[0]))


@operator("girih.neighbour_max_gradient", piece=graph_piece, temporary=read_by_edges)
def neighbour_max_gradient(grad, top, x, offsets, neighbours, first=0, start=0):
    """The graph is the transposed one: row v of x is read by the vertices u."""

    def element(v, f, e, u):
        here = edge_of(offsets, neighbours, v, e, u, first, start)
        return Select(here & equal(x[(v, *f)], top[(u, *f)]), grad[(u, *f)], 0)

    return lambda v, *f: Sum(lambda e, u: element(v, f, e, u), sizes=(neighbours.shape[0], grad.shape[0]))


# ------------------------------------------------------------------------------------------- attention


def score_of(source, target, scores, u, v, e, h):
    """The score of the edge e by which v reads u, before its negative part is scaled."""
    score = source[u, h] + target[v, h]
    return score if scores is None else score + scores[e, h]


def leaky(score, slope):
    return Select(score > 0, score, score * slope)


def gradient_of(grad, x, dot, share, score, slope, v, u, h):
    """The gradient of an edge's score before its negative part is scaled; x and grad are summed over their features."""
    change = share * (Sum(lambda c: grad[v, h, c] * x[u, h, c], sizes=(x.shape[2],)) - dot[v, h])
    return Select(score > 0, change, change * slope)


@operator("girih.attention_logsumexp", piece=graph_piece, temporary=read_with_shares)
def attention_logsumexp(source, target, offsets, neighbours, scores=None, slope=1.0, first=0, start=0):
    def element(v, h, e, u):
        score = leaky(score_of(source, target, scores, u, v, e, h), slope)
        return Select(edge_of(offsets, neighbours, v, e, u, first, start), score, -inf)

    return lambda v, h: LogSumExp(lambda e, u: element(v, h, e, u), sizes=(neighbours.shape[0], source.shape[0]))


@operator("girih.attention_sum", piece=graph_piece, temporary=read_with_shares)
def attention_sum(x, logsumexp, source, target, offsets, neighbours, scores=None, slope=1.0, first=0, start=0):
    def element(v, h, c, e, u):
        share = exp(leaky(score_of(source, target, scores, u, v, e, h), slope) - logsumexp[v, h])
        return Select(edge_of(offsets, neighbours, v, e, u, first, start), share * x[u, h, c], 0)

    return lambda v, h, c: Sum(lambda e, u: element(v, h, c, e, u), sizes=(neighbours.shape[0], x.shape[0]))


def edge_gradient(grad, x, dot, logsumexp, source, target, offsets, neighbours, scores, slope, first, start):
    """The gradient of the score of the edge e by which v reads u."""

    def element(v, h, e, u):
        score = score_of(source, target, scores, u, v, e, h)
        share = exp(leaky(score, slope) - logsumexp[v, h])
        change = gradient_of(grad, x, dot, share, score, slope, v, u, h)
        return Select(edge_of(offsets, neighbours, v, e, u, first, start), change, 0)

    return element


@operator("girih.attention_target_gradient", piece=graph_piece, temporary=read_with_shares)
def attention_target_gradient(
    grad, x, dot, logsumexp, source, target, offsets, neighbours, scores=None, slope=1.0, first=0, start=0
):
    element = edge_gradient(grad, x, dot, logsumexp, source, target, offsets, neighbours, scores, slope, first, start)
    return lambda v, h: Sum(lambda e, u: element(v, h, e, u), sizes=(neighbours.shape[0], x.shape[0]))


@operator("girih.attention_score_gradient", piece=graph_piece, temporary=read_with_shares)
def attention_score_gradient(
    grad, x, dot, logsumexp, source, target, offsets, neighbours, scores=None, slope=1.0, first=0, start=0
):
    element = edge_gradient(grad, x, dot, logsumexp, source, target, offsets, neighbours, scores, slope, first, start)
    return lambda e, h: Sum(lambda v, u: element(v, h, e, u), sizes=(target.shape[0], x.shape[0]))


@operator("girih.attention_source_gradient", temporary=read_with_shares)
def attention_source_gradient(grad, x, dot, logsumexp, source, target, offsets, neighbours, scores=None, slope=1.0):
    """The graph is the transposed one: row v of x and source is read by the vertices u. The gradient of the scores
    stands behind that of x."""
    sizes = (neighbours.shape[0], grad.shape[0])

    def element(part, v, h, c, e, u):
        score = score_of(source, target, scores, v, u, e, h)
        share = exp(leaky(score, slope) - logsumexp[u, h])
        value = gradient_of(grad, x, dot, share, score, slope, u, v, h) if part else share * grad[u, h, c]
        return Select(edge_of(offsets, neighbours, v, e, u), value, 0)

    def sums(part, v, h, c):
        return Sum(lambda e, u: element(part, v, h, c, e, u), sizes=sizes)

    return lambda v, h, c: Concatenated(c, (x.shape[2], 1), lambda part, c: sums(part, v, h, c))
