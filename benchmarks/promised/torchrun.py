"""Under torchrun the ranks are the workers of a plan, with one device's losses, or both numbers are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, sys, os
import torch, torch.distributed as dist
import girih

plan = girih.load(sys.argv[1])
with plan.start() as run:
    joined = dist.is_initialized() and dist.get_world_size() == 2
    losses = [run.step(torch.ones(8, 8) * n, torch.zeros(8, 4)) for n in (1, 2)]
    received = [item.bytes_received for item in run.statistics()]
with open(f"{sys.argv[2]}/{os.environ['RANK']}.json", "w") as file:
    json.dump({"joined": joined, "losses": losses, "received": received}, file)
"""

PLANS = """
import sys
import torch
import girih

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4))
step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
for devices in (1, 2, 4):
    girih.plan(step, (torch.zeros(8, 8), torch.zeros(8, 4)), machine=f"local:{devices}", compare=(), objective="bytes").save(
        f"{sys.argv[1]}/{devices}.json"
    )
plan = girih.load(f"{sys.argv[1]}/1.json")
with plan.start(backend="threads") as run:
    print([run.step(torch.ones(8, 8) * n, torch.zeros(8, 4)) for n in (1, 2)])
    print([int(item) * 2 for item in girih.load(f"{sys.argv[1]}/2.json").bytes_received])
"""


def started(*arguments: str, timeout: float = 170.0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=timeout
    )


def main() -> str:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plans.py").write_text(PLANS)
        (Path(folder) / "program.py").write_text(PROGRAM)
        made = started(f"{folder}/plans.py", folder)
        if made.returncode:
            return made.stderr[-1000:]
        alone, planned = map(json.loads, made.stdout.splitlines())
        done = started(*launcher, f"{folder}/program.py", f"{folder}/2.json", folder)
        if done.returncode:
            return f"the program failed under torchrun: {done.stderr[-1000:]}"
        for rank in range(2):
            seen = json.loads((Path(folder) / f"{rank}.json").read_text())
            if not seen["joined"]:
                return f"rank {rank} had not joined the other: it trained alone"
            if any(abs(own - other) > 1e-5 * abs(other) for own, other in zip(seen["losses"], alone, strict=True)):
                return f"rank {rank} has losses {seen['losses']}, one device {alone}"
            if seen["received"] != planned or not any(planned):
                return f"the ranks received {seen['received']} bytes, planned {planned}"
        done = started(*launcher, "-m", "girih", "run", f"{folder}/2.json", "--steps", "1", "--backend", "torchrun")
        if done.returncode or done.stdout.count("loss") != 1:
            return f"girih run --backend torchrun: {done.stdout} {done.stderr[-1000:]}"
        done = started(*launcher, "-m", "girih", "run", f"{folder}/4.json", "--steps", "1")
        if done.returncode == 0 or "2 ranks" not in done.stderr or "4 devices" not in done.stderr or done.stdout:
            return f"a plan of 4 devices ran under 2 ranks: {done.stdout}"
    return ""


if __name__ == "__main__":
    wrong = main()
    if wrong:
        print(wrong, file=sys.stderr)
    raise SystemExit(1 if wrong else 0)
