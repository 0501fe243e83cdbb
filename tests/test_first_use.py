"""Lists and `show` load neither torch nor the searches; what they print without torch is what torch would say."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from girih.cli import main
from girih.machine import presets
from girih.model_list import MODELS
from girih.ops.core_list import CORE_OPERATORS, OWN_OPERATORS, VERSION

HEAVY = ("torch", "scipy", "numba", "girih.partition.problem")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["plan", "mlp-tiny", "--machine", "local:2", "-o", str(where)]) == 0
    return where


@pytest.mark.parametrize("command", ["models", "machines", "ops", "show PLAN", "show PLAN --json"])
def test_a_list_loads_nothing_heavy(command: str, plan_file: Path) -> None:
    arguments = command.replace("PLAN", str(plan_file)).split()
    code = f"""
import sys
from girih.cli import main
code = main({arguments!r})
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
raise SystemExit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert done.stdout


def test_the_list_of_models_is_the_catalogues() -> None:
    from girih.models import names

    found = [(item.name, item.pattern, tuple(item.examples), item.description, item.source) for item in names()]
    assert [tuple(vars(item).values()) for item in MODELS] == found


def test_the_lists_of_operators_are_those_of_torch_and_of_the_kernels() -> None:
    from girih.ops.coverage import core_operators
    from girih.ops.kernels import KERNELS

    assert sorted(OWN_OPERATORS) == sorted(KERNELS)
    if version("torch").partition("+")[0] == VERSION:
        assert sorted(CORE_OPERATORS) == sorted(name for name, reason in core_operators().items() if not reason)


@pytest.mark.parametrize("name", ["plan.json", "plan.json.gz"])
def test_show_prints_what_was_kept_only_while_the_plan_is_the_same(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / name
    assert main(["plan", "mlp-tiny", "--machine", "local:2", "-o", str(where)]) == 0
    planned = capsys.readouterr().out.splitlines()[:-1]
    assert main(["show", str(where)]) == 0
    assert capsys.readouterr().out.splitlines() == planned
    from girih.plans import load

    load(where).save(where)  # as the Python interface writes it, without what is shown
    assert main(["show", str(where)]) == 0
    assert capsys.readouterr().out.splitlines() == planned


def test_a_changed_plan_is_loaded_again(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(plan_file.read_text())
    data["shown"]["head"] = "what was kept"
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    assert "what was kept" in capsys.readouterr().out
    data["certificate"]["cost"] += 1
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert main(["show", str(tmp_path / "plan.json")]) == 2
    assert "the certificate says" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["80", None])
def test_each_machine_has_one_line(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(["machines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == ["local:4", "2x4", *(item.name for item in presets().values())]
    assert not columns or max(map(len, lines[:-2])) <= 80


def test_calibrating_says_how_to_undo_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from girih.machine.costs import Setting, Store

    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put_profile("local:2", "processes", Setting("cpu", "torch", 1, 2), "{}", "2026-01-01")
        store.put_profile("local:4", "processes", Setting("cpu", "torch", 1, 4), "{}", "2026-01-01")
    assert main(["calibrate", "--forget", "--machine", "local:2", "--store", str(path)]) == 0
    assert "forgot 1 calibration of local:2" in capsys.readouterr().out
    with Store(path) as store:
        assert [len(store.profile_texts({"machine": name})) for name in ("local:2", "local:4")] == [0, 1]
    assert main(["calibrate", "--forget", "--store", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"store": str(path), "forgotten": 1}
