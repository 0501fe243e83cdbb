"""The functional updates are torch.optim's, to 1e-12 over several steps in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_eager import advance, check_text, compare, eager_step, first_inputs
from torch import nn

from girih.capture import CaptureError, TrainingStep, capture, state_of
from girih.capture.torch.optimizers import OPTIMIZERS

SGD, ADAM, ADAMW, ADAGRAD = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad
NADAM, ASGD, RPROP = torch.optim.NAdam, torch.optim.ASGD, torch.optim.Rprop
RMSPROP, ADADELTA, ADAMAX, RADAM = torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.RAdam

CASES = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.02, "maximize": True}),
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    (ADAM, {"lr": 0.01}),
    (ADAM, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "eps": 1e-5}),
    (ADAM, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    (ADAMW, {"lr": 0.01}),
    (ADAMW, {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    (ADAGRAD, {"lr": 0.1}),
    (ADAGRAD, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    (RMSPROP, {"lr": 0.01}),
    (RMSPROP, {"lr": 0.01, "momentum": 0.8, "centered": True, "weight_decay": 0.1}),
    (RMSPROP, {"lr": 0.01, "momentum": 0.5, "alpha": 0.7, "eps": 1e-4, "maximize": True}),
    (ADADELTA, {}),
    (ADADELTA, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    (ADAMAX, {"lr": 0.01}),
    (ADAMAX, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "maximize": True}),
    (RADAM, {"lr": 0.01}),
    (RADAM, {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    (RADAM, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (NADAM, {}),
    (NADAM, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
    (NADAM, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (ASGD, {"lr": 0.1, "t0": 4}),
    (ASGD, {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2, "weight_decay": 0.1}),
    (RPROP, {"lr": 0.1}),
    (RPROP, {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (0.05, 0.2), "maximize": True}),
]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def batches(count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    draw = [torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(count)]
    return [(x[:, :4].contiguous(), x[:, 4:].contiguous()) for x in draw]


def mean_square(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_equals_torch(kind: Any, options: dict[str, Any]) -> None:
    net = model()
    compare(
        TrainingStep(net, mean_square, kind(net.parameters(), **options)), batches(9), tolerance=1e-12
    )  # RAdam changes at six


def test_groups_have_rates_of_their_own() -> None:
    net = model()
    groups = [
        {"params": net[0].parameters(), "lr": 0.1, "weight_decay": 0.1},
        {"params": net[2].parameters(), "lr": 0.01},
    ]
    captured = compare(TrainingStep(net, mean_square, ADAM(groups)), batches(3), tolerance=1e-12)
    scalars = [item.path for item in captured.graph.inputs if item.role == "scalar"]
    assert scalars == ["lr/0", "lr/1"]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_continues_from_the_state_that_torch_made(kind: Any, options: dict[str, Any]) -> None:
    net = model()
    step = TrainingStep(net, mean_square, kind(net.parameters(), **options))
    first, second = batches(2)
    eager_step(step, first)
    captured = capture(step, second)
    _, inputs = advance(captured.graph, first_inputs(captured, step) | captured.flatten(second))
    eager_step(step, second)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(inputs[f"p.{name}"], parameter.detach(), rtol=0, atol=1e-12)


def test_few_nodes() -> None:
    net = model()
    counts = {}
    for kind in (SGD, ADAM):
        graph = capture(TrainingStep(net, mean_square, kind(net.parameters())), batches(1)[0]).graph
        counts[kind] = sum(node.phase == "update" for node in graph.nodes)
    assert counts == {SGD: 4, ADAM: 4 * 7 + 9}


def test_frozen_and_unused_parameters_stay() -> None:
    net = model()
    net[0].weight.requires_grad_(False)
    net.spare = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    step = TrainingStep(net, lambda y, t: mean_square(net[0:0](y), t), SGD(net.parameters(), momentum=0.9))
    graph = capture(step, batches(1)[0]).graph
    check_text(graph)
    assert set(graph.updates) == {f"p.{n}" for n in ("0.bias", "2.weight", "2.bias")} | {
        f"s.{n}.momentum" for n in ("0.bias", "2.weight", "2.bias")
    }


def test_without_an_optimizer_the_gradients_leave() -> None:
    net = model()
    captured = capture(TrainingStep(net, mean_square), batches(1)[0])
    assert [output.role for output in captured.graph.outputs] == ["loss"] + ["result"] * 4
    assert set(state_of(TrainingStep(net, mean_square))) == set(net.state_dict())


def test_clip_grad_norm() -> None:
    for greatest in (0.01, 100.0):
        net = model()
        optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
        compare(TrainingStep(net, mean_square, optimizer, clip_grad_norm=greatest), batches(3), 1e-12)


def test_refuses_parameters_of_another_model() -> None:
    with pytest.raises(ValueError, match=r"parameter 0 of the optimizer's group 0.*not one of the model's"):
        TrainingStep(model(), mean_square, SGD(model().parameters(), lr=0.1))


def test_refuses_several_step_counts() -> None:
    net = model()
    step = TrainingStep(net, mean_square, ADAM(net.parameters()))
    eager_step(step, batches(1)[0])
    step.optimizer.state[net[0].weight]["step"] += 1
    with pytest.raises(ValueError, match=r"group 0 are at steps \[1.0, 2.0\]"):
        state_of(step)


def test_hyperparameters_in_tensors() -> None:
    net = model()
    options = {"weight_decay": torch.tensor(0.5), "momentum": torch.tensor(0.75)}
    compare(TrainingStep(net, mean_square, SGD(net.parameters(), lr=0.01, **options)), batches(2), tolerance=1e-12)


def test_hooks_on_the_step_are_refused() -> None:
    net = model()
    optimizer = SGD(net.parameters(), lr=0.1)
    handle = optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(CaptureError, match=r"SGD has hooks on its step.*clip_grad_norm="):
        TrainingStep(net, mean_square, optimizer)
    handle.remove()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    TrainingStep(net, mean_square, optimizer)


class Turned(nn.Module):
    """A complex parameter and, as rotary embeddings have it, a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.view_as_complex(torch.linspace(-1, 1, 16).double().reshape(4, 2, 2)))
        self.register_buffer("turn", torch.polar(torch.ones(2), torch.arange(2.0)).to(torch.complex128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(x.to(self.weight.dtype) @ self.weight * self.turn).square().sum(-1)


@pytest.mark.parametrize(
    "kind", [kind for kind in OPTIMIZERS if kind is not torch.optim.Adafactor], ids=lambda kind: kind.__name__
)
def test_complex_parameters(kind: type) -> None:
    """torch.optim takes the parts of complex numbers for numbers of their own."""
    torch.manual_seed(0)
    net = Turned()
    compare(TrainingStep(net, mean_square, kind(net.parameters(), lr=0.05)), batches(3), tolerance=1e-11)
