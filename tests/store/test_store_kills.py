"""What is kept is there whole at any moment, whoever dies while it is written: for every face at every call."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import forked_programs
import pytest
from counts import LONG

SUPPORT = Path(__file__).resolve().parents[1] / "support"
NEW = 4
EVERY = 1 if LONG else 5
"""Every so many calls of a save are tried."""
TRAINING = ("training: nothing", "training: old")
FURTHER = ("training: first format", "training: rubbish")
OTHERS = ("tiles", "loops", "tables", "plans")


@cache
def outcomes(*names: str) -> Any:
    """What `killed_saves.py` found, in memory where there is such a folder: thousands of syncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        paths = [str(SUPPORT.parent.parent), str(SUPPORT)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SUPPORT / "killed_saves.py"), folder, str(EVERY), *names]
        done = forked_programs.run(command, environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("names", [TRAINING, FURTHER, OTHERS], ids=["training", "training, further", "others"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new(names: tuple[str, ...]) -> None:
    """The program itself compares all numbers, saves again, and looks for rubbish. Before a call is behind the one
    before it; behind whole writes, the exchange and the last call of all it is tried too."""
    for found in outcomes(*names).values():
        seen, before = found["seen"], found["before"]
        assert {"open", "write", "fsync", "close", "replace"} <= set(seen)
        exchange = len(seen) - 1 - seen[::-1].index("replace")  # until then nothing names the new
        assert found["outcomes"]["before"]
        for number, step in (*found["outcomes"]["before"], *found["outcomes"]["within"]):
            assert step == (NEW if number > exchange else before), number
        after = dict(found["outcomes"]["after"])
        assert {exchange, len(seen) - 1} < set(after)
        assert {seen[number] for number in after} >= {"write", "replace"}
        for number, step in after.items():
            assert step == (NEW if number >= exchange else before), number


@pytest.mark.parametrize("names", [TRAINING, OTHERS], ids=["training", "others"])
def test_a_full_disk_is_said_and_the_old_is_there(names: tuple[str, ...]) -> None:
    for name, found in outcomes(*names).items():
        told = 0
        for step, said in found["full"]:
            assert "\n" not in said
            assert step == NEW or "No space left on device" in said
            if "what was there before is whole" in said or (name in OTHERS and step != NEW):
                assert step == found["before"]
                told += 1
        # What is one file has four calls that a full disk fails: open, write, fsync and the exchange.
        assert told >= ceil((16 if name in TRAINING else 4) / EVERY)
