"""Searches are values: frozen options, one verb, one table that feeds everything that names a search."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import perceptron

import girih
from girih.api import plan_graph
from girih.array.session import clusters
from girih.cli.main import main
from girih.partition.table import OBJECTIVES, SEARCHES, Exact, Search, UnknownSearchError, search_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_search_says_what_it_can_minimise(name: str, objective: str) -> None:
    search = search_of(name, 10.0)
    assert search.supports(objective) == (objective == "time" or name != "optimum")
    assert not search.supports("nothing")
    assert dataclasses.is_dataclass(search)
    assert search.seconds == 10.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        search.seconds = 1.0  # type: ignore[misc]
    assert search == search_of(dataclasses.replace(search))
    assert len(search.summary()) > 20


def test_names_and_values_are_one() -> None:
    graph = perceptron(2)
    named = plan_graph(graph, machine="2x2", search="data", compare=("single",))
    valued = plan_graph(graph, machine="2x2", search=search_of("data"), compare=(search_of("single"),))
    assert named.strategy == valued.strategy
    assert named.search == valued.search == "data"
    assert named.baselines == valued.baselines


def test_what_is_no_search_is_refused() -> None:
    with pytest.raises(girih.PlanError, match="no search 'best': expected one of exact, optimum"):
        plan_graph(perceptron(1), search="best")
    with pytest.raises(UnknownSearchError, match="no search 3: expected a name"):
        search_of(3)  # type: ignore[arg-type]
    with pytest.raises(girih.PlanError, match="seconds must be a finite number of at least 0"):
        plan_graph(perceptron(1), search=Exact(-1.0))
    with pytest.raises(girih.PlanError, match="no search 'best'"):
        plan_graph(perceptron(1), compare=("best",))


def test_another_objective_than_a_search_is_of_is_said() -> None:
    plan = plan_graph(perceptron(1), machine="2x2", search="optimum", objective="bytes")
    assert plan.search == "exact"
    assert plan.notes[0].startswith("search optimum is of --objective time")


def test_the_table_feeds_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["searches", "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == list(SEARCHES)
    assert main(["searches"]) == 0
    printed = capsys.readouterr().out
    assert all(item.name in printed for item in SEARCHES.values())
    with pytest.raises(SystemExit):
        main(["plan", "mlp-tiny", "--search", "exat"])
    assert "did you mean" in capsys.readouterr().err


def test_the_table_feeds_clusters_of_arrays() -> None:
    assert tuple(clusters.SEARCHES) == tuple(name for name, item in SEARCHES.items() if item.arrays)
    with pytest.raises(ValueError, match="expected one of exact, spartan"):
        girih.cluster(workers=1, backend="threads", search="data")


def test_the_page_lists_every_search() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for item in SEARCHES.values():
        assert f"| `{item.name}` | {', '.join(item.objectives)} | {item.summary()} |" in text


def test_naming_searches_loads_nothing_that_is_slow() -> None:
    code = "import sys, girih.partition.table; print(*{'torch', 'scipy', 'numba'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_search_without_its_verb_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Search().search(perceptron(1), None)  # type: ignore[arg-type]
