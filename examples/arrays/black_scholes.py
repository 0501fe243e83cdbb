"""Black and Scholes' prices of European options (1973): element-wise functions of large arrays.

python examples/arrays/black_scholes.py [--count 1000000]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(count: int = 1_000_000, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Prices of the share, strike prices, years to maturity."""
    random = numpy.random.default_rng(seed)
    return random.uniform(10, 50, count), random.uniform(10, 50, count), random.uniform(0.5, 2, count)


def normal(np: Any, x: Any) -> Any:
    """The distribution of a normal number, to 7.5e-8 (Abramowitz and Stegun, formula 26.2.17)."""
    k = 1 / (1 + 0.2316419 * abs(x))
    series = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = np.exp(-0.5 * x * x) * 0.3989422804014327 * series
    return np.where(x > 0, 1 - tail, tail)


def run(np: Any, share: Any, strike: Any, years: Any, rate: float = 0.02, volatility: float = 0.3) -> Any:
    """Prices of calls and of puts."""
    spread = volatility * np.sqrt(years)
    first = (np.log(share / strike) + (rate + 0.5 * volatility**2) * years) / spread
    discounted = strike * np.exp(-rate * years)
    call = share * normal(np, first) - discounted * normal(np, first - spread)
    return call, call - share + discounted


def main(argv: list[str] | None = None) -> tuple[Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    np = girih.array
    call, put = run(np, *map(np.array, data(options.count)))
    print(f"{options.count} options: calls cost {float(call.mean()):.3f} in the mean, puts {float(put.mean()):.3f}")
    return call, put


if __name__ == "__main__":
    main()
