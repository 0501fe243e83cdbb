"""Sparse and multinomial logistic regression by SGD: loops that write through buffers, within a stated delay.

    python examples/loops/logistic_regression.py [samples.svm]

An iteration reads and updates the weights of its sample's features, which are known only when it runs: as it stands the
loop is serial. Where writes go to a buffer they are no dependences, and the samples are divided among the workers.
"""

from __future__ import annotations

import sys

import numpy as np

import girih.loop as gl


def parse_line(line: str):
    """`1 3:0.5 17:1.25 …`: a label of -1, 0 or 1, and features from 1."""
    label, *words = line.split()
    pairs = [word.split(":") for word in words]
    features = np.array([int(feature) - 1 for feature, _ in pairs])
    return 1.0 if float(label) > 0 else 0.0, (features, np.array([float(value) for _, value in pairs], np.float32))


def read(path: str) -> gl.Space:
    """Samples by number, each with (label, features, values)."""
    number = iter(range(1 << 62))

    def keyed(sample):
        label, (features, values) = sample
        return next(number), (label, features, values)

    return gl.text(path).map(parse_line).map(keyed).space()


def made_up(count: int = 20_000, features: int = 2_000, each: int = 20) -> gl.Space:
    """Samples whose labels follow from weights on few of the features."""
    generator = np.random.default_rng(0)
    ids = (features * generator.random((count, each)) ** 2).astype(np.int64)
    values = generator.random((count, each)).astype(np.float32)
    truth = generator.standard_normal(features) * (generator.random(features) < 0.3)
    labels = ((truth[ids] * values).sum(axis=1) + generator.normal(0, 0.3, count) > 0).astype(np.float32)
    return gl.sparse((np.arange(count),), (labels, ids, values))


def sparse_regression(samples: gl.Space, features: int, epochs: int = 5, step: float = 0.05) -> list[float]:
    """The mean logistic loss over the samples after each epoch."""
    weights = gl.array(np.zeros(features, np.float32))
    buffered = gl.buffer(weights, delay=200)
    loss = gl.accumulator(0.0)

    @gl.parallel_for(samples)
    def train(sample, v, weights, buffered, step):
        label, ids, values = v
        total = 0.0
        for k in range(len(ids)):
            total += weights[ids[k]] * values[k]
        diff = 1 / (1 + np.exp(-total)) - label
        for k in range(len(ids)):
            buffered[ids[k]] -= step * values[k] * diff

    @gl.parallel_for(samples)
    def test(sample, v, weights):
        label, ids, values = v
        total = 0.0
        for k in range(len(ids)):
            total += weights[ids[k]] * values[k]
        loss += np.log1p(np.exp(-total)) if label > 0 else np.log1p(np.exp(total))

    losses = []
    for _ in range(epochs):
        train(weights, buffered, step=step)
        loss.reset()
        test(weights)
        losses.append(loss.value / len(samples))
    return losses


def multinomial_regression(x: np.ndarray, y: np.ndarray, epochs: int = 10, step: float = 0.05) -> list[float]:
    """The part of the samples that is classified rightly after each epoch; x: (samples, features), y: classes."""
    classes = int(y.max()) + 1
    space = gl.sparse((np.arange(len(x)),), (y.astype(np.int32), x.astype(np.float32)))
    weights = gl.array(np.zeros((classes, x.shape[1]), np.float32))
    buffered = gl.buffer(weights, delay=50)
    right = gl.accumulator(0)

    @gl.parallel_for(space)
    def train(sample, v, weights, buffered, step):
        label, row = v
        scores = np.zeros(classes, np.float32)
        for c in range(classes):
            scores[c] = weights[c] @ row
        largest = scores.max()
        total = 0.0
        for c in range(classes):
            scores[c] = np.exp(scores[c] - largest)
            total += scores[c]
        for c in range(classes):
            gradient = scores[c] / total - (1.0 if c == label else 0.0)
            for k in range(len(row)):
                buffered[c, k] -= step * gradient * row[k]

    @gl.parallel_for(space)
    def test(sample, v, weights):
        label, row = v
        best, least = 0, -np.inf
        for c in range(classes):
            score = weights[c] @ row
            if score > least:
                best, least = c, score
        right += 1 if best == label else 0

    parts = []
    for _ in range(epochs):
        train(weights, buffered, step=step)
        right.reset()
        test(weights)
        parts.append(right.value / len(x))
    return parts


def main(path: str | None = None) -> tuple[list[float], list[float]]:
    samples = read(path) if path else made_up()
    features = 1 + max(int(ids.max()) for ids in [_features(samples)])
    losses = sparse_regression(samples, features)
    print("sparse: loss", *(f"{loss:.4f}" for loss in losses))
    generator = np.random.default_rng(0)
    centres = generator.normal(0, 1.0, (4, 20))
    y = generator.integers(0, 4, 4000)
    parts = multinomial_regression(centres[y] + generator.standard_normal((4000, 20)), y)
    print("multinomial: right", *(f"{part:.3f}" for part in parts))
    return losses, parts


def _features(samples: gl.Space) -> np.ndarray:
    column = samples.entries.columns[1]
    return column if isinstance(column, np.ndarray) else column.data


if __name__ == "__main__":
    main(*sys.argv[1:2])
