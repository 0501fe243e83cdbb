"""Thirty-six scripts as scientists write them: loops over small and middle-sized arrays, with NumPy's names alone.

Each is a function of a namespace (NumPy or girih.array) and a size, and gives one number, by which results are
compared. Random numbers are NumPy's, drawn before, so that all compute on the same data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Space = Any


@dataclass(frozen=True)
class Script:
    """size: of a measurement; quick: of `--quick` and of tests."""

    name: str
    run: Callable[[Space, int], float]
    size: int
    quick: int


def drawn(seed: int = 0) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


# ------------------------------------------------------------------------------------------- loops over small arrays


def lorenz(np: Space, steps: int) -> float:
    """Lorenz' equations by Runge-Kutta's fourth order."""

    def slope(state: Any) -> Any:
        x, y, z = state
        return np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    state, dt = np.array([1.0, 1.0, 1.0]), 0.01
    for _ in range(steps):
        k1 = slope(state)
        k2 = slope(state + dt / 2 * k1)
        k3 = slope(state + dt / 2 * k2)
        k4 = slope(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return float(state.sum())


def scalars(np: Space, count: int) -> float:
    """A running mean and variance, element by element."""
    x = np.asarray(drawn().normal(size=count))
    mean, spread = 0.0, 0.0
    for i in range(count):
        delta = x[i] - mean
        mean = mean + delta / (i + 1)
        spread = spread + delta * (x[i] - mean)
    return float(mean + spread / count)


def gram_schmidt(np: Space, n: int) -> float:
    a = np.asarray(drawn().normal(size=(n + 10, n)))
    q = np.zeros((n + 10, n))
    for j in range(n):
        v = a[:, j].copy()
        for i in range(j):
            v = v - (q[:, i] @ a[:, j]) * q[:, i]
        q[:, j] = v / np.sqrt(v @ v)
    return float(np.abs(q.T @ q - np.eye(n)).max() < 1e-9) + float(np.abs(q).sum())


def kalman(np: Space, steps: int) -> float:
    seen = drawn().normal(size=steps).cumsum()
    f, h = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    noise, error = np.eye(2) * 0.01, np.array([[1.0]])
    x, p = np.zeros((2, 1)), np.eye(2)
    for value in seen:
        x = f @ x
        p = f @ p @ f.T + noise
        gain = p @ h.T @ np.linalg.inv(h @ p @ h.T + error)
        x = x + gain @ (np.array([[value]]) - h @ x)
        p = (np.eye(2) - gain @ h) @ p
    return float(x[0, 0] + p.trace())


def automaton(np: Space, steps: int) -> float:
    """Rule 30."""
    cells = np.zeros(2 * steps + 1, dtype=np.int64)
    cells[steps] = 1
    total = 0
    for _ in range(steps):
        left, right = np.roll(cells, 1), np.roll(cells, -1)
        cells = left ^ (cells | right)
        total += int(cells.sum())
    return float(total)


def ising(np: Space, n: int) -> float:
    """A checkerboard of spins, flipped by masks."""
    random = drawn()
    spins = np.asarray(random.choice([-1.0, 1.0], (n, n)))
    board = np.asarray(numpy.indices((n, n)).sum(0) % 2 == 0)
    for step in range(60):
        draws = np.asarray(random.random((n, n)))
        near = np.roll(spins, 1, 0) + np.roll(spins, -1, 0) + np.roll(spins, 1, 1) + np.roll(spins, -1, 1)
        flip = (draws < np.exp(-0.9 * 2 * spins * near)) & (board if step % 2 else ~board)
        spins[flip] = -spins[flip]
    return float(spins.sum())


def mandelbrot(np: Space, n: int) -> float:
    x, y = np.linspace(-2, 1, n), np.linspace(-1.5, 1.5, n)
    c = x[None, :] + 1j * y[:, None]
    z = np.zeros_like(c)
    count = np.zeros(c.shape, dtype=np.int64)
    for _ in range(30):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        count[inside] += 1
    return float(count.sum())


def particle_filter(np: Space, particles: int) -> float:
    random = drawn()
    x = np.asarray(random.normal(size=particles))
    estimate = 0.0
    for value in random.normal(size=50).cumsum():
        x = x + np.asarray(random.normal(size=particles))
        weights = np.exp(-0.5 * (x - value) ** 2) + 1e-300
        weights = weights / weights.sum()
        estimate += float((x * weights).sum())
        places = np.searchsorted(np.cumsum(weights), np.asarray(random.random(particles)))
        x = x[np.minimum(places, particles - 1)]
    return estimate


def slices(np: Space, n: int) -> float:
    """Writes on slices: a table filled row by row, column by column."""
    a = np.zeros((n, n))
    for i in range(n):
        a[i, :i] = i
        a[i:, i] += 1
    return float(a.sum())


def records(np: Space, count: int) -> float:
    """Means of groups of records."""
    random = drawn()
    keys, values = np.asarray(random.integers(0, 40, count)), np.asarray(random.normal(size=count))
    total = 0.0
    for key in np.unique(keys):
        chosen = values[keys == key]
        total += float(chosen.mean()) + float(chosen.std())
    return total


def elements(np: Space, n: int) -> float:
    """Finite elements in one dimension: a stiffness matrix assembled element by element, then solved."""
    k, f, h = np.zeros((n, n)), np.zeros(n), 1.0 / (n - 1)
    local = np.array([[1.0, -1.0], [-1.0, 1.0]]) / h
    for e in range(n - 1):
        k[e : e + 2, e : e + 2] += local
        f[e : e + 2] += h / 2
    k[0, :], k[-1, :], k[0, 0], k[-1, -1], f[0], f[-1] = 0, 0, 1, 1, 0, 0
    return float(np.linalg.solve(k, f).sum())


def bodies(np: Space, n: int) -> float:
    random = drawn()
    place, speed = np.asarray(random.normal(size=(n, 3))), np.zeros((n, 3))
    mass = np.asarray(random.random(n))
    for _ in range(20):
        away = place[None, :, :] - place[:, None, :]
        far = ((away**2).sum(-1) + 0.01) ** -1.5
        speed += 0.001 * (away * (far * mass)[:, :, None]).sum(1)
        place += 0.001 * speed
    return float(np.abs(place).sum())


def life(np: Space, n: int) -> float:
    cells = np.asarray(drawn().integers(0, 2, (n, n)))
    for _ in range(30):
        near = sum(np.roll(np.roll(cells, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        cells = ((near == 3) | ((cells == 1) & (near == 2))).astype(np.int64)
    return float(cells.sum())


def heat(np: Space, n: int) -> float:
    u = np.zeros((n, n))
    u[n // 4 : n // 2, n // 4 : n // 2] = 1
    for _ in range(60):
        u[1:-1, 1:-1] += 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return float((u * u).sum())


def counts(np: Space, count: int) -> float:
    x = np.asarray(drawn().integers(0, 500, count))
    weights = np.asarray(drawn(1).random(count))
    return float((np.bincount(x) * np.bincount(x, weights=weights)).sum())


def black_scholes(np: Space, count: int) -> float:
    random = drawn()
    s, k, t = (np.asarray(random.uniform(low, high, count)) for low, high in ((5, 30), (1, 100), (0.25, 10)))
    d1 = (np.log(s / k) + (0.02 + 0.3**2 / 2) * t) / (0.3 * np.sqrt(t))
    d2 = d1 - 0.3 * np.sqrt(t)

    def below(x: Any) -> Any:
        return 1 / (1 + np.exp(-0.07056 * x**3 - 1.5976 * x))

    return float((s * below(d1) - k * np.exp(-0.02 * t) * below(d2)).mean())


def words(np: Space, count: int) -> float:
    """The most frequent words of a text of numbers, and how far apart they are."""
    text = np.asarray(drawn().zipf(1.5, count) % 5000)
    found, many = np.unique(text, return_counts=True)
    order = np.argsort(-many, kind="stable")[:10]
    return float(sum(float(np.diff(np.flatnonzero(text == word)).mean()) for word in found[order]))


def convolution(np: Space, n: int) -> float:
    image, kernel = np.asarray(drawn().random((n, n))), np.asarray(drawn(1).random((5, 5)))
    made = np.zeros((n - 4, n - 4))
    for i in range(5):
        for j in range(5):
            made += kernel[i, j] * image[i : n - 4 + i, j : n - 4 + j]
    return float(made.sum())


def correlation(np: Space, n: int) -> float:
    x = np.asarray(drawn().normal(size=(n, 50)))
    x = (x - x.mean(0)) / x.std(0)
    return float(np.abs(x.T @ x / n).sum())


def neighbours(np: Space, n: int) -> float:
    x, y = np.asarray(drawn().normal(size=(n, 8))), np.asarray(drawn(1).normal(size=(100, 8)))
    far = ((y**2).sum(1)[:, None] - 2 * y @ x.T) + (x**2).sum(1)[None]
    return float(np.sort(far, 1)[:, :5].sum())


def rolled(np: Space, count: int) -> float:
    x = np.asarray(drawn().normal(size=count))
    return float(sum(float((x * np.roll(x, lag)).mean()) for lag in range(1, 20)))


def returns(np: Space, count: int) -> float:
    """Prices: returns, drawdown, volatility in windows."""
    price = np.asarray(100 * numpy.exp(drawn().normal(0, 0.01, count).cumsum()))
    change = np.diff(np.log(price))
    most = np.maximum.accumulate(price)
    year = change[: count // 250 * 250 - 250].reshape(-1, 250)
    return float(year.std(1).mean() + ((most - price) / most).max())


def walk(np: Space, count: int) -> float:
    steps = np.asarray(drawn().choice([-1, 1], (200, count // 200)))
    place = np.cumsum(steps, 1)
    return float(np.abs(place[:, -1]).mean() + (np.abs(place).max(1) > 30).sum())


# ------------------------------------------------------------------------------------------- thirteen more


def logistic(np: Space, n: int) -> float:
    random = drawn()
    x, w = np.asarray(random.normal(size=(n, 20))), np.zeros(20)
    y = (x[:, 0] > 0.3).astype(float)
    for _ in range(40):
        p = 1 / (1 + np.exp(-(x @ w)))
        w -= 0.5 * (x.T @ (p - y)) / n
    return float(np.abs(w).sum())


def kmeans(np: Space, n: int) -> float:
    x = np.asarray(drawn().normal(size=(n, 3)))
    centres = x[:6].copy()
    for _ in range(10):
        nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        for group in range(6):
            centres[group] = x[nearest == group].mean(0)
    return float(centres.sum())


def pagerank(np: Space, n: int) -> float:
    links = np.asarray((drawn().random((n, n)) < 0.1).astype(float))
    m = links / np.maximum(links.sum(0), 1)
    r = np.full(n, 1.0 / n)
    for _ in range(100):
        new = 0.85 * (m @ r) + 0.15 / n
        if float(np.abs(new - r).sum()) < 1e-12:
            break
        r = new
    return float((r * np.arange(n)).sum())


def jacobi(np: Space, n: int) -> float:
    a, b = np.asarray(drawn().random((n, n)) + n * numpy.eye(n)), np.ones(n)
    d, x = np.diag(a), np.zeros(n)
    rest = a - np.diag(d)
    for _ in range(100):
        x = (b - rest @ x) / d
    return float(x.sum())


def area(np: Space, n: int) -> float:
    """π by darts, in batches."""
    random, hits = drawn(), 0
    for _ in range(20):
        x, y = np.asarray(random.random(n)), np.asarray(random.random(n))
        hits += int((x * x + y * y <= 1).sum())
    return 4 * hits / (20 * n)


def spectrum(np: Space, n: int) -> float:
    """A signal without its high frequencies."""
    t = np.arange(n) / n
    signal = np.sin(2 * math.pi * 5 * t) + 0.5 * np.sin(2 * math.pi * 120 * t)
    f = np.fft.rfft(signal)
    f[50:] = 0
    return float(np.abs(np.fft.irfft(f, n)).sum())


def newton(np: Space, n: int) -> float:
    """Which root of z³ = 1 Newton's steps come to."""
    x = np.linspace(-1, 1, n)
    z = x[None, :] + 1j * x[:, None] + 0.01
    for _ in range(15):
        z = z - (z**3 - 1) / (3 * z**2)
    return float((np.abs(z - 1) < 1e-3).sum())


