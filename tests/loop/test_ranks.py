"""Loops on the processes that torchrun has started: every rank has the bits of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import girih.loop as gl
from benchmarks.loop_bodies import sgd_mf

PROGRAM = """
import sys
import numpy as np
import girih.loop as gl
from benchmarks.loop_bodies import sgd_mf
sys.path.insert(0, {here!r})
from test_ranks import factors, ratings
W, H = factors()
with gl.ranks(timeout=60.0) as ranks:
    sgd = gl.parallel_for(ratings())(sgd_mf)
    for epoch in range(2):
        sgd(W, H, step=0.05)
    assert sgd.explain().plan.workers == ranks.workers == 2, sgd.explain()
    assert len(sgd.spans) == sgd.explain().plan.spaces * sgd.explain().plan.times
    assert "on threads" not in str(sgd.explain())
    np.savez({there!r} + f"/{{ranks.rank}}.npz", W=W, H=H)
    if ranks.rank:
        W[0] = 7.0  # what only one rank does
    try:
        gl.parallel_for(ratings())(sgd_mf)(W, H, step=0.05)
    except gl.LoopError as error:
        assert "has other values in its arrays: every rank must do the same" in str(error), error
    else:
        raise AssertionError
"""


def ratings() -> gl.Space:
    """All of them: a space without a list of entries has less to compile."""
    return gl.dense(np.random.default_rng(0).standard_normal((50, 20)).astype(np.float32))


def factors() -> tuple[gl.Array, gl.Array]:
    draw = np.random.default_rng(1)
    return tuple(gl.array(draw.normal(0, 0.3, (size, 8)), np.float32) for size in (50, 20))  # type: ignore[return-value]


def test_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(here=str(Path(__file__).parent), there=str(tmp_path)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    W, H = factors()
    alone = gl.parallel_for(ratings(), workers=2)(sgd_mf)
    for _ in range(2):
        alone(W, H, step=0.05)
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert np.array_equal(found["W"], W.values)
            assert np.array_equal(found["H"], H.values)


def test_without_a_launcher_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="no launcher has started this process: torchrun --nproc-per-node"):
        gl.ranks()
