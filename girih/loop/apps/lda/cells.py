"""Samplers of the tokens of one cell, some documents' words of one slice: collapsed Gibbs, and LightLDA's.

`gibbs` draws from all topics' probabilities, which is exact and costs O(topics) for each token, in vectors of LANES.
`light` is LightLDA's Metropolis-Hastings (thesis §4.1, Yuan et al., WWW 2015): a cycle of a proposal from the document
(the topic of one of its tokens) and one from the word (an alias table, Walker 1977, of the counts that the word had
before the sweep), each accepted or refused by current counts: O(1) for each token. Tables hold nonzero
counts only, the prior is a second branch, so that a slice's tables are no larger than its tokens. The probability by
which a word proposed is that of its table, found by bisection of its nonzero counts, where LightLDA's program takes
the current counts. The token's own count is taken out of its word's table: a proposal that depends on the topic that
it may replace would not leave the posterior as it is. With tables that are made anew for each token the posterior is
exact; with those of a sweep a small error remains, since topics that other tokens had before still count.

Both read and write the rows of the cell's documents and words only, besides their copy of the topics' sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.layout.jit import numba
from girih.loop.apps.lda.randoms import high, low, started
from girih.loop.apps.lda.tables import LANES, count_of, put, take
from girih.loop.code.streams import STRIDE, mixed


@numba.njit(nogil=True, cache=True, fastmath=True)
def gibbs(
    topics_of: Any, words: Any, starts: Any, bounds: Any, first: int, last: int, part: int, table: Any, sums: Any,
    topics: int, alpha: float, beta: float, seed: int, sweep: int, base: int,
) -> None:  # fmt: skip
    """Sample the tokens of slice `part` in documents first … last.

    table: [words, topics up to a multiple of LANES] counts; sums: tokens of each topic; bounds[document, part]: where
    the slice's tokens begin. base: the number of the first document, by which random numbers are drawn.
    """
    padded = table.shape[1]
    smooth = np.float32(beta * table.shape[0])
    row = np.full(padded, np.float32(alpha))
    inverse = np.zeros(padded, np.float32)
    for k in range(topics):
        inverse[k] = np.float32(1) / (np.float32(sums[k]) + smooth)
    chances = np.empty(padded, np.float32)
    groups = padded // LANES
    totals = np.empty(groups, np.float32)
    prior = np.float32(beta)
    one = np.float32(1)
    for document in range(first, last):
        a, b = bounds[document, part], bounds[document, part + 1]
        if a == b:
            continue
        for at in range(starts[document], starts[document + 1]):
            row[topics_of[at]] += one
        state = started(seed, sweep, (base + document) * 64 + part)
        for at in range(a, b):
            old = np.int64(topics_of[at])
            counts = table[words[at]]
            counts[old] -= 1
            sums[old] -= 1
            row[old] -= one
            inverse[old] = one / (np.float32(sums[old]) + smooth)
            total = np.float32(0)
            for group in range(groups):
                here = np.float32(0)
                for lane in range(LANES):
                    k = group * LANES + lane
                    chance = row[k] * (np.float32(counts[k]) + prior) * inverse[k]
                    chances[k] = chance
                    here += chance
                totals[group] = here
                total += here
            state += STRIDE
            rest = high(mixed(state)) * total
            group = 0
            while group < groups - 1 and rest >= totals[group]:
                rest -= totals[group]
                group += 1
            new = group * LANES
            stop = min(new + LANES, topics) - 1
            while new < stop and rest >= chances[new]:
                rest -= chances[new]
                new += 1
            topics_of[at] = new
            counts[new] += 1
            sums[new] += 1
            row[new] += one
            inverse[new] = one / (np.float32(sums[new]) + smooth)
        for at in range(starts[document], starts[document + 1]):
            row[topics_of[at]] = np.float32(alpha)


@numba.njit(nogil=True)
def height_of(topic: Any, own: Any, heights: Any, begin: int, end: int) -> Any:
    """The count of a topic in a word's table, begin … end of ascending topics; 0 if it is not there."""
    stop = end
    while begin < stop:
        middle = (begin + stop) >> 1
        if own[middle] < topic:
            begin = middle + 1
        else:
            stop = middle
    return heights[begin] if begin < end and own[begin] == topic else np.float32(0)


