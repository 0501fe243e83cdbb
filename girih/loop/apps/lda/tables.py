"""Tables of words by topics: dense for Gibbs, which reads whole rows, and hybrid for LightLDA (thesis §4.1.3).

A hybrid row is dense if its word is frequent, else a hash table of the topics that it has (linear probing; a count of
0 is taken out, and what follows it is moved up), with room for 1.5 times as many as the word has tokens. So a table
needs O(tokens) bytes at most, whatever the number of topics, and a count costs O(1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from girih.layout.jit import numba

LANES = 16
DENSE = -1
"""In `bits`: the row is dense."""
MIXER = np.uint32(0x9E3779B1)
ALIAS_BYTES = 16
"""Bytes of an alias table for each nonzero count."""


class DenseTable:
    """counts: [words, topics up to a multiple of LANES] int32."""

    def __init__(self, words: int, topics: int) -> None:
        self.topics = topics
        self.counts = np.zeros((words, -(-topics // LANES) * LANES), np.int32)

    def clear(self) -> None:
        self.counts[:] = 0

    def count(self, words: np.ndarray, topics: np.ndarray, sums: np.ndarray) -> None:
        """Add tokens, also to the topics' sums."""
        _count_dense(words, topics, self.counts, sums)

    def sparse(self) -> scipy.sparse.csr_matrix:
        return scipy.sparse.csr_matrix(self.counts[:, : self.topics])


@dataclass(frozen=True)
class HybridTable:
    """begins: [words + 1] where rows lie in `cells`. bits: [words] of a hash table's size, or DENSE.

    cells: int32; a dense row has a count for each topic, a hash table a pair (topic + 1, count) for each place.
    """

    topics: int
    begins: np.ndarray
    bits: np.ndarray
    cells: np.ndarray

    @staticmethod
    def of(tokens: np.ndarray, topics: int) -> HybridTable:
        """For words that have so many tokens."""
        bits, begins = _places(tokens, topics)
        return HybridTable(topics, begins, bits, np.zeros(begins[-1], np.int32))

    def clear(self) -> None:
        self.cells[:] = 0

    def count(self, words: np.ndarray, topics: np.ndarray, sums: np.ndarray) -> None:
        """Add tokens, also to the topics' sums."""
        _count_hybrid(words, topics, self.begins, self.bits, self.cells, sums)

    def sparse(self) -> scipy.sparse.csr_matrix:
        words = np.arange(len(self.bits))
        begins = nonzeros(words, self.begins, self.bits, self.cells, self.topics)
        own, counts = np.empty(begins[-1], np.int32), np.empty(begins[-1], np.int32)
        _listed(words, begins, self.begins, self.bits, self.cells, self.topics, own, counts)
        return scipy.sparse.csr_matrix((counts, own, begins), shape=(len(words), self.topics))


