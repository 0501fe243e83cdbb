"""k-means (Lloyd's algorithm) as a NumPy user writes it; girih cuts the points and moves only partial sums.

python examples/arrays/kmeans.py
"""

from __future__ import annotations

import numpy

import girih
import girih.array as np


def points(count: int = 20_000, dimensions: int = 8, groups: int = 6, seed: int = 0) -> numpy.ndarray:
    """Gaussian blobs around random centres."""
    random = numpy.random.default_rng(seed)
    centres = random.uniform(-4, 4, size=(groups, dimensions))
    return centres[random.integers(0, groups, count)] + random.normal(size=(count, dimensions))


def kmeans(x, groups: int, iterations: int):
    """The centres after some iterations from the first points."""
    centres = x[:groups]
    for _ in range(iterations):
        distances = ((x[:, None, :] - centres[None]) ** 2).sum(-1)
        nearest = distances.argmin(1)
        centres = np.stack([x[nearest == group].mean(0) for group in range(groups)])
    return centres


def main(count: int = 20_000, groups: int = 6, iterations: int = 5, workers: int = 2) -> numpy.ndarray:
    with girih.cluster(workers=workers) as cluster:
        x = np.array(points(count, groups=groups))
        centres = kmeans(x, groups, iterations)  # nothing is computed yet
        print(np.explain(centres))
        result = centres.compute()
        moved = sum(item.bytes_received for item in cluster.run.statistics())
        print(f"{moved} bytes between {workers} workers; the points are {x.nbytes} bytes")
    print(result.round(3))
    return result


if __name__ == "__main__":
    main()
