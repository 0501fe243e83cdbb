"""The command line as a user meets it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked_programs
import pytest

from girih.capture.torch.optimizers import OPTIMIZERS as CAPTURED
from girih.cli.main import OPTIMIZERS, main
from girih.cli.programs import program
from girih.run.training.saving import Saving

OWN = """
import torch, girih

def training():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    return step, (torch.randn(8, 8), torch.randn(8, 4))

def wrong():
    return 3

def data_dependent():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
        def forward(self, x):
            if x.sum() > 0:
                return (x * self.w).sum()
            return x.sum()
    model = Model()
    step = girih.TrainingStep(model, step=lambda m, b: m(b), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return step, torch.randn(3)
"""


def girih(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["plan", "mlp-tiny", "--machine", "local:2", "-o", str(where)]) == 0
    return where


@pytest.mark.parametrize("command", ["models", "machines", "plan", "show", "run", "compare", "ops"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = girih(capsys, command, "--help")
    assert code == 0
    assert "example: girih" in " ".join(out.split())
    assert "--json" in out


def test_a_pipeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = str(tmp_path / "plan.json")
    pipeline = ("plan", "gpt-tiny", "--machine", "local:2", "--search", "pipeline", "--objective", "seconds")
    code, _, err = girih(capsys, *pipeline)
    assert code == 2
    assert "a pipeline needs micro-batches" in err
    assert "`--micro-batches 4`" in err
    assert girih(capsys, *pipeline, "--micro-batches", "4", "-o", where)[0] == 0
    code, out, _ = girih(capsys, "simulate", where, "--store", str(tmp_path / "none"), "--json")
    assert code == 0
    assert all(share > 0.3 for share in json.loads(out)["computing"])
    code, out, _ = girih(capsys, "compare", where)
    assert code == 0
    assert "pipeline" in out
    other = str(tmp_path / "other.json")
    early = ["pipeline-1f1b" if word == "pipeline" else word for word in pipeline]
    assert girih(capsys, *early, "--micro-batches", "4", "--no-compare", "-o", other)[0] == 0
    peaks = [json.loads(girih(capsys, "show", path, "--json")[1])["peak"] for path in (where, other)]
    assert peaks[1] < peaks[0]
    code, out, _ = girih(capsys, "show", other, "--device", "1")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()} == {"compute", "start", "finish", "exchange", "free"}


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = girih(capsys, "models", "--json")
    assert code == 0
    assert {"mlp", "gpt", "llama", "bert", "dlrm", "rnn"} <= {item["name"] for item in json.loads(out)}
    code, out, _ = girih(capsys, "machines")
    assert code == 0
    assert "p2.8xlarge" in out
    code, out, _ = girih(capsys, "models", "mlp-tiny")
    assert "parameters" in out


def test_plan_shows_what_it_promises(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = tmp_path / "plan.json"
    code, out, _ = girih(capsys, "plan", "gpt-tiny", "--machine", "local:4", "--objective", "bytes", "-o", str(where))
    assert code == 0
    assert "gap 0 % (proved)" in out
    assert "one device" in out
    assert str(where) in out
    assert where.exists()
    code, out, _ = girih(capsys, "plan", "mlp-tiny", "--machine", "2x2", "--objective", "seconds", "--json")
    numbers = json.loads(out)
    assert numbers["gap"] == 0
    assert len(numbers["peak"]) == 4
    assert {item["name"] for item in numbers["baselines"]} == {"single", "data", "sharded", "megatron"}


def test_every_optimizer_that_can_be_captured_can_be_chosen() -> None:
    made = {type(program("mlp-tiny", optimizer=name).step.optimizer) for name in OPTIMIZERS}
    assert made == set(CAPTURED)


def test_show(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    for option, expected in (
        ("--tensors", "float32"),
        ("--operators", "aten.mm"),
        ("--graph", "return %"),
        ("--device=1", "compute"),
    ):
        code, out, _ = girih(capsys, "show", str(plan_file), option)
        assert code == 0
        assert expected in out
    code, _, err = girih(capsys, "show", str(plan_file), "--device", "7")
    assert code == 2
    assert "devices 0 to 1" in err


def test_show_memory(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    code, out, _ = girih(capsys, "show", str(plan_file), "--memory")
    assert code == 0
    assert "on device 0 of local:2" in out
    assert "nothing is moved out of the device" in out
    code, out, _ = girih(capsys, "show", str(plan_file), "--memory", "--device", "1", "--json")
    numbers = json.loads(out)
    assert numbers["over_time"]["device"] == 1
    assert numbers["over_time"]["peak"] == max(numbers["over_time"]["used"]) == numbers["peak"][1]
    code, _, err = girih(capsys, "show", str(plan_file), "--tensors", "--device", "1")
    assert code == 2
    assert "leave it, or --tensors" in err


def test_run_verifies(capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path) -> None:
    options = ["--backend", "threads", "--steps", "2", "--verify"]
    code, out, _ = girih(capsys, "run", str(plan_file), *options, "--save", str(tmp_path / "checkpoint"))
    assert code == 0
    assert out.count("same") == 2
    assert "(as planned)" in out
    code, out, _ = girih(capsys, "run", str(plan_file), *options, "--resume", str(tmp_path / "checkpoint"), "--json")
    assert code == 0
    steps = json.loads(out)["steps"]
    assert [row["step"] for row in steps] == [3, 4]
    assert all(row["ok"] for row in steps)


def test_checkpoints_are_looked_into(capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path) -> None:
    """Shown, verified, exported, imported, and resumed from again; damage is exit code 1 or 2, in lines."""
    saved, out, back = (str(tmp_path / name) for name in ("saved", "exported", "back"))
    run = ["run", str(plan_file), "--backend", "threads", "--steps", "1"]
    assert girih(capsys, *run, "--save", saved)[0] == 0
    facts = json.loads(girih(capsys, "checkpoint", "show", saved, "--json")[1])
    assert facts["step"] == 1
    assert facts["tensors"] == len(facts["entries"])
    code, text, _ = girih(capsys, "checkpoint", "show", saved)
    assert code == 0
    assert f"{saved}: step 1, {facts['tensors']} tensors" in text
    assert girih(capsys, "checkpoint", "verify", saved)[1].startswith(f"whole: {saved}: step 1")
    assert girih(capsys, "checkpoint", "export", saved, out)[0] == 0
    code, _, err = girih(capsys, *run, "--resume", out)
    assert code == 2
    assert f"girih checkpoint import {out} NEW" in err
    assert json.loads(girih(capsys, "checkpoint", "import", out, back, "--json")[1])["left_out"] == []
    assert "step   2" in girih(capsys, *run, "--resume", back)[1]
    shard = next(Path(back).glob("*/rank-0.bin"))
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    code, text, _ = girih(capsys, "checkpoint", "verify", back)
    assert code == 1
    assert len(text.splitlines()) == 1
    assert "rank-0.bin is damaged" in text
    code, _, err = girih(capsys, *run, "--resume", back)
    assert code == 2
    assert len(err.splitlines()) == 1
    other = Saving(saved)
    other.begin()
    code, _, err = girih(capsys, *run, "--save", saved)
    other.end()
    assert code == 2
    assert err.splitlines() == [f"girih run: {saved}: another run is saving a checkpoint there: wait for it, or give "
                                "another directory"]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ("local:1", "one device: nothing is exchanged, so there is nothing to overlap"),
        ("local:2", "no device receives anything from another: there is nothing to overlap"),
    ],
)
def test_a_step_without_transfers_says_that_nothing_overlaps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, machine: str, told: str
) -> None:
    where = str(tmp_path / "plan.json")
    options = ["--machine", machine, "--search", "single", "--no-compare", "-o", where]
    assert girih(capsys, "plan", "mlp-tiny", *options)[0] == 0
    code, out, _ = girih(capsys, "simulate", where)
    assert code == 0
    assert told in out
    assert ("nothing" in out.splitlines()[-1]) == (machine == "local:2")  # the column of what is received
    code, out, _ = girih(capsys, "run", where, "--backend", "threads", "--steps", "1", "--measure")
    assert code == 0
    assert told in out
    assert "transfers" not in out
    assert "aten.mm" in out


def test_own_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    where = str(tmp_path / "plan.json")
    assert girih(capsys, "plan", f"{tmp_path / 'own.py'}:training", "-o", where)[0] == 0
    code, out, _ = girih(capsys, "run", where, "--backend", "threads", "--steps", "1", "--verify")
    assert code == 0
    assert "same" in out
    code, _, err = girih(capsys, "plan", f"{tmp_path / 'own.py'}:data_dependent")
    assert code == 2
    assert "own.py:19" in err


def test_a_plan_with_pytorchs_bits_trains_with_its_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, plan = tmp_path / "own.py", str(tmp_path / "exact.json")
    file.write_text(OWN)
    own = f"{file}:training"
    assert girih(capsys, "plan", own, "--machine", "local:1", "--exact", "-o", plan)[0] == 0
    code, out, err = girih(capsys, "run", plan, "--program", own, "--steps", "2", "--verify")
    assert code == 0, err
    assert out.count("largest difference 0.00e+00 ()  same") == 2
    file.write_text(OWN.replace("ReLU", "Tanh"))
    for options, word in (
        ((), "give --program FILE.py:FUNCTION"),
        (("--program", own, "--lr", "0.2"), "leave --lr out"),
        (("--program", own), "is not a plan of"),
    ):
        code, _, err = girih(capsys, "run", plan, *options)
        assert (code, word in err) == (2, True), err


def test_compare(capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "rows.json"
    assert girih(capsys, "plan", "mlp-tiny", "--search", "row", "--no-compare", "-o", str(other))[0] == 0
    code, out, _ = girih(capsys, "compare", str(plan_file), str(other), "--json")
    assert code == 0
    exact, rows = json.loads(out)
    assert exact["cost"] <= rows["cost"]
    assert girih(capsys, "compare", str(plan_file), str(other))[0] == 0


def test_ops_counts(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = girih(capsys, "ops", "mlp-tiny", "--json")
    assert code == 0
    rows = json.loads(out)
    assert all(row["described"] <= row["total"] for row in rows)
    assert all(row["described"] >= 0.95 * row["total"] for row in rows)


def test_ranks_of_a_launcher_run_a_plan(plan_file: Path) -> None:
    """The first speaks for all. `run/engines/test_run_ranks.py` does the same under torchrun itself."""
    command = [sys.executable, "-m", "girih", "run", str(plan_file), "--steps", "1", "--verify"]
    ranks = forked_programs.start_ranks(command, 2, {**os.environ, "OMP_NUM_THREADS": "1"})
    said = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert [out.count("same") for out, _ in said] == [1, 0]
