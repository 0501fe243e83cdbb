"""Workers and servers of tables are killed at random moments: does the run end with the same result, nothing lost?

What: two workers and two servers, dense and sparse tables and a worker's own state, a snapshot after every second
clock. Once undisturbed; then 20 times with one worker or server killed (SIGKILL) at a moment drawn from the whole run,
started again from the last whole snapshot by itself. With staleness 0 and floats all tables and results must have the
undisturbed run's bits; with staleness 2, where the order of sums is not fixed, whole numbers are added and must have
its sums. How: processes of this host. Against: the undisturbed run. Floor: no difference in any run (`--floor`
differences).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

TICKS, ROWS, WIDTH = 24, 300, 8


@dataclass(frozen=True)
class Outcome:
    results: list[float]
    dense: np.ndarray
    sparse: np.ndarray
    seconds: float
    restarts: int
    first_clock: int


def work(t: Any, rank: int, whole: bool) -> float:
    """Reads, adds what depends on what was read, and keeps a sum of its own."""
    own = 0.0 if t.state is None else float(t.state["own"])
    dense, sparse = t["dense"], t["sparse"]
    for tick in range(t.ticks, TICKS):
        generator = np.random.default_rng((rank, tick))
        for _ in range(3):
            rows = np.unique(generator.integers(0, ROWS, 40))
            values = dense.get_rows(rows)
            change = generator.integers(-5, 6, values.shape).astype(np.float64)
            dense.inc_rows(rows, change if whole else 0.01 * change - 0.05 * values)
            columns = generator.integers(0, 1000, len(rows))
            sparse.inc_entries(rows, columns, np.ones(len(rows)))
            own += float(change.sum()) if whole else float(values.sum())
            time.sleep(0.002)
        t.clock(state={"own": own})
    return own


def run_once(staleness: int, kill: tuple[float, int] | None) -> Outcome:
    """kill: seconds after the start of the run, and which process: 0 and 1 are workers, 2 and 3 servers."""
    import girih.loop as gl
    from girih.run.tables.session import Restarted

    with (
        tempfile.TemporaryDirectory() as folder,
        gl.tables(workers=2, servers=2, staleness=staleness, snapshots=folder, every=2, restarts=3, timeout=60) as t,
    ):
        whole = staleness > 0
        dense = t.dense("dense", ROWS, WIDTH, "float64", initial=np.ones((ROWS, WIDTH)))
        sparse = t.sparse("sparse", ROWS, 1000, "int32")
        dense.read([0])  # the servers are there
        began = time.perf_counter()
        timer = None
        if kill is not None:
            seconds, which = kill

            def strike() -> None:
                pid = (*t.pids, *t.server_pids)[which]
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    return

            timer = threading.Timer(seconds, strike)
            timer.start()
        results = t.run(work, whole)
        seconds = time.perf_counter() - began
        if timer is not None:
            timer.cancel()
            timer.join()
        back = [event for event in t.events if isinstance(event, Restarted)]
        return Outcome(results, dense.read(), sparse.read().toarray(), seconds, len(back), back[0].clock if back else 0)


def differences(one: Outcome, other: Outcome) -> list[str]:
    found = []
    if one.results != other.results:
        found.append("results of workers")
    if not np.array_equal(one.dense, other.dense):
        found.append("dense table")
    if not np.array_equal(one.sparse, other.sparse):
        found.append("sparse table")
    return found


def measure(options: argparse.Namespace) -> Report:
    kills = 2 if options.quick else options.kills
    generator = np.random.default_rng(11)
    rows: list[Row] = []
    misses = []
    hit = 0
    for staleness in (0, 2):
        run_once(staleness, None)  # loads and compiles what all runs need
        calm = run_once(staleness, None)
        rows.append({"run": f"staleness {staleness}, undisturbed", "seconds": calm.seconds, "restarts": calm.restarts})
        for number in range(kills // 2):
            kill = float(generator.uniform(0.15, 0.95) * calm.seconds), number % 4
            outcome = run_once(staleness, kill)
            hit += outcome.restarts
            wrong = differences(calm, outcome)
            who = ("worker 0", "worker 1", "server 0", "server 1")[kill[1]]
            row: Row = {
                "run": f"staleness {staleness}, {who} killed after {kill[0]:.2f} s",
                "seconds": outcome.seconds,
                "restarts": outcome.restarts,
                "clock": outcome.first_clock,
                "differs": ", ".join(wrong) or "nothing",
            }
            rows.append(row)
            note(row)
            if wrong:
                misses.append(f"{row['run']}: other {', '.join(wrong)}")
    if hit == 0:
        misses.append("no kill came before the end of its run")
    return Report(
        "kills of workers and servers",
        (
            ("run", "run"),
            ("seconds", "seconds"),
            ("restarts", "restarts"),
            ("from clock", "clock"),
            ("differs in", "differs"),
        ),
        tuple(rows),
        f"{kills} kills, {hit} restarts, the same results",
        tuple(misses) if len(misses) > options.floor else (),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20, help="how many (default 20)")


BENCHMARK = Benchmark("loops_faults", __doc__ or "", measure, 0.0, "so many runs may differ", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
