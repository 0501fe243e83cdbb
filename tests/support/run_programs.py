"""Training programs and strategies for the tests of `girih.run`."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from girih.capture import TrainingStep, capture, state_of
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.kernels.evaluate import interpret
from girih.layout import PARTIAL, Layout, Links, Mesh, Transfers
from girih.ops import Description, description_of
from girih.ops.derive.divisions import passing_sets
from girih.partition.searches.proportional import with_shares
from girih.partition.space.options import Rules, division_codes, value_layouts
from girih.partition.space.problem import value_variables
from girih.partition.strategy import PASS, REPEAT, Strategy
from girih.program import Program, lower
from girih.run.engines.crew import standstill
from girih.run.loops.loop import Loop
from girih.run.training.verify import advance
from girih.run.worker.initial import key_of

CHUNK = Loop.chunk
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
    return trained(Mlp(width, hidden, classes).to(dtype), (rows, width), (rows, classes))


def trained(model, rows, targets):
    """(captured, state by path, batch by input name) of a model with momentum, on batches of these shapes."""
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = TrainingStep(model, loss=lambda y, t: ((y - t) ** 2).mean(), optimizer=optimizer)
    batch = (torch.randn(rows, dtype=dtype), torch.randn(targets, dtype=dtype))
    captured = capture(step, batch)
    used = {item.path for item in captured.graph.state_inputs}
    state = {path: tensor.clone() for path, tensor in state_of(step).items() if path in used}
    return captured, state, captured.flatten(batch)


def rates(graph: Graph) -> dict[str, torch.Tensor]:
    """Learning rates, as a worker takes them."""
    names = [item.name for item in graph.inputs if item.role == "scalar"]
    return {name: torch.tensor(0.1, dtype=getattr(torch, graph.values[name].dtype)) for name in names}


def scalars_of(graph: Graph) -> dict[str, float]:
    return {item.name: 0.1 for item in graph.inputs if item.role == "scalar"}


class Example:
    """A captured training step with its first state, batches, and the losses and state after each step."""

    def __init__(self, sizes=(12, 10, 9, 6), dtype=torch.float64, steps=3):
        captured, self.state, self.batch = training(sizes, dtype)
        self.graph = captured.graph
        self.initial = captured.initial
        self.scalars = scalars_of(self.graph)
        self.losses, self.states = [], [self.state]
        rate = {name: torch.tensor(value, dtype=dtype) for name, value in self.scalars.items()}
        for _ in range(steps):
            state = {item.name: self.states[-1][key_of(item)] for item in self.graph.state_inputs}
            made = interpret(self.graph, {**state, **self.batch, **rate})
            self.losses += [float(made[item.name]) for item in self.graph.outputs if item.role == "loss"]
            self.states.append(advance(self.graph, self.states[-1], made))

    def compare(self, run, steps, first=0):
        """Do steps of a run, and compare each loss and the last state with one device's."""
        for number in range(first, first + steps):
            assert run.step(self.batch, self.scalars)["loss"] == pytest.approx(self.losses[number], rel=1e-10)
        expected, got = self.states[first + steps], run.state()
        assert got.keys() == expected.keys()
        for path, tensor in expected.items():
            torch.testing.assert_close(got[path], tensor, rtol=1e-10, atol=1e-12)


def random_strategy(graph: Graph, mesh: Mesh, seed: int, rules: Rules = ANYTHING, shares: bool = False) -> Strategy:
    """Any divisions and layouts that the rules allow and that can be lowered, partial sums included. shares: every
    split states some of its own, where its pieces can be computed."""
    chance = random.Random(seed)
    variables = value_variables(graph)
    stored = {name for item in graph.state_inputs for name in (item.name, graph.updates.get(item.name, item.name))}
    chosen: dict[int, Layout] = {}

    def choose(name: str, partial: list[int]) -> None:
        if variables[name] in chosen:
            return
        choices = value_layouts(graph.values[name].shape, False, mesh, rules)
        layout = list(choices[chance.randrange(len(choices))])
        for axis in partial:
            if name not in stored and chance.random() < 0.5:
                layout[axis] = PARTIAL
        chosen[variables[name]] = tuple(layout)

    divisions = []
    for item in graph.inputs:
        choose(item.name, [])
    for node in graph.nodes:
        description = description_of(graph, node)
        division, partial = (REPEAT,) * mesh.axes, []
        if description is not None:
            codes = division_codes(description, mesh, rules)
            lying = [chosen[variables[name]] for name in node.inputs]
            if chance.random() < 0.5:  # else what passes becomes partial sums before
                codes = np.asarray([code for code in codes if passes(description, code, lying)])
            busy = codes[(codes != REPEAT).any(axis=1)]
            codes = busy if len(busy) and chance.random() < 0.8 else codes
            division = tuple(int(code) for code in codes[chance.randrange(len(codes))])
            root = description.root.variables if description.root is not None else ()
            if description.reducer in (None, "sum"):
                summed = [code in root or code <= PASS for code in division]
                partial = [axis for axis, yes in enumerate(summed) if yes or chance.random() < 0.2]
        divisions.append(division)
        for name in node.outputs:
            choose(name, partial)
    made = Strategy.of_codes(mesh, tuple(divisions), {name: chosen[number] for name, number in variables.items()})
    return stating(graph, made, variables, chance) if shares else made


