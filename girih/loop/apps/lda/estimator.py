"""LDA as an estimator of scikit-learn's conventions, its sampler chosen by what a sweep costs at this K and corpus."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from girih.loop.apps import checks
from girih.loop.apps.lda import progress
from girih.loop.apps.lda.corpora import Corpus, read_corpus
from girih.loop.apps.lda.inference import folded_in, log_chances
from girih.loop.apps.lda.layout import word_counts
from girih.loop.apps.lda.schedule import Cells, Model, Passes
from girih.loop.apps.lda.tables import dense_bytes, hybrid_bytes
from girih.loop.apps.team import Team
from girih.machine.units import format_bytes, parse_bytes

SAMPLERS = ("gibbs", "light", "warp")
SWEEPS = {"gibbs": 1.0, "light": 1.5, "warp": 2.0}
"""Sweeps that are taken to do what one of Gibbs' does, an estimate: a proposal that is refused moves nothing."""
TRIAL = 300_000
"""Tokens of the documents on which the samplers are timed."""
MOST_WORKERS = 64


@dataclass(frozen=True)
class Sweep:
    """What the observer is told after a sweep. seconds: of this sweep; likelihood: None where it was not asked for."""

    number: int
    sampler: str
    tokens: int
    seconds: float
    likelihood: float | None


