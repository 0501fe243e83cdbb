"""A plan file whose residency names steps and storages that there are not is refused by its key; nothing is written
out of bounds."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAKE = """
import sys, torch, girih
torch.manual_seed(0)
model = torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(8, 8), torch.nn.Tanh())))
step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss,
                          optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
batch = torch.randn(16, 8), torch.randn(16, 8)
free = girih.plan(step, batch, machine="local:1", compare=())
girih.plan(step, batch, machine="local:1", memory=free.peak * 6 // 10, compare=(), hold="swap").save(sys.argv[1])
"""


def far_step(data):
    stays = data["residency"]["stays"]
    one = next(stay for stay in stays if not stay[6])
    stays += [list(one) for _ in range(26_000)]
    stays[-1][3] = 2**30


def far_storage(data):
    stays = data["residency"]["stays"]
    stays += [list(stays[0]) for _ in range(26_000)]
    stays[-1][0] = 2**30


with tempfile.TemporaryDirectory() as name:
    good, bad = Path(name) / "plan.json", Path(name) / "bad.json"
    subprocess.run([sys.executable, "-c", MAKE, str(good)], check=True)
    for what in (far_step, far_storage):
        data = json.loads(good.read_text())
        what(data)
        bad.write_text(json.dumps(data))
        done = subprocess.run([sys.executable, "-m", "girih", "show", str(bad)], capture_output=True, text=True)
        if done.returncode != 2 or "residency.stays[" not in done.stderr or "expected" not in done.stderr:
            said = done.stderr.strip().splitlines()[-1:] or [""]
            print(f"girih show of {what.__name__}: exit code {done.returncode}, said {said[0]!r}", file=sys.stderr)
            sys.exit(1)
