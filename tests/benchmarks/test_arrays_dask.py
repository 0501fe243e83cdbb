"""The rules by which the comparison with Dask ends: what is not repeated, what is stopped, and what is then said."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from benchmarks import arrays_dask
from benchmarks.array_applications import APPLICATIONS
from benchmarks.arrays_dask import MOST, compared, found_by, measured
from benchmarks.common import Row
from benchmarks.limited import SilentError, answers

CG = next(item for item in APPLICATIONS if item.name == "CG")


def test_a_silent_command_is_killed_with_all_that_it_started() -> None:
    child = "import time; time.sleep(600)"
    text = (
        "import json, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "print('words'); print(json.dumps({'pid': child.pid}), flush=True); time.sleep(600)"
    )
    told = answers([sys.executable, "-c", text], 1.0)
    started = psutil.Process(next(told)["pid"])
    assert started.is_running()
    with pytest.raises(SilentError):
        next(told)
    assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE


def test_a_command_answers_and_fails_with_its_last_words() -> None:
    assert list(answers([sys.executable, "-c", "print('{\"a\": 1}')"], 20.0)) == [{"a": 1}]
    with pytest.raises(RuntimeError, match="ValueError: no such cut"):
        list(answers([sys.executable, "-c", "raise ValueError('no such cut')"], 20.0))


class Told:
    """Stands for the processes: `rows` of the cuts, None for a call that does not end."""

    def __init__(self, rows: dict[Any, Row | None]) -> None:
        self.rows = rows
        self.started: list[str] = []

    def __call__(self, command: list[str], seconds: float, **options: Any) -> Iterator[Row]:
        self.started.append(command[-1])
        cuts = list(self.rows)
        first = next(number for number, cut in enumerate(cuts) if f"False, 3, [{cut!r}" in command[-1])
        for cut in cuts[first:]:
            yield {"begun": 0}
            row = self.rows[cut]
            if row is None:
                raise SilentError("nothing was told")
            yield {"cut": cut, **row}


DONE: Row = {"seconds": 5.0, "bytes": 100, "wrong": ""}


def test_a_cut_that_is_stopped_counts_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told({"auto": DONE, 2: None, 4: None, 8: {"slower": True}, 16: DONE})
    monkeypatch.setattr(arrays_dask, "answers", told)
    rows = found_by("dask", "processes", CG, False, 3)
    assert rows == [
        {"cut": "auto", **DONE},
        {"cut": 2, "over": MOST},
        {"cut": 4, "over": MOST},
        {"cut": 8, "slower": True},
        {"cut": 16, **DONE},
    ]
    assert len(told.started) == 3
    assert "inf" in told.started[0]
    assert "float('5.0')" in told.started[1]  # with which the others are compared


def test_what_is_stopped_with_every_cut_is_at_least_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    mine: Row = {"cut": None, "seconds": 0.5, "bytes": 50, "wrong": ""}
    over = [{"cut": cut, "over": MOST} for cut in ("auto", 2)]
    found = {"girih": [mine], "dask": over, "dask_array": over}
    monkeypatch.setattr(arrays_dask, "found_by", lambda library, *given: found[library])
    rows, wrong, notes = compared(CG, False, 3)
    assert not wrong
    assert [row["ratio"] for row in rows] == [2 * MOST, 2 * MOST]
    assert rows[0]["dask"] == f"> {MOST:g}"
    assert "memory ratio" not in rows[0]
    assert f"CG, dask on threads, cut auto: stopped after {MOST:g} s" in notes
    found["dask"] = [*over, {"cut": 4, **DONE}]  # a cut that ends is faster than those that do not
    rows, _, _ = compared(CG, False, 3)
    assert (rows[0]["dask"], rows[0]["ratio"], rows[0]["memory ratio"]) == (5.0, 10.0, 0.5)


def test_a_slow_cut_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(lambda: time.sleep(0.02), 5, 0, best=0.001) is None
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"begun": 0}, {"begun": 1}]
