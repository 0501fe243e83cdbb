"""Arrays larger than memory: a limit that is kept.

What: (1) the sum of a function of the index over an array of 1 TB; (2) k-means, as a NumPy user writes it, on points
in a file of four times the limit. Both under 2 GB for all workers together (`--limit`); for (2) a smaller limit makes
the file smaller.
How: two worker processes, each with its share of the limit (`girih.cluster(memory=...)`). Measured is the most
anonymous memory (RssAnon of /proc/PID/status, asked every 20 ms) of each worker above what it had after its start and a
first small program; the workers' are added up. Pages of mapped files are not counted: the system drops them when it
needs room. Results are checked: (1) by its closed form, (2) by NumPy, block by block from the same file.
Against: the limit. Dask and NumPy would need 1 TB, or the file's size.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy

from benchmarks.common import Benchmark, Report, Row, note

COLUMNS = (
    ("what", "what"), ("bytes", "size"), ("limit", "limit"), ("peak above start", "peak"), ("predicted", "predicted"),
    ("seconds", "seconds"), ("GB/s", "rate"),
)  # fmt: skip
DIMENSIONS, GROUPS = 32, 8
SAMPLE_SECONDS = 0.02


class Watch:
    """The most anonymous bytes of each process above what it has when the watch begins.

    seconds: between two looks.
    """

    def __init__(self, processes: list[int], seconds: float = SAMPLE_SECONDS) -> None:
        self.processes = processes
        self.seconds = seconds
        self.start = [anonymous(process) for process in processes]
        self.peaks = list(self.start)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(self.seconds):
            self.peaks = [max(old, anonymous(one)) for old, one in zip(self.peaks, self.processes, strict=True)]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def above(self) -> int:
        """Of all processes together; their peaks need not be at one time."""
        return sum(peak - start for peak, start in zip(self.peaks, self.start, strict=True))


def anonymous(process: int) -> int:
    """Bytes of a process that are in memory and in no file."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("RssAnon:")).split()[1]) * 1024


