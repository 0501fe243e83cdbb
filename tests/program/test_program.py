"""Programs of random strategies on random graphs: what they move is what the search counted, and buffers are sound."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from counts import random_cases
from graphs import Maker, fitting_labels, machine_of, perceptron, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import THOROUGH, check_buffers, check_frees_are_early, lowered, strategies

from girih.graph import Output, Ref
from girih.graph import check as check_graph
from girih.layout import Placements, Transfers, level_volumes
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.program import ComputeStep, FreeStep, Program, TransferStep, check, lower


def seconds_of(program: Program, objective: Objective, problem: PartitionProblem, labels: np.ndarray) -> float:
    """The program's transfers and pieces, priced one by one."""
    work = Transfers(program.mesh, objective.machine.links, "seconds")
    total = 0.0
    for step in program.transfers:
        item = program.graph.values[step.value].item_bytes
        total += work.direct(Placements.single(step.before), Placements.single(step.after), item)[0, 0]
    first = len(problem.layouts)
    for number, options in enumerate(problem.options):
        total += objective.node_costs(options)[labels[first + number]]
    return total


@given(strategies())
@THOROUGH
def test_a_program_costs_what_the_search_counted(case: tuple) -> None:
    graph, objective, problem, labels = case
    check_graph(graph)
    program = lowered(case)
    cost = cost_of(problem.problem, labels)
    if objective.name == "bytes":
        assert program.bytes_received().sum() == cost
        assert sum(size for _, size in program.kinds().values()) == cost
    else:
        assert np.isclose(seconds_of(program, objective, problem, labels), cost, rtol=1e-9, atol=0)


@given(strategies())
@THOROUGH
def test_buffers_are_made_read_and_freed_in_order(case: tuple) -> None:
    program = lowered(case)
    check(program)
    check_buffers(program)
    check_frees_are_early(program)
    nodes = [step.node for step in program if isinstance(step, ComputeStep)]
    assert nodes == list(range(len(program.graph.nodes)))
    last = 0
    for step in program:
        if not isinstance(step, FreeStep):
            assert step.node >= last
            last = step.node


def check_levels(program: Program) -> None:
    """Messages cross the levels that the search priced."""
    mesh = program.mesh
    for step in program.transfers:
        received = np.zeros((mesh.devices, mesh.axes), np.int64)
        for message in program.exchange_of(step).messages:
            if message.source != message.target:
                differs = mesh.coordinates[message.source] != mesh.coordinates[message.target]
                received[message.target, int(np.argmax(differs))] += message.elements
        assert (received == level_volumes(mesh, step.before, step.after)).all(), step


@given(strategies())
@THOROUGH
def test_messages_cross_the_levels_that_were_priced(case: tuple) -> None:
    program = lowered(case)
    if program is not None:
        check_levels(program)


def test_levels_of_a_merge_whose_inner_index_is_cut_by_the_outer_axis() -> None:
    """[2, 6] → [12]: with the columns cut between hosts and the rows inside, a host would hold two separate runs."""
    make = Maker()
    x = make.input((2, 6))
    y = make.emit("aten.reshape", (12,), self=Ref(x), shape=(12,))
    graph = make.graph([Output(y, "result")])
    objective = Objective("seconds", machine_of((2, 2)))
    problem = build(graph, objective, Rules(repeat=True))
    for labels in product(*map(range, problem.problem.domains)):
        if np.isfinite(cost_of(problem.problem, np.asarray(labels))):
            check_levels(lower(graph, problem.strategy(np.asarray(labels)), objective.transfers))


@given(strategies())
@THOROUGH
def test_steps_fit_together(case: tuple) -> None:
    """Transfers start where their source lies; what a node reads is inside of its buffer; nothing stays hidden."""
    program = lowered(case)
    for step in program:
        if isinstance(step, TransferStep):
            assert step.before is program.places[step.source]
            assert step.after is program.places[step.target]
            assert program.value_of[step.source] == program.value_of[step.target] == step.value
        elif isinstance(step, ComputeStep):
            for part in step.reads:
                held, needed = program.places[part.buffer], part.needed
                assert held.partial == needed.partial
                empty = (needed.regions[..., 1] <= needed.regions[..., 0]).any(axis=-1)
                low = (held.regions[..., 0] <= needed.regions[..., 0]).all(axis=-1)
                high = (needed.regions[..., 1] <= held.regions[..., 1]).all(axis=-1)
                assert (empty | (low & high)).all()
    for name, value in program.graph.values.items():
        lies = program.layout_regions(name)
        assert (program.places[name].regions == lies).all()
        assert lies.shape == (program.mesh.devices, max(len(value.shape), 1), 2)


@given(st.integers(0, 2**32), st.integers(1, 8))
@settings(max_examples=random_cases(40))
def test_one_device_moves_nothing(seed: int, nodes: int) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective("bytes", machine_of(()))
    problem = build(graph, objective, Rules())
    assert set(problem.problem.domains) <= {1}
    labels = np.zeros(len(problem.problem.domains), np.int64)
    program = lower(graph, problem.strategy(labels), objective.transfers)
    assert program.transfers == ()
    assert program.bytes_received().tolist() == [0]
    check_buffers(program)


@pytest.mark.parametrize("sizes", [(2,), (2, 2)])
@pytest.mark.parametrize("name", ["bytes", "seconds"])
def test_a_training_step(sizes: tuple[int, ...], name: str) -> None:
    graph, objective = perceptron(2, 8, 12), Objective(name, machine_of(sizes))
    problem = build(graph, objective, Rules(repeat=True, partial=True))
    random = np.random.default_rng(1)
    seen: Counter[str] = Counter()
    for _ in range(20):
        labels = fitting_labels(problem, random)
        program = lowered((graph, objective, problem, labels))
        check_buffers(program)
        seen.update({kind: count for kind, (count, _) in program.kinds().items()})
        if name == "bytes":
            assert program.bytes_received().sum() == cost_of(problem.problem, labels)
        for old, new in graph.updates.items():
            assert problem.strategy(labels).layouts[old].codes == problem.strategy(labels).layouts[new].codes
    assert seen
