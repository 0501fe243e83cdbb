"""A checkpoint is there whole at any moment, whoever dies while it is written."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from saving_programs import program, run_of, state_of

from girih.run.errors import WorkerError
from girih.run.training import checkpoint, saving
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.saving import Saving
from girih.run.training.session import start
from girih.store import durable
from girih.store.manifest import ArrayEntry, Manifest
from girih.store.stored import replacing

OLD, NEW = 3, 4


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
    with replacing(str(tmp_path / "rank-0.bin"), "rank-0.bin", 1 << 16) as writer:
        whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
        sizes = list(saving.append(writer, "x", (0, 0), whole))
    (chunk,) = writer.chunks["x"]
    assert set(sizes) == {1 << 16}
    assert len(chunk.checksums) == len(sizes) == 256
    entries = {"x": ArrayEntry("float32", shape, (chunk,))}
    manifest = Manifest(folder=tmp_path.name, files={writer.name: writer.at}, entries=entries, block=1 << 16)
    with checkpoint.CheckpointReader(tmp_path.parent, manifest) as reader:
        box = ((3, 5), (100, 20000))
        part = reader.tensor("x", box)
        assert len(reader._buffer) == 1 << 16
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
