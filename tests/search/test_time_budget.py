"""The objective `time` keeps its time, counted, and says what it left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.layout.budget import Budget
from girih.machine import machine
from girih.partition.search import nobody
from girih.partition.space.options import SECONDS, SOAP
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective
from girih.partition.strategy import Strategy
from girih.search.candidates import Counted
from girih.search.fastest import _affordable, _Candidates
from girih.search.judge import Judge
from girih.search.table import class_of


def test_without_time_the_first_answers_are_simulated_and_the_best_is_returned() -> None:
    made = plan_graph(perceptron(2), machine="2x2", objective="time", search="exact:seconds=0")
    assert made.certificate.stopped == "time"
    assert made.certificate.statistics["proposals"] == 0
    assert made.certificate.statistics["found by"] in ("exact", "data")
    assert "seconds, data" in made.certificate.statistics  # nothing is proved of the exact search's answer
    assert made.search == made.certificate.statistics["found by"]
    assert made.certificate.cost == pytest.approx(made.predict().seconds)
    assert 0 < made.certificate.bound <= made.certificate.cost


def test_more_time_finds_no_slower_plan() -> None:
    little = plan_graph(perceptron(2), machine="2x2", objective="time", search="exact:seconds=0")
    enough = plan_graph(perceptron(2), machine="2x2", objective="time", search="exact:seconds=20")
    assert enough.search == "sampled"
    assert enough.certificate.cost <= little.certificate.cost
    judged = [float(value) for key, value in enough.certificate.statistics.items() if key.startswith("seconds, ")]
    assert enough.certificate.cost <= min(judged)


def test_the_space_is_as_wide_as_the_time_affords() -> None:
    where = machine("p100-cluster")  # 4×2×2: places make the tables some 13 times as large
    assert _affordable(where, 1.0, 60.0) == SOAP
    assert _affordable(where, 1.0, 10.0) == SECONDS
    assert _affordable(where, 1.0, 1.0) is None
    assert _affordable(machine("cpu-1g:16"), 1.0, 3.0) == SOAP  # no axis is short enough for places


def test_what_cannot_be_placed_is_left_out() -> None:
    made = plan_graph(perceptron(2), machine="64x1", objective="time", search="exact:seconds=5")
    assert "seconds, data" in made.certificate.statistics
    assert "seconds, model" not in made.certificate.statistics


def test_a_score_is_asked_once_and_its_work_is_spent() -> None:
    plan = plan_graph(perceptron(1), machine="2x2", search="data", objective="bytes")
    asked: list[Strategy] = []

    def simulated(strategy: Strategy) -> float:
        asked.append(strategy)
        return 1.0

    budget = Budget(10.0)
    score = Counted(simulated, budget, 2.0)
    for strategy in [replace(plan.strategy) for _ in range(2)]:
        assert score(strategy) == score(strategy) == 1.0
    assert len(asked) == 2
    assert budget.seconds == 6.0


def hurried(name: str) -> Callable[[], float]:
    """A clock of `time` that runs ten times as fast: so a machine looks that has ten times as much to do."""
    clock = getattr(time, name)
    return lambda: 10 * clock()


@pytest.mark.parametrize(
    ("share", "search"),
    [(None, "portfolio"), (0.8, "portfolio"), (None, "exact:seconds=20"), (None, "sampled")],
)
def test_the_plan_is_the_same_on_a_busy_machine(
    share: float | None, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """share: of the peak of the plan without a limit."""
    graph = perceptron(2)
    options: dict[str, Any] = {"machine": "2x2", "objective": "time", "search": search}
    if share is not None:
        options["memory"] = int(plan_graph(graph, **options).peak * share)
    quiet = plan_graph(graph, **options)
    clocks = {name: hurried(name) for name in ("monotonic", "perf_counter", "thread_time")}
    monkeypatch.setattr("girih.layout.budget.time", SimpleNamespace(**clocks))
    busy = plan_graph(graph, **options)
    assert busy.choice == quiet.choice
    assert (busy.certificate.cost, busy.certificate.bound) == (quiet.certificate.cost, quiet.certificate.bound)
    assert (busy.certificate.stopped, busy.certificate.work) == (quiet.certificate.stopped, quiet.certificate.work)


def test_experts_have_the_time_that_such_a_search_took(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan_graph(perceptron(1), machine="2x2", search="data", objective="bytes")
    given: dict[str, float] = {}

    def late(search: Any, graph: Any, goal: Any) -> Any:
        given[search.name] = search.seconds
        raise OutOfTimeError

    for name in ("one-weird-trick", "equal", "model"):
        monkeypatch.setattr(class_of("search", name), "search", late)
    objective = Objective("time", made.machine)
    score = Counted(Judge(made), Budget(100.0), 0.0)
    candidates = _Candidates(made.graph, objective, score, Budget(100.0), nobody, took=60.0)
    candidates.search("one-weird-trick", 0.25)
    candidates.search("equal", 0.25)
    candidates.took = 200.0
    candidates.search("model", 0.25)  # longer than is left
    assert given == {"one-weird-trick": 60.0, "equal": pytest.approx(25.0, abs=1.0)}


def test_little_time_under_a_limit_is_enough_for_one_device_alone() -> None:
    """A looser limit costs no more: the tables that keep a limit took all of little time."""
    graph = perceptron(2, 16, 16)
    options: dict[str, Any] = {"machine": "titanx-40g:2", "objective": "time", "compare": ()}
    free = plan_graph(graph, **options)
    assert free.certificate.statistics["found by"] == "single"
    costs = [
        plan_graph(graph, **options, memory=int(share * free.peak), search=f"portfolio:seconds={seconds}").certificate
        for share, seconds in ((0.9, 0.05), (0.6, 0.05))
    ]
    assert [told.statistics["found by"] for told in costs] == ["single"] * 2
    assert free.certificate.cost <= costs[0].cost <= costs[1].cost
