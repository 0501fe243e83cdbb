"""Bytes between two workers for the 12 array applications: what the plans say, and what the workers count.

Workers are two processes of this host, and two actors of Ray where it is installed (`--quick`: processes). Each
program runs once, is planned, and its plans' bytes are added up; each worker counts what it receives. They must be
equal. `data`: bytes of the arrays that the program begins with. `only`: at most so many bytes are its vectors or sums:
of k-means every group's sum and count, of logistic regression the gradient, of conjugate gradients one vector (which
all multiply their rows by) and two numbers, for both workers in each iteration, and what it begins with.
Floor: `--floor` bytes of difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.array_applications import Application, chosen, same
from benchmarks.arrays_numpy import evaluated
from benchmarks.common import Benchmark, Report, Row, note, timed

KMEANS = {"points": 1_000_000, "dimensions": 50, "groups": 128, "iterations": 5}
QUICK = ("logistic regression", "k-means", "CG", "QR")
QUICK_KMEANS = {"points": 20_000, "dimensions": 10, "groups": 16, "iterations": 5}


def applications(only: Sequence[str] | None, quick: bool) -> list[Application]:
    """k-means is as large as Dask was measured with (it moves 410 MB), the others as in `--quick`."""
    size = QUICK_KMEANS if quick else KMEANS
    data = {"count": size["points"], "dimensions": size["dimensions"], "groups": size["groups"]}
    options = {"groups": size["groups"], "iterations": size["iterations"]}
    kmeans = Application("k-means", "kmeans", data, data, options)
    return [kmeans if item.name == "k-means" else item for item in chosen(only, QUICK if quick else None)]


def most(application: Application, arrays: tuple[np.ndarray, ...], evaluations: int) -> int | None:
    """Bytes of the vectors or sums that a program may move, where that is claimed."""
    options = application.options
    if application.name == "k-means":
        return (
            int(options["iterations"] * 2 * options["groups"] * (arrays[0].shape[1] + 1) * 8) + arrays[0][:128].nbytes
        )
    if application.name == "logistic regression":
        return int(options["steps"] * 2 * arrays[0].shape[1] * 8)
    if application.name == "CG":
        return int(evaluations * 2 * (arrays[1].nbytes + 16)) + 2 * sum(x.nbytes for x in arrays)
    return None


def moved(application: Application, quick: bool, ray: bool) -> tuple[Row, list[str]]:
    import girih
    import girih.array

    arrays, run = application.arrays(quick), application.program()
    with girih.cluster(2, ray=ray, small=0) as cluster:
        plans: list[Any] = []
        evaluate = cluster.run.evaluate

        def counted(program: Any, what: Any) -> Any:
            plans.append(program)
            return evaluate(program, what)

        cluster.run.evaluate = counted
        given = [girih.array.asarray(x) for x in arrays]
        made, spent = timed(lambda: evaluated(cluster, run(girih.array, *given)))
        said = sum(int(program.bytes_received().sum()) for program in plans)
        found = sum(item.bytes_received for item in cluster.run.statistics())
        words = same(tuple(item.compute() for item in made), run(np, *arrays)) if quick else ""
    row: Row = {
        "program": application.name,
        "workers": "ray" if ray else "processes",
        "data": sum(x.nbytes for x in arrays),
        "evaluations": len(plans),
        "planned": said,
        "counted": found,
        "only": most(application, arrays, len(plans)),
        "seconds": round(spent.wall, 2),
    }
    return row, [f"{application.name}: {words}"] if words else []


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    installed = ("processes", "ray") if find_spec("ray") is not None else ("processes",)
    for kind in options.workers or (installed[:1] if options.quick else installed):
        for application in applications(options.only, options.quick):
            row, wrong = moved(application, options.quick or application.name != "k-means", kind == "ray")
            misses += wrong
            if abs(row["planned"] - row["counted"]) > options.floor:
                misses.append(f"{row['program']} on {kind}: {row['planned']} bytes planned, {row['counted']} counted")
            if row["only"] is not None and row["counted"] > row["only"]:
                misses.append(f"{row['program']} on {kind}: {row['counted']} bytes are more than {row['only']}")
            rows.append(row)
            note(row)
    columns = (
        ("program", "program"),
        ("workers", "workers"),
        ("data, bytes", "data"),
        ("evaluations", "evaluations"),
        ("planned, bytes", "planned"),
        ("counted", "counted"),
        ("vectors and sums", "only"),
        ("seconds", "seconds"),
    )
    return Report(
        "Bytes between two workers",
        columns,
        tuple(rows),
        f"{len(rows)} runs of {len({row['program'] for row in rows})} programs move what was planned, to the byte",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", nargs="+", choices=("processes", "ray"))
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="these only (--quick: four)")


BENCHMARK = Benchmark("arrays_bytes", __doc__ or "", measure, 0.0, "bytes that may differ", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
