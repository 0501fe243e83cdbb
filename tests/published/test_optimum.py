"""The fastest plan of a small space: against simulating all of it, and its bounds against simulations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from counts import LONG
from torch import nn

from girih.api import Plan, plan_graph
from girih.graph import Graph
from girih.layout import Transfers
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.partition import Strategy
from girih.partition.searches.exact import exact
from girih.partition.searches.sampled import labels_of
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import SECONDS, SOAP
from girih.partition.space.problem import Objective, build
from girih.plans.check import check
from girih.plans.predict import predict
from girih.published.optimum.configurations import Space, operators_of, space_of
from girih.published.optimum.lower_bounds import NEVER
from girih.published.optimum.search import BranchAndBound, Optimum, OptimumError
from girih.search.composed import Composer
from girih.search.memory.limit import WINDOWS
from girih.simulate.ticks import TICKS_PER_SECOND

SLOW = Device("slow", 1e9, 1 << 30, 1e9, 1e-6)
TWO = Machine("two", SLOW, (Level("link", (2,), 1e9, 1e-6),), "a test")
FOUR = Machine(
    "four", SLOW, (Level("between", (2,), 5e8, 2e-6, shared=True), Level("inside", (2,), 1e9, 1e-6)), "a test"
)


def graph_of(module: nn.Module, batch: tuple[torch.Tensor, ...], loss) -> Graph:
    from girih.capture import TrainingStep, capture

    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    return capture(TrainingStep(module, loss=loss, optimizer=optimizer), batch).graph


@pytest.fixture(scope="module")
def linear() -> Graph:
    """Three layers, the middle one wide: work enough that dividing pays, and not for all layers alike."""
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return graph_of(model, (torch.zeros(64, 16), torch.zeros(64, 4)), nn.functional.mse_loss)


@pytest.fixture(scope="module")
def convolutional() -> Graph:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    return graph_of(model, (torch.zeros(8, 2, 8, 8), torch.zeros(8, dtype=torch.long)), nn.functional.cross_entropy)


class Branches(nn.Module):
    """Gradients of two branches are added up: as partial sums, in the plan of the search `exact` on FOUR."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 4)
        self.left, self.right = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.left(hidden)) + torch.tanh(self.right(hidden)))


@pytest.fixture(scope="module")
def branches() -> Graph:
    return graph_of(Branches(), (torch.zeros(8, 16), torch.zeros(8, 4)), nn.functional.mse_loss)


def judge_of(graph: Graph, machine: Machine):
    plan = plan_graph(graph, machine=machine, objective="time", search="single")

    def judge(strategy) -> float:
        return predict(plan.but(strategy=strategy), memory=False).seconds

    return plan, judge


def test_operators_take_along_what_follows_them(convolutional: Graph) -> None:
    of = operators_of(convolutional)
    scopes = {}
    for node, operator in zip(convolutional.nodes, of, strict=True):
        scopes.setdefault(node.scope, set()).add(operator)
    assert scopes["0"] == scopes["1"] == {0}  # tanh with the convolution
    assert scopes["2"] == scopes["3"] == {1}  # the flattening with the pool
    assert scopes["4"] == scopes[""] == {2}  # the loss with the last layer


def test_every_strategy_of_the_space_is_a_plan(convolutional: Graph) -> None:
    space = space_of(convolutional, Objective("seconds", FOUR))
    assert space.size == np.prod([len(item.codes) for item in space.operators])
    plan = plan_graph(convolutional, machine=FOUR, objective="time", search="single")
    drawn = np.random.default_rng(0)
    for _ in range(5):
        choice = [int(drawn.integers(len(item.codes))) for item in space.operators]
        check(plan.but(strategy=space.strategy(choice)))


@pytest.mark.parametrize(
    ("name", "machine"),
    [("convolutional", TWO), ("linear", FOUR), *([("linear", TWO), ("convolutional", FOUR)] if LONG else [])],
    ids=lambda item: getattr(item, "name", item),
)
def test_bounds_lie_below_simulations(name: str, machine: Machine, request: pytest.FixtureRequest) -> None:
    """And those of composed pieces are those of any program, to the last bit."""
    graph = request.getfixturevalue(name)
    _, judge = judge_of(graph, machine)
    search, space = branch_and_bound(graph, machine, judge)
    drawn = np.random.default_rng(1)
    shares = []
    for number in range(12):
        choice = [int(drawn.integers(size)) for size in search.sizes]
        composed = search.composer.seconds(space.strategy(choice))
        if number < 4:
            assert composed == judge(space.strategy(choice))
        simulated = composed * TICKS_PER_SECOND
        shares.append(search.bound(choice) / simulated)
        for hidden in range(len(choice)):  # undecided operators only lower it
            assert search.bound([-1 if at == hidden else number for at, number in enumerate(choice)]) <= simulated + 1
    assert max(shares) <= 1 + 1e-9
    assert min(shares) > 0.5  # and not far


def branch_and_bound(graph: Graph, machine: Machine, judge) -> tuple[BranchAndBound, Space]:
    objective = Objective("seconds", machine)
    space = space_of(graph, objective)
    return BranchAndBound(space, objective, judge, Budget(float("inf"))), space


@pytest.fixture(scope="module")
def every_linear(linear: Graph) -> dict[tuple[int, ...], float]:
    """The seconds of all strategies on TWO."""
    return every_of(linear)


@pytest.fixture(scope="module")
def every_convolutional(convolutional: Graph) -> dict[tuple[int, ...], float]:
    return every_of(convolutional)


