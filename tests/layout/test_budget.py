"""The clock of a search stands while loops are compiled; a budget counts work, and the clock is its last bound."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.layout.budget import PATIENCE, Budget, Clock, without_collection
from girih.layout.jit import numba
from girih.plans.plan import PlanError

EARLY = """
import time
from girih.layout.budget import Clock
clock = Clock()
from girih.layout.jit import numba
numba.njit(lambda x: x + 1)(1)
print(clock.passed < time.perf_counter() - clock.started)
"""


def test_what_is_compiled_does_not_count() -> None:
    clock = Clock()

    @numba.njit
    def total(count):  # type: ignore[no-untyped-def]
        found = 0.0
        for number in range(count):
            found += number * 0.5
        return found

    assert total(3) == 1.5
    assert 0 < clock.passed < time.perf_counter() - clock.started


def test_neither_does_it_where_numba_was_loaded_later() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", EARLY], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "True\n"


def test_a_budget_counts_work_and_says_what_has_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("girih.layout.budget.time", SimpleNamespace(monotonic=lambda: now))
    budget = Budget(2.0)
    part = budget.part(1.0)
    part.spend(1e9)
    assert part.late
    assert part.why == "time"
    assert not budget.late
    budget.spend(part.spent)
    assert budget.seconds == 1.0
    assert budget.affords(1e9)
    assert not budget.affords(1.1e9)
    now = PATIENCE * 2.0 + 0.1
    assert budget.late
    assert budget.why == "clock"
    assert not budget.affords(0.0)


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_is_as_it_was_behind_a_search_that_does_without(collecting: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with suppress(KeyError), without_collection():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_the_collector_is_on_again_behind_searches_of_two_threads(first_ends_first: bool) -> None:
    assert gc.isenabled()
    first, second = without_collection(), without_collection()
    first.__enter__()
    second.__enter__()
    for search in (first, second) if first_ends_first else (second, first):
        search.__exit__(None, None, None)
    assert gc.isenabled()


def test_planning_goes_without_the_collector_also_where_it_is_refused() -> None:
    collecting: list[bool] = []

    def observe(what: str, share: float) -> None:
        collecting.append(gc.isenabled())

    graph = perceptron(1, 8, 8)
    plan_graph(graph, machine="local:2", objective="bytes", observe=observe)
    with pytest.raises(PlanError, match="does not fit"):
        plan_graph(graph, machine="local:2", objective="bytes", memory=100, hold="none", observe=observe)
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()


def test_what_follows_keeps_its_seconds_whatever_was_spent_before() -> None:
    budget = Budget(2.0)
    budget.spend(9e9)
    assert budget.late
    budget.extend(1.0)
    assert budget.seconds == 1.0
    assert not budget.late
    budget.extend(0.5)
    assert budget.seconds == 1.0
