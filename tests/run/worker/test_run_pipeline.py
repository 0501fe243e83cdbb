"""Pipelines of 2 and 4 stages, in both orders and divided: results are one device's, bytes and memory as predicted."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from counts import LONG, but_long

import girih
from girih.program import FreeStep
from girih.program.life.accounts import memory_use

MICRO_BATCHES = 8 if LONG else 4


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.wide, self.narrow = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


def training(width: int, rows: int, dtype: torch.dtype, count: int):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(width) for _ in range(4)), torch.nn.Linear(width, 5)).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy
    step = girih.TrainingStep(model, loss=loss, optimizer=optimizer, clip_grad_norm=1.0, micro_batches=count)
    return model, optimizer, step, (torch.randn(rows, width, dtype=dtype), torch.randint(5, (rows,)))


@cache
def planned(machine: str, search: str, *how: object) -> girih.Plan:
    """The plan of `training(*how)`, whose weights are those of every other such model until it is trained."""
    _, _, step, batch = training(*how)
    return girih.plan(step, batch, machine=machine, search=search, objective="seconds", compare=())


DIVIDED = [f"pipeline-1f1b:stages=2,within={within}" for within in ("data", "sharded", "megatron", "exact")]
INTERLEAVED = ["pipeline-1f1b:chunks=2", "pipeline-1f1b:stages=2,chunks=2,within=sharded"]
RUNS = [
    *((machine, backend, search) for machine in ("local:2", "local:4") for backend in ("threads", "processes")
      for search in ("pipeline", "pipeline-1f1b")),
    *(("local:4", "threads", search) for search in DIVIDED),
    ("local:4", "processes", DIVIDED[2]),
    ("local:4", "threads", "stages"),
    ("local:2", "threads", INTERLEAVED[0]),
    ("local:2", "processes", INTERLEAVED[0]),
    ("local:4", "threads", INTERLEAVED[1]),
]  # fmt: skip


BY_OTHERS = [
    ("local:4", "processes", "pipeline"),
    ("local:4", "processes", "pipeline-1f1b"),
    ("local:4", "threads", DIVIDED[1]),
]
"""In threads, on fewer devices, and interleaved they are run in any case."""


@pytest.mark.parametrize(("machine", "backend", "search"), but_long(RUNS, BY_OTHERS))
def test_training_is_one_devices(machine: str, backend: str, search: str) -> None:
    how = (8, 12, torch.float64, 2 if search in INTERLEAVED else 3)
    model, optimizer, _, batch = training(*how)
    plan = planned(machine, search, *how)
    assert (plan.choice.schedule == "interleaved") == (search in INTERLEAVED)
    with plan.start(backend=backend) as run:
        got = [run.step(*batch) for _ in range(3)]
        state = run.state_dict()
        measured = run.statistics()
    assert [item.bytes_received for item in measured] == (3 * plan.bytes_received).tolist()
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())
    assert got == pytest.approx(expected, rel=1e-9)
    for path, tensor in model.state_dict().items():
        torch.testing.assert_close(state[path], tensor, rtol=1e-7, atol=1e-9)


MEASURED = [
    *((machine, search) for machine in ("local:2", "local:4") for search in ("pipeline", "pipeline-1f1b")),
    ("local:4", DIVIDED[2]), ("local:2", INTERLEAVED[0]), ("local:4", INTERLEAVED[1]),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "search"), but_long(MEASURED, MEASURED[:2]))
def test_memory_is_as_predicted(machine: str, search: str) -> None:
    how = (256, 512, torch.float32, MICRO_BATCHES)
    batch = training(*how)[-1]
    plan = planned(machine, search, *how)
    with plan.start() as run:
        measured = run.run.peak_bytes(*run.inputs(batch, None))
    predicted = [memory_use(plan.program, rank).peak for rank in range(plan.machine.devices)]
    assert min(predicted) > 3e6
    assert measured == predicted


@pytest.mark.parametrize("backend", but_long(["threads", "processes"], {"threads"}))
def test_all_orders_have_the_same_bits(backend: str) -> None:
    losses = []
    for search in ("pipeline", "pipeline-1f1b", INTERLEAVED[0]):
        how = (8, 16, torch.float32, MICRO_BATCHES)
        batch = training(*how)[-1]
        with planned("local:2", search, *how).start(backend=backend) as run:
            losses.append([run.step(*batch) for _ in range(3)])
    assert losses[0] == losses[1] == losses[2]


def test_a_measured_step_has_what_each_stage_does() -> None:
    how = (8, 16, torch.float32, MICRO_BATCHES)
    batch = training(*how)[-1]
    plan = planned("local:4", "pipeline-1f1b", *how)
    with plan.start(backend="threads", measure=True) as run:
        run.step(*batch)
        timeline = run.timeline()
    steps = plan.program.steps
    for device in range(4):
        mine = timeline.step[timeline.device == device].tolist()
        assert mine == [at for at in plan.program.order_of(device) if not isinstance(steps[at], FreeStep)]
    predicted = plan.predict().timeline
    for device in range(4):
        assert set(predicted.step[predicted.device == device].tolist()) <= set(plan.program.order_of(device))