class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by sampling the topic of each token (thesis §4.1).

    n_components: topics, K. doc_topic_prior, topic_word_prior: α and β; None: 1 / K, as scikit-learn. max_iter: sweeps.
    sampler: "gibbs" (exact, O(K) for each token), "light" (LightLDA: O(1), documents in order, slices of words travel),
        "warp" (WarpLDA: O(1), passes over words and over documents, no table of words by topics), or "auto": each is
        timed on some documents, and the cheapest for equal progress is taken.
    workers: threads. The result follows from random_state and workers (for "warp" from random_state alone).
    evaluate_every: sweeps after which the likelihood is computed; 0: only after the last.
    cycles: LightLDA's proposals for each token and sweep, in pairs.
    memory: bytes for the table of words by topics and the blocks of a corpus that is on disk ("4GB").
    directory: where a corpus that is larger than memory is kept, with the topics of its tokens; None: in memory.
    checkpoint: a file that is written every `checkpoint_every` sweeps, and after the last. resume: go on from it if it
        is there, to the same numbers as without the interruption; otherwise it is replaced.
    observer: is called with a Sweep after each.

    After fit: components_ [K, words], counts with the prior, word_topic_ [words, K] sparse counts, likelihoods_
    [(sweep, log p(words, topics) for each token)], sampler_, trial_seconds_ of each sampler (with "auto"), n_iter_.
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        max_iter: int = 100,
        sampler: str = "auto",
        workers: int = 1,
        random_state: int = 0,
        evaluate_every: int = 0,
        cycles: int = 1,
        memory: int | str = "4GB",
        directory: str | Path | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        resume: bool = False,
        observer: Callable[[Sweep], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.sampler = sampler
        self.workers = workers
        self.random_state = random_state
        self.evaluate_every = evaluate_every
        self.cycles = cycles
        self.memory = memory
        self.directory = directory
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.observer = observer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # whole numbers; scikit-learn has no word for counts
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "word_topic_")

    # ------------------------------------------------------------------------------------------------- training

    def fit(self, X: Any, y: Any = None) -> LDA:
        """Sample topics for all tokens, max_iter times.

        X: what `read_corpus` takes: a matrix, a UCI or Parquet file, gensim's documents, or a Corpus.

        Raises:
            ValueError: an option is out of range, or the source is damaged; a checkpoint is (LoopCheckpointError), or
                it is of another corpus or other options.
            OSError: a checkpoint cannot be written; the last one is whole.
            MemoryError: the sampler's table does not fit into `memory`.
        """
        model = self._model()
        corpus = read_corpus(self._checked(X, True), directory=self.directory)
        resumed = self.resume and self.checkpoint is not None and Path(self.checkpoint).exists()
        chosen = self._chosen(corpus, model, resumed)
        state = started(corpus, model, chosen)
        identity = {} if self.checkpoint is None else progress.identity_of(corpus, model, state)
        done = progress.LdaProgress()
        if resumed:
            done = progress.restore(str(self.checkpoint), state, identity)
        with Team(model.workers) as team:
            for number in range(done.sweeps, self.max_iter):
                began = time.perf_counter()
                state.sweep(number, team.all)
                seconds = time.perf_counter() - began
                told = None
                last = number + 1 == self.max_iter
                if last or (self.evaluate_every and (number + 1) % self.evaluate_every == 0):
                    told = state.likelihood() / corpus.tokens
                    done.likelihoods.append((number + 1, told))
                done.sweeps = number + 1
                if self.checkpoint is not None and (last or done.sweeps % self.checkpoint_every == 0):
                    progress.save(self.checkpoint, state, identity, done)
                if self.observer is not None:
                    self.observer(Sweep(number + 1, chosen, corpus.tokens, seconds, told))
        self.likelihoods_ = done.likelihoods
        self.sampler_ = chosen
        self.n_iter_ = done.sweeps
        self.n_features_in_, self._n_features_out = corpus.vocabulary, self.n_components
        self.word_topic_ = state.word_topic()
        self.doc_topic_prior_, self.topic_word_prior_ = model.alpha, model.beta
        return self

    def _chosen(self, corpus: Corpus, model: Model, resumed: bool) -> str:
        """The sampler: as named, as in the checkpoint, or the cheapest in trials."""
        self.trial_seconds_: dict[str, float] = {}
        if self.sampler == "auto" and resumed:
            return progress.saved_sampler(str(self.checkpoint))
        if self.sampler == "auto":
            self.trial_seconds_ = trials(corpus, model)
            return min(self.trial_seconds_, key=lambda name: self.trial_seconds_[name] * SWEEPS[name])
        size = _table_bytes(corpus, model, self.sampler)
        if size > model.memory:
            raise MemoryError(
                f"the table of {corpus.vocabulary:,} words by {model.topics:,} topics needs {format_bytes(size)} of "
                f"{format_bytes(model.memory)}: use sampler='warp', which needs none, or allow more memory"
            )
        return self.sampler

    def _checked(self, X: Any, first: bool) -> Any:
        """A matrix, or what can be made one, as scikit-learn checks it: its shape, and numbers that are none or below
        0. Other sources as they are. first: its number of words is what others are compared with."""
        if hasattr(X, "tocsr") or hasattr(X, "__array__"):
            return validate_data(self, X, reset=first, accept_sparse="csr", ensure_non_negative=True)
        return X

    def _model(self) -> Model:
        topics = self.n_components
        checks.whole("n_components", topics, 1)
        checks.whole("max_iter", self.max_iter, 1)
        checks.whole("workers", self.workers, 1, MOST_WORKERS)
        checks.whole("random_state", self.random_state, 0)
        checks.whole("evaluate_every", self.evaluate_every, 0)
        checks.whole("cycles", self.cycles, 1)
        checks.whole("checkpoint_every", self.checkpoint_every, 1)
        if self.resume and self.checkpoint is None:
            raise ValueError("resume=True, and no checkpoint: give checkpoint=FILE, from which it goes on")
        if self.sampler not in (*SAMPLERS, "auto"):
            raise ValueError(f"sampler={self.sampler!r}: expected auto, {', '.join(SAMPLERS)}")
        priors = []
        for name in ("doc_topic_prior", "topic_word_prior"):
            value: Any = getattr(self, name)
            value = 1 / topics if value is None else value
            if not (isinstance(value, float | int | np.number) and np.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value!r}: expected a number above 0, or None for 1 / n_components")
            priors.append(float(value))
        memory = parse_bytes(self.memory)
        return Model(topics, priors[0], priors[1], self.random_state, self.workers, memory, self.cycles)

    # ------------------------------------------------------------------------------------------------- results

    @property
    def components_(self) -> np.ndarray:
        """[K, words]: how often each word is of each topic, with the prior, as scikit-learn's."""
        return np.asarray(self._fitted().toarray().T + self.topic_word_prior_, np.float64)

    def transform(self, X: Any) -> np.ndarray:
        """[documents, K]: the shares of topics in documents, each row with the sum 1. X: as for `fit`."""
        matrix = self._matrix(X)
        shares = np.empty((matrix.shape[0], self._fitted().shape[1]), np.float32)
        used, chances = self._chances(matrix)
        _fold(matrix, used, chances, self.doc_topic_prior_, shares)
        return shares

    def perplexity(self, X: Any, given: Any = None) -> float:
        """exp(− the mean logarithm of a token's probability), with topics folded in.

        given: other words of the same documents, by which their topics are found: X is then held out honestly. None:
            they are found by X itself.
        """
        return float(np.exp(-self.score(X, given=given)))

    def score(self, X: Any, y: Any = None, given: Any = None) -> float:
        """The mean logarithm of a token's probability: more is better."""
        matrix = self._matrix(X)
        if not matrix.nnz:
            raise ValueError("there are no tokens: expected at least one word in one document")
        shares = self.transform(matrix if given is None else given)
        if len(shares) != matrix.shape[0]:
            raise ValueError(f"given has {len(shares)} documents: expected {matrix.shape[0]}, as X")
        used, chances = self._chances(matrix)
        words = np.searchsorted(used, matrix.indices)
        return float(log_chances(matrix.indptr, words, matrix.data, chances, shares) / matrix.data.sum())

    def _fitted(self) -> scipy.sparse.csr_matrix:
        check_is_fitted(self)
        return self.word_topic_

    def _matrix(self, X: Any) -> scipy.sparse.csr_matrix:
        words = self._fitted().shape[0]
        corpus = read_corpus(self._checked(X, False), vocabulary=words)
        table = scipy.sparse.csr_matrix(
            (np.ones(corpus.tokens, np.float32), np.asarray(corpus.words), corpus.starts),
            shape=(corpus.documents, words),
        )
        table.sum_duplicates()
        return table

    def _chances(self, matrix: scipy.sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """(the words of a matrix, their probabilities in each topic: [words, K])."""
        table = self._fitted()
        used = np.unique(matrix.indices)
        sums = np.asarray(table.sum(axis=0)).ravel() + table.shape[0] * self.topic_word_prior_
        return used, ((table[used].toarray() + self.topic_word_prior_) / sums).astype(np.float32)


def _fold(
    matrix: scipy.sparse.csr_matrix, used: np.ndarray, chances: np.ndarray, alpha: float, shares: np.ndarray,
    rounds: int = 50, tolerance: float = 1e-3,
) -> None:  # fmt: skip
    words = np.searchsorted(used, matrix.indices)
    folded_in(matrix.indptr, words, matrix.data, chances, alpha, rounds, tolerance, shares)


def _table_bytes(corpus: Corpus, model: Model, sampler: str) -> int:
    """An upper bound on the bytes of counts of words by topics."""
    if sampler == "warp":
        return 0
    if sampler == "gibbs":
        return dense_bytes(corpus.vocabulary, model.topics)
    return hybrid_bytes(word_counts(corpus), model.topics)


def started(corpus: Corpus, model: Model, sampler: str) -> Cells | Passes:
    """Topics at random for all tokens, and their counts."""
    return Passes(corpus, model) if sampler == "warp" else Cells(corpus, model, sampler)


def trials(corpus: Corpus, model: Model) -> dict[str, float]:
    """CPU seconds for each token and sweep of every sampler whose table fits, on a run of documents from the middle.

    The least of some sweeps counts: a busy machine makes single ones slow.
    """
    first = corpus.documents // 2
    first = int(np.searchsorted(corpus.starts, max(corpus.starts[first] - TRIAL // 2, 0)))
    last = int(np.searchsorted(corpus.starts, corpus.starts[first] + TRIAL))
    last = min(max(last, first + 1), corpus.documents)
    a, b = int(corpus.starts[first]), int(corpus.starts[last])
    if a == b:
        return {"warp": 0.0}
    some = Corpus(np.array(corpus.words[a:b]), corpus.starts[first : last + 1] - a, corpus.vocabulary)
    one = Model(model.topics, model.alpha, model.beta, model.seed, 1, model.memory, model.cycles)
    found = {}
    run = Team(1).all
    for sampler in SAMPLERS:
        if _table_bytes(corpus, model, sampler) > model.memory:
            continue
        state = started(some, one, sampler)
        state.sweep(0, run)  # compiles
        taken = []
        for number in range(1, 4):
            began = time.thread_time()
            state.sweep(number, run)
            taken.append(time.thread_time() - began)
        found[sampler] = min(taken) / some.tokens
    return found
