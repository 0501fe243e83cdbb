"""Checkpoints to and from torch.distributed.checkpoint: the same bits, and nothing that a file says is run."""

from __future__ import annotations

import enum
import io
import json
import os
import pickle
import random
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from saving_programs import STATE, run_of, state_of
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex

from girih.run.training import checkpoint
from girih.run.training.checkpoint import TORCH_DTYPES as DTYPES
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.dcp import export_dcp, import_dcp, read_metadata
from girih.run.training.session import start

SEED = 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    goal = tmp_path_factory.mktemp("dcp") / "saved"
    run_of(SEED).save(goal)
    return goal


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    goal = tmp_path_factory.mktemp("dcp") / "exported"
    export_dcp(saved, goal)
    return goal


@pytest.fixture
def copied(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "copied"))


def whole(directory: Path) -> dict[str, torch.Tensor]:
    manifest = checkpoint.read_manifest(directory)
    with checkpoint.CheckpointReader(directory, manifest) as reader:
        return {path: reader.tensor(path) for path in manifest.entries}


def same(made: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert made.keys() == expected.keys()
    for path, tensor in expected.items():
        assert made[path].dtype == tensor.dtype
        assert made[path].shape == tensor.shape
        assert torch.equal(made[path].view(torch.uint8) if tensor.dim() else made[path],
                           tensor.view(torch.uint8) if tensor.dim() else tensor)  # fmt: skip


def refused(source: Path, goal: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        import_dcp(source, goal)
    assert "\n" not in str(caught.value)
    assert not goal.exists()
    return str(caught.value)


def test_there_and_back(exported, tmp_path):
    manifest, others = import_dcp(exported, tmp_path / "back")
    assert (manifest.step, manifest.seed, others) == (SEED, SEED, [])
    same(whole(tmp_path / "back"), state_of(SEED))


def test_pytorch_reads_what_is_exported(exported):
    state = {name: torch.zeros(shape, dtype=DTYPES[dtype]) for name, (shape, dtype) in STATE.items()}
    dcp.load(state, checkpoint_id=exported)
    same(state, state_of(SEED))


def test_an_export_replaces_nothing(saved, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="give a new directory"):
        export_dcp(saved, tmp_path / "file")
    with pytest.raises(CheckpointError, match="give a new directory"):
        export_dcp(saved, tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_damaged_checkpoint_is_not_exported(saved, tmp_path):
    goal = Path(shutil.copytree(saved, tmp_path / "damaged"))
    shard = next(goal.glob("*/rank-1.bin"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"rank-1.bin is damaged"):
        export_dcp(goal, tmp_path / "out")
    assert [item.name for item in tmp_path.iterdir()] == ["damaged"]


def test_what_pytorch_saves_is_imported(tmp_path):
    """Every dtype, nested dictionaries, an optimizer's state, and what is no tensor, which is left out."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    kinds = {name: torch.ones(3, 2).to(dtype) for name, dtype in DTYPES.items() if name != "complex32"}
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "kinds": kinds, "note": {"a": 1}}
    dcp.save(state, checkpoint_id=tmp_path / "theirs")
    manifest, others = import_dcp(tmp_path / "theirs", tmp_path / "ours", step=7, seed=5)
    assert (manifest.step, manifest.seed) == (7, 5)
    assert "note.a" in others
    made = whole(tmp_path / "ours")
    for name, tensor in model.state_dict().items():
        assert torch.equal(made[f"model.{name}"], tensor)
    assert torch.equal(made["optimizer.state.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    for name, tensor in kinds.items():
        assert torch.equal(made[f"kinds.{name}"].view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize("keeps_summary", [True, False])
def test_resume_names_the_command(copied, keeps_summary):
    """Whether girih's first version wrote it, or PyTorch."""
    from saving_programs import program

    if not keeps_summary:
        (copied / "girih.json").unlink()
    with pytest.raises(CheckpointError, match=f"convert it with `girih checkpoint import {copied} NEW`"):
        start(program(2), backend="threads", resume=copied)


# ------------------------------------------------------------------------------------------- ill will and damage


class Runs:
    def __init__(self, call: tuple[Any, ...]) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        (open, ("PLACE", "w")),
        (eval, ("open('PLACE', 'w')",)),
        (os.system, ("touch PLACE",)),
        (getattr, ("PLACE", "upper")),
        (getattr, (OrderedDict, "fromkeys")),
        (torch.load, ("PLACE",)),
        (torch.serialization._get_layout, ("PLACE",)),
        (Path.touch, (Path("PLACE"),)),
        (OrderedDict, ([("a", Runs((open, ("PLACE", "w"))))],)),
    ],
    ids=lambda call: getattr(call[0], "__qualname__", str(call[0])),
)
def test_a_pickle_that_calls_something_is_refused(copied, tmp_path, call):
    """Where the metadata is, inside it, and as a key: what it calls would make a file."""
    place = tmp_path / "made"
    function, arguments = call
    filled = tuple(
        item.replace("PLACE", str(place)) if isinstance(item, str) else place if item == Path("PLACE") else item
        for item in arguments
    )
    metadata = dcp.FileSystemReader(copied).read_metadata()
    hostile = Runs((function, filled))
    inside = dcp.FileSystemReader(copied).read_metadata()
    inside.state_dict_metadata["weight"] = hostile
    beside = dcp.FileSystemReader(copied).read_metadata()
    beside.planner_data = hostile
    for content in (hostile, {"state_dict_metadata": hostile}, inside, [hostile, metadata], beside):
        (copied / ".metadata").write_bytes(pickle.dumps(content))
        if content is not beside or function is not torch.serialization._get_layout:  # inert, and nobody looks there
            refused(copied, tmp_path / "ours")
        assert not place.exists()


class Written311(pickle.Pickler):
    """As Python 3.11.0 to 3.11.3 writes a member of an enumeration."""

    def reducer_override(self, item: object) -> Any:
        return (getattr, (type(item), item.name)) if isinstance(item, enum.Enum) else NotImplemented


def test_members_of_enumerations_are_read_as_any_python_writes_them(copied, tmp_path):
    stream = io.BytesIO()
    Written311(stream).dump(dcp.FileSystemReader(copied).read_metadata())
    assert b"getattr" in stream.getvalue()
    (copied / ".metadata").write_bytes(stream.getvalue())
    import_dcp(copied, tmp_path / "ours")
    assert whole(tmp_path / "ours")


def test_classes_of_pytorch_are_not_touched(copied):
    """Not even those that are admitted: a pickle may set attributes of what it names."""
    metadata = pickle.dumps(MetadataIndex)[:-1]  # the class itself
    (copied / ".metadata").write_bytes(metadata + b"N}X\x08\x00\x00\x00__init__K\x01s\x86b.")
    before = MetadataIndex.__init__
    with pytest.raises(CheckpointError):
        read_metadata(copied)
    assert MetadataIndex.__init__ is before


@pytest.mark.parametrize("name", ["../girih.json", "/etc/passwd", "", ".", "..", "a/b"])
def test_files_elsewhere_are_not_read(copied, tmp_path, name):
    metadata = dcp.FileSystemReader(copied).read_metadata()
    for index in metadata.storage_data:
        metadata.storage_data[index] = _StorageInfo(name, 0, 10)
    (copied / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "is no plain name of a file" in refused(copied, tmp_path / "ours")


def test_tensors_that_call_something_are_refused(copied, tmp_path):
    """A shard is read by PyTorch's own strict reader."""
    place = tmp_path / "made"
    stream = io.BytesIO()
    torch.save(Runs((open, (str(place), "w"))), stream)
    metadata = dcp.FileSystemReader(copied).read_metadata()
    (copied / "__0_0.distcp").write_bytes(stream.getvalue())
    for index in metadata.storage_data:
        metadata.storage_data[index] = _StorageInfo("__0_0.distcp", 0, len(stream.getvalue()))
    (copied / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "cannot be read from it" in refused(copied, tmp_path / "ours")
    assert not place.exists()


def test_damage_is_refused(copied, tmp_path):
    """DCP keeps no checksum of its metadata; its tensors have those of the zip format, which are checked here."""
    for name in (".metadata", "__0_0.distcp", "girih.json"):
        path, chance = copied / name, random.Random(len(name))
        data, messages = path.read_bytes(), list[str]()
        damaged = [data[: chance.randrange(len(data))] for _ in range(20)] + [b"", chance.randbytes(300), b"null"]
        for _ in range(60):
            flipped = bytearray(data)
            flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            damaged.append(bytes(flipped))
        for content in damaged:
            path.write_bytes(content)
            try:
                import_dcp(copied, tmp_path / "ours")
            except CheckpointError as error:
                messages.append(str(error))
                continue
            made = whole(tmp_path / "ours")
            for key in made.keys() & STATE.keys():  # a key itself may have changed
                if made[key].dtype == state_of(SEED)[key].dtype and made[key].shape == state_of(SEED)[key].shape:
                    assert torch.equal(made[key], state_of(SEED)[key])
            shutil.rmtree(tmp_path / "ours")
        path.write_bytes(data)
        assert len(messages) >= 20
        assert not any("\n" in message for message in messages)
        path.unlink()
        if name != "girih.json":
            refused(copied, tmp_path / "ours")
        path.write_bytes(data)


def test_a_summary_that_says_nothing(copied, tmp_path):
    for content in ([], {}, {"format": 9, "step": 1, "seed": 1}, {"format": 1, "step": "1", "seed": 1}):
        (copied / "girih.json").write_text(json.dumps(content))
        assert "girih.json" in refused(copied, tmp_path / "ours")
