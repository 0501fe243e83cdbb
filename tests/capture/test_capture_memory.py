"""Tensors that share memory, and writes into tensors that no graph knows: refused, where a step would go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import CaptureError, TrainingStep, capture


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 4).double(), torch.randn(8, 2).double()


class Model(nn.Module):
    """Two layers, and what a test makes of them."""

    def __init__(self, change: Callable[[Any], None] = lambda net: None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4).double(), nn.Linear(4, 2).double()
        self.plain = torch.ones(2).double()
        change(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.plain


def step_of(net: nn.Module, loss: Any = nn.functional.mse_loss) -> TrainingStep:
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return TrainingStep(net, loss, torch.optim.SGD(trained, lr=0.1))


def part_of_a_bias(net: Any) -> None:
    net.second.bias = nn.Parameter(net.first.bias.detach()[:2])


def buffer_of_a_weight(net: Any) -> None:
    net.register_buffer("copy", net.first.weight.detach())


def plain_of_a_bias(net: Any) -> None:
    net.plain = net.second.bias.detach()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (part_of_a_bias, r"'second\.bias' shares the memory of 'first\.bias'.*tied weights.*clone\(\)"),
        (buffer_of_a_weight, r"'copy' shares the memory of 'first\.weight'"),
        (plain_of_a_bias, r"neither parameter nor buffer of the model shares the memory of 'second\.bias'"),
    ],
)
def test_shared_memory_is_refused(change: Callable[[Any], None], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(step_of(Model(change)), batch())


def test_memory_that_nobody_changes_may_be_shared() -> None:
    def change(net: Any) -> None:
        both = torch.linspace(0, 1, 6).double()
        net.register_buffer("low", both[:4])
        net.register_buffer("high", both[2:])
        net.second.weight.requires_grad_(False)
        net.register_buffer("frozen", net.second.weight.detach())
        flat = torch.randn(8).double()  # beside each other, as a flattened optimizer has them
        net.first.bias, net.second.bias = nn.Parameter(flat[:4]), nn.Parameter(flat[4:6])

    compare(step_of(Model(change)), [batch() for _ in range(2)], tolerance=1e-12)


class Counted(nn.Module):
    """A loss with a state of its own, which is no part of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()).double())

    def forward(self, made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        self.count[...] += 1
        return (made - wanted).square().mean() * self.count


def penalty(net: Any) -> Callable[..., torch.Tensor]:
    parameters = [*net.parameters()]
    return lambda y: y.square().mean() + sum(item.square().sum() for item in parameters)


def apart(net: Any) -> Callable[..., torch.Tensor]:
    weight = net[0].weight
    return lambda y: y.square().mean() * weight.detach().square().sum()


def running(net: Any) -> Callable[..., torch.Tensor]:
    mean = net[1].running_mean
    return lambda y: y.square().mean() + (y * mean).sum()


def counted(net: Any) -> Callable[..., torch.Tensor]:
    count = net[1].num_batches_tracked
    return lambda y: y.square().mean() * count.item() + int(count.numpy())


@pytest.mark.parametrize("keep", [penalty, apart, running, counted])
def test_what_a_step_has_kept_of_the_model_is_refused_if_it_updates_it(keep: Callable[..., Any]) -> None:
    """Read from a variable of the step's own it would be, in each step, what it was at first."""
    net = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    loss = keep(net)
    step = TrainingStep(net, step=lambda net, x: loss(net(x)), optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(CaptureError, match=r"reads the model's '[01]\.\w+' from a variable of its own"):
        capture(step, torch.randn(8, 4))


def test_what_a_step_has_kept_of_the_model_may_be_read_if_it_stays() -> None:
    net = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    mean = net[1].running_mean
    step = TrainingStep(
        net, step=lambda net, x: (net(x) + mean).sum(), optimizer=torch.optim.SGD(net.parameters(), 0.1)
    )
    compare(step, [torch.randn(8, 4)], 1e-5)


def test_writes_into_other_tensors_are_refused() -> None:
    average = torch.zeros(2).double()

    def averaged(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        average[1:].mul_(0.9)
        return (made - wanted - average).square().mean()

    for loss in (Counted(), averaged):
        with pytest.raises(CaptureError, match=r"test_capture_memory\.py:\d+.* writes into a tensor that is neither"):
            capture(step_of(Model(), loss), batch())
    assert average.tolist() == [0, 0]


def test_tensors_that_a_step_makes_of_numbers_may_be_written() -> None:
    def weighted(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        scales = [torch.tensor([1.0, 2.0]), torch.as_tensor([1.0, 2.0]), torch.Tensor([1.0, 2.0])]
        scales.append(torch.tensor(np.ones(2)))
        for scale in scales:
            scale[0] = 3.0
            scale.mul_(2.0)
        return ((made - wanted) * sum(scales)).square().mean()

    compare(step_of(Model(), weighted), [batch() for _ in range(2)], tolerance=1e-12)


def test_gradients_of_other_parameters_are_left_as_they_were() -> None:
    scale = nn.Parameter(torch.ones(2).double())
    other = nn.Parameter(torch.ones(2).double())
    other.grad = gradient = torch.full((2,), 7.0).double()
    step = step_of(Model(), lambda made, wanted: ((made - wanted) * scale * other).square().mean())
    capture(step, batch())
    assert scale.grad is None
    assert other.grad is gradient
    compare(step, [batch() for _ in range(2)], tolerance=1e-12)
