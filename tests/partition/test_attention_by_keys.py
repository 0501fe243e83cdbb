"""Attention by blocks of keys: the numbers of attention whole, chosen where it sends less, right on every worker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import girih
from girih.capture import capture
from girih.graph import Graph
from girih.kernels.attention import attention, attention_blocks
from girih.ops import first_description
from girih.rewrite import apply
from girih.rewrite.passes.attention import AttentionByKeys, key_blocks
from girih.rewrite.results import check_results

NOTHING_SEEN = torch.arange(6)[:, None] > torch.arange(8)
WIDTH = 8


class Attention(nn.Module):
    def __init__(
        self, heads: int = 1, shared: int = 1, mask: Any = None, causal: bool = False, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, width // heads * shared) for _ in range(2))
        self.heads, self.shared, self.mask, self.causal = heads, shared, mask, causal

    def forward(self, x: Any, read: Any = None) -> Any:
        read = x if read is None else read
        parts = (self.query(x), self.heads), (self.key(read), self.shared), (self.value(read), self.shared)
        query, key, value = (item.unflatten(-1, (heads, -1)).transpose(1, 2) for item, heads in parts)
        found = F.scaled_dot_product_attention(query, key, value, self.mask, 0.0, self.causal, enable_gqa=True)
        return self.out(found.transpose(1, 2).flatten(2))


def step_of(rows: int, keys: int = 0, dtype: Any = torch.float64, **options: Any) -> tuple[girih.TrainingStep, Any]:
    """keys: 0: the rows themselves."""
    torch.manual_seed(0)
    model = Attention(**options).to(dtype)
    sizes = (rows, *([keys] if keys else []), rows)
    batch = tuple(torch.randn(1, size, WIDTH, dtype=dtype) for size in sizes)
    return girih.TrainingStep(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)), batch


def planned(machine: str, rows: int, keys: int = 0) -> tuple[girih.Plan, Any]:
    step, batch = step_of(rows, keys)
    return girih.plan(step, batch, machine=machine, objective="bytes", compare=()), batch


def divisions(plan: girih.Plan) -> dict[str, set[str]]:
    """The index variables along which attention is divided, by operator."""
    described = {
        number: first_description(plan.graph, node)
        for number, node in enumerate(plan.graph.nodes)
        if "attention" in node.operator
    }
    return {
        plan.graph.nodes[number].operator: {item.names[code] for code in plan.strategy.divisions[number].codes}
        for number, item in described.items()
    }


def written(graph: Graph, count: int) -> Graph:
    nodes = [node.name for node in graph.nodes if "attention" in node.operator]
    return apply(graph, [AttentionByKeys(dict.fromkeys(nodes, count))], prove=True)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"heads": 4, "shared": 4},
        {"heads": 4, "shared": 2, "causal": True},
        {"mask": NOTHING_SEEN, "heads": 2, "shared": 2},
        {"mask": torch.linspace(-1.0, 1.0, 8, dtype=torch.float64).expand(2, 1, 8), "heads": 2},
    ],
    ids=["plain", "shared, causal", "a row that sees nothing", "added"],
)
def test_blocks_compute_the_same(options: dict[str, Any], count: int) -> None:
    graph = capture(*step_of(6, 8, **options)).graph
    blocks = written(graph, count)
    operators = [node.operator for node in blocks.nodes if "attention" in node.operator]
    assert operators == ["girih.attention_blocks", "girih.attention_blocks_backward"]
    check_results(graph, blocks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_short_numbers_stay_near(dtype: Any) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 12, 8, dtype=dtype) for _ in range(3))
    whole, total = attention(query, key, value, 0.3, None, True)
    parts, totals = attention_blocks(query, key, value, 0.3, 3, None, True)
    assert parts.dtype == dtype
    assert totals.dtype == total.dtype == torch.float32
    weights = (totals - totals.logsumexp(0)).exp()
    close = {torch.bfloat16: 2e-2, torch.float32: 1e-6}[dtype]
    torch.testing.assert_close((parts * weights).sum(0), whole.float(), rtol=close, atol=close, check_dtype=False)
    torch.testing.assert_close(totals.logsumexp(0).squeeze(-1), total)
    with pytest.raises(ValueError, match="12 keys are no 5 equal blocks"):
        attention_blocks(query, key, value, 0.3, 5)


@pytest.mark.parametrize(("machine", "rows", "keys"), [("local:4", 32, 0), ("local:2", 4, 64)])
def test_search_divides_keys_and_workers_compute_as_one(machine: str, rows: int, keys: int) -> None:
    """A sequence over itself: rows and keys, each by an axis. A few rows over many keys: keys."""
    plan, batch = planned(machine, rows, keys)
    tried = plan.certificate.tried
    assert plan.certificate.gap == 0
    assert tried["attention by keys"] == plan.certificate.cost < tried["attention whole"]
    cut = {"s"} if keys else {"s", "t"}
    assert divisions(plan) == {"girih.attention_blocks": cut, "girih.attention_blocks_backward": cut}
    with plan.start(backend="processes" if keys else "threads") as running:
        found = running.verified_step(batch)
        assert found.relative < 1e-10, found
        assert sum(item.bytes_received for item in running.run.statistics()) == plan.certificate.cost
        if keys:
            scalars = {item.name: 0.1 for item in plan.graph.inputs if item.role == "scalar"}
            measured = running.run.peak_bytes({f"x.{number}": item for number, item in enumerate(batch)}, scalars)
            assert list(measured) == [use.peak for use in plan.memory_by_device]


def test_rows_stay_where_they_cost_less() -> None:
    plan, _ = planned("local:2", 32)
    assert divisions(plan) == {"girih.attention": {"t"}, "girih.attention_backward": {"t"}}
    assert plan.certificate.bound <= plan.certificate.tried["attention by keys"]


def test_a_limit_that_keys_do_not_keep_is_kept_by_rows() -> None:
    torch.manual_seed(0)
    model, batch = Attention().double(), [torch.randn(1, size, WIDTH, dtype=torch.float64) for size in (16, 24)]
    options = {"machine": "local:2", "objective": "bytes", "compare": ()}
    plans = {
        way: girih.plan(girih.Inference(model), batch, search=f"exact:attention={way}", **options)
        for way in ("whole", "cheapest")
    }
    whole, keys = plans["whole"], plans["cheapest"]
    assert keys.certificate.cost < whole.certificate.cost
    assert whole.peak < keys.peak
    kept = girih.plan(girih.Inference(model), batch, memory=whole.peak, hold="none", **options)
    assert kept.peak <= whole.peak
    assert kept.certificate.cost == whole.certificate.cost


@pytest.mark.parametrize(
    ("keys", "options"),
    [(7, {}), (8, {"heads": 2, "shared": 2}), (8, {"heads": 2})],
    ids=["keys do not divide", "heads do", "heads share keys"],
)
def test_what_is_asked(keys: int, options: dict[str, Any]) -> None:
    blocks = key_blocks(capture(*step_of(4, keys, **options)).graph, 2)
    assert set(blocks.values()) == ({2} if options == {"heads": 2} else set())


def test_the_fastest_plan_has_it_where_it_is_faster() -> None:
    with torch.device("meta"):
        model, x, read = Attention(width=256), torch.empty(1, 16, 256), torch.empty(1, 2**16, 256)
    options = {"machine": "dgx-v100:4", "search": "portfolio:seconds=20", "compare": ()}
    plan = girih.plan(girih.Inference(model), (x, read), **options)
    assert plan.certificate.tried["attention by keys"] == plan.certificate.cost
    assert "girih.attention_blocks" in divisions(plan)
