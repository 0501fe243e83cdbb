"""k-means (Lloyd's algorithm): girih cuts the points, and between the workers only sums over their points move.

python examples/arrays/kmeans.py [--count 20000] [--groups 6] [--iterations 5] [--workers 2]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih
import girih.array


def data(count: int = 20_000, dimensions: int = 8, groups: int = 6, seed: int = 0) -> tuple[numpy.ndarray, ...]:
    """Points in blobs around random centres."""
    random = numpy.random.default_rng(seed)
    centres = random.uniform(-4, 4, size=(groups, dimensions))
    return (centres[random.integers(0, groups, count)] + random.normal(size=(count, dimensions)),)


def run(np: Any, x: Any, groups: int = 6, iterations: int = 5) -> Any:
    """The centres after some iterations from the first points."""
    centres = x[:groups]
    for _ in range(iterations):
        distances = (centres**2).sum(1) - 2 * (x @ centres.T)  # less |x|², the same for all centres
        nearest = distances.argmin(1)
        centres = np.stack([x[nearest == group].mean(0) for group in range(groups)])
    return centres


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    np = girih.array
    with girih.cluster(workers=options.workers, small=0) as cluster:
        (x,) = map(np.array, data(options.count, groups=options.groups))
        centres = run(np, x, options.groups, options.iterations)  # nothing is computed yet
        print(np.explain(centres))
        found = centres.compute()
        moved = sum(item.bytes_received for item in cluster.run.statistics())
        print(f"{moved} bytes between {options.workers} workers; the points are {x.nbytes} bytes")
    print(found.round(3))
    return found


if __name__ == "__main__":
    main()
