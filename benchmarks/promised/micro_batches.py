"""A step in micro-batches trains as the undivided batch does, whatever its loss divides by."""

import sys

import torch
from torch.nn.functional import cross_entropy, mse_loss

import girih


def masked(output, target):
    kept = (target > -50).to(output.dtype)
    return ((output.square().mean(-1) * kept).sum()) / kept.sum()


def weighted(output, target):
    return cross_entropy(output, target, weight=torch.arange(1.0, 8.0, dtype=output.dtype), ignore_index=-100)


def contrastive(output, target):
    scores = output @ output.T
    return cross_entropy(scores, torch.arange(len(output)))


def logarithm(output, target):
    return torch.log(output.square().mean()) * output.abs().mean()


LOSSES = {
    "cross-entropy": lambda output, target: cross_entropy(output, target, ignore_index=-100),
    "weighted": weighted, "masked": masked, "plain sum": lambda output, target: output.square().sum() / 100,
    "mean": lambda output, target: mse_loss(output, target.unsqueeze(1).to(output.dtype).expand_as(output) / 100),
    "contrastive": contrastive, "logarithm": logarithm,
}  # fmt: skip

failures = []
for name, loss in LOSSES.items():
    for search, machine in (("single", "local:1"), ("pipeline", "local:2"), ("pipeline-1f1b", "local:2")):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(5, 9), torch.nn.BatchNorm1d(9), torch.nn.Tanh(), torch.nn.Linear(9, 7)]
        model = torch.nn.Sequential(*layers).double()
        x, y = torch.randn(8, 5, dtype=torch.float64), torch.randint(7, (8,))
        y[[0, 1, 2]] = -100
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=2)
        plan = girih.plan(step, (x, y), machine=machine, search=search, objective="seconds", compare=())
        with plan.start(backend="threads") as run:
            losses = [run.step(x, y) for _ in range(3)]
            state = run.state_dict()
        expected = []
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            expected.append(value.item())
        off = max(abs(a - b) for a, b in zip(losses, expected))
        apart = max(float((state[key].double() - own.double()).abs().max()) for key, own in model.state_dict().items())
        if not (off < 1e-9 and apart < 1e-9):
            failures.append(f"{name} by {search}: loss off by {off:.3g}, weights by {apart:.3g}")
if failures:
    sys.exit(f"{len(failures)} of {3 * len(LOSSES)} cases differ from the undivided batch: {failures[0]}")
