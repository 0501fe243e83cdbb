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
            "dtensor": {"for_engine": "dtensor"}}  # fmt: skip
    plans = {name: planned(program, **options) for name, options in ways.items()}
    for name, plan in plans.items():
        plan.export("dtensor").save(tmp_path / f"{name}.placements.json")
    shutil.copy(dtensor_apply.__file__, tmp_path)
    script = Path(shutil.copy(program.__file__, tmp_path))
    forked_ranks(script, 2, str(tmp_path))
    seen = json.loads((tmp_path / "seen.json").read_text())
    module = program.model()
    expected = program.losses(module, *program.batch())
    for name, plan in plans.items():
        torch.testing.assert_close(seen[name]["losses"], expected, rtol=1e-6, atol=0)
        assert seen[name]["calls"][0] == seen[name]["calls"][1]  # CommDebugMode's
        for key, tensor in module.state_dict().items():
            torch.testing.assert_close(torch.tensor(seen[name]["state"][key]), tensor, rtol=1e-5, atol=1e-6)
        if name in ("megatron", "data"):
            assert seen[name]["bytes"] == int(plan.bytes_received.sum())


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
        different = plan.export("dtensor").different
        assert not [line for line in different if "chunks" in line]
        assert (objective == "time") or any("mse_loss" in line for line in different)
    for options, word in (({"for_engine": "nccl"}, "expected dtensor"), ({"search": "data"}, "leave search=data out")):
        with pytest.raises(girih.PlanError, match=word):
            girih.plan(step, batch, compare=(), **{"for_engine": "dtensor", **options})


@pytest.mark.parametrize(("layout", "word"), [("S0[3:1]", "stated lengths"), ("S0@1", "some devices only")])
def test_what_dtensor_cannot_say_is_refused(program: ModuleType, layout: str, word: str) -> None:
    plan = planned(program, search="data")
    layouts = {**plan.strategy.layouts, "p.0.weight": parse_sharding(layout)}
    object.__setattr__(plan.strategy, "layouts", layouts)
    with pytest.raises(girih.PlanError, match=rf"'0.weight'.*{word}.*for_engine='dtensor'"):
        export_dtensor(plan)


def test_what_dtensor_does_otherwise_is_named() -> None:
    module = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3))
    pooled = nn.Sequential(nn.Conv2d(1, 1, 1), *module)
    step = girih.TrainingStep(
        pooled, loss=nn.functional.cross_entropy, optimizer=torch.optim.SGD(pooled.parameters(), 0.1)
    )
    batch = torch.randn(4, 1, 4, 4), torch.randint(3, (4,))
    plan = girih.plan(step, batch, machine="local:2", objective="bytes", compare=(), search="data")
    told = "\n".join(plan.export("dtensor").different)
    assert "no rule for aten.avg_pool2d_backward" in told
    assert "mean of the ranks' means" in told
