"""Plans from end to end: made from a user's module, saved, loaded, checked, run, refused."""

from __future__ import annotations

import gc
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import girih
from girih.api import Plan, plan_graph
from girih.layout import parse_sharding
from girih.layout.compiled import Compiled, _Budget
from girih.plans.check import check
from girih.program import Overlap, StartStep
from girih.search.memory.limit import WINDOWS


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(12, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.second = torch.nn.Linear(32, 6)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.norm(self.first(x))))


def training(seed: int = 0, dtype: torch.dtype = torch.float64):
    torch.manual_seed(seed)
    model = Net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer)
    generator = torch.Generator().manual_seed(seed)
    data = [
        (torch.randn(8, 12, generator=generator, dtype=dtype), torch.randint(0, 6, (8,), generator=generator))
        for _ in range(4)
    ]
    return model, optimizer, step, data


def eager_losses(model, optimizer, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def made() -> Plan:
    _, _, step, data = training()
    return girih.plan(step, data[0], machine="local:4", objective="bytes")


@pytest.mark.parametrize("objective", ["bytes", "seconds"])
@pytest.mark.parametrize("machine", ["local:2", "local:3", "local:4"])
def test_training_equals_pytorch(machine: str, objective: str) -> None:
    model, optimizer, step, data = training()
    plan = girih.plan(step, data[0], machine=machine, objective=objective, compare=())
    with plan.start(backend="threads") as run:
        losses = [run.step(x, y) for x, y in data]
        state = run.state_dict()
        received = [item.bytes_received for item in run.statistics()]
    assert losses == pytest.approx(eager_losses(model, optimizer, data), rel=1e-12)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-10, atol=1e-12)
    assert received == [len(data) * int(amount) for amount in plan.bytes_received]


def test_processes_train_the_same_and_the_state_loads_back(made: Plan) -> None:
    model, optimizer, _, data = training()
    with made.start(backend="processes") as run:
        losses = [run.step(x, y) for x, y in data]
        state = run.state_dict()
    assert losses == pytest.approx(eager_losses(model, optimizer, data), rel=1e-12)
    fresh = Net().double()
    fresh.load_state_dict(state)
    torch.testing.assert_close(fresh(data[0][0]), model(data[0][0]), rtol=1e-10, atol=1e-12)


def test_learning_rate_is_an_input(made: Plan) -> None:
    model, optimizer, _, data = training()
    with made.start(backend="threads") as run:
        losses = [run.step(x, y, lr=0.1 / (number + 1)) for number, (x, y) in enumerate(data)]
    expected = []
    for number, (x, y) in enumerate(data):
        optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
        expected += eager_losses(model, optimizer, [(x, y)])
    assert losses == pytest.approx(expected, rel=1e-12)


def test_a_saved_plan_is_the_same_plan(made: Plan, tmp_path: Path) -> None:
    for name in ("plan.json", "plan.json.gz"):
        made.save(tmp_path / name)
        loaded = girih.load(tmp_path / name)
        assert loaded == made
        assert str(loaded) == str(made)
    model, optimizer, _, data = training()
    with girih.load(tmp_path / "plan.json").start(backend="threads", model=model) as run:
        losses = [run.step(x, y) for x, y in data]
    assert losses == pytest.approx(eager_losses(model, optimizer, data), rel=1e-12)


