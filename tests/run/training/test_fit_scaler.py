"""Steps with a GradScaler that is on, by girih.fit as by plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss

import girih

BAD = {0: float("inf"), 3: float("nan")}
"""Steps with a number that makes their gradients not finite, and that number."""


def model_of(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(dtype)


def batches(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    made = [tuple(torch.randn(6, size, generator=generator).to(dtype) for size in (8, 4)) for _ in range(7)]
    for step, bad in BAD.items():
        made[step][0][2, 2] = bad
    return made


def step_of(optimizer: Any, scaler: Any, clip: bool = False, autocast: Any = None) -> Callable[[Any, Any], Any]:
    def step(model: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", autocast, enabled=autocast is not None):
            loss = mse_loss(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5),
}


@pytest.mark.parametrize(
    ("name", "clip", "autocast", "tolerance"),
    [("adamw", False, None, 1e-7), ("sgd", True, None, 1e-7), ("adamw", True, torch.bfloat16, 0.02),
     ("sgd", False, torch.float16, 0.002)],
)  # fmt: skip
def test_steps_are_scaled_and_left_out_as_by_pytorch(name: str, clip: bool, autocast: Any, tolerance: float) -> None:
    """Weights, the optimizer's state, and after each step the scale, which grows and falls; also where the weights are
    looked at in between, behind a first step that is left out."""
    dtype = torch.float32 if autocast else torch.float64
    ends = []
    for plain in (True, False):
        model = model_of(dtype)
        optimizer = OPTIMIZERS[name](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
        step = step_of(optimizer, scaler, clip, autocast)
        data, losses, scales = batches(dtype), [], []
        train: Any = step if plain else girih.fit(model, step=step, optimizer=optimizer, batch=data[0])
        for number, batch in enumerate(data):
            losses.append(float(step(model, batch) if plain else train(batch)))
            scales.append(scaler.get_scale())
            if number in (0, 4) and not plain:
                assert train.module is model
                assert bool(optimizer.state) == (number > 0)
        if not plain:
            train.close()
        ends.append((losses, model.state_dict(), optimizer.state_dict()["state"], scales, scaler.state_dict()))
    assert ends[0][3:] == ends[1][3:]
    assert ends[0][3] == [2048.0, 2048.0, 4096.0, 2048.0, 2048.0, 4096.0, 4096.0]
    torch.testing.assert_close(ends[1][:3], ends[0][:3], rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_scale_that_is_set_between_two_steps_holds() -> None:
    model = model_of(torch.float64)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    batch = batches(torch.float64)[1]
    with girih.fit(model, step=step_of(optimizer, scaler), optimizer=optimizer, batch=batch) as train:
        train(batch)
        scaler.update(float("inf"))  # no gradient is finite then
        before = train.module[0].weight.detach().clone()
        train(batch)
        assert torch.equal(train.module[0].weight, before)


def late(optimizer: Any, scaler: Any) -> Callable[[Any, Any], Any]:
    def step(model: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = mse_loss(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return loss

    return step


def direct(optimizer: Any, scaler: Any) -> Callable[[Any, Any], Any]:
    def step(model: Any, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = mse_loss(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        optimizer.step()
        scaler.update()
        return loss

    return step


@pytest.mark.parametrize(
    ("optimizer", "step", "words"),
    [
        (OPTIMIZERS["sgd"], late, "ends behind scaler.step"),
        (OPTIMIZERS["sgd"], direct, "calls optimizer.step\\(\\) by itself"),
        (
            lambda parameters: torch.optim.Muon([item for item in parameters if item.dim() == 2]),
            step_of,
            "whose own code runs",
        ),
    ],
)
def test_steps_that_would_train_otherwise_are_refused(optimizer: Any, step: Any, words: str) -> None:
    model = model_of(torch.float64)
    own = optimizer(model.parameters())
    with pytest.raises(girih.CaptureError, match=words):
        girih.fit(
            model,
            step=step(own, torch.amp.GradScaler("cpu")),
            optimizer=own,
            batch=batches(torch.float64)[1],
        )


def test_a_plan_that_is_started_by_itself_refuses_to_step() -> None:
    model = model_of(torch.float64)
    optimizer, batch = OPTIMIZERS["adamw"](model.parameters()), batches(torch.float64)[1]
    own = girih.TrainingStep(model, step=step_of(optimizer, torch.amp.GradScaler("cpu")), optimizer=optimizer)
    with (
        girih.plan(own, batch, machine="local:1", compare=()).start(backend="threads") as run,
        pytest.raises(girih.PlanError, match=r"train by girih\.fit"),
    ):
        run.step(batch)