def every_of(graph: Graph) -> dict[tuple[int, ...], float]:
    objective = Objective("seconds", TWO)
    space = space_of(graph, objective)
    composer = Composer(graph, TWO, objective.transfers, WINDOWS[0])
    sizes = [len(item.codes) for item in space.operators]
    return {choice: composer.seconds(space.strategy(choice)) for choice in product(*map(range, sizes))}


@pytest.mark.parametrize("name", ["linear", "convolutional"])
def test_the_optimum_is_the_least_of_all_strategies(name: str, request: pytest.FixtureRequest) -> None:
    graph = request.getfixturevalue(name)
    _, judge = judge_of(graph, TWO)
    found = Optimum().search(graph, Objective("time", TWO, score=judge))
    space = space_of(graph, Objective("seconds", TWO))
    assert 100 < space.size < 500
    every = request.getfixturevalue(f"every_{name}").values()
    assert found.certificate.cost == min(every) == judge(found.strategy)
    assert found.certificate.gap == 0
    assert found.certificate.statistics["simulated"] < space.size
    assert max(every) > 1.2 * min(every)


def test_a_bad_first_answer_does_not_matter(linear: Graph, every_linear: dict[tuple[int, ...], float]) -> None:
    """The depth-first search finds the optimum by itself."""
    _, judge = judge_of(linear, TWO)
    search, _ = branch_and_bound(linear, TWO, judge)
    search.simulate(max(every_linear, key=lambda choice: every_linear[choice]))
    search.enumerate()
    assert search.left > 50
    search.simulate_left(lambda what, share: None)
    assert search.cost == min(every_linear.values())


def test_a_proof_that_takes_too_long_is_refused(linear: Graph) -> None:
    _, judge = judge_of(linear, FOUR)
    search, _ = branch_and_bound(linear, FOUR, judge)
    search.budget = Budget(0.0)
    search.simulate(tuple(int(size) - 1 for size in search.sizes))
    search.enumerate()
    with pytest.raises(OptimumError, match=r"the optimum of \d+ strategies \(\d+ × \d+ × \d+ configurations.*\)"):
        search.simulate_left(lambda what, share: None)


def test_a_bound_above_a_simulation_is_no_proof(linear: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, judge = judge_of(linear, TWO)
    search, _ = branch_and_bound(linear, TWO, judge)
    seconds = search.composer.seconds
    monkeypatch.setattr(search.composer, "seconds", lambda strategy: seconds(strategy) / 2)
    with pytest.raises(AssertionError, match=r"the bound of .* is above its .*: no proof holds"):
        search.simulate((0, 0, 0))


def test_who_judges_otherwise_ends_the_search(linear: Graph) -> None:
    _, judge = judge_of(linear, TWO)
    search, _ = branch_and_bound(linear, TWO, lambda strategy: judge(strategy) * (1 + 1e-12))
    with pytest.raises(AssertionError, match=r"composed, .* simulated .*: no proof holds"):
        search.simulate((0, 0, 0))


def test_strategies_that_are_not_wanted_are_not_answers(
    linear: Graph, every_linear: dict[tuple[int, ...], float]
) -> None:
    """Above the memory limit a strategy is infinitely slow."""
    _, judge = judge_of(linear, TWO)
    costs = sorted(set(every_linear.values()))
    fastest = set(costs[:3])

    def score(strategy: Strategy) -> float:
        return float("inf") if (cost := judge(strategy)) in fastest else cost

    found = Optimum().search(linear, Objective("time", TWO, score=score))
    assert found.certificate.cost == costs[3]


class MadeBySums(Objective):
    """What is whole or split does not become partial sums."""

    @property
    def transfers(self) -> Transfers:
        return replace(super().transfers, keeps=False)


@pytest.mark.parametrize("kind", [Objective, MadeBySums])
def test_a_known_strategy_is_joined_to_the_space(branches: Graph, kind: type[Objective]) -> None:
    """Where its partial sums cross operators, and nothing else becomes one, not every configuration goes with it; what
    does is a plan."""
    plan, judge = judge_of(branches, FOUR)
    objective, keeps = kind("seconds", FOUR), kind is Objective
    known = exact(branches, objective, rules=replace(SECONDS, keeps=keeps)).strategy
    assert space_of(branches, objective).choice(known) is None
    space = space_of(branches, objective, [known])
    choice = space.choice(known)
    assert choice is not None
    assert space.strategy(choice) == known
    search = BranchAndBound(space, objective, judge, Budget(float("inf")))
    search.simulate(choice)
    assert search.cost == judge(known)
    tables = build(branches, objective, replace(SOAP, keeps=keeps))
    never, able = [], []
    for operator, size in enumerate(search.sizes.tolist()):
        for number in range(0, size, 2):
            other = (*choice[:operator], number, *choice[operator + 1 :])
            labels = labels_of(tables, space.strategy(other))
            assert labels is not None
            possible = bool(np.isfinite(cost_of(tables.problem, labels)))
            assert (search.bound(other) < NEVER) == possible
            (able if possible else never).append(other)
    for other in never:
        search.simulate(other)
        assert other not in search.judged
    for other in able[:: len(able) // 4]:
        check(plan.but(strategy=space.strategy(other)))
        assert search.composer.seconds(space.strategy(other)) == judge(space.strategy(other))
    assert len(able) > 4
    assert len(never) > 4 or keeps


@pytest.fixture(scope="module")
def planned(linear: Graph) -> Plan:
    return plan_graph(linear, machine=TWO, objective="time", search="optimum")


def test_plans_are_searched_for_their_optimum(planned: Plan) -> None:
    check(planned)
    assert planned.search == "optimum"
    assert planned.certificate.gap == 0
    assert planned.certificate.space.startswith("one configuration for each operator")
    assert planned.predict().seconds == pytest.approx(planned.certificate.cost, rel=1e-12)
