"""Saves that are killed before and within every call of the system that changes files, and after those that matter.

Command line: a directory, N, and names of what is saved (`KEPT`). Every Nth call is tried, and those beside the last
exchange, from which on the new is there. Prints as JSON, for each name, the calls that a save makes, and what was found
after each kill, with the number of its call. A program of its own, since it forks, and since it listens to all calls of
the interpreter.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_plans import small_plan
from saving_programs import run_of, state_of

import girih
import girih.loop as gl
from girih.loop.shared_tables import snapshots
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.store import Update
from girih.loop.shared_tables.server import Server
from girih.run.tiles import checkpoint as tiles
from girih.run.training import checkpoint
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.dcp import export_dcp
from girih.run.worker.worker import Running
from girih.store import durable

CALLS = ("open", "write", "fsync", "close", "mkdir", "replace", "unlink", "rmdir", "flock")
HEARD = {"open": "open", "os.mkdir": "mkdir", "os.rename": "replace", "os.remove": "unlink", "os.rmdir": "rmdir"}
OLD, NEW, NEXT = 3, 4, 5


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


# ------------------------------------------------------------------------------------------- what is kept


class Training:
    """Checkpoints of runs. before: a checkpoint (`old`), nothing, one of girih's first version, or one with what dead
    savers left."""

    failures = (CheckpointError,)
    of_the_dead = re.compile("")

    def __init__(self, before: str) -> None:
        self.before = before
        self.like_another = before in ("first format", "rubbish")  # where the disk is full

    def prepare(self, goal: Path) -> int:
        if self.before == "nothing":
            return 0
        run_of(OLD).save(goal)
        if self.before == "first format":
            goal.rename(goal.with_name("new"))
            export_dcp(goal.with_name("new"), goal)
            shutil.rmtree(goal.with_name("new"))
        if self.before == "rubbish":
            for name in ("state-0123456789ab", "state-ba9876543210"):
                (goal / name).mkdir()
                (goal / name / "rank-0.bin").write_bytes(b"half of it")
            (goal / "girih.json.part").write_text("{")
            (goal / "girih.json.01234567.part").write_text("{")
            (goal / "girih.lock").write_text("")
        return OLD

    def save(self, goal: Path, number: int) -> None:
        run_of(number).save(goal)

    def found(self, goal: Path) -> int:
        """The step of the whole checkpoint there, 0 if there is none."""
        try:
            manifest = checkpoint.read_manifest(goal)
        except CheckpointError as error:
            if "holds no checkpoint" in str(error):
                return 0
            if "import" in str(error):
                return OLD
            raise
        with checkpoint.CheckpointReader(goal, manifest) as reader:
            for path, tensor in state_of(manifest.step).items():
                assert torch.equal(reader.tensor(path), tensor), path
        return int(manifest.step)

    def expected(self, goal: Path) -> list[str]:
        """The names of what belongs there."""
        return ["girih.json", checkpoint.read_manifest(goal).folder]


class Tiles:
    """Checkpoints of arrays: tiles, a program under way, and the manifest that names them. The number is the tile's."""

    failures = (CheckpointError,)
    like_another = False
    of_the_dead = re.compile(rf"(tile|step)-[{OLD}{NEW}]\.0|.*\.part")  # the directory goes with its driver

    def prepare(self, goal: Path) -> int:
        goal.mkdir()
        tiles.replace(str(goal), tiles.TilesKept(0), tiles.TilesKept(1))
        self.save(goal, OLD)
        return OLD

    def save(self, goal: Path, number: int) -> None:
        before = tiles.read_manifest(str(goal))
        tiles.save_tiles(str(goal), 0, {number: torch.full((3, 4), float(number)).t()})
        tiles.save_step(str(goal), f"step-{number}", 0, Running([torch.ones(2)], at=number), {})
        tiles.replace(str(goal), before, tiles.TilesKept(1, frozenset({number}), f"step-{number}", number))

    def found(self, goal: Path) -> int:
        manifest = tiles.read_manifest(str(goal))
        for key, tensor in tiles.load_tiles(str(goal), 0, sorted(manifest.tiles)):
            assert torch.equal(tensor, torch.full((4, 3), float(key)))
        step = Running([None])
        tiles.load_step(str(goal), manifest.step, 0, step, {})
        assert manifest.tiles == {step.at}
        return step.at

    def expected(self, goal: Path) -> list[str]:
        return ["manifest.json", *tiles.read_manifest(str(goal)).files()]


class Loops:
    """Checkpoints of loops, and of the estimators that use them."""

    failures = (OSError,)
    like_another = False
    of_the_dead = durable.PART

    def prepare(self, goal: Path) -> int:
        goal.mkdir()
        self.save(goal, OLD)
        return OLD

    def save(self, goal: Path, number: int) -> None:
        gl.save(goal / "kept", a=gl.array(np.full(9, number)), b=gl.array(np.full((2, 3), number)))

    def found(self, goal: Path) -> int:
        a, b = gl.array(np.zeros(9, np.int64)), gl.array(np.zeros((2, 3), np.int64))
        gl.restore(goal / "kept", a=a, b=b)
        assert (a.values == a[0]).all()
        assert (b.values == a[0]).all()
        return int(a.values[0])

    def expected(self, goal: Path) -> list[str]:
        return ["kept"]


class FullError(Exception):
    """A snapshot says what it could not write."""


