"""`plan.export("dtensor")`: placements by which PyTorch's DTensor trains a module as one device does, without girih."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from exported import forked_ranks
from torch import nn

import girih
from girih.layout import parse_sharding
from girih.run.export import dtensor_apply
from girih.run.export.dtensor import DTensorExport, export_dtensor


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "dtensor_apply", dtensor_apply)
    import dtensor_program

    return dtensor_program


def planned(program: ModuleType, **options: object) -> girih.Plan:
    module = program.model()
    loss, optimizer = nn.functional.cross_entropy, torch.optim.SGD(module.parameters(), 0.1, 0.9)
    step = girih.TrainingStep(module, loss=loss, optimizer=optimizer)
    given = {"machine": "local:2", "objective": "bytes", "compare": (), **options}
    return girih.plan(step, program.batch(), **given)


def test_dtensor_trains_by_a_plans_placements(program: ModuleType, tmp_path: Path) -> None:
    """Losses and weights are one device's. Of Megatron's division and of data parallelism the bytes are the plan's."""
    ways = {"megatron": {"search": "megatron"}, "data": {"search": "data"}, "sharded": {"search": "sharded"},
            "dtensor": {"for_engine": "dtensor"}, "calls": {"search": "exact:space=apart"}}  # fmt: skip
    plans = {name: planned(program, **options) for name, options in ways.items()}
    exported = {name: plan.export("dtensor") for name, plan in plans.items()}
    assert {name for name, item in exported.items() if item.fully_sharded} == {"sharded"}
    assert {name for name, item in exported.items() if item.calls} == {"calls"}
    assert all(exported[name].received <= exported[name].planned for name in ("dtensor", "calls"))  # type: ignore[operator]
    for name, item in exported.items():
        item.save(tmp_path / f"{name}.placements.json")
    shutil.copy(dtensor_apply.__file__, tmp_path)
    script = Path(shutil.copy(program.__file__, tmp_path))
    forked_ranks(script, 2, str(tmp_path))
    seen = json.loads((tmp_path / "seen.json").read_text())
    for name, far in seen["same as whole"].items():
        assert max(far) < 1e-6, name
    module = program.model()
    expected = program.losses(module, *program.batch())
    for name, plan in plans.items():
        torch.testing.assert_close(seen[name]["losses"], expected, rtol=1e-6, atol=0)
        assert seen[name]["calls"][0] == seen[name]["calls"][1]  # CommDebugMode's
        assert seen[name]["bytes"] == exported[name].received
        for key, tensor in module.state_dict().items():
            torch.testing.assert_close(torch.tensor(seen[name]["state"][key]), tensor, rtol=1e-5, atol=1e-6)
        if name in ("megatron", "data"):  # labels in parts: ranks tell each other how many count, in 24 bytes
            assert seen[name]["bytes"] == int(plan.bytes_received.sum()) + 24 * (name == "data")


def test_megatrons_division_is_column_and_row(program: ModuleType) -> None:
    exported = planned(program, search="megatron").export("dtensor")
    assert isinstance(exported, DTensorExport)
    assert [exported.parameters[f"{layer}.weight"].kept for layer in (0, 2, 4, 6)] == [("S0",), ("S1",)] * 2
    assert exported.modules["0"].inputs[0].places == ("R",)
    assert exported.modules["0"].outputs[0].places == ("S1",)
    assert exported.modules["2"].outputs[0].places == ("R",)
    assert (exported.mesh, exported.names, exported.fsdp) == ((2,), ("axis_0",), ())
    assert "0.weight" in str(exported)
    assert "[8, 32] S1" in str(exported)


def test_shards_that_are_gathered_where_they_are_used_are_fsdps(program: ModuleType) -> None:
    exported = planned(program, search="sharded").export("dtensor")
    assert exported.fsdp == ("axis_0",)
    assert all(item.used == ("R",) for item in exported.parameters.values())
    assert set(exported.batch.values()) == {("S0",)}


