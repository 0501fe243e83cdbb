"""`plan.export("fx")`: one file that PyTorch runs without girih, with the workers' numbers and the plan's bytes; what
needs girih's own engine is refused by name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from counts import LONG
from exported import forked_ranks, torchrun
from torch import nn
from torch.nn.functional import cross_entropy

import girih
from girih.cli.main import main
from girih.run.export.record import collective_of, group_of, ranks_of, recorded, together

LINE = re.compile(r"step \d+: loss (\S+); ranks received (\d+) bytes, of (\d+)")


class Words(nn.Module):
    """An embedding, attention without a mask, a norm; dropout where it is asked for."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.inner, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.drop, self.out = nn.Dropout(dropout), nn.Linear(8, 12)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        x = x + torch.softmax(x @ x.transpose(1, 2), -1) @ self.inner(x)
        return self.out(self.drop(self.norm(x)))


def loss(module: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    words, labels = batch
    return cross_entropy(module(words).flatten(0, 1), labels.flatten(), ignore_index=-100)


@cache
def words_plan(dropout: float = 0.0, **options: object) -> tuple[girih.Plan, nn.Module, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    module = Words(dropout)
    step = girih.TrainingStep(module, step=loss, optimizer=torch.optim.AdamW(module.parameters(), lr=0.01))
    batches = [(torch.randint(12, (4, 6)), torch.randint(12, (4, 6))) for _ in range(3)]
    for _, labels in batches:
        labels[0, :2] = -100
    given = {"machine": "local:2", "objective": "bytes", "compare": (), **options}
    return girih.plan(step, batches[0], **given), module, batches


def test_a_file_trains_without_girih_as_the_workers_do(tmp_path: Path) -> None:
    plan, _, batches = words_plan(dropout=0.25)
    plan.export("fx").save(tmp_path / "step.py", seed=5)
    torch.save(batches, tmp_path / "batches.pt")
    said = forked_ranks(tmp_path / "step.py", 2, "--batches", "batches.pt", "--save", "after.pt")
    rows = LINE.findall(said)
    with plan.start(backend="threads", seed=5) as run:
        losses = [run.step(*batch) for batch in batches]
        state = run.run.state()
    torch.testing.assert_close([float(row[0]) for row in rows], losses, rtol=1e-6, atol=0)
    planned = int(plan.bytes_received.sum())
    assert [(int(received), int(said)) for _, received, said in rows] == [(planned, planned)] * 3
    assert planned > 0
    after = torch.load(tmp_path / "after.pt", weights_only=True)
    assert (after["step"], after["seed"], after["tensors"].keys()) == (3, 5, state.keys())
    for path, tensor in after["tensors"].items():
        torch.testing.assert_close(tensor, state[path], rtol=1e-5, atol=1e-7)


STRANGERS = """
import torch
from step import Program

program = Program()
words, labels = torch.randint(12, (4, 6)), torch.randint(12, (4, 6))
for batch in ((words[:2], labels[:2]), (words, labels, labels), (words,), (words.int(), labels)):
    try:
        program.step(*batch)
    except ValueError as error:
        print("refused:", error)
print("steps:", program.steps, program.step(words, labels) > 0)
"""


def test_a_program_refuses_batches_that_it_was_not_made_for(tmp_path: Path) -> None:
    words_plan(machine="local:1")[0].export("fx").save(tmp_path / "step.py")
    (tmp_path / "own_loop.py").write_text(STRANGERS)
    lines = forked_ranks(tmp_path / "own_loop.py", 1).splitlines()
    said = [
        "the batch's tensor '0' must be int64[4, 6], got torch.int64[2, 6]", "the batch has ['2'] beside",
        "the batch has nothing at '1'", "the batch's tensor '0' must be int64[4, 6], got torch.int32[4, 6]",
    ]  # fmt: skip
    assert all(line.startswith(f"refused: {start}") for line, start in zip(lines[:-1], said, strict=True)), lines
    assert lines[-1] == "steps: 0 True"


@pytest.mark.skipif(not LONG, reason="torch.compile takes half a minute of processors")
def test_a_file_under_torch_compile_trains_as_pytorch_does(tmp_path: Path) -> None:
    plan, module, batches = words_plan()
    plan.save(tmp_path / "plan.json")
    plan.export("fx").save(tmp_path / "step.py")
    torch.save(batches, tmp_path / "batches.pt")
    said = torchrun(tmp_path / "step.py", 2, "--batches", "batches.pt", "--compiler", "aot_eager")
    optimizer, losses = torch.optim.AdamW(module.parameters(), lr=0.01), []
    for batch in batches:
        optimizer.zero_grad()
        made = loss(module, batch)
        made.backward()
        optimizer.step()
        losses.append(float(made.detach()))
    torch.testing.assert_close([float(word) for word in re.findall(r"loss (\S+)", said)], losses, rtol=1e-6, atol=0)


def test_ranks_that_do_the_same_share_a_function(tmp_path: Path) -> None:
    """Their numbers and groups are in tables; the text is the same each time."""
    text = str(words_plan()[0].export("fx"))
    assert text == str(words_plan.__wrapped__()[0].export("fx"))
    assert text.count("def class_") == 1
    assert "What ranks 0, 1 compute in a step." in text
    compile(text, "step.py", "exec")
    assert not re.search(r"^\s*(import|from) girih", text, re.MULTILINE)


def test_a_plan_from_a_file_begins_with_its_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, _, batches = words_plan()
    plan.save(tmp_path / "plan.json")
    assert main(["export", str(tmp_path / "plan.json"), "-o", str(tmp_path / "step.py"), "--seed", "3"]) == 0
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().out
    made = torch.load(tmp_path / "step.pt", weights_only=True)
    with girih.load(tmp_path / "plan.json").start(backend="threads", seed=3) as run:
        for path, tensor in run.run.state().items():
            assert torch.equal(made["tensors"][path], tensor), path
        run.step(*batches[0])
        run.save(tmp_path / "checkpoint")
        state = run.run.state()
    arguments = ["export", str(tmp_path / "plan.json"), "-o", str(tmp_path / "again.py")]
    assert main([*arguments, "--resume", str(tmp_path / "checkpoint")]) == 0
    resumed = torch.load(tmp_path / "again.pt", weights_only=True)
    assert resumed["step"] == 1
    assert all(torch.equal(resumed["tensors"][path], tensor) for path, tensor in state.items())


def test_a_graph_module_for_each_rank() -> None:
    plan, _, _ = words_plan()
    export = plan.export("fx")
    assert export.groups_needed == ((0, 1),)
    module = export.module(1, {(0, 1): "7"})
    code = module.code
    assert "torch.ops._c10d_functional" in code
    assert "'7'" in code
    assert len([node for node in module.graph.nodes if node.op == "placeholder"]) == len(plan.graph.inputs)


def test_exchanges_are_the_collectives_that_they_are() -> None:
    plan, _, _ = words_plan(machine="local:4")
    kinds = {plan.program.exchange_of(step).kind for step in plan.program.transfers}
    assert {"all-gather", "reduce-scatter"} <= kinds
    graph = recorded(plan.program, 3, torch.device("cpu")).graph
    called = {str(node.target).split(".")[1] for node in graph.nodes if "_c10d" in str(node.target)}
    assert {"all_gather_into_tensor", "reduce_scatter_tensor", "wait_tensor"} <= called
    for step in plan.program.transfers:
        messages = plan.program.exchange_of(step).messages
        remote = tuple(message for message in messages if message.source != message.target)
        every = [together(remote, rank) for rank in range(4)]
        assert all(every[other] == own for own in every for other in own)
        found = [collective_of(plan.program, step, rank) is not None for rank in range(4)]
        assert all(found[other] == found[rank] for rank, own in enumerate(every) for other in own)
    assert ranks_of(group_of((0, 3))) == (0, 3)
    assert ranks_of("sum") is None


def test_what_needs_girihs_own_engine_is_refused() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    step = girih.TrainingStep(module, loss=nn.functional.mse_loss, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    batch = torch.zeros(4, 64), torch.zeros(4, 64)
    plan = girih.plan(step, batch, machine="local:1", memory="40KB", hold="swap", compare=())
    for engine, word in (("fx", "moves tensors"), ("nccl", "expected fx")):
        with pytest.raises(girih.PlanError, match=word):
            plan.export(engine)


def test_a_kernel_of_girihs_own_is_refused_by_its_name(tmp_path: Path) -> None:
    labels, ends = torch.ones(2, 2, dtype=torch.int64), (torch.tensor([4, 4]), torch.tensor([2, 2]))
    step = girih.Inference(nn.Identity(), lambda module, x: nn.functional.ctc_loss(x.log_softmax(-1), labels, *ends))
    plan = girih.plan(step, torch.randn(4, 2, 5), machine="local:2", compare=(), search="single", objective="bytes")
    with pytest.raises(girih.PlanError, match="ctc"):
        plan.export("fx")
    for wrong, word in (("step.txt", r"ends in .py"), ("nowhere/step.py", "no folder")):
        with pytest.raises(girih.PlanError, match=word):
            words_plan()[0].export("fx").save(tmp_path / wrong)
