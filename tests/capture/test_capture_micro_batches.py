"""Micro-batches: the loss is the mean of the parts', and training is that of the whole batch."""

from __future__ import annotations

import pytest
import torch

import girih
from girih.capture import CaptureError
from girih.capture.torch.training import parts_of


class Tower(torch.nn.Module):
    def __init__(self, layers: int = 4, width: int = 24) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x):
        return self.layers(x)


def training(count: int, width: int = 24, rows: int = 16, dtype: torch.dtype = torch.float64):
    torch.manual_seed(0)
    model = Tower(width=width).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.nn.functional.mse_loss
    step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, micro_batches=count)
    return model, optimizer, step, (torch.randn(rows, width, dtype=dtype), torch.randn(rows, width, dtype=dtype))


@pytest.mark.parametrize(("machine", "search"), [("local:2", "exact"), ("2x2", "model")])
def test_training_is_that_of_the_whole_batch(machine: str, search: str) -> None:
    model, optimizer, step, batch = training(4)
    plan = girih.plan(step, batch, machine=machine, search=search, objective="seconds", compare=())
    with plan.start(backend="threads") as run:
        got = [run.step(*batch) for _ in range(3)]
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-10)


def test_parts_keep_the_nesting() -> None:
    batch = {"x": torch.arange(6), "more": [torch.arange(12).reshape(6, 2), torch.tensor(3.0)]}
    parts = parts_of(batch, 3)
    assert [part["x"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert parts[1]["more"][0].tolist() == [[4, 5], [6, 7]]
    assert all(part["more"][1].item() == 3.0 for part in parts)


def test_a_batch_that_cannot_be_cut() -> None:
    _, _, step, batch = training(3)
    with pytest.raises(CaptureError, match=r"3 micro-batches: expected tensors of one length .* that 3 divides"):
        girih.plan(step, batch, objective="bytes")
    with pytest.raises(CaptureError, match="at least 1"):
        training(0)
