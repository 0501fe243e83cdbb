"""A checkpoint is there whole at any moment, whoever dies while it is written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from counts import LONG
from saving_programs import program, run_of, state_of

from girih.run.errors import WorkerError
from girih.run.training import checkpoint, durable, saving
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.saving import Saving
from girih.run.training.session import start

SUPPORT = Path(__file__).resolve().parents[2] / "support"
OLD, NEW = 3, 4
EVERY = 1 if LONG else 5
"""Every so many calls of a save are tried."""


@pytest.fixture(scope="module")
def outcomes():
    """What `killed_saves.py` found, in memory where there is such a folder: thousands of syncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        paths = [str(SUPPORT.parent.parent), str(SUPPORT)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, str(SUPPORT / "killed_saves.py"), folder, str(EVERY)],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["nothing", "old", "first format", "rubbish"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new(outcomes, kind):
    """The program itself compares all tensors, saves again, and looks for rubbish."""
    before = 0 if kind == "nothing" else OLD
    seen = outcomes[kind]["seen"]
    assert {"open", "write", "fsync", "close", "mkdir", "replace", "unlink", "flock"} <= set(seen)
    exchange = seen.index("replace")
    for how, found in outcomes[kind]["outcomes"].items():
        assert found
        for number, step in found:  # no write is half the exchange
            done = number > exchange or (number == exchange and how == "after")
            assert step == (NEW if done and how != "within" else before), (how, number)


@pytest.mark.parametrize("kind", ["nothing", "old", "first format", "rubbish"])
def test_a_full_disk_is_said_and_the_run_goes_on(outcomes, kind):
    before = 0 if kind == "nothing" else OLD
    told = 0
    for found, said in outcomes[kind]["full"]:
        assert "\n" not in said
        assert found == NEW or "No space left on device" in said
        if "what was there before is whole" in said:
            assert found == before
            told += 1
    assert told > 15 // EVERY


def test_a_worker_that_dies_while_saving_leaves_the_old_one(tmp_path, monkeypatch):
    """Worker 1 stands still until worker 0 has written, and is killed then."""
    goal = tmp_path / "saved"
    run_of(OLD).save(goal)
    old = checkpoint.read_manifest(goal)
    with start(program(2), backend="processes", state=state_of(NEW), timeout=60.0) as run:
        pid, write = run.crew.pids[1], run._write
        seen: list[str] = []

        def kill_when_the_other_is_done(file: Path) -> None:
            while not file.exists() or file.stat().st_size < old.files[file.name]:
                time.sleep(0.002)
            seen.extend(os.listdir(file.parent))
            os.kill(pid, signal.SIGKILL)

        def write_and_die(folder: str) -> list[object]:
            os.kill(pid, signal.SIGSTOP)
            threading.Thread(target=kill_when_the_other_is_done, args=(Path(folder) / "rank-0.bin",)).start()
            return write(folder)

        monkeypatch.setattr(run, "_write", write_and_die)
        with pytest.raises(WorkerError, match="worker 1"):
            run.save(goal)
    assert seen == ["rank-0.bin"]
    assert checkpoint.read_manifest(goal) == old
    assert not checkpoint.damages(goal)
    assert sorted(item.name for item in goal.iterdir()) == ["girih.json", old.folder]


def test_two_savers_are_kept_apart(tmp_path):
    goal = tmp_path / "saved"
    first = Saving(goal)
    folder = first.begin()
    with pytest.raises(CheckpointError, match="another run is saving a checkpoint there"):
        run_of(NEW).save(goal)
    assert Path(folder).is_dir()  # which the second may not take for a dead saver's
    first.end()
    assert not goal.exists()
    run_of(NEW).save(goal)
    assert checkpoint.read_manifest(goal).step == NEW


def test_where_there_are_no_locks_nothing_of_others_is_removed(tmp_path, monkeypatch):
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    goal = tmp_path / "saved"
    run_of(OLD).save(goal)
    (goal / "state-0123456789ab").mkdir()
    monkeypatch.setattr(durable.fcntl, "flock", none)
    run_of(NEW).save(goal)
    names = ["girih.json", *sorted(["state-0123456789ab", checkpoint.read_manifest(goal).folder])]
    assert sorted(item.name for item in goal.iterdir()) == names
    monkeypatch.undo()
    run_of(NEW).save(goal)
    assert len(list(goal.iterdir())) == 2


def test_a_long_save_tells_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "SLICE_SECONDS", -1.0)
    told: list[tuple[str, float]] = []
    run = run_of(NEW)
    run.observe = lambda what, value: told.append((what, value))
    run.save(tmp_path / "saved")
    amounts = [value for what, value in told if what == "saving"]
    assert amounts == sorted(amounts)
    assert len(amounts) > 3
    assert amounts[-1] == sum(tensor.nbytes for tensor in state_of(NEW).values())
    assert len(amounts) == len(told)
    assert not checkpoint.damages(tmp_path / "saved")


def test_saving_and_reading_need_little_memory(tmp_path):
    """A tensor goes to the file and comes back through a buffer of one block."""
    shape = (64, 1 << 16)
    writer = saving.ShardWriter(str(tmp_path), 0, 1 << 16)
    chunk = None
    steps = writer.append((0, 0), torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape))
    sizes = []
    while chunk is None:
        try:
            sizes.append(next(steps))
        except StopIteration as end:
            chunk = end.value
    writer.close()
    assert set(sizes) == {1 << 16}
    assert len(chunk.checksums) == len(sizes) == 256
    manifest = checkpoint.Manifest(
        0, 0, tmp_path.name, {writer.name: writer.at}, {"x": saving.Entry("float32", shape, (chunk,))}, 1 << 16
    )
    with checkpoint.Reader(tmp_path.parent, manifest) as reader:
        box = ((3, 5), (100, 20000))
        part = reader.read("x", box)
        assert reader._buffer.numel() == 1 << 16
    expected = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)[3:5, 100:20000]
    assert torch.equal(part, expected)


def test_a_folder_that_a_worker_does_not_see(tmp_path):
    """As on another host: the worker makes no folder of its own."""
    run = run_of(NEW)
    begin = Saving.begin

    def elsewhere(self: Saving) -> str:
        folder = begin(self)
        shutil.rmtree(folder)
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Saving, "begin", elsewhere)
        with pytest.raises(CheckpointError, match="give a directory that all workers can write into"):
            run.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
