"""What a plan keeps of the user's program: learning rates of groups, and the keys of the model's state."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import girih
from girih.api import Plan
from girih.capture.torch.settings import OFTEN
from girih.plans.plan import PlanError


class Words(nn.Module):
    """Tied weights, a layer that is never called, a buffer that is kept and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 12)
        self.head.weight = self.words.weight
        self.unused = nn.Linear(3, 3)
        self.register_buffer("kept", torch.ones(8))
        self.register_buffer("derived", torch.arange(8.0), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens) * self.kept + self.derived)


def made() -> tuple[Words, Any, girih.TrainingStep]:
    torch.manual_seed(0)
    model = Words()
    groups = [{"params": [model.words.weight]}, {"params": [model.head.bias], "lr": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    return model, optimizer, girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer)


BATCH = (torch.arange(6), torch.arange(6) + 3)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return girih.plan(made()[2], BATCH, compare=(), objective="bytes")


def test_the_state_has_the_keys_of_the_model(plan: Plan, tmp_path: Path) -> None:
    model, _, _ = made()
    plan.save(tmp_path / "plan.json")
    for chosen in (plan, girih.load(tmp_path / "plan.json")):
        with chosen.start(backend="threads", model=model) as running:
            running.step(*BATCH)
            state = running.state_dict()
        assert list(state) == list(model.state_dict())
        assert torch.equal(state["head.weight"], state["words.weight"])
        Words().load_state_dict(state)


@pytest.mark.parametrize("told", [True, False])
def test_a_scheduler_sets_the_rate_of_each_group(told: bool) -> None:
    model, optimizer, step = made()
    twin = copy.deepcopy(model)
    planned = girih.TrainingStep(twin, loss=cross_entropy, optimizer=torch.optim.SGD(
        [{"params": [twin.words.weight]}, {"params": [twin.head.bias], "lr": 0.5}], lr=0.1
    ))  # fmt: skip
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    own = torch.optim.lr_scheduler.ExponentialLR(planned.optimizer, 0.5)
    losses, wanted = [], []
    with girih.plan(planned, BATCH, compare=(), objective="bytes").start(backend="threads") as running:
        for _ in range(3):
            losses.append(running.step(*BATCH, lr=scheduler.get_last_lr() if told else None))
            own.step()
            optimizer.zero_grad()
            loss = step.forward(model, BATCH)
            loss.backward()
            optimizer.step()
            scheduler.step()
            wanted.append(loss.item())
        state = running.state_dict()
    assert losses == pytest.approx(wanted, rel=1e-6)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor)


def test_a_model_whose_tensors_are_freed_behind_the_start_goes_on() -> None:
    model, _, step = made()
    with girih.plan(step, BATCH, compare=(), objective="bytes").start(backend="threads") as running:
        first = running.step(*BATCH)
        model.to("meta")
        assert running.step(*BATCH) < first


def test_what_changes_at_each_step_and_means_nothing_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    model, _, step = made()
    with girih.plan(step, BATCH, compare=(), objective="bytes").start(backend="threads") as running:
        losses = []
        for number in range(OFTEN + 3):
            losses.append(running.step(*BATCH))
            model.seen = number
    told = [str(item.message) for item in recwarn if "captured again" in str(item.message)]
    assert len(told) == 1
    assert "model.seen" in told[0]
    assert losses[-1] < losses[0]


def test_constants_that_change_between_two_steps_are_refused() -> None:
    _, _, step = made()
    held = {"scale": 1.0}
    scaled = girih.TrainingStep(step.model, loss=lambda *both: cross_entropy(*both) * held["scale"])
    with girih.plan(scaled, BATCH, compare=(), objective="bytes").start(backend="threads") as running:
        first = running.step(*BATCH)
        held["scale"] = 2.0
        with pytest.raises(PlanError, match=r"held changed since the step was planned, .* constant: undo it, or give"):
            running.step(*BATCH)
        held["scale"] = 1.0
        assert running.step(*BATCH) == first


