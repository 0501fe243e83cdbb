"""Megatron-LM's division: exactly the paper's collectives, for blocks told by their dataflow, and the same training."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import perceptron
from torch import nn

import girih
from girih.api import Plan, load, plan_graph
from girih.capture import capture
from girih.layout import level_volumes
from girih.machine import machine
from girih.models import example, random_batch
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.plans.check import check as check_plan
from girih.plans.inputs import flatten_batch
from girih.published.divisions.transformer_blocks import Flow, recognised
from girih.search.table import search_of


class Conv1D(nn.Module):
    """A linear layer whose weight is [inputs, outputs], as GPT-2's."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


class Layer(nn.Module):
    """A transformer's layer whose parts have names that say nothing, with PyTorch's own attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.a, self.b, self.c, self.d = (nn.Linear(width, width) for _ in range(4))
        self.e, self.f = nn.LayerNorm(width), nn.LayerNorm(width)
        self.g = nn.Sequential(Conv1D(width, 2 * width), nn.GELU(), Conv1D(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.e(x)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.a, self.b, self.c)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.d(mixed.transpose(1, 2).flatten(2))
        return x + self.g(self.f(x))


def squares(module: nn.Module, batch: Any) -> torch.Tensor:
    return (module(batch["x"]) - batch["y"]).square().mean()


def step_of(module: nn.Module, *shape: int) -> tuple[girih.TrainingStep, dict[str, torch.Tensor]]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    batch = {"x": torch.randn(*shape, dtype=next(module.parameters()).dtype)}
    with torch.no_grad():
        batch["y"] = torch.randn_like(module(batch["x"]))
    return girih.TrainingStep(module, step=squares, optimizer=optimizer), batch


def planned_step(step: Any, batch: Any, where: str) -> Plan:
    plan = girih.plan(step, batch, machine=where, search="megatron", compare=(), objective="bytes")
    check_plan(plan)
    return plan


def planned(name: str, where: str) -> Plan:
    made = example(name, device="cpu")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
    return planned_step(girih.TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs, where)


def reduced(plan: Plan) -> Counter[tuple[str, int]]:
    """How often values of so many elements are sent, by phase: an all-reduce is counted once."""
    program = plan.program
    moved = {
        (program.graph.nodes[step.node].phase, step.value, program.graph.values[step.value].elements)
        for step in program.transfers
        if level_volumes(program.mesh, step.before, step.after).any()
    }
    return Counter((phase, elements) for phase, _, elements in moved)


def cut(plan: Plan, path: str) -> set[int]:
    item = next(item for item in plan.graph.inputs if item.path == path)
    return set(plan.strategy.layouts[item.name].codes)


@pytest.mark.parametrize(
    ("name", "where"),
    [("gpt-tiny", "local:4"), ("gpt-tiny", "local:2"), ("llama-tiny", "local:2"), ("bert-tiny", "local:4")],
)
def test_two_reductions_in_each_pass_of_a_layer_and_nothing_else(name: str, where: str) -> None:
    plan = planned(name, where)
    hidden, tokens, devices, layers = 8 * 16 * 32, 8 * 16, plan.machine.devices, 2
    # In each pass one for the attention and one for the MLP of each layer, and one for the vocabulary; the loss of each
    # token is made of two numbers of each device: the logarithm of its sum of exponentials, in float64, and the label's
    # logit.
    assert reduced(plan) == {("forward", hidden): 2 * layers + 1, ("backward", hidden): 2 * layers + 1,
                             ("forward", tokens): 2}  # fmt: skip
    assert plan.bytes_received.sum() == 2 * (devices - 1) * 4 * ((4 * layers + 2) * hidden + 3 * tokens)
    assert "2 attention blocks, 2 MLPs, the vocabulary divided" in plan.certificate.space


def test_blocks_are_divided_in_micro_batches_too() -> None:
    made = example("gpt-tiny", device="cpu")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
    step = girih.TrainingStep(made.module, step=made.step, optimizer=optimizer, micro_batches=2)
    plan = planned_step(step, made.inputs, "local:4")
    assert "2 attention blocks, 2 MLPs, the vocabulary divided" in plan.certificate.space
    assert plan.bytes_received.sum() == planned("gpt-tiny", "local:4").bytes_received.sum()


def test_outer_levels_may_divide_the_state() -> None:
    made = example("gpt-tiny", device="cpu")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
    step = girih.TrainingStep(made.module, step=made.step, optimizer=optimizer)
    copied, sharded = (
        girih.plan(step, made.inputs, machine="2x2", search=f"megatron:state={state}", compare=(), objective="seconds")
        for state in ("copied", "sharded")
    )
    check_plan(sharded)
    for path, inside in (("blocks.0.expand.weight", 0), ("blocks.0.contract.weight", 1)):
        assert cut(copied, path) == cut(copied, f"{path}/momentum") == {-1, inside}
        assert cut(sharded, path) == cut(sharded, f"{path}/momentum") == {1 - inside, inside}
    assert sharded.memory_by_device[0].state < 0.6 * copied.memory_by_device[0].state
    with pytest.raises(SearchError, match="no state 'split': expected one of copied, sharded"):
        search_of("megatron:state=split")


def test_weights_lie_as_the_paper_has_them() -> None:
    plan = planned("gpt-tiny", "local:4")
    for layer in (0, 1):
        for name in ("attention.query", "attention.key", "attention.value", "expand"):
            assert cut(plan, f"blocks.{layer}.{name}.weight") == cut(plan, f"blocks.{layer}.{name}.bias") == {0}
            assert cut(plan, f"blocks.{layer}.{name}.weight/momentum") == {0}
        for name in ("attention.output", "contract"):
            assert cut(plan, f"blocks.{layer}.{name}.weight") == {1}
            assert cut(plan, f"blocks.{layer}.{name}.bias") == {-1}
        assert cut(plan, f"blocks.{layer}.attention_norm.weight") == {-1}
    assert cut(plan, "token_embedding.weight") == {0}
    assert cut(plan, "position_embedding.weight") == {-1}


def test_names_and_layouts_of_weights_do_not_matter() -> None:
    plan = planned_step(*step_of(nn.Sequential(Layer(16, 4), Layer(16, 4)), 4, 6, 16), "local:4")
    hidden = 4 * 6 * 16
    # The input of the first layer wants no gradient, but its norm does.
    assert reduced(plan) == {("forward", hidden): 4, ("backward", hidden): 4}
    assert plan.bytes_received.sum() == 2 * 3 * 8 * hidden * 4


def test_a_sequence_of_linear_layers_is_divided_in_pairs() -> None:
    module = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    plan = planned_step(*step_of(module, 16, 8), "local:2")
    assert [cut(plan, f"{layer}.weight") for layer in (0, 2, 4, 6)] == [{0}, {1}, {0}, {1}]
    # Behind each pair; in the backward pass before the second: nothing is before the first one.
    assert reduced(plan) == {("forward", 16 * 12): 1, ("forward", 16 * 4): 1, ("backward", 16 * 12): 1}


def test_blocks_are_recognised_once_by_a_walk_through_each(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: Counter[str] = Counter()
    for name in ("carry", "ask"):
        plain = getattr(Flow, name)

        def counting(*args: Any, name: str = name, plain: Any = plain) -> None:
            visits[name] += 1
            plain(*args)

        monkeypatch.setattr(Flow, name, counting)
    counts = []
    for pairs in (4, 8):
        layers = [layer for _ in range(2 * pairs) for layer in (nn.Linear(16, 16), nn.ReLU())]
        graph = capture(*step_of(nn.Sequential(*layers), 8, 16)).graph
        visits.clear()
        found = recognised(graph, 2)
        assert found.count("MLP") == pairs
        counts.append(sum(visits.values()))
        assert recognised(graph, 2) is found
        assert sum(visits.values()) == counts[-1]
    assert counts[1] < 2.1 * counts[0]


def test_the_batch_is_divided_over_hosts() -> None:
    """Reductions inside a host are of its part of the batch; gradients are added up between hosts."""
    plan = planned("gpt-tiny", "2x2")
    program, hosts, devices = plan.program, 2, 2
    inside = 2 * (devices - 1) * 4 * (10 * 8 * 16 * 32 + 3 * 8 * 16)  # two hosts, half of it each
    roles = {item.name: item for item in plan.graph.inputs}
    gradients = sum(
        plan.graph.values[name].bytes
        * (1 if 0 in plan.strategy.layouts[name].codes or 1 in plan.strategy.layouts[name].codes else devices)
        for name, item in roles.items()
        if item.role == "parameter"
    )
    between = 2 * (hosts - 1) * gradients
    assert inside + between <= program.bytes_received().sum() <= inside + between + 256  # and the loss of all tokens


@pytest.mark.parametrize(("where", "message"), [("local:3", "heads do not divide"), ("local:4", "left whole")])
def test_attention_whose_heads_do_not_divide_is_left_whole(where: str, message: str) -> None:
    plan = planned("gpt-tiny" if where == "local:3" else "llama-tiny", where)  # 4 heads, and 2 of keys and values
    assert "2 MLPs, the vocabulary divided" in plan.certificate.space
    assert "2 attention blocks left whole" in plan.certificate.space
    assert message in plan.certificate.space
    assert cut(plan, "blocks.0.attention.query.weight") == {-1}
    assert reduced(plan)["forward", 8 * 16 * 32] == 3


def test_stacked_queries_keys_and_values_are_left_whole() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    plan = planned_step(*step_of(layer, 4, 6, 16), "local:2")
    assert "1 MLP divided over 2 devices; 1 attention block left whole" in plan.certificate.space
    assert cut(plan, "linear1.weight") == {0}
    assert cut(plan, "self_attn.in_proj_weight") == {-1}
    assert set(reduced(plan).elements()) == {("forward", 4 * 6 * 16), ("backward", 4 * 6 * 16)}


@pytest.mark.parametrize("name", ["rnnlm-tiny", "nmt-tiny"])
def test_without_blocks_there_is_no_such_plan(name: str) -> None:
    made = example(name, device="meta")
    step = girih.TrainingStep(made.module, step=made.step, optimizer=torch.optim.SGD(made.module.parameters(), lr=0.1))
    graph = capture(step, made.inputs).graph
    with pytest.raises(SearchError, match="no attention block or MLP"):
        search_of("megatron").search(graph, Objective("bytes", machine("local:2")))
    with pytest.raises(girih.PlanError, match="search megatron: this program has no attention block or MLP"):
        plan_graph(graph, machine="local:2", search="megatron", objective="bytes")


def test_a_plan_without_the_comparison_says_why() -> None:
    plan = plan_graph(perceptron(1, 12, 18), machine="local:2", compare=("megatron", "data"), objective="bytes")
    assert [item.name for item in plan.baselines] == ["data"]
    assert "not compared with megatron: this program has no attention block or MLP" in plan.notes[0]
    assert plan.notes[0] in " ".join(str(plan).split())


def doubles(batch: Any) -> Any:
    return {key: item.double() if item.is_floating_point() else item for key, item in batch.items()}


@pytest.mark.parametrize(
    ("name", "where"), [("gpt-tiny", "2x2"), ("llama-tiny", "local:2"), ("bert-tiny", "local:4"), ("", "2x2")]
)
def test_training_is_one_devices(name: str, where: str, tmp_path: Path) -> None:
    if name:
        made = example(name, device="cpu")
        module, inputs, loss_of = made.module.double(), doubles(made.inputs), made.step
    else:
        module, loss_of = nn.Sequential(Layer(16, 4), Layer(16, 4)).double(), squares
        inputs = step_of(module, 4, 6, 16)[1]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    plan = planned_step(girih.TrainingStep(module, step=loss_of, optimizer=optimizer), inputs, where)
    plan.save(tmp_path / "plan.json")
    assert load(tmp_path / "plan.json").strategy == plan.strategy
    with plan.start(backend="threads") as run:
        losses = [run.step(inputs) for _ in range(2)]
        state = run.state_dict()
    expected = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(module, inputs)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-10)
    for key, item in module.state_dict().items():
        torch.testing.assert_close(state[key], item, rtol=1e-8, atol=1e-10)


def test_memory_is_what_was_predicted() -> None:
    """Products of heads copy factors that are no views of a batch: that is told."""
    plan = planned("gpt-tiny", "local:2")
    scalars = {item.name: 0.01 for item in plan.graph.inputs if item.role == "scalar"}
    with plan.start() as running:
        measured = running.run.peak_bytes(flatten_batch(random_batch("gpt-tiny", 8)), scalars)
    assert measured == [use.peak for use in plan.memory_by_device]
