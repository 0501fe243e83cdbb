"""The array programs in examples/arrays/ give what NumPy, SciPy and scikit-learn give, on real data where there is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.linalg import cholesky
from scipy.spatial.distance import cdist
from scipy.special import ndtr
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression

import girih.array

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "arrays"
ELSEWHERE = {"protocols", "scikit_learn", "unchanged"}
"""In `test_array_protocols.py`."""
SMALL = {
    "als": ("--users", "200", "--movies", "80", "--features", "4"),
    "black_scholes": ("--count", "2000"),
    "cg": ("--count", "200"),
    "cholesky": ("--count", "300"),
    "fuzzy_kmeans": ("--count", "2000", "--groups", "3"),
    "kmeans": ("--count", "3000", "--groups", "4", "--iterations", "3"),
    "linear_regression": ("--count", "2000", "--steps", "20"),
    "logistic_regression": ("--count", "2000", "--steps", "20"),
    "pca": ("--count", "2000", "--dimensions", "12"),
    "price_prediction": ("--options", "100", "--steps", "10", "--paths", "1000"),
    "qr": ("--count", "2000", "--degree", "8"),
    "ssvd": ("--rows", "1000", "--columns", "50"),
}


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"array_example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def ours(*arrays: np.ndarray) -> list[Any]:
    return [girih.array.array(x) for x in arrays]


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SMALL, *ELSEWHERE}


@pytest.mark.parametrize("name", [name for name in SMALL if name != "kmeans"])
def test_the_program_of_a_numpy_user(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = load(name)
    module.main(list(SMALL[name]))
    assert len(capsys.readouterr().out.splitlines()) >= 1


def test_kmeans_moves_only_sums(capsys: pytest.CaptureFixture[str]) -> None:
    load("kmeans").main(list(SMALL["kmeans"]))
    printed = capsys.readouterr().out
    assert "gap 0 % (proved)" in printed
    moved = int(printed.split(" bytes between")[0].splitlines()[-1])
    assert 0 < moved <= 3 * 2 * (4 * 8 + 4) * 8  # of each iteration the other worker's sums and counts


def test_linear_regression() -> None:
    module = load("linear_regression")
    x, y = datasets.load_diabetes(return_X_y=True)
    x = x * len(x) ** 0.5
    known = LinearRegression(fit_intercept=False).fit(x, y).coef_
    np.testing.assert_allclose(module.solve(girih.array, *ours(x, y)), known, rtol=1e-8)
    descended = module.run(girih.array, *ours(x, y), steps=30, rate=0.2)
    np.testing.assert_allclose(descended, module.run(np, x, y, steps=30, rate=0.2), rtol=1e-9)


def test_logistic_regression() -> None:
    module = load("logistic_regression")
    x, y = datasets.load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    known = LogisticRegression(C=1 / (0.1 * len(x)), fit_intercept=False, tol=1e-8).fit(x, y)
    found = module.run(girih.array, *ours(x, y.astype(float)), steps=150, rate=0.3, penalty=0.1)
    np.testing.assert_allclose(found, known.coef_[0], atol=1e-4)


def test_kmeans() -> None:
    x = datasets.load_digits().data
    known = KMeans(10, init=x[:10], n_init=1, max_iter=4, tol=0).fit(x)
    found = load("kmeans").run(girih.array, *ours(x), groups=10, iterations=4)
    np.testing.assert_allclose(found, known.cluster_centers_, rtol=1e-9, atol=1e-9)


def test_fuzzy_kmeans() -> None:
    x = datasets.load_iris().data
    found = load("fuzzy_kmeans").run(girih.array, *ours(x, x[::50] + 0.1), iterations=60).compute()
    nearness = 1 / cdist(x, found) ** 2
    weights = (nearness / nearness.sum(1, keepdims=True)) ** 2
    np.testing.assert_allclose(found, weights.T @ x / weights.sum(0)[:, None], rtol=1e-6)  # where nothing changes
    kinds = cdist(x, found).argmin(1).reshape(3, 50)
    assert sum((row == np.bincount(row).argmax()).sum() for row in kinds) >= 130  # of three kinds of iris


def test_als() -> None:
    module = load("als")
    ratings, start = module.data(60, 30, 3, known=0.5)
    penalty = 0.1

    def regressions(rows: np.ndarray, features: np.ndarray) -> np.ndarray:
        found = []
        for row in rows:
            chosen = features[row > 0]
            ridge = penalty * len(chosen) * np.eye(features.shape[1])
            found.append(np.linalg.solve(chosen.T @ chosen + ridge, chosen.T @ row[row > 0]))
        return np.stack(found)

    of_movies = start
    for _ in range(3):
        of_users = regressions(ratings, of_movies)
        of_movies = regressions(ratings.T, of_users)
    found = module.run(girih.array, *ours(ratings, start), iterations=3, penalty=penalty)
    np.testing.assert_allclose(found[0], of_users, rtol=1e-8)
    np.testing.assert_allclose(found[1], of_movies, rtol=1e-8)


def test_pca() -> None:
    x = datasets.load_digits().data
    known = PCA(5, svd_solver="full").fit(x)
    variances, directions, points = load("pca").run(girih.array, *ours(x), components=5)
    np.testing.assert_allclose(variances, known.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(abs(directions.compute()), abs(known.components_), atol=1e-8)
    np.testing.assert_allclose(abs(points.compute()), abs(known.transform(x)), atol=1e-7)


def test_ssvd() -> None:
    module = load("ssvd")
    x = datasets.load_digits().data
    vectors = np.random.default_rng(0).normal(size=(64, 20))
    u, s, vt = (item.compute() for item in module.run(girih.array, *ours(x, vectors), rank=8, powers=4))
    known = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(s, known.S[:8], rtol=1e-3)
    best = (known.U[:, :8] * known.S[:8]) @ known.Vh[:8]
    assert np.linalg.norm(x - (u * s) @ vt) <= 1.001 * np.linalg.norm(x - best)


def test_qr() -> None:
    module = load("qr")
    a, b = module.data(3000, 12)
    q, r, coefficients = (item.compute() for item in module.run(girih.array, *ours(a, b)))
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(13), atol=1e-12)
    np.testing.assert_array_equal(r, np.triu(r))
    np.testing.assert_allclose(coefficients, np.linalg.lstsq(a, b)[0], rtol=1e-9)


def test_conjugate_gradients() -> None:
    module = load("cg")
    x, y = module.data(300)
    known = KernelRidge(alpha=1.0, kernel="rbf", gamma=1.0).fit(x, y)
    with girih.cluster(2, backend="threads", small=0) as cluster:
        np.testing.assert_allclose(module.run(girih.array, *ours(x, y)), known.dual_coef_, atol=1e-6)
        assert cluster.planned <= 6 < cluster.evaluations  # not one for each step


def test_cholesky() -> None:
    module = load("cholesky")
    (a,) = module.data(1100)  # large enough to be divided
    np.testing.assert_allclose(module.run(girih.array, *ours(a)), cholesky(a, lower=True), atol=1e-9)


def test_black_scholes() -> None:
    module = load("black_scholes")
    share, strike, years = module.data(3000)
    call, put = module.run(girih.array, *ours(share, strike, years), rate=0.02, volatility=0.3)
    first = (np.log(share / strike) + (0.02 + 0.045) * years) / (0.3 * years**0.5)
    second = first - 0.3 * years**0.5
    discounted = strike * np.exp(-0.02 * years)
    np.testing.assert_allclose(call, share * ndtr(first) - discounted * ndtr(second), atol=1e-5)
    np.testing.assert_allclose(put, discounted * ndtr(-second) - share * ndtr(-first), atol=1e-5)


def test_price_prediction() -> None:
    module = load("price_prediction")
    options = module.data(50)

    def american(share: float, strike: float, years: float, steps: int) -> float:
        up, discount = np.exp(0.3 * (years / steps) ** 0.5), np.exp(-0.03 * years / steps)
        chance = (1 / discount - 1 / up) / (up - 1 / up)

        def value(rises: int, step: int, known: dict[tuple[int, int], float]) -> float:
            if (rises, step) not in known:
                now = strike - share * up ** (2 * rises - step)
                later = 0.0
                if step < steps:
                    rise, fall = value(rises + 1, step + 1, known), value(rises, step + 1, known)
                    later = discount * (chance * rise + (1 - chance) * fall)
                known[rises, step] = max(now, later)
            return known[rises, step]

        return value(0, 0, {})

    known = [american(*item, 12) for item in zip(*options, strict=True)]
    np.testing.assert_allclose(module.run(girih.array, *ours(*options), steps=12), known, rtol=1e-9)
    (shocks,) = module.shocks(2000, 20)
    asian = module.run_paths(girih.array, *ours(shocks))
    np.testing.assert_allclose(asian, module.run_paths(np, shocks), rtol=1e-12)
    assert 2 < float(asian) < 5  # a European call costs 5.3
