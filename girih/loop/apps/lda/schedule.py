"""Sweeps over a corpus, by threads that never touch the same row (LightLDA's schedule, thesis §4.1.3 and Fig. 4.1).

Cells: documents are divided among the workers and words into as many slices. In step t worker p samples its documents'
tokens of slice (p + t) mod workers; a slice of the table of words by topics then passes to the next worker. No two
workers touch one document or one word, so only the topics' sums are apart: each worker has a copy for a step, and
changes are added up, in the workers' order, between steps. The result follows from the seed and the number of workers.

Passes (WarpLDA): words, then documents, are divided among the workers; the result does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import scipy.sparse

from girih.loop.apps.lda.cells import LANES, alias_tables, gibbs, light
from girih.loop.apps.lda.corpora import Corpus
from girih.loop.apps.lda.layout import Block, allocated, blocks_of, laid_out, shares, word_counts
from girih.loop.apps.lda.warp import document_pass, word_pass

Run = Callable[[list[Callable[[], Any]]], None]


@dataclass(frozen=True)
class Model:
    """topics: how many. alpha, beta: the priors of a topic in a document, of a word in a topic."""

    topics: int
    alpha: float
    beta: float
    seed: int
    workers: int
    memory: int
    cycles: int = 1


class Cells:
    """Collapsed Gibbs, or LightLDA's sampler, over rotating slices. The table of words by topics is dense."""

    def __init__(self, corpus: Corpus, model: Model, sampler: str) -> None:
        self.model, self.sampler = model, sampler
        padded = -(-model.topics // LANES) * LANES
        self.heights = word_counts(corpus)
        self.layout = laid_out(corpus, model.workers, model.memory, self.heights)
        self.table = np.zeros((corpus.vocabulary, padded), np.int32)
        self.sums = np.zeros(padded, np.int64)
        self.of_part = [np.flatnonzero(self.layout.slice_of == part) for part in range(model.workers)]
        self.place = np.zeros(corpus.vocabulary, np.int64)
        for words in self.of_part:
            self.place[words] = np.arange(len(words))
        for block in blocks_of(self.layout):
            generator = np.random.default_rng((model.seed, block.first))
            block.topics[:] = generator.integers(0, model.topics, len(block.topics), dtype=np.int32)
            _count(block.words, block.topics, self.table, self.sums)

    @property
    def assigned(self) -> np.ndarray:
        """[tokens] the topic of each, as the layout has them."""
        return self.layout.topics

    def assign(self, topics: np.ndarray) -> None:
        """Give all tokens their topics, and count anew."""
        self.layout.topics[:] = topics
        self.table[:] = 0
        self.sums[:] = 0
        for block in blocks_of(self.layout):
            _count(block.words, block.topics, self.table, self.sums)

    def sweep(self, number: int, run: Run) -> None:
        """Sample every token once. number: of the sweep, by which random numbers are drawn."""
        for block in blocks_of(self.layout):
            self._block(block, number, run)

    def _block(self, block: Block, number: int, run: Run) -> None:
        model = self.model
        cuts = shares(block.starts, model.workers)
        for step in range(model.workers):
            copies = [self.sums.copy() for _ in range(model.workers)]
            run([self._cell(block, cuts, worker, step, copies[worker], number) for worker in range(model.workers)])
            self.sums += sum(copy - self.sums for copy in copies)

    def _cell(
        self, block: Block, cuts: np.ndarray, worker: int, step: int, sums: np.ndarray, number: int
    ) -> Callable[[], None]:
        model, part = self.model, (worker + step) % self.model.workers

        def sample() -> None:
            common = (
                block.topics, block.words, block.starts, block.bounds, int(cuts[worker]), int(cuts[worker + 1]), part,
                self.table, sums, model.topics, model.alpha, model.beta, model.seed, number, block.first, model.cycles,
            )  # fmt: skip
            if self.sampler == "gibbs":
                gibbs(*common)
            else:
                words = self.of_part[part]
                light(*common, *alias_tables(self.table, words, model.topics), self.place, self.heights[words])

        return sample

    def word_topic(self) -> scipy.sparse.csr_matrix:
        return scipy.sparse.csr_matrix(self.table[:, : self.model.topics])

    def likelihood(self) -> float:
        total = _of_words(self.table, self.sums, self.model.topics, self.model.beta)
        for block in blocks_of(self.layout):
            total += _of_documents(block.topics, block.starts, self.model.topics, self.model.alpha)
        return total


class Passes:
    """WarpLDA: two topics for each token, in the words' order, and where each document's tokens lie."""

    sampler = "warp"

    def __init__(self, corpus: Corpus, model: Model) -> None:
        self.model, self.corpus = model, corpus
        kind: type = np.uint16 if model.topics <= 1 << 16 else np.int32
        counts = word_counts(corpus)
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        place = corpus.directory
        index: type = np.int32 if corpus.tokens < 1 << 31 else np.int64
        self.pairs = allocated((corpus.tokens, 2), kind, place, "pairs")
        self.where = allocated((corpus.tokens,), index, place, "where")
        self.sums = np.zeros(model.topics, np.int64)
        step = 1 << 22
        free = self.starts[:-1].copy()
        for first in range(0, corpus.tokens, step):
            _placed(corpus.words[first : first + step], free, self.where[first : first + step])
            piece = self.pairs[first : first + step]
            generator = np.random.default_rng((model.seed, first))
            piece[:] = generator.integers(0, model.topics, len(piece), dtype=np.int32)[:, None]
            self.sums += np.bincount(piece[:, 0], minlength=model.topics)

    @property
    def assigned(self) -> np.ndarray:
        """[tokens, 2] topics and proposals, in the words' order."""
        return self.pairs

    def assign(self, pairs: np.ndarray) -> None:
        """Give all tokens their topics and proposals, and count anew."""
        self.pairs[:] = pairs
        self.sums[:] = 0
        for first in range(0, len(pairs), 1 << 22):
            self.sums += np.bincount(pairs[first : first + (1 << 22), 0], minlength=self.model.topics)

    def sweep(self, number: int, run: Run) -> None:
        model = self.model
        for words in (True, False):
            starts = self.starts if words else self.corpus.starts
            cuts = shares(starts, model.workers)
            sums = (self.sums + self.corpus.vocabulary * model.beta).astype(np.float32)
            moved = [np.zeros(model.topics, np.int64) for _ in range(model.workers)]

            def share(
                worker: int, words: bool = words, cuts: Any = cuts, sums: Any = sums, moved: Any = moved
            ) -> Callable[[], None]:
                rest = (
                    int(cuts[worker]), int(cuts[worker + 1]), sums, moved[worker], model.alpha, model.beta,
                    model.seed, number,
                )  # fmt: skip
                if words:
                    return lambda: word_pass(self.pairs, self.starts, *rest)
                return lambda: document_pass(self.pairs, self.where, self.corpus.starts, *rest)

            run([share(worker) for worker in range(model.workers)])
            self.sums += sum(moved)

    def word_topic(self) -> scipy.sparse.csr_matrix:
        """[vocabulary, topics] counts."""
        parts = []
        step = max(1, (1 << 22) * self.corpus.vocabulary // max(self.corpus.tokens, 1))
        for first in range(0, self.corpus.vocabulary, step):
            starts = self.starts[first : first + step + 1]
            topics = np.asarray(self.pairs[starts[0] : starts[-1], 0])
            rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            shape = (len(starts) - 1, self.model.topics)
            parts.append(scipy.sparse.coo_matrix((np.ones(len(rows), np.int32), (rows, topics)), shape=shape).tocsr())
        return scipy.sparse.vstack(parts, format="csr")

    def likelihood(self) -> float:
        model = self.model
        table = self.word_topic()
        total = _of_counts(table.data, model.beta)
        total += _of_sums(self.sums, self.corpus.vocabulary, model.beta)
        for first in range(0, self.corpus.documents, 1 << 16):
            starts = self.corpus.starts[first : first + (1 << 16) + 1]
            topics = self.pairs[self.where[starts[0] : starts[-1]], 0]
            total += _of_documents(topics, starts - starts[0], model.topics, model.alpha)
        return total


def threads(workers: int) -> tuple[Run, Callable[[], None]]:
    """(what runs functions at once and waits for all, what ends the threads)."""
    if workers == 1:

        def one(works: list[Callable[[], Any]]) -> None:
            for work in works:
                work()

        return one, lambda: None
    pool = ThreadPoolExecutor(workers, thread_name_prefix="girih-lda")

    def several(works: list[Callable[[], Any]]) -> None:
        for future in [pool.submit(work) for work in works]:
            future.result()

    return several, pool.shutdown


@numba.njit(nogil=True, cache=True)
def _count(words, topics, table, sums):  # type: ignore[no-untyped-def]
    for at in range(len(words)):
        table[words[at], topics[at]] += 1
        sums[topics[at]] += 1


@numba.njit(nogil=True, cache=True)
def _placed(words, free, where):  # type: ignore[no-untyped-def]
    for at in range(len(words)):
        where[at] = free[words[at]]
        free[words[at]] += 1


# The joint likelihood log p(words, topics): Dirichlet-multinomials of words by topic, and of topics by document.


def _of_counts(counts: np.ndarray, prior: float) -> float:
    from scipy.special import gammaln

    return float((gammaln(counts + prior) - gammaln(prior)).sum())


def _of_sums(sums: np.ndarray, vocabulary: int, beta: float) -> float:
    from scipy.special import gammaln

    return float((gammaln(vocabulary * beta) - gammaln(sums + vocabulary * beta)).sum())


def _of_words(table: np.ndarray, sums: np.ndarray, topics: int, beta: float) -> float:
    total = _of_sums(sums[:topics], len(table), beta)
    for first in range(0, len(table), 4096):
        part = table[first : first + 4096, :topics]
        total += _of_counts(part[part > 0], beta)
    return total


def _of_documents(topics_of: np.ndarray, starts: np.ndarray, topics: int, alpha: float) -> float:
    from scipy.special import gammaln

    lengths = np.diff(starts)
    keys = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths) * topics + topics_of
    _, counts = np.unique(keys, return_counts=True)
    total = _of_counts(counts, alpha)
    return total + float((gammaln(topics * alpha) - gammaln(lengths + topics * alpha)).sum())
