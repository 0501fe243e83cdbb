"""Nonsense for every option of every command: exit code 2, a line or two on the error stream, no traceback, no hang."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

import girih
from girih.cli.main import main, parser
from girih.machine import MachineError, machine
from girih.models import example
from girih.partition.searches.exact import Exact
from girih.partition.strategy import SearchError
from girih.run.calibrate.calibrate import calibrate

NUMBERS = ("nan", "inf", "-inf", "-1", "1e400", "9" * 23, "9" * 5000, "", "٣x", "½", "0x10", "1_0_", "many", "--")
NO_ZERO = (*NUMBERS, "0")
NAMES = ("", " ", "\0")
MISSING = (*NAMES, "missing.json", ".", "/dev/null", "x" * 5000, "\N{SNOWMAN}.json", "plan.json/deeper")
MACHINES = (
    *NAMES, "local:", "local:-1", "local:0", "local:1e3", "local:99999999", "local:" + "9" * 23, "local:" + "9" * 5000,
    "0x4", "2x", "x2", "99999x99999", "x".join("2" * 40), "x".join("1" * 400), "9" * 23, "h100-cluster:99999999",
    "p100-cluster:0", "p100-cluster:4/", "missing.yaml", ".yaml", "/dev/null", "nan", "\N{SNOWMAN}", "moon:4",
)  # fmt: skip
MEMORIES = ("", "-1", "-1MB", "0", "nan", "inf", "1e400", "lots", "9" * 23, "9" * 5000, "1.5XB", "½GB", "MB", "1 2MB")
MODELS = (
    *NAMES, "mlp-99999999-99999999", "mlp-" + "9" * 23, "mlp-" + "9" * 5000, "gpt-99999999-64", "gpt-0-64", "gpt--1",
    "gpt-2-99999999", "rnn-4096-4096000", "wresnet-50-99999999", "mlp-tiny@" + "9" * 23, "mlp-tiny@0", "mlp-tiny@-1",
    "mlp-tiny@nan", "moon", "\N{SNOWMAN}", "missing.py:f", ".py:f", "/dev/null", "mlp-" + "-".join(["8"] * 5000),
)  # fmt: skip
UNWRITABLE = (*NAMES, ".", "plan.json/deeper", "x" * 5000, "/dev/null/deeper")
CHOICES = ("", "moon", "\N{SNOWMAN}", "nan")
SEARCHES = (
    *CHOICES, "exact:", "exact:,", "exact:=", "exact:seconds", "exact:seconds=", "exact:seconds=nan",
    "exact:seconds=inf",
    "exact:seconds=-1", "exact:rules=3", "moon:seconds=3", ":", ":seconds=3", "sampled:seed=-1", "sampled:seed=1.5",
    "pipeline-1f1b:chunks=0", "pipeline-1f1b:chunks=" + "9" * 23,
    "sampled:seed=" + "9" * 23, "sampled:seed=" + "9" * 5000, "sampled:guided=2", "sampled:sharpness=nan",
)  # fmt: skip
STORES = (*NAMES, ".", "plan.json", "x" * 5000)  # one that is not there has no measurements

RULES = (
    *MISSING, "a == ", "mm(a, b == c", "moon(a) == a", "mm(a) == a", "mm(a, b, c) == a", "a + b == b", "a == a == a",
    "relu(" * 3000 + "a" + ")" * 3000 + " == a", "a[-1]: relu(a) == a", "a[0]: relu(a) == a", "a[m, m - m]: t(a) == a",
    "a[" + "9" * 23 + "]: relu(a) == a", "a[" + "9" * 5000 + "]: relu(a) == a", "(a, b) == a", "a[1/2]: relu(a) == a",
    "mul(a, other=b**9) == a", "ones(size=(99999999, 99999999)) == ones(size=(99999999, 99999999))",
    "split(a, dim=0)[0] == a", "relu(a, dim=nan) == a", "__import__('os').system('true') == a",
    "a[m], b[n]: mm(a, b) == mm(b, a)", "from_file(filename='plan.json') == a",
)  # fmt: skip

# By command: the arguments that are right, and by option (or position) what is nonsense for it.
NASTY: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "models": ((), {"name": MODELS}),
    "machines": ((), {"name": MACHINES}),
    "searches": ((), {}),
    "holds": ((), {}),
    "plan": (
        ("mlp-tiny", "--no-compare"),
        {
            "model": MODELS, "--batch": NO_ZERO, "--micro-batches": NO_ZERO, "--precision": ("8", "bf17", ""),
            "--machine": MACHINES,
            "--memory": MEMORIES, "--hold": CHOICES, "--order": CHOICES, "--search": SEARCHES, "--objective": CHOICES,
            "--optimizer": CHOICES, "--seconds": NO_ZERO, "--budget": NO_ZERO, "--output": UNWRITABLE, "--store": NAMES,
        },
    ),
    "show": (("plan.json",), {"plan": MISSING, "--device": (*NUMBERS, "2"), "--memory": ()}),
    "run": (
        ("plan.json", "--backend", "threads", "--steps", "1"),
        {
            "plan": MISSING, "--steps": NO_ZERO, "--backend": CHOICES, "--lr": NUMBERS, "--seed": NUMBERS,
            "--save": (*NAMES, "plan.json", "x" * 5000), "--resume": (*NAMES, "missing", "plan.json"),
            "--timeout": NO_ZERO, "--store": NAMES, "--arena": CHOICES, "--program": MODELS,
            "--device": ("", "cpuu", "cuda:x", "cuda:-1", "cuda:" + "9" * 23, "cuda:" + "9" * 5000, "meta", "mps"),
        },
    ),
    "compare": (
        ("plan.json",),
        {
            "plans": MISSING, "--machine": (*MACHINES, "2x2"), "--objective": CHOICES, "--seconds": NO_ZERO,
            "--output": UNWRITABLE, "--store": STORES,
        },
    ),
    "checkpoint": (
        ("import", "plan.json", "new"),
        {"action": CHOICES, "directories": MISSING, "--step": NUMBERS, "--seed": NUMBERS},
    ),
    "calibrate": (
        ("plan.json",),
        {
            "plans": MISSING, "--machine": (*MACHINES, "2x2"), "--backend": CHOICES, "--seconds": NO_ZERO,
            "--store": STORES,
        },
    ),
    "export": (
        ("plan.json", "--output=step.py"),
        {
            "plan": MISSING, "--to": CHOICES, "--output": UNWRITABLE, "--resume": (*NAMES, "missing", "plan.json"),
            "--seed": NUMBERS, "--device": CHOICES,
        },
    ),
    "optimize": (
        ("mlp-tiny", "--backends=eager", "--budget=1"),
        {
            "model": MODELS, "--batch": NO_ZERO, "--threads": NO_ZERO, "--budget": NO_ZERO,
            "--alpha": (*NUMBERS, "0.5"), "--backends": (*CHOICES, ",", "eager,moon"), "--store": STORES,
            "--output": UNWRITABLE, "--search": CHOICES, "--rules": MISSING, "--size": CHOICES,
        },
    ),
    "simulate": (("plan.json",), {"plan": MISSING, "--machine": MACHINES, "--store": STORES}),
    "report": (
        ("plan.json", "-o", "new.html"),
        {"plan": MISSING, "--machine": MACHINES, "--store": STORES, "--output": UNWRITABLE},
    ),
    "trace": (
        ("plan.json", "-o", "new.json"),
        {"plan": MISSING, "--machine": MACHINES, "--store": STORES, "--output": UNWRITABLE},
    ),
    "rewrite": (
        ("prove", "mm(a, b) == mm(b, a)"),
        {"action": CHOICES, "rules": RULES, "--size": NO_ZERO, "--limit": NO_ZERO, "--output": UNWRITABLE},
    ),
    "gnn": (
        ("train", "karate", "--epochs=1"),
        {
            "action": CHOICES, "data": (*MISSING, "moon:vertices=3", "grid:rows=nan,columns=3", "grid:rows=3"),
            "--features": MISSING, "--labels": MISSING, "--vertices": NO_ZERO, "--self-loops": CHOICES,
            "--duplicates": CHOICES, "--network": CHOICES, "--hidden": NO_ZERO, "--layers": NO_ZERO,
            "--heads": (*NO_ZERO, "2"), "--dropout": (*NUMBERS, "1"), "--epochs": NO_ZERO, "--lr": NUMBERS,
            "--weight-decay": NUMBERS, "--every": NO_ZERO, "--seed": NUMBERS, "--machine": MACHINES,
            "--memory": MEMORIES, "--backend": CHOICES, "--save": (*NAMES, "plan.json", "x" * 5000),
            "--resume": (*NAMES, "missing", "plan.json"), "--weights": MISSING, "--pieces": (*NO_ZERO, "2"),
            "--cost": (*NAMES, "edges"), "--order": (*NAMES, "given"), "--output": UNWRITABLE,
        },
    ),
    "ops": ((), {"models": MODELS}),
}  # fmt: skip
FLAGS = {"--json", "--traceback", "--help", "--no-compare", "--tensors", "--operators", "--choice", "--graph",
         "--verify", "--measure", "--again", "--forget", "--fresh", "--trust", "--rewrite", "--z3",
         "--undirected", "--as-parallelized", "--exact"}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nasty")
    assert main(["plan", "mlp-tiny", "--no-compare", "-o", str(where / "plan.json")]) == 0
    return where


def lines_of(command: str, option: str) -> list[list[str]]:
    right, nasty = NASTY[command]
    lines = []
    for value in nasty[option]:
        if option.startswith("--"):
            lines.append([command, *right, f"{option}={value}"])
        elif option == "directories":
            lines += [[command, action, "--", value] for action in ("show", "verify")]
            lines += [[command, action, "--", value, "new"] for action in ("export", "import")]
        elif option == "rules":
            lines.append([command, "prove", "--", value])
        elif option == "data":
            lines.append([command, "info", "--", value])
        else:  # in its place
            lines.append([command, *right[1:], "--", value])
    return lines


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command, (_, nasty) in NASTY.items() for option in nasty]
)
def test_nonsense_is_refused(
    command: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for arguments in lines_of(command, option):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        shown = [item[:60] for item in arguments]
        assert code == 2, f"{shown}: exit code {code}: {said.out[-300:]}{said.err[-300:]}"
        assert said.out == "", shown
        assert 1 <= len(said.err.splitlines()) <= 2, f"{shown}: {said.err[:500]}"
        assert "Traceback" not in said.err


def test_every_option_has_its_nonsense() -> None:
    """What is added to the command line is added here."""
    commands = next(action for action in parser()._actions if action.dest == "command").choices
    assert commands is not None
    for name, command in commands.items():  # type: ignore[attr-defined]
        options = {(action.option_strings or [action.dest])[-0 if not action.option_strings else 0]
                   if not action.option_strings else max(action.option_strings, key=len)
                   for action in command._actions}  # fmt: skip
        assert options - FLAGS == set(NASTY[name][1]), name


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_what_cannot_be_read_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = tmp_path / "hidden.json"
    hidden.write_text("{}")
    hidden.chmod(0)
    assert main(["show", str(hidden)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, "60", True])
def test_the_interface_refuses_seconds_that_are_none(folder: Path, seconds: float, tmp_path: Path) -> None:
    planned = girih.load(folder / "plan.json")
    if seconds != 0.0:  # plans are made in no time, too: by the first answers
        with pytest.raises(SearchError, match="seconds must be a finite number of at least 0"):
            Exact(seconds=seconds)
    with pytest.raises(girih.PlanError, match="timeout must be a finite number of more than 0"):
        planned.start(backend="threads", timeout=seconds)
    if seconds != "60" and seconds is not True:
        with pytest.raises(MachineError, match="budget_seconds must be a finite number of more than 0"):
            calibrate("local:2", store_path=tmp_path / "costs", budget_seconds=seconds)


@pytest.mark.parametrize("name", MACHINES)
def test_the_interface_refuses_machines_that_are_none(name: str) -> None:
    with pytest.raises(MachineError):
        machine(name)


def test_the_interface_refuses_machines_when_planning() -> None:
    with pytest.raises(girih.PlanError, match="at most 1024 processes"):
        girih.plan(None, None, machine="local:99999999", objective="bytes")


def test_the_largest_machines_and_models_are_there() -> None:
    assert machine("local:1024").devices == 1024
    assert machine("512x8").devices == 4096
    assert example("mlp-1048576-10").batch > 0
