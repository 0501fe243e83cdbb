"""A newcomer's proposers, written by docs/add-a-search.md alone: of a strategy, of what a device holds, of any part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import pytest
from graphs import perceptron

from girih.api import plan_graph
from girih.graph import Graph, Node, parse_graph
from girih.inference.searching import rewrite
from girih.inference.searching import search_of as search_of_rules
from girih.layout.budget import Budget
from girih.partition.search import ScoredSearch, Search
from girih.partition.searches.exact import exact
from girih.partition.space.layers import layers_of
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import SearchError, SearchResult
from girih.plans.check import check
from girih.plans.choice import Choice
from girih.plans.plan import Plan, PlanError
from girih.published.divisions.classic import Single
from girih.rewrite.backtracking import Backtracking, Rewritten, RuleSearch
from girih.rewrite.certificate import Certificate
from girih.rewrite.rules.rule import Rule, parse
from girih.rewrite.sweep import Sweep
from girih.rewrite.ways import Cost, Costing, InRows
from girih.search.judge import Judge
from girih.search.memory.holds import Baseline, Holding, Setting
from girih.search.memory.orders.locality import updates_early
from girih.search.moves import Move, improved, proposals
from girih.search.stages import in_parts
from girih.search.table import PROPOSERS, SEARCHES, baseline_of, class_of, order_of, search_of


@dataclass(frozen=True)
class SplitAlong(Search):
    """Every input is split along one dimension on all axes. dimension: which."""

    name = "split-along"
    objectives = ("bytes", "seconds")
    dimension: int = 0

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        layouts = {}
        for item in graph.inputs:
            shape = graph.values[item.name].shape
            if len(shape) > self.dimension and shape[self.dimension] >= mesh.devices:
                layouts[item.name] = ((self.dimension,) * mesh.axes,)
        if not layouts:
            raise SearchError(f"no input has dimension {self.dimension} of at least {mesh.devices}")
        space = f"inputs split along dimension {self.dimension}"
        return exact(graph, objective, candidates=Candidates(layouts, {}), seconds=self.seconds, space=space)


@pytest.mark.parametrize("dimension", [0, 1])
def test_it_plans_beside_the_exact_search(dimension: int) -> None:
    graph = perceptron(2)
    plan = plan_graph(graph, machine="2x2", search=SplitAlong(20.0, dimension), compare=("exact",), objective="bytes")
    check(plan)
    assert plan.search == "split-along"
    assert plan.certificate.space == f"inputs split along dimension {dimension}"
    assert plan.certificate.cost >= plan.baselines[0].bytes
    assert plan.certificate.cost == plan.bytes_received.sum()


def test_it_refuses_and_falls_back_as_the_page_says() -> None:
    with pytest.raises(ValueError, match="search split-along: no input has dimension 5"):
        plan_graph(perceptron(1), machine="2x2", search=SplitAlong(dimension=5), objective="bytes")
    plan = plan_graph(perceptron(1), machine="2x2", search=SplitAlong(5.0), objective="time")
    assert plan.notes[0].startswith("search split-along is of --objective bytes or seconds")


def test_it_stands_beside_another() -> None:
    plan = plan_graph(perceptron(2), machine="2x2", compare=(SplitAlong(20.0),), objective="bytes")
    assert [item.name for item in plan.baselines] == ["split-along"]


def test_a_name_in_the_table_is_all_that_the_planner_knows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEARCHES, "split-along", f"{__name__}.SplitAlong")
    options = {"machine": "2x2", "objective": "bytes"}
    plan = plan_graph(perceptron(2), search="split-along:dimension=1", compare=("split-along",), **options)
    assert plan.certificate.space == "inputs split along dimension 1"
    with pytest.raises(PlanError, match="search split-along has no option 'dim': expected one of seconds, dimension"):
        plan_graph(perceptron(2), search="split-along:dim=1", **options)


@dataclass(frozen=True)
class Undivided(ScoredSearch):
    """The faster of one device and the answer that is known."""

    name = "undivided"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        score = self.score(objective)
        alone = Single(self.seconds).search(graph, objective)
        best = min((alone, *self.known), key=lambda result: score(result.strategy))
        seconds = score(best.strategy)
        certificate = Certificate(seconds, 0.0, "seconds", "none", "both scored", "two strategies", {})
        return SearchResult(best.strategy, certificate)


def test_a_scored_search_is_judged_by_the_simulated_step() -> None:
    plan = plan_graph(
        perceptron(2), machine="2x2", search=Undivided(20.0), objective="time", compare=("single", "data")
    )
    check(plan)
    assert plan.search == "undivided"
    assert plan.certificate.cost == plan.predict().seconds == min(item.seconds for item in plan.baselines)
    assert 0 < plan.certificate.bound <= plan.certificate.cost  # by the graph, whatever the search proves
    assert (
        plan_graph(perceptron(1), machine="2x2", search=Undivided(), objective="bytes")
        .notes[0]
        .startswith("search undivided is of --obj")
    )


@dataclass(frozen=True)
class EarlyUpdates(Baseline):
    """Weights are updated as soon as their gradients are there."""

    name: ClassVar[str] = "early-updates"
    moves: ClassVar[bool] = False
    orders: ClassVar[bool] = True

    def hold(self, setting: Setting) -> Holding:
        return Holding(updates_early(setting.lives))


def test_a_way_to_hold_orders_the_steps_within_a_limit_or_is_refused() -> None:
    graph = perceptron(4)
    whole = plan_graph(graph, machine="p3.2xlarge", compare=())
    plan = plan_graph(graph, machine="p3.2xlarge", memory=whole.peak - 1, hold=EarlyUpdates(), compare=())
    check(plan)
    assert plan.peak < whole.peak
    assert plan.choice.sequence is not None
    assert not plan.choice.residency
    with pytest.raises(PlanError, match="cannot be met by hold early-updates, which needs"):
        plan_graph(graph, machine="p3.2xlarge", memory=plan.peak - 1, hold=EarlyUpdates(), compare=())


@dataclass(frozen=True)
class SweptFirst(RuleSearch):
    """What pays at once, anywhere; then backtracking from there."""

    seconds: float = 10.0

    name: ClassVar[str] = "swept-first"

    def search(self, graph: Graph, rules: Sequence[Rule], cost: Cost | Costing) -> Rewritten:
        swept = Sweep(self.seconds / 2).search(graph, rules, cost)
        found = Backtracking(seconds=self.seconds / 2).search(swept.graph, rules, cost)
        return replace(found, before=swept.before, sequence=(*swept.sequence, *found.sequence))


CHAIN = """graph
  input %a: float32[64, 4]  batch  "0"
  input %b: float32[4, 64]  batch  "1"
  input %c: float32[64, 4]  batch  "2"
  %ab: float32[64, 64] = aten.mm(self=%a, mat2=%b)  # forward
  %abc: float32[64, 4] = aten.mm(self=%ab, mat2=%c)  # forward
  return %abc result"""


class Multiplications(InRows):
    """A costing of nodes, which is asked for single nodes, too."""

    def __init__(self) -> None:
        super().__init__(self)

    def __call__(self, graph: Graph, node: Node) -> float:
        return graph.values[node.outputs[0]].elements * graph.values[node.inputs[0]].shape[1]


def test_a_search_of_rules_is_bounded_by_an_e_graph() -> None:
    rules = [parse("mm(mm(a, b), c) == mm(a, mm(b, c))")]
    search = search_of_rules(SweptFirst(), 60.0, 1.05)
    assert search == SweptFirst()
    found = rewrite(parse_graph(CHAIN), {}, rules, Multiplications(), search)
    assert found.before == 64 * 64 * 4 + 64 * 4 * 64
    assert found.choice.cost == found.certificate.bound == 4 * 4 * 64 + 64 * 4 * 4
    assert found.certificate.gap == 0
    assert [len(item.sequence) for item in found.searched] == [1]


@dataclass(frozen=True)
class LayersAnew(Move):
    """One layer after another is divided anew by the exact search, while all others stay as they are."""

    name: ClassVar[str] = "layers-anew"
    changes: ClassVar[tuple[str, ...]] = ("strategy",)

    def propose(self, plan: Plan, judge: Judge) -> Iterator[Plan]:
        layers, strategy, nodes = layers_of(plan.graph), plan.strategy, plan.graph.nodes
        for layer in dict.fromkeys(layers):
            others = [number for number, own in enumerate(layers) if own != layer]
            beside = {name for number in others for name in (*nodes[number].inputs, *nodes[number].outputs)}
            layouts = {name: (strategy.layouts[name].codes,) for name in beside}
            held = Candidates(layouts, {number: np.array([strategy.divisions[number].codes]) for number in others})
            found = exact(plan.graph, Objective("seconds", plan.machine), candidates=held, seconds=1.0)
            yield plan.but(strategy=found.strategy)


def test_a_move_solves_a_region_again_and_the_judge_keeps_what_is_faster() -> None:
    plan = plan_graph(perceptron(3, 64, 512), machine="2x2", search="sharded")
    judge = Judge(plan)
    better = improved(plan, (LayersAnew(),), judge, Budget(5.0))
    check(better)
    assert better.search == better.certificate.statistics["found by"] == "layers-anew"
    assert better.certificate.cost == better.predict().seconds < plan.certificate.cost
    assert better.certificate.bound == plan.certificate.bound > 0
    assert better.certificate.statistics["seconds, layers-anew"] == better.certificate.cost
    assert improved(plan, (LayersAnew(),), judge, Budget(0.0)).strategy == plan.strategy
    assert judge.seconds(better) == judge.in_full(better.strategy)  # composed of pieces, and of the whole program


def test_other_kinds_propose_plans_too_within_the_limit() -> None:
    plan = plan_graph(perceptron(3, 64, 512), machine="2x2", search="greedy")
    faster = (baseline_of("odswap"), search_of("single"))  # the first has nothing to do
    assert improved(plan, faster, Judge(plan), Budget(5.0)).search == "single"
    limited = plan.but(memory=plan.peak)  # less than one device alone needs
    assert improved(limited, faster[1:], Judge(limited), Budget(5.0)) is limited
    graph = perceptron(4)
    alone = plan_graph(graph, machine="p3.2xlarge", compare=())
    (ordered,) = proposals(order_of("early"), alone, Judge(alone))
    assert ordered.peak < alone.peak
    assert ordered.choice == replace(alone.choice, sequence=ordered.choice.sequence) != alone.choice
    capped = alone.but(memory=int(0.8 * alone.peak))
    (moved,) = proposals(baseline_of("odswap"), capped, Judge(capped))
    check(moved)
    assert moved.choice.residency
    assert moved.peak <= 0.8 * alone.peak


@dataclass(frozen=True)
class InParts(Move):
    """One device alone, with the graph in so many micro-batches."""

    name: ClassVar[str] = "in-parts"
    changes: ClassVar[tuple[str, ...]] = ("strategy",)
    count: int = 1

    def propose(self, plan: Plan, judge: Judge) -> Iterator[Plan]:
        graph = in_parts(plan.graph, self.count)
        yield plan.divided_by(replace(Single().search(graph, Objective("seconds", plan.machine)), graph=graph), "one")


@pytest.mark.parametrize("room", [None, 10**6])
def test_a_proposal_is_charged_by_its_own_nodes(room: int | None) -> None:
    """Its memory is followed, which takes 20 times as long, only where it would be the best."""
    plan = plan_graph(perceptron(3, 64, 128), machine="2x2", search="data").but(memory=room)

    def work(*counts: int) -> float:
        budget = Budget(5.0)
        improved(plan, tuple(InParts(count) for count in counts), Judge(plan), budget)
        return budget.spent

    assert work(8) == pytest.approx(work(4) * len(in_parts(plan.graph, 8).nodes) / len(in_parts(plan.graph, 4).nodes))
    assert work(4, 8) == work(4) + work(8)


def test_what_cannot_be_improved_says_why() -> None:
    plan = plan_graph(perceptron(1), machine="2x2", objective="bytes")
    with pytest.raises(PlanError, match="expected objective time, got bytes"):
        improved(plan, (), Judge(plan), Budget(1.0))
    with pytest.raises(PlanError, match="hold odswap keeps a memory limit: expected a plan with one, got none"):
        list(proposals(baseline_of("odswap"), plan, Judge(plan)))
    with pytest.raises(TypeError, match="Backtracking proposes no plans: expected a Move"):
        list(proposals(class_of("rewrite", "backtracking")(), plan, Judge(plan)))


def test_every_proposer_changes_parts_of_a_choice() -> None:
    parts = {part.name for part in fields(Choice)}
    known = [class_of(kind, name) for kind, own in PROPOSERS.items() for name in own.places]
    for proposer in (*known, SplitAlong, EarlyUpdates, LayersAnew, SweptFirst):
        assert parts.issuperset(proposer.changes)
        assert proposer.changes
