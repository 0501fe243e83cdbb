"""What each face keeps on disk, small: how it is saved, and what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import girih.loop as gl
from girih.loop.apps.lda.estimator import LDA
from girih.loop.apps.trees.estimators import GradientBoostedTrees
from girih.loop.shared_tables.rows.functions import AdaRevision

COUNTS = scipy.sparse.csr_matrix(np.random.default_rng(0).integers(0, 3, (6, 8)))
ROWS = np.random.default_rng(1).normal(size=(40, 2))
TARGET = (ROWS[:, 0] + ROWS[:, 1] ** 2 > 0.5).astype(int)


def body(i, a):
    a[i] = a[i] * 0.5 + gl.random()


def loop_of(executions: int) -> tuple[gl.ParallelLoop, gl.Array, gl.Accumulator]:
    """A loop that has been executed so often, its array, and an accumulator that it does not touch."""
    loop, a, err = gl.parallel_for(gl.range(30), workers=2, seed=1)(body), gl.array(np.zeros(30)), gl.accumulator(0.0)
    for _ in range(executions):
        loop(a)
    return loop, a, err


def lda(file: Path, sweeps: int, **more: Any) -> LDA:
    return LDA(2, sampler="gibbs", max_iter=sweeps, checkpoint=file, **more).fit(COUNTS)


def trees(file: Path, count: int, **more: Any) -> GradientBoostedTrees:
    options = {"max_depth": 2, "random_state": 0, "n_jobs": 1, "checkpoint": file}
    return GradientBoostedTrees(count, **options, **more).fit(ROWS, TARGET)


def work(t: Any, rank: int, ticks: int) -> float:
    """Changes rows of three tables by what it reads; gives each clock the sum of it."""
    own = 0.0 if t.state is None else float(t.state["own"])
    rows = np.arange(rank, 10, 2)
    for _ in range(t.ticks, ticks):
        x = t["x"].get_rows(rows)
        own += float(x.sum())
        t["x"].inc_rows(rows, 1.0 - 0.1 * x)
        t["n"].inc_entries(rows, rows, np.ones(len(rows)))
        t["g"].inc_rows(rows, np.ones((len(rows), 2)))
        t.clock(state=lambda kept=own: {"own": kept})
    return own


def tables(folder: Path, ticks: int, **more: Any) -> tuple[list[float], list[np.ndarray]]:
    """Of a run of so many clocks with snapshots after every second: what its workers return, and its tables."""
    with gl.tables(2, 0, servers=2, backend="threads", snapshots=folder, every=2, keep=3, **more) as t:
        x = t.dense("x", 10, 3, "float64", initial=np.ones((10, 3)))
        n = t.sparse("n", 10, 10, "int32")
        g = t.dense("g", 10, 2, "float64", function=AdaRevision(0.1))
        own = t.run(work, ticks)
        return own, [x.read(), n.read().toarray(), g.read()]
