"""A run that moves tensors to files, and what may befall it: no directory, a full disk, a death.

It is refused before it starts where that can be known; nothing is left behind; the last checkpoint is whole, and who
goes on from it comes to the same bits.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import forked_programs
import pytest

from girih.api import Plan, plan_graph
from girih.cli.main import main
from girih.cli.programs import program, random_batch
from girih.plans.inputs import program_of
from girih.program import Program
from girih.run.errors import WorkerError
from girih.run.worker.moves import spilled_bytes
from girih.run.worker.worker import Worker

# Resumes a checkpoint and dies of SIGKILL within the copy out of a given number.
DYING = """
import os, signal, sys
from girih.cli.main import main
from girih.run.worker.moves import Copiers

plan, checkpoint, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
copies, out = [], Copiers.out

def dying(self, source, buffer):
    copying = out(self, source, buffer)
    copies.append(buffer)
    if len(copies) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return copying

Copiers.out = dying
main(["run", plan, "--resume", checkpoint, "--steps", "3", "--backend", "threads"])
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    named = program("mlp-tiny", 16, "momentum")
    own = program_of(named.step, named.batch, named.name)
    free = plan_graph(own.graph, machine="local:1", objective="bytes")
    capped = own.in_plan(
        plan_graph(own.graph, machine="local:1", memory=free.peak * 6 // 10, hold="swap", objective="bytes")
    )
    capped = capped.but(state=None)  # a run begins with what its seed says, as from a file
    assert capped.choice.residency
    assert capped.choice.residency[0].home
    return capped


@pytest.fixture(scope="module")
def plan_file(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.save(where)
    return str(where)


@pytest.fixture(autouse=True)
def spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "spill"
    where.mkdir()
    monkeypatch.setenv("GIRIH_SPILL", str(where))
    return where


def run(*arguments: str) -> int:
    return main(["run", *arguments, "--backend", "threads"])


def bits(checkpoint: Path) -> bytes:
    (file,) = checkpoint.glob("*/rank-0.bin")
    return file.read_bytes()


def places(program: Program, worker: Worker) -> int:
    """Bytes of all files that a worker has."""
    assert worker.copiers is not None
    known = [
        *worker.copiers.host.places.values(),
        *(worker.state[name] for name in worker.state if name in program.host),
    ]
    return sum({item.untyped_storage().data_ptr(): item.untyped_storage().nbytes() for item in known}.values())


def test_what_is_asked_of_the_disk_is_what_is_taken(plan: Plan) -> None:
    with plan.start(backend="threads") as running:
        for number in range(3):
            running.step(random_batch(plan, number))
            worker = running.run.crew.services[0].worker
            assert places(plan.program, worker) == spilled_bytes(plan.program, 0)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_directory_that_is_not_there_is_refused_before_anything_starts(
    plan: Plan, plan_file: str, spill: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    spill.rmdir()
    assert main(["run", plan_file, "--backend", backend]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(spill) in line
    assert "there is no such directory: name another directory in GIRIH_SPILL" in line
    spill.write_text("")
    assert main(["run", plan_file, "--backend", backend]) == 2
    assert "it is no directory" in capsys.readouterr().err


def test_a_disk_that_is_too_full_is_refused_before_anything_starts(
    plan: Plan, plan_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = spilled_bytes(plan.program, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda where: SimpleNamespace(free=needed - 1))
    assert run(plan_file) == 2
    assert "are free there: name another directory in GIRIH_SPILL" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "disk_usage", lambda where: SimpleNamespace(free=needed))
    assert run(plan_file, "--steps", "1") == 0


@pytest.mark.parametrize("fault", ["gone", "full"])
def test_a_fault_of_the_disk_under_way_is_named_and_the_checkpoint_is_whole(
    plan: Plan, plan_file: str, spill: Path, tmp_path: Path, fault: str
) -> None:
    kept, whole, after = tmp_path / "kept", tmp_path / "whole", tmp_path / "after"
    assert run(plan_file, "--steps", "3", "--save", str(whole)) == 0
    assert run(plan_file, "--steps", "2", "--save", str(kept)) == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with plan.start(backend="threads", resume=kept) as running:
        if fault == "gone":
            spill.rmdir()
        else:  # to the files of a process that may not grow a disk looks full
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
        try:
            with pytest.raises(WorkerError, match=rf"cannot leave memory for a file in {spill}: .*GIRIH_SPILL"):
                running.step(random_batch(plan, running.steps))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    spill.mkdir(exist_ok=True)
    assert list(spill.iterdir()) == []
    assert main(["checkpoint", "verify", str(kept)]) == 0
    assert run(plan_file, "--resume", str(kept), "--steps", "1", "--save", str(after)) == 0
    assert bits(after) == bits(whole)


@pytest.mark.parametrize("share", [0.1, 0.6, 1.5])
def test_a_death_in_the_middle_of_a_copy_leaves_the_checkpoint_from_which_the_bits_are_the_same(
    plan: Plan, plan_file: str, spill: Path, tmp_path: Path, share: float
) -> None:
    kept, whole, after = tmp_path / "kept", tmp_path / "whole", tmp_path / "after"
    assert run(plan_file, "--steps", "4", "--save", str(whole)) == 0
    assert run(plan_file, "--steps", "2", "--save", str(kept)) == 0
    copies = sum(move.out for move in plan.program.moves)
    command = [sys.executable, "-c", DYING, plan_file, str(kept), str(max(1, int(copies * share)))]
    assert forked_programs.run(command, timeout=120).returncode == -signal.SIGKILL
    assert list(spill.iterdir()) == []
    assert main(["checkpoint", "verify", str(kept)]) == 0
    assert run(plan_file, "--resume", str(kept), "--steps", "2", "--save", str(after)) == 0
    assert bits(after) == bits(whole)


def test_a_worker_that_is_killed_while_it_moves_tensors(plan: Plan, spill: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with plan.start() as running:
        first = running.step(random_batch(plan, 0))
        running.save(kept)
        state = running.state_dict()
        pid = running.run.crew.pids[0]
        os.kill(pid, signal.SIGSTOP)  # so that the step cannot end before
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerError, match="worker 0 was killed by SIGKILL"):
            running.step(random_batch(plan, 1))
    assert list(spill.iterdir()) == []
    with plan.start(resume=kept) as running:
        assert running.steps == 1
        assert all(tensor.equal(state[key]) for key, tensor in running.state_dict().items())
        assert running.step(random_batch(plan, 1)) != first
