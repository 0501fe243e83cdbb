"""Programs are killed at random moments (SIGKILL), and go on: is their result the same, with nothing lost?

What: 20 kills or some more, a sixth of them of each of the following.
- tables, staleness 0: two workers and two servers, dense and sparse tables of floats and a worker's own state, a
  snapshot after every second clock; a worker or a server is killed, and all start again by themselves. The same bits.
- tables, staleness 2: the same with whole numbers, since the order of sums is not fixed. The same sums.
- matrix factorisation: the loop of `MatrixFactorisation` (AdaGrad) on two workers, `gl.save` after every epoch.
- sparse logistic regression: the loop of `SparseLogisticRegression` (AdaGrad, through buffers), likewise.
- LDA: the estimator, with `checkpoint=…` after every second sweep and `resume=True`.
- gradient-boosted trees: the estimator, on two threads, each tree from a part of the rows; a checkpoint after every
  second tree.
With `--quick` two kills: of tables with staleness 0 and of matrix factorisation.
The applications are programs that are started again after the kill, and go on from what they last saved. Their results
must have the bits of an undisturbed run. Moments are drawn from the whole run: seconds for tables, and for applications
an epoch (a sweep, a tree) and a part of it. Against: the undisturbed run. Floor: no difference in any run (`--floor`
differences).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

ROOT = Path(__file__).resolve().parent.parent
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
    from girih.loop.shared_tables.session import Restarted

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


# ------------------------------------------------------------------------------------------------- applications

EPOCHS = 12
PAUSE = 0.03
"""Seconds between two epochs: a run is long enough to be killed in its midst."""


def factorise(folder: Path, told: Callable[[int], None]) -> dict[str, np.ndarray]:
    import girih.loop as gl
    from girih.loop.apps.linear import bodies

    generator = np.random.default_rng(0)
    users, items, rank = 300, 200, 8
    keys = generator.integers(0, users, 6000), generator.integers(0, items, 6000)
    space = gl.sparse(keys, generator.standard_normal(6000).astype(np.float32), shape=(users, items))
    shared = {
        name: gl.array(values.astype(np.float32))
        for name, values in (
            ("W", generator.normal(0, 0.3, (users, rank))),
            ("H", generator.normal(0, 0.3, (items, rank))),
            ("SW", np.zeros((users, rank))),
            ("SH", np.zeros((items, rank))),
        )
    }
    loop = gl.parallel_for(space, ordered=False, workers=2)(bodies.rating_adagrad)
    return _epochs(folder, told, loop, shared, {"rank": rank, "step": 0.1, "l2": 0.02})


def regress(folder: Path, told: Callable[[int], None]) -> dict[str, np.ndarray]:
    import girih.loop as gl
    from girih.loop.apps.linear import bodies
    from girih.loop.code.entries import Ragged

    generator = np.random.default_rng(1)
    count, features, each = 2000, 500, 10
    bounds = np.arange(0, each * count + 1, each)
    ids = Ragged(generator.integers(0, features, each * count), bounds)
    values = Ragged(generator.standard_normal(each * count), bounds)
    labels = generator.integers(0, 2, count).astype(np.float64)
    samples = gl.sparse((np.arange(count),), (labels, np.ones(count), ids, values))
    shared = {"weights": gl.array(np.zeros(features)), "squares": gl.array(np.full(features, 0.1))}
    buffers = {name: gl.buffer(shared[of], delay=50) for name, of in (("buffered", "weights"), ("squared", "squares"))}
    loop = gl.parallel_for(samples, workers=2)(bodies.binary_adagrad)
    return _epochs(folder, told, loop, shared, {**buffers, "pull": np.full(features, 1e-3), "step": 0.1})


def _epochs(
    folder: Path, told: Callable[[int], None], loop: Any, shared: dict[str, Any], others: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Run a loop for all epochs, from what was saved last, and save after each."""
    import girih.loop as gl

    place, done = folder / "saved.girih", gl.array(np.zeros(1, np.int64))
    if place.exists():
        gl.restore(place, loop=loop, done=done, **shared)
    told(int(done[0]))
    for epoch in range(int(done[0]), EPOCHS):
        loop(**shared, **others)
        done[0] = epoch + 1
        gl.save(place, loop=loop, done=done, **shared)
        told(epoch + 1)
        time.sleep(PAUSE)
    return {name: array.numpy() for name, array in shared.items()}


def topics(folder: Path, told: Callable[[int], None]) -> dict[str, np.ndarray]:
    import scipy.sparse

    from girih.loop.apps.lda import LDA
    from girih.loop.checkpoint import read

    counts = scipy.sparse.csr_array(np.random.default_rng(2).poisson(0.2, (150, 200)))
    place = folder / "saved.girih"
    told(int(read(place)[1]["lda"]["sweeps"]) if place.exists() else 0)

    def after(sweep: Any) -> None:
        told(sweep.number)
        time.sleep(PAUSE)

    model = LDA(
        5, sampler="light", workers=2, max_iter=EPOCHS, checkpoint=place, checkpoint_every=2, resume=True,
        evaluate_every=3, observer=after,
    ).fit(counts)  # fmt: skip
    return {"topics": model.word_topic_.toarray(), "likelihoods": np.array(model.likelihoods_)}


