"""What fully_shard and parallelize_module make of a model is read, and costs what girih's own of that kind does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import parallelized_program as written
import pytest
import torch
from exported import forked_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import girih
from girih.api import Plan
from girih.capture import CaptureError, capture
from girih.cli.main import main
from girih.cli.parallelized import pretended_ranks
from girih.published.divisions.parallelized import Parallelized, as_parallelized


def given(make: Callable[[], nn.Module], ranks: int, machine: str = "") -> Parallelized:
    with pretended_ranks(ranks):
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        step = girih.TrainingStep(model, loss=nn.functional.mse_loss, optimizer=optimizer)
        return as_parallelized(step, machine or f"local:{ranks}", seconds=1.0)


def batch_of(make: Callable[[], nn.Module]) -> tuple[torch.Tensor, torch.Tensor]:
    return written.words() if "block" in make.__name__ else written.batch()


def plans(make: Callable[[], nn.Module], ranks: int, other: str, machine: str = "") -> tuple[Plan, Plan]:
    """The plan that holds the model's division, and that of another search, by least bytes."""
    held = given(make, ranks, machine)
    ways = {"machine": held.machine, "objective": "bytes", "compare": ()}
    batch = batch_of(make)
    return girih.plan(held.step, batch, search=held.search, **ways), girih.plan(held.step, batch, search=other, **ways)


BLOCKS = {"block": 6, "block_as_megatron": 4}
"""Blocks in tensor parallelism, and how many collectives PyTorch calls for each."""


@pytest.mark.parametrize("ranks", [2, 4])
def test_fully_shard_costs_what_sharded_does(ranks: int) -> None:
    own, sharded = plans(written.sharded, ranks, "sharded")
    assert own.bytes_received.tolist() == sharded.bytes_received.tolist()
    assert own.peak <= sharded.peak
    for item in own.graph.inputs:
        if item.role == "parameter":
            assert set(own.strategy.layouts[item.name].codes) == {0}


@pytest.mark.parametrize("ranks", [2, 4])
def test_tensor_parallelism_of_a_block_costs_what_megatron_does(ranks: int) -> None:
    own, megatron = plans(written.block_as_megatron, ranks, "megatron")
    assert own.bytes_received.tolist() == megatron.bytes_received.tolist()
    assert own.peak <= megatron.peak


def test_both_on_a_mesh_of_two_axes() -> None:
    """A weight that both cut along its rows lies in other parts, of the same size; copies are where they were."""
    own, _ = plans(written.block_and_shards, 4, "sharded")
    codes = {item.path: own.strategy.layouts[item.name].codes for item in own.graph.inputs if item.role != "batch"}
    assert own.strategy.mesh.sizes == (2, 2)
    assert codes["wide.weight"] == (1, 0)
    assert codes["narrow.weight"] == (0, 1)
    assert codes["first.weight"] == (0, -1)
    assert codes["wide.weight/mean"] == codes["wide.weight"]
    assert own.strategy.layouts["x.0"].codes == (0, -1)


def test_shards_within_copies() -> None:
    own, _ = plans(written.replicated_and_sharded, 4, "sharded")
    codes = {own.strategy.layouts[item.name].codes for item in own.graph.inputs if item.role == "parameter"}
    assert codes == {(-1, 0)}


def test_outputs_lie_as_it_is_said() -> None:
    own, _ = plans(written.block_by_sequence, 2, "single")
    words = own.graph.values["x.0"].bytes // 2  # that a device gathers, or adds up, for a product: six and their slopes
    assert own.bytes_received.max() <= 12 * words
    for path in ("attention.out", "narrow"):
        made = [node.outputs[0] for node in own.graph.nodes if node.scope == path and node.phase == "forward"]
        assert own.strategy.layouts[made[-1]].codes == (1,)
    gathered, _ = plans(written.outputs_as_said, 2, "single")
    last = [node.outputs[0] for node in gathered.graph.nodes if node.scope == "4" and node.phase == "forward"][-1]
    assert gathered.strategy.layouts[last].codes == (-1,)


