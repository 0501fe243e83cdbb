"""What several readers fetch is fetched once, partial sums are layouts: against trying all, run, within memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import machine_of, random_graph
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.array_programs import Program, least_bytes, random_program
from girih.api import plan_graph
from girih.graph import Graph, check
from girih.kernels.evaluate import interpret
from girih.partition.searches.exact import Exact
from girih.partition.space.options import TOFU, WHOLE
from girih.partition.space.problem import Objective, build
from girih.partition.strategy import SearchError
from girih.program import check as check_program
from girih.program import lower
from girih.run.training.session import start

TWO = Objective("bytes", machine_of((2,)))
MESHES = [(2,), (3,), (2, 2)]


def sum_of_product() -> Graph:
    made = Program("float32")
    made.fold(made.dot(made.newarray(300, 400), made.newarray(400, 160)), 1)
    return made.graph()


def sum_of_products() -> Graph:
    made = Program("float32")
    made.map(*[made.dot(made.newarray(64, 64), made.newarray(64, 64)) for _ in range(2)])
    return made.graph()


def read_twice() -> Graph:
    made = Program("float32")
    first = made.newarray(64, 64)
    made.dot(first, made.dot(first, made.newarray(64, 64)))
    return made.graph()


@pytest.mark.parametrize(
    ("graph", "tofu", "whole"),
    [(sum_of_product(), 192_000, 1_200), (sum_of_products(), 32_768, 16_384), (read_twice(), 32_768, 16_384)],
    ids=["(A @ B).sum(1)", "A @ B + C @ D", "A @ (A @ B)"],
)
def test_what_a_good_engineer_would_think_of(graph: Graph, tofu: int, whole: int) -> None:
    for search, moved in ((Exact(space="tofu"), tofu), (Exact(), whole)):
        found = search.search(graph, TWO)
        assert found.certificate.cost == found.certificate.bound == moved
        program = lower(found.graph or graph, found.strategy, TWO.transfers)
        check_program(program)
        assert program.bytes_received().sum() == moved


@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 4), st.sampled_from(MESHES))
@settings(max_examples=random_cases(40), suppress_health_check=list(HealthCheck))
def test_the_least_of_all_that_can_be_chosen(seed: int, arrays: bool, nodes: int, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    graph = random_program(random, nodes + 2) if arrays else random_graph(random, nodes)
    aim = Objective("bytes", machine_of(sizes))
    try:
        least = least_bytes(graph, aim, 2**14)
    except ValueError:
        assume(False)
    assume(least is not None)
    found = Exact().search(graph, aim)
    assert found.certificate.cost == found.certificate.bound == least
    whole = found.graph or graph
    check(whole)
    program = lower(whole, found.strategy, aim.transfers)
    check_program(program)
    assert program.bytes_received().sum() == least


@pytest.mark.parametrize("seed", range(12))
def test_it_computes_what_one_device_computes(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = random_program(random, 4 + seed % 8, (12, 16, 20))
    aim = Objective("bytes", machine_of(MESHES[seed % 3]))
    found = Exact().search(graph, aim)
    program = lower(found.graph or graph, found.strategy, aim.transfers)
    torch.manual_seed(seed)
    batch = {item.name: torch.rand(graph.values[item.name].shape, dtype=torch.float64) for item in graph.inputs}
    expected = interpret(graph, batch)
    with start(program, backend="threads", state={}) as run:
        made = run.step(batch)
        measured = run.statistics()
    for item in graph.outputs:
        torch.testing.assert_close(made[item.name], expected[item.name], rtol=1e-12, atol=1e-12)
    assert sum(item.bytes_received for item in measured) == found.certificate.cost


def test_where_memory_is_short_it_is_fetched_again() -> None:
    graph = read_twice()
    free = plan_graph(graph, machine=TWO.machine, objective="bytes", search="exact", memory="unlimited")
    assert free.certificate.cost == 16_384
    tight = plan_graph(graph, machine=TWO.machine, objective="bytes", search="exact", memory=free.peak - 1)
    assert tight.peak < free.peak
    assert tight.certificate.cost == 32_768
    assert tight.graph == graph


def test_a_space_that_is_not_there() -> None:
    with pytest.raises(SearchError, match="no space 'wide': expected one of whole, apart, tofu"):
        Exact(space="wide")


def test_what_is_too_small_to_divide_need_not_be_a_partial_sum() -> None:
    """A sum of 3 elements on 4 devices: Tofu's space is a part of the whole one, whatever cannot be divided."""
    made = Program("float32")
    made.map(made.map(made.fold(made.newarray(8, 3), 0)))
    aim = Objective("bytes", machine_of((4,)))
    tofu, whole = (Exact(space=space).search(made.graph(), aim) for space in ("tofu", "whole"))
    assert whole.certificate.cost <= tofu.certificate.cost
    narrow, wide = (build(made.graph(), aim, rules) for rules in (TOFU, WHOLE))
    for few, more in zip(narrow.layouts, wide.layouts, strict=True):
        assert set(few) <= set(more)