def stating(graph: Graph, made: Strategy, variables: dict[str, int], chance: random.Random) -> Strategy:
    """The strategy with shares of its own for every node and every variable."""

    def drawn() -> tuple[tuple[int, ...] | None, ...]:
        return tuple(tuple(chance.randint(1, 4) for _ in range(size)) for size in made.mesh.sizes)

    shares = {number: drawn() for number in set(variables.values())}
    divisions = tuple(with_shares(graph, made, drawn()).divisions[number] for number in range(len(graph.nodes)))
    layouts = {name: with_shares(graph, made, shares[variables[name]]).layouts[name] for name in graph.values}
    return Strategy(made.mesh, divisions, layouts)


def passes(description: Description, codes: np.ndarray, lying: list[Layout]) -> bool:
    """Are the inputs that must be partial sums partial sums?"""
    sets = passing_sets(description)
    root = description.root.variables if description.root is not None else ()

    def partial(code: int) -> frozenset[int]:
        return sets[PASS - code] if code <= PASS else description.alongside if code in root else frozenset()

    return all(lying[tensor][axis] == PARTIAL for axis, code in enumerate(codes) for tensor in partial(int(code)))


def transfers(mesh: Mesh, objective: str = "bytes") -> Transfers:
    return Transfers(mesh, Links((1e-9,) * mesh.axes, (1e-5,) * mesh.axes), objective)


def program_of(graph: Graph, mesh: Mesh, seed: int, rules: Rules = ANYTHING) -> Program:
    return lower(graph, random_strategy(graph, mesh, seed, rules), transfers(mesh))


def cholesky_program(workers):
    """Four matrices, factored by batch: a worker whose part is not positive definite fails, the others do not."""
    values = {"x": Value("x", (4, 3, 3), "float64"), "y": Value("y", (4, 3, 3), "float64")}
    node = Node("y", "aten.linalg_cholesky", (("self", Ref("x")),), ("y",), source="model.py:7")
    graph = Graph(values, (node,), (Input("x", "batch", "0"),), (Output("y", "result"),))
    mesh = Mesh((workers,))
    return lower(graph, Strategy.of_texts(mesh, ("S0",), {"x": "S0", "y": "R"}), transfers(mesh))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Slow:
    """Have the second worker take longer for each chunk of its own loops."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.seconds = seconds

    def __call__(self, transport: Any, rank: int, device: Any) -> None:
        if rank == 1:
            owner, seconds = threading.current_thread(), self.seconds

            def slow(loop: Loop, *arguments: Any) -> list[Any]:
                if threading.current_thread() is owner:
                    time.sleep(seconds)
                return CHUNK(loop, *arguments)

            Loop.chunk = slow  # type: ignore[method-assign]


def stop(pid: int) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    while sys.platform == "linux" and not standstill(pid):
        time.sleep(0.01)


def impatient_until_mended(crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the crew wait 1.5 s for a command until it has lost a worker. Then it waits as long as before: on a busy
    machine a worker that has just begun, or brings back its tiles, may need longer, and is no more to blame."""
    mend, patience = crew.mend, crew.timeout

    def patiently() -> list[int]:
        crew.timeout = patience
        return mend()

    monkeypatch.setattr(crew, "timeout", 1.5)
    monkeypatch.setattr(crew, "mend", patiently)
