"""A step within its limit runs where the system gives the process no more; the whole step does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forked_programs
import pytest

PROGRAM = """
import hashlib, resource, sys
import numpy as np
import torch
import girih

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())])
x, y = torch.randn(8192, 256), torch.randn(8192, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
share, more = float(sys.argv[1]), int(sys.argv[2])
free = girih.plan(step, (x, y), machine="local:1", compare=())
plan = free if share == 1 else girih.plan(step, (x, y), machine="local:1", memory=int(share * free.peak), compare=())
np.ones((512, 512)) @ np.ones((512, 512))  # the BLAS of a process that is a fork makes its buffers anew
held = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
if more:
    resource.setrlimit(resource.RLIMIT_DATA, (held + more,) * 2)
with plan.start(backend="threads") as run:
    for _ in range(2):
        run.step((x, y))
    digest = hashlib.sha256()
    for name, tensor in sorted(run.state_dict().items()):
        digest.update(tensor.numpy().tobytes())
    arena = run.statistics()[0].arena
print(free.peak, plan.peak, digest.hexdigest(), "no arena" if arena is None else arena.bytes)
"""
SLACK = 80 << 20
"""Bytes that the process takes beside its tensors: stacks of threads, above all."""


def run(share: float, more: int = 0) -> subprocess.CompletedProcess[str]:
    return forked_programs.run([sys.executable, "-c", PROGRAM, str(share), str(more)], timeout=300)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts what is mapped on Linux alone")
def test_the_limit_is_the_systems_too(tmp_path: Path) -> None:
    whole = run(1.0)
    assert whole.returncode == 0, whole.stderr
    natural, _, weights, *_ = whole.stdout.split()
    limit = int(0.35 * int(natural)) + SLACK
    least = run(0.35, limit)
    assert least.returncode == 0, least.stderr
    _, planned, capped, arena = least.stdout.split()
    assert int(planned) <= int(arena) <= 0.35 * int(natural)
    assert capped == weights
    assert limit < int(natural)
    broken = run(1.0, limit)
    assert broken.returncode != 0
    assert "allocat" in broken.stderr.lower()  # PyTorch says so, or the library of products before it
