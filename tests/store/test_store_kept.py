"""What earlier versions of girih kept on disk is read: `kept/` has files as each of them wrote it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saving_programs import state_of
from stored_faces import lda, loop_of, tables, trees

import girih.loop as gl
from girih.loop.checkpoint import LoopCheckpointError
from girih.loop.shared_tables import snapshots
from girih.run.training import checkpoint

KEPT = Path(__file__).parent / "kept"


def test_training() -> None:
    manifest = checkpoint.read_manifest(KEPT / "training")
    assert (manifest.step, manifest.seed) == (3, 3)
    with checkpoint.CheckpointReader(KEPT / "training", manifest) as reader:
        for path, tensor in state_of(3).items():
            assert torch.equal(reader.tensor(path), tensor)


def test_loops() -> None:
    loop, a, err = loop_of(0)
    gl.restore(KEPT / "loop.npz", a=a, loop=loop, err=err)
    assert np.array_equal(a.values, loop_of(3)[1].values)
    for _ in range(2):
        loop(a)
    assert np.array_equal(a.values, loop_of(5)[1].values)


def test_damaged_loops_of_the_first_version(tmp_path: Path) -> None:
    whole, path = (KEPT / "loop.npz").read_bytes(), tmp_path / "loop.npz"
    a = gl.array(np.zeros(30))
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            gl.restore(path, a=a)
        except LoopCheckpointError:
            continue
        assert np.array_equal(a.values, loop_of(3)[1].values)  # a byte that says nothing, such as a date
        a.values[:] = 0


@pytest.mark.parametrize("name", ["lda", "trees"])
def test_estimators(name: str, tmp_path: Path) -> None:
    goal = tmp_path / name
    shutil.copy(KEPT / f"{name}.npz", goal)
    fit: Any = {"lda": lda, "trees": trees}[name]
    resumed, whole = fit(goal, 4, resume=True), fit(tmp_path / "whole", 4)
    if name == "lda":
        assert np.array_equal(resumed.word_topic_.toarray(), whole.word_topic_.toarray())
    else:
        assert np.array_equal(resumed.forest_.values, whole.forest_.values)


def test_tables(tmp_path: Path) -> None:
    shutil.copytree(KEPT / "tables", tmp_path / "kept")
    own, resumed = tables(tmp_path / "kept", 4, resume=True)
    expected, whole = tables(tmp_path / "whole", 4)
    assert own == expected
    for one, other in zip(resumed, whole, strict=True):
        assert np.array_equal(one, other)


def test_damaged_tables_of_the_first_version(tmp_path: Path) -> None:
    """Also where a digest fits: a clear error, or what it says is read."""
    body, path = (KEPT / "tables" / "clock-000002" / "server-0").read_bytes()[:-16], tmp_path / "server-0"
    refusals = []
    for at in range(0, len(body), 3):
        changed = body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]
        for digest in (hashlib.blake2b(changed, digest_size=16).digest(), b"0" * 16):
            path.write_bytes(changed + digest)
            try:
                snapshots.contents(path)
            except snapshots.SnapshotError as error:
                refusals.append(str(error))
    assert len(refusals) > len(body) // 3
    assert all(refusal.startswith(f"{path}: ") for refusal in refusals)
