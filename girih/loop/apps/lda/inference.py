"""Topics of new documents under fixed topics, by EM on each document's mixture (as PLSA folds in, with α's smoothing).

The share of topic k in a document becomes proportional to α + the expected number of its tokens of topic k, until it
moves by less than a tolerance: deterministic, O(distinct words × topics) for each document and round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.layout.jit import numba


@numba.njit(nogil=True, cache=True, fastmath=True)
def folded_in(
    pointers: Any, words: Any, counts: Any, chances: Any, alpha: float, rounds: int, tolerance: float, shares: Any
) -> None:
    """Fill shares [documents, topics].

    pointers, words, counts: a CSR matrix's of documents × words; chances: [words, topics] of a word in a topic.
    """
    topics = chances.shape[1]
    fresh = np.empty(topics, np.float32)
    for document in range(len(pointers) - 1):
        own = shares[document]
        own[:] = np.float32(1 / topics)
        total = np.float32(0)
        for at in range(pointers[document], pointers[document + 1]):
            total += counts[at]
        scale = np.float32(1 / (total + topics * alpha))
        for _ in range(rounds):
            fresh[:] = np.float32(alpha)
            for at in range(pointers[document], pointers[document + 1]):
                row = chances[words[at]]
                dot = np.float32(0)
                for k in range(topics):
                    dot += own[k] * row[k]
                weight = np.float32(counts[at]) / max(dot, np.float32(1e-30))
                for k in range(topics):
                    fresh[k] += weight * own[k] * row[k]
            change = np.float32(0)
            for k in range(topics):
                now = fresh[k] * scale
                change += abs(now - own[k])
                own[k] = now
            if change < tolerance:
                break


@numba.njit(nogil=True, cache=True, fastmath=True)
def log_chances(pointers: Any, words: Any, counts: Any, chances: Any, shares: Any) -> Any:
    """The sum over tokens of the logarithm of their probability."""
    total = 0.0
    for document in range(len(pointers) - 1):
        own = shares[document]
        for at in range(pointers[document], pointers[document + 1]):
            row = chances[words[at]]
            dot = np.float32(0)
            for k in range(len(own)):
                dot += own[k] * row[k]
            total += counts[at] * np.log(max(dot, np.float32(1e-30)))
    return total
