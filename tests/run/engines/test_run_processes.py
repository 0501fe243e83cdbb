"""Processes: the same numbers, the promised bytes and memory; checkpoints across numbers of workers; torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked_programs
import pytest
import torch
from run_programs import Example, is_alive, program_of

from girih.layout import Mesh
from girih.machine import MachineError
from girih.program.life.accounts import memory_use
from girih.run.training.session import start
from girih.run.training.verify import verify

SUPPORT = Path(__file__).resolve().parents[2] / "support"


def test_two_workers_then_four(example, tmp_path):
    """Bytes are exact; a checkpoint of two workers goes on with four, with the numbers of one device."""
    program = program_of(example.graph, Mesh((2,)), 3)
    told = []
    with start(program, state=example.state, seed=5, observe=lambda what, value: told.append((what, value))) as run:
        example.compare(run, 2)
        assert [item.bytes_received for item in run.statistics()] == (2 * program.bytes_received()).tolist()
        run.save(tmp_path / "saved")
        pids = run.crew.pids
    assert [what for what, _ in told] == ["step", "loss", "seconds"] * 2
    assert not any(is_alive(pid) for pid in pids)
    with start(program_of(example.graph, Mesh((2, 2)), 4), resume=tmp_path / "saved") as run:
        assert (run.steps, run.seed) == (2, 5)
        example.compare(run, 1, first=2)
        assert run.steps == 3


def test_gloo_where_memory_is_not_shared(example, monkeypatch):
    monkeypatch.setattr("girih.run.transport.shared.available", lambda: False)
    program = program_of(example.graph, Mesh((2,)), 3)
    with start(program, state=example.state, seed=5) as run:
        assert not run.crew.carries
        example.compare(run, 2)
        assert [item.bytes_received for item in run.statistics()] == (2 * program.bytes_received()).tolist()


@pytest.mark.parametrize("interface", ["nosuch0", "lo,nosuch0"])
def test_gloo_without_an_interface(example, monkeypatch, interface):
    """It is said which variable to set, before anything starts."""
    monkeypatch.setenv("GIRIH_TRANSPORT", "gloo")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    monkeypatch.setattr("girih.run.engines.processes.launch", None)
    said = (
        rf"no network interface .*GLOO_SOCKET_IFNAME={interface} names none.* Set GLOO_SOCKET_IFNAME .*GIRIH_TRANSPORT"
    )
    with pytest.raises(MachineError, match=said):
        start(program_of(example.graph, Mesh((2,)), 3), state=example.state)


def test_three_workers_by_recipe(example):
    """Every worker makes its own part of the first state; verified beside one device."""
    with start(program_of(example.graph, Mesh((3,)), 7), example.initial, seed=1) as run:
        reports = verify(run, [example.batch] * 2, example.scalars)
    assert [report.ok for report in reports] == [True, True], "\n".join(map(str, reports))
    assert len(reports[0].differences) == 1 + len(example.state)


def test_memory_is_as_predicted():
    """Some megabytes: the measured peak is the predicted one, and measuring leaves the state alone."""
    large = Example((256, 512, 512, 256), torch.float32, steps=0)
    program = program_of(large.graph, Mesh((2,)), 2)
    with start(program, state=large.state) as run:
        measured = run.peak_bytes(large.batch, large.scalars)
        state = run.state()
        assert all(torch.equal(state[path], tensor) for path, tensor in large.state.items())
        assert measured == run.peak_bytes(large.batch, large.scalars)
        assert [item.peak_bytes for item in run.statistics()] == measured
    predicted = [memory_use(program, rank).peak for rank in range(2)]
    assert min(predicted) > 4e6
    assert measured == pytest.approx(predicted, rel=0.02)


TORCHRUN = """
import sys, torch
sys.path.insert(0, {tests!r})
from run_programs import Example, is_alive, program_of
from girih.layout import Mesh
from girih.run.engines.launcher import launched_rank
from girih.run.training.session import start
example = Example()
program = program_of(example.graph, Mesh((2,)), 3)
told = []
with start(program, state=example.state, observe=lambda what, value: told.append(what)) as run:
    example.compare(run, 2)
    run.save({directory!r})
    received = [item.bytes_received for item in run.statistics()]
assert received == (2 * program.bytes_received()).tolist()
assert bool(told) == (launched_rank().rank == 0)
"""


def test_ranks_of_a_launcher(example, tmp_path):
    """Every rank is a worker itself; the checkpoint is like any other."""
    script = tmp_path / "train.py"
    script.write_text(TORCHRUN.format(tests=str(SUPPORT), directory=str(tmp_path / "saved")))
    ranks = forked_programs.start_ranks([sys.executable, str(script)], 2, {**os.environ, "OMP_NUM_THREADS": "1"})
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    with start(program_of(example.graph, Mesh((3,)), 0), backend="threads", resume=tmp_path / "saved") as run:
        example.compare(run, 1, first=2)