@pytest.mark.parametrize("name", ["sharded", "block", "block_and_shards"])
def test_the_step_is_as_it_was_before(name: str) -> None:
    """What is captured of a model that was laid out is what is captured of the model itself."""
    make = getattr(written, name)
    plain = written.Block() if "block" in name else written.mlp()
    step = girih.TrainingStep(
        plain, loss=nn.functional.mse_loss, optimizer=torch.optim.AdamW(plain.parameters(), lr=0.1)
    )
    assert capture(given(make, 4).step, batch_of(make)).graph == capture(step, batch_of(make)).graph


def test_the_module_stays_as_it_is() -> None:
    with pretended_ranks(2):
        model = written.sharded()
        before = {name: (type(item), id(item)) for name, item in model.named_parameters()}, type(model)
        as_parallelized(girih.TrainingStep(model, loss=nn.functional.mse_loss), "local:2")
        assert before == ({name: (type(item), id(item)) for name, item in model.named_parameters()}, type(model))


def tensor_outside() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tensor", "data"))
    model = parallelize_module(written.mlp(), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return written.fully_shard(model, mesh=mesh["data"])


@pytest.mark.parametrize(
    ("make", "machine", "kind", "words"),
    [
        (written.mlp, "local:4", CaptureError, "no parameter of the Sequential is a DTensor: call fully_shard"),
        (written.sharded, "local:2", girih.PlanError, "over 4 ranks, and local:2 has 2 devices"),
        (tensor_outside, "local:4", girih.PlanError, "axes of fully_shard inside those of tensor parallelism"),
    ],
)
def test_what_cannot_be_read_is_refused(
    make: Callable[[], nn.Module], machine: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        given(make, 4, machine)


def test_ranks_receive_what_is_predicted(tmp_path: Path) -> None:
    """Counted at PyTorch's collectives. FSDP2 gathers a module's parameters together, and again for its
    backward pass: those that no operator of girih's reads there come on top."""
    script = Path(shutil.copy(written.__file__, tmp_path))
    forked_ranks(script, 2, str(tmp_path / "seen.json"), *BLOCKS, "sharded")
    seen = json.loads((tmp_path / "seen.json").read_text())
    for name, collectives in BLOCKS.items():
        block, _ = plans(getattr(written, name), 2, "data")
        assert seen[name]["bytes"] == int(block.bytes_received.sum())
        assert sum(seen[name]["calls"].values()) == collectives
    shards, _ = plans(written.sharded, 2, "data")
    parameters = dict(written.mlp().named_parameters())
    unread = sum(item.numel() for name, item in parameters.items() if "bias" in name or name == "0.weight")
    loss = 1  # which girih's program adds up, and torchrun's ranks have each for themselves
    assert seen["sharded"]["bytes"] == int(shards.bytes_received.sum()) + 4 * (unread - 2 * loss)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = Path(written.__file__).resolve().parents[2] / "examples" / "parallelized.py"
    better = tmp_path / "better.json"
    line = ["compare", f"{program}:training", "--as-parallelized", "-m", "local:4", "--objective", "seconds"]
    assert main([*line, "-o", str(better)]) == 0
    printed = capsys.readouterr().out
    assert "as parallelized" in printed
    assert girih.load(better).search == "exact"
    assert main([*line, "--json"]) == 0
    own, other = json.loads(capsys.readouterr().out)
    assert own["cost"] >= other["cost"] >= own["bound"] > 0
    assert main(["compare", str(better), "--as-parallelized"]) == 2
    assert "takes one program, as file.py:function" in capsys.readouterr().err
    assert main(["compare", f"{program}:moon", "--as-parallelized"]) == 2
    assert main([*line[:3], "-m", "local:1"]) == 2
    assert "several ranks, and local:1 has one device" in capsys.readouterr().err
