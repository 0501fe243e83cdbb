"""Attention as one operator: PyTorch's numbers, in rows of their own, in captured steps, on several workers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import girih
from girih.kernels.attention import attention, attention_backward
from girih.ops import first_description
from girih.ops.derive.arithmetic import floating_point_operations
from girih.plans.scratch import host_notes
from girih.program.life.accounts import memory_use

CLOSE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}
SIZES = {
    "plain": {},
    "causal": {"causal": True},
    "more keys": {"causal": True, "keys": 11},
    "fewer keys": {"causal": True, "keys": 4},
    "shared heads": {"causal": True, "shared": 2},
    "other features": {"features": 5, "shared": 2, "causal": True},
    "truth": {"mask": lambda rows, keys: torch.rand(2, 1, rows, keys) > 0.3},
    "nothing seen": {"mask": lambda rows, keys: torch.arange(rows)[:, None] > torch.arange(keys) - 1},
    "padding": {"mask": lambda rows, keys: torch.arange(keys) < torch.tensor([3, 7])[:, None, None, None]},
    "added": {"mask": lambda rows, keys: torch.randn(4, rows, keys), "shared": 2},
}


def operands(dtype: Any, keys: int = 7, shared: int = 4, features: int = 6, mask: Any = None, causal: bool = False):
    torch.manual_seed(0)
    tensors = [
        torch.randn(2, size, heads, width, dtype=dtype).transpose(1, 2).requires_grad_()
        for size, heads, width in ((7, 4, 6), (keys, shared, 6), (keys, shared, features))
    ]
    mask = None if mask is None else mask(7, keys)
    return tensors, mask if mask is None or mask.dtype == torch.bool else mask.to(dtype), causal


def close(got: Any, expected: Any, dtype: Any) -> None:
    expected = expected.detach()
    scale = float(expected.abs().max()) or 1.0
    assert float((got.double() - expected.double()).abs().max()) <= CLOSE[dtype] * scale


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", SIZES)
def test_numbers_are_pytorchs_whole_and_in_rows(case: str, dtype: Any) -> None:
    (query, key, value), mask, causal = operands(dtype, **SIZES[case])
    with sdpa_kernel(SDPBackend.MATH):
        plain = F.scaled_dot_product_attention(query, key, value, mask, 0.0, causal, enable_gqa=True)
    grad = torch.randn_like(plain)
    expected = plain, *torch.autograd.grad(plain, (query, key, value), grad)
    query, key, value = (item.detach() for item in (query, key, value))
    scale = 6**-0.5
    for cuts in ((0, 7), (0, 2, 7)):
        outs, by_query, by_key, by_value = [], [], 0.0, 0.0
        for start, stop in pairwise(cuts):
            rows = slice(start, stop)
            seen = mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
            out, total = attention(query[:, :, rows], key, value, scale, seen, causal, start)
            gradients = attention_backward(
                grad[:, :, rows], query[:, :, rows], key, value, out, total, scale, seen, causal, start
            )
            outs.append(out)
            by_query.append(gradients[0])
            by_key, by_value = by_key + gradients[1], by_value + gradients[2]
            assert all(item.is_contiguous() for item in (out, total, *gradients))
        for got, wanted in zip((torch.cat(outs, 2), torch.cat(by_query, 2), by_key, by_value), expected, strict=True):
            close(got, wanted, dtype)


class Attention(nn.Module):
    def __init__(self, heads: int, shared: int) -> None:
        super().__init__()
        width = 16 // heads * shared
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, width), nn.Linear(16, width)
        self.heads, self.shared = heads, shared

    def forward(self, x: Any) -> Any:
        parts = ((self.query(x), self.heads), (self.key(x), self.shared), (self.value(x), self.shared))
        query, key, value = (item.unflatten(-1, (heads, -1)).transpose(1, 2) for item, heads in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return x + mixed.transpose(1, 2).flatten(2)


def planned(
    machine: str, batch: int, rows: int, heads: int = 4, shared: int = 4, dtype: Any = torch.float64, **options: Any
) -> tuple[girih.Plan, tuple[Any, Any]]:
    torch.manual_seed(0)
    model = Attention(heads, shared).to(dtype)
    pair = torch.randn(batch, rows, 16, dtype=dtype), torch.randn(batch, rows, 16, dtype=dtype)
    step = girih.TrainingStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    return girih.plan(step, pair, machine=machine, objective="bytes", compare=()), pair


def kinds_of(plan: girih.Plan) -> dict[str, int]:
    return {node.operator: number for number, node in enumerate(plan.graph.nodes) if "attention" in node.operator}


@pytest.mark.parametrize(
    ("machine", "batch", "heads", "shared", "cut"),
    [
        ("local:2", 2, 4, 4, {"b", "h", "n"}),
        ("local:2", 1, 4, 4, {"h", "n"}),
        ("local:2", 1, 4, 2, {"n"}),
        ("local:2", 1, 2, 1, {"g"}),
        ("local:2", 1, 1, 1, {"t"}),
        ("local:4", 1, 2, 2, {"h", "n", "t"}),
    ],
)
def test_workers_train_as_one(machine: str, batch: int, heads: int, shared: int, cut: set[str]) -> None:
    """Attention is divided by examples, heads or rows of the query, and the numbers stay."""
    plan, pair = planned(machine, batch, 12, heads, shared)
    for number in kinds_of(plan).values():
        description = first_description(plan.graph, plan.graph.nodes[number])
        assert {description.names[code] for code in plan.strategy.divisions[number].codes} <= cut
    with plan.start(backend="threads") as running:
        found = running.verified_step(pair)
        assert found.ok, found


@pytest.mark.parametrize("shared", [4, 2])
def test_parts_of_the_batch_have_attention_of_their_own(shared: int) -> None:
    plan, pair = planned("local:1", 4, 6, shared=shared, micro_batches=2)
    operators = [node.operator for node in plan.graph.nodes]
    assert operators.count("girih.attention") == operators.count("girih.attention_backward") == 2
    with plan.start(backend="threads") as running:
        found = running.verified_step(pair)
        assert found.ok, found


def test_memory_is_what_was_planned_and_has_no_square_of_the_rows() -> None:
    plan, pair = planned("local:1", 2, 256, dtype=torch.float32)
    with plan.start(backend="threads") as running:
        scalars = {item.name: 0.1 for item in plan.graph.inputs if item.role == "scalar"}
        (measured,) = running.run.peak_bytes({"x.0": pair[0], "x.1": pair[1]}, scalars)
    threads = torch.get_num_threads()
    assert measured == memory_use(plan.program, 0, threads, host_notes(threads)).peak
    assert measured < 2 * 4 * 256 * 256 * 4


def test_it_is_priced_as_five_products_and_two() -> None:
    plan, _ = planned("local:1", 2, 64)
    described = {name: first_description(plan.graph, plan.graph.nodes[at]) for name, at in kinds_of(plan).items()}
    counts = {name: floating_point_operations(description) for name, description in described.items()}
    product = 2 * 2 * 4 * 64 * 64 * 4
    assert 2 * product < counts["girih.attention"] < 3.5 * product
    assert 5 * product < counts["girih.attention_backward"] < 6.5 * product


def test_long_rows_are_priced_and_divided() -> None:
    """The points of its index space are more than whole numbers of 64 bits can say."""
    with torch.device("meta"):
        model, x = Attention(1, 1), torch.empty(1, 2**16, 16)
    plan = girih.plan(girih.Inference(model), x, machine="dgx-v100:4", objective="seconds", compare=())
    (number,) = kinds_of(plan).values()
    assert set(plan.strategy.divisions[number].codes) == {2}
    whole = floating_point_operations(first_description(plan.graph, plan.graph.nodes[number]))
    assert plan.certificate.cost > whole / 4 / plan.machine.device.flops_per_second


def test_stages_have_it() -> None:
    pair = torch.randn(4, 6, 16), torch.randn(4, 6, 16)
    model = nn.Sequential(Attention(4, 4), Attention(4, 2))
    step = girih.TrainingStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    plan = girih.plan(step, pair, machine="local:2", objective="seconds", search="model", compare=())
    assert {division.axes[0].on for division in plan.strategy.divisions} >= {(0,), (1,)}


@pytest.mark.parametrize("how", ["dropout", "asked for", "mask with a gradient"])
def test_what_the_operator_does_not_say_is_taken_apart(how: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Parameter(torch.zeros(5, 5))

        def forward(self, x: Any) -> Any:
            mask = self.mask if how == "mask with a gradient" else None
            if how == "asked for":
                with sdpa_kernel(SDPBackend.MATH):
                    return F.scaled_dot_product_attention(x, x, x) + self.mask.sum()
            return F.scaled_dot_product_attention(x, x, x, mask, 0.1 if how == "dropout" else 0.0) + self.mask.sum()

    model = Model()
    step = girih.TrainingStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    pair = torch.randn(2, 3, 5, 4), torch.zeros(2, 3, 5, 4)
    graph = girih.plan(step, pair, machine="local:1", compare=()).graph
    operators = {node.operator for node in graph.nodes}
    assert "aten.bmm" in operators
    assert "girih.attention" not in operators
