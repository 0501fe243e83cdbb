"""What devices compute for transfers: of a hop what the priced program has, and of a route never more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counts import random_cases
from graphs import fitting_labels, perceptron, random_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import machine_of

from girih.cost.pricing import MOST_DEVICES, Copies, TransferWork, price
from girih.graph import Graph, parse_graph
from girih.layout import Placement, Placements, Transfers, route
from girih.layout.budget import Budget
from girih.layout.mesh import PARTIAL, REPLICATE
from girih.layout.transfer import full_layouts
from girih.machine import Machine
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.program import TransferStep, lower
from girih.search.joint.bound import Relaxed
from girih.search.joint.handling import Handled, followed

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
    """Each of four devices has a term of all elements, and is to have a quarter of the sum: it sends three messages,
    gets three and its own part, copies one term of its quarter and combines three others with it."""
    graph, machine = parse_graph(PRODUCT), machine_of((4,))
    relaxed = Relaxed.of(graph, machine, Budget(20.0))
    strategy = Strategy.of_codes(machine.mesh, ((2,),), {"x": (1,), "w": (0,), "a": (0,)})
    labels = relaxed.tables.labels(strategy)
    assert labels is not None
    each, byte = machine.device.launch_seconds, 1 / machine.device.memory_bytes_per_second
    assert handled(relaxed, labels) == pytest.approx(10 * each + (2 + 3 * 3) * byte * 4 * 16 * 64)
    assert handled(relaxed, labels) == pytest.approx(priced(graph, machine, strategy))


@given(st.integers(0, 2**32), st.sampled_from([(2,), (3,), (2, 2), (2, 3), (2, 2, 2), (3, 4)]), st.booleans())
@settings(max_examples=random_cases(300), suppress_health_check=[HealthCheck.too_slow])
def test_a_hop_takes_what_the_priced_program_has(seed: int, sizes: tuple[int, ...], behind: bool) -> None:
    """Exactly, where it is a step and nothing becomes partial; of more than a few devices in the mean of some."""
    random = np.random.default_rng(seed)
    machine, shape = machine_of(sizes, random), tuple(random.integers(1, 13, random.integers(1, 4)).tolist())
    graph = parse_graph(f'graph\n  input %x: float32{list(shape)}  batch  "0"\n  return %x result')
    codes = [(PARTIAL, REPLICATE, *range(len(shape)))[at] for at in random.integers(0, 2 + len(shape), len(sizes))]
    whole = lower(graph, Strategy.of_codes(machine.mesh, (), {"x": (REPLICATE,) * len(sizes)}), transfers_on(machine))
    others = full_layouts(shape, machine.mesh)
    other = others[int(random.integers(len(others)))]
    before, after = (Placement.of(layout, shape, machine.mesh) for layout in (tuple(codes), other))
    hop = replace(Handled.on(machine).transfers, behind=behind)
    told = float(hop.direct(Placements.single(before), Placements.single(after), 4)[0, 0])
    step = TransferStep("x", 0, "x", "y", before, after, "fetch", "sum")
    real = np.sum(TransferWork(whole, frozenset(), Copies.of(machine, None)).of(step), axis=0)
    if route(transfers_on(machine), before, after, shape, 4) or behind:
        assert told == pytest.approx(real[followed(machine.devices)].mean())
    else:
        assert told == 0


def transfers_on(machine: Machine) -> Transfers:
    return Objective("seconds", machine).transfers


def test_on_many_devices_volumes_tell_it() -> None:
    machine = machine_of((5, 13))
    graph = parse_graph(PRODUCT.replace("64, 64", "130, 65"))
    assert machine.devices > MOST_DEVICES
    shape = (130, 65)
    whole = lower(
        graph, Strategy.of_codes(machine.mesh, ((-1, -1),), dict.fromkeys("xwa", (-1, -1))), transfers_on(machine)
    )
    for before, after in (((0, 0), (1, 1)), ((PARTIAL, 0), (0, 0)), ((0, 1), (-1, -1)), ((PARTIAL, 1), (-1, 1))):
        places = [Placement.of(layout, shape, machine.mesh) for layout in (before, after)]
        told = Handled.on(machine).transfers.direct(*map(Placements.single, places), 4)[0, 0]
        step = TransferStep("x", 0, "x", "y", *places, "fetch", "sum")
        real = np.sum(TransferWork(whole, frozenset(), Copies.of(machine, None)).of(step), axis=0)
        assert told == pytest.approx(real.mean())
