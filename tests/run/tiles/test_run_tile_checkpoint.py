"""Files of tiles: the same buffers again, whole at any moment, and refused if anything about them has changed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import girih.array as gnp
from girih.capture.lazy.sources import Part
from girih.run.tiles import checkpoint as tile_checkpoint
from girih.run.tiles import recovery as tile_recovery
from girih.run.tiles.checkpoint import (
    Guard,
    TilesKept,
    load_step,
    load_tiles,
    new_place,
    read_manifest,
    save_step,
    save_tiles,
)
from girih.run.tiles.checkpoint import replace as exchange
from girih.run.tiles.spill import Streamed
from girih.run.training.checkpoint import TORCH_DTYPES, CheckpointError
from girih.run.worker.worker import Running
from girih.store import durable


def tile(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["directory", "file", "memory"])
def place(request, tmp_path) -> Iterator[str]:
    goal = {"directory": str(tmp_path), "file": f"file://{tmp_path}", "memory": "memory://tiles"}[request.param]
    made = new_place(goal)
    yield made
    tile_checkpoint.remove(made)


def test_tensors_come_back_with_their_strides(place):
    whole = torch.arange(60.0).view(3, 4, 5)
    tensors = {
        1: whole.transpose(0, 2),
        2: whole[1:, ::2],
        3: torch.tensor(7),
        4: torch.empty(0, 3),
        5: torch.randn(3, dtype=torch.complex64).conj(),
        6: torch.randn(3, dtype=torch.complex64).conj().imag,
        7: torch.ones(3).expand(4, 3),
    }
    kinds = [kind for name, kind in TORCH_DTYPES.items() if name != "complex32"]  # of which PyTorch warns
    tensors |= {10 + number: torch.ones(3, 2).to(kind) for number, kind in enumerate(kinds)}
    save_tiles(place, 1, tensors)
    for key, made in load_tiles(place, 1, list(tensors)):
        assert made.dtype == tensors[key].dtype
        assert made.stride() == tensors[key].stride()
        assert made.is_conj() == tensors[key].is_conj()
        assert made.is_neg() == tensors[key].is_neg()
        assert torch.equal(made.to(torch.complex128), tensors[key].to(torch.complex128))


def test_a_step_comes_back_with_what_shares_memory(place):
    held = {3: tile(3), 4: tile(4)}
    buffer = torch.arange(24.0)
    step = Running([None, held[3][1:, 2:], buffer.view(4, 6).t(), buffer[3:7], None, torch.tensor(5)], at=17)
    save_step(place, "step-1", 0, step, held)
    again = Running([None] * 6)
    load_step(place, "step-1", 0, again, held)
    assert again.at == 17
    for made, tensor in zip(again.slots, step.slots, strict=True):
        assert (made is None) == (tensor is None)
        if tensor is not None:
            assert torch.equal(made, tensor)
            assert made.stride() == tensor.stride()
    storages = [item.untyped_storage().data_ptr() for item in again.slots if item is not None]
    assert storages[0] == held[3].untyped_storage().data_ptr()
    assert storages[1] == storages[2] != storages[3]


def refused(place: str, name: str) -> str:
    """The line that says it; nothing was loaded."""
    held, step = {1: tile(1)}, Running([None] * 3)
    read: Callable[[], Any] = {
        "manifest.json": lambda: read_manifest(place),
        "tile-1.0": lambda: list(load_tiles(place, 0, [1])),
        "step-1.0": lambda: load_step(place, "step-1", 0, step, held),
    }[name]
    with pytest.raises(CheckpointError) as caught:
        read()
    assert step == Running([None] * 3)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


def test_damage_is_refused(tmp_path):
    """Every byte with one bit flipped, lengths, foreign contents, no file; then all is as before."""
    place = new_place(str(tmp_path))
    held = {1: tile(1), 2: tile(2)}
    save_tiles(place, 0, held)
    save_step(place, "step-1", 0, Running([None, held[1].t(), torch.arange(9)], at=2), held)
    save_step(place, "step-2", 0, Running([None, held[1].t(), torch.arange(9)], at=3), held)
    exchange(place, TilesKept(1), TilesKept(1, frozenset({1, 2}), "step-1", 2))
    other = new_place(str(tmp_path))
    save_tiles(other, 0, {1: tile(1)})
    files = sorted(path for path in Path(place).iterdir())
    assert [path.name for path in files] == ["manifest.json", "step-1.0", "step-2.0", "tile-1.0", "tile-2.0"]
    contents = {path.name: path.read_bytes() for path in files}
    foreign = [*contents.values(), (Path(other) / "tile-1.0").read_bytes(), b"", b"{}\n", b"\0" * 500]
    for name in ("manifest.json", "step-1.0", "tile-1.0"):
        path, data, chance = Path(place) / name, contents[name], random.Random(name)
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            refused(place, name)
        for length in (*range(0, len(data), 7), len(data) - 1):
            path.write_bytes(data[:length])
            refused(place, name)
        for content in (data + b"\0", chance.randbytes(300), *foreign):
            if content != data:
                path.write_bytes(content)
                refused(place, name)
        path.unlink()
        refused(place, name)
        path.symlink_to(Path(other) / "tile-1.0")
        if name != "manifest.json":
            refused(place, name)
        path.unlink()
        path.write_bytes(data)
    assert torch.equal(dict(load_tiles(place, 0, [1]))[1], held[1])


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["create", "write_all", "sync"])
def test_a_full_disk_leaves_the_checkpoint(tmp_path, monkeypatch, call):
    place = new_place(str(tmp_path))
    save_tiles(place, 0, {1: tile(1)})
    first = TilesKept(1, frozenset({1}))
    exchange(place, TilesKept(1), first)
    before = sorted(os.listdir(place))
    monkeypatch.setattr(durable, call, no_room)
    with pytest.raises(CheckpointError, match=r"tile-2.0 cannot be written: No space left on device; make room"):
        save_tiles(place, 0, {2: tile(2)})
    with pytest.raises(CheckpointError, match="No space left on device"):
        exchange(place, first, TilesKept(1))
    assert sorted(os.listdir(place)) == before
    assert read_manifest(place) == first


def test_what_dead_drivers_left_goes(tmp_path):
    places = [Path(new_place(str(tmp_path))) for _ in range(4)]
    alive, dead, foreign, _ = places
    guard = Guard(str(alive))
    (dead / "driver.lock").write_bytes(tile_checkpoint._boot())
    (dead / "tile-1.0").write_bytes(b"x")
    (foreign / "driver.lock").write_bytes(b"another host")
    own = new_place(str(tmp_path))
    other = Guard(own)
    assert [folder.exists() for folder in places] == [True, not tile_checkpoint._boot(), True, True]
    guard.release()
    other.release()
    assert sorted(os.listdir(own)) == ["manifest.json"]
    assert sorted(os.listdir(alive)) == ["manifest.json"]


# ------------------------------------------------------------------------------------------- of a cluster


def test_a_damaged_tile_is_said_at_once(tmp_path):
    with gnp.cluster(workers=2, checkpoint=tmp_path, every=0.0, timeout=60.0, small=0) as cluster:
        x = (gnp.array(np.arange(6.0)) + 1).persist()
        run = cluster.run
        key = x.expression.kept.key
        file = Path(run.place) / f"tile-{key}.1"
        data = bytearray(file.read_bytes())
        data[3] ^= 16
        file.write_bytes(data)
        os.kill(run.crew.pids[0], 9)
        with pytest.raises(gnp.EvaluationError, match=rf"tile-{key}.1 is damaged: bytes 0 to 24, of '0'") as caught:
            (x + 1).compute()
        assert "\n" not in str(caught.value)
        assert run.losses == []
        assert (gnp.array(np.ones(3)) + 1).sum().compute() == 6.0  # with new workers


def test_a_damaged_step_is_made_from_the_start(tmp_path, monkeypatch):
    """Its tiles are whole: nothing is lost but time."""
    monkeypatch.setattr(tile_recovery, "FIRST_SLICE", 8)
    a = np.random.default_rng(0).normal(size=(64, 6))
    with gnp.cluster(workers=2, checkpoint=tmp_path, every=0.0, timeout=60.0, small=0) as cluster:
        x = gnp.array(a)
        y = x.persist()
        for number in range(30):
            y = (y @ (x.T @ x)) / (1 + number) + x.mean(0)
        run = cluster.run
        write, begun = run._checkpoint, []

        def write_and_damage(at: int | None) -> None:
            write(at)
            if at is not None and not begun:
                begun.append(at)
                os.truncate(Path(run.place) / f"{run.manifest.step}.1", 10)
                os.kill(run.crew.pids[1], 9)

        monkeypatch.setattr(run, "_checkpoint", write_and_damage)
        got = y.compute()
        assert begun
        assert len(run.losses) == 1
    expected = a
    for number in range(30):
        expected = (expected @ (a.T @ a)) / (1 + number) + a.mean(0)
    np.testing.assert_allclose(got, expected)


def test_a_full_disk_is_said_and_the_cluster_goes_on(tmp_path, monkeypatch):
    with gnp.cluster(workers=2, backend="threads", checkpoint=tmp_path, every=0.0, timeout=60.0, small=0) as cluster:
        x = (gnp.array(np.arange(6.0)) + 1).persist()
        run = cluster.run
        before = read_manifest(run.place)
        monkeypatch.setattr(durable, "write_all", no_room)
        with pytest.raises(gnp.EvaluationError, match="No space left on device; make room") as caught:
            (x * 2).persist()
        assert "\n" not in str(caught.value)
        assert read_manifest(run.place) == before
        monkeypatch.undo()
        np.testing.assert_array_equal((x * 2).compute(), (np.arange(6.0) + 1) * 2)
        assert run.losses == []
        y = (x * 3).persist()
        assert y.expression.kept.key in read_manifest(run.place).tiles


@pytest.mark.parametrize("is_read", [False, True])
def test_a_step_that_reads_a_source_part_by_part(tmp_path, is_read):
    """The source is not written: the step goes on with what is there, which may have been read meanwhile."""
    source = NoSource("source.npy")
    tile_box = ((2, 8), (0, 5))
    part = Part(source, tile_box)
    held = {3: Streamed(part)}
    place = new_place(str(tmp_path))
    step = Running([held[3], held[3].narrow(0, 1, 2).narrow(1, 2, 3), torch.ones(2)], at=4)
    save_step(place, "step-1", 0, step, held)
    whole = torch.arange(30.0).view(6, 5)
    now = {3: whole if is_read else Streamed(Part(source, tile_box))}
    again = Running([None] * 3)
    load_step(place, "step-1", 0, again, now)
    if is_read:
        assert torch.equal(again.slots[0], whole)
        assert torch.equal(again.slots[1], whole[1:3, 2:5])
    else:
        assert [item.box for item in again.slots[:2]] == [tile_box, ((3, 5), (2, 5))]


class NoSource:
    """Nobody reads it."""

    def __init__(self, path: str) -> None:
        self.path = path
