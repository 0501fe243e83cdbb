"""What is tried before a plan from a file starts refuses nothing that computes: every operator on its samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from checking import to_torch
from counts import LONG
from samples import SAMPLES

from girih.graph import Graph, Input, Node, Ref, Value
from girih.kernels.evaluate import call
from girih.plans.trial import refused_call


def value_of(name: str, tensor: torch.Tensor) -> Value:
    return Value(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("operator", sorted(SAMPLES))
def test_what_computes_is_not_refused(operator: str) -> None:
    for seed in range(4 if LONG else 2):
        sample = SAMPLES[operator](np.random.default_rng(seed))
        given = {name: to_torch(item) for name, item in sample.items()}
        values: dict[str, Value] = {}
        arguments = tuple((name, argument(item, values)) for name, item in given.items())
        inputs = tuple(Input(name, "batch", name) for name in values)
        made = call(operator, given)
        results = list(made) if isinstance(made, tuple | list) else [made]
        results = [torch.empty(0) if item is None else item for item in results]  # not asked for
        outputs = tuple(f"y{number}" for number in range(len(results)))
        values |= {name: value_of(name, item) for name, item in zip(outputs, results, strict=True)}
        graph = Graph(values, (Node("y0", operator, arguments, outputs),), inputs, ())
        assert refused_call(graph, graph.nodes[0]) == ""


def argument(item: Any, values: dict[str, Value]) -> Any:
    """As it stands in a graph; its tensors become values."""
    if isinstance(item, torch.Tensor):
        name = f"x{len(values)}"
        values[name] = value_of(name, item)
        return Ref(name)
    if isinstance(item, tuple | list):
        return tuple(argument(part, values) for part in item)
    return item.item() if isinstance(item, np.generic) else item
