"""`GradientBoostedTrees` and `GradientBoostedRegressor`: boosting by Newton steps, as scikit-learn's estimators.

Friedman 2001; Chen and Guestrin 2016 for the second order. Each tree is fitted to the gradients of the loss at what the
trees before it say: the log loss of two classes, or half the squared error. Gradients are float32, all sums float64.
The same data, parameters and seed give the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from girih.loop.apps import checks
from girih.loop.apps.team import Team, threads_of
from girih.loop.apps.trees import kernels, progress
from girih.loop.apps.trees.bins import find_bins, put_in_bins
from girih.loop.apps.trees.forest import Forest, forest_of
from girih.loop.apps.trees.grow import Grower, Growth

ANY_LEAVES = 31
"""The most leaves of a tree where neither depth nor leaves are given."""


class _Boosting(BaseEstimator):  # type: ignore[misc]
    """Parameters, boosting and checkpoints of both estimators."""

    forest_: Forest
    n_features_in_: int

    def __init__(
        self,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        *,
        growth: str = "level",
        max_depth: int | None = 6,
        max_leaves: int | None = None,
        min_samples_leaf: int = 20,
        min_hessian_leaf: float = 1e-3,
        l2_regularization: float = 0.0,
        max_bins: int = 255,
        subsample: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        resume: bool = False,
        observer: Callable[[int], None] | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.growth = growth
        self.max_depth = max_depth
        self.max_leaves = max_leaves
        self.min_samples_leaf = min_samples_leaf
        self.min_hessian_leaf = min_hessian_leaf
        self.l2_regularization = l2_regularization
        self.max_bins = max_bins
        self.subsample = subsample
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.observer = observer

    @property
    def feature_importances_(self) -> np.ndarray:
        """The gain of each feature's splits, as a part of the whole."""
        check_is_fitted(self)
        return self.forest_.importances(self.n_features_in_)

    def _growth(self) -> Growth:
        """The parameters of trees.

        Raises:
            ValueError: a parameter cannot be.
        """
        checks.whole("n_estimators", self.n_estimators, 1)
        checks.whole("min_samples_leaf", self.min_samples_leaf, 1)
        checks.whole("max_bins", self.max_bins, 2, 255)
        checks.whole("checkpoint_every", self.checkpoint_every, 1)
        if self.resume and self.checkpoint is None:
            raise ValueError("resume=True, and no checkpoint: give checkpoint=FILE, from which it goes on")
        for name in ("max_depth", "max_leaves"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), 1 if name == "max_depth" else 2)
        checks.number("learning_rate", self.learning_rate, 0, above=True)
        checks.number("min_hessian_leaf", self.min_hessian_leaf, 0)
        checks.number("l2_regularization", self.l2_regularization, 0)
        checks.number("subsample", self.subsample, 0, 1, above=True)
        if self.growth not in ("level", "leaf"):
            raise ValueError(f"growth={self.growth!r}: expected 'level' or 'leaf'")
        if self.max_leaves is not None:
            leaves = self.max_leaves
        else:
            leaves = ANY_LEAVES if self.max_depth is None else 2 ** min(self.max_depth, 30)
        return Growth(
            self.growth == "leaf", self.max_depth, leaves, self.min_samples_leaf, self.min_hessian_leaf,
            self.l2_regularization, self.learning_rate,
        )  # fmt: skip

    def _boost(self, x: np.ndarray, target: np.ndarray, weights: np.ndarray, logistic: bool, base: float) -> None:
        """Fit `forest_`. target: of each row, 0 or 1 if logistic. weights: of each row, or empty."""
        growth = self._growth()
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        count = len(x)
        done = progress.begun(seed, base, count)
        saving = self._saving(x, target, weights, growth)
        if self.resume and saving.place is not None and saving.place.exists():
            done = progress.restored(saving, seed if isinstance(self.random_state, int | np.integer) else None)
        everyone = np.arange(count)
        pairs = np.empty((count, 2), np.float32)
        with Team(threads_of(self.n_jobs)) as team:
            sampling = done.random if not done.trees else np.random.default_rng(done.seed)
            bins = find_bins(x, self.max_bins, sampling, team)
            grower = Grower(put_in_bins(x, bins, team), bins, growth, team)
            for number in range(len(done.trees) + 1, self.n_estimators + 1):
                team.each(kernels.differentiate, count, done.raw, target, weights, logistic, pairs)
                chosen = everyone
                if self.subsample < 1:
                    part = max(1, round(count * self.subsample))
                    chosen = np.sort(done.random.choice(count, part, replace=False))
                tree = grower.grow(pairs, chosen)
                done.trees.append(tree)
                if len(chosen) == count:
                    leaves = np.flatnonzero(tree.features < 0)
                    places = (tree.begins[leaves], tree.ends[leaves], tree.values[leaves])
                    team.each(kernels.add_leaves, count, grower.order, *places, done.raw)
                else:
                    done.raw += forest_of(0.0, [tree]).raw(x, team)
                if saving.place is not None and (number % saving.every == 0 or number == self.n_estimators):
                    progress.save(saving, done)
                if saving.observer is not None:
                    saving.observer(number)
        self.forest_ = forest_of(done.base, done.trees[: self.n_estimators])

    def _saving(self, x: np.ndarray, target: np.ndarray, weights: np.ndarray, growth: Growth) -> progress.TreesSaving:
        if self.checkpoint is None:
            return progress.TreesSaving(None, self.checkpoint_every, self.observer, {})
        options = {"subsample": self.subsample, "max_bins": self.max_bins, "estimator": type(self).__name__}
        identity = progress.identity_of(x, target, weights, growth, options)
        return progress.TreesSaving(Path(self.checkpoint), self.checkpoint_every, self.observer, identity)

    def _raw(self, x: Any) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, x, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False, reset=False)
        with Team(threads_of(self.n_jobs)) as team:
            return self.forest_.raw(x, team)

    def _weights(self, sample_weight: Any, x: np.ndarray) -> np.ndarray:
        if sample_weight is None:
            return np.empty(0)
        weights: np.ndarray = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is 0 for every row: at least one must be positive")
        return weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class GradientBoostedTrees(ClassifierMixin, _Boosting):  # type: ignore[misc]
    """Two classes, by the log loss.

    n_estimators: trees. learning_rate: what each tree's values are multiplied by. growth: "level" splits all leaves of
    a level that gain by it, "leaf" the leaf of the largest gain. max_depth: None for any. max_leaves: None is what
    the depth allows, or 31. min_samples_leaf: rows; min_hessian_leaf: sum of hessians. l2_regularization: of leaves'
    values. max_bins: of a feature, 2 to 255, beside one for missing values. subsample: the part of the rows that each
    tree sees. random_state: of samples of rows. n_jobs: threads, None for one on each core; results do not depend on
    it. checkpoint: a file that is written after every `checkpoint_every` trees, and after the last; resume: go on from
    it if it is there, to the same trees as without the interruption, or with a larger `n_estimators` further. observer:
    is called with the number of trees after each. Missing values are NaN. After Friedman 2001, Ke et al. 2017.

    Attributes: classes_, forest_, feature_importances_, n_features_in_.
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GradientBoostedTrees:
        """X: (rows, features) numbers, NaN where missing. y: (rows) of two classes. sample_weight: (rows).

        Raises:
            ValueError: a parameter cannot be; X is not two-dimensional; y has NaN, or not two classes; a checkpoint is
                damaged, or of another fit (LoopCheckpointError).
            OSError: a checkpoint cannot be written; the last one is whole.
        """
        x, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass:"
                f" {len(self.classes_)} classes, where two are expected; fit one model for each, by OneVsRestClassifier"
            )
        weights = self._weights(sample_weight, x)
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class, {self.classes_[0]!r}: expected two, to tell apart")
        part = float(np.clip(np.average(codes, weights=weights if len(weights) else None), 1e-12, 1 - 1e-12))
        self._boost(x, codes.astype(np.float64), weights, True, float(np.log(part / (1 - part))))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The logarithm of the odds of classes_[1], for each row."""
        return self._raw(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, 2): the probability of each class."""
        right = expit(self._raw(X))
        return np.column_stack((1 - right, right))

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class of each row."""
        raw = self._raw(X)
        return self.classes_[(raw > 0).astype(np.int64)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class GradientBoostedRegressor(RegressorMixin, _Boosting):  # type: ignore[misc]
    """A number, by the squared error; the parameters are those of GradientBoostedTrees."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GradientBoostedRegressor:
        """X: (rows, features) numbers, NaN where missing. y: (rows) of numbers. sample_weight: (rows).

        Raises:
            ValueError: a parameter cannot be; X is not two-dimensional; y has NaN or infinite values; a checkpoint is
                damaged, or of another fit (LoopCheckpointError).
            OSError: a checkpoint cannot be written; the last one is whole.
        """
        x, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False, y_numeric=True
        )
        y = np.asarray(y, np.float64)
        weights = self._weights(sample_weight, x)
        self._boost(x, y, weights, False, float(np.average(y, weights=weights if len(weights) else None)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The value of each row."""
        return self._raw(X)
