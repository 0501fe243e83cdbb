"""Random arrays: the distributions are the named ones, by SciPy's, and do not depend on the tiling."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

import girih.array as gnp

N = 4000


@pytest.fixture(scope="module")
def one() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=1, backend="threads", timeout=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def three() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=3, backend="threads", timeout=60.0) as made:
        yield made


CONTINUOUS = {
    "random": ((), stats.uniform()),
    "uniform": ((-1.0, 3.0), stats.uniform(-1, 4)),
    "standard_normal": ((), stats.norm()),
    "normal": ((2.0, 0.5), stats.norm(2, 0.5)),
    "lognormal": ((0.2, 0.7), stats.lognorm(0.7, scale=np.exp(0.2))),
    "standard_exponential": ((), stats.expon()),
    "exponential": ((2.5,), stats.expon(scale=2.5)),
    "laplace": ((1.0, 2.0), stats.laplace(1, 2)),
    "logistic": ((1.0, 2.0), stats.logistic(1, 2)),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "rayleigh": ((1.5,), stats.rayleigh(scale=1.5)),
    "weibull": ((1.7,), stats.weibull_min(1.7)),
    "pareto": ((3.0,), stats.lomax(3.0)),
    "power": ((2.5,), stats.powerlaw(2.5)),
    "standard_cauchy": ((), stats.cauchy()),
    "triangular": ((-1.0, 0.5, 2.0), stats.triang(0.5, -1, 3)),
    "wald": ((1.5, 2.0), stats.invgauss(1.5 / 2, scale=2)),
    "standard_gamma": ((0.4,), stats.gamma(0.4)),
    "gamma": ((3.0, 2.0), stats.gamma(3.0, scale=2)),
    "chisquare": ((4,), stats.chi2(4)),
    "beta": ((2.0, 0.5), stats.beta(2.0, 0.5)),
    "f": ((5.0, 7.0), stats.f(5, 7)),
    "standard_t": ((5,), stats.t(5)),
    "noncentral_chisquare": ((3.0, 2.0), stats.ncx2(3, 2)),
    "noncentral_f": ((5.0, 7.0, 2.0), stats.ncf(5, 7, 2)),
    "vonmises": ((0.5, 2.0), stats.vonmises(2.0, 0.5)),
}
WHOLE = {
    "poisson": ((3.5,), stats.poisson(3.5)),
    "binomial": ((20, 0.3), stats.binom(20, 0.3)),
    "negative_binomial": ((4, 0.4), stats.nbinom(4, 0.4)),
    "geometric": ((0.25,), stats.geom(0.25)),
    "hypergeometric": ((12, 8, 9), stats.hypergeom(20, 12, 9)),
    "logseries": ((0.6,), stats.logser(0.6)),
    "zipf": ((5.0,), stats.zipf(5.0)),
}


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_continuous_distributions(three: gnp.Cluster, name: str) -> None:
    parameters, expected = CONTINUOUS[name]
    drawn = getattr(gnp.random.default_rng(5), name)(*parameters, size=N)
    assert (drawn.shape, drawn.dtype) == ((N,), np.float64)
    assert stats.kstest(drawn.compute(), expected.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_whole_numbers(three: gnp.Cluster, name: str) -> None:
    parameters, expected = WHOLE[name]
    drawn = getattr(gnp.random.default_rng(6), name)(*parameters, size=N)
    assert drawn.dtype == np.int64
    values, counts = np.unique(drawn.compute(), return_counts=True)
    common = expected.pmf(values) * N > 5
    assert abs(counts[common].sum() / N - expected.pmf(values[common]).sum()) < 0.02
    assert stats.chisquare(counts[common], expected.pmf(values[common]) / expected.pmf(values[common]).sum()
                           * counts[common].sum()).pvalue > 1e-4  # fmt: skip
    each = getattr(gnp.random.default_rng(6), name)(*(np.array([[item]] * 3) for item in parameters), size=(3, N))
    assert each.dtype == np.int64
    assert abs(each.compute().mean(1) - expected.mean()).max() < 6 * expected.std() / N**0.5


def test_the_tiling_does_not_matter() -> None:
    drawn = []
    for workers in (1, 3):
        with gnp.cluster(workers=workers, backend="threads", timeout=60.0):
            rng = gnp.random.default_rng(9)
            names = sorted({**CONTINUOUS, **WHOLE})
            drawn.append(
                [getattr(rng, name)(*{**CONTINUOUS, **WHOLE}[name][0], size=(7, 3)).compute() for name in names]
            )
            drawn[-1].append(rng.permutation(50).compute())
            drawn[-1].append(rng.choice(30, 5, replace=False).compute())
    for first, second in zip(*drawn, strict=True):  # the last bit of a logarithm depends on where its vector begins
        np.testing.assert_allclose(first, second, rtol=1e-12)


def test_chunks_that_numpy_draws(three: gnp.Cluster) -> None:
    """Elements have their place in the stream, whatever comes behind; parameters go by name, and are checked."""
    size = gnp.random.CHUNK + 100
    long, short = (gnp.random.default_rng(8).gamma(2.0, size=many).compute() for many in (size, 50))
    np.testing.assert_array_equal(long[:50], short)
    assert len(np.unique(long)) == size
    rng = gnp.random.default_rng(8)
    assert rng.poisson().shape == ()
    assert rng.standard_gamma([1.0, 2.0], dtype=np.float32).dtype == np.float32
    counts = rng.poisson(lam=np.array([[0.0], [1e6]]), size=(2, 9)).compute()
    assert (counts[0] == 0).all()
    assert (counts[1] > 9e5).all()
    assert rng.multivariate_hypergeometric([3, 5], 4).compute().sum() == 4
    assert str(inspect.signature(gnp.random.gumbel)) == "(loc=0.0, scale=1.0, size=None)"
    with pytest.raises(ValueError, match="lam < 0"):
        rng.poisson(-1.0)
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        rng.beta(1.0)
    with pytest.raises(ValueError, match="lam < 0"):
        rng.poisson([1.0, -1.0]).compute()


def test_integers(three: gnp.Cluster) -> None:
    rng = gnp.random.default_rng(1)
    x = rng.integers(-3, 4, size=2000).compute()
    assert set(np.unique(x)) == set(range(-3, 4))
    assert rng.integers(2, size=9, dtype=np.uint8).dtype == np.uint8
    assert rng.integers(5, 5, endpoint=True).compute() == 5
    wide = rng.integers(0, 2**40, size=1000).compute()
    assert wide.min() >= 0
    assert 2**39 < wide.max() < 2**40
    bounds = rng.integers([0, 10, 20], [5, 15, 25], size=(100, 3)).compute()
    assert ((bounds >= [0, 10, 20]) & (bounds < [5, 15, 25])).all()
    with pytest.raises(ValueError, match="low >= high"):
        rng.integers(3, 3)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 2**64, "uint64"),
        (-(2**63), 2**63, "int64"),
        (2**63 - 5, 2**63 + 5, "uint64"),
        (2**63, 2**64, "uint64"),
        (-5, 2**62 + 2**31 + 7, "int64"),
        (-(2**40), 2**53, "int64"),
    ],
)
def test_integers_of_any_range_are_spread_over_it(three: gnp.Cluster, low: int, high: int, dtype: str) -> None:
    rng, span = gnp.random.default_rng(5), high - low
    x = rng.integers(low, high, size=N, dtype=dtype).compute()
    places = [int(value) - low for value in x]
    assert x.dtype == dtype
    assert min(places) >= 0
    assert max(places) < span
    assert len(set(places)) == min(span, N)
    shares = np.array([place / span for place in places])
    assert stats.kstest(shares + 0.5 / span, "uniform").statistic < 0.03 + 1 / span
    if span > 2**53:
        assert stats.kstest([place % 2**20 / 2**20 for place in places], "uniform").pvalue > 1e-4
    assert low <= int(rng.integers(low, high, dtype=dtype)) < high


REFUSED = [
    "integers(0, 300, 5, dtype='int8')", "integers(-1, 3, 5, dtype='uint8')", "integers(0, 3, 5, dtype=bool)",
    "integers(0, 2**64, 5)", "integers([5, 1], [1, 5])", "integers([0, 1], [300, 5], dtype='int8')",
    "integers(0, 5, 5, dtype='float64')", "normal(0, -1, 3)", "normal([0, 1], [1, -1])", "lognormal(0, -1, 3)",
    "exponential(-1, 3)", "uniform(3, 1, 3)", "uniform(-np.inf, 1, 2)", "random(-1)", "random((2, -1))", "random(2.5)",
    "standard_normal(3, dtype='int64')", "normal([0, 1], 1, size=(1,))", "choice([1, 2], 3, p=[.5, .6])",
    "choice([1, 2], 3, p=[-.5, 1.5])", "choice(2, 3, p=[1.])", "choice(3, 2, replace=False, p=[0, 1, 0])",
    "choice(2, 3, p=[[.5, .5]])", "choice(2, 3, p=[np.nan, 1])",
]  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_what_numpy_refuses_to_draw_is_refused(three: gnp.Cluster, call: str) -> None:
    errors = []
    for space in (np, gnp):
        with pytest.raises((ValueError, TypeError, OverflowError)) as raised:
            eval(f"rng.{call}", {"rng": space.random.default_rng(0), "np": np})
        errors.append(raised.type)
    assert errors[0] is errors[1]


def test_choices(three: gnp.Cluster) -> None:
    rng = gnp.random.default_rng(2)
    x = gnp.arange(12.0).reshape(6, 2)
    assert rng.choice(x, 4).shape == (4, 2)
    assert len(np.unique(rng.choice(40, 40, replace=False).compute())) == 40
    heavy = rng.choice(3, 3000, p=[0.7, 0.2, 0.1]).compute()
    np.testing.assert_allclose(np.bincount(heavy) / 3000, [0.7, 0.2, 0.1], atol=0.05)
    first = [int(rng.choice(3, 1, replace=False, p=[0.7, 0.2, 0.1])[0]) for _ in range(200)]
    assert 110 < first.count(0) < 170
    with pytest.raises(ValueError, match="larger sample"):
        rng.choice(3, 4, replace=False)
    assert sorted(rng.permutation(x)[:, 0].compute()) == sorted(x[:, 0].compute())
    assert (np.sort(rng.permuted(x, axis=0).compute(), axis=0) == x.compute()).all()
    counts = rng.multinomial(20, [0.5, 0.25, 0.25], size=300).compute()
    assert (counts.sum(1) == 20).all()
    np.testing.assert_allclose(counts.mean(0), [10, 5, 5], atol=0.6)


def test_several_dimensions(three: gnp.Cluster) -> None:
    rng = gnp.random.default_rng(3)
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    x = rng.multivariate_normal([1.0, -1.0], cov, size=5000).compute()
    np.testing.assert_allclose(x.mean(0), [1, -1], atol=0.1)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.2)
    shares = rng.dirichlet([1.0, 2.0, 3.0], size=3000).compute()
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(shares.mean(0), [1 / 6, 2 / 6, 3 / 6], atol=0.03)
    assert rng.normal(np.zeros((3, 1)), [1.0, 2.0]).shape == (3, 2)


def test_calls_differ_and_seeds_repeat(three: gnp.Cluster) -> None:
    rng, again = gnp.random.default_rng(4), gnp.random.default_rng(4)
    first = rng.random(5).compute()
    assert (first == again.random(5).compute()).all()
    assert (first != rng.random(5).compute()).all()
    assert gnp.random.default_rng(rng) is rng
    one, two = rng.spawn(2)
    assert (one.random(5).compute() != two.random(5).compute()).all()


def test_older_names(three: gnp.Cluster) -> None:
    gnp.random.seed(7)
    first = gnp.random.rand(3, 2).compute()
    gnp.random.seed(7)
    assert (gnp.random.random_sample((3, 2)).compute() == first).all()
    assert gnp.random.randn(4).shape == (4,)
    assert gnp.random.randint(5, size=3).dtype == np.int64
    assert gnp.random.RandomState(3).normal(size=2).shape == (2,)
    assert gnp.random.uniform(3, 1) > 1  # as NumPy's older function takes it
    with pytest.raises(AttributeError, match=r"girih.array.random has no bytes: numpy.random.bytes takes"):
        gnp.random.bytes(3)
