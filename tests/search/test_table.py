"""Searches are values: frozen options, one verb, one table that feeds everything that names a search."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import machine_of, perceptron

import girih
import girih.search
from girih.api import plan_graph
from girih.cli.main import main
from girih.partition.search import Search
from girih.partition.searches.sampled import Sampled
from girih.partition.space.problem import OBJECTIVES, Objective
from girih.partition.strategy import SearchError
from girih.search import Exact
from girih.search.table import SEARCHES, class_of, options_of, search_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
SCORED = {"optimum", "sampled", "portfolio", "joint"}
PLACING = {"model", "pipeline", "pipeline-1f1b", "stages", "rnn-expert", "hybrid", "parameter-server"}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_says_what_it_can_minimise(name: str) -> None:
    search = search_of(name)
    for objective in OBJECTIVES:
        support = search.supports(Objective(objective, machine_of((2, 2))))
        assert bool(support) == (objective == "time" or name not in SCORED)
        assert bool(support) != bool(support.why_not)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_says_where_it_can_place(name: str) -> None:
    search = search_of(name)
    support = search.supports(Objective("time", machine_of((64,))))
    assert bool(support) == (name not in PLACING)
    if not support:
        assert "name the machine with more axes" in support.why_not
        with pytest.raises(girih.PlanError, match=f"search {name}: .*name the machine with more axes"):
            plan_graph(perceptron(1), machine=machine_of((64,)), search=name, objective="bytes")


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_is_a_frozen_value(name: str) -> None:
    search = search_of(name, 10.0)
    assert (search.name, search.seconds) == (name, 10.0)
    assert search == search_of(f"{name}:seconds=10") == dataclasses.replace(search)
    assert search_of(search, 5.0) is search
    assert getattr(girih.search, type(search).__name__) is type(search)
    assert len(search.summary()) > 20
    assert "\n" not in search.summary()
    with pytest.raises(dataclasses.FrozenInstanceError):
        search.seconds = 1.0  # type: ignore[misc]


def test_options_are_written_behind_the_name() -> None:
    assert search_of("sampled:seed=3,proposals=500", 7.0) == Sampled(7.0, seed=3, proposals=500)
    assert search_of("exact:seconds=3", 7.0) == Exact(3.0)
    for text, message in [
        ("best", "no search 'best': expected one of portfolio, exact"),
        ("exact:seed=3", "search exact has no option 'seed': expected one of seconds"),
        ("sampled:seed=x", "search sampled: option seed is int, got 'x'"),
        ("sampled:known=3", "search sampled has no option 'known'"),
        ("exact:seconds=-1", "seconds must be a finite number of at least 0, got -1.0"),
        (3, "no search 3: expected a search of girih.search"),
    ]:
        with pytest.raises(SearchError, match=message):
            search_of(text)  # type: ignore[arg-type]
        with pytest.raises(girih.PlanError, match=message):
            girih.plan(None, None, search=text, objective="bytes")  # type: ignore[arg-type]
    with pytest.raises(girih.PlanError, match="no search 'best'"):
        plan_graph(perceptron(1), compare=("best",), objective="bytes")
    with pytest.raises(AttributeError, match="no attribute 'Best'"):
        _ = girih.search.Best


def test_names_and_values_are_one() -> None:
    graph = perceptron(2)
    named = plan_graph(graph, machine="2x2", search="data", compare=("single",), objective="bytes")
    valued = plan_graph(
        graph, machine="2x2", search=search_of("data"), compare=(search_of("single"),), objective="bytes"
    )
    assert named.strategy == valued.strategy
    assert named.search == valued.search == "data"
    assert named.baselines == valued.baselines


def test_another_objective_than_a_search_is_of_is_said() -> None:
    plan = plan_graph(perceptron(1), machine="2x2", search="optimum", objective="bytes")
    assert plan.search == "exact"
    assert plan.notes[0] == "search optimum is of --objective time; by bytes search exact ran"


@pytest.mark.parametrize("name", sorted(SCORED))
def test_a_scored_search_wants_a_score(name: str) -> None:
    graph, machine = perceptron(1), machine_of((2,))
    with pytest.raises(SearchError, match=r"it is of --objective time, not of bytes|needs a score"):
        search_of(name).search(graph, Objective("bytes", machine))


def test_the_table_feeds_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["searches", "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == list(SEARCHES)
    assert main(["searches"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in SEARCHES)
    for text, message in [("exat", "did you mean"), ("exact:sed=1", "search exact has no option 'sed'")]:
        with pytest.raises(SystemExit):
            main(["plan", "mlp-tiny", "--search", text])
        assert message in capsys.readouterr().err


def test_the_table_feeds_clusters_of_arrays() -> None:
    for search in ("data", "best", "exact:seed=1"):
        with pytest.raises(ValueError, match="expected one of exact, spartan"):
            girih.cluster(workers=1, backend="threads", search=search)
    with girih.cluster(workers=1, backend="threads", search=Exact(seconds=3.0)) as cluster:
        assert cluster.search == Exact(3.0)


def test_the_page_lists_every_search() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in SEARCHES:
        item = class_of("search", name)
        row = f"| `{name}` | {', '.join(item.objectives)} | {', '.join(options_of(item))} | {item.summary()} |"
        assert row in text, row


def test_naming_searches_loads_nothing_that_is_slow() -> None:
    code = "import sys, girih.search.table; print(*{'numpy', 'torch', 'scipy', 'numba'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_search_without_its_verb_is_none() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Search()  # type: ignore[abstract]
