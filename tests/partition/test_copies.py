"""Second copies: against every way of writing them into the graph by hand, within budgets, and as programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import machine_of
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.array_programs import Program, least_squares, random_program
from girih.graph import Graph, Node, Ref, check
from girih.kernels.evaluate import interpret
from girih.layout import parse_sharding
from girih.partition.searches.exact import Exact, exact
from girih.partition.searches.tiled import Wanted, tiled
from girih.partition.space.choice import Tiling, TilingByNumber, applied, value_order, without_copies
from girih.partition.space.copies import is_view
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.program import lower
from girih.published.divisions.classic import Greedy
from girih.search.table import search_of

SIZES = (4, 8, 12)
EVERYTHING = 10**9
ROWS, COLUMNS = parse_sharding("S0"), parse_sharding("S1")
TWO = Objective("bytes", machine_of((2,)))
FOUR = Objective("bytes", machine_of((2, 2)))


def moved(tiling: Tiling, goal: Objective) -> float:
    check(tiling.graph)
    return float(lower(tiling.graph, tiling.strategy, goal.transfers).bytes_received().sum())


def copied_bytes(tiling: Tiling) -> int:
    """Of second copies, views apart."""
    graph = tiling.graph
    return sum(
        graph.values[name].bytes
        for name in tiling.copies
        if name not in graph.producer or not is_view(graph, graph.nodes[graph.producer[name]])
    )


# ------------------------------------------------------------------------------------------- against all rewritings


def rewritings(graph: Graph) -> list[Graph]:
    """The graph with every set of values copied (cloned; inputs loaded, views taken again) and read in every way."""
    found = []
    names = [name for name in value_order(graph) if any(name in node.inputs for node in graph.nodes)]
    whole = ((0,),)
    for count in range(len(names) + 1):
        for copied in combinations(names, count):
            # A view that is copied is run twice, each run with its own reads.
            runs = [2 if is_view(graph, n) and n.outputs[0] in copied else 1 for n in graph.nodes]
            free = [
                [range(2) if name in copied else range(1) for name in node.inputs]
                for node, times in zip(graph.nodes, runs, strict=True)
                for _ in range(times)
            ]
            for flat in product(*(product(*ranges) for ranges in free)):
                reads, rest = [], list(flat)
                for times in runs:
                    reads.append(tuple(rest[:times]))
                    rest = rest[times:]
                choice = TilingByNumber(
                    TWO.machine.mesh,
                    tuple(((0,), (0,)) if name in copied else whole for name in value_order(graph)),
                    tuple(((0,),) * times for times in runs),
                    tuple(reads),
                    frozenset(number for number, item in enumerate(graph.inputs) if item.name in copied),
                )
                found.append(applied(graph, choice).graph)
    return found


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=random_cases(25))
def test_no_rewriting_by_hand_is_cheaper(seed: int, operators: int) -> None:
    graph = random_program(np.random.default_rng(seed), operators, SIZES)
    best, certificate = tiled(graph, TWO, Wanted(copies=EVERYTHING))
    every = rewritings(graph)
    if len(every) > 400:
        every = [every[int(n)] for n in np.random.default_rng(seed).integers(len(every), size=400)]
    assert certificate.gap == 0
    assert all(exact(one, TWO).certificate.cost >= certificate.cost for one in every)
    assert exact(best.graph, TWO).certificate.cost == certificate.cost


@given(st.integers(0, 2**32), st.integers(2, 12), st.sampled_from([TWO, FOUR]), st.sampled_from(["exact", "spartan"]))
@settings(max_examples=random_cases(60))
def test_budgets_are_kept_and_programs_move_what_is_priced(
    seed: int, operators: int, goal: Objective, search: str
) -> None:
    random = np.random.default_rng(seed)
    graph = random_program(random, operators, SIZES)
    alone = exact(graph, goal).certificate.cost
    last = np.inf
    for budget in (0, *sorted(random.integers(1, 4 * 12 * 12 * 8, 2).tolist()), EVERYTHING):
        found, certificate = tiled(graph, goal, Wanted(search_of(search), copies=budget))
        assert moved(found, goal) == certificate.cost
        assert copied_bytes(found) <= budget
        assert found.copies or found.graph is graph
        if search == "exact":
            assert certificate.gap == 0
            assert certificate.cost <= min(last, alone)
            last = certificate.cost
        if budget == 0 and search == "exact":
            assert certificate.cost == alone
            assert not found.copies


# ------------------------------------------------------------------------------------------- by hand


def scans(times: int = 1) -> Program:
    """An array that is wanted by rows and by columns, so many times each."""
    made = Program()
    base = made.newarray(8, 8)
    for _ in range(times):
        made.scan(base, 0)
        made.scan(base, 1)
    return made


def test_an_input_that_is_loaded_in_two_layouts_moves_nothing() -> None:
    graph = scans(3).graph()
    assert tiled(graph, TWO)[1].cost == 3 * 256  # half of 512 bytes for each scan along the other dimension
    found, certificate = tiled(graph, TWO, Wanted(copies=512))
    assert certificate.cost == 0
    assert found.copies == {"a0.copy": "a0"}
    assert [item.path for item in found.graph.inputs] == ["0", "0"]
    assert tiled(graph, TWO, Wanted(copies=511))[1].cost == 3 * 256


def test_an_array_that_lies_already_is_copied_once() -> None:
    graph = scans(3).graph()
    for lies in (ROWS, COLUMNS):
        assert tiled(graph, TWO, Wanted(held={"a0": (lies,)}))[1].cost == 3 * 256
        found, certificate = tiled(graph, TWO, Wanted(copies=512, held={"a0": (lies,)}))
        assert certificate.cost == moved(found, TWO) == 256
        assert found.strategy.layouts["a0"] == lies
        assert [node.operator for node in found.graph.nodes].count("aten.clone") == 1


@pytest.mark.parametrize("search", ["exact", "spartan"])
@pytest.mark.parametrize("budget", [0, 512])
def test_an_array_that_lies_in_two_layouts_is_read_for_nothing(budget, search) -> None:
    graph = scans(3).graph()
    for lies in ((ROWS, COLUMNS), (COLUMNS, ROWS)):
        found, certificate = tiled(graph, TWO, Wanted(search_of(search), copies=budget, held={"a0": lies}))
        assert certificate.cost == moved(found, TWO) == 0
        assert [item.name for item in found.graph.inputs] == ["a0", "a0.copy"]
        assert (found.strategy.layouts["a0"], found.strategy.layouts["a0.copy"]) == lies
        assert found.copies == {"a0.copy": "a0"}


def test_what_is_computed_is_copied_once_and_views_are_taken_from_both() -> None:
    made = Program()
    base = made.map(made.newarray(8, 8))
    for _ in range(2):
        made.scan(base, 0)
        made.scan(base, 1)
    view = made.swapaxis(base)
    made.scan(view, 0)
    made.scan(view, 1)
    graph = made.graph()
    found, certificate = tiled(graph, TWO, Wanted(copies=512))
    assert certificate.cost == moved(found, TWO) == 256
    assert set(found.copies.values()) == {base, view}
    assert sum(node.operator == "aten.permute" for node in found.graph.nodes) == 2


def test_what_was_tiled_is_there_again_without_copies() -> None:
    for graph in (scans(3).graph(), least_squares(12, 8, 3)):
        for held in ({}, {"a0": (ROWS,)}, {"a0": (ROWS, COLUMNS)}):
            found, _ = tiled(graph, TWO, Wanted(copies=EVERYTHING, held=held))
            assert found.copies
            assert without_copies(found.graph, found.copies) == graph


def test_a_small_budget_goes_where_it_saves_most() -> None:
    made = Program()
    small, large = made.newarray(8, 8), made.newarray(8, 16)
    for base, times in ((small, 3), (large, 1)):
        for _ in range(times):
            made.scan(base, 0)
            made.scan(base, 1)
    graph = made.graph()
    cost = {budget: tiled(graph, TWO, Wanted(copies=budget))[1].cost for budget in (0, 512, 1024, 1536)}
    assert cost == {0: 3 * 256 + 512, 512: 512, 1024: 512, 1536: 0}
    found, certificate = tiled(graph, TWO, Wanted(copies=1024))
    assert set(found.copies.values()) == {small}  # it would be the large one, were the cheaper part not searched
    assert certificate.how == "branch and bound"


def test_copies_compute_the_same() -> None:
    graph = least_squares(12, 8, 3)
    found, _ = tiled(graph, TWO, Wanted(copies=12 * 8 * 4))
    assert found.copies
    random = torch.Generator().manual_seed(0)
    given = {item.name: torch.rand(graph.values[item.name].shape, generator=random) for item in graph.inputs}
    wanted = interpret(graph, given)
    again = interpret(
        found.graph, {**given, **{copy: given[name] for copy, name in found.copies.items() if name in given}}
    )
    for item in graph.outputs:
        torch.testing.assert_close(again[item.name], wanted[item.name])


def test_seconds_pay_for_filling_a_copy_too() -> None:
    goal = Objective("seconds", machine_of((2,)))
    graph = scans(2).graph()
    for budget in (0, 4096):
        found, certificate = tiled(graph, goal, Wanted(copies=budget, held={"a0": (ROWS,)}))
        assert certificate.gap < 1e-9
        again = exact(found.graph, goal, rules=SECONDS).certificate.cost
        assert again <= certificate.cost * (1 + 1e-9)


def test_names_that_are_taken_are_left_alone() -> None:
    graph = scans().graph()
    node = replace(graph.nodes[0], name="a0.copy", outputs=("a0.copy",))
    values = {name: value for name, value in graph.values.items() if name != graph.nodes[0].name}
    values["a0.copy"] = replace(graph.values[graph.nodes[0].name], name="a0.copy")
    outputs = tuple(replace(o, name=node.name) if o.name == graph.nodes[0].name else o for o in graph.outputs)
    taken = Graph(values, (node, *graph.nodes[1:]), graph.inputs, outputs)
    found, _ = tiled(taken, TWO, Wanted(copies=512))
    check(found.graph)
    assert found.copies == {"a0.copy'": "a0"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(Greedy()), "no search 'greedy' with second copies: expected exact or spartan"),
        (Wanted(held={"v0": (ROWS,)}), "'v0' is held in a layout, but it is no input"),
        (Wanted(held={"zebra": (ROWS,)}), "'zebra' is held in a layout, but it is no input"),
        (Wanted(held={"a0": (parse_sharding("S7"),)}), "'a0' is held in S7: expected one or two of S0, S1"),
    ],
)
def test_what_cannot_be_wanted_is_said(wanted: Wanted, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        tiled(scans().graph(), TWO, wanted)


def test_out_of_time_there_is_still_an_answer() -> None:
    random = np.random.default_rng(3)
    graph = random_program(random, 15, SIZES)
    found, certificate = tiled(graph, FOUR, Wanted(Exact(0.0), copies=600))
    assert moved(found, FOUR) == certificate.cost
    assert certificate.bound <= certificate.cost


def test_a_clone_is_an_ordinary_node() -> None:
    found, _ = tiled(scans(3).graph(), TWO, Wanted(copies=512, held={"a0": (ROWS,)}))
    assert found.graph.nodes[0] == Node("a0.copy", "aten.clone", (("self", Ref("a0")),), ("a0.copy",))
