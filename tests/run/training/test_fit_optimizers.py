"""Any optimizer trains under girih.fit as in PyTorch, with schedules of any hyper-parameter, or is refused by line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

import girih

X, Y = (torch.randn(12, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for size in (5, 3))


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), Scale()).double()
    model[0].bias.requires_grad_(False)
    return model


class Scale(torch.nn.Module):
    """A parameter that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Counting(torch.optim.Optimizer):
    """AdamW as people write it: a count in Python, roots of it, and writes by `.data`."""

    def __init__(self, parameters: Any, lr: float = 0.01, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": 0.1, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            first, second = group["betas"]
            group["seen"] = group.get("seen", 0) + 1
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                state["step"] += 1
                state["mean"].mul_(first).add_(parameter.grad, alpha=1 - first)
                state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                size = group["lr"] * math.sqrt(1 - second ** state["step"]) / (1 - first ** group["seen"])
                parameter.data.mul_(1 - group["lr"] * group["decay"])
                parameter.data.addcdiv_(state["mean"], state["square"].sqrt().add_(group["eps"]), value=-size)


class Lion(torch.optim.Optimizer):
    """Replaces its state, and never counts."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                    move = torch.sign(mean * first + parameter.grad * (1 - first))
                    parameter.add_(move, alpha=-group["lr"])
                    self.state[parameter]["mean"] = mean * second + parameter.grad * (1 - second)


class Momentum(torch.optim.Optimizer):
    """Begins with the first gradient, as PyTorch's SGD does. every: steps after which it adds nothing at all."""

    def __init__(self, parameters: Any, lr: float = 0.01, every: int = 0) -> None:
        super().__init__(parameters, {"lr": lr, "every": every})
        self.count = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum" in state:
                    state["momentum"].mul_(0.9).add_(parameter.grad)
                else:
                    state["momentum"] = parameter.grad.clone()
                if not group["every"] or self.count % group["every"]:
                    parameter.add_(state["momentum"], alpha=-group["lr"])


class Reading(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.norm() > 1.0:
                    parameter.add_(parameter.grad, alpha=-group["lr"])


class Rectified(torch.optim.RAdam):
    """Calls other operators from its sixth step on."""


class Decayed(torch.optim.AdamW):
    pass


def matrices(model: Any) -> list[Any]:
    return [model[0].weight, model[2].weight]


def weights(model: Any) -> Any:
    return model.parameters()


Between = Callable[[Any, int], None]


def momentum(optimizer: Any, number: int) -> None:
    for group in optimizer.param_groups:
        group["betas"] = (0.9 - 0.05 * number, 0.99)


def decay(optimizer: Any, number: int) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.01 * (number + 1)


def one_cycle(optimizer: Any) -> Any:
    return OneCycleLR(optimizer, 0.1, total_steps=12)


def warm(optimizer: Any) -> Any:
    return LambdaLR(optimizer, lambda step: step / 8)  # from 0 on


def two_groups(model: Any) -> Any:
    return Decayed([{"params": matrices(model), "lr": 0.02}, {"params": [model[2].bias], "weight_decay": 0.0}], lr=0.01)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None, Between | None]] = {
    "a count in Python": (lambda model: Counting(weights(model)), warm, momentum),
    "state that is replaced": (lambda model: Lion(weights(model)), None, momentum),
    "a class of PyTorch's, derived": (lambda model: Decayed(weights(model), lr=0.01), one_cycle, decay),
    "groups": (two_groups, one_cycle, decay),
    "other operators later": (lambda model: Rectified(weights(model), lr=0.01), None, None),
    "SGD's momentum in a cycle": (lambda model: torch.optim.SGD(weights(model), lr=0.1, momentum=0.9), one_cycle, None),
    "Adam's in a cycle": (lambda model: torch.optim.Adam(weights(model), lr=0.1), one_cycle, None),
    "Adafactor": (lambda model: torch.optim.Adafactor(weights(model), lr=0.1, weight_decay=0.01), warm, None),
}