def test_a_loaded_plan_without_a_model_makes_its_own_weights(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    loaded = girih.load(tmp_path / "plan.json")
    _, _, _, data = training()
    with loaded.start(backend="threads", seed=3) as run:
        first = [run.verified_step(x, y) for x, y in data[:2]]
    assert all(item.ok for item in first)
    with loaded.start(backend="threads", seed=3) as run:
        assert run.step(*data[0]) == first[0].loss


def test_saved_training_goes_on_under_another_plan(made: Plan, tmp_path: Path) -> None:
    model, optimizer, step, data = training()
    other = girih.plan(step, data[0], machine="local:2", compare=(), objective="bytes")
    with made.start(backend="threads") as run:
        losses = [run.step(x, y) for x, y in data[:2]]
        run.save(tmp_path / "checkpoint")
    with other.start(backend="threads", resume=tmp_path / "checkpoint") as run:
        assert run.steps == 2
        losses += [run.step(x, y) for x, y in data[2:]]
    assert losses == pytest.approx(eager_losses(model, optimizer, data), rel=1e-12)


def test_certificate_and_program_agree(made: Plan) -> None:
    assert made.gap == 0
    assert made.certificate.cost == made.bytes_received.sum()
    assert {item.name for item in made.baselines} == {"single", "data", "sharded"}
    assert made.baselines[0].bytes == 0
    check(made)


def test_exchanges_overlap_and_the_plan_file_knows_how_far(made: Plan, tmp_path: Path) -> None:
    assert made.choice.overlap == WINDOWS[0]
    assert any(isinstance(step, StartStep) for step in made.program.steps)
    made.save(tmp_path / "plan.json")
    assert len(girih.load(tmp_path / "plan.json").program.steps) == len(made.program.steps)
    data = json.loads((tmp_path / "plan.json").read_text())
    assert data["overlap"] == {"fetch": WINDOWS[0].fetch, "store": WINDOWS[0].store}
    del data["overlap"]  # a plan from before there was overlap
    (tmp_path / "old.json").write_text(json.dumps(data))
    old = girih.load(tmp_path / "old.json")
    assert old.choice.overlap == Overlap()
    assert not any(isinstance(step, StartStep) for step in old.program.steps)
    assert (old.bytes_received == made.bytes_received).all()
    (tmp_path / "old.json").write_text(json.dumps({**data, "overlap": {"fetch": -1}}))
    with pytest.raises(girih.PlanError, match="damaged"):
        girih.load(tmp_path / "old.json")


def test_a_memory_limit_narrows_the_windows_and_refuses_nothing(made: Plan) -> None:
    """Between the peaks without and with overlap, every limit gives a plan that keeps it."""
    search = "exact:space=tofu"
    free = plan_graph(made.graph, machine="local:4", objective="bytes", search=search, compare=())
    peaks = {window: free.but(overlap=window).peak for window in WINDOWS}
    assert peaks[WINDOWS[0]] > peaks[Overlap()]
    for limit in (peaks[Overlap()], (peaks[Overlap()] + peaks[WINDOWS[0]]) // 2, peaks[WINDOWS[0]]):
        plan = plan_graph(made.graph, machine="local:4", memory=limit, objective="bytes", search=search, compare=())
        assert plan.strategy == free.strategy
        assert plan.choice.overlap == next(window for window in WINDOWS if peaks[window] <= limit)
        assert plan.peak <= limit
        check(plan)


def test_inference_gives_the_models_outputs() -> None:
    model, _, _, data = training()
    plan = girih.plan(girih.Inference(model), (data[0][0],), machine="local:2", compare=(), objective="bytes")
    with plan.start(backend="threads") as run:
        (output,) = run.step(data[1][0])
    torch.testing.assert_close(output, model(data[1][0]).detach())


# ------------------------------------------------------------------------------------------- refusals


def test_refused_batches(made: Plan) -> None:
    _, _, _, data = training()
    x, y = data[0]
    with made.start(backend="threads") as run:
        with pytest.raises(girih.PlanError, match=r"'0' is float64\[4, 12\]; the plan was made for float64\[8, 12\]"):
            run.step(x[:4], y[:4])
        with pytest.raises(girih.PlanError, match="no tensor at"):
            run.step({"inputs": x})
        assert run.step(x, y) > 0  # a refusal leaves the run as it was


def test_refused_caps_name_the_smallest_limit_and_its_tensors() -> None:
    _, _, step, data = training()
    with pytest.raises(girih.PlanError, match=r"does not fit 1\.00 KB .*it needs .* bytes.*largest there: "):
        girih.plan(step, data[0], machine="local:2", memory="1KB", hold="none", objective="bytes")
    with pytest.raises(girih.PlanError, match="no amount of memory"):
        girih.plan(step, data[0], machine="local:2", memory="much", objective="bytes")


def test_a_cap_is_kept_or_refused(made: Plan) -> None:
    _, _, step, data = training()
    cap = made.peak - 64
    try:
        plan = girih.plan(step, data[0], machine="local:4", memory=cap, compare=(), hold="none", objective="bytes")
    except girih.PlanError as error:
        assert "does not fit" in str(error)  # noqa: PT017
    else:
        assert plan.peak <= cap
        assert plan.certificate.bound <= plan.certificate.cost


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": "moon:3"}, "no machine 'moon:3'"),
        ({"search": "magic"}, "no search 'magic'"),
        ({"objective": "joy"}, "no objective 'joy'"),
    ],
)
def test_refused_options(options: dict[str, str], message: str) -> None:
    _, _, step, data = training()
    with pytest.raises(girih.PlanError, match=message):
        girih.plan(step, data[0], **options)


