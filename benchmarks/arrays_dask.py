"""The 12 array applications on girih, on dask.array and on dask-array (its rewrite with a query optimiser).

The same functions on the same data (`benchmarks/dask_programs.py` says what Dask has to be told), on two threads of
one process and on two processes of one thread each (Dask: `threads` and a LocalCluster of `distributed`), BLAS on one
thread. Dask's data is cut as `auto` cuts it, and along the rows into 2, 4, 8 and 16 pieces; the fastest counts.
Results stay where they are made, in girih's tiles or Dask's chunks; they are compared with NumPy's. Each library has a
process of its own for each program: seconds are medians on the wall after one warm call; memory is the most that all
its processes have in memory during a call, less what they had before the data came.
A cut is no candidate with which the first call takes four times as long as another's, or that and the next half as long
again; calls are not repeated for more than half a minute. A call that takes longer than a minute is stopped with all
processes of the library: its cut counts as a minute, the row shows `> 60`, and the ratio is then at least what it says.
Floors: girih `--floor` times as fast as the faster Dask in geometric mean; nowhere slower; nowhere more memory.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.array_applications import APPLICATIONS, Application, chosen, same
from benchmarks.common import Benchmark, Report, Row, note, repeats_option
from benchmarks.limited import SilentError, answers

LIBRARIES = ("dask", "dask_array")
KINDS = ("threads", "processes")
QUICK = ("QR",)
SLOWER, AT_FIRST = 1.5, 4.0
LONG = 30.0
"""Seconds behind which a call is not repeated."""
MOST = 60.0
"""Seconds behind which a call is stopped."""
FAILURES = (NotImplementedError, ValueError, TypeError, AttributeError, IndexError, AssertionError, RecursionError)
"""What Dask refuses a program with, or breaks down with."""
ROOT = Path(__file__).resolve().parent.parent

# ------------------------------------------------------------------------------------------- in a process of its own


def processes() -> list[int]:
    """This process and all that it has started."""
    import psutil

    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def memory(name: str) -> int:
    """Bytes of VmRSS (now in memory) or VmHWM (the most that was) of all processes."""
    found = 0
    for pid in processes():
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        found += next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
    return found


def tell(row: Row) -> None:
    """To the process that waits."""
    print(json.dumps(row), flush=True)


def measured(work: Callable[[], Any], repeats: int, base: int, best: float = math.inf) -> Row | None:
    """Median seconds, and the most bytes over `base` in a call. best: seconds of another way to do the work; None if
    the warm call and the first behind it both take half as long again or more: it is not the fastest way."""
    taken = []
    for _ in range(repeats + 1):
        gc.collect()
        tell({"begun": len(taken)})
        began = time.perf_counter()
        made = work()
        taken.append(time.perf_counter() - began)
        del made
        if len(taken) == 2 and min(taken) > SLOWER * best:
            return None
        if len(taken) > 1 and sum(taken) > LONG:
            break
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for pid in processes():
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
    tell({"begun": len(taken)})
    work()
    return {"seconds": median(taken[1:]), "bytes": memory("VmHWM") - base}


@contextmanager
def two_workers(kind: str) -> Iterator[Callable[..., Any]]:
    """Dask's way of running; yields what evaluates collections and leaves them where they are."""
    import dask

    if kind == "threads":
        with dask.config.set(scheduler="threads", num_workers=2):
            yield dask.persist
        return
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=None
        ) as cluster,
        Client(cluster),
    ):

        def persist(*arrays: Any) -> Any:
            made = dask.persist(*arrays)
            wait(made)
            return made

        yield persist


def of_dask(
    library: str, kind: str, application: Application, quick: bool, repeats: int, cuts: Sequence[int | str], best: float
) -> None:
    """Tells a row for each cut. best: seconds with another."""
    import importlib

    from benchmarks import dask_programs

    module = importlib.import_module("dask.array" if library == "dask" else "dask_array")
    with two_workers(kind) as persist:
        base = memory("VmRSS")
        arrays = application.arrays(quick)
        known = application.program()(np, *arrays)

        def one(pieces: int | str) -> Row:
            try:
                given = list(persist(*dask_programs.cut(module, application, arrays, pieces)))
                tell({"begun": 0})
                began = time.perf_counter()
                made = persist(*dask_programs.run(module, application, given))
                if time.perf_counter() - began > AT_FIRST * best + 1:  # a second, for what is loaded at first
                    return {"cut": pieces, "slower": True}
                wrong = same(tuple(item.compute() for item in made), known)
                del made
                work = measured(lambda: persist(*dask_programs.run(module, application, given)), repeats, base, best)
            except FAILURES as error:
                words = str(error).splitlines()
                return {"cut": pieces, "failed": f"{type(error).__name__}: {words[0][:120] if words else ''}"}
            return {"cut": pieces, "slower": True} if work is None else {"cut": pieces, "wrong": wrong, **work}

        for pieces in cuts:
            row = one(pieces)
            if right(row):
                best = min(best, row["seconds"])
            tell(row)


def right(row: Row) -> bool:
    """Was it measured, with the results of NumPy?"""
    return "seconds" in row and not row["wrong"]


def of_girih(kind: str, application: Application, quick: bool, repeats: int) -> None:
    import girih
    import girih.array
    from benchmarks.arrays_numpy import evaluated, one_thread

    run = application.program()
    with girih.cluster(2, backend=kind, small=0) as cluster:
        cluster.run.crew.command("measure", [{"task": one_thread}] * 2)
        base = memory("VmRSS")
        arrays = application.arrays(quick)
        known = run(np, *arrays)
        given = [girih.array.asarray(x) for x in arrays]
        del arrays
        made = evaluated(cluster, run(girih.array, *given))
        row: Row = {"cut": None, "wrong": same(tuple(item.compute() for item in made), known)}
        del made, known
        row.update(measured(lambda: evaluated(cluster, run(girih.array, *given)), repeats, base) or {})
        tell(row)


