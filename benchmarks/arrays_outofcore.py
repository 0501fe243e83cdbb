"""Ten programs on data larger than memory, from npy, Zarr and HDF5 files, on girih and on Dask.

What: one file of 3 GB at a time (`--quick`: 96 MB), two workers that are threads of one process, 500 MB for each
(16 MB). girih is told the limit (`girih.cluster(memory=...)`). Dask has none on threads; it is given the same programs
with pieces of 128 MiB, its default, and of a sixteenth of the limit of a worker, which a careful user would choose.
How: each library has a process of its own for each program. The program runs on a file of 2 MB first, then on the whole
one. Memory is the most anonymous memory of the process (RssAnon of /proc/self/status, looked at every 5 ms) above what
it has after the first run: pages of mapped files are not counted. Seconds are those of the processor, of all threads.
Results are compared with each other's.
Floors: every program runs on girih and stays below the limit of both workers together (`--quick`: and 32 MB, which
allocators keep); against each of Dask's cuts it takes at most 0.7 of its memory or is `--floor` times as fast. A cut
that Dask cannot run, or that takes more than the limit allows, is no rival. Each row says which of these it is. cubed
is not measured: it is no dependency. `--programs 1-3` takes some of the programs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from benchmarks.arrays_memory import Watch
from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.limited import SilentError, answers

LEAN = 0.7
"""Of Dask's memory: at most so much, or faster."""
COLUMNS, GROUPS = 32, 4
WARM = 2_000_000
"""Bytes of the file of the first run."""
KEPT = {True: 32_000_000, False: 0}
"""Bytes above the limit that a process may have, quick or not: what its allocators keep for the next program."""
MOST = {True: 60.0, False: 600.0}
"""Seconds behind which a silent process is stopped, quick or not."""
ROOT = Path(__file__).resolve().parent.parent
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# ------------------------------------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """A function of a namespace and of the array of a file. layout: `matrix` of 32 columns, `vector`, or `image`.
    writes: is its result, as large as the data, written to a Zarr store?"""

    name: str
    file: str
    layout: str
    run: Callable[[Any, Any], Any]
    writes: bool = False


def moments(np: Any, x: Any) -> Any:
    return np.stack([x.mean(0), x.std(0)])


def chosen(np: Any, x: Any) -> Any:
    return x[x[:, 0] > 0.5].mean(0)


def running(np: Any, x: Any) -> Any:
    return np.cumsum(x - 0.5, axis=0).max()


def gram(np: Any, x: Any) -> Any:
    return x.T @ x


def standardised(np: Any, x: Any) -> Any:
    return (x - x.mean(0)) / x.std(0)


def smoothed(np: Any, x: Any) -> Any:
    change = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
    return abs(change).mean()


def clusters(np: Any, x: Any) -> Any:
    """Two steps of k-means."""
    centres = numpy.linspace(0.2, 0.8, GROUPS)[:, None] * numpy.ones(COLUMNS)
    for _ in range(2):
        nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        centres = np.stack([x[nearest == group].mean(0) for group in range(GROUPS)]).compute()
    return np.asarray(centres)


def logistic(np: Any, x: Any) -> Any:
    """Two steps of a logistic regression."""
    w = numpy.zeros(COLUMNS)
    for _ in range(2):
        error = 1 / (1 + np.exp(-(x @ w))) - (x[:, 0] > 0.5)
        w = w - (x.T @ error).compute() / x.shape[0]
    return np.asarray(w)


def bins(np: Any, x: Any) -> Any:
    return np.histogram(x, bins=50, range=(0.0, 1.0))[0]


def labels(np: Any, x: Any) -> Any:
    return np.bincount(x.argmax(1), minlength=COLUMNS)


PROGRAMS = (
    Program("mean and deviation", "npy", "matrix", moments),
    Program("rows by a mask", "npy", "matrix", chosen),
    Program("running sum", "npy", "vector", running),
    Program("histogram", "npy", "vector", bins),
    Program("Gram matrix", "zarr", "matrix", gram),
    Program("standardised, written", "zarr", "matrix", standardised, writes=True),
    Program("smoothing", "zarr", "image", smoothed),
    Program("k-means", "hdf5", "matrix", clusters),
    Program("logistic regression", "hdf5", "matrix", logistic),
    Program("largest of each row", "hdf5", "matrix", labels),
)

# ------------------------------------------------------------------------------------------- files


def shape_of(layout: str, size: int) -> tuple[int, ...]:
    elements = size // 8
    side = int(elements**0.5)
    return {"matrix": (elements // COLUMNS, COLUMNS), "vector": (elements,), "image": (side, side)}[layout]


def write(path: Path, file: str, shape: tuple[int, ...]) -> None:
    """Random numbers, some megabytes at a time; stores have pieces of as many."""
    random = numpy.random.default_rng(0)
    rows = max(1, 4_000_000 // (8 * int(numpy.prod(shape[1:]))))
    rows = min(rows, shape[0])
    pieces = (rows, *shape[1:])
    with created(path, file, shape, pieces) as goal:
        for start in range(0, shape[0], rows):
            stop = min(start + rows, shape[0])
            goal[start:stop] = random.random((stop - start, *shape[1:]))


@contextmanager
def created(path: Path, file: str, shape: tuple[int, ...], pieces: tuple[int, ...]) -> Iterator[Any]:
    if file == "npy":
        mapped = numpy.lib.format.open_memmap(path, "w+", numpy.float64, shape)
        yield mapped
        mapped.flush()
    elif file == "zarr":
        import zarr

        yield zarr.create_array(str(path), shape=shape, dtype=numpy.float64, chunks=pieces, compressors=None)
    else:
        import h5py

        with h5py.File(path, "w") as opened:
            yield opened.create_dataset("data", shape, numpy.float64, chunks=pieces)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------- in a process of its own


def tell(row: Row) -> None:
    """To the process that waits."""
    print(json.dumps(row), flush=True)


def measured(run: Callable[[Path], Any], warm: Path, path: Path) -> None:
    """Tells seconds, bytes and the result of a run behind a first one on a small file."""
    run(warm)
    gc.collect()
    tell({"begun": True})
    with Watch([os.getpid()], seconds=0.005) as watch:
        began, wall = time.process_time(), time.perf_counter()
        result = run(path)
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
    tell({"cpu": cpu, "wall": wall, "bytes": watch.above, "result": numpy.asarray(result).ravel().tolist()})


def head_of(store: Path) -> Any:
    """Some rows of what was written, which goes."""
    import zarr

    some = zarr.open_array(str(store), mode="r")[:5]
    remove(store)
    return some


def of_girih(program: Program, warm: Path, path: Path, limit: int) -> None:
    import girih
    import girih.array as np

    opened = {"npy": np.from_npy, "zarr": np.from_zarr, "hdf5": np.from_hdf5}[program.file]

    def run(source: Path) -> Any:
        result = program.run(np, opened(source))
        if not program.writes:
            return result.compute()
        np.to_zarr(result, source.with_suffix(".written"), chunks=None)
        return head_of(source.with_suffix(".written"))

    with girih.cluster(2, backend="threads", memory=limit):
        measured(run, warm, path)


class Mapped:
    """The array of an npy file, for Dask, which copies what is NumPy's own into its graph, mapped files too."""

    def __init__(self, path: Path) -> None:
        self.content = numpy.load(path, mmap_mode="r")
        self.shape, self.dtype, self.ndim = self.content.shape, self.content.dtype, self.content.ndim

    def __getitem__(self, key: Any) -> Any:
        return numpy.array(self.content[key])


