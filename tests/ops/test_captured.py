"""Every node of captured training steps is described, and divides as its description says, on the step's own values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from checking import Case, check_divisions, check_passing
from counts import but_long
from torch.utils._pytree import tree_map

from girih.capture import TrainingStep, capture, state_of
from girih.graph import Ref
from girih.kernels.evaluate import evaluate
from girih.ops import Description, description_of
from girih.ops.coverage import count

models = pytest.importorskip("girih.models")


def exact(batch: Any) -> Any:
    return tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)


def first_inputs(captured: Any, step: TrainingStep, batch: Any) -> dict[str, torch.Tensor]:
    state = state_of(step)
    leaves = iter(torch.utils._pytree.tree_leaves(batch))
    given = {}
    for item in captured.graph.inputs:
        dtype = getattr(torch, captured.graph.values[item.name].dtype)
        if item.role in ("parameter", "buffer", "state"):
            given[item.name] = state[item.path].clone()
        elif item.role == "batch":
            given[item.name] = next(leaves)
        else:
            given[item.name] = torch.tensor(0.01 if item.role == "scalar" else 7, dtype=dtype)
    return given


LIKE_OTHERS = ["rnn-tiny", "candle-uno-tiny"]
"""What they call is what "nmt-tiny" and "dlrm-tiny" call."""


@pytest.mark.parametrize(
    "name", but_long(["lenet-tiny", "gpt-tiny", "dlrm-tiny", "nmt-tiny", *LIKE_OTHERS], LIKE_OTHERS)
)
def test_nodes_divide_as_described(name: str) -> None:
    shown = models.example(name, device="cpu")
    module = shown.module.double()
    step = TrainingStep(module, step=shown.step, optimizer=torch.optim.AdamW(module.parameters()))
    batch = exact(models.random_batch(name, seed=0))
    captured = capture(step, batch)
    graph = captured.graph
    described = [(node.operator, description_of(graph, node)) for node in graph.nodes]
    assert not count(name, described).undescribed
    values = first_inputs(captured, step, batch)
    rng = np.random.default_rng(0)
    seen: set[Description] = set()
    for node, (_, description) in zip(graph.nodes, described, strict=True):
        made = evaluate(node, values)
        values.update(zip(node.outputs, made, strict=True))
        assert description is not None
        if description in seen:
            continue
        seen.add(description)
        attributes = {name: value for name, value in node.arguments if not _holds_tensor(value)}
        case = Case(description, attributes, [values[name] for name in node.inputs], made[0])
        if case.whole.numel() <= 4096:
            check_divisions(case, rng, pairs=False)
            check_passing(case, rng)
    assert len(seen) < len(graph.nodes)


def _holds_tensor(argument: Any) -> bool:
    return isinstance(argument, Ref) or (isinstance(argument, tuple) and any(map(_holds_tensor, argument)))
