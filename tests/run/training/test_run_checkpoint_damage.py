"""Whatever happens to a checkpoint's files: a clear line, never wrong numbers, and no code of theirs runs."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from saving_programs import STATE, program, run_of, state_of

from girih.run.training import checkpoint
from girih.run.training.checkpoint import CheckpointError, CheckpointManifest
from girih.run.training.saving import append
from girih.run.training.session import start
from girih.store import durable
from girih.store.manifest import ArrayEntry, Manifest, blocks, count_blocks, from_bytes, tiles
from girih.store.sealed import StoredError, seal, unseal
from girih.store.stored import replacing

SEED = 3
OTHERS = program(3, axis=-1)
"""It divides otherwise: every worker reads from several files."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    goal = tmp_path_factory.mktemp("damage") / "saved"
    run_of(SEED).save(goal)
    return goal


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """Of the same program and step, with other numbers."""
    goal = tmp_path_factory.mktemp("damage") / "another"
    run = run_of(SEED + 1)
    run.steps, run.seed = SEED, SEED
    run.save(goal)
    return goal


def resumed(directory: Path) -> dict[str, torch.Tensor]:
    """What all workers together read, whole."""
    manifest = checkpoint.read_manifest(directory)
    paths = checkpoint.check_entries(manifest, directory, OTHERS, ())
    whole = {name: torch.zeros(shape, dtype=getattr(torch, dtype)) for name, (shape, dtype) in STATE.items()}
    for rank in range(3):
        for name, part in checkpoint.read(directory, manifest, OTHERS, rank, paths):
            box = checkpoint.box_of(OTHERS, name, rank)
            if part.numel():
                whole[name][tuple(slice(*edges) for edges in box)] = part
    return whole


def refused(directory: Path) -> str:
    """The one line that says it."""
    with pytest.raises(CheckpointError) as caught:
        resumed(directory)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert str(directory) in message
    return message


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def whole(saved) -> Iterator[Path]:
    """The checkpoint; the test brings it back to what it was."""
    before = {path: path.read_bytes() for path in files_of(saved)}
    yield saved
    assert {path: path.read_bytes() for path in files_of(saved)} == before
    for name, tensor in resumed(saved).items():
        assert torch.equal(tensor, state_of(SEED)[name])


def test_every_bit_of_the_manifest_is_guarded(saved):
    data = bytearray((saved / "girih.json").read_bytes())
    for at, bit in itertools.product(range(len(data)), range(8)):
        data[at] ^= 1 << bit
        assert attempt(functools.partial(from_bytes, bytes(data), CheckpointManifest), StoredError)[1]
        data[at] ^= 1 << bit


@pytest.mark.parametrize("number", range(3), ids=["manifest", "rank 0", "rank 1"])
def test_every_byte_is_guarded(whole, number):
    """One bit, drawn, of every byte of the shards, and of every tenth of the manifest's file."""
    path, chance = files_of(whole)[number], random.Random(number)
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 1 if number else 10):
        flip = 1 << chance.randrange(8)
        data[at] ^= flip
        path.write_bytes(data)
        message = refused(whole)
        assert path.name in message
        if number:
            assert "is damaged" in message
            assert any(repr(name) in message for name in STATE)
        data[at] ^= flip
    path.write_bytes(data)


@pytest.mark.parametrize("number", range(3), ids=["manifest", "rank 0", "rank 1"])
def test_every_length_is_guarded(whole, number):
    path = files_of(whole)[number]
    data = path.read_bytes()
    step = max(1, len(data) // 100)
    for length in {*range(0, len(data), step), len(data) - 1, len(data) - 2}:
        path.write_bytes(data[:length])
        assert path.name in refused(whole)
    path.write_bytes(data + b"\0")
    assert path.name in refused(whole)
    path.write_bytes(data)


@pytest.mark.parametrize("number", range(3), ids=["manifest", "rank 0", "rank 1"])
def test_foreign_contents_are_guarded(whole, another, number, tmp_path):
    path = files_of(whole)[number]
    data = path.read_bytes()
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    foreign = [b"", b"{}", b"null", b"\0" * len(data), random.Random(1).randbytes(len(data))]
    foreign += [file.read_bytes() for file in (*files_of(another), tmp_path / "tensor.pt", *files_of(whole))]
    for content in foreign:
        if content != data:
            path.write_bytes(content)
            assert path.name in refused(whole) or number == 0  # another's manifest names a folder that is not here
    path.unlink()
    assert "holds no checkpoint" in refused(whole) if number == 0 else "is gone" in refused(whole)
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(files_of(another)[number])):
        make()
        assert path.name in refused(whole)
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(data)


def test_a_folder_that_leads_elsewhere(saved, another, tmp_path):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    folder = goal / checkpoint.read_manifest(goal).folder
    shutil.move(folder, tmp_path / "away")
    folder.symlink_to(tmp_path / "away")
    assert "it may lead out of the checkpoint" in refused(goal)