class Tables:
    """Snapshots of tables: one server's file and one worker's."""

    failures = (FullError,)
    like_another = False
    of_the_dead = re.compile("")
    specs = (TableSpec("x", 5, 3, "float64", False, 1 << 20), TableSpec("n", 4, 9, "int32", True, 1 << 20))

    def options(self, goal: Path) -> TableOptions:
        return TableOptions(1, staleness=0, snapshot_every=1, folder=str(goal), keep=1)

    def prepare(self, goal: Path) -> int:
        self.save(goal, OLD)
        return OLD

    def save(self, goal: Path, number: int) -> None:
        server = Server(0, self.specs, self.options(goal))
        server.begin(number)
        rows = np.arange(4)
        server.tables[0].store.values[:] = number
        server.tables[1].store.add(Update(rows, np.full(4, number, np.int32), rows), 0)
        snapshot = snapshots.Snapshot(server, number)
        snapshot.open([])
        snapshot.finish()
        failed = snapshot.failed or snapshots.write_state(self.options(goal), number, 0, b"%d" % number)
        if failed:
            raise FullError(str(failed))
        snapshots.remove_older(str(goal), self.options(goal))

    def found(self, goal: Path) -> int:
        clock, _ = snapshots.newest(str(goal), self.specs, self.options(goal))
        assert clock is not None
        server = Server(0, self.specs, self.options(goal))
        snapshots.restore(server, str(goal), clock)
        assert (server.tables[0].store.values == clock).all()
        assert snapshots.read_state(str(goal), clock, 0) == b"%d" % clock
        return clock

    def expected(self, goal: Path) -> list[str]:
        return [f"clock-{self.found(goal):06d}"]


class Plans:
    """Plan files, which are text. The number is the model's name."""

    failures = (girih.PlanError,)
    like_another = False
    of_the_dead = durable.PART

    @cached_property
    def plan(self) -> girih.Plan:
        return small_plan()

    def prepare(self, goal: Path) -> int:
        goal.mkdir()
        self.save(goal, OLD)
        return OLD

    def save(self, goal: Path, number: int) -> None:
        self.plan.but(model=str(number)).save(goal / "plan.json")

    def found(self, goal: Path) -> int:
        return int(girih.load(goal / "plan.json").origin.model)

    def expected(self, goal: Path) -> list[str]:
        return ["plan.json"]


KEPT: dict[str, Any] = {
    **{f"training: {before}": Training(before) for before in ("nothing", "old", "first format", "rubbish")},
    "tiles": Tiles(),
    "loops": Loops(),
    "tables": Tables(),
    "plans": Plans(),
}


# ------------------------------------------------------------------------------------------- kills


def prepare(goal: Path, kept: Any) -> int:
    shutil.rmtree(goal.parent, ignore_errors=True)
    goal.parent.mkdir(parents=True)
    return int(kept.prepare(goal))


def tidy(goal: Path, kept: Any, killed: bool) -> None:
    """Nothing else is left; of a killed save at most what the next one cannot know to be dead."""
    names, expected = set(os.listdir(goal)), set(kept.expected(goal))
    assert expected <= names, names
    assert all(killed and kept.of_the_dead.fullmatch(name) for name in names - expected), names
    assert os.listdir(goal.parent) == [goal.name]


def killed(goal: Path, kept: Any, number: int, how: str) -> tuple[int, bool]:
    """What is there after a kill, and whether there was a kill."""
    prepare(goal, kept)
    child = os.fork()
    if child == 0:
        try:
            with Counter(number, how):
                kept.save(goal, NEW)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), f"{kept}: {how} call {number}: the save failed"
    found = int(kept.found(goal))
    kept.save(goal, NEXT)
    assert kept.found(goal) == NEXT
    tidy(goal, kept, killed=True)
    return found, status == 9


def full(goal: Path, kept: Any, number: int) -> tuple[int, str]:
    """What is there after the disk was full at one call, and what the save said."""
    before = prepare(goal, kept)
    said = ""
    try:
        with Counter(number, "full"):
            kept.save(goal, NEW)
    except kept.failures as error:
        said = str(error)
    found = int(kept.found(goal))
    if not before and said and not found:
        assert not goal.exists() or not os.listdir(goal)
    kept.save(goal, NEW)  # the run goes on
    assert kept.found(goal) == NEW
    tidy(goal, kept, killed=isinstance(kept, Tiles))
    return found, said


def heard(goal: Path, kept: Any) -> list[str]:
    """The calls of one undisturbed save. That none is missed is proved by what the interpreter tells of them."""
    prepare(goal, kept)
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
        kept.save(goal, NEW)
    listening[0] = False
    assert told == counter.changing, (told, counter.changing)
    return counter.seen


def examine(goal: Path, kept: Any, every: int) -> dict[str, Any]:
    before, seen = prepare(goal, kept), heard(goal, kept)
    exchange = len(seen) - 1 - seen[::-1].index("replace")
    tried = [number for number in range(len(seen)) if number % every == 0 or abs(number - exchange) < 2]
    outcomes: dict[str, list[tuple[int, int]]] = {}
    writes = [number for number in tried if seen[number] == "write"]
    # After any other call is before the next one, which changes nothing of itself.
    whole = [number for number, name in enumerate(seen) if name == "write"][0 if every == 1 else -1 :]
    numbers_of = {"before": tried, "within": writes, "after": sorted({*whole, exchange, len(seen) - 1})}
    for how, numbers in numbers_of.items():
        found = [killed(goal, kept, number, how) for number in numbers]
        assert all(was for _, was in found)
        outcomes[how] = [(number, step) for number, (step, _) in zip(numbers, found, strict=True)]
    fills = () if kept.like_another else tried
    said = [full(goal, kept, number) for number in fills]
    return {"before": before, "seen": seen, "outcomes": outcomes, "full": said}


def main() -> None:
    torch.set_num_threads(1)
    goal = Path(sys.argv[1]) / "runs" / "saved"
    print(json.dumps({name: examine(goal, KEPT[name], int(sys.argv[2])) for name in sys.argv[3:]}))


if __name__ == "__main__":
    main()
