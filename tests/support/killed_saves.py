"""Saves that are killed before, within and after every call of the system that changes files.

Command line: a directory, and N: every Nth call is tried, and those beside the exchange of the old for the new. Prints
as JSON, for each kind of what is there before, the calls that a save makes, and what was found after each kill, with
the number of its call. A program of its own, since it forks, and since it listens to all calls of the interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from saving_programs import run_of, state_of

from girih.run.training import checkpoint, durable
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.dcp import export_dcp

CALLS = ("open", "write", "fsync", "close", "mkdir", "replace", "unlink", "rmdir", "flock")
HEARD = {"open": "open", "os.mkdir": "mkdir", "os.rename": "replace", "os.remove": "unlink", "os.rmdir": "rmdir"}
OLD, NEW, NEXT = 3, 4, 5
KINDS = ("nothing", "old", "first format", "rubbish")
"""What is there before: nothing, a checkpoint, one of girih's first version, or one with what dead savers left."""


class Counting:
    """A module whose calls are counted; `stop` is told of each: before it, with what it is about to do."""

    def __init__(self, module: Any, counter: Counter) -> None:
        self._module = module
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return self._counter.around(name, found) if name in CALLS else found


class Counter:
    """Stops at the call of a number: `before`, `within` (a write of half of it), `after`, or `full` (the disk is)."""

    def __init__(self, number: int, how: str) -> None:
        self.number = number
        self.how = how
        self.seen: list[str] = []
        self.changing: list[str] = []

    def around(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.seen.append(name)
            if name in HEARD.values() and (name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR)):
                self.changing.append(name)
            if len(self.seen) - 1 != self.number:
                return function(*arguments)
            if self.how == "full" and name in ("open", "write", "fsync", "mkdir", "replace"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")
            if self.how == "within" and name == "write":
                function(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if self.how == "after":
                with contextlib.suppress(OSError):
                    function(*arguments)
            if self.how != "full":
                os._exit(9)
            return function(*arguments)

        return call

    def __enter__(self) -> Counter:
        self._own = durable.os, durable.fcntl
        durable.os, durable.fcntl = Counting(os, self), Counting(durable.fcntl, self)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        durable.os, durable.fcntl = self._own


def prepare(goal: Path, kind: str) -> None:
    shutil.rmtree(goal.parent, ignore_errors=True)
    goal.parent.mkdir(parents=True)
    if kind != "nothing":
        run_of(OLD).save(goal)
    if kind == "first format":
        goal.rename(goal.with_name("new"))
        export_dcp(goal.with_name("new"), goal)
        shutil.rmtree(goal.with_name("new"))
    if kind == "rubbish":
        for name in ("state-0123456789ab", "state-ba9876543210"):
            (goal / name).mkdir()
            (goal / name / "rank-0.bin").write_bytes(b"half of it")
        (goal / "girih.json.part").write_text("{")
        (goal / "girih.lock").write_text("")


def found_at(goal: Path) -> int:
    """The step of the whole checkpoint there, 0 if there is none."""
    try:
        manifest = checkpoint.read_manifest(goal)
    except CheckpointError as error:
        if "holds no checkpoint" in str(error):
            return 0
        if "import" in str(error):
            return OLD
        raise
    with checkpoint.Reader(goal, manifest) as reader:
        for path, tensor in state_of(manifest.step).items():
            assert torch.equal(reader.read(path), tensor), path
    return manifest.step


def tidy(goal: Path) -> None:
    names = sorted(item.name for item in goal.iterdir())
    assert names == ["girih.json", checkpoint.read_manifest(goal).folder], names
    assert os.listdir(goal.parent) == [goal.name]


def killed(goal: Path, kind: str, number: int, how: str) -> tuple[int, bool]:
    """What is there after a kill, and whether there was a kill."""
    prepare(goal, kind)
    child = os.fork()
    if child == 0:
        try:
            with Counter(number, how):
                run_of(NEW).save(goal)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), f"{kind}: {how} call {number}: the save failed"
    found = found_at(goal)
    run_of(NEXT).save(goal)
    assert found_at(goal) == NEXT
    tidy(goal)
    return found, status == 9


def full(goal: Path, kind: str, number: int) -> tuple[int, str]:
    """What is there after the disk was full at one call, and what the save said."""
    prepare(goal, kind)
    run = run_of(NEW)
    said = ""
    try:
        with Counter(number, "full"):
            run.save(goal)
    except CheckpointError as error:
        said = str(error)
    found = found_at(goal)
    left = sorted(item.name for item in goal.iterdir()) if goal.exists() else []
    if kind == "old" and said and found == OLD:
        tidy(goal)
    elif kind == "nothing" and said and not found:
        assert left == [], left
    run.save(goal)  # the run goes on
    assert found_at(goal) == NEW
    tidy(goal)
    return found, said


def heard(goal: Path, kind: str) -> list[str]:
    """The calls of one undisturbed save. That none is missed is proved by what the interpreter tells of them."""
    prepare(goal, kind)
    told: list[str] = []
    listening = [True]

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if not listening[0]:
            return
        if event.startswith("shutil."):
            told.append(event)
        if event in HEARD and str(arguments[0]).startswith(str(goal)):
            reads = event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            told.extend(() if reads else (HEARD[event],))

    sys.addaudithook(hear)
    with Counter(-1, "") as counter:
        run_of(NEW).save(goal)
    listening[0] = False
    assert told == counter.changing, (told, counter.changing)
    return counter.seen


def examine(goal: Path, kind: str, every: int) -> dict[str, Any]:
    seen = heard(goal, kind)
    exchange = seen.index("replace")
    tried = [number for number in range(len(seen)) if number % every == 0 or abs(number - exchange) < 2]
    outcomes: dict[str, list[tuple[int, int]]] = {}
    for how in ("before", "within", "after"):
        numbers = [number for number in tried if how != "within" or seen[number] == "write"]
        found = [killed(goal, kind, number, how) for number in numbers]
        assert all(was for _, was in found)
        outcomes[how] = [(number, step) for number, (step, _) in zip(numbers, found, strict=True)]
    return {"seen": seen, "outcomes": outcomes, "full": [full(goal, kind, number) for number in tried]}


def main() -> None:
    torch.set_num_threads(1)
    goal = Path(sys.argv[1]) / "runs" / "saved"
    print(json.dumps({kind: examine(goal, kind, int(sys.argv[2])) for kind in KINDS}))


if __name__ == "__main__":
    main()
