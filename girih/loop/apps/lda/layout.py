"""Where tokens and topics lie: in memory, or in files that are read and written ahead by double buffering.

Words are dealt into slices of about as many tokens each; within a document tokens are ordered by slice, so that the
tokens of any documents in any slice are found without a search (thesis §4.1.3, Fig. 4.1). A block is a run of documents
that lies in memory at one time: the next one is read, and the last one's topics are written, while one is sampled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from girih.layout.jit import numba
from girih.loop.apps.lda.corpora import Corpus

BYTES = 32
"""Bytes of a token in a block: word, topic and its document's bounds, twice, and some room."""


@dataclass(frozen=True)
class TokenLayout:
    """words, topics: [tokens] by document, within it by slice. bounds: [documents, slices + 1], where slices begin.

    slice_of: [vocabulary] the slice of each word. blocks: the first document of each, and the number of documents.
    """

    words: np.ndarray
    topics: np.ndarray
    starts: np.ndarray
    bounds: np.ndarray
    slice_of: np.ndarray
    blocks: tuple[int, ...]
    streamed: bool

    @property
    def slices(self) -> int:
        return int(self.bounds.shape[1] - 1)


@dataclass(frozen=True)
class TokenBlock:
    """Documents first … last, with arrays of their own tokens; starts and bounds count from the block's first token."""

    first: int
    last: int
    words: np.ndarray
    topics: np.ndarray
    starts: np.ndarray
    bounds: np.ndarray


@numba.njit(nogil=True, cache=True)
def _ordered(words, starts, slice_of, slices, ordered, bounds):  # type: ignore[no-untyped-def]
    """Put each document's tokens in the order of slices, and note where each begins: two scans of the tokens."""
    sizes = np.zeros(slices + 1, np.int64)
    for document in range(len(starts) - 1):
        sizes[:] = 0
        for at in range(starts[document], starts[document + 1]):
            sizes[slice_of[words[at]] + 1] += 1
        sizes[0] = starts[document]
        for part in range(slices):
            sizes[part + 1] += sizes[part]
        bounds[document] = sizes
        for at in range(starts[document], starts[document + 1]):
            part = slice_of[words[at]]
            ordered[sizes[part]] = words[at]
            sizes[part] += 1


def allocated(shape: tuple[int, ...], dtype: type, directory: Path | None, name: str) -> np.ndarray:
    """An array in memory, or in a file of the directory."""
    if directory is None:
        return np.zeros(shape, dtype)
    return np.memmap(directory / name, dtype, "w+", shape=shape)


def word_counts(corpus: Corpus) -> np.ndarray:
    """[vocabulary] tokens of each word; the corpus is read in runs."""
    counts = np.zeros(corpus.vocabulary, np.int64)
    for first in range(0, corpus.tokens, 1 << 22):
        counts += np.bincount(corpus.words[first : first + (1 << 22)], minlength=corpus.vocabulary)
    return counts


def sliced(counts: np.ndarray, slices: int) -> np.ndarray:
    """The slice of each word: words by descending count, each to the slice that has the fewest tokens."""
    found = np.zeros(len(counts), np.int32)
    loads = np.zeros(slices, np.int64)
    if slices > 1:
        for word in np.argsort(-counts, kind="stable"):
            part = int(np.argmin(loads))
            found[word] = part
            loads[part] += counts[word]
    return found


def laid_out(corpus: Corpus, slices: int, memory: int, counts: np.ndarray) -> TokenLayout:
    """The corpus's layout; blocks of at most `memory` bytes if it lies in files, else one."""
    slice_of = sliced(counts, slices)
    place = corpus.directory
    words = allocated((corpus.tokens,), np.int32, place, "ordered")
    topics = allocated((corpus.tokens,), np.int32, place, "topics")
    bounds = allocated((corpus.documents, slices + 1), np.int64, place, "bounds")
    blocks = [0]
    if place is not None:
        most = max(memory // (2 * BYTES), 1)
        while blocks[-1] < corpus.documents:
            end = int(np.searchsorted(corpus.starts, corpus.starts[blocks[-1]] + most, "right")) - 1
            blocks.append(min(max(end, blocks[-1] + 1), corpus.documents))
    else:
        blocks.append(corpus.documents)
    for first, last in itertools.pairwise(blocks):
        a, b = int(corpus.starts[first]), int(corpus.starts[last])
        ordered = np.empty(b - a, np.int32)
        cells = np.empty((last - first, slices + 1), np.int64)
        tokens = np.ascontiguousarray(corpus.words[a:b])
        _ordered(tokens, corpus.starts[first : last + 1] - a, slice_of, slices, ordered, cells)
        words[a:b] = ordered
        bounds[first:last] = cells + a
    return TokenLayout(words, topics, corpus.starts, bounds, slice_of, tuple(blocks), place is not None)


def blocks_of(layout: TokenLayout) -> Iterator[TokenBlock]:
    """Each block in turn. What is done to its topics is kept when the next one is asked for."""
    if not layout.streamed:
        yield TokenBlock(0, len(layout.starts) - 1, layout.words, layout.topics, layout.starts, layout.bounds)
        return
    spans = list(itertools.pairwise(layout.blocks))
    written: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="girih-lda-files") as files:
        coming = files.submit(_read, layout, *spans[0])
        for number in range(len(spans)):
            block = coming.result()
            if number + 1 < len(spans):
                coming = files.submit(_read, layout, *spans[number + 1])
            yield block
            if written is not None:
                written.result()  # an error of writing is raised here
            written = files.submit(_write, layout, block)
        if written is not None:
            written.result()


def _read(layout: TokenLayout, first: int, last: int) -> TokenBlock:
    a, b = int(layout.starts[first]), int(layout.starts[last])
    return TokenBlock(
        first,
        last,
        np.array(layout.words[a:b]),
        np.array(layout.topics[a:b]),
        layout.starts[first : last + 1] - a,
        np.array(layout.bounds[first:last]) - a,
    )


def _write(layout: TokenLayout, block: TokenBlock) -> None:
    a = int(layout.starts[block.first])
    layout.topics[a : a + len(block.topics)] = block.topics


def shares(starts: np.ndarray, count: int) -> np.ndarray:
    """[count + 1] where to divide documents (or words) so that each part has about as many tokens."""
    goals = np.linspace(starts[0], starts[-1], count + 1)[1:-1]
    inner = np.searchsorted(starts, goals)
    return np.concatenate([[0], inner, [len(starts) - 1]]).astype(np.int64)
