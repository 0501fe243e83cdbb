"""A batch that is not as it was planned (ragged, another type, other keys, labels that are none) is refused."""

import sys

import torch
from torch.nn.functional import cross_entropy

import girih

x, y = torch.randn(8, 4), torch.arange(8) % 7
bad = {
    "ragged": (x[:3], y[:3]), "one row": (x[:1], y[:1]), "double": (x.double(), y), "int32": (x, y.int()),
    "meta": (x.to("meta"), y), "label 7": (x, torch.full((8,), 7)), "label -1": (x, torch.full((8,), -1)),
    "sparse": (x.to_sparse(), y), "three": (x, y, y), "one": (x,), "dict": ({"x": x, "y": y},),
}  # fmt: skip
failures = []
for count in (1, 2):
    model = torch.nn.Linear(4, 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer, micro_batches=count)
    with girih.plan(step, (x, y), machine="local:1", compare=()).start(backend="threads") as run:
        for name, batch in bad.items():
            try:
                failures.append(f"{name} in {count} parts gives {run.step(*batch)}")
            except girih.PlanError:
                pass
        for good in ((x, y), (x.T.contiguous().T, y), (x, y.masked_fill(y == 3, -100))):
            own, expected = run.step(*good), None
            with torch.no_grad():
                model.load_state_dict(run.state_dict())
        if run.steps != 3:
            failures.append(f"{run.steps} steps were done of 3")
if failures:
    sys.exit(f"{len(failures)} batches were not refused: {failures[0]}")
