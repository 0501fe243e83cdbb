"""Programs for tests of the simulator: random graphs, strategies, windows of overlap, machines and prices."""

from __future__ import annotations

import numpy as np
from graphs import DEVICE, fitting_labels, perceptron, random_graph
from hypothesis import strategies as st

from girih.cost.prices import Prices
from girih.graph import Graph
from girih.layout import Transfers
from girih.machine import Level, Machine
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.program import Overlap, Program, lower, overlapped

RULES = [Rules(repeat=True, partial=True), Rules(repeat=True, small=0), Rules(partial=True)]
PLACED = Rules(repeat=True, partial=True, places=True)
MESHES = [(2,), (3,), (2, 2), (2, 3), (3, 2), (2, 2, 2)]


def machine_of(sizes: tuple[int, ...], random: np.random.Generator | None = None) -> Machine:
    """One level for each axis or, by chance, the inner axes as one level; outer levels may be shared."""
    if random is not None and len(sizes) > 1 and random.random() < 0.4:
        parts = [sizes[:1], sizes[1:]]
    else:
        parts = [(size,) for size in sizes]
    levels = tuple(
        Level(
            f"level {number}",
            axes,
            1e6 * 4.0**number,
            1e-5 / 2**number,
            shared=random is not None and bool(random.random() < 0.4),
        )
        for number, axes in enumerate(parts)
    )
    return Machine("test " + "x".join(map(str, sizes)), DEVICE, levels)


def problem_of(graph: Graph, machine: Machine, rules: Rules) -> PartitionProblem:
    return build(graph, Objective("bytes", machine), rules)


def random_program(
    random: np.random.Generator, sizes: tuple[int, ...], nodes: int, *, training: bool = False, placed: bool = False
) -> tuple[Program, Machine]:
    """A program and its machine. placed: each node lies on a part of the devices."""
    graph = perceptron(2, 8, 12) if training else random_graph(random, nodes)
    machine = machine_of(sizes, random)
    rules = PLACED if placed else RULES[int(random.integers(len(RULES)))]
    problem = problem_of(graph, machine, rules)
    labels = fitting_labels(problem, random)
    name = str(random.choice(["bytes", "seconds"]))
    program = lower(graph, problem.strategy(labels), Transfers(machine.mesh, machine.links, name))
    window = Overlap(int(random.integers(0, 4)), int(random.integers(0, 4)))
    return overlapped(program, window), machine


def random_prices(random: np.random.Generator, program: Program) -> Prices:
    """From a few values, so that many things happen at the same time; often nothing."""
    shape = (len(program.steps), program.mesh.devices)
    if random.random() < 0.3:
        values = np.asarray([0.0, 1e-5, 3e-5])
        return Prices(random.choice(values, shape), random.choice(values, shape))
    if random.random() < 0.5:  # all devices alike
        column = np.broadcast_to(random.random((shape[0], 1)) * 1e-4, shape)
        return Prices(column.copy(), column * 0.25)
    return Prices(random.random(shape) * 1e-4, random.random(shape) * (random.random(shape) < 0.5) * 1e-4)


Case = tuple[Program, Machine, Prices]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = random_program(random, draw(st.sampled_from(MESHES)), draw(st.integers(1, 7)), training=draw(st.booleans()))
    return *made, random_prices(random, made[0])
