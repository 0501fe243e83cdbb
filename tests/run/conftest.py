"""The program that most tests of `girih.run` divide, and what one device computes of it."""

from __future__ import annotations

import pytest
import torch
from run_programs import scalars_of, training

from girih.ops.evaluate import interpret
from girih.run.initial import key_of
from girih.run.verify import advance


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


@pytest.fixture(scope="session")
def example():
    return Example()
