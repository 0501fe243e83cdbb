"""`MatrixFactorisation`: ratings as products of users' and items' factors, by SGD (Orion, thesis, fig. 5.4, app. A.1).

The loop over ratings is serial as it is written; girih divides it in two dimensions, users and items, so that workers
never update the same row, and the result is that of some serial order. O(rank) for each rating and epoch. A user that
is met later gets factors by ridge regression on the items' (`transform`), O(ratings · rank² + rank³).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

import girih.loop as gl
from girih.loop.apps import checks
from girih.loop.apps.linear import bodies


class MatrixFactorisation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """rating ≈ mean_ + W[user] · components_[:, item].

    n_components: the rank. epochs: passes over the ratings. step: size of steps. optimizer: "sgd", "adagrad" or
    "adarevision". alpha: the L2 penalty of the factors for each rating. random_state: of the first factors. n_jobs:
    workers, None for `gl.workers()` or those of the cluster in use. The same seed and number of workers
    give the same bits.

    Attributes: components_ (rank, items), user_factors_ (users, rank), mean_, n_features_in_ (items).
    """

    components_: np.ndarray
    user_factors_: np.ndarray
    mean_: float

    def __init__(
        self,
        n_components: int = 16,
        epochs: int = 20,
        step: float = 0.1,
        *,
        optimizer: str = "adagrad",
        alpha: float = 0.02,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epochs = epochs
        self.step = step
        self.optimizer = optimizer
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> MatrixFactorisation:
        """X: (users, items): a SciPy sparse array, whose stored elements are ratings; an array, NaN where there is no
        rating; or an iteration space of `gl.sparse`, from a file of any kind that it reads.

        Raises:
            ValueError: a parameter cannot be; there are no ratings, or some are infinite or NaN; the factors diverge.
        """
        checks.whole("n_components", self.n_components, 1)
        checks.whole("epochs", self.epochs, 1)
        checks.number("step", self.step, 0, above=True)
        checks.number("alpha", self.alpha, 0)
        checks.optimizer(self.optimizer)
        i, j, values, shape = ratings_of(X)
        self.mean_ = float(values.mean())
        centred = (values - self.mean_).astype(np.float32)
        space = gl.sparse((i, j), centred, shape=shape)
        random = check_random_state(self.random_state)
        scale = (max(float(centred.std()), 1e-3) / self.n_components**0.5) ** 0.5
        W, H = (gl.array(random.normal(0, scale, (size, self.n_components)), np.float32) for size in shape)
        adaptive = self.optimizer != "sgd"
        loop = gl.parallel_for(space, ordered=False, workers=checks.workers_of(self.n_jobs), fastmath=True)(
            bodies.rating_adagrad if adaptive else bodies.rating
        )
        given: dict[str, Any] = {"W": W, "H": H, "step": float(self.step), "l2": float(self.alpha)}
        if adaptive:  # no update is ever missed in two dimensions: AdaRevision is AdaGrad from sums of 1 on
            first = 1.0 if self.optimizer == "adarevision" else 0.0
            squares = (gl.array(np.full(item.shape, first, np.float32)) for item in (W, H))
            given |= dict(zip(("SW", "SH"), squares, strict=True)) | {"rank": self.n_components}
        for _ in range(self.epochs):
            loop(**given)
        if not (np.isfinite(W.values).all() and np.isfinite(H.values).all()):
            raise ValueError(f"the factors grew beyond all numbers with step={self.step!r}: give a smaller one")
        self.user_factors_ = W.numpy()
        self.components_ = H.numpy().T.copy()
        self.n_features_in_, self._n_features_out = shape[1], self.n_components
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Factors of users, known or not, from their ratings: X as for fit, with as many items. (users, rank)."""
        check_is_fitted(self)
        i, j, values, shape = ratings_of(X, empty=True)
        if shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as"
                " input: the items of fit"
            )
        found = np.zeros((shape[0], self.n_components))
        order = np.argsort(i, kind="stable")
        users, starts = np.unique(i[order], return_index=True)
        for user, mine in zip(users, np.split(order, starts[1:]), strict=True):
            items = self.components_[:, j[mine]].astype(np.float64)
            penalty = max(self.alpha * len(mine), 1e-6) * np.eye(self.n_components)
            found[user] = np.linalg.solve(items @ items.T + penalty, items @ (values[mine] - self.mean_))
        return found

    def predict(self, pairs: Any) -> np.ndarray:
        """Ratings of (pairs, 2) of a user and an item, by number.

        Raises:
            ValueError: they are no pairs of integers, or there is no such user or item.
        """
        check_is_fitted(self)
        given = np.asarray(pairs)
        if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
            raise ValueError(f"pairs of {given.dtype}{list(given.shape)}: expected integers (pairs, 2), user and item")
        for column, (name, size) in enumerate((("user", len(self.user_factors_)), ("item", self.n_features_in_))):
            wrong = (given[:, column] < 0) | (given[:, column] >= size)
            if wrong.any():
                raise ValueError(f"{name} {given[wrong.argmax(), column]} of pair {wrong.argmax()}: there are {size}")
        products: np.ndarray = np.einsum(
            "pr,rp->p", self.user_factors_[given[:, 0]], self.components_[:, given[:, 1]], dtype=np.float64
        )
        return self.mean_ + products

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the root of the mean squared error of the ratings of X, of users and items of fit; more is better."""
        i, j, values, _ = ratings_of(X)
        return -float(np.sqrt(np.mean((self.predict(np.column_stack((i, j))) - values) ** 2)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def ratings_of(X: Any, empty: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """(users, items, ratings, (number of users, number of items)).

    Raises:
        ValueError: there are none, unless `empty`, or they are no finite numbers of two dimensions.
    """
    if isinstance(X, gl.Space):
        entries = X.listed()
        if len(X.shape) != 2 or len(entries.columns) != 1:
            raise ValueError(f"{X!r}: expected keys of a user and an item, with one number as value")
        i, j = entries.keys
        column = entries.columns[0]
        if not isinstance(column, np.ndarray) or column.ndim != 1:
            raise ValueError(f"{X!r}: expected one number as value of each entry")
        values, (users, items) = column.astype(np.float64), X.shape
    elif scipy.sparse.issparse(X):
        table = X.tocoo()
        i, j = table.coords
        values, (users, items) = table.data.astype(np.float64), table.shape
    else:
        dense = check_array(X, dtype=np.float64, ensure_all_finite=False)
        i, j = np.nonzero(~np.isnan(dense))
        values, (users, items) = dense[i, j], dense.shape
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"the rating of user {i[at]} and item {j[at]} is {values[at]}: expected a finite number")
    if not len(values) and not empty:
        raise ValueError(f"X of {users} users and {items} items has no ratings: expected one or more")
    return i, j, values, (int(users), int(items))