def test_a_search_for_dtensor_cuts_evenly(program: ModuleType) -> None:
    """16 and 32 are divided by 4, 6 classes are not."""
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6))
    step = girih.TrainingStep(module, loss=nn.functional.mse_loss, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    batch = torch.randn(8, 16), torch.randn(8, 6)
    for objective in ("bytes", "time"):
        plan = girih.plan(step, batch, machine="local:4", objective=objective, compare=(), for_engine="dtensor")
        for name, layout in plan.strategy.layouts.items():
            regions = plan.program.layout_regions(name)
            lengths = {tuple(box) for box in (regions[..., 1] - regions[..., 0]).tolist()}
            assert len(lengths) == 1, (name, str(layout))
            cut = [axis for axis in layout.codes if axis >= 0]
            assert len(cut) == len(set(cut)), (name, str(layout))
        assert not [line for line in plan.export("dtensor").different if "chunks" in line]
    for options, word in (({"for_engine": "nccl"}, "expected dtensor"), ({"search": "data"}, "leave search=data out")):
        with pytest.raises(girih.PlanError, match=word):
            girih.plan(step, batch, compare=(), **{"for_engine": "dtensor", **options})


def test_a_search_for_dtensor_divides_convolutions_by_samples() -> None:
    """As DTensor does. Without, eight channels of eight images are cut, whose weights are fewer than their numbers."""
    module = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.MaxPool2d(2), nn.Flatten())
    step = girih.TrainingStep(module, loss=nn.functional.mse_loss, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    batch, otherwise = (torch.randn(2, 8, 6, 6), torch.randn(2, 8)), "divides convolutions by the batch alone"
    for options, told in (({"search": "exact"}, 1), ({"for_engine": "dtensor"}, 0)):
        plan = girih.plan(step, batch, machine="local:2", objective="bytes", compare=(), **options)
        exported = plan.export("dtensor")
        assert len([line for line in exported.different if otherwise in line]) == told
        assert told or exported.received <= 1.1 * exported.planned
    assert (exported.fully_sharded, exported.gathers_again) == (True, False)


@pytest.mark.parametrize(("layout", "word"), [("S0[3:1]", "stated lengths"), ("S0@1", "some devices only")])
def test_what_dtensor_cannot_say_is_refused(program: ModuleType, layout: str, word: str) -> None:
    plan = planned(program, search="data")
    layouts = {**plan.strategy.layouts, "p.0.weight": parse_sharding(layout)}
    object.__setattr__(plan.strategy, "layouts", layouts)
    with pytest.raises(girih.PlanError, match=rf"'0.weight'.*{word}.*for_engine='dtensor'"):
        export_dtensor(plan)


def test_where_dtensor_fails_a_plan_is_refused() -> None:
    """DTensor has no rule for pooling, which the page teaches it, and none for `unfold`. FSDP2 needs none, unless all
    samples meet in a batch norm."""
    batch = torch.randn(4, 1, 4, 4), torch.randint(3, (4,))
    ways = {"machine": "local:2", "objective": "bytes", "compare": ()}

    def step(*layers: nn.Module) -> girih.TrainingStep:
        module = nn.Sequential(*layers)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        return girih.TrainingStep(module, loss=nn.functional.cross_entropy, optimizer=optimizer)

    pooled = step(nn.Conv2d(1, 1, 1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3))
    assert girih.plan(pooled, batch, search="data", **ways).export("dtensor").received
    unfolded = step(nn.Unfold(2, stride=2), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(girih.PlanError, match=r"DTensor fails in a step of this plan .*im2col"):
        girih.plan(unfolded, batch, search="data", **ways).export("dtensor")
    assert girih.plan(unfolded, batch, for_engine="dtensor", **ways).export("dtensor").fully_sharded
    meeting = step(nn.BatchNorm2d(1), nn.Unfold(2, stride=2), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(girih.PlanError, match=r"DTensor runs no plan of this program: .*im2col"):
        girih.plan(meeting, batch, for_engine="dtensor", **ways)


@pytest.mark.parametrize(
    ("search", "begins"),
    [("pipeline", ("4",)), ("pipeline-1f1b", ("4",)), ("pipeline-1f1b:chunks=2", ("2", "4", "6"))],
)
def test_a_pipeline_runs_by_pytorchs_schedules(
    search: str, begins: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dtensor_apply", dtensor_apply)
    import stages_program

    module = stages_program.model()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, 0.9)
    step = girih.TrainingStep(module, loss=nn.functional.mse_loss, optimizer=optimizer, micro_batches=4)
    x, y = stages_program.batch()
    plan = girih.plan(step, (x, y), machine="local:2", search=search, objective="seconds", compare=())
    exported = plan.export("dtensor")
    assert exported.stages is not None
    assert exported.stages.begins == begins
    assert exported.stages.micro_batches == 4
    assert f"stage {len(begins)} on rank 1 begins with {begins[-1]}" in str(exported)
    exported.save(tmp_path / "stages.json")
    shutil.copy(dtensor_apply.__file__, tmp_path)
    forked_ranks(Path(shutil.copy(stages_program.__file__, tmp_path)), 2, str(tmp_path))
    seen = json.loads((tmp_path / "seen.json").read_text())
    for loss in seen["losses"]:
        optimizer.zero_grad()
        expected = nn.functional.mse_loss(module(x), y)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.item(), rtol=1e-6, atol=0)
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(torch.tensor(seen["state"][name]), tensor, rtol=1e-5, atol=1e-6)


class Skipping(nn.Module):
    """Its last layer reads the first one's result."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.last = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.third(self.second(x)) + x)  # type: ignore[no-any-return]


def test_what_passes_an_interleaved_stage_is_refused() -> None:
    model, batch = Skipping(), (torch.randn(8, 16), torch.randn(8, 16))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = girih.TrainingStep(model, loss=nn.functional.mse_loss, optimizer=optimizer, micro_batches=4)
    options = {"machine": "local:2", "objective": "seconds", "compare": ()}
    plan = girih.plan(step, batch, search="pipeline-1f1b:chunks=2", **options)
    with pytest.raises(girih.PlanError, match="more than one run of layers before it"):
        plan.export("dtensor")
    assert girih.plan(step, batch, search="pipeline-1f1b", **options).export("dtensor").stages is not None