def child(library: str, kind: str, name: str, quick: bool, repeats: int, cuts: Sequence[Any], best: float) -> None:
    application = next(item for item in APPLICATIONS if item.name == name)
    if library == "girih":
        of_girih(kind, application, quick, repeats)
    else:
        of_dask(library, kind, application, quick, repeats, cuts, best)


# ------------------------------------------------------------------------------------------- all of them


def found_by(library: str, kind: str, application: Application, quick: bool, repeats: int) -> list[Row]:
    """A row for each cut; one for girih. Behind a call that was stopped the other cuts go on in new processes."""
    from benchmarks.dask_programs import CUTS

    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    rows: list[Row] = []
    left: list[Any] = list(CUTS) if library in LIBRARIES else [None]
    while left:
        best = min((row["seconds"] for row in rows if right(row)), default=math.inf)
        given = f"{library!r}, {kind!r}, {application.name!r}, {quick}, {repeats}, {left!r}, float('{best}')"
        guarded = f"if __name__ == '__main__':\n    from benchmarks.arrays_dask import child\n    child({given})\n"
        begun = False
        try:
            for row in answers([sys.executable, "-c", guarded], MOST, cwd=ROOT, env={**os.environ, **single}):
                begun = "begun" in row
                if not begun:
                    rows.append(row)
                    left.remove(row["cut"])
        except SilentError as error:
            if not begun or library not in LIBRARIES:
                raise RuntimeError(f"{library} on {kind}, {application.name}: {error}") from None
            rows.append({"cut": left.pop(0), "over": MOST})
        except RuntimeError as error:
            raise RuntimeError(f"{library} on {kind}, {application.name}: {error}") from None
    return rows


def compared(application: Application, quick: bool, repeats: int) -> tuple[list[Row], list[str], list[str]]:
    """A row for threads and, unless it has to be quick, one for processes; what is wrong; what Dask cannot do."""
    rows, wrong, notes = [], [], []
    for kind in KINDS[:1] if quick else KINDS:
        (mine,) = found_by("girih", kind, application, quick, repeats)
        row: Row = {"program": application.name, "workers": kind, "girih": mine["seconds"], "memory": mine["bytes"]}
        if mine["wrong"]:
            wrong.append(f"{application.name}: {mine['wrong']}")
        best: list[Row] = []
        for library in LIBRARIES:
            tried = [item for item in found_by(library, kind, application, quick, repeats) if "slower" not in item]
            done = [item for item in tried if right(item)]
            for item in tried:
                if item not in done:
                    why = f"stopped after {MOST:g} s" if "over" in item else item.get("failed") or item["wrong"]
                    notes.append(f"{application.name}, {library} on {kind}, cut {item['cut']}: {why}")
            if done:
                fastest = min(done, key=lambda item: item["seconds"])
                best.append(fastest)
                auto = next((item["seconds"] for item in done if item["cut"] == "auto"), None)
                row.update({library: fastest["seconds"], f"{library} auto": auto, f"{library} cut": fastest["cut"]})
            elif any("over" in item for item in tried):
                best.append({"seconds": MOST})  # at least
                row[library] = f"> {MOST:g}"
        if best:
            row["ratio"] = min(item["seconds"] for item in best) / mine["seconds"]
        if sizes := [item["bytes"] for item in best if "bytes" in item]:
            row["memory ratio"] = mine["bytes"] / min(sizes)
        rows.append(row)
    return rows, wrong, notes


def measure(options: argparse.Namespace) -> Report:
    repeats = 1 if options.quick else options.repeats
    rows: list[Row] = []
    misses: list[str] = []
    notes: list[str] = []
    for application in chosen(options.only, QUICK if options.quick else None):
        found, wrong, said = compared(application, options.quick, repeats)
        misses += wrong
        notes += said
        for row in found:
            rows.append(row)
            note(row)
            if row.get("ratio", 1) < 1:
                misses.append(f"{row['program']} on {row['workers']}: {row['ratio']:.2f} × Dask")
            if row.get("memory ratio", 0) > 1:
                misses.append(f"{row['program']} on {row['workers']}: {row['memory ratio']:.2f} of Dask's memory")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    words = f"{mean:.2f} times as fast as the faster Dask in geometric mean"
    if mean < options.floor:
        misses.insert(0, f"{words}, floor {options.floor:g}")
    columns = (
        ("program", "program"),
        ("workers", "workers"),
        ("girih, s", "girih"),
        ("dask.array, s", "dask"),
        ("cut", "dask cut"),
        ("auto", "dask auto"),
        ("dask-array, s", "dask_array"),
        ("cut", "dask_array cut"),
        ("auto", "dask_array auto"),
        ("times as fast", "ratio"),
        ("memory, bytes", "memory"),
        ("of Dask's", "memory ratio"),
    )
    title = "Array applications on girih and on Dask, two workers"
    return Report(title, columns, tuple(rows), f"{len(rows)} runs: {words}", tuple(misses), (words, *notes))


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="these only (--quick: QR on threads)")


BENCHMARK = Benchmark(
    "arrays_dask", __doc__ or "", measure, 2.0, "times as fast as the faster Dask, geometric mean", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
