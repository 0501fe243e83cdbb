"""Of 100 interrupts (Ctrl-C) at random moments each comes out as KeyboardInterrupt, and what is done next is
right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = """
import os, random, signal, sys, threading, time
import numpy as np
import torch
import girih
import girih.array as gnp
import girih.loop as gl

def arrays(engine):
    girih.cluster(2, backend=engine, small=0)
    data = np.random.default_rng(0).standard_normal((400, 400))
    expected = float((data @ data.T).sum())
    def work():
        x = gnp.asarray(data)
        for number in range(3):
            float((x @ x.T * float(number) + gnp.exp(-abs(x)) + number).sum())
        gnp.linalg.svd(x[:80, :80])[1].compute()
    def check():
        x = gnp.asarray(data)
        assert np.isclose(float((x @ x.T).sum()), expected)
    return work, check

def train(engine):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    batch = torch.randn(256, 128), torch.randn(256, 4)
    plan = girih.plan(step, batch, machine="local:2", compare=())
    losses = []
    def work():
        with plan.start(backend=engine) as run:
            for _ in range(50):
                run.step(*batch)
    def check():
        with plan.start(backend=engine) as run:
            losses.append(run.step(*batch))
        assert losses[-1] == losses[0]
    return work, check

def loops(engine):
    girih.cluster(2, backend=engine, small=0)
    out = gl.array(np.zeros(200_000))
    @gl.parallel_for(gl.dense(np.ones(200_000)))
    def body(key, value):
        total = 0.0
        for number in range(50):
            total += value * number
        out[key] = total
    def check():
        body()
        assert (out.numpy() == 49 * 25).all()
    return body, check

def interrupt(seconds, came):
    def send():
        time.sleep(seconds)
        for _ in range(2):  # Python ignores what is raised within a finalizer: people press the keys again
            if not came.is_set():
                os.killpg(os.getpgrp(), signal.SIGINT)
            came.wait(30.0)
        if not came.is_set():
            print("no KeyboardInterrupt came", file=sys.stderr, flush=True)
            os._exit(1)
    threading.Thread(target=send, daemon=True).start()

signal.signal(signal.SIGINT, signal.default_int_handler)
what, engine, times, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed)
work, check = globals()[what](engine)
work()
for _ in range(times):
    came = threading.Event()
    try:
        interrupt(0.3 * draw.random(), came)
        while True:
            work()
    except KeyboardInterrupt:
        came.set()
    check()
print("done", flush=True)
interrupt(0.3 * draw.random(), threading.Event())
while True:
    work()
"""

CASES = (
    *(("arrays", "threads", 5, seed) for seed in range(6)),
    ("arrays", "processes", 5, 6), ("train", "threads", 23, 7), ("train", "processes", 3, 8),
    ("loops", "threads", 19, 9), ("loops", "processes", 9, 10),
)  # fmt: skip
"""What, on which engine, how often, a seed. Each is interrupted once more at its end, and nothing catches that."""


def run(case: tuple[str, str, int, int], path: str) -> str:
    process = subprocess.Popen(
        [sys.executable, path, *map(str, case)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        return f"{case}: hangs"
    finally:
        process.kill()
    last = (err.strip().splitlines() or [""])[-1]
    if "done" not in out:
        return f"{case}: exit code {process.returncode}: {last}"
    # 1: PyTorch's compiler writes its times when Python ends, and importing `tabulate` for that, where it is installed,
    # makes CPython forget what it ends of: so does any program that imports torch._dynamo.
    ends = process.returncode == -signal.SIGINT or (process.returncode == 1 and last == "KeyboardInterrupt")
    if not ends or "KeyboardInterrupt" not in err or "terminate called" in err:
        return f"{case}: an interrupt that nothing catches: exit code {process.returncode}: {last}"
    return ""


def main() -> str:
    assert sum(case[2] + 1 for case in CASES) == 100
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        path = Path(folder) / "program.py"
        path.write_text(PROGRAM)
        wrong = [said for said in pool.map(lambda case: run(case, str(path)), CASES) if said]
    return f"{len(wrong)} of {len(CASES)} programs: {'; '.join(wrong)}" if wrong else ""


if __name__ == "__main__":
    failed = main()
    if failed:
        print(failed, file=sys.stderr)
    raise SystemExit(1 if failed else 0)
