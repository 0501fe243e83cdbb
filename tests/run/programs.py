"""Training programs and strategies for the tests of `girih.run`."""

from __future__ import annotations

import random

import numpy as np
import torch

from girih.capture import TrainingStep, capture, state_of
from girih.graph import Graph
from girih.layout import PARTIAL, REPLICATE, Layout, Links, Mesh, Transfers
from girih.lower import Program, lower
from girih.ops import description_of
from girih.partition.options import Rules, division_codes, value_layouts
from girih.partition.problem import value_variables
from girih.partition.strategy import REPEAT, Strategy

ANYTHING = Rules(repeat=True, partial=True)


class Mlp(torch.nn.Module):
    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, hidden)
        self.second = torch.nn.Linear(hidden, hidden)
        self.last = torch.nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.tanh(self.second(x)))


def training(sizes=(12, 10, 9, 6), dtype=torch.float64, seed=0):
    """(captured, state by path, batch by input name) of an MLP with momentum."""
    torch.manual_seed(seed)
    rows, width, hidden, classes = sizes
    model = Mlp(width, hidden, classes).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = TrainingStep(model, loss=lambda y, t: ((y - t) ** 2).mean(), optimizer=optimizer)
    batch = (torch.randn(rows, width, dtype=dtype), torch.randn(rows, classes, dtype=dtype))
    captured = capture(step, batch)
    return captured, {path: tensor.clone() for path, tensor in state_of(step).items()}, captured.flatten(batch)


def scalars_of(graph: Graph) -> dict[str, float]:
    return {item.name: 0.1 for item in graph.inputs if item.role == "scalar"}


def random_strategy(graph: Graph, mesh: Mesh, seed: int, rules: Rules = ANYTHING) -> Strategy:
    """Any divisions and layouts that the rules allow and that can be lowered."""
    chance = random.Random(seed)
    divisions = []
    additive: dict[str, bool] = {}
    for node in graph.nodes:
        description = description_of(graph, node)
        if description is None:
            divisions.append((REPEAT,) * mesh.axes)
            continue
        codes = division_codes(description, mesh, rules)
        divided = codes[(codes != REPEAT).any(axis=1)]
        codes = divided if len(divided) and chance.random() < 0.8 else codes
        # Partial sums pass only where they come from; that is known when layouts are: keep to real divisions.
        codes = codes[(codes >= REPEAT).all(axis=1)]
        divisions.append(tuple(int(code) for code in codes[chance.randrange(len(codes))]))
    layouts: dict[str, Layout] = {}
    chosen: dict[int, Layout] = {}
    for name, variable in value_variables(graph).items():
        if variable not in chosen:
            choices = value_layouts(graph.values[name].shape, False, mesh, rules)
            chosen[variable] = choices[chance.randrange(len(choices))]
        layouts[name] = chosen[variable]
    return Strategy(mesh, tuple(divisions), layouts)


def transfers(mesh: Mesh, objective: str = "bytes") -> Transfers:
    return Transfers(mesh, Links((1e-9,) * mesh.axes, (1e-5,) * mesh.axes), objective)


def program_of(graph: Graph, mesh: Mesh, seed: int, rules: Rules = ANYTHING) -> Program:
    return lower(graph, random_strategy(graph, mesh, seed, rules), transfers(mesh))


