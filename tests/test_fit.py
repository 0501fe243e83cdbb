"""`girih.fit`: a plain training loop, within a memory limit; and models that share a device."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

import girih


def network(width: int = 48, layers: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    pairs = [layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))]
    return torch.nn.Sequential(*pairs, torch.nn.Linear(width, 8))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(64, 48, generator=draw), torch.randint(8, (64,), generator=draw)) for _ in range(count)]


def parts(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)  # Adam turns rounding into steps
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


@pytest.mark.parametrize("memory", [None, "160KB"])
def test_a_plain_loop_trains_as_in_pytorch(memory: str | None) -> None:
    model = network()
    plain, losses = copy.deepcopy(model), []
    optimizer, scheduler = parts(plain)
    for x, y in batches(5):
        optimizer.zero_grad()
        loss = cross_entropy(plain(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    optimizer, scheduler = parts(model)
    before = copy.deepcopy(model.state_dict())
    with girih.fit(model, cross_entropy, optimizer, batches(1)[0], memory=memory) as train:
        assert (train.plan.residency is not None) == (memory is not None)
        assert all(torch.equal(train.state_dict()[key], before[key]) for key in before)
        own = []
        for x, y in batches(5):
            own.append(train(x, y))
            scheduler.step()
        inside = train.state_dict()
    torch.testing.assert_close(torch.tensor(own), torch.tensor(losses), rtol=1e-4, atol=1e-5)
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], tensor, rtol=1e-3, atol=1e-4)
        assert torch.equal(model.state_dict()[key], inside[key])


def test_a_batch_of_another_shape_is_refused_and_the_loop_goes_on() -> None:
    model = network(layers=1)
    optimizer, _ = parts(model)
    x, y = batches(1)[0]
    with girih.fit(model, cross_entropy, optimizer, (x, y)) as train:
        with pytest.raises(girih.PlanError, match="shape"):
            train(x[:3], y[:3])
        assert train(x, y) > 0


def test_models_share_a_device_each_within_its_part() -> None:
    models = [network(layers=6).eval(), network(layers=3).eval()]
    x = batches(1)[0][0]
    plans = [girih.plan(girih.Inference(model, memory="50KB"), x, machine="local:1", compare=()) for model in models]
    assert [plan.memory for plan in plans] == [50_000, 50_000]
    assert all(plan.residency is not None and plan.peak <= 50_000 for plan in plans)
    with plans[0].start(backend="threads") as first, plans[1].start(backend="threads") as second:
        for _ in range(3):
            for run, model in ((first, models[0]), (second, models[1])):
                (answer,) = run.step(x)
                torch.testing.assert_close(answer, model(x))
