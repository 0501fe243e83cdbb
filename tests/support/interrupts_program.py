"""What `test_run_interrupts.py` runs: work on workers that Ctrl-C interrupts at random moments, and then other work.

Command line: what is done (arrays, train or loops), on which engine, how often it is interrupted and a seed. At the end
it is interrupted once more, and nothing catches that. It must have a session of its own: as on a terminal, the signal
goes to all processes of its group.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import girih
import girih.array as gnp
import girih.loop as gl
from girih.run.engines.stopping import WorkerThread

MOST_SECONDS = 0.4
"""From the beginning of the work to the signal."""
PATIENCE = 60.0

Work = tuple[Callable[[], object], Callable[[], None]]
"""What is interrupted, again and again, and what must then still be right."""


def arrays(engine: str) -> Work:
    girih.cluster(2, ray=True, small=0) if engine == "ray" else girih.cluster(2, backend=engine, small=0)
    data = np.random.default_rng(0).standard_normal((400, 400))
    expected = float((data @ data.T).sum())

    def work() -> None:
        x = gnp.asarray(data)
        for number in range(3):
            float((x @ x.T * float(number) + gnp.exp(-abs(x)) + number).sum())
        gnp.linalg.svd(x[:80, :80])[1].compute()

    def check() -> None:
        x = gnp.asarray(data)
        assert np.isclose(float((x @ x.T).sum()), expected)

    return work, check


def train(engine: str) -> Work:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    batch = torch.randn(256, 128), torch.randn(256, 4)
    plan = girih.plan(step, batch, machine="local:2", compare=())
    losses = []

    def work() -> None:
        with plan.start(backend=engine) as run:
            for _ in range(50):
                run.step(*batch)

    def check() -> None:
        with plan.start(backend=engine) as run:
            losses.append(run.step(*batch))
        assert losses[-1] == losses[0]

    return work, check


def loops(engine: str) -> Work:
    girih.cluster(2, backend=engine, small=0)
    out = gl.array(np.zeros(200_000))

    @gl.parallel_for(gl.dense(np.ones(200_000)))
    def body(key: Any, value: Any) -> None:
        total = 0.0
        for number in range(50):
            total += value * number
        out[key] = total

    def check() -> None:
        body()
        assert (out.numpy() == 49 * 25).all()

    return body, check


def interrupt(seconds: float, came: threading.Event) -> None:
    """Later, from another thread; once more if nothing comes of it, as where Python ignores what a finalizer raises."""

    def send() -> None:
        time.sleep(seconds)
        for _ in range(2):
            if not came.is_set():
                os.killpg(os.getpgrp(), signal.SIGINT)
            came.wait(PATIENCE)
        if not came.is_set():
            print("no KeyboardInterrupt came", file=sys.stderr, flush=True)
            os._exit(1)

    threading.Thread(target=send, daemon=True).start()


def computing() -> list[str]:
    """Threads of crews that have been stopped and still do something."""
    left = [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread) and thread.is_alive()]
    for thread in left:
        thread.join(PATIENCE)
    return [thread.name for thread in left if thread.is_alive()]


def main(what: str, engine: str, times: int, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where this was started from
    draw = random.Random(seed)
    work, check = {"arrays": arrays, "train": train, "loops": loops}[what](engine)
    for _ in range(times):
        came = threading.Event()
        try:
            interrupt(MOST_SECONDS * draw.random(), came)
            while True:
                work()
        except KeyboardInterrupt:
            came.set()
        if what == "train":
            assert not computing()
        check()
    print(f"{times} interrupts", flush=True)
    interrupt(MOST_SECONDS * draw.random(), threading.Event())
    while True:
        work()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
