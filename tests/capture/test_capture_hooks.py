"""Hooks of parameters change their gradients; those that a plan cannot call are refused."""

from __future__ import annotations

import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import CaptureError, TrainingStep, capture


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 4).double(), torch.randn(8, 2).double()


@pytest.mark.parametrize("clip", [None, 0.1])
def test_hooks_of_parameters(clip: float | None) -> None:
    net = model()
    mask = (torch.arange(24).reshape(6, 4) % 3 > 0).double()
    net[0].weight.register_hook(lambda grad: grad * mask)
    net[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    net[2].bias.register_hook(lambda grad: None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    step = TrainingStep(net, nn.functional.mse_loss, optimizer, clip_grad_norm=clip)
    compare(step, [batch() for _ in range(3)], tolerance=1e-12)


def test_hooks_of_tied_parameters_see_the_whole_gradient() -> None:
    net = model()
    net.append(nn.Linear(2, 6)).append(nn.Linear(6, 2)).double()
    net[4].weight = net[2].weight
    net[2].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    compare(TrainingStep(net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.5)), [batch()], 1e-12)


def test_hooks_behind_the_gradient_are_refused() -> None:
    net = model()
    net[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    step = TrainingStep(net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.5))
    with pytest.raises(CaptureError, match=r"'0\.weight' has hooks behind the accumulation.*use register_hook"):
        capture(step, batch())


def test_a_step_that_was_replaced_is_refused_and_one_that_a_scheduler_counts_is_not() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    torch.optim.lr_scheduler.StepLR(optimizer, 2)
    capture(TrainingStep(net, nn.functional.mse_loss, optimizer), batch())
    step = optimizer.step

    def smaller() -> None:
        for parameter in net.parameters():
            parameter.grad.mul_(0.1)
        step()

    optimizer.step = smaller
    with pytest.raises(CaptureError, match=r"step of this SGD was replaced by .*smaller.*class of your own"):
        TrainingStep(net, nn.functional.mse_loss, optimizer)
