"""What is wrong is said before any work; what a terminal has no letters for is written all the same."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import girih
from girih.cli import commands, optimizing, running
from girih.cli.main import main
from girih.run.calibrate import calibrate as calibration

ELSEWHERE = ("nosuch/plan.json", "nosuch/deeper/plan.json")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["plan", "mlp-tiny", "--machine", "local:2", "-o", str(where)]) == 0
    return where


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().err


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes long must not be reached."""

    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("the work began")

    for module, name in (
        (commands, "_program"),
        (commands, "load"),
        (optimizing, "_model"),
        (running.Plan, "start"),
        (calibration, "calibrate"),
    ):
        monkeypatch.setattr(module, name, begun)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "mlp-tiny", "--order", "nosuch"), "no 'nosuch': expected one of auto, captured, early, least"),
        (("plan", "mlp-tiny", "--order", "lest"), "no 'lest': did you mean least?"),
        (("plan", "mlp-tiny", "--order", "depth-first:size=0"), "a whole number of at least 1"),
        (("plan", "mlp-tiny", "--hold", "chain:nosuch=1"), "nosuch"),
        (("plan", "mlp-tiny", "--store", "{plan}"), "cannot be used as a store of costs"),
        (("run", "{plan}", "--measure", "--store", "{plan}"), "cannot be used as a store of costs"),
        (("optimize", "mlp-tiny", "--backends", "eager,moon"), "no back end 'moon'"),
        (("optimize", "mlp-tiny", "--rules", "nosuch.txt"), "nosuch.txt"),
        (("optimize", "mlp-tiny", "-o", "plan.txt"), "expected a name that ends in .pt2"),
        (("ops", "gpt-tiny", "nosuch"), "no model 'nosuch'"),
    ],
)
def test_options_first(
    plan_file: Path, no_work: None, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, err = said(capsys, *(item.format(plan=plan_file) for item in arguments))
    assert code == 2
    assert words in err


def test_arguments_of_plan_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is captured: the step is none."""
    (tmp_path / "store").write_text("none")
    for wrong in ({"order": "nosuch"}, {"hold": "nosuch"}, {"store": tmp_path / "store"}, {"objective": "nosuch"}):
        with pytest.raises(girih.PlanError, match=r"nosuch|cannot be used as a store of costs"):
            girih.plan(None, None, **wrong)  # type: ignore[arg-type]
        with pytest.raises(girih.PlanError, match=r"nosuch|cannot be used as a store of costs"):
            girih.infer(None, None, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ELSEWHERE)
def test_no_folder_is_made_for_a_file(
    plan_file: Path,
    no_work: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("plan", "mlp-tiny", "-o", place),
        ("report", str(plan_file), "-o", place),
        ("trace", str(plan_file), "-o", place),
        ("optimize", "mlp-tiny", "-o", place),
        ("optimize", "mlp-tiny", "--store", place),
        ("rewrite", "rules", "-o", place),
        ("calibrate", "--store", place),
    ):
        code, err = said(capsys, *arguments)
        assert code == 2, arguments
        assert f"{place} cannot be written: there is no folder {Path(place).parent}; make it" in err, arguments
    assert not list(tmp_path.iterdir())


def test_nor_in_python(plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = girih.load(plan_file)
    monkeypatch.chdir(tmp_path)
    for write in (plan.save, plan.report):
        with pytest.raises(girih.PlanError, match=r"plan.json cannot be written: there is no folder nosuch"):
            write("nosuch/plan.json")
    assert not list(tmp_path.iterdir())
    plan.save("plan.json")  # into the folder where we are


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_ascii(plan_file: Path, monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    """Whatever a command says; a locale of C or POSIX has the second way with what cannot be written."""
    for arguments in (
        ["models"],
        ["machines"],
        ["searches"],
        ["holds"],
        ["plan", "mlp-tiny"],
        ["show", str(plan_file), "--tensors"],
        ["show", str(plan_file), "--operators"],
        ["show", str(plan_file), "--memory"],
        ["run", str(plan_file), "--backend", "threads", "--steps", "1", "--verify", "--measure"],
        ["compare", str(plan_file)],
        ["simulate", str(plan_file)],
    ):
        written = io.BytesIO()
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(sys, stream, io.TextIOWrapper(written, encoding="ascii", errors=errors))
        assert main(arguments) == 0, arguments
        sys.stdout.flush()
        assert written.getvalue()


def test_ascii_as_users_meet_it(plan_file: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "girih", "show", str(plan_file)]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"(2 ? CPU process, mesh 2)" in done.stdout