def of_dask(program: Program, warm: Path, path: Path, pieces: int) -> None:
    import dask
    import dask.array as np

    def opened(source: Path) -> Any:
        if program.file == "npy":
            return np.from_array(Mapped(source), chunks="auto", name=False)  # not named by its content
        if program.file == "zarr":
            return np.from_zarr(str(source), chunks="auto")
        import h5py

        return np.from_array(h5py.File(source, "r")["data"], chunks="auto")

    def run(source: Path) -> Any:
        result = program.run(np, opened(source))
        if not program.writes:
            return result.compute()
        np.to_zarr(result, str(source.with_suffix(".written")))
        return head_of(source.with_suffix(".written"))

    with dask.config.set({"scheduler": "threads", "num_workers": 2, "array.chunk-size": pieces}):
        measured(run, warm, path)


def child(name: str, library: str, warm: str, path: str, size: int) -> None:
    """size: the limit of a worker for girih, bytes of a piece for Dask."""
    program = next(item for item in PROGRAMS if item.name == name)
    (of_girih if library == "girih" else of_dask)(program, Path(warm), Path(path), size)


# ------------------------------------------------------------------------------------------- all of them


def run_apart(program: Program, library: str, warm: Path, path: Path, size: int, most: float) -> Row:
    given = f"{program.name!r}, {library!r}, {os.fspath(warm)!r}, {os.fspath(path)!r}, {size}"
    guarded = f"if __name__ == '__main__':\n    from benchmarks.arrays_outofcore import child\n    child({given})\n"
    try:
        told = list(answers([sys.executable, "-c", guarded], most, cwd=ROOT, env={**os.environ, **SINGLE}))
        return told[-1]
    except (RuntimeError, SilentError) as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


def same(one: Row, other: Row) -> bool:
    return numpy.allclose(one["result"], other["result"], rtol=1e-6, atol=1e-9)


