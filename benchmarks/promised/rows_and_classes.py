"""An index that no row has, or a label that no class has, is refused by a plan wherever PyTorch refuses it."""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding

import girih
from girih.run.errors import WorkerError

torch.manual_seed(0)


class Rows(nn.Module):
    def __init__(self, look_up) -> None:
        super().__init__()
        self.look_up, self.table = look_up, nn.Parameter(torch.randn(7, 4))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.look_up(self.table, numbers)


LOOK_UPS = {
    "table[i]": lambda table, i: table[i],
    "index_put": lambda table, i: torch.zeros_like(table).index_put((i,), table[:6], accumulate=True),
    "embedding of i + 0": lambda table, i: embedding(i + 0, table),
    "embedding that depends on weights": lambda table, i: embedding(torch.where(table[:6, 0] > 99, 0, i), table),
}
wrong = []


def compare(name, plan, alone, batch) -> None:
    try:
        expected = float(alone())
    except (IndexError, RuntimeError):
        expected = None
    with plan.start(backend="threads") as run:
        try:
            found = float(run.step(*batch))
        except (IndexError, girih.PlanError, WorkerError):
            found = None
    if (found is None) != (expected is None) or (expected is not None and abs(found - expected) > 1e-4):
        wrong.append(f"{name}: PyTorch {'an error' if expected is None else expected}, girih {found or 'an error'}")


good = torch.tensor([0, 1, 2, 3, 2, 1])
for name, look_up in LOOK_UPS.items():
    model = Rows(look_up)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, step=lambda model, i: model(i).square().sum(), optimizer=optimizer)
    plan = girih.plan(step, good, machine="local:1", compare=())
    for number in (6, -7, 7, -8):
        i = good.index_fill(0, torch.tensor(3), number)
        with torch.no_grad():
            compare(f"{name} of {number}", plan, lambda model=model, i=i: model(i).square().sum(), (i,))

x, labels = torch.randn(12, 5), torch.arange(12) % 7
for reduction in ("mean", "sum", "none"):
    for ignored in (-100, 3):
        model = nn.Linear(5, 7)
        options = {"weight": torch.rand(7), "reduction": reduction, "ignore_index": ignored}

        def loss(output, classes, options=options):
            return cross_entropy(output, classes, **options).sum()

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plan = girih.plan(
            girih.TrainingStep(model, loss=loss, optimizer=optimizer), (x, labels), machine="local:1", compare=()
        )
        for number in (7, -1, ignored):
            classes = labels.masked_fill(labels == 4, number)
            with torch.no_grad():
                alone = lambda model=model, classes=classes, loss=loss: loss(model(x), classes)
                compare(f"{reduction} of class {number}, {ignored} ignored", plan, alone, (x, classes))
if wrong:
    sys.exit("; ".join(wrong))
