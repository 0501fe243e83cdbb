"""Prices of options: American puts by a binomial tree (Cox, Ross, Rubinstein 1979), Asian calls by Monte Carlo.

python examples/arrays/price_prediction.py [--options 2000] [--steps 50] [--paths 100000]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(options: int = 2000, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Prices of the share, strike prices, years to maturity."""
    random = numpy.random.default_rng(seed)
    return random.uniform(30, 50, options), random.uniform(30, 50, options), random.uniform(0.5, 2, options)


def shocks(paths: int = 100_000, days: int = 50, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Normal numbers, a row for each path of the share's price."""
    return (numpy.random.default_rng(seed).normal(size=(paths, days)),)


def run(np: Any, share: Any, strike: Any, years: Any, steps: int = 50, rate: float = 0.03) -> Any:
    """American puts: from the leaves of a tree of prices back to its root; who owns one may exercise it at any step."""
    time, volatility = (years / steps)[:, None], 0.3
    up = np.exp(volatility * np.sqrt(time))
    discount = np.exp(-rate * time)
    chance = (1 / discount - 1 / up) / (up - 1 / up)
    rise, fall = discount * chance, discount * (1 - chance)
    prices = share[:, None] * up ** (2.0 * np.arange(steps + 1) - steps)
    value = np.maximum(strike[:, None] - prices, 0)
    for _ in range(steps):
        prices = prices[:, 1:] / up
        value = np.maximum(rise * value[:, 1:] + fall * value[:, :-1], strike[:, None] - prices)
    return value[:, 0]


def run_paths(np: Any, shocks: Any, share: float = 40.0, strike: float = 40.0, rate: float = 0.03) -> Any:
    """The price of an Asian call, which pays what the mean of a year's prices exceeds the strike price by."""
    volatility, step = 0.3, 1 / shocks.shape[1]
    prices = share * np.exp(((rate - volatility**2 / 2) * step + volatility * step**0.5 * shocks).cumsum(1))
    return numpy.exp(-rate) * np.maximum(prices.mean(1) - strike, 0).mean()


def main(argv: list[str] | None = None) -> tuple[Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--paths", type=int, default=100_000)
    options = parser.parse_args(argv)
    np = girih.array
    puts = run(np, *map(np.array, data(options.options)), steps=options.steps)
    asian = run_paths(np, *map(np.array, shocks(options.paths)))
    print(
        f"{options.options} American puts cost {float(puts.mean()):.3f} in the mean; the Asian call {float(asian):.3f}"
    )
    return puts, asian


if __name__ == "__main__":
    main()