def boost(folder: Path, told: Callable[[int], None]) -> dict[str, np.ndarray]:
    from girih.loop.apps.trees import GradientBoostedTrees
    from girih.loop.checkpoint import read

    generator = np.random.default_rng(3)
    x = generator.standard_normal((2000, 6))
    y = x[:, 0] * x[:, 1] + x[:, 2] + generator.logistic(0, 0.5, 2000) > 0
    x[generator.random(x.shape) < 0.1] = np.nan
    place = folder / "saved.girih"
    told(len(read(place)[0]["starts"]) if place.exists() else 0)

    def after(trees: int) -> None:
        told(trees)
        time.sleep(PAUSE)

    model = GradientBoostedTrees(
        EPOCHS, max_depth=4, subsample=0.7, random_state=0, n_jobs=2, checkpoint=place, checkpoint_every=2, resume=True,
        observer=after,
    ).fit(x, y)  # fmt: skip
    nodes = model.forest_
    return {"features": nodes.features, "thresholds": nodes.thresholds, "values": nodes.values,
            "said": model.decision_function(x)}  # fmt: skip


QUICK = ("matrix factorisation",)
APPLICATIONS: dict[str, Callable[[Path, Callable[[int], None]], dict[str, np.ndarray]]] = {
    "matrix factorisation": factorise,
    "logistic regression": regress,
    "LDA": topics,
    "boosted trees": boost,
}


def application(name: str, place: str) -> None:
    """What a process of an application runs: it leaves a file for each epoch that it is at, and its result."""
    folder = Path(place)
    results = APPLICATIONS[name](folder, lambda epoch: (folder / f"epoch-{epoch}").touch())
    np.savez(folder / "part.npz", **results)  # type: ignore[arg-type]
    (folder / "part.npz").rename(folder / "result.npz")


@dataclass(frozen=True)
class Ran:
    results: dict[str, np.ndarray]
    seconds: float
    killed: bool
    first_epoch: int


def run_application(name: str, kill: tuple[int, float] | None) -> Ran:
    """kill: it is killed so many seconds after it has done so many epochs, and started again; None: it is not."""
    code = "import sys; from benchmarks.loops_faults import application; application(*sys.argv[1:])"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)

        def epochs() -> list[int]:
            return sorted(int(path.name.removeprefix("epoch-")) for path in folder.glob("epoch-*"))

        def started() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", code, name, place], cwd=ROOT)

        began = time.perf_counter()
        process = started()
        killed = False
        if kill is not None:
            while process.poll() is None and max(epochs(), default=-1) < kill[0]:
                time.sleep(0.001)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=kill[1])
            killed = process.poll() is None
            process.kill()
            process.wait()
            if killed:
                for path in folder.glob("epoch-*"):
                    path.unlink()
                process = started()
        if process.wait() != 0:
            raise RuntimeError(f"{name} ended with exit code {process.returncode}; its words are above")
        with np.load(folder / "result.npz") as file:
            results = {key: file[key] for key in file.files}
        return Ran(results, time.perf_counter() - began, killed, epochs()[0])


def kill_applications(
    names: Iterable[str], each: int, generator: np.random.Generator
) -> tuple[list[Row], list[str], int]:
    """(rows, what was wrong, how many were killed before their end)."""
    rows: list[Row] = []
    misses = []
    hit = 0
    for name in names:
        calm = run_application(name, None)
        rows.append({"run": f"{name}, undisturbed", "seconds": calm.seconds, "restarts": 0})
        for _ in range(each):
            kill = int(generator.integers(0, EPOCHS)), float(generator.uniform(0, PAUSE))
            ran = run_application(name, kill)
            hit += ran.killed
            wrong = [key for key, values in calm.results.items() if not np.array_equal(values, ran.results[key])]
            row: Row = {
                "run": f"{name} killed {1000 * kill[1]:.0f} ms after epoch {kill[0]}",
                "seconds": ran.seconds,
                "restarts": int(ran.killed),
                "clock": ran.first_epoch,
                "differs": ", ".join(wrong) or "nothing",
            }
            rows.append(row)
            note(row)
            if wrong:
                misses.append(f"{row['run']}: other {', '.join(wrong)}")
    return rows, misses, hit


# ------------------------------------------------------------------------------------------------- the benchmark


def measure(options: argparse.Namespace) -> Report:
    names = QUICK if options.quick else tuple(APPLICATIONS)
    ways = (0,) if options.quick else (0, 2)
    kinds = len(ways) + len(names)
    each = 1 if options.quick else -(-options.kills // kinds)
    generator = np.random.default_rng(11)
    rows: list[Row] = []
    misses = []
    hit = 0
    for staleness in ways:
        if not options.quick:
            run_once(staleness, None)  # loads and compiles what all runs need
        calm = run_once(staleness, None)
        rows.append({"run": f"staleness {staleness}, undisturbed", "seconds": calm.seconds, "restarts": calm.restarts})
        for number in range(each):
            kill = float(generator.uniform(0.15, 0.95) * calm.seconds), (number + staleness) % 4
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
    more, wrong, struck = kill_applications(names, each, generator)
    rows += more
    misses += wrong
    hit += struck
    if hit == 0:
        misses.append("no kill came before the end of its run")
    return Report(
        "kills of workers, servers and applications",
        (
            ("run", "run"),
            ("seconds", "seconds"),
            ("restarts", "restarts"),
            ("from clock or epoch", "clock"),
            ("differs in", "differs"),
        ),
        tuple(rows),
        f"{each * kinds} kills, {hit} restarts, the same results",
        tuple(misses) if len(misses) > options.floor else (),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20, help="how many at least (default 20)")


BENCHMARK = Benchmark("loops_faults", __doc__ or "", measure, 0.0, "so many runs may differ", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