@numba.njit(nogil=True, cache=True)
def light(
    topics_of: Any, words: Any, starts: Any, bounds: Any, first: int, last: int, part: int,
    rows: Any, bits: Any, cells: Any, sums: Any, topics: int, alpha: float, beta: float, seed: int, sweep: int,
    base: int, cycles: int, place: Any, lengths: Any, begins: Any, own: Any, other: Any, stay: Any, heights: Any,
) -> None:  # fmt: skip
    """As `gibbs`, by `cycles` cycles of proposals for each token.

    rows, bits, cells: of a HybridTable. begins, own, other, stay, heights: of alias_tables, which were made since each
    token was last sampled. place: a word's number among those. lengths: [vocabulary] tokens.
    """
    smooth = np.float32(beta * len(bits))
    prior, share = np.float32(beta), np.float32(alpha)
    row = np.zeros(topics, np.int32)
    for document in range(first, last):
        a, b = bounds[document, part], bounds[document, part + 1]
        if a == b:
            continue
        start, stop = starts[document], starts[document + 1]
        for at in range(start, stop):
            row[topics_of[at]] += 1
        length = stop - start
        of_document = length + topics * alpha
        state = started(seed, sweep, (base + document) * 64 + part)
        for at in range(a, b):
            old = np.int64(topics_of[at])
            now = old
            word = words[at]
            word_row, kind = rows[word], bits[word]
            count_now = np.float32(take(cells, word_row, kind, old))
            sums[old] -= 1
            row[old] -= 1
            item, length_of = place[word], lengths[word]
            begin, size = begins[item], begins[item + 1] - begins[item]
            of_word = length_of + topics * beta
            for _ in range(cycles):
                # The document proposes: q(k) is n_dk without this token, + α (drawing the token itself changes
                # nothing), which is a factor of the target: what is left to judge is the word's part.
                state += STRIDE
                drawn = low(mixed(state)) * of_document
                if drawn < length:
                    spot = start + np.int64(drawn)
                    new = now if spot == at else np.int64(topics_of[spot])
                else:
                    new = np.int64(min((drawn - length) / alpha, topics - 1))
                if new != now:
                    count_new = np.float32(count_of(cells, word_row, kind, new))
                    up = (count_new + prior) * (np.float32(sums[now]) + smooth)
                    down = (count_now + prior) * (np.float32(sums[new]) + smooth)
                    if high(mixed(state)) * down < up:
                        now, count_now = new, count_new
                # The word proposes: q(k) is n_wk of the table without this token, + β.
                state += STRIDE
                drawn = low(mixed(state)) * of_word
                if drawn < length_of:
                    slot = drawn * size / length_of
                    spot = begin + min(np.int64(slot), size - 1)
                    new = np.int64(own[spot] if slot - np.int64(slot) < stay[spot] else other[spot])
                    if new == old and new != now:  # once in height times it is this token itself, which says nothing
                        state += STRIDE
                        if high(mixed(state)) * height_of(old, own, heights, begin, begin + size) < 1:
                            new = now
                        state += STRIDE
                else:
                    new = np.int64(min((drawn - length_of) / beta, topics - 1))
                if new != now:
                    height_now = height_of(now, own, heights, begin, begin + size)
                    height_new = height_of(new, own, heights, begin, begin + size)
                    if now == old:
                        height_now -= 1
                    if new == old:
                        height_new -= 1
                    count_new = np.float32(count_of(cells, word_row, kind, new))
                    up = (np.float32(row[new]) + share) * (count_new + prior)
                    up *= (np.float32(sums[now]) + smooth) * (height_now + prior)
                    down = (np.float32(row[now]) + share) * (count_now + prior)
                    down *= (np.float32(sums[new]) + smooth) * (height_new + prior)
                    if high(mixed(state)) * down < up:
                        now, count_now = new, count_new
            topics_of[at] = now
            put(cells, word_row, kind, now)
            sums[now] += 1
            row[now] += 1
        for at in range(start, stop):
            row[topics_of[at]] = 0
