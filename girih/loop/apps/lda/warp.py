"""WarpLDA's order of Metropolis-Hastings (Chen et al., VLDB 2016), for LDA's topics (thesis §4.1.2).

A sweep is two passes. The word pass visits words: it accepts or refuses the topics that the documents proposed, by the
counts of the word, and proposes topics for the documents' pass; the document pass does the same the other way round.
Either pass needs one row of counts, which lies in the cache, and no table of words by topics exists: a proposal
from a row of counts is the topic of a token drawn at random. The counts of topics are those from before the pass, and
a pass reads nothing of the other kind of row: these are the delayed counts. Unlike WarpLDA, the row itself is kept
current within its word or document.

Random numbers belong to words and documents and delays to passes, so that the result does not depend on how many
threads divide the words and documents. O(1) for each token and sweep, whatever the number of topics; two topics and one
index for each token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.layout.jit import numba
from girih.loop.apps.lda.randoms import high, low, started
from girih.loop.code.streams import STRIDE, mixed


@numba.njit(nogil=True, cache=True)
def word_pass(
    pairs: Any, starts: Any, first: int, last: int, sums: Any, moved: Any, alpha: float, beta: float,
    seed: int, sweep: int,
) -> None:  # fmt: skip
    """Judge documents' proposals and make those of the words first … last.

    pairs: [tokens, 2] in the words' order: topic and proposal. sums: for each topic its tokens before the pass, with
    the prior's. moved: gets the changes of the topics' counts.
    """
    topics = len(sums)
    row = np.zeros(topics, np.int32)
    prior = np.float32(beta)
    for word in range(first, last):
        a, b = starts[word], starts[word + 1]
        if a == b:
            continue
        for at in range(a, b):
            row[pairs[at, 0]] += 1
        state = started(seed, 2 * sweep, word)
        for at in range(a, b):
            old, new = pairs[at, 0], pairs[at, 1]
            if old != new:
                state += STRIDE
                up = (np.float32(row[new]) + prior) * sums[old]
                down = (np.float32(row[old] - 1) + prior) * sums[new]
                if high(mixed(state)) * down < up:
                    pairs[at, 0] = new
                    row[old] -= 1
                    row[new] += 1
                    moved[old] -= 1
                    moved[new] += 1
        count = b - a
        whole = count + topics * beta
        for at in range(a, b):
            state += STRIDE
            drawn = low(mixed(state)) * whole
            if drawn < count:
                pairs[at, 1] = pairs[a + np.int64(drawn), 0]
            else:
                pairs[at, 1] = min(np.int64((drawn - count) / beta), topics - 1)
        if count < topics:
            for at in range(a, b):
                row[pairs[at, 0]] = 0
        else:
            row[:] = 0


@numba.njit(nogil=True, cache=True)
def document_pass(
    pairs: Any, where: Any, starts: Any, first: int, last: int, sums: Any, moved: Any, alpha: float, beta: float,
    seed: int, sweep: int,
) -> None:  # fmt: skip
    """The same for the documents first … last; `where` says where a document's tokens lie in `pairs`."""
    topics = len(sums)
    row = np.zeros(topics, np.int32)
    prior = np.float32(alpha)
    longest = 1
    for document in range(first, last):
        longest = max(longest, starts[document + 1] - starts[document])
    own = np.empty(longest, pairs.dtype)
    for document in range(first, last):
        a, b = starts[document], starts[document + 1]
        count = b - a
        if count == 0:
            continue
        for at in range(count):
            own[at] = pairs[where[a + at], 0]
            row[own[at]] += 1
        state = started(seed, 2 * sweep + 1, document)
        for at in range(count):
            old, new = own[at], pairs[where[a + at], 1]
            if old != new:
                state += STRIDE
                up = (np.float32(row[new]) + prior) * sums[old]
                down = (np.float32(row[old] - 1) + prior) * sums[new]
                if high(mixed(state)) * down < up:
                    own[at] = new
                    row[old] -= 1
                    row[new] += 1
                    moved[old] -= 1
                    moved[new] += 1
        whole = count + topics * alpha
        for at in range(count):
            state += STRIDE
            drawn = low(mixed(state)) * whole
            place = where[a + at]
            pairs[place, 0] = own[at]
            if drawn < count:
                pairs[place, 1] = own[np.int64(drawn)]
            else:
                pairs[place, 1] = min(np.int64((drawn - count) / alpha), topics - 1)
        if count < topics:
            for at in range(count):
                row[own[at]] = 0
        else:
            row[:] = 0
