"""Graphs of equal form are searched once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from graphs import machine_of

from benchmarks.array_programs import least_squares, random_program, renamed
from girih.graph import Graph, Input, Node, Output, Ref, Value, check
from girih.layout import parse_sharding
from girih.partition.searches.exact import Exact
from girih.partition.searches.plan_cache import PlanCache, form
from girih.partition.searches.spartan import Spartan
from girih.partition.searches.tiled import Wanted, tiled
from girih.partition.space.problem import Objective
from girih.program import lower

GOAL = Objective("bytes", machine_of((2, 2)))
RATINGS = 96 * 64 * 4


def test_the_next_iteration_is_answered_without_a_search() -> None:
    known = PlanCache()
    graph = least_squares(96, 64, 8)
    first, proved = known.tiled(graph, GOAL, Wanted(copies=RATINGS))
    again, told = known.tiled(renamed(graph, "next"), GOAL, Wanted(copies=RATINGS))
    assert (known.misses, known.hits) == (1, 1)
    check(again.graph)
    assert lower(again.graph, again.strategy, GOAL.transfers).bytes_received().sum() == told.cost == proved.cost
    assert told.statistics["remembered"] == "yes"
    assert again.strategy.divisions == first.strategy.divisions
    assert {f"{name}next" for name in graph.values} <= set(again.graph.values)
    assert again.copies == {"a0next.copy": "a0next"}


def test_remembered_answers_are_those_of_a_search() -> None:
    known = PlanCache()
    random = np.random.default_rng(5)
    for _ in range(12):
        graph = random_program(random, int(random.integers(2, 12)), (4, 8))
        for name in ("one", "two"):
            for budget in (0, 512):
                same = renamed(graph, name)
                found, certificate = known.tiled(same, GOAL, Wanted(copies=budget))
                searched, wanted = tiled(same, GOAL, Wanted(copies=budget))
                assert found == searched
                assert (certificate.cost, certificate.bound) == (wanted.cost, wanted.bound)
    assert known.hits >= 24


def test_what_changes_the_answer_is_searched_anew() -> None:
    known = PlanCache()
    graph = least_squares(96, 64, 8)
    other = Objective("bytes", replace(machine_of((2, 2)), name="another name", source="and source"))
    wishes = [
        (graph, GOAL, Wanted()),
        (least_squares(96, 64, 9), GOAL, Wanted()),
        (least_squares(96, 64, 8, iterations=3), GOAL, Wanted()),
        (graph, Objective("seconds", GOAL.machine), Wanted()),
        (graph, Objective("bytes", machine_of((4,))), Wanted()),
        (graph, GOAL, Wanted(copies=RATINGS)),
        (graph, GOAL, Wanted(Spartan())),
        (graph, GOAL, Wanted(held={"a0": (parse_sharding("S0·S0"),)})),
        (graph, GOAL, Wanted(held={"a0": (parse_sharding("S1·S1"),)})),
    ]
    for wish in wishes:
        known.tiled(*wish)
    assert (known.misses, known.hits) == (len(wishes), 0)
    known.tiled(graph, other, Wanted())
    known.tiled(graph, GOAL, Wanted(Exact(1.0)))
    assert (known.misses, known.hits) == (len(wishes), 2)


def drawn(stream: int, alpha: float) -> Graph:
    values = {name: Value(name, (8, 8), "float32") for name in ("x", "r", "y")}
    nodes = (
        Node("r", "girih.random_uniform", (("size", (8, 8)), ("dtype", "float32"), ("stream", stream)), ("r",)),
        Node("y", "aten.add.Tensor", (("self", Ref("x")), ("other", Ref("r")), ("alpha", alpha)), ("y",)),
    )
    return Graph(values, nodes, (Input("x", "batch", str(stream)),), (Output("y", "result"),))


def test_random_streams_and_paths_do_not_count_and_attributes_do() -> None:
    assert form(drawn(0, 1.0)) == form(drawn(7, 1.0))
    assert form(drawn(0, 1.0)) != form(drawn(0, 2.0))
    assert form(drawn(0, 1.0)) != form(drawn(0, 1))  # an int and a float are different programs


def test_the_oldest_is_forgotten_first() -> None:
    known = PlanCache(most=2)
    graphs = [random_program(np.random.default_rng(seed), 4, (4, 8)) for seed in range(3)]
    for number in (0, 1, 0, 2, 0):
        known.tiled(graphs[number], GOAL)
    assert (known.misses, known.hits) == (3, 2)
    known.tiled(graphs[1], GOAL)
    assert known.misses == 4
