"""A step with backward and the optimizer's step in it, as loops have it, is planned as a whole or refused by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss

import girih

X, Y = (torch.randn(12, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for size in (5, 3))
Step = Callable[[Any, Any], Any]


class Own(torch.optim.Optimizer):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    count = self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
                    parameter.add_(parameter.grad, alpha=-group["lr"] / count)


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()


def loss_of(model: Any, batch: Any) -> Any:
    return mse_loss(model(batch[0]), batch[1])


def clipped(model: Any, optimizer: Any, schedule: Any) -> Step:
    def step(model: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    return step


def scaled(model: Any, optimizer: Any, schedule: Any) -> Step:
    """With a scaler that is off, gradients cleared at the end, and weights clipped as in a Wasserstein GAN."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(model: Any, batch: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_value_([item for group in optimizer.param_groups for item in group["params"]], 0.05)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.3, 0.3)
        return loss.detach()

    return step


def twice(model: Any, optimizer: Any, schedule: Any) -> Step:
    """Two losses, whose gradients add up."""

    def step(model: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        (model[0].weight.square().sum() * 0.01).backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("kind", [torch.optim.AdamW, Own])
@pytest.mark.parametrize("make", [clipped, scaled, twice])
def test_a_whole_step_trains_as_in_pytorch(make: Any, kind: Any) -> None:
    losses, ends = [], []
    for plain in (True, False):
        model = network()
        optimizer = kind(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        step = make(model, optimizer, schedule)
        train = None if plain else girih.fit(model, step=step, optimizer=optimizer, batch=(X, Y))
        losses.append([])
        for batch in [(X, Y), (X, Y), (X[:5], Y[:5]), (X, Y)]:
            losses[-1].append(step(model, batch).item() if train is None else train(*batch))
            schedule.step()
        if train is not None:
            train.close()
            assert all(parameter.grad is None for parameter in model.parameters())
        ends.append(model.state_dict())
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-9, atol=1e-11)


def never_cleared(model: Any, optimizer: Any, schedule: Any) -> Step:
    def step(model: Any, batch: Any) -> Any:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def after(*, last: Callable[..., Any]) -> Any:
    """A whole step, and something after its backward pass."""

    def make(model: Any, optimizer: Any, schedule: Any) -> Step:
        parameters = [*model.parameters()]

        def step(model: Any, batch: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            last(model, optimizer, schedule, parameters)
            optimizer.step()
            return loss

        return step

    return make


REFUSED = {
    "gradients are never cleared": (
        never_cleared,
        r"leaves the gradient of '0\.weight'.*zero_grad\(\).*micro_batches=",
    ),
    "a scheduler in it": (
        after(last=lambda model, optimizer, schedule, own: schedule.step()),
        "call it after the step",
    ),
    "another optimizer": (
        after(last=lambda model, optimizer, schedule, own: torch.optim.SGD(model.parameters(), lr=0.1).step()),
        "an optimizer, SGD, that is not the one that is planned",
    ),
    "two steps": (after(last=lambda model, optimizer, schedule, own: optimizer.step()), r"optimizer\.step\(\) twice"),
    "a list of parameters": (
        after(last=lambda model, optimizer, schedule, own: torch.nn.utils.clip_grad_norm_(own, 0.1)),
        r"in a list of its own.*from model\.parameters\(\) in the step",
    ),
    "a rate": (after(last=lambda model, optimizer, schedule, own: optimizer.param_groups[0]["lr"]), "reads 'lr'"),
    "a number": (
        after(last=lambda model, optimizer, schedule, own: print(own[0].sum().item())),
        r"test_fit_whole_steps.py:\d+ reads the model's '0\.weight' from a variable of its own",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_plan_would_do_otherwise_is_refused(name: str) -> None:
    make, words = REFUSED[name]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    groups, counted = optimizer.param_groups, optimizer.step
    before = {key: item.clone() for key, item in model.state_dict().items()}
    with pytest.raises(girih.CaptureError, match=words):
        girih.fit(model, step=make(model, optimizer, schedule), optimizer=optimizer, batch=(X, Y))
    assert optimizer.param_groups is groups
    assert optimizer.step is counted
    assert schedule.last_epoch == 0
    assert all(own is mine for own, mine in zip(groups[0]["params"], model.parameters(), strict=True))
    assert all(item.equal(before[key]) for key, item in model.state_dict().items())
