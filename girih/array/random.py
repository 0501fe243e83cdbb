"""Random arrays by position: an element depends on the seed and on its place in the whole, never on the tiling.

The numbers are Philox's (`girih.kernels.philox`), not those of NumPy's generators. Most distributions are functions of
one uniform or normal number; the gamma family is Marsaglia and Tsang's (ACM TOMS 26(3), 2000) with `ROUNDS` proposals
for each element in place of a loop that ends when one is accepted; distributions of whole numbers are looked up in
their cumulated probabilities, which the driver computes by SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.random import MT19937 as MT19937
from numpy.random import PCG64 as PCG64
from numpy.random import PCG64DXSM as PCG64DXSM
from numpy.random import SFC64 as SFC64
from numpy.random import BitGenerator as BitGenerator
from numpy.random import Philox as Philox
from numpy.random import SeedSequence as SeedSequence

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, broadcast_shapes, cast, number
from girih.array.core.dtypes import name_of
from girih.array.core.universal import written
from girih.array.core.unsupported import missing
from girih.array.functions.elementwise import ufuncs as e
from girih.array.functions.reductions.scans import cumsum
from girih.array.functions.reductions.sorting import argsort, searchsorted
from girih.array.functions.shapes.manipulation import stack
from girih.array.functions.shapes.picking import take, take_along_axis

ROUNDS = 8
"""At least 95 of 100 proposals are accepted: all of them fail for one element in 10¹⁰."""
WIDE = 1 << 31
"""From so many values on, whole numbers are made of uniform numbers of 53 bits."""


class Generator:
    """NumPy's Generator; each call draws from a seed of its own."""

    def __init__(self, seed: Any = None) -> None:
        if isinstance(seed, np.random.BitGenerator):
            seed = seed.seed_seq
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self.seed_sequence = sequence
        self.state = int(sequence.generate_state(1, np.uint64)[0])
        self._calls = count()

    def __repr__(self) -> str:
        return f"girih.array.random.{type(self).__name__}(Philox)"

    def spawn(self, n_children: int) -> list[Generator]:
        return [type(self)(child) for child in self.seed_sequence.spawn(n_children)]

    def _draw(self, operator: str, size: tuple[int, ...], dtype: Any, **more: Any) -> Array:
        kind = np.dtype(dtype)
        state = np.random.SeedSequence((self.state, next(self._calls))).generate_state(1, np.uint64)
        seed = number(state.view(np.int64)[0], np.dtype(np.int64))
        where = {"stream": 0, "size": size, "start": (0,) * len(size), "full": size}
        return apply(operator, size, kind, seed=seed, **where, **more, dtype=name_of(kind))

    # --------------------------------------------------------------------------------------- uniform numbers

    def random(self, size: Any = None, dtype: Any = np.float64) -> Array:
        """Uniform in [0, 1)."""
        return self._draw("girih.random_uniform", _shape(size), dtype)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Array:
        return self.random(_common(size, low, high)) * (high - low) + low

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Array:
        """Whole numbers in [low, high), or in [low, high]; bounds may be arrays.

        Raises:
            ValueError: no number lies between numbers low and high.
        """
        low, high = (0, low) if high is None else (low, high)
        kind = np.dtype(dtype)
        if any(isinstance(item, (Array, np.ndarray, list, tuple)) for item in (low, high)):
            low, high = as_array(low), as_array(high) + int(endpoint)
            shape = _common(size, low, high)
            return cast(e.floor(self.random(shape) * (high - low)) + low, kind)
        low, high = int(low), int(high) + int(endpoint)
        if not low < high:
            raise ValueError("low >= high")
        if high - low >= WIDE:
            return cast(cast(e.floor(self.random(size) * float(high - low)), np.int64) + low, kind)
        return cast(self._draw("girih.random_integers", _shape(size), np.int64, low=low, high=high), kind)

    # --------------------------------------------------------------------------------------- normal numbers

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Array:
        return self._draw("girih.random_normal", _shape(size), dtype)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        return self.standard_normal(_common(size, loc, scale)) * scale + loc

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Array:
        return e.exp(self.normal(mean, sigma, size))

    def wald(self, mean: Any, scale: Any, size: Any = None) -> Array:
        """Michael, Schucany and Haas: a root of a normal number's square, or its counterpart."""
        shape = _common(size, mean, scale)
        y = self.standard_normal(shape) ** 2 * mean
        x = mean + mean * (y - e.sqrt(4 * scale * y + y * y)) / (2 * scale)
        return e.where(self.random(shape) <= mean / (mean + x), x, mean * mean / x)

    def multivariate_normal(
        self, mean: Any, cov: Any, size: Any = None, check_valid: str = "warn", tol: float = 1e-8,
        *, method: str = "cholesky",
    ) -> Array:  # fmt: skip
        """By the Cholesky factor of the covariance, which must be positive definite."""
        mean, spread = as_array(mean), as_array(cov)
        count = mean.shape[0]
        if spread.shape != (count, count):
            raise ValueError(f"cov of shape {spread.shape}: expected {(count, count)}, as many as mean has numbers")
        spread = spread if spread.dtype.kind in "fc" else cast(spread, np.float64)
        factor = apply("aten.linalg_cholesky", spread.shape, spread.dtype, self=spread)
        return self.standard_normal((*_shape(size), count)) @ factor.T + mean

    # --------------------------------------------------------------------------------------- of one uniform number

    def standard_exponential(self, size: Any = None, dtype: Any = np.float64, method: str = "inv") -> Array:
        return -e.log1p(-self.random(size, dtype))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Array:
        return self.standard_exponential(_common(size, scale)) * scale

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        u = self._inside(_common(size, loc, scale)) - 0.5
        return loc - scale * e.sign(u) * e.log1p(-2 * e.absolute(u))

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        u = self._inside(_common(size, loc, scale))
        return loc + scale * (e.log(u) - e.log1p(-u))

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        return loc - scale * e.log(-e.log(self._inside(_common(size, loc, scale))))

    def rayleigh(self, scale: Any = 1.0, size: Any = None) -> Array:
        return e.sqrt(self.standard_exponential(_common(size, scale)) * 2) * scale

    def weibull(self, a: Any, size: Any = None) -> Array:
        return e.power(self.standard_exponential(_common(size, a)), 1 / _array(a))

    def pareto(self, a: Any, size: Any = None) -> Array:
        return e.expm1(self.standard_exponential(_common(size, a)) / a)

    def power(self, a: Any, size: Any = None) -> Array:
        return e.power(-e.expm1(-self.standard_exponential(_common(size, a))), 1 / _array(a))

    def standard_cauchy(self, size: Any = None) -> Array:
        return e.tan((self._inside(_shape(size)) - 0.5) * math.pi)

    def triangular(self, left: Any, mode: Any, right: Any, size: Any = None) -> Array:
        u, width = self.random(_common(size, left, mode, right)), right - left
        rising = left + e.sqrt(u * width * (mode - left))
        return e.where(u < (mode - left) / width, rising, right - e.sqrt((1 - u) * width * (right - mode)))

    def _inside(self, shape: tuple[int, ...]) -> Array:
        """Uniform in (0, 1)."""
        return self.random(shape) + 2.0**-54

    # --------------------------------------------------------------------------------------- the gamma family

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64) -> Array:
        wide = _common(size, shape)
        a = cast(as_array(shape), np.float64)
        small = a < 1
        d = e.where(small, a + 1, a) - 1 / 3
        c = 1 / e.sqrt(9 * d)
        made: Any = None
        done: Any = None
        for _ in range(ROUNDS):
            x, u = self.standard_normal(wide), self._inside(wide)
            v = (1 + c * x) ** 3
            good = (v > 0) & (e.log(u) < 0.5 * x * x + d - d * v + d * e.log(e.maximum(v, 1e-300)))
            made = e.where(good, v, 1.0) if made is None else e.where(done | ~good, made, v)
            done = good if done is None else done | good
        made = d * made
        boost = e.power(self._inside(wide), 1 / e.where(small, a, 1.0))
        return cast(e.where(small, made * boost, made), dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Array:
        return self.standard_gamma(shape, _common(size, shape, scale)) * scale

    def chisquare(self, df: Any, size: Any = None) -> Array:
        return self.standard_gamma(_array(df) / 2, _common(size, df)) * 2

    def beta(self, a: Any, b: Any, size: Any = None) -> Array:
        shape = _common(size, a, b)
        x, y = self.standard_gamma(a, shape), self.standard_gamma(b, shape)
        return x / (x + y)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> Array:
        shape = _common(size, dfnum, dfden)
        return self.chisquare(dfnum, shape) / dfnum / (self.chisquare(dfden, shape) / dfden)

    def standard_t(self, df: Any, size: Any = None) -> Array:
        shape = _common(size, df)
        return self.standard_normal(shape) / e.sqrt(self.chisquare(df, shape) / df)

    def dirichlet(self, alpha: Any, size: Any = None) -> Array:
        weights = as_array(alpha)
        made = self.standard_gamma(weights, (*_shape(size), weights.shape[0]))
        return made / made.sum(-1, keepdims=True)

    # --------------------------------------------------------------------------------------- whole numbers

    def _looked_up(self, name: str, size: Any, *parameters: Any) -> Array:
        """A distribution of whole numbers, by its cumulated probabilities between its outermost quantiles.

        Raises:
            TypeError: a parameter is an array. ValueError: SciPy finds the parameters impossible.
        """
        from scipy import stats

        if any(np.ndim(item) for item in parameters):
            raise TypeError(f"girih.array.random.{name} has one set of parameters for all elements, got {parameters}")
        known = getattr(stats, _SCIPY.get(name, name))(*(float(item) for item in parameters))
        low, high = known.ppf(1e-18), known.ppf(1 - 1e-16)
        if not (math.isfinite(low) and math.isfinite(high)) or high - low > WIDE:
            raise ValueError(f"{name}: no such distribution, or one too wide, with parameters {parameters}")
        table = known.cdf(np.arange(int(low), int(high)))
        return searchsorted(as_array(table), self.random(size), "right") + int(low)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Array:
        return self._looked_up("poisson", size, lam)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Array:
        return self._looked_up("binomial", size, n, p)

    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> Array:
        return self._looked_up("negative_binomial", size, n, p)

    def geometric(self, p: Any, size: Any = None) -> Array:
        return self._looked_up("geometric", size, p)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None) -> Array:
        return self._looked_up("hypergeometric", size, ngood + nbad, ngood, nsample)

    def logseries(self, p: Any, size: Any = None) -> Array:
        return self._looked_up("logseries", size, p)

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Array:
        """How often each of n draws falls on each value."""
        shares = as_array(pvals)
        drawn = self.choice(shares.shape[0], (*_shape(size), n), p=shares)
        return stack([(drawn == value).sum(-1) for value in range(shares.shape[0])], -1)

    # --------------------------------------------------------------------------------------- choices and orders

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Array:
        """Raises ValueError where more are drawn without replacement than there are."""
        pool = None if isinstance(a, (int, np.integer)) else as_array(a)
        population = int(a) if pool is None else pool.shape[axis]
        shape = _shape(size)
        if replace:
            if p is None:
                places = self.integers(population, size=shape)
            else:
                cumulated = cumsum(cast(as_array(p), np.float64))
                places = searchsorted(cumulated / cumulated[-1], self.random(shape), "right")
        else:
            if math.prod(shape) > population:
                raise ValueError("Cannot take a larger sample than population when replace is False")
            keys = self.standard_exponential(population)  # smallest of Exp(p) first is drawing by p (Efraimidis)
            places = argsort(keys if p is None else keys / as_array(p))[: math.prod(shape)].reshape(shape)
        return places if pool is None else take(pool, places, axis)

    def permutation(self, x: Any, axis: int = 0) -> Array:
        if isinstance(x, (int, np.integer)):
            return argsort(self.random(int(x)))
        x = as_array(x)
        return take(x, argsort(self.random(x.shape[axis])), axis)

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """Each row along an axis by itself."""
        x = as_array(x)
        if axis is None:
            return written(self.permutation(x.reshape(-1)).reshape(x.shape), out)
        return written(take_along_axis(x, argsort(self.random(x.shape), axis), axis), out)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        x[...] = self.permutation(x, axis)