@pytest.mark.parametrize("name", CASES)
def test_it_trains_and_its_state_comes_back_as_in_pytorch(name: str) -> None:
    make, scheduled, between = CASES[name]
    losses, ends = [], []
    for plain in (True, False):
        model = network()
        optimizer = make(model)
        schedule = scheduled(optimizer) if scheduled is not None else None
        train = None if plain else girih.fit(model, mse_loss, optimizer, (X, Y))
        losses.append([])
        for number in range(8):
            if train is not None:
                if number == 3:
                    assert train.module is model  # given back, and taken up again
                losses[-1].append(train(X, Y))
            else:
                losses[-1].append(eager_step(model, optimizer))
            if between is not None:
                between(optimizer, number)
            if schedule is not None:
                schedule.step()
        if train is not None:
            train.close()
        losses[-1].append(eager_step(model, optimizer))  # PyTorch goes on with what came back
        ends.append((model.state_dict(), optimizer.state_dict()["state"]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    (one, kept), (two, given) = ends
    torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-10)
    assert {key: {*own} for key, own in given.items()} == {key: {*own} for key, own in kept.items()}
    torch.testing.assert_close(given, kept, rtol=1e-8, atol=1e-10)


def eager_step(model: Any, optimizer: Any) -> float:
    optimizer.zero_grad()
    loss = mse_loss(model(X), Y)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def test_muon_trains_to_the_rounding_of_its_own_bfloat16() -> None:
    losses = []
    for plain in (True, False):
        model = network()
        optimizer = torch.optim.Muon(matrices(model), lr=0.02)
        if plain:
            losses.append([eager_step(model, optimizer) for _ in range(4)])
        else:
            with girih.fit(model, mse_loss, optimizer, (X, Y), memory="8KB") as train:
                losses.append([train(X, Y) for _ in range(4)])
                assert train.plan.peak <= 8_000
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
    assert losses[1][3] < losses[1][0]


def test_other_sizes_and_operators_at_once() -> None:
    """Of each size there is a plan for each of the ways in which the optimizer updates."""
    losses = []
    for plain in (True, False):
        model = network()
        optimizer = Momentum(weights(model), every=2)
        eager_step(model, optimizer)  # after which it has its momentum
        batches = [(X[:size], Y[:size]) for size in (12, 12, 5, 12, 5, 5, 12)]
        if plain:
            losses.append([])
            for x, y in batches:
                optimizer.zero_grad()
                loss = mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        else:
            with girih.fit(model, mse_loss, optimizer, batches[0]) as train:
                losses.append([train(*batch) for batch in batches])
                assert len(train.plans) == 2
            assert optimizer.count == 8
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Momentum, r"begins its state 'momentum' of '0.weight' with what it computes.*by plain PyTorch"),
        (Reading, r"test_fit_optimizers.py:\d+: `if parameter.grad is not None and .*` of Reading needs a number"),
        (torch.optim.LBFGS, "LBFGS computes the loss by itself.*closure"),
    ],
)
def test_what_cannot_be_traced_is_refused_by_its_line(make: Any, words: str) -> None:
    model = network()
    optimizer = make(model.parameters(), lr=0.01)
    before = optimizer.state_dict()
    with pytest.raises(girih.CaptureError, match=words):
        girih.fit(model, mse_loss, optimizer, (X, Y))
    assert optimizer.state_dict() == before
    assert [id(item) for item in optimizer.param_groups[0]["params"]] == [id(item) for item in model.parameters()]


def test_a_plan_alone_does_not_run_an_optimizers_code() -> None:
    model = network()
    step = girih.TrainingStep(model, loss=mse_loss, optimizer=Counting(model.parameters()))
    plan = girih.plan(step, (X, Y), machine="local:1", compare=())
    with plan.start(backend="threads") as run, pytest.raises(girih.PlanError, match=r"own code.*girih\.fit"):
        run.step(X, Y)
