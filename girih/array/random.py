"""Random arrays by position: an element depends on the seed and on its place in the whole, never on the tiling.

Uniform, normal and exponential numbers, whole numbers, choices and orders are made of Philox's numbers
(`girih.kernels.philox`), which are not those of NumPy's generators. All other distributions are drawn by NumPy's
Generator, in chunks of `CHUNK` elements with a seed each: workers draw whole chunks, whichever they hold.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import index
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
from girih.array.core.evaluation import BORDER
from girih.array.core.small import SmallArray, computed, ours, small
from girih.array.core.universal import written
from girih.array.core.unsupported import missing
from girih.array.functions.elementwise.ufuncs import exp, floor, log1p, minimum
from girih.array.functions.reductions.scans import cumsum
from girih.array.functions.reductions.sorting import argsort, searchsorted
from girih.array.functions.shapes.arrangement import resize
from girih.array.functions.shapes.creation import arange, asarray
from girih.array.functions.shapes.manipulation import broadcast_to
from girih.array.functions.shapes.picking import take, take_along_axis
from girih.array.functions.tile_functions import join_update
from girih.array.functions.whole import whole

CHUNK = 1 << 14
"""So many elements are drawn with one seed by NumPy's Generator."""
DRAWN = {
    "beta": "a b", "chisquare": "df", "f": "dfnum dfden", "gamma": "shape scale=1.0", "gumbel": "loc=0.0 scale=1.0",
    "laplace": "loc=0.0 scale=1.0", "logistic": "loc=0.0 scale=1.0", "noncentral_chisquare": "df nonc",
    "noncentral_f": "dfnum dfden nonc", "pareto": "a", "power": "a", "rayleigh": "scale=1.0", "standard_cauchy": "",
    "standard_t": "df", "triangular": "left mode right", "vonmises": "mu kappa", "wald": "mean scale", "weibull": "a",
}  # fmt: skip
"""By name: the parameters of a distribution of real numbers, by NumPy's names and defaults; they may be arrays."""
COUNTED = {
    "binomial": "n p", "geometric": "p", "hypergeometric": "ngood nbad nsample", "logseries": "p",
    "negative_binomial": "n p", "poisson": "lam=1.0", "zipf": "a",
}  # fmt: skip
"""As `DRAWN`, of whole numbers."""
WIDE = 1 << 31
"""From so many values on, whole numbers are made of uniform numbers of 53 bits."""
WIDEST = 1 << 53
"""From so many on, of two of these: one chooses a block of 2^32 values, the other a value in it."""


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
        if kind.kind != ("i" if operator == "girih.random_integers" else "f"):
            raise TypeError(f"Unsupported dtype {kind!r} for random numbers: expected floating-point ones")
        if math.prod(size) * kind.itemsize < BORDER.bytes:
            return small(drawn(operator, int(self._next()), size, kind, **more))
        where = {"stream": 0, "size": size, "start": (0,) * len(size), "full": size}
        return apply(operator, size, kind, seed=self._seed(), **where, **more, dtype=name_of(kind))

    def _seed(self) -> Array:
        """The seed of the next call: an input of the graph, so that a loop that draws asks for the same graph again."""
        return number(self._next(), np.dtype(np.int64))

    def _next(self) -> np.int64:
        state = np.random.SeedSequence((self.state, next(self._calls))).generate_state(1, np.uint64)
        return state.view(np.int64)[0]  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------------- uniform numbers

    def random(self, size: Any = None, dtype: Any = np.float64) -> Array:
        """Uniform in [0, 1)."""
        return self._draw("girih.random_uniform", _shape(size), dtype)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Array:
        """Raises ValueError where a number `high` is below `low`, OverflowError where they are infinitely far apart."""
        _check("high - low", low, high)
        return self._between(low, high, size)

    def _between(self, low: Any, high: Any, size: Any) -> Array:
        if (both := _known(low, high)) is not None and not np.isfinite(both[1] - both[0]).all():
            raise OverflowError("high - low range exceeds valid bounds")
        return self.random(_common(size, low, high)) * (high - low) + low

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Array:
        """Whole numbers in [low, high), or in [low, high]; bounds may be arrays, of which large ones are not looked at.

        Raises:
            ValueError: no number lies between low and high, or one that the dtype has not. TypeError: it is of no whole
                numbers.
        """
        low, high = (0, low) if high is None else (low, high)
        kind = np.dtype(dtype)
        if kind.kind not in "iub":
            raise TypeError(f"Unsupported dtype {kind!r} for integers")
        if any(isinstance(item, (Array, np.ndarray, list, tuple)) for item in (low, high)):
            both, last = _known(low, high), int(endpoint)
            low, high = asarray(low), asarray(high) + last
            shape = _common(size, low, high)
            if both is not None and 0 not in shape:
                first, stop = both
                _span(int(first.min()), int(stop.max()) + last, kind)
                if (first > stop if last else first >= stop).any():
                    raise ValueError("low >= high")
                if (stop - first.astype(np.float64)).max() > WIDEST:
                    raise ValueError("low and high in arrays are to be at most 2**53 apart: give them as numbers")
            return (floor(self.random(shape) * (high - low)) + low).astype(kind)  # type: ignore[no-any-return]
        low, high = int(low), int(high) + int(endpoint)
        span = _span(low, high, kind)
        if span < WIDE and high <= 1 << 63:
            return self._draw("girih.random_integers", _shape(size), np.int64, low=low, high=high).astype(kind)
        shape = _shape(size)
        first = (low + (1 << 63)) % (1 << 64) - (1 << 63)  # as a number of 64 bits, which sums wrap around
        return (self._below(span, shape or (1,)) + first).astype(kind).reshape(shape).as_scalar()

    def _below(self, span: int, shape: tuple[int, ...]) -> Array:
        """Whole numbers from 0, less than the span, as 64 bits."""
        if span <= WIDEST:
            return floor(self.random(shape) * float(span)).astype(np.int64)  # type: ignore[no-any-return]
        last = (span - 1) >> 32
        block = minimum(floor(self.random(shape) * (span / 2**32)), float(last))
        size = (block == float(last)) * float(span - (last << 32) - (1 << 32)) + 2.0**32
        return (block.astype(np.int64) << 32) + floor(self.random(shape) * size).astype(np.int64)  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------------- normal numbers

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Array:
        return self._draw("girih.random_normal", _shape(size), dtype)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Array:
        """Raises ValueError where a number `scale` is below 0."""
        _check("scale", 0, scale)
        return self.standard_normal(_common(size, loc, scale)) * scale + loc

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Array:
        _check("sigma", 0, sigma)
        return exp(self.normal(mean, sigma, size))

    def multivariate_normal(
        self, mean: Any, cov: Any, size: Any = None, check_valid: str = "warn", tol: float = 1e-8,
        *, method: str = "cholesky",
    ) -> Array:  # fmt: skip
        """By the Cholesky factor of the covariance, which must be positive definite."""
        mean, spread = asarray(mean), asarray(cov)
        count = mean.shape[0]
        if spread.shape != (count, count):
            raise ValueError(f"cov of shape {spread.shape}: expected {(count, count)}, as many as mean has numbers")
        spread = spread if spread.dtype.kind in "fc" else cast(spread, np.float64)
        if isinstance(spread, SmallArray):
            factor: Array = small(np.linalg.cholesky(spread.held))
        else:
            factor = apply("aten.linalg_cholesky", spread.shape, spread.dtype, self=spread)
        return self.standard_normal((*_shape(size), count)) @ factor.T + mean

    # --------------------------------------------------------------------------------------- of one uniform number

    def standard_exponential(self, size: Any = None, dtype: Any = np.float64, method: str = "inv") -> Array:
        return -log1p(-self.random(size, dtype))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Array:
        """Raises ValueError where a number `scale` is below 0."""
        _check("scale", 0, scale)
        return self.standard_exponential(_common(size, scale)) * scale

    # --------------------------------------------------------------------------------------- drawn by NumPy

    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64) -> Array:
        return self._drawn("standard_gamma", (shape,), size, dtype, dtype=np.dtype(dtype).type)

    def dirichlet(self, alpha: Any, size: Any = None) -> Array:
        return self._vectors("dirichlet", alpha, size=size)

    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> Array:
        return self._vectors("multinomial", n, pvals, size=size)

    def multivariate_hypergeometric(
        self, colors: Any, nsample: int, size: Any = None, method: str = "marginals"
    ) -> Array:
        return self._vectors("multivariate_hypergeometric", colors, nsample, size=size, method=method)

    def _vectors(self, name: str, *parameters: Any, **options: Any) -> Array:
        """Draw from a distribution of vectors: evaluated whole, by NumPy."""
        generator = np.random.default_rng((self.state, next(self._calls)))
        return whole(getattr(generator, name))(*parameters, **options)  # type: ignore[no-any-return]

    def _drawn(self, name: str, parameters: Sequence[Any], size: Any, kind: Any, **options: Any) -> Array:
        """A distribution of numbers, chunk by chunk.

        Raises:
            ValueError: NumPy's, for numbers that are no parameters. Arrays of parameters are looked at by the workers.
        """
        arrays, draw = [as_array(item) for item in parameters], RandomChunks(name, tuple(options.items()))
        if not any(isinstance(item, Array) or np.ndim(item) for item in parameters):
            draw.chunk(0, 0, parameters, 1)
        shape = _common(size, *arrays)
        count = math.prod(shape)
        if count * np.dtype(kind).itemsize < BORDER.bytes and all(type(item) is not Array for item in parameters):
            return self._drawn_at_once(draw, computed(tuple(parameters)), shape).astype(kind)
        rows = -(-count // CHUNK)
        operands = [resize(broadcast_to(x, shape), (rows, CHUNK)) if x.ndim else x for x in arrays]
        axes = (-1, 0, *(0 if x.ndim else -1 for x in operands))
        goal = {"axis": axes, "shape": (rows, CHUNK), "along": 0, "dtype": kind}
        chunks = join_update(draw, self._seed(), arange(rows), *operands, **goal)
        return chunks.reshape(-1)[: math.prod(shape)].reshape(shape).as_scalar()

    def _drawn_at_once(self, draw: RandomChunks, parameters: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        """The first numbers of each chunk that are needed, which do not depend on how many are drawn."""
        seed, count = int(self._next()), math.prod(shape)
        flat = [np.broadcast_to(item, shape).ravel() if np.ndim(item) else item for item in parameters]
        chunks = []
        for at, first in enumerate(range(0, count, CHUNK)):
            last = min(first + CHUNK, count)
            own = [item[first:last] if np.ndim(item) else item for item in flat]
            chunks.append(draw.chunk(seed, at, own, last - first))
        return ours(np.concatenate(chunks).reshape(shape)[()] if chunks else np.zeros(shape))

    # --------------------------------------------------------------------------------------- choices and orders

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Array:
        """Raises ValueError where more are drawn without replacement than there are, or numbers `p` are no
        probabilities; those in a large array are not looked at."""
        pool = None if isinstance(a, (int, np.integer)) else asarray(a)
        population = int(a) if pool is None else pool.shape[axis]
        shape = _shape(size)
        if p is not None:
            _check_probabilities(p, population, None if replace else math.prod(shape))
        if replace:
            if p is None:
                places = self.integers(population, size=shape)
            else:
                cumulated = cumsum(cast(asarray(p), np.float64))
                places = searchsorted(cumulated / cumulated[-1], self.random(shape), "right")
        else:
            if math.prod(shape) > population:
                raise ValueError("Cannot take a larger sample than population when replace is False")
            keys = self.standard_exponential(population)  # smallest of Exp(p) first is drawing by p (Efraimidis)
            places = argsort(keys if p is None else keys / asarray(p))[: math.prod(shape)].reshape(shape)
        return places if pool is None else take(pool, places, axis)

    def permutation(self, x: Any, axis: int = 0) -> Array:
        if isinstance(x, (int, np.integer)):
            return argsort(self.random(int(x)))
        x = asarray(x)
        return take(x, argsort(self.random(x.shape[axis])), axis)

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """Each row along an axis shuffled by itself."""
        x = asarray(x)
        if axis is None:
            return written(self.permutation(x.reshape(-1)).reshape(x.shape), out)
        return written(take_along_axis(x, argsort(self.random(x.shape), axis), axis), out)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        x[...] = self.permutation(x, axis)


@dataclass(frozen=True)
class RandomChunks:
    """The function of tiles that draws chunks of a distribution, each by a NumPy Generator of its own."""

    name: str
    options: tuple[tuple[str, Any], ...]

    def __call__(self, seed: np.ndarray, numbers: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        rows = [
            self.chunk(int(seed), int(at), [item[row] if item.ndim else item[()] for item in parameters], CHUNK)
            for row, at in enumerate(numbers)
        ]
        return np.array(rows).reshape(len(rows), CHUNK)

    def chunk(self, seed: int, at: int, parameters: Sequence[Any], size: int) -> np.ndarray:
        generator = np.random.default_rng((seed % 2**64, at))
        return getattr(generator, self.name)(*parameters, size=size, **dict(self.options))  # type: ignore[no-any-return]


def _method(name: str, parameters: str, kind: Any) -> Callable[..., Array]:
    """The method of `Generator` that draws a distribution."""
    texts = [item.partition("=") for item in f"self {parameters}".split()]
    defaults = {field: float(text) if text else inspect.Parameter.empty for field, _, text in texts} | {"size": None}
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    fields = [inspect.Parameter(field, place, default=value) for field, value in defaults.items()]
    signature = inspect.Signature(fields)

    def method(*arguments: Any, **options: Any) -> Array:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        generator, *operands, size = bound.arguments.values()
        return generator._drawn(name, operands, size, kind)  # type: ignore[no-any-return]

    method.__name__, method.__qualname__ = name, f"Generator.{name}"
    method.__doc__ = f"Drawn by numpy.random.Generator.{name}, in chunks with seeds of their own."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


for _names, _kind in ((DRAWN, np.float64), (COUNTED, np.int64)):
    for _name, _parameters in _names.items():
        setattr(Generator, _name, _method(_name, _parameters, _kind))


# ------------------------------------------------------------------------------------------- at once

MASK, MULTIPLIERS, WEYL, ROUNDS = 0xFFFFFFFF, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
FEW = 8
"""Up to so many blocks of four words are quicker made by Python's whole numbers than by NumPy's."""


def words(seed: int, count: int) -> np.ndarray:
    """The first words of the stream that `girih.kernels.philox` draws from a seed: 32 bits each, as int64."""
    blocks = -(-count // 4)
    if blocks <= FEW:
        return np.array([word for block in range(blocks) for word in _block(block, seed)][:count], np.int64)
    counter = np.arange(blocks, dtype=np.uint64)
    return np.stack(_block(counter, seed), axis=-1).reshape(-1)[:count].astype(np.int64)


def _block(counter: Any, seed: int) -> list[Any]:
    """Philox-4x32-10 of counters, as Python's whole numbers or as an array of uint64."""
    one = type(counter) is int
    c0, c1, c2, c3 = counter & MASK, counter >> 32, counter * 0, counter * 0
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    for _ in range(ROUNDS):
        left, right = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c2 = (right >> 32) ^ c1 ^ k0, (left >> 32) ^ c3 ^ k1
        c1, c3 = right & MASK, left & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return [c0, c1, c2, c3] if one else list(np.broadcast_arrays(c0, c1, c2, c3))


def drawn(operator: str, seed: int, size: tuple[int, ...], kind: np.dtype, low: int = 0, high: int = 0) -> Any:
    """What the operator draws, computed here: uniform or normal numbers, or whole ones in [low, high)."""
    count = math.prod(size)
    if operator == "girih.random_integers":
        numbers: Any = ((words(seed, count) * (high - low)) >> 32) + low
    elif operator == "girih.random_normal":
        uniform = (words(seed, 2 * count).reshape(count, 2) + 0.5) * 2.0**-32
        numbers = np.sqrt(np.log(uniform[:, 0]) * -2.0) * np.cos(uniform[:, 1] * (2.0 * math.pi))
    elif kind == np.float64:
        pairs = words(seed, 2 * count).reshape(count, 2)
        numbers = ((pairs[:, 0] >> 5) * 67108864 + (pairs[:, 1] >> 6)) * 2.0**-53
    else:
        bits = {"float32": 24, "float16": 11}[kind.name]
        numbers = (words(seed, count) >> (32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    return numbers.astype(kind).reshape(size)[()]


class RandomState(Generator):
    """NumPy's older names: rand, randn, randint, random_sample, seed."""

    def seed(self, seed: Any = None) -> None:
        self.__init__(seed)  # type: ignore[misc]

    def rand(self, *shape: int) -> Array:
        return self.random(shape)

    def randn(self, *shape: int) -> Array:
        return self.standard_normal(shape)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Array:
        return self._between(low, high, size)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Array:
        return self.integers(low, high, size, dtype)

    random_sample = ranf = sample = Generator.random


def _shape(size: Any) -> tuple[int, ...]:
    """
    Raises:
        TypeError: sizes are no whole numbers. ValueError: one is negative.
    """
    if size is None:
        return ()
    shape = tuple(map(index, size)) if isinstance(size, (Sequence, np.ndarray)) and np.ndim(size) else (index(size),)
    if min(shape, default=0) < 0:
        raise ValueError("negative dimensions are not allowed")
    return shape


def _common(size: Any, *parameters: Any) -> tuple[int, ...]:
    """The size that was asked for, else that of the broadcast parameters.

    Raises:
        ValueError: the parameters do not broadcast, or not to the size.
    """
    own = broadcast_shapes(*(item.shape if isinstance(item, Array) else np.shape(item) for item in parameters))
    if size is None:
        return own
    shape = _shape(size)
    if own and broadcast_shapes(own, shape) != shape:
        raise ValueError(f"Output size {shape} is not compatible with broadcast dimensions of inputs {own}.")
    return shape


def _known(*parameters: Any) -> list[Any] | None:
    """Their values; None where one of them is a large array."""
    if any(isinstance(item, Array) and not isinstance(item, SmallArray) for item in parameters):
        return None
    return [np.asarray(computed(item)) for item in parameters]


def _check(name: str, low: Any, high: Any) -> None:
    """Raises ValueError where the second is below the first."""
    if (both := _known(low, high)) is not None and (both[1] < both[0]).any():
        raise ValueError(f"{name} < 0")


def _span(low: int, high: int, kind: np.dtype) -> int:
    """How many whole numbers there are from low to below high.

    Raises:
        ValueError: none, or one that the dtype has not.
    """
    first, last = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    if low < first:
        raise ValueError(f"low is out of bounds for {kind.name}")
    if high - 1 > last:
        raise ValueError(f"high is out of bounds for {kind.name}")
    if not low < high:
        raise ValueError("low >= high")
    return high - low


def _check_probabilities(p: Any, population: int, distinct: int | None) -> None:
    """distinct: how many are drawn without replacement.

    Raises:
        ValueError: they are no probabilities of so many, or fewer than are drawn are above 0.
    """
    shape = p.shape if isinstance(p, Array) else np.shape(p)
    if len(shape) != 1:
        raise ValueError("p must be 1-dimensional")
    if shape[0] != population:
        raise ValueError("a and p must have same size")
    if (found := _known(p)) is None:
        return
    if np.isnan(found[0]).any():
        raise ValueError("Probabilities contain NaN")
    if (found[0] < 0).any():
        raise ValueError("Probabilities are not non-negative")
    kind = found[0].dtype if found[0].dtype.kind == "f" else np.dtype(np.float64)
    if abs(float(found[0].sum(dtype=np.float64)) - 1) > max(1e-8, float(np.finfo(kind).eps) ** 0.5):
        raise ValueError("Probabilities do not sum to 1")
    if distinct is not None and np.count_nonzero(found[0]) < distinct:
        raise ValueError("Fewer non-zero entries in p than size")


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
