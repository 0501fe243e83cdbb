"""Sweeps over a corpus, by threads that never touch the same row (LightLDA's schedule, thesis §4.1.3 and Fig. 4.1).

Cells: documents are divided among the workers and words into as many slices. In step t worker p samples its documents'
tokens of slice (p + t) mod workers; a slice of the table of words by topics then passes to the next worker. No two
workers touch one document or one word, so only the topics' sums are apart: each worker has a copy for a step, and
changes are added up, in the workers' order, between steps. The result follows from the seed and the number of workers.

Passes (WarpLDA): words, then documents, are divided into shares that the workers take one after another; the result
does not depend on who takes which, nor on the number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from girih.layout.jit import numba
from girih.loop.apps.lda.cells import gibbs, light
from girih.loop.apps.lda.corpora import Corpus
from girih.loop.apps.lda.layout import TokenBlock, allocated, blocks_of, laid_out, shares, word_counts
from girih.loop.apps.lda.tables import LANES, DenseTable, HybridTable, alias_tables
from girih.loop.apps.lda.warp import document_pass, word_pass

SHARES = 8
"""Shares of words or documents for each worker of a pass: a worker takes the next share when it has finished one, so
that a slow core delays no other."""

Run = Callable[[list[Callable[[], Any]]], None]
"""Calls functions at once and waits for all: `Team.all`."""


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
    """Collapsed Gibbs, or LightLDA's sampler, over rotating slices."""

    def __init__(self, corpus: Corpus, model: Model, sampler: str) -> None:
        self.model, self.sampler = model, sampler
        self.heights = word_counts(corpus)
        self.layout = laid_out(corpus, model.workers, model.memory, self.heights)
        self.table: DenseTable | HybridTable
        if sampler == "gibbs":
            self.table = DenseTable(corpus.vocabulary, model.topics)
        else:
            self.table = HybridTable.of(self.heights, model.topics)
        self.sums = np.zeros(-(-model.topics // LANES) * LANES, np.int64)
        self.of_part = [np.flatnonzero(self.layout.slice_of == part) for part in range(model.workers)]
        self.place = np.zeros(corpus.vocabulary, np.int64)
        for words in self.of_part:
            self.place[words] = np.arange(len(words))
        for block in blocks_of(self.layout):
            generator = np.random.default_rng((model.seed, block.first))
            block.topics[:] = generator.integers(0, model.topics, len(block.topics), dtype=np.int32)
            self.table.count(block.words, block.topics, self.sums)

    @property
    def assigned(self) -> np.ndarray:
        """[tokens] the topic of each, as the layout has them."""
        return self.layout.topics

    def assign(self, topics: np.ndarray) -> None:
        """Give all tokens their topics, and count anew."""
        self.layout.topics[:] = topics
        self.table.clear()
        self.sums[:] = 0
        for block in blocks_of(self.layout):
            self.table.count(block.words, block.topics, self.sums)

    def sweep(self, number: int, run: Run) -> None:
        """Sample every token once. number: of the sweep, by which random numbers are drawn."""
        aliases: list[Any] = [None] * self.model.workers
        table = self.table
        if isinstance(table, HybridTable):
            arrays = (table.begins, table.bits, table.cells, table.topics)

            def tables(part: int) -> Callable[[], None]:
                def build() -> None:
                    aliases[part] = alias_tables(self.of_part[part], *arrays)

                return build

            run([tables(part) for part in range(self.model.workers)])
        for block in blocks_of(self.layout):
            self._block(block, number, run, aliases)

    def _block(self, block: TokenBlock, number: int, run: Run, aliases: list[Any]) -> None:
        workers = self.model.workers
        cuts = shares(block.starts, workers)
        for step in range(workers):
            copies = [self.sums.copy() for _ in range(workers)]
            parts = [(worker + step) % workers for worker in range(workers)]
            run([
                self._cell(block, cuts[worker : worker + 2], parts[worker], copies[worker], number, aliases)
                for worker in range(workers)
            ])  # fmt: skip
            self.sums += sum(copy - self.sums for copy in copies)

    def _cell(
        self, block: TokenBlock, cuts: np.ndarray, part: int, sums: np.ndarray, number: int, aliases: list[Any]
    ) -> Callable[[], None]:
        model, table = self.model, self.table
        tokens = (block.topics, block.words, block.starts, block.bounds, int(cuts[0]), int(cuts[1]), part)
        rest = (sums, model.topics, model.alpha, model.beta, model.seed, number, block.first)
        if isinstance(table, DenseTable):
            return lambda: gibbs(*tokens, table.counts, *rest)
        rows = (table.begins, table.bits, table.cells)
        return lambda: light(*tokens, *rows, *rest, model.cycles, self.place, self.heights, *aliases[part])

    def word_topic(self) -> scipy.sparse.csr_matrix:
        """[vocabulary, topics] counts."""
        return self.table.sparse()

    def likelihood(self) -> float:
        model = self.model
        total = _of_counts(self.table.sparse().data, model.beta)
        total += _of_sums(self.sums[: model.topics], len(self.heights), model.beta)
        for block in blocks_of(self.layout):
            total += _of_documents(block.topics, block.starts, model.topics, model.alpha)
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
            cuts = shares(starts, SHARES * model.workers if model.workers > 1 else 1).tolist()
            left = iter(list(itertools.pairwise(cuts)))  # a list's iterator gives each share to one thread
            sums = (self.sums + self.corpus.vocabulary * model.beta).astype(np.float32)
            moved = [np.zeros(model.topics, np.int64) for _ in range(model.workers)]

            def share(
                worker: int, words: bool = words, left: Any = left, sums: Any = sums, moved: Any = moved
            ) -> Callable[[], None]:
                rest = (sums, moved[worker], model.alpha, model.beta, model.seed, number)

                def sample() -> None:
                    for first, last in left:
                        if words:
                            word_pass(self.pairs, self.starts, first, last, *rest)
                        else:
                            document_pass(self.pairs, self.where, self.corpus.starts, first, last, *rest)

                return sample

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


@numba.njit(nogil=True, cache=True)
def _placed(words, free, where):  # type: ignore[no-untyped-def]
    """where[i]: the next free place of token i's word, in the order by words."""
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


def _of_documents(topics_of: np.ndarray, starts: np.ndarray, topics: int, alpha: float) -> float:
    from scipy.special import gammaln

    lengths = np.diff(starts)
    keys = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths) * topics + topics_of
    _, counts = np.unique(keys, return_counts=True)
    total = _of_counts(counts, alpha)
    return total + float((gammaln(topics * alpha) - gammaln(lengths + topics * alpha)).sum())
