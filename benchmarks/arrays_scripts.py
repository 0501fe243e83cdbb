"""Thirty-six scripts as scientists write them (`benchmarks.array_scripts`): the import changed and nothing else.

Each in a process of its own, with one thread of BLAS: CPU seconds of the first run, the import of PyTorch included
where large work needs it, and of later ones, medians of runs that alternate with NumPy's. One worker, and two with
`--workers 2`. Results are compared. Floors: later runs at most 1.15 times NumPy's (`--floor`), 1.3 times as fast in
geometric mean over the scripts that take over 50 ms; a first run at most NumPy's and half a second.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from statistics import geometric_mean, median
from typing import Any

from benchmarks.array_scripts import SCRIPTS, Script
from benchmarks.common import Benchmark, Report, Row, repeats_option

LONG, FASTER, FIRST = 0.05, 1.3, 0.5
BLAS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--workers", type=int, default=1, help="of girih, as threads (default 1)")
    parser.add_argument("--select", default="", metavar="WORD", help="only scripts whose names have it")
    parser.add_argument("--one", help=argparse.SUPPRESS)


def timed(script: Script, space: Any, size: int) -> tuple[float, float]:
    began = time.process_time()
    result = script.run(space, size)
    return time.process_time() - began, result


def one(script: Script, size: int, workers: int, repeats: int) -> Row:
    """In this process, in which nothing ran before."""
    import numpy

    import girih.array
    from girih.array.core import evaluation

    evaluation.set_default(lambda: girih.array.Cluster(workers))
    known, expected = timed(script, numpy, size)
    first, found = timed(script, girih.array, size)
    turns = [(timed(script, numpy, size)[0], timed(script, girih.array, size)[0]) for _ in range(repeats)]
    numpys, later = median(one for one, _ in turns), median(other for _, other in turns)
    same = math.isclose(expected, found, rel_tol=1e-7, abs_tol=1e-12)
    return {"script": script.name, "numpy_first": known, "numpy": numpys, "first": first, "later": later, "same": same}


def apart(script: Script, given: argparse.Namespace) -> Row:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.arrays_scripts", "--one", script.name]
    command += ["--repeats", str(given.repeats), "--workers", str(given.workers), *(["--quick"] if given.quick else [])]
    done = subprocess.run(command, env={**os.environ, **BLAS}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script.name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measure(given: argparse.Namespace) -> Report:
    chosen = [script for script in SCRIPTS if given.select in script.name]
    if given.quick:
        rows = [one(script, script.quick, given.workers, 1) for script in chosen]
    else:
        rows = [apart(script, given) for script in chosen]
    misses = []
    for row in rows:
        row["ratio"] = round(row["later"] / max(row["numpy"], 1e-9), 2)
        row["more"] = round(row["first"] - row["numpy_first"], 3)
        row["milliseconds"] = round(row["numpy"] * 1e3, 2)
        if not row["same"]:
            misses.append(f"{row['script']}: another result than NumPy's")
        if row["ratio"] > given.floor:
            misses.append(f"{row['script']}: {row['ratio']:.2f} times NumPy's")
        if row["more"] > FIRST:
            misses.append(f"{row['script']}: its first run takes {row['more']:.2f} s more than NumPy's")
    long = [row["numpy"] / row["later"] for row in rows if row["numpy"] > LONG]
    mean = geometric_mean(long) if long else math.nan
    if mean < FASTER:
        misses.append(f"{mean:.2f} times as fast in geometric mean over {len(long)} scripts of over 50 ms")
    worst = max(rows, key=lambda row: row["ratio"])
    summary = f"at most {worst['ratio']:.2f} times NumPy's ({worst['script']}); over 50 ms {mean:.2f} times as fast"
    columns = (("script", "script"), ("NumPy, ms", "milliseconds"), ("later ×", "ratio"), ("first, s more", "more"))
    return Report(f"{len(rows)} scripts on {given.workers} worker", columns, tuple(rows), summary, tuple(misses))


def main() -> int:
    if "--one" in sys.argv:
        given = BENCHMARK._parser().parse_args()
        script = next(script for script in SCRIPTS if script.name == given.one)
        print(json.dumps(one(script, script.quick if given.quick else script.size, given.workers, given.repeats)))
        return 0
    return BENCHMARK.main()


BENCHMARK = Benchmark("arrays_scripts", __doc__ or "", measure, 1.15, "times NumPy's, of a later run", options, 10.0)

if __name__ == "__main__":
    sys.exit(main())
