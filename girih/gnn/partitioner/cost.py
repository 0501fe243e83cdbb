"""What a piece of a graph takes, learned while it is computed: ROC's online linear regression (Jia et al. 2020,
§4.4.1).

The seconds of layer l on a range of vertices are a sum over its vertices' features (`girih.gnn.partitioner.features`):
t(l, G) = Σ_i w_i(l) · x_i(G). Each epoch gives a sample for each layer and each piece. What was learned holds for other
graphs, on which the same layers run.

Differences from the paper:

- Errors count relative to the measured time, so that a small piece counts as much as a large one.
- Weights are not negative, as no vertex takes time back; so a range never costs less than a part of it, on which exact
  cuts rest (`girih.gnn.partitioner.contiguous`).
- A piece takes some time whatever is in it: a weight of its own.
- Few samples do not determine all weights. What they leave open is as a guess from the layer's sizes has it, scaled
  to the samples: the ridge of the regression pulls there, as much as `RIDGE` samples would.

A layer keeps the sums of products that the normal equations need, and no samples: O(1) memory, O(1) for a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.features import TABLE, Access, Features, Reading, features
from girih.store import places
from girih.store.sealed import LARGEST_BYTES, StoredError, seal, unseal

RIDGE = 1e-3
KIND, VERSION = "cost of graph layers", 1

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """Of one layer of a network what its cost depends on.

    gathers: values of each neighbour that are summed up. makes: values that a matrix product makes of them, or makes
    them of, for each vertex. back: whether gradients are summed up over the transposed graph too: in training, except
    where what is gathered is the input.
    """

    gathers: int
    makes: int
    back: bool = False

    def __post_init__(self) -> None:
        if self.gathers < 1 or self.makes < 0:
            raise ValueError(f"{self}: expected at least one value that is gathered, and none or more that are made")

    @property
    def reading(self) -> Reading:
        return self.gathers, self.back

    def guess(self, access: Access) -> Numbers:
        """The weights that are guessed where nothing is measured, for a core of 50 GFLOP/s whose cache gives a line in
        2 ns and whose memory gives 8 GB/s. What is measured replaces them; first of all their scale."""
        weights = np.zeros(len(access.names) + 1)
        weights[0] = 2 * self.gathers * self.makes / 50e9 + 4e-9
        weights[4] = 2e-9
        weights[len(TABLE) : -1] = self.gathers * access.value_bytes / 20e9
        return weights


@dataclass(frozen=True)
class Quality:
    """How well a layer's times were predicted, each before it was learned. samples: predicted ones. error: the mean of
    |predicted / measured - 1|. r2: the share of the variance of the measured times that is predicted, 1 at best; NaN
    where nothing was predicted or all times were equal."""

    samples: int
    error: float
    r2: float

    def __str__(self) -> str:
        if not self.samples:
            return "nothing predicted yet"
        return f"{self.error:.1%} mean error, R² {self.r2:.3f}, in {self.samples} samples before they were learned"


class _Sums(msgspec.Struct, frozen=True):
    """Of a layer's samples, features divided by seconds: `products` Σ z·zᵀ, `targets` Σ z, how many. Of those that were
    predicted before: how many, Σ |relative error|, Σ squared error, Σ seconds, Σ seconds²."""

    products: list[list[float]]
    targets: list[float]
    count: float = 0.0
    tested: Annotated[list[float], msgspec.Meta(min_length=5, max_length=5)] = msgspec.field(
        default_factory=lambda: [0.0] * 5
    )

    @classmethod
    def nothing(cls, size: int) -> _Sums:
        return cls(np.zeros((size, size)).tolist(), [0.0] * size)

    def quality(self) -> Quality:
        samples, relative, squared, total, squares = self.tested
        if not samples:
            return Quality(0, float("nan"), float("nan"))
        variance = squares - total * total / samples
        r2 = 1 - squared / variance if variance > 1e-12 * squares else float("nan")
        return Quality(int(samples), relative / samples, r2)


class _Access(msgspec.Struct, frozen=True):
    line: int
    caches: list[int]
    value_bytes: int


class _File(msgspec.Struct, frozen=True):
    """The content of a file: for each layer what it gathers and makes, and its sums."""

    layers: list[tuple[int, int, bool]]
    access: _Access
    sums: list[_Sums]


@dataclass(frozen=True, eq=False)
class CostModel:
    """What the layers of a network take on a range of vertices, as far as it was learned.

    layers: in the order in which times are given. access: how the device reads memory. Without samples its weights are
    a guess (`Layer.guess`), whose proportions are better than nothing and whose seconds are not.
    """

    layers: tuple[Layer, ...]
    access: Access = field(default_factory=Access)
    sums: tuple[_Sums, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("CostModel(layers=()): expected at least one layer")
        if not self.sums:
            object.__setattr__(self, "sums", (_Sums.nothing(len(self.access.names) + 1),) * len(self.layers))

    @property
    def samples(self) -> int:
        """How many it was learned from: pieces times layers times epochs."""
        return int(sum(item.count for item in self.sums))

    @cached_property
    def weights(self) -> Numbers:
        """(layers, features + 1): seconds for each unit of a feature, in the order of `access.names`, and for the
        piece. Guesses of layers without samples are scaled as those of the others turned out to be."""
        guesses = [layer.guess(self.access) for layer in self.layers]
        scales = [_scale(sums, guess) for sums, guess in zip(self.sums, guesses, strict=True) if sums.count]
        usual = float(np.mean(scales)) if scales else 1.0
        return np.array(
            [
                _fitted(sums, guess) if sums.count else usual * guess
                for sums, guess in zip(self.sums, guesses, strict=True)
            ]
        )

    @property
    def piece_seconds(self) -> float:
        """What all layers take on any piece that is not empty, beside its vertices."""
        return float(self.weights[:, -1].sum())

    def features(self, graph: Adjacency) -> Features:
        """The features of a graph for these layers; O(edges)."""
        return features(graph, [layer.reading for layer in self.layers], self.access)

    def running(self, known: Features) -> Numbers:
        """Seconds of all layers on the vertices before each vertex: (vertices + 1,), ascending from 0."""
        total = np.zeros(known.vertices + 1)
        for layer, weights in zip(self.layers, self.weights, strict=True):
            total += known.of(layer.reading) @ weights[:-1]
        return np.maximum.accumulate(total)

    def seconds(self, known: Features, cuts: Sequence[int]) -> Numbers:
        """(layers, pieces): the predicted seconds of each layer on each range between the cuts. Empty ones take
        none."""
        return np.array(
            [_rows(known, cuts, layer) @ weights for layer, weights in zip(self.layers, self.weights, strict=True)]
        )

    def learned(self, known: Features, cuts: Sequence[int], seconds: ArrayLike) -> CostModel:
        """The model that has also seen these times: (layers, pieces) seconds of the ranges between the cuts.

        Empty pieces teach nothing.

        Raises:
            ValueError: the times have another shape, or are not above 0.
        """
        measured = self._measured(cuts, seconds)
        predicted = self.seconds(known, cuts)
        sums = []
        for number, layer in enumerate(self.layers):
            rows, old = _rows(known, cuts, layer), self.sums[number]
            full = rows[:, 0] > 0
            taken, told = measured[number, full], predicted[number, full]
            scaled = rows[full] / taken[:, None]
            tested = np.array(old.tested)
            if old.count:
                tested += [len(taken), *_errors(told, taken)]
            sums.append(
                _Sums(
                    (np.array(old.products) + scaled.T @ scaled).tolist(),
                    (np.array(old.targets) + scaled.sum(axis=0)).tolist(),
                    old.count + len(taken),
                    tested.tolist(),
                )
            )
        return replace(self, sums=tuple(sums))

    def among(self, layers: Sequence[Layer], others: Sequence[int]) -> CostModel:
        """The model of more layers, of which `others`, counted from the first, have no samples."""
        own = iter(self.sums)
        nothing = _Sums.nothing(len(self.access.names) + 1)
        sums = tuple(nothing if number in others else next(own) for number in range(len(layers)))
        return CostModel(tuple(layers), self.access, sums)

    def quality(self) -> tuple[Quality, ...]:
        """For each layer how well times were predicted before they were learned."""
        return tuple(item.quality() for item in self.sums)

    def tested(self, known: Features, cuts: Sequence[int], seconds: ArrayLike) -> tuple[Quality, ...]:
        """For each layer how well it predicts these times, which it may not have learned.

        Raises:
            ValueError: as `learned`.
        """
        measured = self._measured(cuts, seconds)
        full = np.diff(cuts) > 0
        told, taken = self.seconds(known, cuts)[:, full], measured[:, full]
        return tuple(_Sums([], [], tested=[len(y), *_errors(x, y)]).quality() for x, y in zip(told, taken, strict=True))

    def _measured(self, cuts: Sequence[int], seconds: ArrayLike) -> Numbers:
        measured = np.asarray(seconds, np.float64)
        if measured.shape != (len(self.layers), len(cuts) - 1):
            raise ValueError(
                f"times of shape {measured.shape}: expected ({len(self.layers)}, {len(cuts) - 1}), the seconds of each "
                "layer on each piece"
            )
        full = np.diff(cuts) > 0
        if not (np.isfinite(measured[:, full]) & (measured[:, full] > 0)).all():
            raise ValueError("times: expected seconds above 0 of each piece that has vertices; measure each layer")
        return measured

    # --------------------------------------------------------------------------------------------- files

    def save(self, path: str) -> None:
        """Write what was learned as one file of JSON with a checksum: whole, or what is there stays.

        Raises:
            OSError: it cannot be written.
        """
        layers = [(layer.gathers, layer.makes, layer.back) for layer in self.layers]
        places.exchange(path, seal(KIND, VERSION, _File(layers, _Access(**vars(self.access)), list(self.sums))))
        places.sync(path)

    @classmethod
    def load(cls, path: str) -> CostModel:
        """What `save` has written.

        Raises:
            OSError: it cannot be read.
            StoredError: it is no such file, or damaged.
        """
        with places.opened(path) as file:
            if file.size > LARGEST_BYTES:
                raise StoredError(f"{path} has {file.size} bytes: it is no {KIND} of girih")
            data = file.bytes(0, file.size)
        try:
            kept = unseal(KIND, VERSION, data, _File)
            access = Access(**msgspec.to_builtins(kept.access))
            if len(kept.sums) != len(kept.layers) or not all(_is_whole(item, access) for item in kept.sums):
                raise StoredError("says what it may not: its sums do not fit its layers")
            return cls(tuple(Layer(*item) for item in kept.layers), access, tuple(kept.sums))
        except (StoredError, TypeError, ValueError) as error:
            raise StoredError(f"{path} {error}" if isinstance(error, StoredError) else f"{path}: {error}") from error

    def __str__(self) -> str:
        names = (*self.access.names, "the piece")
        lines = [f"cost of {len(self.layers)} layers, learned from {self.samples} samples"]
        for number, (layer, weights, quality) in enumerate(zip(self.layers, self.weights, self.quality(), strict=True)):
            lines.append(
                f"  layer {number}, {layer.gathers} gathered{' both ways' * layer.back}, {layer.makes} made: {quality}"
            )
            named: list[Any] = [f"{w:.3g} s × {name}" for name, w in zip(names, weights, strict=True) if w > 0]
            lines.append(f"    {' + '.join(named)}")
        return "\n".join(lines)


def _rows(known: Features, cuts: Sequence[int], layer: Layer) -> Numbers:
    """(pieces, features + 1): the features of each range, and 1 for the piece itself if it is not empty."""
    ranges = known.between(cuts, layer.reading)
    rows: Numbers = np.concatenate([ranges, ranges[:, :1] > 0], axis=1, dtype=np.float64)
    return rows


def _errors(told: Numbers, taken: Numbers) -> list[float]:
    """What `_Sums.tested` has behind the number of samples."""
    return [np.abs(told / taken - 1).sum(), ((told - taken) ** 2).sum(), taken.sum(), (taken**2).sum()]


def _is_whole(sums: _Sums, access: Access) -> bool:
    size = len(access.names) + 1
    shape = [len(sums.targets), *map(len, sums.products), len(sums.products)] == [size] * (size + 2)
    return shape and bool(np.isfinite([*sums.targets, *sums.tested, sums.count, *np.ravel(sums.products)]).all())


def _scale(sums: _Sums, guess: Numbers) -> float:
    """By how much the guess comes closest to a layer's samples."""
    return float(max(0.0, guess @ np.array(sums.targets)) / (guess @ np.array(sums.products) @ guess))


def _fitted(sums: _Sums, guess: Numbers) -> Numbers:
    """The weights of least relative error, none below 0: those that minimise w·A·w - 2 b·w + RIDGE Σ d_i (w_i - s
    g_i)², where s scales the guess g to the samples, and d_i is the mean of the squares of feature i."""
    from scipy.optimize import nnls

    products, targets = np.array(sums.products), np.array(sums.targets)
    scaled = guess * _scale(sums, guess)
    mean = np.diag(products) / sums.count
    used = mean > 0  # a feature that no sample has stays as guessed
    size = 1 / np.sqrt(mean[used])
    matrix = products[np.ix_(used, used)] * np.outer(size, size) + RIDGE * np.eye(used.sum())
    aim = targets[used] * size + RIDGE * scaled[used] / size
    lower = np.linalg.cholesky(matrix)
    weights: Numbers = scaled.copy()
    weights[used] = nnls(lower.T, np.linalg.solve(lower, aim))[0] * size
    return weights
