"""Regressions and factorisations on parallel loops, against scikit-learn's and NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import girih.loop as gl
from girih.loop.apps.linear import MatrixFactorisation, MultinomialLogisticRegression, SparseLogisticRegression, bodies


def samples(classes: int, rows: int = 3000, features: int = 60) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    draw = np.random.default_rng(0)
    x = scipy.sparse.random_array((rows, features), density=0.15, format="csr", rng=draw, data_sampler=draw.normal)
    truth = draw.normal(0, 1.5, (features, classes))
    return x, (x @ truth + 0.3 + draw.gumbel(size=(rows, classes))).argmax(axis=1)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adarevision"])
@pytest.mark.parametrize("classes", [2, 4])
def test_regressions_are_near_those_of_scikit_learn(optimizer: str, classes: int) -> None:
    x, y = samples(classes)
    kind = SparseLogisticRegression if classes == 2 else MultinomialLogisticRegression
    step = {"sgd": 0.05, "adagrad": 0.2, "adarevision": 0.2}[optimizer]
    model = kind(12, step, optimizer=optimizer, alpha=1e-3, n_jobs=2, random_state=0).fit(x, y)
    peer = LogisticRegression(C=1 / (1e-3 * len(y)), max_iter=500).fit(x, y)
    assert model.score(x, y) > peer.score(x, y) - 0.01
    own, other = model.predict_proba(x), peer.predict_proba(x)
    assert np.abs(own - other).mean() < 0.03
    np.testing.assert_allclose(own.sum(axis=1), 1)
    assert model.coef_.shape == ((1, 60) if classes == 2 else (4, 60))


@pytest.mark.parametrize("workers", [1, 2])
def test_adarevision_takes_the_steps_of_the_tables_function(workers: int) -> None:
    """Serially, by tables' AdaRevision: `delay` samples of each worker, then one update of their gradients' sum."""
    x, y = samples(2, 96, 12)
    delay, step, alpha = 8, 0.3, 1e-3
    model = SparseLogisticRegression(
        2, step, optimizer="adarevision", alpha=alpha, delay=delay, fit_intercept=False, n_jobs=workers, random_state=0
    ).fit(x, y)
    order = np.random.RandomState(0).permutation(96)
    dense, labels = x.toarray()[order], y[order]
    pull = alpha * 96 / np.maximum((dense != 0).sum(axis=0), 1)
    function = gl.AdaRevision(step)
    weights = np.zeros((12, 1))
    further = function.start(weights)
    for _ in range(2):
        for piece in range(96 // workers // delay):
            total = np.zeros(12)
            for worker in range(workers):
                begin = worker * 96 // workers + piece * delay
                for row, label in zip(dense[begin : begin + delay], labels[begin : begin + delay], strict=True):
                    residual = 1 / (1 + np.exp(-row @ weights[:, 0])) - label
                    total += residual * row + (row != 0) * pull * weights[:, 0]
            function.apply(weights, further, total[:, None], further[0].copy())
    np.testing.assert_allclose(model.coef_[0], weights[:, 0], rtol=1e-9, atol=1e-12)


def test_a_buffer_with_further_numbers_is_checked_and_functions_are_not_mixed_up() -> None:
    target = gl.array(np.zeros(3))
    for further, apply in ((gl.array(np.zeros((2, 4))), bodies.revision(1.0)), (gl.array(np.zeros((2, 3))), None)):
        with pytest.raises(ValueError, match=r"expected \(columns, 3\), and a function"):
            gl.buffer(target, apply, further=further)

    @gl.parallel_for(gl.range(6), workers=2)
    def write(i, late):
        late[i % 3] += 1.0

    write(gl.buffer(target))
    write(gl.buffer(target, lambda value, total: value - 2 * total))
    assert target.values.tolist() == [-2.0] * 3
    further = gl.array(np.ones((2, 3)))
    write(gl.buffer(target, bodies.revision(1.0), further=further))  # once, for the sum 2 of both workers
    np.testing.assert_allclose(target.values, -2.0 - 2 / np.sqrt(5))
    assert further.values.tolist() == [[5.0] * 3] * 2


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
        ({"optimizer": "adam"}, "expected one of 'sgd', 'adagrad', 'adarevision'"),
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


@pytest.mark.parametrize(("optimizer", "step"), [("sgd", 0.03), ("adagrad", 0.2), ("adarevision", 0.3)])
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
