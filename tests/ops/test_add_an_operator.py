"""A newcomer's operator, written by docs/add-an-operator.md alone: a moving mean, offered by an entry point."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked_programs
import pytest

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = """
import torch

from girih.ops.operator import operator


@torch.library.custom_op("toy::moving_mean", mutates_args=())
def moving_mean(x: torch.Tensor) -> torch.Tensor:
    return (x[:-2] + x[1:-1] + x[2:]) / 3


@moving_mean.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0] - 2, x.shape[1])


@operator("toy.moving_mean", module="toy_operators")
def described(x):
    return lambda i, j: (x[i, j] + x[i + 1, j] + x[i + 2, j]) / 3
"""
DESCRIBED = """
import sys

import numpy as np
from checking import check_divisions, check_reference, make_case

assert "toy_operators" not in sys.modules
for seed in range(20):
    rng = np.random.default_rng(seed)
    sample = {"x": rng.normal(size=(int(rng.integers(3, 9)), int(rng.integers(1, 5)))).astype("float32")}
    case = make_case("toy.moving_mean", sample, None)
    check_reference(case)
    check_divisions(case, rng)
print("described")
"""
PLANNED = """
import torch

import girih
import toy_operators


class Smooth(torch.nn.Module):
    def forward(self, x):
        return toy_operators.moving_mean(toy_operators.moving_mean(x)).relu()


x = torch.randn(68, 32)
plan = girih.plan(girih.Inference(Smooth()), x, machine="local:2", compare=())
assert {str(division) for division in plan.strategy.divisions} <= {"S0", "S1"}, plan.strategy.divisions
plan.save("plan.json")
with plan.start() as run:
    assert run.verified_step(x).ok
try:
    girih.load("plan.json")
except girih.PlanError as error:
    assert "toy.moving_mean" in str(error) and "trust=True" in str(error), error
else:
    raise AssertionError("it was read without trust")
with girih.load("plan.json", trust=True).start(backend="threads") as run:
    assert run.verified_step(x).ok
print("planned")
"""
TWICE = """
from girih.ops.catalogue import catalogue

try:
    catalogue()
except ValueError as error:
    print(error)
"""


def run(folder: Path, program: str) -> str:
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "tests" / "support")))
    (folder / "program.py").write_text(program)
    done = forked_programs.run(
        [sys.executable, str(folder / "program.py")],
        {**os.environ, "PYTHONPATH": paths},
        timeout=300,
        folder=folder,
        new=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    (tmp_path / "toy_operators.py").write_text(OPERATOR)
    information = tmp_path / "toy-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[girih.operators]\ntoy = toy_operators\n")
    return tmp_path


def test_the_description_is_what_the_operator_computes_whole_and_divided(installed: Path) -> None:
    assert run(installed, DESCRIBED) == "described"


def test_it_is_divided_and_runs_in_workers_that_have_imported_nothing(installed: Path) -> None:
    assert run(installed, PLANNED) == "planned"


def test_an_operator_that_is_described_already_is_refused(installed: Path) -> None:
    (installed / "toy_operators.py").write_text(OPERATOR.replace('operator("toy.moving_mean"', 'operator("aten.mm"'))
    assert run(installed, TWICE) == "aten.mm is described twice; the second time in toy_operators"