_SCIPY = {
    "binomial": "binom", "negative_binomial": "nbinom", "geometric": "geom", "hypergeometric": "hypergeom",
    "logseries": "logser",
}  # fmt: skip


class RandomState(Generator):
    """NumPy's older names: rand, randn, randint, random_sample, seed."""

    def seed(self, seed: Any = None) -> None:
        self.__init__(seed)  # type: ignore[misc]

    def rand(self, *shape: int) -> Array:
        return self.random(shape)

    def randn(self, *shape: int) -> Array:
        return self.standard_normal(shape)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Array:
        return self.integers(low, high, size, dtype)

    def random_sample(self, size: Any = None) -> Array:
        return self.random(size)


def _array(item: Any) -> Any:
    return as_array(item) if isinstance(item, (list, tuple, np.ndarray)) else item


def _shape(size: Any) -> tuple[int, ...]:
    return () if size is None else tuple(map(int, size)) if isinstance(size, Sequence) else (int(size),)


def _common(size: Any, *parameters: Any) -> tuple[int, ...]:
    """The size that was asked for, else that of the broadcast parameters."""
    if size is not None:
        return _shape(size)
    return broadcast_shapes(*(item.shape if isinstance(item, Array) else np.shape(item) for item in parameters))


def default_rng(seed: Any = None) -> Generator:
    return seed if isinstance(seed, Generator) else Generator(seed)


_shared = RandomState()
"""What NumPy's functions of the module draw from, as NumPy's own; programs with a Generator do not need it."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name in SHARED:
        return getattr(_shared, name)
    raise missing(__name__, name, [*globals(), *SHARED])


SHARED = frozenset(
    name
    for kind in (Generator, RandomState)
    for name in vars(kind)
    if not name.startswith("_") and name not in ("spawn", "integers", "permuted")
)
