"""What `test_hosts.py` runs under torchrun, on one host or on several: loops, then tables; every rank leaves a file.

Command line: a directory, and what happens there: "" nothing, or "killed": rank 1 dies between two loops.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import girih.loop as gl
from benchmarks.loop_bodies import sgd_mf, slr

USERS, ITEMS, EPOCHS, TICKS = 60, 40, 3, 4


def ratings() -> gl.Space:
    """All of them: a space without a list of entries has less to compile."""
    return gl.dense(np.random.default_rng(0).standard_normal((USERS, ITEMS)).astype(np.float32))


def samples() -> gl.Space:
    draw = np.random.default_rng(2)
    labels, ids, values = draw.random(200) < 0.5, draw.integers(0, 30, (200, 4)), draw.random((200, 4))
    return gl.sparse((np.arange(200),), (labels.astype(np.float64), ids, values))


def loops(between: Any = lambda: None) -> tuple[dict[str, np.ndarray], gl.ParallelLoop]:
    """Factors of ratings, by an array that travels; weights of a regression, through a buffer. And the first loop."""
    draw = np.random.default_rng(1)
    W, H = (gl.array(draw.normal(0, 0.3, (size, 8)), np.float32) for size in (USERS, ITEMS))
    sgd = gl.parallel_for(ratings(), ordered=False)(sgd_mf)
    for _ in range(EPOCHS):
        sgd(W, H, step=0.02)
        between()
    weights = gl.array(np.zeros(30))
    gl.parallel_for(samples())(slr)(weights, gl.buffer(weights, delay=20), step=0.1)
    return {"W": W.numpy(), "H": H.numpy(), "weights": weights.numpy()}, sgd


def different_arrays(rank: int) -> None:
    """Of the ranks: that is an error."""
    W, H = (gl.array(np.full((size, 8), 1.0 + rank), np.float32) for size in (USERS, ITEMS))
    with pytest.raises(gl.LoopError, match="has other values in its arrays: every rank must do the same"):
        gl.parallel_for(ratings(), ordered=False)(sgd_mf)(W, H, step=0.02)


def work(t: Any, rank: int) -> float:
    """Every worker reads all rows, and adds what depends on what it has read, to some."""
    own = 0.0
    draw = np.random.default_rng(rank)
    for _ in range(TICKS):
        rows = np.unique(draw.integers(0, 50, 30))
        x = t["x"].get_rows(np.arange(50))
        own += float(x.sum())
        t["x"].inc_rows(rows, 0.1 * draw.standard_normal((len(rows), 3)) - 0.05 * x[rows])
        t["n"].inc_entries(rows, rows, np.ones(len(rows)))
        t.clock()
    return own


def shared(**options: Any) -> dict[str, np.ndarray]:
    """What two servers hold in the end."""
    with gl.tables(staleness=0, servers=2, timeout=60.0, **options) as t:
        x = t.dense("x", 50, 3, "float64", initial=np.ones((50, 3)))
        n = t.sparse("n", 50, 50, "int32")
        t.run(work)
        return {"x": x.read(), "n": n.read().toarray()}


def main(place: str, event: str) -> None:
    with gl.ranks(timeout=60.0) as ranks:

        def between() -> None:
            if event == "killed" and ranks.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        found, loop = loops(between)
        told = loop.explain()
        assert len(loop.spans) == told.plan.spaces * told.plan.times
        assert told.kind == "2d", told
        assert told.plan.workers == ranks.workers, told
        assert "on threads" not in str(told), told
        sent = np.array([EPOCHS * told.bytes_moved, *ranks.crew().mesh.sent])
        address = np.array(re.split(r"//|:\d+$", ranks.crew().mesh.place)[1])
        different_arrays(ranks.rank)
    np.savez(Path(place) / f"{ranks.rank}.npz", sent=sent, address=address, **found, **shared())  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
