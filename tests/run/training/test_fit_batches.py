"""Batches as loaders and processors give them, in any container and of any size, train as in PyTorch or are refused."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import girih

Pair = namedtuple("Pair", "x labels")
Step = Callable[[Any, Any], Any]


class Processed(UserDict[str, Any]):
    """As the `BatchEncoding` of `transformers`: its items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name not in vars(self).get("data", ()):
            raise AttributeError(name)
        return self.data[name]


@dataclass(frozen=True)
class Rows:
    x: torch.Tensor
    labels: torch.Tensor


@dataclass
class Nested:
    rows: Rows
    weights: dict[str, torch.Tensor]


class Table(dict[str, Any]):
    """A mapping of a library's own."""


class Model(torch.nn.Module):
    """Gives its own loss, as the models of `transformers` do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.last(self.norm(self.first(x).relu()).mean(1))
        return {"loss": None if labels is None else cross_entropy(logits, labels), "logits": logits, "kind": "own"}


def batch(rows: int = 6, length: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, 6, generator=generator), torch.randint(5, (rows,), generator=generator)


def model_and_optimizer() -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Model()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def plain(step: Step, batches: list[Any], clip: Callable[[Any], Any] = lambda parameters: None) -> list[float]:
    model, optimizer = model_and_optimizer()
    losses = []
    for item in batches:
        optimizer.zero_grad()
        loss = step(model, item)
        loss.backward()
        clip(model.parameters())
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_name(model: Any, batch: Any) -> Any:
    return model(**batch)["loss"]


def by_attribute(model: Any, batch: Any) -> Any:
    return model(batch.x, batch.labels)["loss"]


CONTAINERS: dict[str, tuple[Callable[..., Any], Step]] = {
    "dict": (lambda x, y: {"x": x, "labels": y}, by_name),
    "UserDict": (lambda x, y: Processed({"x": x, "labels": y}), by_name),
    "UserDict's attributes": (lambda x, y: Processed({"x": x, "labels": y}), by_attribute),
    "mapping proxy": (lambda x, y: MappingProxyType({"x": x, "labels": y}), by_name),
    "a dict of one's own": (lambda x, y: Table(x=x, labels=y), by_name),
    "named tuple": (Pair, by_attribute),
    "data class": (Rows, by_attribute),
    "data class in a data class": (
        lambda x, y: Nested(Rows(x, y), {"all": torch.ones(len(y))}),
        lambda model, batch: (by_attribute(model, batch.rows) * batch.weights["all"]).mean(),
    ),
    "list": (lambda x, y: [x, (y,)], lambda model, batch: model(batch[0], *batch[1])["loss"]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_batch_in_any_container_is_planned_and_trains_as_in_pytorch(name: str) -> None:
    make, step = CONTAINERS[name]
    batches = [make(*batch(seed=seed)) for seed in range(3)]
    model, optimizer = model_and_optimizer()
    with girih.fit(model, step=step, optimizer=optimizer, batch=batches[0]) as train:
        assert [train(item) for item in batches] == pytest.approx(plain(step, batches), rel=1e-5)


@pytest.mark.parametrize("memory", [None, "6KB"])
def test_other_sizes_are_planned_when_they_come_and_share_the_state(memory: str | None) -> None:
    """A short last batch in two epochs, and longer sequences: a plan each, made once."""
    sizes = [(6, 4), (1, 4), (6, 4), (5, 7), (1, 4)] if memory is None else [(6, 4), (1, 4), (6, 4), (1, 4)]
    batches = [dict(zip(("x", "labels"), batch(*size, seed), strict=True)) for seed, size in enumerate(sizes)]
    model, optimizer = model_and_optimizer()
    with girih.fit(model, optimizer=optimizer, batch=batches[0], memory=memory) as train:
        assert [train(**item) for item in batches] == pytest.approx(plain(by_name, batches), rel=1e-5)
        assert [dict(found)["x"][:2] for found in train.plans] == list(dict.fromkeys(sizes))
        assert all(plan.memory is None or plan.peak <= plan.memory for plan in train.plans.values())
        assert train.run.steps == len(sizes)
    assert optimizer.state[model.first.weight]["step"] == len(sizes)


def test_random_masks_and_numbers_of_groups_go_on_from_size_to_size() -> None:
    """What is drawn depends on the step alone, and a number that is changed holds under every plan."""

    def step(model: Any, batch: Any) -> Any:
        return cross_entropy(torch.dropout(model(batch[0])["logits"], 0.5, True), batch[1])

    losses = []
    for between in (False, True):
        model, optimizer = model_and_optimizer()
        with girih.fit(model, step=step, optimizer=optimizer, batch=batch(6)) as train:
            train(*batch(6))
            if between:
                train(*batch(3, seed=1))
            else:
                train(*batch(6, seed=1))
            optimizer.param_groups[0].update(weight_decay=0.5, lr=0.0)
            model.load_state_dict(model_and_optimizer()[0].state_dict()) if train.module is model else None
            losses.append([train(*batch(6, seed=2)) for _ in range(2)])
            assert train.plan.memory is None
            assert len(train.plans) == 1 + between
    assert losses[0] == losses[1]


def test_micro_batches_of_a_short_batch_are_fewer() -> None:
    batches = [batch(size, seed=size) for size in (6, 4, 1)]
    step: Step = lambda model, batch: model(*batch)["loss"]  # noqa: E731
    model, optimizer = model_and_optimizer()
    with girih.fit(model, step=step, optimizer=optimizer, batch=batches[0], micro_batches=3) as train:
        assert [train(*item) for item in batches] == pytest.approx(plain(step, batches), rel=1e-5)


def test_too_many_sizes_are_refused_and_the_loop_goes_on() -> None:
    model, optimizer = model_and_optimizer()
    with girih.fit(model, optimizer=optimizer, batch=batch(4), sizes=2) as train:
        train(*batch(4))
        train(*batch(3))
        for _ in range(2):
            with pytest.raises(
                girih.PlanError, match=r"0 \[2, 4, 6\] 1 \[2\].* 2 other sizes.*drop_last=True.*buckets"
            ):
                train(*batch(2))
        assert train.run.steps == 2
        assert train(*batch(4)) > 0


def test_sequences_are_filled_up_to_a_few_lengths() -> None:
    def step(model: Any, batch: Any) -> Any:
        logits = model.last(model.first(batch["x"]))
        return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)

    batches = []
    for seed, length in enumerate((3, 4, 6, 9, 2)):
        x, _ = batch(4, length, seed)
        batches.append(Processed({"x": x, "labels": x.argmax(-1) % 5}))
    model, optimizer = model_and_optimizer()
    filled = {"x": 0.0, "labels": -100}
    with girih.fit(model, step=step, optimizer=optimizer, batch=batches[0], pad=filled, buckets=(4, 8)) as train:
        assert [train(item) for item in batches] == pytest.approx(plain(step, batches), rel=1e-5)
        assert [dict(sizes)["labels"] for sizes in train.plans] == [(4, 4), (4, 8), (4, 9)]
    with pytest.raises(girih.PlanError, match="pad= names 'input_id', and the batch has"):
        girih.fit(model, step=step, optimizer=optimizer, batch=batches[0], pad={"input_id": 0.0}, buckets=(4, 8))
    with pytest.raises(girih.PlanError, match="pad= and buckets= go together"):
        girih.fit(model, step=step, optimizer=optimizer, batch=batches[0], pad=filled)
    with pytest.raises(girih.PlanError, match="'labels', which has no dimension 1"):
        girih.fit(model, optimizer=optimizer, batch={"x": x, "labels": x[:, 0, 0]}, pad=filled, buckets=(4, 8))


def test_what_else_a_step_gives_comes_back_in_its_nesting() -> None:
    batches = [batch(size, seed=size) for size in (6, 6, 2)]
    given = (
        lambda model, batch: (model(*batch)["loss"], {"of": model(*batch)["logits"].argmax(-1), "n": 3}),
        lambda model, batch: model(*batch),
    )
    expected = plain(lambda model, batch: model(*batch)["loss"], batches)
    for step in given:
        model, optimizer = model_and_optimizer()
        with girih.fit(model, step=step, optimizer=optimizer, batch=batches[0]) as train:
            for item, loss in zip(batches, expected, strict=True):
                twin = train.module(*item)
                own = train(*item)
                if isinstance(own, dict):
                    assert own["loss"] == pytest.approx(loss, rel=1e-5)
                    torch.testing.assert_close(own["logits"], twin["logits"])
                    assert own["kind"] == "own"
                else:
                    assert own[0] == pytest.approx(loss, rel=1e-5)
                    assert own[1]["n"] == 3
                    assert own[1]["of"].equal(twin["logits"].argmax(-1))


@pytest.mark.parametrize(
    ("options", "clip"),
    [
        ({"clip_grad_norm": 0.05}, lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.05)),
        ({"clip_grad_value": 0.002}, lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 0.002)),
    ],
)
def test_gradients_are_clipped_as_in_pytorch(options: dict[str, float], clip: Any) -> None:
    batches = [dict(zip(("x", "labels"), batch(seed=seed), strict=True)) for seed in range(3)]
    model, optimizer = model_and_optimizer()
    with girih.fit(model, optimizer=optimizer, batch=batches[0], **options) as train:
        own = [train(**item) for item in batches]
    assert own == pytest.approx(plain(by_name, batches, clip), rel=1e-5)
    assert own != pytest.approx(plain(by_name, batches), rel=1e-5)


class Opaque:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda item: {**item, "labels": item["labels"].float()}, "labels' is float32"),
        (lambda item: {**item, "x": item["x"][0]}, r"'x' is float32\[4, 6\]"),
        (lambda item: {"x": item["x"]}, r"no tensor at \['labels'\]"),
        (lambda item: {**item, "labels": item["labels"][:2]}, "cannot be planned.*drop_last"),
    ],
)
def test_what_is_no_other_size_is_refused(change: Any, words: str) -> None:
    good = dict(zip(("x", "labels"), batch(), strict=True))
    model, optimizer = model_and_optimizer()
    with girih.fit(model, optimizer=optimizer, batch=good) as train:
        first = train(**good)
        with pytest.raises(girih.PlanError, match=words):
            train(**change(good))
        with pytest.raises(girih.PlanError, match="all of a batch by position"):
            train(good["x"], labels=good["labels"])
        assert train(**good) < first


def test_tensors_that_no_one_would_see_are_refused_when_planning() -> None:
    x, labels = batch()
    model, optimizer = model_and_optimizer()
    step: Step = lambda model, batch: model(batch[0], batch[1].tensor)["loss"]  # noqa: E731
    with pytest.raises(girih.CaptureError, match=r"a Opaque at '1'.*in a dictionary"):
        girih.fit(model, step=step, optimizer=optimizer, batch=(x, Opaque(labels)))
    with pytest.raises(girih.PlanError, match="its optimizer and a batch"):
        girih.fit(model, cross_entropy)


def test_arrays_of_another_size_are_refused_by_name() -> None:
    model = torch.nn.Linear(4, 2)
    batch = torch.randn(8, 4), torch.randn(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with girih.fit(model, torch.nn.functional.mse_loss, optimizer, batch) as train:
        train(*batch)
        with pytest.raises(girih.PlanError, match=r"float32\[5, 4\]; the plan was made for"):
            train(*(item[:5].numpy() for item in batch))
        train(*batch)