def compared(program: Program, folder: Path, options: argparse.Namespace) -> tuple[Row, list[str], list[str]]:
    """The row of a program, what it misses, and what is to be said of Dask."""
    path, warm = (folder / f"{kind}-{program.layout}.{program.file}" for kind in ("large", "warm"))
    for place, size in ((path, options.size), (warm, min(WARM, options.size))):
        if not place.exists():
            write(place, program.file, shape_of(program.layout, size))
    most = MOST[options.quick]
    mine = run_apart(program, "girih", warm, path, options.limit, most)
    row: Row = {"program": program.name, "file": program.file}
    misses, notes, verdicts = [], [], []
    if "failed" in mine:
        misses.append(f"{program.name}: {mine['failed']}")
        verdicts.append("failed")
    else:
        row |= {"seconds": round(mine["cpu"], 2), "wall": round(mine["wall"], 2), "memory": round(mine["bytes"] / 1e6)}
        if mine["bytes"] > 2 * options.limit + KEPT[options.quick]:
            misses.append(f"{program.name}: {row['memory']} MB of memory, the limit is {2 * options.limit / 1e6:.0f}")
            verdicts.append("above the limit")
    for cut, pieces in (("", 128 << 20), (" in small pieces", options.limit // 16)):
        theirs = run_apart(program, "dask", warm, path, pieces, most)
        if "failed" in theirs:
            notes.append(f"{program.name}, Dask{cut}: {theirs['failed']}")
            verdicts.append("Dask fails")
            continue
        row |= {f"dask{cut}": round(theirs["cpu"], 2), f"dask memory{cut}": round(theirs["bytes"] / 1e6)}
        if "failed" in mine:
            continue
        if not same(mine, theirs):
            misses.append(f"{program.name}: another result than Dask's")
        if theirs["bytes"] > 2 * options.limit + KEPT[options.quick]:
            notes.append(f"{program.name}, Dask{cut}: {theirs['bytes'] / 1e6:.0f} MB is more than the limit")
            verdicts.append("Dask above the limit")
            continue
        share, faster = mine["bytes"] / max(theirs["bytes"], 1), theirs["cpu"] / mine["cpu"]
        verdicts.append(f"{share:.2f} of the memory, {faster:.2f} × as fast")
        if share > LEAN and faster < options.floor:
            misses.append(f"{program.name}: {share:.2f} of the memory and {faster:.2f} × the speed of Dask{cut}")
    return row | {"verdict": "; ".join(verdicts)}, misses, notes


def measure(options: argparse.Namespace) -> Report:
    options.size = options.size or (96_000_000 if options.quick else 3_000_000_000)
    options.limit = options.limit or options.size // 6
    rows, misses, notes = [], [], []
    with tempfile.TemporaryDirectory(prefix="girih-outofcore-", dir=options.folder) as name:
        written = None
        for program in options.programs:
            kind = program.file, program.layout
            if kind != written:  # one large file at a time
                for path in Path(name).iterdir():
                    remove(path)
                written = kind
            row, missed, said = compared(program, Path(name), options)
            note(row)
            rows.append(row)
            misses += missed
            notes += said
    columns = (
        ("program", "program"), ("file", "file"), ("CPU s", "seconds"), ("wall s", "wall"), ("MB", "memory"),
        ("Dask, CPU s", "dask"), ("MB", "dask memory"), ("small pieces, CPU s", "dask in small pieces"),
        ("MB", "dask memory in small pieces"), ("against both", "verdict"),
    )  # fmt: skip
    title = f"{options.size / 1e6:.0f} MB in 2 × {options.limit / 1e6:.0f} MB"
    summary = f"{len(rows)} programs within the limit, leaner or faster than Dask"
    return Report(title, columns, tuple(rows), summary, tuple(misses), tuple(notes))


def chosen_programs(text: str) -> tuple[Program, ...]:
    """Programs by numbers from 1 on, and ranges of them.

    Raises:
        argparse.ArgumentTypeError: it is no such list.
    """
    known, numbers = range(1, len(PROGRAMS) + 1), set[int]()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [int(end) if end.isdecimal() else 0 for end in (first, last if dash else first)]
        if not set(ends) <= set(known) or ends[0] > ends[1]:
            raise argparse.ArgumentTypeError(f"{part!r}: expected numbers from 1 to {known[-1]}, or a range as 1-3")
        numbers |= set(range(ends[0], ends[1] + 1))
    return tuple(PROGRAMS[number - 1] for number in sorted(numbers))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--programs", type=chosen_programs, default=PROGRAMS, metavar="1-3,7",
        help=f"which of the {len(PROGRAMS)}, by their numbers in the table; one takes up to three minutes",
    )  # fmt: skip
    parser.add_argument("--size", type=int, default=0, help="bytes of the data (default 3 GB; --quick: 96 MB)")
    parser.add_argument("--limit", type=int, default=0, help="bytes for each worker (default a sixth of the data)")
    parser.add_argument("--folder", type=Path, help="where files are written (default: that of temporary files)")


BENCHMARK = Benchmark(
    "arrays_outofcore", __doc__ or "", measure, 2.0, "times as fast as Dask, where it is not leaner", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
