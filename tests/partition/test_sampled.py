"""The sampled search: its guide against a plain reference, its answers against brute force and the exact search."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from counts import random_cases
from graphs import Maker, machine_of, perceptron, random_graph, random_labels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from girih.graph import Graph, Output, Ref
from girih.layout import coordinates_of, parse_sharding
from girih.partition.searches.data_parallel import DataParallel
from girih.partition.searches.exact import exact
from girih.partition.searches.sampled import Sampled, flatten, guided_seconds, labels_of
from girih.partition.space.layers import layers_of
from girih.partition.space.options import SOAP
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import Strategy
from girih.program import lower


def problem_of(graph: Graph, sizes: tuple[int, ...]) -> PartitionProblem:
    return build(graph, Objective("seconds", machine_of(sizes)), SOAP)


def reference(item: PartitionProblem, labels: np.ndarray) -> float:
    """The guide's time, written plainly: compute and links of devices apart, everything in the graph's order."""
    mesh, count = item.mesh, len(item.layouts)
    tables, clock, link = item.problem.tables, [0.0] * mesh.devices, [0.0] * mesh.devices
    ready: dict[str, float] = {}

    def devices(codes: tuple[int, ...]) -> set[int]:
        able = [set(coordinates_of(int(code), size)) for code, size in zip(codes, mesh.sizes, strict=True)]
        return {d for d in range(mesh.devices) if all(int(mesh.coordinates[d, a]) in able[a] for a in range(mesh.axes))}

    def transfer(start: float, seconds: float, members: set[int]) -> float:
        if seconds == 0:
            return start
        end = max([start, *(link[device] for device in members)]) + seconds
        for device in members:
            link[device] = end
        return end

    finish = 0.0
    pairs = iter(item.problem.pairs)
    for number, node in enumerate(item.graph.nodes):
        label = labels[count + number]
        taking = devices(tuple(item.options[number].divisions[label]))
        arrive = 0.0
        for name in node.inputs:
            _, variable, table = next(pairs)
            lies = devices(item.layouts[variable][labels[variable]])
            seconds = float(tables[table][label, labels[variable]])
            arrive = max(arrive, transfer(ready.get(name, 0.0), seconds, taking | lies))
        own = float(tables[item.problem.unary[count + number]][label])
        done = 0.0
        for device in taking:
            clock[device] = max(clock[device], arrive) + own
            done = max(done, clock[device])
        for name in node.outputs:
            _, variable, table = next(pairs)
            lies = devices(item.layouts[variable][labels[variable]])
            ready[name] = transfer(done, float(tables[table][label, labels[variable]]), taking | lies)
            finish = max(finish, ready[name], done)
    return finish


@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([(2,), (4,), (2, 2), (2, 3)]))
@settings(max_examples=random_cases(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_guide_is_the_reference(seed: int, nodes: int, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    item = problem_of(random_graph(random, nodes), sizes)
    labels = random_labels(item, random)
    expected = reference(item, labels)
    assert guided_seconds(flatten(item), labels) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([(2,), (2, 2)]))
@settings(max_examples=random_cases(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_labels_and_strategies_say_the_same(seed: int, nodes: int, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    item = problem_of(random_graph(random, nodes), sizes)
    labels = random_labels(item, random)
    assert labels_of(item, item.strategy(labels)).tolist() == labels.tolist()


def test_a_strategy_outside_of_the_space_has_no_labels() -> None:
    item = problem_of(perceptron(1), (2,))
    strategy = item.strategy(np.zeros(len(item.problem.domains), np.int64))
    assert labels_of(item, replace(strategy, divisions=(parse_sharding("S77"),) * len(strategy.divisions))) is None


@pytest.mark.parametrize("sizes", [(2,), (2, 2)], ids=str)
def test_never_worse_than_what_it_starts_from(sizes: tuple[int, ...]) -> None:
    graph, objective = perceptron(3), Objective("time", machine_of(sizes))
    found = Sampled(30, proposals=500).search(graph, objective)
    item = build(graph, objective, SOAP)
    arrays = flatten(item)
    for start in (exact(graph, objective), DataParallel().search(graph, objective)):
        labels = labels_of(item, start.strategy)
        assert labels is not None
        assert found.certificate.cost <= guided_seconds(arrays, labels) * (1 + 1e-12)
    assert lower(graph, found.strategy, objective.transfers).mesh == objective.machine.mesh


def test_equal_seeds_give_equal_answers() -> None:
    graph, objective = perceptron(2), Objective("time", machine_of((2, 2)))
    answers = [Sampled(proposals=300, seed=7).search(graph, objective) for _ in range(2)]
    assert answers[0].strategy == answers[1].strategy
    assert answers[0].certificate.cost == answers[1].certificate.cost


def two_branches() -> Graph:
    """Two chains of products that do not meet: the operator dimension halves their time."""
    make = Maker()
    results = []
    for _ in range(2):
        value = make.input((2, 64))
        for _ in range(4):
            weight = make.input((64, 64), "parameter")
            value = make.emit("aten.mm", (2, 64), "float32", self=Ref(value), mat2=Ref(weight))
        results.append(value)
    return make.graph([Output(name, "result") for name in results])


def test_branches_go_to_devices_of_their_own() -> None:
    """Where starting a kernel is most of the work, dividing gains nothing and placing two branches apart does."""
    graph, objective = two_branches(), Objective("time", machine_of((2,)))
    alone = exact(graph, objective)
    found = Sampled(proposals=4000).search(graph, objective)
    item = build(graph, objective, SOAP)
    labels = labels_of(item, alone.strategy)
    assert labels is not None
    assert found.certificate.cost < guided_seconds(flatten(item), labels) * 0.75
    assert any(axis.on is not None for division in found.strategy.divisions for axis in division.axes)


def test_the_judge_has_the_last_word() -> None:
    """The strategy that the judge likes best is returned, whatever the guide says."""
    graph, objective = perceptron(2), Objective("time", machine_of((2,)))
    seen: list[Strategy] = []

    def judge(strategy: Strategy) -> float:
        seen.append(strategy)
        return float(len(seen) != 2)

    found = Sampled(proposals=200, bound=0.5, how="a test").search(graph, replace(objective, score=judge))
    assert found.strategy == seen[1]
    assert found.certificate.cost == 0.0
    assert (found.certificate.bound, found.certificate.how) == (0.5, "a test")


@pytest.mark.parametrize("name", ["bytes", "seconds"])
def test_other_objectives_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"of --objective time, not of {name}"):
        Sampled().search(perceptron(1), Objective(name, machine_of((2,))))


def test_layers_are_modules_in_all_their_phases() -> None:
    graph = perceptron(3)
    layer = layers_of(graph)
    assert len(layer) == len(graph.nodes)
    assert sorted(set(layer)) == list(range(max(layer) + 1))
    for (one, first), (other, second) in itertools.combinations(zip(graph.nodes, layer, strict=True), 2):
        if one.scope and other.scope:
            assert (one.scope == other.scope) == (first == second)
