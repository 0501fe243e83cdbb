"""The runner of promises: it tells a kept one from one that is broken, and from one that never ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks import promises

KEPT = '"""Nothing is promised."""\n'
BROKEN = '"""Broken."""\nimport sys\nsys.exit("the loss is off by 0.13")\n'
CRASHES = '"""Crashes."""\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n'
HANGS = (
    '"""Hangs, with a child that would go on."""\nimport subprocess, sys, time\n'
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open({path!r}, 'w').write(str(child.pid))\ntime.sleep(60)\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [(KEPT, ""), (BROKEN, "exit code 1: the loss is off by 0.13"), (CRASHES, "exit code -11")],
    ids=["kept", "broken", "crashed"],
)
def test_a_program_tells_whether_its_promise_holds(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text)
    assert promises.run(tmp_path / "program.py", dict(os.environ), seconds=60)["broken"] == said


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HANGS.format(path=str(tmp_path / "child")))
    row = promises.run(tmp_path / "program.py", dict(os.environ), seconds=5)
    assert row["broken"] == "it did not end within 5 s"
    child = Path(f"/proc/{(tmp_path / 'child').read_text()}/stat")
    until = time.monotonic() + 30
    while child.exists() and ") Z " not in child.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert not child.exists() or ") Z " in child.read_text()


def test_every_program_says_what_it_promises() -> None:
    for program in promises.programs(None, quick=False):
        assert promises.promise(program), f"{program.name} has no docstring"


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert promises.BENCHMARK.main(["--only", "nosuch"]) == 1
    assert "no program of benchmarks/promised has that in its name" in capsys.readouterr().out