def principal(np: Space, n: int) -> float:
    x = np.asarray(drawn().normal(size=(n, 30)) * numpy.arange(1, 31))
    x = x - x.mean(0)
    v = np.ones(30)
    for _ in range(50):
        v = x.T @ (x @ v)
        v = v / np.linalg.norm(v)
    return float(np.abs(v).max())


def epidemic(np: Space, steps: int) -> float:
    state, trace = np.array([0.99, 0.01, 0.0]), np.zeros((steps, 3))
    for step in range(steps):
        s, i, _r = state
        state = state + 0.1 * np.array([-0.3 * s * i, 0.3 * s * i - 0.1 * i, 0.1 * i])
        trace[step] = state
    return float(trace[:, 1].max() + trace.sum())


def smoothed(np: Space, count: int) -> float:
    x = np.asarray(drawn().normal(size=count))
    sums = np.concatenate([np.zeros(1), np.cumsum(x)])
    mean = (sums[50:] - sums[:-50]) / 50
    return float(np.abs(x[49:] - mean).mean())


def edges(np: Space, n: int) -> float:
    image = np.asarray(drawn().random((n, n)))
    gx = image[1:-1, 2:] - image[1:-1, :-2]
    gy = image[2:, 1:-1] - image[:-2, 1:-1]
    size = np.sqrt(gx**2 + gy**2)
    return float((size > size.mean()).sum())


