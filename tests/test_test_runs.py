"""A run of the tests ends, whatever a test does to its process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OTHERS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_another(number):
    pass
"""
DEATHS = """
import ctypes, os, signal

def test_exits():
    os._exit(3)

def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_hangs_in_compiled_code():
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
"""


def test_tests_whose_process_dies_or_hangs_fail_and_the_others_are_run(tmp_path: Path) -> None:
    """With the options of `make test`."""
    (options,) = re.findall(r"^PYTEST := .* -m pytest (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    for name, text in (("first", OTHERS), ("dying", DEATHS), ("last", OTHERS)):
        (tmp_path / f"tests/test_{name}.py").write_text(text, encoding="utf-8")
    short = ("--override-ini=faulthandler_timeout=5", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), *short], cwd=tmp_path, timeout=200, capture_output=True,
        text=True, env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^worker '\w+' crashed while running 'tests/test_dying.py::(\w+)'", done.stdout, re.MULTILINE)
    assert sorted(failed) == ["test_crashes", "test_exits", "test_hangs_in_compiled_code"], done.stdout
    assert "3 failed, 8 passed" in done.stdout