def test_other_weights_for_the_model_than_the_run_has_are_told_of(recwarn: pytest.WarningsRecorder) -> None:
    model, _, step = made()
    with girih.plan(step, BATCH, compare=(), objective="bytes").start(backend="threads") as running:
        running.step(*BATCH)
        model.load_state_dict(running.state_dict())
        running.step(*BATCH)
        assert [item for item in recwarn if "the run started" in str(item.message)] == []
        with torch.no_grad():
            model.head.bias.zero_()
        with pytest.warns(UserWarning, match=r"head\.bias of the model was changed since the run started.*girih\.fit"):
            running.step(*BATCH)


def test_another_number_of_rates_is_refused(plan: Plan) -> None:
    with (
        plan.start(backend="threads") as running,
        pytest.raises(PlanError, match="3 learning rates for 2 of the optimizer's groups"),
    ):
        running.step(*BATCH, lr=[0.1, 0.2, 0.3])


class WithSpare(nn.Module):
    """A parameter that gets no gradients, and so makes no steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.spare = nn.Linear(4, 6), nn.Linear(6, 2), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("planned", ["before", "behind"])
def test_training_goes_on_where_the_optimizer_is(given: bool, planned: str) -> None:
    torch.manual_seed(0)
    model = WithSpare()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    batch = torch.randn(8, 4), torch.randn(8, 2)
    step = girih.TrainingStep(model, loss=nn.functional.mse_loss, optimizer=optimizer)

    def eager() -> float:
        optimizer.zero_grad()
        loss = step.forward(model, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    early = girih.plan(step, batch, compare=(), objective="bytes")
    for _ in range(3):
        eager()
    chosen = early if planned == "before" else girih.plan(step, batch, compare=(), objective="bytes")
    with chosen.start(backend="threads", model=model if given else None) as running:
        losses = [running.step(batch) for _ in range(3)]
    assert losses == pytest.approx([eager() for _ in range(3)], rel=1e-5)


class Scaled(nn.Module):
    """Reads a number and, where there is one, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: float, mask: torch.Tensor | None) -> torch.Tensor:
        made = self.layer(x) * scale
        return (made if mask is None else made * mask).square().mean()


def test_what_is_no_tensor_is_a_constant_and_other_values_are_refused(tmp_path: Path) -> None:
    model = Scaled()
    step = girih.TrainingStep(
        model, step=lambda net, batch: net(**batch), optimizer=torch.optim.SGD(model.parameters())
    )
    batch = {"x": torch.ones(6, 4), "scale": 0.5, "mask": None}
    girih.plan(step, batch, compare=(), objective="bytes").save(tmp_path / "plan.json")
    with girih.load(tmp_path / "plan.json").start(backend="threads", model=model) as running:
        wanted = model(**batch).item()
        assert running.step(batch) == pytest.approx(wanted, rel=1e-6)
        with pytest.raises(PlanError, match=r"0\.25 at 'scale', and the plan was made with 0\.5.*give a tensor"):
            running.step(batch | {"scale": 0.25})
        with pytest.raises(PlanError, match=r"a tensor, \[6, 2\] at 'mask', and the plan was made with None"):
            running.step(batch | {"mask": torch.ones(6, 2)})
        running.step({"x": torch.ones(6, 4)})


def test_items_of_a_batch_with_one_path_are_refused() -> None:
    model = nn.Linear(4, 2)
    step = girih.TrainingStep(model, step=lambda net, batch: net(batch["a/b"] + batch["a"]["b"]).mean())
    with pytest.raises(ValueError, match=r"several items at \['a/b'\]"):
        girih.plan(step, {"a/b": torch.ones(2, 4), "a": {"b": torch.ones(2, 4)}}, objective="bytes")


def test_a_model_of_another_dtype_is_refused(plan: Plan) -> None:
    with pytest.raises(PlanError, match=r"'words\.weight' is float64, in the plan float32: give the model as it was"):
        plan.start(backend="threads", model=made()[0].double())
