"""Regressions and factorisations on parallel loops, against scikit-learn's and NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import girih.loop as gl
from girih.loop.apps.linear import MatrixFactorisation, MultinomialLogisticRegression, SparseLogisticRegression


def samples(classes: int, rows: int = 3000, features: int = 60) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    draw = np.random.default_rng(0)
    x = scipy.sparse.random_array((rows, features), density=0.15, format="csr", rng=draw, data_sampler=draw.normal)
    truth = draw.normal(0, 1.5, (features, classes))
    return x, (x @ truth + 0.3 + draw.gumbel(size=(rows, classes))).argmax(axis=1)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("classes", [2, 4])
def test_regressions_are_near_those_of_scikit_learn(optimizer: str, classes: int) -> None:
    x, y = samples(classes)
    kind = SparseLogisticRegression if classes == 2 else MultinomialLogisticRegression
    step = 0.2 if optimizer == "adagrad" else 0.05
    model = kind(12, step, optimizer=optimizer, alpha=1e-3, n_jobs=2, random_state=0).fit(x, y)
    peer = LogisticRegression(C=1 / (1e-3 * len(y)), max_iter=500).fit(x, y)
    assert model.score(x, y) > peer.score(x, y) - 0.01
    own, other = model.predict_proba(x), peer.predict_proba(x)
    assert np.abs(own - other).mean() < 0.03
    np.testing.assert_allclose(own.sum(axis=1), 1)
    assert model.coef_.shape == ((1, 60) if classes == 2 else (4, 60))


def test_dense_samples_and_names_of_classes() -> None:
    x, y = samples(2, 400, 20)
    names = np.array(["no", "yes"])[y]
    model = SparseLogisticRegression(3, n_jobs=1, random_state=0).fit(x, names)
    dense = clone(model).fit(x.toarray(), names)
    assert (model.predict(x) == dense.predict(x.toarray())).mean() > 0.99
    assert set(model.predict(x)) == {"no", "yes"}
    assert (clone(model).fit(x, names).coef_ == model.coef_).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 0}, "epochs=0: expected a whole number from 1"),
        ({"step": -1.0}, "step=-1.0: expected a number above 0"),
        ({"optimizer": "adam"}, "expected one of 'sgd', 'adagrad'"),
        ({"n_jobs": 0}, "n_jobs=0"),
    ],
)
def test_parameters_that_cannot_be(change: dict, words: str) -> None:
    x, y = samples(2, 50, 20)
    with pytest.raises(ValueError, match=words):
        SparseLogisticRegression(**change).fit(x, y)
    ratings = scipy.sparse.coo_array(np.ones((3, 4)))
    with pytest.raises(ValueError, match=words):
        MatrixFactorisation(**change).fit(ratings)


def test_data_that_cannot_be() -> None:
    x, y = samples(3, 50, 20)
    with pytest.raises(ValueError, match="3 classes, where two are expected"):
        SparseLogisticRegression().fit(x, y)
    with pytest.raises(ValueError, match="one class"):
        MultinomialLogisticRegression().fit(x, np.zeros(50))
    with pytest.raises(ValueError, match="contains NaN"):
        SparseLogisticRegression().fit(x, np.where(y > 0, 1, np.nan))
    with pytest.raises(ValueError, match="is inf: expected a finite number"):
        MatrixFactorisation().fit(np.array([[1.0, np.inf]]))
    with pytest.raises(ValueError, match="no ratings"):
        MatrixFactorisation().fit(np.full((2, 2), np.nan))


def table() -> tuple[scipy.sparse.coo_array, scipy.sparse.coo_array]:
    draw = np.random.default_rng(0)
    full = 3 + draw.standard_normal((150, 3)) @ draw.standard_normal((3, 80))
    seen, kept = draw.random(full.shape) < 0.4, draw.random(full.shape) < 0.1
    return scipy.sparse.coo_array(np.where(seen & ~kept, full, 0)), scipy.sparse.coo_array(np.where(kept, full, 0))


@pytest.mark.parametrize(("optimizer", "step"), [("sgd", 0.03), ("adagrad", 0.2)])
def test_factors_predict_ratings_that_were_kept_back(optimizer: str, step: float) -> None:
    seen, kept = table()
    model = MatrixFactorisation(3, 40, step, optimizer=optimizer, alpha=0.005, n_jobs=2, random_state=0)
    factors = model.fit_transform(seen)
    assert factors.shape == (150, 3)
    assert model.components_.shape == (3, 80)
    assert -model.score(kept) < 0.25 * kept.data.std()
    i, j = kept.coords
    new = model.mean_ + np.einsum("pr,rp->p", model.transform(seen)[i], model.components_[:, j])
    assert np.sqrt(np.mean((new - kept.data) ** 2)) < 0.25 * kept.data.std()
    space = gl.sparse(seen.coords, seen.data, shape=seen.shape)
    assert (clone(model).fit(space).components_ == model.components_).all()
    with pytest.raises(ValueError, match="user 150 of pair 1: there are 150"):
        model.predict([[0, 0], [150, 0]])
    with pytest.raises(ValueError, match="is expecting 80 features"):
        model.transform(np.ones((2, 3)))
