"""Checkpoints of loops resume to the same numbers, and damaged ones are refused whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import girih.loop as gl
from girih.loop.checkpoint import LoopCheckpointError, read, write
from girih.store import durable


def body(i, a, late):
    a[i] = a[i] * 0.5 + gl.random()
    late[i % 3] += a[i]


def made() -> tuple[gl.ParallelLoop, gl.Array, gl.Array, gl.Buffer, gl.Accumulator]:
    loop = gl.parallel_for(gl.range(30), workers=2, seed=1)(body)
    a, b = gl.array(np.zeros(30)), gl.array(np.zeros(3))
    return loop, a, b, gl.buffer(b, delay=4), gl.accumulator(0.0)


def test_a_checkpoint_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    loop, a, b, late, err = made()
    for number in range(6):
        if number == 3:
            gl.save(tmp_path / "c.girih", a=a, b=b, loop=loop, err=err)
        loop(a, late)
    other, a2, b2, late2, err2 = made()
    gl.restore(tmp_path / "c.girih", a=a2, b=b2, loop=other, err=err2)
    for _ in range(3):
        other(a2, late2)
    assert np.array_equal(a.values, a2.values)
    assert np.array_equal(b.values, b2.values)


def test_damage_changes_nothing(tmp_path: Path) -> None:
    loop, a, b, _, err = made()
    path = tmp_path / "c.girih"
    gl.save(path, a=a, b=b, loop=loop, err=err)
    whole = path.read_bytes()
    a[0] = 7.0
    for cut in (whole[:100], whole[:-40], b""):
        path.write_bytes(cut)
        with pytest.raises(LoopCheckpointError, match="no whole checkpoint"):
            gl.restore(path, a=a)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LoopCheckpointError, match="no whole checkpoint"):
            gl.restore(path, a=a)
    path.write_bytes(whole)
    with pytest.raises(LoopCheckpointError, match="no array c: it has a, b"):
        gl.restore(path, c=a)
    with pytest.raises(LoopCheckpointError, match="expected float64"):
        gl.restore(path, b=a, a=gl.array(np.zeros(4)))
    assert a[0] == 7.0
    with pytest.raises(FileNotFoundError):
        gl.restore(tmp_path / "none.girih", a=a)


@pytest.mark.parametrize(
    "change",
    [
        [], None, {"err": []}, {"err": {"accumulator": "x"}}, {"loop": {"executions": "many"}},
        {"loop": {"executions": -3}}, {"loop": {"executions": 10**40}},
    ],
)  # fmt: skip
def test_what_says_something_else_is_refused_before_anything_is_changed(change: Any, tmp_path: Path) -> None:
    loop, a, b, _, err = made()
    gl.save(tmp_path / "c.girih", a=a, b=b, loop=loop, err=err)
    arrays, others = read(tmp_path / "c.girih")
    write(tmp_path / "c.girih", arrays, {**others, **change} if isinstance(change, dict) else change)
    a.values[...] = 7
    with pytest.raises(LoopCheckpointError, match=r"c\.girih"):
        gl.restore(tmp_path / "c.girih", a=a, b=b, loop=loop, err=err)
    assert (a.values == 7).all()


def test_a_checkpoint_at_a_url_comes_back() -> None:
    kept, other = gl.array(np.arange(3.0)), gl.array(np.zeros(3))
    gl.save("memory://loops/kept.girih", a=kept)
    gl.restore("memory://loops/kept.girih", a=other)
    assert other.values.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(FileNotFoundError, match="memory://loops/none"):
        gl.restore("memory://loops/none", a=other)


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, a, _, _, _ = made()
    path = tmp_path / "c.girih"
    gl.save(path, a=a)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write_all", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*\.girih'"):
        gl.save(path, a=a)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
