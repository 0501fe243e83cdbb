"""Under torchrun the ranks are the workers of plans, on one host and over two; what cannot be is refused beforehand."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import forked_programs
import pytest
import ranks_program
import torch
import torch.distributed as dist

import girih
from benchmarks.namespaces import INTERFACE, network, refusal
from girih.cli.main import main
from girih.cli.programs import random_batch
from girih.loop import tables
from girih.loop.shared_tables.options import TableError
from girih.run.calibrate.calibrate import calibrate
from girih.run.engines.launcher import Rank, launched_rank

ROOT = Path(__file__).parents[3]
SECONDS = 200.0


@pytest.fixture(scope="module")
def plan() -> girih.Plan:
    return ranks_program.plan(2)


@pytest.fixture(scope="module")
def plan_file(plan: girih.Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.save(where)
    return where


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the first of two, the other of which is not there: whatever is begun would wait for it."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


def surroundings() -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"},
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }


def finished(*running: forked_programs.Program) -> list[str]:
    """What programs print that run at the same time, and all end well."""
    try:
        said = [process.communicate(timeout=SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(err[-3000:] for _, err in said)
    return [out for out, _ in said]


def compared(folder: Path, plan: girih.Plan, rank: int) -> None:
    """Each run on a rank: it had joined the others, and computed its part of what one device computes."""
    losses, state = ranks_program.on_one_device()
    runs = torch.load(folder / f"{rank}.pt")
    runs.pop("over", None)
    for name, seen in runs.items():
        assert seen["group"], name
        assert seen["left"] == (name == "theirs")
        assert seen["losses"] == pytest.approx(losses, rel=1e-5), name
        for path, tensor in state.items():
            torch.testing.assert_close(seen["state"][path], tensor, rtol=1e-5, atol=1e-6)
        if "received" in seen:
            assert seen["received"] == [int(item) * len(losses) for item in plan.bytes_received]
            assert min(seen["received"]) > 0
            assert seen["sent"] > 0


def test_the_ranks_are_the_workers(plan: girih.Plan, plan_file: Path, tmp_path: Path) -> None:
    program = [ranks_program.__file__, str(plan_file), str(tmp_path), ""]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    finished(forked_programs.start([*launcher, *program], surroundings()))
    for rank in range(2):
        compared(tmp_path, plan, rank)


def test_two_hosts(plan: girih.Plan, plan_file: Path, tmp_path: Path) -> None:
    """In Python and by the command line; what a rank receives comes over its host's interface, which nobody names."""
    if why := refusal():
        pytest.skip(f"no hosts as network namespaces here ({why})")
    program = [sys.executable, ranks_program.__file__, str(plan_file), str(tmp_path), INTERFACE]
    with network(2, 1e9) as hosts:
        said, silent = finished(
            *forked_programs.start_ranks(program, 2, surroundings(), networks=hosts.names, host=hosts.addresses[0])
        )
    planned = [ranks_program.COMMAND_STEPS * int(item) for item in plan.bytes_received]
    for rank in range(2):
        compared(tmp_path, plan, rank)
        assert torch.load(tmp_path / f"{rank}.pt")["over"] > planned[rank]
    assert not silent
    told = json.loads(said)
    assert [item["bytes_received"] for item in told["statistics"]] == planned
    with girih.load(plan_file).start(backend="threads") as alone:
        assert told["steps"][0]["loss"] == pytest.approx(alone.step(random_batch(alone.plan, 0)), rel=1e-5)


def test_what_cannot_be_is_refused_before_anything_starts(
    plan: girih.Plan, plan_file: Path, two_ranks: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    four = ranks_program.plan(4)
    four.save(tmp_path / "four.json")
    with pytest.raises(girih.PlanError, match="2 ranks were started, the program is for 4 devices"):
        four.start()
    for options in ([], ["--backend", "torchrun"]):
        assert main(["run", str(tmp_path / "four.json"), *options]) == 2
        assert "2 ranks were started, the program is for 4 devices" in capsys.readouterr().err
    with pytest.raises(girih.PlanError, match="2 ranks, and backend threads would start 2 workers of its own in each"):
        plan.start(backend="threads")
    assert main(["run", str(plan_file), "--backend", "threads"]) == 2
    module = ranks_program.model()
    with pytest.raises(girih.PlanError, match="2 ranks were started, the program is for 1 device:"):
        girih.fit(module, *ranks_program.parts(module), ranks_program.batch(0))
    own = "a launcher has started 2 ranks, and {} would start workers of its own in each of them"
    with pytest.raises(ValueError, match=own.format("girih.cluster")):
        girih.cluster(2)
    with pytest.raises(ValueError, match=own.format("calibrate")):
        calibrate("local:2", store_path=tmp_path / "store")
    with pytest.raises(TableError, match=r"gl.tables\(workers=2\) would start .* leave out workers"):
        tables(2)
    capsys.readouterr()
    for command in ("report", "trace"):
        assert main([command, str(plan_file), "--measure", "-o", str(tmp_path / command)]) == 2
        assert own.format("--measure") in capsys.readouterr().err
    assert not dist.is_initialized()
    assert not list(tmp_path.glob("[!f]*"))


def test_what_every_rank_may_do_by_itself(two_ranks: None) -> None:
    """Nothing is trained, so that the ranks' results cannot fall apart."""
    model = torch.nn.Linear(8, 4).eval()
    x = torch.randn(3, 8)
    with girih.infer(model, x) as answer:
        torch.testing.assert_close(answer(x), model(x))


def test_without_a_launcher(
    plan: girih.Plan, plan_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "backend torchrun: no launcher has started this process"
    with pytest.raises(girih.PlanError, match=why):
        plan.start(backend="torchrun")
    assert main(["run", "no-such-file.json", "--backend", "torchrun"]) == 2
    assert why in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")  # some programs set it alone: this is no rank of several, and is not silent
    assert launched_rank() is None
    assert main(["run", str(plan_file), "--backend", "threads", "--steps", "1"]) == 0
    assert "loss" in capsys.readouterr().out
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "3")
    assert launched_rank() == Rank(1, 3)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match="RANK and WORLD_SIZE in the environment must be whole numbers"):
        launched_rank()