def test_a_run_says_it_in_one_line(saved, tmp_path):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    shard = files_of(goal)[1]
    data = bytearray(shard.read_bytes())
    data[5] ^= 4
    shard.write_bytes(data)
    for backend in ("threads", "processes"):
        with pytest.raises(CheckpointError, match=r"rank-0.bin is damaged: bytes 0 to \d+, of 'weight'") as caught:
            start(program(2), backend=backend, resume=goal)
        assert "\n" not in str(caught.value)
    assert checkpoint.damages(goal) == [str(caught.value)]


def test_a_checkpoint_that_is_replaced_while_it_is_read(saved, tmp_path, monkeypatch):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    check = checkpoint.check_entries

    def and_replace(*arguments: Any) -> list[str]:
        run_of(SEED + 1).save(goal)
        return check(*arguments)

    monkeypatch.setattr(checkpoint, "check_entries", and_replace)
    with pytest.raises(CheckpointError, match="was replaced while it was read"):
        start(program(2), backend="threads", resume=goal)


# ------------------------------------------------------------------------------------------- manifests of ill will


def resealed(directory: Path, goal: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy whose manifest says something else, with a checksum that fits."""
    shutil.rmtree(goal, ignore_errors=True)
    shutil.copytree(directory, goal)
    content = unseal("checkpoint", 2, (goal / "girih.json").read_bytes(), dict[str, Any])
    change(content)
    (goal / "girih.json").write_bytes(seal("checkpoint", 2, content))
    return goal


def chunk(content: dict[str, Any], path: str = "weight", number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["entries"][path]["chunks"][number]
    return found


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a file above": lambda c: chunk(c).update(file="../rank-0.bin"),
    "an absolute file": lambda c: chunk(c).update(file="/etc/passwd"),
    "a folder above": lambda c: c.update(folder=".."),
    "an absolute folder": lambda c: c.update(folder="/tmp"),
    "files above": lambda c: c["files"].update({"../girih.json": 10}),
    "a hidden file": lambda c: chunk(c).update(file=".rank-0.bin"),
    "another dtype": lambda c: c["entries"]["weight"].update(dtype="int32"),
    "no dtype": lambda c: c["entries"]["weight"].update(dtype="load"),
    "a shape that does not fit": lambda c: c["entries"]["weight"].update(shape=[5, 6]),
    "a huge shape": lambda c: c["entries"]["weight"].update(shape=[1 << 61, 1 << 61]),
    "a negative size": lambda c: c["entries"]["weight"].update(shape=[-6, 5]),
    "a number that is none": lambda c: c["entries"]["weight"].update(shape=[True, 5]),
    "a fraction": lambda c: c.update(step=1.5),
    "a step of a thousand digits": lambda c: c.update(step=10**1000),
    "a seed of text": lambda c: c.update(seed="3"),
    "overlapping chunks": lambda c: chunk(c, number=1).update(offsets=[0, 0]),
    "a missing chunk": lambda c: c["entries"]["weight"]["chunks"].pop(),
    "the same bytes twice": lambda c: chunk(c, number=1).update(bytes=chunk(c)["bytes"], file="rank-0.bin"),
    "bytes behind the end": lambda c: chunk(c).update(bytes=[10**6, 10**6 + 60]),
    "bytes before the beginning": lambda c: chunk(c).update(bytes=[-60, 0]),
    "another checksum": lambda c: chunk(c).update(checksums=["0" * 32]),
    "too few checksums": lambda c: chunk(c).update(checksums=[]),
    "no checksum": lambda c: chunk(c).pop("checksums"),
    "blocks of nothing": lambda c: c.update(block=0),
    "other blocks": lambda c: c.update(block=16),
    "the other byte order": lambda c: c.update(byteorder="big"),
    "no entries": lambda c: c.update(entries=[]),
    "a longer file": lambda c: c["files"].update({"rank-0.bin": 10**9}),
    "a file of nobody": lambda c: c["files"].update({"rank-7.bin": 5}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_of_ill_will_is_refused(saved, tmp_path, name):
    refused(resealed(saved, tmp_path / "goal", HOSTILE[name]))


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 100_000, "NaN", "1" * 5000, "[]", "nul", '"\\ud800"'], ids=lambda body: body[:6]
)
def test_bodies_that_are_no_manifest(saved, tmp_path, body, monkeypatch):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    monkeypatch.setattr(json, "dumps", lambda *_, **__: body)
    (goal / "girih.json").write_bytes(seal("checkpoint", 2, {}))
    monkeypatch.undo()
    refused(goal)


def test_a_manifest_without_end_is_not_read(saved, tmp_path):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    os.truncate(goal / "girih.json", 1 << 40)
    assert "more than the" in refused(goal)


def test_later_formats_are_named(saved, tmp_path):
    goal = tmp_path / "goal"
    shutil.copytree(saved, goal)
    content = unseal("checkpoint", 2, (goal / "girih.json").read_bytes(), dict[str, Any])
    (goal / "girih.json").write_bytes(seal("checkpoint", 3, content))
    assert "has format 3, this version of girih reads 2" in refused(goal)


ODD = (None, True, -1, 0, 1, 7, 1 << 62, 10**30, 0.5, "", "x", "..", "rank-0.bin", [], [0], [[]], {}, {"a": 1})


def test_random_changes_of_a_manifest_are_refused_or_harmless(saved):
    """1,500 of them: never another error, never other numbers."""
    data, chance = (saved / "girih.json").read_bytes(), random.Random(5)
    manifest = from_bytes(data, CheckpointManifest)
    survived = 0
    for _ in range(1500):
        content = unseal("checkpoint", 2, data, dict[str, Any])
        holder, key = chance.choice(list(places(content)))
        if chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = chance.choice(ODD)
        text = seal("checkpoint", 2, content)
        changed, refusal = attempt(functools.partial(from_bytes, text, CheckpointManifest), StoredError)
        if not refusal:
            survived += 1
            compare_numbers(saved, replace(changed, folder=manifest.folder))
    assert survived < 150  # another step, seed or folder, one entry less, or a checksum that will not fit


def places(item: Any) -> Iterator[tuple[Any, Any]]:
    """Everything in nested lists and objects, as (holder, key)."""
    for key in list(item) if isinstance(item, dict) else range(len(item)):
        yield item, key
        if isinstance(item[key], (dict, list)):
            yield from places(item[key])


def attempt(do: Callable[[], Any], kind: type[Exception]) -> tuple[Any, str]:
    """What it gives, or the one line that it is refused with."""
    try:
        return do(), ""
    except kind as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None, message


def compare_numbers(directory: Path, manifest: Manifest) -> None:
    """They are the right ones, or refused."""
    with checkpoint.CheckpointReader(directory, manifest) as reader:
        for path in manifest.entries:
            tensor, refusal = attempt(functools.partial(reader.tensor, path), CheckpointError)
            assert refusal or not tensor.numel() or torch.equal(tensor, state_of(SEED)[path])


# ------------------------------------------------------------------------------------------- blocks and tilings


def test_blocks_fill_their_chunk():
    chance = random.Random(2)
    for _ in range(300):
        sizes = tuple(chance.randrange(0, 9) for _ in range(chance.randrange(4)))
        most = chance.randrange(4, 60)
        found = list(blocks(sizes, 4, most))
        assert tiles(sizes, [box for box, _ in found])
        assert [4 * math.prod(stop - start for start, stop in box) for box, _ in found] == [size for _, size in found]
        assert all(0 < size <= most for _, size in found)
        assert len(found) == count_blocks(sizes, 4, most)


def test_little_more_is_read_than_is_needed(tmp_path):
    """Along either dimension: half of a tensor is half of its bytes, and few more at edges that are none of blocks."""
    shape, block = (256, 256), 4096
    whole = torch.randn(shape)
    with replacing(str(tmp_path / "rank-0.bin"), "rank-0.bin", block) as writer:
        assert sum(append(writer, "x", (0, 0), whole)) == whole.nbytes
    entries = {"x": ArrayEntry("float32", shape, tuple(writer.chunks["x"]))}
    manifest = Manifest(folder=tmp_path.name, files={"rank-0.bin": writer.at}, entries=entries, block=block)
    for box, most in (
        (((0, 128), (0, 256)), 0.5),
        (((0, 256), (128, 256)), 0.5),
        (((85, 171), (0, 256)), 0.5),
        (((0, 256), (85, 171)), 0.5),
    ):
        with checkpoint.CheckpointReader(tmp_path.parent, manifest) as reader, pytest.MonkeyPatch.context() as patch:
            count, read = [0], durable.File.read_into

            def counted(*arguments: Any, count: list[int] = count, read: Callable[..., int] = read) -> int:
                count[0] += (found := read(*arguments))
                return found

            patch.setattr(durable.File, "read_into", counted)
            assert torch.equal(reader.tensor("x", box), whole[slice(*box[0]), slice(*box[1])])
        assert count[0] <= most * whole.nbytes


@pytest.mark.parametrize(
    ("shape", "boxes", "expected"),
    [
        ((), [()], True),
        ((), [], False),
        ((0, 3), [], True),
        ((4,), [((0, 1),), ((1, 4),)], True),
        ((4,), [((0, 2),), ((1, 3),)], False),
        ((4,), [((0, 2),), ((0, 2),)], False),
        ((2, 2), [((0, 1), (0, 2)), ((1, 2), (0, 1)), ((1, 2), (1, 2))], True),  # no grid
        ((3, 3), [((0, 2), (0, 1)), ((0, 1), (1, 3)), ((1, 3), (2, 3)), ((2, 3), (0, 2)), ((1, 2), (1, 2))], True),
        ((2, 4), [((0, 1), (0, 2)), ((1, 2), (0, 2)), ((0, 2), (2, 3)), ((0, 2), (2, 3))], False),
        ((2, 2), [((0, 1), (0, 2)), ((0, 2), (0, 1))], False),
    ],
)
def test_tilings(shape, boxes, expected):
    assert tiles(shape, boxes) == expected
