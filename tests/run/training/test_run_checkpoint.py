"""Checkpoints: whole or not at all, for any number of workers; PyTorch's own tools read what is exported."""

from __future__ import annotations

import pytest
import torch
from run_programs import Example, program_of

from girih.layout import Mesh
from girih.run.training import checkpoint
from girih.run.training.checkpoint import CheckpointError
from girih.run.training.dcp import export_dcp
from girih.run.training.session import start


@pytest.fixture(scope="module")
def saved(example, tmp_path_factory):
    """Two steps on 2×2 workers, under a strategy with uneven parts along several dimensions."""
    goal = tmp_path_factory.mktemp("run") / "deep" / "saved"
    with start(program_of(example.graph, Mesh((2, 2)), 2), backend="threads", state=example.state, seed=9) as run:
        example.compare(run, 2)
        run.save(goal)
    return goal


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (5,), (2, 3)], ids=str)
def test_any_number_of_workers_goes_on(example, saved, sizes):
    with start(program_of(example.graph, Mesh(sizes), 11), backend="threads", resume=saved) as run:
        assert (run.steps, run.seed) == (2, 9)
        state = run.state()
        assert all(torch.equal(state[path], tensor) for path, tensor in state.items())
        example.compare(run, 1, first=2)


def test_the_same_workers_go_on_with_the_same_bits(example, saved):
    program = program_of(example.graph, Mesh((2, 2)), 2)
    with start(program, backend="threads", state=example.state) as run:
        losses = [run.step(example.batch, example.scalars)["loss"] for _ in range(3)]
        state = run.state()
    with start(program, backend="threads", resume=saved) as run:
        assert run.step(example.batch, example.scalars)["loss"] == losses[2]
        assert all(torch.equal(tensor, state[path]) for path, tensor in run.state().items())


def test_tools_of_torch_read_it(example, saved, tmp_path):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    export_dcp(saved, tmp_path / "dcp")
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt")
    assert whole.keys() == example.state.keys()
    for path, tensor in example.states[2].items():
        torch.testing.assert_close(whole[path], tensor, rtol=1e-10, atol=1e-12)


def test_each_part_is_written_once(example, saved):
    """Not a byte more: what is not in the manifest is an element of one tensor."""
    manifest = checkpoint.read_manifest(saved)
    assert {path: entry.shape for path, entry in manifest.entries.items()} == {
        path: tuple(tensor.shape) for path, tensor in example.state.items()
    }
    files = {file.name: file.stat().st_size for file in (saved / manifest.folder).iterdir()}
    assert files == manifest.files
    assert len(files) > 1
    assert sum(files.values()) == sum(tensor.nbytes for tensor in example.state.values())
    assert sorted(item.name for item in saved.iterdir()) == ["girih.json", manifest.folder]


def test_saving_again_replaces(example, saved, tmp_path):
    goal = tmp_path / "saved"
    with start(program_of(example.graph, Mesh((2,)), 1), backend="threads", resume=saved) as run:
        run.save(goal)
        run.step(example.batch, example.scalars)
        run.save(goal)
    assert checkpoint.read_manifest(goal).step == 3
    assert [item.name for item in tmp_path.iterdir()] == ["saved"]
    assert len(list(goal.iterdir())) == 2  # the manifest and its folder


def test_other_directories_are_left_alone(example, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with start(program_of(example.graph, Mesh((2,)), 1), backend="threads", state=example.state) as run:
        with pytest.raises(CheckpointError, match="is no checkpoint: it is left alone"):
            run.save(tmp_path)
        run.step(example.batch, example.scalars)
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_does_not_fit_is_refused(example, saved, tmp_path):
    other = Example((12, 10, 8, 6), steps=0)
    with pytest.raises(CheckpointError, match=r"'first.weight' is float64\[9, 10\], the program has float64\[8, 10\]"):
        start(program_of(other.graph, Mesh((2,)), 1), backend="threads", resume=saved)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        start(program_of(example.graph, Mesh((2,)), 1), backend="threads", resume=tmp_path)


def test_tensors_go_before_the_checkpoint(example, saved):
    """Fine-tuning: what is given is taken, the rest is resumed."""
    mine = torch.full_like(example.state["last.bias"], 0.5)
    program = program_of(example.graph, Mesh((2,)), 1)
    with start(program, backend="threads", resume=saved, state={"last.bias": mine}) as run:
        state = run.state()
    torch.testing.assert_close(state["last.bias"], mine)
    torch.testing.assert_close(state["first.bias"], example.states[2]["first.bias"])