def dense_bytes(words: int, topics: int) -> int:
    return words * (-(-topics // LANES) * LANES) * 4


def hybrid_bytes(tokens: np.ndarray, topics: int) -> int:
    """At most, with its alias tables, which have as many entries as there are nonzero counts."""
    return int(_places(tokens, topics)[1][-1]) * 4 + int(np.minimum(tokens, topics).sum()) * ALIAS_BYTES


def _places(tokens: np.ndarray, topics: int) -> tuple[np.ndarray, np.ndarray]:
    """(bits, begins) of rows."""
    bits = np.ceil(np.log2(np.maximum(tokens, 1) * 1.5)).astype(np.int8)
    bits[2 << bits.astype(np.int64) >= topics] = DENSE
    sizes = np.where(bits == DENSE, topics, 2 << np.maximum(bits, 0).astype(np.int64))
    return bits, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@numba.njit(nogil=True, cache=True)
def _count_dense(words, topics, counts, sums):  # type: ignore[no-untyped-def]
    """Add tokens, of a word and a topic each, to the counts and to the topics' sums."""
    for at in range(len(words)):
        counts[words[at], topics[at]] += 1
        sums[topics[at]] += 1


@numba.njit(nogil=True, cache=True)
def _count_hybrid(words, topics, begins, bits, cells, sums):  # type: ignore[no-untyped-def]
    """The same, for rows that are dense or hash tables."""
    for at in range(len(words)):
        word = words[at]
        put(cells, begins[word], bits[word], topics[at])
        sums[topics[at]] += 1


@numba.njit(nogil=True, inline="always")
def _home(topic: Any, bits: Any) -> Any:
    """Where a topic should be in a hash table."""
    return np.int64(np.uint32(np.uint32(topic) * MIXER) >> np.uint32(32 - bits))


@numba.njit(nogil=True)
def count_of(cells: Any, begin: Any, bits: Any, topic: Any) -> Any:
    """The count of a topic in the row that begins there."""
    if bits == DENSE:
        return cells[begin + topic]
    mask = (np.int64(1) << np.int64(bits)) - 1
    at = _home(topic, bits)
    while True:
        key = cells[begin + 2 * at]
        if key == topic + 1:
            return cells[begin + 2 * at + 1]
        if key == 0:
            return np.int32(0)
        at = (at + 1) & mask


@numba.njit(nogil=True)
def put(cells: Any, begin: Any, bits: Any, topic: Any) -> None:
    """Count one more of a topic in the row that begins there."""
    if bits == DENSE:
        cells[begin + topic] += 1
        return
    mask = (np.int64(1) << np.int64(bits)) - 1
    at = _home(topic, bits)
    while cells[begin + 2 * at] != 0 and cells[begin + 2 * at] != topic + 1:
        at = (at + 1) & mask
    cells[begin + 2 * at] = topic + 1
    cells[begin + 2 * at + 1] += 1


@numba.njit(nogil=True)
def take(cells: Any, begin: Any, bits: Any, topic: Any) -> Any:
    """Count one less, and return what is left; the topic must be there. An entry that is gone leaves no gap in its
    chain: later ones that may lie there move up (Knuth's deletion with linear probing)."""
    if bits == DENSE:
        cells[begin + topic] -= 1
        return cells[begin + topic]
    mask = (np.int64(1) << np.int64(bits)) - 1
    gap = _home(topic, bits)
    while cells[begin + 2 * gap] != topic + 1:
        gap = (gap + 1) & mask
    cells[begin + 2 * gap + 1] -= 1
    left = cells[begin + 2 * gap + 1]
    if left > 0:
        return left
    at = (gap + 1) & mask
    while cells[begin + 2 * at] != 0:
        home = _home(cells[begin + 2 * at] - 1, bits)
        if ((at - home) & mask) >= ((at - gap) & mask):  # it may lie in the gap
            cells[begin + 2 * gap] = cells[begin + 2 * at]
            cells[begin + 2 * gap + 1] = cells[begin + 2 * at + 1]
            gap = at
        at = (at + 1) & mask
    cells[begin + 2 * gap] = 0
    cells[begin + 2 * gap + 1] = 0
    return left


@numba.njit(nogil=True, cache=True)
def nonzeros(words: Any, rows: Any, bits: Any, cells: Any, topics: int) -> Any:
    """[words + 1] where the nonzero counts of each word begin, if they lie behind each other."""
    begins = np.zeros(len(words) + 1, np.int64)
    for item in range(len(words)):
        row, found = rows[words[item]], 0
        if bits[words[item]] == DENSE:
            for k in range(topics):
                if cells[row + k] > 0:
                    found += 1
        else:
            for at in range(np.int64(1) << np.int64(bits[words[item]])):
                if cells[row + 2 * at] > 0:
                    found += 1
        begins[item + 1] = begins[item] + found
    return begins


@numba.njit(nogil=True, cache=True)
def _listed(words: Any, begins: Any, rows: Any, bits: Any, cells: Any, topics: int, own: Any, counts: Any) -> None:
    """The topics of each word, ascending, and their counts."""
    packed = np.empty(topics, np.int64)
    for item in range(len(words)):
        row, at = rows[words[item]], begins[item]
        if bits[words[item]] == DENSE:
            for k in range(topics):
                if cells[row + k] > 0:
                    own[at] = k
                    counts[at] = cells[row + k]
                    at += 1
            continue
        size = 0
        for slot in range(np.int64(1) << np.int64(bits[words[item]])):
            if cells[row + 2 * slot] > 0:
                packed[size] = (np.int64(cells[row + 2 * slot] - 1) << 32) | np.int64(cells[row + 2 * slot + 1])
                size += 1
        packed[:size].sort()
        for each in range(size):
            own[at + each] = packed[each] >> 32
            counts[at + each] = packed[each] & 0xFFFFFFFF


@numba.njit(nogil=True, cache=True)
def alias_tables(words: Any, rows: Any, bits: Any, cells: Any, topics: int) -> Any:
    """(where each word's table begins, topics, their aliases, the chances of staying, the topics' counts).

    words: whose. O(nonzero counts), and O(topics) for each dense row (Walker 1977, Vose 1991).
    """
    begins = nonzeros(words, rows, bits, cells, topics)
    own = np.empty(begins[-1], np.int32)
    other = np.empty(begins[-1], np.int32)
    stay = np.empty(begins[-1], np.float32)
    heights = np.empty(begins[-1], np.float32)
    _listed(words, begins, rows, bits, cells, topics, own, heights)
    longest = 1
    for item in range(len(words)):
        longest = max(longest, begins[item + 1] - begins[item])
    weights = np.empty(longest, np.float32)
    small, large = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for item in range(len(words)):
        a = begins[item]
        size = begins[item + 1] - a
        total = 0.0
        for at in range(size):
            total += heights[a + at]
        few, many = 0, 0
        for at in range(size):
            weights[at] = heights[a + at] * np.float32(size / total)
            if weights[at] < 1:
                small[few] = at
                few += 1
            else:
                large[many] = at
                many += 1
        while few > 0 and many > 0:
            few -= 1
            less, more = small[few], large[many - 1]
            stay[a + less] = weights[less]
            other[a + less] = own[a + more]
            weights[more] -= 1 - weights[less]
            if weights[more] < 1:
                many -= 1
                small[few] = more
                few += 1
        for at in range(many):
            stay[a + large[at]] = 1
            other[a + large[at]] = own[a + large[at]]
        for at in range(few):
            stay[a + small[at]] = 1
            other[a + small[at]] = own[a + small[at]]
    return begins, own, other, stay, heights
