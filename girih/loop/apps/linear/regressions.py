"""Logistic regression on sparse samples, binary and multinomial, by SGD (Orion, thesis, table 5.3 and appendix A.2).

The loop over samples reads and updates the weights of the features that a sample has, which no analysis knows
beforehand; writes go through a buffer, so that samples are divided among workers (data parallelism). After `delay`
samples of each worker what all have written is applied. The penalty of a feature is met where a sample has it, so
that a sample costs O(its features); `pull` makes up for how seldom that is. Where we differ: AdaGrad's sums of squares
begin with what the samples within one delay add at weights of 0, since otherwise all of their steps were first ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot, softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

import girih.loop as gl
from girih.loop.apps import checks
from girih.loop.apps.linear import bodies
from girih.loop.code.entries import Ragged


class _Regression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray

    def __init__(
        self,
        epochs: int = 10,
        step: float = 0.1,
        *,
        optimizer: str = "adagrad",
        alpha: float = 1e-5,
        delay: int = 50,
        fit_intercept: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.epochs = epochs
        self.step = step
        self.optimizer = optimizer
        self.alpha = alpha
        self.delay = delay
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _samples(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """(CSR with a column of ones behind, if there is an intercept; codes of classes; weights)."""
        checks.whole("epochs", self.epochs, 1)
        checks.whole("delay", self.delay, 1)
        checks.number("step", self.step, 0, above=True)
        checks.number("alpha", self.alpha, 0)
        checks.optimizer(self.optimizer)
        x, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}: expected two, to tell apart")
        weights = np.ones(len(codes))
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        matrix = scipy.sparse.csr_array(x)
        if self.fit_intercept:
            matrix = scipy.sparse.csr_array(scipy.sparse.hstack([matrix, np.ones((len(codes), 1))], format="csr"))
        order = check_random_state(self.random_state).permutation(len(codes))
        return scipy.sparse.csr_array(matrix[order]), codes[order], weights[order]

    def _learn(self, matrix: Any, codes: np.ndarray, weights: np.ndarray, outputs: int) -> np.ndarray:
        """Weights, (features) of one output, else (features, outputs)."""
        count, features = matrix.shape
        ids = Ragged(matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64))
        values = Ragged(matrix.data, matrix.indptr.astype(np.int64))
        columns = (codes.astype(np.float64 if outputs == 1 else np.int64), weights, ids, values)
        samples = gl.sparse((np.arange(count),), columns)
        seen = np.bincount(matrix.indices, minlength=features)
        pull = self.alpha * count / np.maximum(seen, 1)
        if self.fit_intercept:
            pull[-1] = 0
        shape = (features,) if outputs == 1 else (features, outputs)
        learned = gl.array(np.zeros(shape))
        given: dict[str, Any] = {"weights": learned, "buffered": gl.buffer(learned, delay=self.delay), "pull": pull}
        if self.optimizer == "adarevision":
            further = gl.array(np.ones((2, *shape)))
            revise = bodies.revision(float(self.step))  # type: ignore[no-untyped-call]
            given["buffered"] = gl.buffer(learned, revise, delay=self.delay, further=further)
        else:
            given["step"] = self.step
        if self.optimizer == "adagrad":
            workers = checks.workers_of(self.n_jobs) or gl.workers()
            part = min(1.0, workers * self.delay / count)
            squares = gl.array(part * _first_squares(matrix, codes, weights, outputs).reshape(shape))
            given |= {"squares": squares, "squared": gl.buffer(squares, delay=self.delay)}
        if outputs > 1:
            given["classes"] = outputs
        ending = {"sgd": "", "adagrad": "_adagrad", "adarevision": "_gradient"}[self.optimizer]
        name = ("binary" if outputs == 1 else "multinomial") + ending
        loop = gl.parallel_for(samples, workers=checks.workers_of(self.n_jobs), fastmath=True)(getattr(bodies, name))
        for _ in range(self.epochs):
            loop(**given)
        found = learned.numpy()
        if not np.isfinite(found).all():
            raise ValueError(f"the weights grew beyond all numbers with step={self.step!r}: give a smaller one")
        return found

    def _keep(self, learned: np.ndarray) -> None:
        learned = np.atleast_2d(learned.T)
        self.intercept_ = learned[:, -1].copy() if self.fit_intercept else np.zeros(len(learned))
        self.coef_ = learned[:, :-1].copy() if self.fit_intercept else learned

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: (rows) of two classes, the logarithm of the odds of classes_[1]; else (rows, classes)."""
        check_is_fitted(self)
        x = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores: np.ndarray = np.asarray(safe_sparse_dot(x, self.coef_.T)) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, classes): the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            right = expit(scores)
            return np.column_stack((1 - right, right))
        probabilities: np.ndarray = softmax(scores)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        scores = self.decision_function(X)
        chosen: np.ndarray = self.classes_[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]
        return chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _first_squares(matrix: Any, codes: np.ndarray, weights: np.ndarray, outputs: int) -> np.ndarray:
    """(features, outputs): the sum of the squares of all samples' gradients where all weights are 0."""
    if outputs == 1:
        diff = (0.5 - codes)[:, None]
    else:
        diff = 1 / outputs - (codes[:, None] == np.arange(outputs))
    return np.asarray(matrix.power(2).T @ (weights[:, None] * diff) ** 2)


class SparseLogisticRegression(_Regression):
    """Two classes; X may be a SciPy sparse array.

    epochs: passes over the samples. step: size of steps. optimizer: "sgd", "adagrad" or "adarevision", which sizes
    steps by the sums of what `delay` samples of each worker add (McMahan and Streeter 2014). alpha: the L2 penalty,
    alpha/2 of the weights' squares beside the mean loss. delay: after so many samples of each worker, written
    weights are seen by all. random_state: of the samples' order. n_jobs: workers, None for `gl.workers()` or
    those of the cluster in use. The same seed and number of workers give the same bits. Orion, thesis, appendix A.2.

    Attributes: classes_, coef_ (1, features), intercept_ (1), n_features_in_.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseLogisticRegression:
        """X: (rows, features), dense or sparse. y: (rows) of two classes. sample_weight: (rows), of each one's loss.

        Raises:
            ValueError: a parameter cannot be; X or y has NaN; y has not two classes; the weights diverge.
        """
        matrix, codes, weights = self._samples(X, y, sample_weight)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass:"
                f" {len(self.classes_)} classes, where two are expected; see MultinomialLogisticRegression"
            )
        self._keep(self._learn(matrix, codes, weights, 1))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class MultinomialLogisticRegression(_Regression):
    """Any number of classes, by the softmax; the parameters are those of SparseLogisticRegression.

    Attributes: classes_, coef_ (classes, features), intercept_ (classes), n_features_in_.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultinomialLogisticRegression:
        """X: (rows, features), dense or sparse. y: (rows) of classes. sample_weight: (rows), of each one's loss.

        Raises:
            ValueError: a parameter cannot be; X or y has NaN; y has one class; the weights diverge.
        """
        matrix, codes, weights = self._samples(X, y, sample_weight)
        self._keep(self._learn(matrix, codes, weights, len(self.classes_)))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: (rows, classes); of two classes (rows), the logarithm of the odds of classes_[1]."""
        scores = super().decision_function(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores
