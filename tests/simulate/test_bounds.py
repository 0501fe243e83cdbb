"""Lower bounds: no plan of a graph is faster than the bound of the graph, no program than its own."""

from __future__ import annotations

import numpy as np
import pytest
from counts import random_cases
from graphs import DEVICE, fitting_labels, perceptron, random_graph
from hand_made import compute, gather, machine, program, send, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import MESHES, RULES, machine_of, problem_of

from girih.cost.prices import Prices
from girih.cost.roofline import Rates, Roofline
from girih.cost.work import work_of
from girih.graph import Graph, parse_graph
from girih.layout import Mesh, bounds
from girih.machine import Machine
from girih.ops import description_of
from girih.ops.derive.kinds import VIEW
from girih.partition.space.problem import Objective
from girih.program import ComputeStep, Program, lower
from girih.simulate.bounds import bound_of, schedule_bound
from girih.simulate.incremental import Simulator
from girih.simulate.ticks import TICKS_PER_SECOND

CALIBRATED = Roofline(
    DEVICE,
    (
        ("matmul", Rates(3e-6, ((1e1, 0.2), (1e3, 0.7)), ((1e1, 2.0), (1e4, 0.5)), 9)),
        ("element-wise", Rates(2e-6, ((1.0, 1e6),), ((1e1, 1.5), (1e4, 0.5)), 9)),
    ),
    (("aten.mm", 0.8), ("aten.neg", 1.25)),
)


def priced(made: Program, roofline: Roofline) -> Prices:
    """Each piece by the roofline, views for nothing, transfers for nothing."""
    graph, mesh = made.graph, made.mesh
    before = np.zeros((len(made.steps), mesh.devices))
    for position, step in enumerate(made.steps):
        if not isinstance(step, ComputeStep):
            continue
        node = graph.nodes[step.node]
        description = description_of(graph, node)
        reads = [part.needed.regions for part in step.reads]
        sizes = [(region[..., 1] - region[..., 0]).prod(axis=-1) for region in reads]
        items = [graph.values[name].item_bytes for name in node.inputs]
        output = made.places[step.writes[0]].regions
        written = (output[..., 1] - output[..., 0]).prod(axis=-1) * graph.values[node.outputs[0]].item_bytes
        for device in range(mesh.devices):
            inputs = [float(size[device] * item) for size, item in zip(sizes, items, strict=True)]
            if description is None:
                before[position, device] = DEVICE.launch_seconds + (sum(inputs) + written[device]) / 1e8
                continue
            division = np.asarray([made.strategy.divisions[step.node].codes], np.int64).reshape(1, mesh.axes)
            (starts,), (stops,) = bounds(division, description.sizes, mesh)
            extents = (stops - starts)[device].tolist()
            work = work_of(description, extents, inputs, float(written[device]), moves=False)
            before[position, device] = 0.0 if work.kind == VIEW else roofline.seconds([work])[0]
    return Prices(before, np.zeros_like(before))


def check(graph: Graph, at: Machine, made: Program, roofline: Roofline) -> None:
    found = bound_of(graph, at, roofline)
    seconds = Simulator(made, at, priced(made, roofline)).seconds
    assert found.seconds <= seconds + len(made.steps) / TICKS_PER_SECOND  # the simulator's ticks are rounded
    assert found.seconds == max(part for _, part in found.parts)
    assert (found.how, found.seconds) in found.parts


@given(st.integers(0, 2**32), st.sampled_from(MESHES), st.integers(1, 10), st.booleans())
@settings(max_examples=random_cases(120), suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_beats_the_bound_of_the_graph(seed: int, sizes: tuple[int, ...], nodes: int, training: bool) -> None:
    random = np.random.default_rng(seed)
    graph = perceptron(2, 8, 12) if training else random_graph(random, nodes)
    at = machine_of(sizes, random)
    problem = problem_of(graph, at, RULES[int(random.integers(len(RULES)))])
    labels = fitting_labels(problem, random)
    made = lower(graph, problem.strategy(labels), Objective("bytes", at).transfers)
    for roofline in (Roofline(DEVICE), CALIBRATED):
        check(graph, at, made, roofline)


def test_one_device_is_its_own_bound() -> None:
    graph = perceptron(2, 8, 12)
    at = Machine("one", DEVICE, ())
    problem = problem_of(graph, at, RULES[0])
    labels = np.zeros(len(problem.problem.domains), np.int64)
    made = lower(graph, problem.strategy(labels), Objective("bytes", at).transfers)
    seconds = Simulator(made, at, priced(made, Roofline(DEVICE))).seconds
    found = bound_of(graph, at)
    assert found.seconds == pytest.approx(seconds)
    assert found.how == "work of all nodes over all devices"


def test_a_chain_of_small_nodes_is_bound_by_its_launches() -> None:
    lines = ["graph", '  input %x: float32[4]  batch  "0"', "  %y0: float32[4] = aten.neg(self=%x)  # forward"]
    lines += [f"  %y{n}: float32[4] = aten.neg(self=%y{n - 1})  # forward" for n in range(1, 50)]
    graph = parse_graph("\n".join([*lines, "  return %y49 result"]))
    found = bound_of(graph, machine_of((2, 2)))
    assert found.how == "critical path of the smallest pieces"
    assert found.seconds == pytest.approx(50 * (DEVICE.launch_seconds + 2 * 4 / DEVICE.memory_bytes_per_second))


def test_what_is_not_read_by_every_piece_is_no_chain() -> None:
    """Half of the padding's pieces read nothing of what is padded: their readers need not wait for it."""
    lines = ["graph", '  input %x: float32[8]  batch  "0"', "  %y0: float32[8] = aten.neg(self=%x)  # forward"]
    lines += [f"  %y{n}: float32[8] = aten.neg(self=%y{n - 1})  # forward" for n in range(1, 20)]
    lines += ["  %c: float32[16] = aten.constant_pad_nd(self=%y19, pad=[8, 0], value=0.0)  # forward"]
    graph = parse_graph("\n".join([*lines, "  return %c result"]))
    chain = 20 * (DEVICE.launch_seconds + 2 * 4 * 2 / DEVICE.memory_bytes_per_second)
    path = dict(bound_of(graph, machine_of((2, 2))).parts)["critical path of the smallest pieces"]
    assert path == pytest.approx(chain)


def test_the_parts_of_a_program_s_bound() -> None:
    mesh = Mesh((3,))
    made, prices = program((3,), compute([1, 2, 3]), whole(gather(mesh, "x")), whole(send(mesh, "y", {0: 1})))
    found = schedule_bound(Simulator(made, machine((3,)), prices).schedule())
    assert dict(found.parts) == {
        "work of the busiest device": 3,
        "traffic of the busiest port": 3,
        "longest path without contention": 5,
    }
    assert (found.seconds, found.how) == (5, "longest path without contention")
    assert Simulator(made, machine((3,)), prices).seconds == 6
