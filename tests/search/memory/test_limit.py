"""Plans under a memory limit: made wherever one exists that is known, refused with what is known, monotone."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from counts import LONG, but_long
from graphs import perceptron, random_graph

import girih
from girih.api import Plan, plan_graph
from girih.graph import Graph
from girih.plans.check import check

LAYERS = 3 if LONG else 2


def refusal(graph: Graph, limit: int, **options: object) -> str:
    with pytest.raises(girih.PlanError, match=r"does not fit|was found that fits") as caught:
        plan_graph(graph, memory=limit, hold="none", **options)  # type: ignore[arg-type]
    return str(caught.value)


def named(message: str) -> int:
    """The limit that a refusal names as the smallest that is met."""
    (found,) = re.findall(r"\((\d+) bytes\)", message)
    return int(found)


@pytest.fixture(scope="module")
def gpt() -> Graph:
    import torch

    from girih.capture import TrainingStep, capture
    from girih.models import example

    made = example("gpt-tiny")
    step = TrainingStep(made.module, step=made.step, optimizer=torch.optim.SGD(made.module.parameters(), lr=0.01))
    return capture(step, made.inputs).graph


@pytest.mark.skipif(not LONG, reason="`make test` does the same with a smaller graph")
def test_a_limit_that_the_plan_of_a_transformer_by_bytes_keeps_is_kept_by_seconds_too(gpt: Graph) -> None:
    """It was refused ("needs 336.39 KB"), though a plan of 283 KB was known."""
    made = plan_graph(gpt, machine="4", memory="300KB", objective="seconds", search="exact:seconds=600")
    assert made.peak <= 300_000
    assert made.certificate.bound <= made.certificate.cost
    check(made)


def test_a_limit_that_the_plan_by_bytes_keeps_is_kept_by_seconds_too() -> None:
    graph = perceptron(LAYERS, 64, 64)
    least = plan_graph(graph, machine="4", memory="unlimited", objective="bytes")
    made = plan_graph(graph, machine="4", memory=least.peak, objective="seconds", search="exact:seconds=600")
    assert made.peak <= least.peak
    assert made.certificate.bound <= made.certificate.cost
    check(made)


def test_the_limit_that_a_refusal_names_works_and_one_byte_less_is_refused_alike() -> None:
    for seed in range(4):
        graph = random_graph(np.random.default_rng(seed), 3)
        for objective in ("bytes", "seconds"):
            options = {"machine": "local:2", "objective": objective}
            message = refusal(graph, 1, **options)
            smallest = named(message)
            made = plan_graph(graph, memory=smallest, hold="none", **options)  # type: ignore[arg-type]
            assert made.peak <= smallest
            check(made)
            assert named(refusal(graph, smallest - 1, **options)) == smallest
            assert "proved to be the smallest" in message


def test_the_smallest_limit_of_a_larger_graph_does_not_depend_on_what_was_asked() -> None:
    graph, options = (
        perceptron(LAYERS, 64, 64),
        {"machine": "local:2", "objective": "seconds", "search": "exact:seconds=600"},
    )
    low, high = (refusal(graph, limit, **options) for limit in (1000, 40_000))
    assert named(low) == named(high)
    smallest = named(low)
    assert plan_graph(graph, memory=smallest, hold="none", **options).peak <= smallest  # type: ignore[arg-type]
    assert named(refusal(graph, smallest - 1, **options)) == smallest


def planned(graph: Graph, limit: int, **options: object) -> Plan | None:
    try:
        return plan_graph(graph, memory=limit, hold="none", **options)  # type: ignore[arg-type]
    except girih.PlanError as error:
        assert "does not fit" in str(error)  # noqa: PT017
        return None


@pytest.mark.parametrize("seed", but_long([0, 2, 3, 4, 5, 6, 7, 8, 9], [0, 4, 5, 6, 7, 8, 9]))
def test_more_memory_never_makes_a_plan_dearer(seed: int) -> None:
    """Nine graphs, two objectives, up to three limits from the smallest that works to just below the free peak."""
    graph = random_graph(np.random.default_rng(100 + seed), 3)
    for objective in ("bytes", "seconds"):
        options = {"machine": "local:2", "objective": objective}
        free = plan_graph(graph, **options)  # type: ignore[arg-type]
        smallest = named(refusal(graph, 1, **options))
        # Without overlap, as the smallest limit is told; with, the free plan needs more.
        limits = sorted({smallest, (smallest + free.peak) // 2, max(smallest, free.peak - 1)})
        plans = [planned(graph, limit, **options) for limit in limits]
        for limit, made in zip(limits, plans, strict=True):
            assert made is not None
            assert made.peak <= limit
            assert made.certificate.cost >= free.certificate.cost * (1 - 1e-9)
            check(made)
        for tight, wide in pairwise(plans):
            assert wide.certificate.cost <= tight.certificate.cost * (1 + 1e-12)  # type: ignore[union-attr]


def test_by_time_a_plan_keeps_the_limit_and_the_smallest_one_works() -> None:
    graph = random_graph(np.random.default_rng(102), 3)
    options = {"machine": "local:2", "objective": "time", "search": "exact:seconds=0.5"}
    smallest = named(refusal(graph, 1, **options))
    made = plan_graph(graph, memory=smallest, hold="none", **options)  # type: ignore[arg-type]
    assert made.peak <= smallest
    check(made)


def test_other_searches_say_that_it_is_their_division_that_does_not_fit() -> None:
    message = refusal(perceptron(2, 32, 32), 1000, machine="local:2", search="data")
    assert message.startswith("data parallelism does not fit 1.00 KB for each device: this division needs ")
    made = plan_graph(
        perceptron(2, 32, 32),
        machine="local:2",
        search="optimum",
        memory=named(message),
        hold="none",
        objective="bytes",
    )
    assert made.peak <= named(message)
