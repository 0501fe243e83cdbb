"""Verification finds what is wrong, and blames rounding for nothing else."""

from __future__ import annotations

import pytest
import torch
from run_programs import program_of

from girih.layout import Mesh
from girih.run.training.session import start
from girih.run.training.verify import Verifier, coarsest_type, difference, verify


@pytest.fixture
def run(example):
    with start(program_of(example.graph, Mesh((2,)), 3), backend="threads", state=example.state) as run:
        yield run


def test_a_right_run(example, run):
    reports = verify(run, [example.batch] * 2, example.scalars)
    assert all(report.ok for report in reports)
    assert [report.loss for report in reports] == pytest.approx(example.losses[:2])
    assert len(reports[0].differences) == 1 + len(example.state)
    assert "step 2: 13 tensors equal those of one device" in str(reports[1])


def test_a_wrong_parameter_is_found(example, run):
    """One element of one worker's part is off by 1e-6."""
    verifier = Verifier(run)
    outputs = run.step(example.batch, example.scalars)
    part = run.crew.services[1].worker.state["p.second.weight"]
    part[(0,) * part.dim()] += 1e-6
    report = verifier.check(example.batch, example.scalars, outputs)
    assert not report.ok
    assert report.worst.name == "second.weight"
    assert [item.name for item in report.differences if not item.ok] == ["second.weight"]
    assert "1 of 13 tensors differ from one device\n  second.weight: 1e-06 >" in str(report)
    again = verifier.check(example.batch, example.scalars, run.step(example.batch, example.scalars))
    assert again.ok  # each step is verified from the run's own state


def test_a_wrong_loss_is_found(example, run):
    verifier = Verifier(run)
    outputs = run.step(example.batch, example.scalars)
    wrong = {name: value + 1e-6 for name, value in outputs.items()}
    assert not verifier.check(example.batch, example.scalars, wrong).ok


def test_steps_in_between_are_noticed(example, run):
    verifier = Verifier(run)
    run.step(example.batch, example.scalars)
    outputs = run.step(example.batch, example.scalars)
    with pytest.raises(ValueError, match="the run was seen after step 0 and is at 2: call `refresh`"):
        verifier.check(example.batch, example.scalars, outputs)
    verifier.refresh()
    assert verifier.check(example.batch, example.scalars, run.step(example.batch, example.scalars)).ok


def test_differences():
    one = torch.ones(3, dtype=torch.float64)
    assert difference("x", one, one).ok
    assert difference("x", one + 1e-12, one).ok
    assert not difference("x", one + 1e-9, one).ok
    assert not difference("x", one * float("nan"), one).ok
    assert difference("x", one * float("nan"), one * float("nan")).ok
    assert difference("x", one * float("inf"), one * float("inf")).ok
    assert not difference("x", one * float("inf"), one).ok
    assert not difference("x", one[:2], one).ok
    assert not difference("x", one * 1e-30, one * 0).ok
    assert difference("x", one * complex("inf"), one * complex("inf")).ok
    assert difference("x", one.float() + 1e-5, one.float()).ok
    assert not difference("x", one.int() + 1, one.int()).ok
    assert difference("x", one[:0], one[:0]).ok


def test_the_coarsest_type_counts(example):
    assert coarsest_type(example.graph) == "float64"
