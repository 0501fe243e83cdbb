"""Programs of random strategies on random graphs, and what holds for their buffers."""

from __future__ import annotations

import numpy as np
from counts import random_cases
from graphs import fitting_labels, machine_of, random_graph
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from girih.graph import Graph
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.program import FreeStep, Program, lower

RULES = [Rules(), Rules(small=0), Rules(repeat=True, partial=True), Rules(repeat=True, small=0), Rules(partial=True)]
MESHES = [(2,), (3,), (2, 2), (2, 3), (3, 2)]
THOROUGH = settings(max_examples=random_cases(120), suppress_health_check=[HealthCheck.too_slow])


@st.composite
def strategies(draw: st.DrawFn) -> tuple[Graph, Objective, PartitionProblem, np.ndarray]:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    graph = random_graph(random, draw(st.integers(1, 6)))
    objective = Objective(draw(st.sampled_from(["bytes", "seconds"])), machine_of(draw(st.sampled_from(MESHES))))
    problem = build(graph, objective, draw(st.sampled_from(RULES)))
    return graph, objective, problem, fitting_labels(problem, random)


def lowered(case: tuple) -> Program:
    graph, objective, problem, labels = case
    return lower(graph, problem.strategy(labels), objective.transfers)


def check_buffers(program: Program) -> None:
    """Every buffer is made once, before it is read, freed at most once, not read after, and freed if it can be."""
    inputs = {item.name for item in program.graph.inputs}
    outputs = {output.name for output in program.graph.outputs}
    live = set(inputs)
    made = set(inputs)
    for step in program:
        if isinstance(step, FreeStep):
            assert set(step.buffers) <= live
            assert len(set(step.buffers)) == len(step.buffers)
            live -= set(step.buffers)
            continue
        assert set(step.sources) <= live
        for buffer in step.targets:
            assert buffer not in made
            assert buffer in program.places
            made.add(buffer)
            live.add(buffer)
    assert made == set(program.places) == set(program.value_of)
    assert outputs <= live
    updates = program.graph.updates
    lasting = {item.name for item in program.graph.state_inputs if item.name not in updates}
    assert lasting <= live
    unread = {name for name in inputs if not program.graph.consumers[name]}
    assert live == outputs | lasting | unread


def check_frees_are_early(program: Program) -> None:
    for before, step in zip(program.steps, program.steps[1:], strict=False):
        if isinstance(step, FreeStep):
            assert set(step.buffers) <= {*before.sources, *before.targets}


def alone(graph: Graph) -> Program:
    """The program of one device."""
    objective = Objective("bytes", machine_of(()))
    problem = build(graph, objective, Rules())
    return lower(graph, problem.strategy(np.zeros(len(problem.problem.domains), np.int64)), objective.transfers)
