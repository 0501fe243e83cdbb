"""A cache of compiled loops on disk survives an update of the program that renames what the loops work on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forked_programs

ROOT = Path(__file__).resolve().parents[2]
LOOPS = """
from typing import NamedTuple

import numpy as np

from girih.layout.compiled import compiled


class Table(NamedTuple):
    numbers: np.ndarray


@compiled()
def total(table):
    sum = 0
    for number in table.numbers:
        sum += number
    return sum


print(total(Table(np.arange(10))))
"""


def run(folder: Path, program: str) -> str:
    (folder / "loops.py").write_text(program)
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))}
    done = forked_programs.run([sys.executable, "-c", "import loops"], surroundings, timeout=120, new=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_class_that_is_renamed(tmp_path: Path) -> None:
    assert run(tmp_path, LOOPS) == "45"
    assert list((tmp_path / "__pycache__").glob("*.nbi"))
    assert run(tmp_path, LOOPS.replace("Table", "Column")) == "45"
