"""Lists, `show` and a model that was captured before load neither torch nor SciPy nor Numba."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from girih.cli.main import main
from girih.machine import presets

HEAVY = ("torch", "scipy", "numba")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["plan", "mlp-tiny", "--machine", "local:2", "-o", str(where)]) == 0
    return where


@pytest.mark.parametrize("command", ["models", "machines", "ops", "show PLAN", "show PLAN --json", "plan mlp-tiny"])
def test_a_list_loads_nothing_heavy(command: str, plan_file: Path) -> None:
    arguments = command.replace("PLAN", str(plan_file)).split()
    code = f"""
import sys
from girih.cli.main import main
code = main({arguments!r})
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
raise SystemExit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert done.stdout


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
    from girih.cost.store import Setting, Store

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