def warping(np: Space, n: int) -> float:
    """Dynamic time warping of two series, cell by cell."""
    a, b = np.asarray(drawn().normal(size=n)), np.asarray(drawn(1).normal(size=n))
    cost = np.full((n + 1, n + 1), np.inf)
    cost[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            cost[i, j] = abs(a[i - 1] - b[j - 1]) + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return float(cost[n, n])


def sieve(np: Space, n: int) -> float:
    prime = np.ones(n, dtype=bool)
    prime[:2] = False
    for p in range(2, int(n**0.5) + 1):
        if prime[p]:
            prime[p * p :: p] = False
    return float(np.flatnonzero(prime).sum())


SCRIPTS = (
    Script("Lorenz by Runge-Kutta 4", lorenz, 2000, 20),
    Script("loops over scalars", scalars, 50_000, 200),
    Script("Gram-Schmidt", gram_schmidt, 80, 8),
    Script("Kalman filter", kalman, 2000, 10),
    Script("cellular automaton", automaton, 500, 20),
    Script("Ising model", ising, 200, 16),
    Script("Mandelbrot", mandelbrot, 300, 16),
    Script("particle filter", particle_filter, 10_000, 50),
    Script("writes on slices", slices, 500, 20),
    Script("grouped records", records, 200_000, 500),
    Script("finite elements", elements, 400, 10),
    Script("n-body", bodies, 200, 8),
    Script("Life", life, 300, 16),
    Script("heat", heat, 500, 16),
    Script("bincount", counts, 1_000_000, 500),
    Script("Black-Scholes", black_scholes, 1_000_000, 100),
    Script("words", words, 300_000, 500),
    Script("convolution", convolution, 1000, 16),
    Script("correlation", correlation, 50_000, 60),
    Script("k nearest neighbours", neighbours, 20_000, 50),
    Script("roll", rolled, 1_000_000, 100),
    Script("returns", returns, 1_000_000, 1000),
    Script("random walk", walk, 2_000_000, 2000),
    Script("logistic regression", logistic, 50_000, 50),
    Script("k-means", kmeans, 50_000, 60),
    Script("PageRank", pagerank, 500, 10),
    Script("Jacobi", jacobi, 300, 8),
    Script("darts", area, 500_000, 50),
    Script("Fourier filter", spectrum, 500_000, 400),
    Script("Newton's fractal", newton, 400, 10),
    Script("principal component", principal, 100_000, 60),
    Script("epidemic", epidemic, 5000, 20),
    Script("moving average", smoothed, 1_000_000, 200),
    Script("edges of an image", edges, 1500, 16),
    Script("time warping", warping, 150, 6),
    Script("sieve of primes", sieve, 1_000_000, 100),
)
