"""Steps of random array expressions, and the arrays that a list of them makes."""

from __future__ import annotations

UNARY = [
    lambda np, x: -x,
    lambda np, x: np.abs(x) + 1,
    lambda np, x: np.tanh(x),
    lambda np, x: x[::-1],
    lambda np, x: x[:, 1:] if x.shape[1] > 1 else x,
    lambda np, x: x.T,
    lambda np, x: np.where(x > 0, x, 0.5),
    lambda np, x: x.sum(0, keepdims=True) * 0.1,
    lambda np, x: np.mean(x, axis=1)[:, None],
    lambda np, x: np.cumsum(x, axis=0) * 0.1,
    lambda np, x: np.sort(x, axis=1),
    lambda np, x: x.reshape(-1, 1),
    lambda np, x: x[[0, -1]],
    lambda np, x: np.stack([x.max(0), x.min(0)]),
    lambda np, x: np.argmin(x, axis=0)[None] * 0.25,
    lambda np, x: (x - x.mean(0)) / (x.std(0) + 1),
    lambda np, x: x[x[:, 0] > 0] if (x[:, 0] > 0).any() else x,
    lambda np, x: np.stack([x[np.abs(x[:, 0]) % 2 >= group].sum(0) for group in (0, 1)]),
    lambda np, x: ((x[:, None] - x[:2][None]) ** 2).sum(-1) * 0.1,
]
BINARY = [
    lambda np, x, y: x + y if _fits(x, y) else x,
    lambda np, x, y: x * y if _fits(x, y) else y,
    lambda np, x, y: x @ y * 0.1 if x.shape[1] == y.shape[0] else x @ x.T * 0.1,
    lambda np, x, y: np.maximum(x, y[:1, :1]),
    lambda np, x, y: np.concatenate([x, y]) if x.shape[1] == y.shape[1] else np.concatenate([x, x], axis=1),
]


def _fits(x, y):
    return all(m == n or 1 in (m, n) for m, n in zip(x.shape, y.shape, strict=True))


def build(np_like, leaves, steps, touch):
    """The arrays that a list of steps makes; `touch` sees some of them while they are made."""
    values = list(leaves)
    for number, first, second, looked_at in steps:
        x, y = values[first % len(values)], values[second % len(values)]
        if number < len(UNARY):
            made = UNARY[number](np_like, x)
        else:
            made = BINARY[number - len(UNARY)](np_like, x, y)
        if made.size <= 30_000:
            values.append(made)
            if looked_at:
                touch(made)
    return values
