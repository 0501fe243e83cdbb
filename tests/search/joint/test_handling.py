"""What devices compute for transfers at least: never more than the priced program has it, and all of it where parts are
even."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import fitting_labels, perceptron, random_graph
from simulate_programs import machine_of

from girih.cost.pricing import price
from girih.graph import Graph, parse_graph
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.program import TransferStep, lower
from girih.search.joint.bound import Relaxed

PRODUCT = """graph
  input %x: float32[64, 64]  batch  "0"
  input %w: float32[64, 64]  parameter  "w"
  %a: float32[64, 64] = aten.mm(self=%x, mat2=%w)  # forward
  return %a result"""


def priced(graph: Graph, machine: Machine, strategy: Strategy) -> float:
    """Seconds of transfers in the mean of the devices."""
    program = lower(graph, strategy, Objective("seconds", machine).transfers)
    prices = price(program, machine).prices
    rows = [number for number, step in enumerate(program.steps) if isinstance(step, TransferStep)]
    return float((prices.before + prices.after)[rows].mean(axis=1).sum())


def handled(relaxed: Relaxed, labels: np.ndarray) -> float:
    pairs = zip(relaxed.tables.problem.pairs, relaxed.handling, strict=True)
    return sum(float(table[labels[a], labels[b]]) for (a, b, _), table in pairs)


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)])
def test_transfers_take_no_less(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(sum(sizes))
    for training in (True, False):
        graph = perceptron(2, 12, 20) if training else random_graph(random, 6)
        machine = machine_of(sizes, random)
        relaxed = Relaxed.of(graph, machine, Budget(20.0))
        for _ in range(5):
            labels = fitting_labels(relaxed.tables, random)
            least, whole = handled(relaxed, labels), priced(graph, machine, relaxed.tables.strategy(labels))
            assert least <= whole * (1 + 1e-9)
            assert (least > 0) == (whole > 0)


def test_of_a_product_whose_terms_lie_apart_it_is_known_exactly() -> None:
    """Each of four devices has a term of all elements, and is to have a quarter of the sum."""
    graph, machine = parse_graph(PRODUCT), machine_of((4,))
    relaxed = Relaxed.of(graph, machine, Budget(20.0))
    strategy = Strategy.of_codes(machine.mesh, ((2,),), {"x": (1,), "w": (0,), "a": (0,)})
    labels = relaxed.tables.labels(strategy)
    assert labels is not None
    each, byte = machine.device.launch_seconds, 1 / machine.device.memory_bytes_per_second
    assert handled(relaxed, labels) == pytest.approx(10 * each + 2 * byte * 4 * 64 * 64)
    assert handled(relaxed, labels) >= 0.7 * priced(graph, machine, strategy)
