"""Workers of Ray that are killed in the middle of the applications of examples/arrays: does everything go on?

python -m benchmarks.arrays_faults --check

The applications run on actors of Ray with checkpoints, again and again; a moment and a worker are drawn for each kill,
and the worker's process gets SIGKILL. Every result must be the same, to the last bit, as that of the same application
on the same actors when nobody dies, and near NumPy's; and from the kill until the interrupted application goes on it
must take less than the floor. A kill that came after the application's end is made again.

`--quick` and `--backend processes`: the same on processes of this host, which start sooner than Ray.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from typing import Any

import numpy as np

import girih
import girih.array as gnp
from benchmarks.array_applications import APPLICATIONS, Application, same
from benchmarks.common import Benchmark, Report, Row
from girih.run.tiles.recovery import RecoveringRun

KILLS, QUICK_KILLS = 20, 2
TRIES = 10  # for a kill that comes before the end
FLOOR_SECONDS = 10.0


class Case:
    """An application with its results by NumPy and by undisturbed workers, and the seconds that it takes those."""

    def __init__(self, application: Application, quick: bool) -> None:
        self.name = application.name
        self.arrays = application.arrays(quick)
        self.program = application.program()
        self.known = tuple(np.asarray(item) for item in self.program(np, *self.arrays))
        self.run()  # plans
        began = time.monotonic()
        self.undisturbed = self.run()
        self.seconds = time.monotonic() - began

    def run(self) -> tuple[np.ndarray, ...]:
        made = self.program(gnp, *(gnp.array(array) for array in self.arrays))
        return tuple(item.compute() if isinstance(item, gnp.Array) else np.asarray(item) for item in made)

    def differs(self, made: tuple[np.ndarray, ...]) -> str:
        if text := same(made, self.known):
            return text
        equal = all(np.array_equal(one, other) for one, other in zip(made, self.undisturbed, strict=True))
        return "" if equal else "other bits than without a kill"


class Killer:
    """Sends SIGKILL to a worker after some seconds. at: when it did (time.monotonic)."""

    def __init__(self, run: RecoveringRun, rank: int, seconds: float) -> None:
        self.run = run
        self.rank = rank
        self.at = 0.0
        self.timer = threading.Timer(seconds, self._kill)
        self.timer.start()

    def _kill(self) -> None:
        self.at = time.monotonic()
        os.kill(self.run.crew.pids[self.rank], signal.SIGKILL)


def killed(case: Case, run: RecoveringRun, chance: random.Random) -> Row:
    """One kill in the middle of a case."""
    span = case.seconds
    for _ in range(TRIES):
        losses = len(run.losses)
        rank, moment = chance.randrange(run.mesh.devices), chance.uniform(0.0, span)
        killer = Killer(run, rank, moment)
        began = time.monotonic()
        made = case.run()
        took = time.monotonic() - began
        killer.timer.join()
        inside = len(run.losses) > losses
        run.statistics()  # if it came after the end, the next command notices it
        if not inside:
            span = min(span, took) * 0.8  # what was planned before takes less time
            continue
        loss = run.losses[losses]
        return {
            "application": case.name,
            "worker": rank,
            "killed_after": round(killer.at - began, 2),
            "noticed": round(loss.began - killer.at, 2),
            "going_on": round(loss.began + loss.seconds - killer.at, 2),
            "undisturbed": round(case.seconds, 2),
            "took": round(took, 2),
            "differs": case.differs(made),
        }
    raise RuntimeError(f"{case.name}: {TRIES} kills came after its end")


def measure(options: argparse.Namespace) -> Report:
    chance = random.Random(options.seed)
    kills = QUICK_KILLS if options.quick else options.kills
    chosen = APPLICATIONS[:kills] if options.quick else APPLICATIONS
    rows: list[Row] = []
    backend = "processes" if options.quick else options.backend
    with (
        tempfile.TemporaryDirectory(prefix="girih-faults-") as place,
        girih.cluster(
            2, backend="processes", ray=backend == "ray", timeout=120.0, checkpoint=place, every=options.every, small=0
        ) as cluster,
    ):
        run: Any = cluster.run
        for number in range(kills):
            case = Case(chosen[number % len(chosen)], options.quick or options.small)
            rows.append(killed(case, run, chance))
        written = run.checkpoints
    misses = [f"{row['application']}: {row['differs']}" for row in rows if row["differs"]]
    slow = [row for row in rows if row["going_on"] >= options.floor]
    misses += [f"{row['application']} went on after {row['going_on']:.1f} s" for row in slow]
    longest = max(row["going_on"] for row in rows)
    return Report(
        f"{len(rows)} kills, {written} checkpoints (every {options.every:g} s), 2 workers ({backend})",
        (
            ("application", "application"),
            ("worker", "worker"),
            ("killed after", "killed_after"),
            ("noticed after", "noticed"),
            ("going on after", "going_on"),
            ("seconds undisturbed", "undisturbed"),
            ("seconds with the kill", "took"),
        ),
        tuple(rows),
        f"{len(rows)} kills: same results, to the last bit; going on after at most {longest:.1f} s",
        tuple(misses),
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how many (default {KILLS}; --quick: {QUICK_KILLS})")
    parser.add_argument("--backend", choices=("ray", "processes"), default="ray")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between checkpoints (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and workers")
    parser.add_argument("--small", action="store_true", help="all kills, but the data of --quick")


BENCHMARK = Benchmark(
    "arrays_faults",
    __doc__ or "",
    measure,
    FLOOR_SECONDS,
    "seconds from a kill to going on, at most",
    arguments,
)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