def test_refused_files(made: Plan, tmp_path: Path) -> None:
    where = tmp_path / "plan.json"
    with pytest.raises(girih.PlanError, match="there is no file"):
        girih.load(where)
    where.write_text("not json")
    with pytest.raises(girih.PlanError, match="is no plan"):
        girih.load(where)
    made.save(where)
    data = json.loads(where.read_text())
    where.write_text(json.dumps({**data, "girih plan": 99}))
    with pytest.raises(girih.PlanError, match="version 99"):
        girih.load(where)
    where.write_text(json.dumps({**data, "divisions": data["divisions"][:-1]}))
    with pytest.raises(girih.PlanError, match="divisions for"):
        girih.load(where)
    where.write_text(json.dumps({**data, "graph": [line.replace("aten.mm(", "aten.mm(((") for line in data["graph"]]}))
    with pytest.raises(girih.PlanError, match="damaged"):
        girih.load(where)


def test_a_plan_for_another_model_is_refused(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    with pytest.raises(girih.PlanError, match="made for another model"):
        girih.load(tmp_path / "plan.json").start(backend="threads", model=torch.nn.Linear(3, 3))


def test_check_finds_updates_that_lie_otherwise(made: Plan) -> None:
    old, new = next(iter(made.graph.updates.items()))
    layouts = {**made.strategy.layouts, new: parse_sharding("R·R")}
    broken = made.but(strategy=replace(made.strategy, layouts=layouts))
    with pytest.raises(girih.PlanError, match=f"replaces {old} but lies otherwise"):
        check(broken)


def test_one_device_needs_no_transfers(made: Plan) -> None:
    plan = plan_graph(made.graph, machine="local:1", objective="bytes")
    assert plan.bytes_received.sum() == 0
    assert plan.certificate.cost == 0


def test_golden_plan(golden) -> None:
    """The plan of a fixed program, as people read it."""
    _, _, step, data = training()
    plan = girih.plan(step, data[0], machine="2x2", compare=(), objective="bytes")
    from girih.report.tables import operators_table, render, tensors_table

    text = "\n".join([str(plan), render(tensors_table(plan), 160), render(operators_table(plan), 160)])
    golden("plan.txt", re.sub(r" *(\S*test_plans\.py:\d+)? *$", "", text, flags=re.MULTILINE))


def test_a_small_plan_is_the_same_interpreted_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, step, data = training()
    pages = []
    for left in (float("inf"), 0.0):
        for item in [item for item in gc.get_objects() if type(item) is Compiled]:
            monkeypatch.setattr(item, "_machine", None)
        monkeypatch.setattr(_Budget, "left", left)
        girih.plan(step, data[0], machine="local:2").save(tmp_path / "plan.json")
        pages.append((tmp_path / "plan.json").read_text())
    assert pages[0] == pages[1]