@contextmanager
def cluster(options: argparse.Namespace, limit: int) -> Iterator[Any]:
    import girih
    import girih.array as np

    with girih.cluster(workers=options.workers, memory=limit // options.workers, small=0) as made:
        x = np.array(numpy.ones((200_000, 4)))
        (np.sqrt(x * 2).sum() + (x[x[:, 0] > 0]).mean(0)).compute()  # kernels are loaded, allocators have begun
        yield made


def watched(made: Any, what: str, size: int, limit: int, run: Callable[[], Any]) -> tuple[Row, Any]:
    before = set(made._plans)
    with Watch([process.pid for process in made.run.crew.processes]) as watch:
        began = time.perf_counter()
        result = run()
        took = time.perf_counter() - began
    predicted = max(planned.peak for key, planned in made._plans.items() if key not in before) * made.workers
    row = {
        "what": what, "bytes": size, "limit_bytes": limit, "peak_bytes": watch.above, "seconds": took,
        "size": f"{size / 1e9:.4g} GB", "limit": f"{limit / 1e6:.4g} MB", "peak": f"{watch.above / 1e6:.3g} MB",
        "predicted": f"{predicted / 1e6:.3g} MB", "rate": f"{size / took / 1e9:.2f}",
    }  # fmt: skip
    note(row)
    return row, result


def function_of_index(options: argparse.Namespace, size: int, limit: int) -> tuple[Row, list[str]]:
    """Σ (sqrt(i + 1) · 2 - 1) over the index of an array of so many bytes."""
    import girih.array as np

    def total(count: int) -> float:
        return float((np.sqrt(np.arange(count, dtype=float) + 1) * 2 - 1).sum())

    count = size // 8
    with cluster(options, limit) as made:
        began, some = time.perf_counter(), min(count // 10, 10**8)
        total(some)  # to say how long it will take
        rate = some * 8 / (time.perf_counter() - began)
        note({"what": f"{size / 1e9:.4g} GB at {rate / 1e9:.2f} GB/s: about {size / rate:.0f} s"})
        row, got = watched(made, "sum of a function of the index", size, limit, lambda: total(count))
    # Σ sqrt(k), k = 1 … n, by Euler and Maclaurin; ζ(-1/2) is the constant.
    roots = 2 / 3 * count**1.5 + count**0.5 / 2 - 0.2078862249773545 + count**-0.5 / 24
    expected = 2 * roots - count
    wrong = abs(got / expected - 1)
    return row, [] if wrong < 1e-10 else [f"the sum over {size} bytes is {got}, off by {wrong:.1e}"]


def kmeans(options: argparse.Namespace, limit: int) -> tuple[Row, list[str]]:
    import girih.array as np

    size = 4 * limit
    with tempfile.TemporaryDirectory(prefix="girih-memory-") as folder:
        path = Path(folder) / "points.npy"
        first = write_points(path, size // (8 * DIMENSIONS))
        with cluster(options, limit) as made:

            def run() -> numpy.ndarray:
                x = np.from_npy(path)
                centres = np.array(first)
                for _ in range(options.iterations):
                    nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
                    centres = np.stack([x[nearest == group].mean(0) for group in range(GROUPS)])
                return centres.compute()

            row, got = watched(made, f"k-means, {options.iterations} iterations", size, limit, run)
        expected = with_numpy(path, first, options.iterations)
    row["rate"] = f"{size * options.iterations / row['seconds'] / 1e9:.2f}"
    same = numpy.allclose(got, expected)
    return row, [] if same else ["the centres differ from NumPy's"]


def write_points(path: Path, count: int) -> numpy.ndarray:
    """Blobs of points into a file; centres to begin with, so that no group is ever empty."""
    random = numpy.random.default_rng(0)
    centres = random.uniform(-4, 4, size=(GROUPS, DIMENSIONS))
    points = numpy.lib.format.open_memmap(path, "w+", numpy.float64, (count, DIMENSIONS))
    for start in range(0, count, 50_000):
        rows = min(50_000, count - start)
        points[start : start + rows] = centres[random.integers(0, GROUPS, rows)] + random.normal(
            size=(rows, DIMENSIONS)
        )
    points.flush()
    return centres * 0.9


def with_numpy(path: Path, centres: numpy.ndarray, iterations: int) -> numpy.ndarray:
    points = numpy.load(path, mmap_mode="r")
    for _ in range(iterations):
        sums, counts = numpy.zeros_like(centres), numpy.zeros(GROUPS)
        for start in range(0, len(points), 20_000):
            x = numpy.array(points[start : start + 20_000])
            nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
            for group in range(GROUPS):
                sums[group] += x[nearest == group].sum(0)
            counts += numpy.bincount(nearest, minlength=GROUPS)
        centres = sums / counts[:, None]
    return centres


def measure(options: argparse.Namespace) -> Report:
    limit = options.limit or (96_000_000 if options.quick else 2_000_000_000)
    size = options.size or (400_000_000 if options.quick else 1_000_000_000_000)
    rows, misses = [], []
    for row, wrong in (function_of_index(options, size, limit), kmeans(options, options.kmeans_limit or limit // 4)):
        rows.append(row)
        misses += wrong
        share = row["peak_bytes"] / row["limit_bytes"]
        if share > options.floor:
            misses.append(f"{row['what']}: {row['peak']} of memory, the limit is {row['limit']}")
    most = max(row["peak_bytes"] / row["limit_bytes"] for row in rows)
    summary = f"at most {100 * most:.0f}% of the limit, on arrays of {' and '.join(row['size'] for row in rows)}"
    return Report("arrays larger than memory", COLUMNS, tuple(rows), summary, tuple(misses))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--limit", type=int, default=0, help="bytes for all workers (default 2 GB; --quick: 96 MB)")
    parser.add_argument("--size", type=int, default=0, help="bytes of the array (default 1 TB; --quick: 400 MB)")
    parser.add_argument("--kmeans-limit", type=int, default=0, help="bytes for k-means (default a quarter of --limit)")
    parser.add_argument("--iterations", type=int, default=2, help="of k-means (default 2)")


BENCHMARK = Benchmark(
    "arrays_memory", __doc__ or "", measure, 1.0, "the most memory of the workers, as a share of the limit", add_options
)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
