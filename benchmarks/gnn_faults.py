"""A worker is killed (SIGKILL) in the middle of an epoch of full-graph training: does it stop soon, and go on the same?

A graph of communities (20,000 vertices; `--quick`: 600), a GCN, Adam, float32, on two processes by one plan. Ten times
(`--quick`: once) the training runs with a checkpoint after every second epoch, a random worker is killed at a random
moment of a random epoch, and the run is started again from the last checkpoint. Against: the same training undisturbed.
Floors: no final weight that differs by more than rounding (1e-4 of it; `--floor` differences), each clean stop within
10 seconds of the kill (not of `--quick`), and no process left behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import girih
from benchmarks.common import Benchmark, Report, Row, note
from girih import gnn
from girih.run.errors import WorkerError

STOP = 10.0
EPOCHS = 8


def planned(data: gnn.Data) -> Any:
    torch.manual_seed(0)
    network = gnn.GCN(data.features, 64, data.classes, layers=3)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=optimizer)
    return girih.plan(step, data, machine="local:2", compare=(), search="data")


def undisturbed(plan: Any) -> tuple[dict[str, torch.Tensor], float]:
    """(the final weights, seconds of an epoch)."""
    with plan.start() as run:
        run.step()
        began = time.perf_counter()
        for _ in range(EPOCHS - 1):
            run.step()
        return run.state_dict(), (time.perf_counter() - began) / (EPOCHS - 1)


def disturbed(plan: Any, folder: str, epoch: int, wait: float, worker: int) -> tuple[dict[str, torch.Tensor], Row]:
    """The final weights of a training in which a worker is killed so many seconds after an epoch began."""
    stopped, resumed, pids = None, 0, []
    try:
        with plan.start() as run:
            pids = list(run.run.crew.pids)
            for number in range(EPOCHS):
                if number == epoch:
                    killed: list[float] = []

                    def strike(pid: int = pids[worker], told: list[float] = killed) -> None:
                        told.append(time.perf_counter())
                        os.kill(pid, signal.SIGKILL)

                    timer = threading.Timer(wait, strike)
                    timer.start()
                run.step()
                if number % 2:
                    run.save(folder)
            timer.join()
            run.step()  # where the timer came late: a worker that is dead is noticed
    except WorkerError as error:
        stopped = time.perf_counter() - killed[0]
        said = str(error).splitlines()[0]
    else:
        raise RuntimeError("a worker was killed, and a step is done")
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    kept = folder if Path(folder).exists() else None
    with plan.start(resume=kept) as run:
        resumed = run.steps
        while run.steps < EPOCHS:
            run.step()
        state = run.state_dict()
    return state, {"stop": stopped, "resumed": resumed, "left": len(left), "said": said}


def measure(options: argparse.Namespace) -> Report:
    data = gnn.community(600 if options.quick else 20_000, classes=5, features=32)
    plan = planned(data)
    expected, seconds = undisturbed(plan)
    random = np.random.default_rng(options.seed)
    rows: list[Row] = []
    misses = []
    for number in range(1 if options.quick else options.kills):
        epoch, worker, share = int(random.integers(1, EPOCHS - 2)), int(random.integers(2)), float(random.random())
        with tempfile.TemporaryDirectory() as folder:
            state, row = disturbed(plan, f"{folder}/kept", epoch, share * seconds, worker)
        # Products round otherwise where their operands lie otherwise in memory, as after they were read from a file.
        differing = [key for key, item in expected.items() if not torch.allclose(item, state[key], 1e-4, 1e-6)]
        row = {"run": number + 1, "epoch": epoch, "worker": worker, **row, "differs": ", ".join(differing) or "nothing"}
        rows.append(row)
        note(row)
        if differing:
            misses.append(f"run {number + 1}: other {', '.join(differing)}")
        if row["stop"] > STOP and not options.quick:
            misses.append(f"run {number + 1}: stopped {row['stop']:.1f} s behind the kill")
        if row["left"]:
            misses.append(f"run {number + 1}: {row['left']} processes left")
    slowest = max(row["stop"] for row in rows)
    return Report(
        f"kills in epochs of {1000 * seconds:.0f} ms on two processes",
        (("run", "run"), ("epoch", "epoch"), ("worker", "worker"), ("stopped, s", "stop"), ("resumed at", "resumed"),
         ("left", "left"), ("differs in", "differs"), ("told", "said")),
        tuple(rows),
        f"{len(rows)} kills, stopped within {slowest:.1f} s, the same weights to rounding",
        tuple(misses) if len(misses) > options.floor else (),
    )  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")


BENCHMARK = Benchmark("gnn_faults", __doc__ or "", measure, 0.0, "so many runs may differ", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
