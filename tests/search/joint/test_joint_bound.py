"""The bound of the joint search: no plan in its space is faster, and it knows links and what a limit makes leave."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from counts import random_cases
from graphs import fitting_labels, perceptron, random_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import machine_of

from girih.graph import Graph, parse_graph
from girih.layout.budget import Budget
from girih.machine import Device, Level, Machine
from girih.machine.machine import Tier, unequal
from girih.ops.known import descriptions
from girih.partition.search import nobody
from girih.plans.choice import Choice
from girih.plans.plan import Goal, Plan, PlanError
from girih.plans.predict import predict, priced_on
from girih.program import ComputeStep
from girih.program.moves.residency import alone
from girih.rewrite.certificate import Certificate
from girih.search.joint.bound import COMPUTING, FIXED, MEMORY, TABLES, Relaxed, _families, _moment, _Order, step_bound
from girih.search.joint.handling import followed
from girih.search.memory.holding import held
from girih.search.memory.limit import WINDOWS
from girih.simulate.bounds import Bound
from girih.simulate.ticks import TICKS_PER_SECOND

NOTHING = Certificate(float("inf"), 0.0, "seconds", "none", "", "")


def bound(graph: Graph, at: Machine, limit: int | None) -> Bound:
    budget = Budget(20.0)
    return step_bound(Relaxed.of(graph, at, budget), limit, budget, ())


@given(
    st.integers(0, 2**32), st.sampled_from([(), (2,), (4,), (2, 2)]), st.booleans(), st.sampled_from([0.95, 0.8, 0.6])
)
@settings(max_examples=random_cases(8), suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_beats_it(seed: int, sizes: tuple[int, ...], training: bool, share: float) -> None:
    random = np.random.default_rng(seed)
    graph = perceptron(3, 16, 24) if training else random_graph(random, int(random.integers(3, 12)))
    out, back = (float(random.choice((2e6, 2e7, 2e8))) for _ in range(2))
    host = Tier("host", 10**9, out, back, latency_seconds=1e-6, computing_share=float(random.choice((0.0, 1.0))))
    at = replace(machine_of(sizes, random), host=host)
    budget = Budget(20.0)
    relaxed = Relaxed.of(graph, at, budget)
    strategy = relaxed.tables.strategy(fitting_labels(relaxed.tables, random))
    overlap = WINDOWS[int(random.integers(len(WINDOWS)))]
    plain = Plan(graph, at, Choice(strategy, overlap=overlap), NOTHING, Goal("joint", "time", None))
    limit = int(share * plain.peak)
    plans = [plain.but(memory=limit)] if plain.peak <= limit else []
    for hold in ("swap", "recompute"):
        with suppress(PlanError):
            plans.append(
                held(plain.but(memory=limit), hold, order="captured", store=None, note=nobody, work=Budget(0.0))
            )
    for cap, own in ((None, [plain]), (limit, [plan for plan in plans if not plan.choice.pieces])):
        found = step_bound(relaxed, cap, budget, (strategy,))
        for plan in own:
            seconds = predict(plan, memory=False).seconds + len(plan.program.steps) / TICKS_PER_SECOND
            assert all(part <= seconds * (1 + 1e-9) for _, part in found.parts), (found, seconds, plan.choice)


@given(st.integers(0, 2**32), st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3), (3, 4)]), *[st.booleans()] * 2)
@settings(max_examples=random_cases(40), suppress_health_check=[HealthCheck.too_slow])
def test_devices_are_busy_for_at_least_what_is_counted(
    seed: int, sizes: tuple[int, ...], training: bool, alike: bool
) -> None:
    """Under any division, also uneven ones, and on unequal devices: most of the bound is this sum."""
    random = np.random.default_rng(seed)
    graph = perceptron(2, 6, 10) if training else random_graph(random, int(random.integers(2, 8)))
    at = machine_of(sizes, random)
    if not alike:
        slower = replace(at.device, name="slow", memory_bytes_per_second=at.device.memory_bytes_per_second / 3)
        sooner = replace(at.device, name="soon", launch_seconds=at.device.launch_seconds / 2)
        at = unequal("mixed", ((slower, 1), (sooner, at.devices - 1)), at.levels)
    relaxed = Relaxed.of(graph, at, Budget(20.0))
    labels = fitting_labels(relaxed.tables, random)
    plan = Plan(graph, at, Choice(relaxed.tables.strategy(labels)), NOTHING, Goal("joint", "time", None))
    prices = priced_on(plan, at, None, "processes").priced.prices
    busy = (prices.before + prices.after).sum(axis=0)[followed(at.devices)].mean()
    counted = relaxed.line(labels)[COMPUTING]
    assert counted <= busy * (1 + 1e-9)
    assert counted >= 0.5 * busy or not alike


CHAIN = """graph
  input %x: float32[64, 64]  batch  "0"
  %a: float32[64, 64] = aten.mm(self=%x, mat2=%x)  # forward
  %b: float32[64, 64] = aten.mm(self=%a, mat2=%a)  # forward
  %c: float32[64, 64] = aten.mm(self=%b, mat2=%b)  # forward
  %d: float32[64, 64] = aten.add.Tensor(self=%c, other=%KEPT)  # forward
  return %d result"""
"""While %b computes, %a, %b and the value that is added at the end are there, of 16,384 bytes each."""


def at(devices: int, link: float, host: float) -> Machine:
    device, levels = Device("small", 2e9, 10**9, 1e9, 1e-7), (Level("links", (2,), link, 1e-7),)
    return Machine("small", device, levels if devices > 1 else (), host=Tier("host", 10**9, host, host))


@pytest.mark.parametrize("host", [2e6, 2e7])
def test_what_cannot_be_computed_again_goes_out_and_comes_back(host: float) -> None:
    """It goes out beside the first product, and comes back beside the third; the second has the device for itself."""
    graph, limit = parse_graph(CHAIN.replace("%KEPT", "%x")), 40_000
    product, total = 2 * 64**3 / 2e9 + 1e-7, 3 * 16_384 / 1e9 + 1e-7
    copied = (3 * 16_384 - limit) / host
    found = bound(graph, at(1, 0.0, host), limit)
    assert found.how.startswith(MEMORY)
    assert found.seconds == pytest.approx(max(product, copied) + product + max(product + total, copied), rel=1e-3)
    assert bound(graph, at(1, 0.0, host), 3 * 16_384).seconds == pytest.approx(3 * product + total, rel=1e-3)


def test_what_can_be_costs_as_much_as_computing_it_again() -> None:
    graph, limit = parse_graph(CHAIN.replace("%KEPT", "%a")), 40_000
    fewer, free = (bound(graph, at(1, 0.0, 2e6), cap).seconds for cap in (limit, 3 * 16_384))
    again = 2 * 64**3 / 2e9 * (3 * 16_384 - limit) / 16_384
    assert 0.85 * again < fewer - free <= again * (1 + 1e-6)


CONVOLUTION = """graph
  input %x: float32[8, 3, 16, 16]  batch  "0"
  input %w: float32[16, 3, 5, 5]  parameter  "w"
  %a: float32[8, 16, 12, 12] = aten.convolution(input=%x, weight=%w, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1)  # forward
  return %a result"""  # noqa: E501


@pytest.mark.parametrize(("model", "sizes"), [("random", (2,)), ("random", (2, 2)), (CONVOLUTION, (2,))])
def test_a_step_needs_no_less_than_what_its_node_is_counted_with(model: str, sizes: tuple[int, ...]) -> None:
    """Operands, result, and the scratch of a convolution's kernel on a machine that is not here."""
    random = np.random.default_rng(len(sizes))
    machine = machine_of(sizes, random)
    shares = []
    for _ in range(3 if model == "random" else 1):
        graph = random_graph(random, 8) if model == "random" else parse_graph(model)
        relaxed = Relaxed.of(graph, machine, Budget(20.0))
        tables = relaxed.tables
        labels = fitting_labels(tables, random)
        plan = Plan(graph, machine, Choice(tables.strategy(labels)), NOTHING, Goal("joint", "time", None))
        needed = alone(plan.lifetimes)
        for at, step in enumerate(plan.lifetimes.steps):
            if isinstance(step, ComputeStep):
                least = relaxed.pieces.bytes(step.node)[labels[len(tables.layouts) + step.node]]
                assert least <= needed[at], graph.nodes[step.node]
                shares.append(least / needed[at] if "convolution" in graph.nodes[step.node].operator else 0.0)
    assert model == "random" or max(shares) > 0.9


MOMENTUM = """graph
  input %x: float32[8, 8]  batch  "0"
  input %w: float32[8, 8]  parameter  "w"
  input %m: float32[8, 8]  state  "w/momentum"
  %g: float32[8, 8] = aten.mm(self=%x, mat2=%w)  # backward
  %s: float32[8, 8] = aten.mul.Tensor(self=%m, other=0.9)  # update
  %n: float32[8, 8] = aten.add.Tensor(self=%s, other=%g)  # update
  %v: float32[8, 8] = aten.add.Tensor(self=%w, other=%n, alpha=-0.1)  # update
  return %g result, %v update replaces %w, %n update replaces %m"""
"""The momentum is there as %m, then as %s, then as %n: never two of them but while one is made of the other."""


@pytest.mark.parametrize("sizes", [(), (2,), (2, 2)])
@pytest.mark.parametrize("model", ["momentum", "random"])
def test_no_moment_counts_more_than_is_in_use(model: str, sizes: tuple[int, ...]) -> None:
    """Whichever node is looked at, and however values are divided: else what fits were said to need copies."""
    random = np.random.default_rng(17)
    machine = replace(machine_of(sizes, random), host=Tier("host", 10**9, 2e7, 2e7))
    for _ in range(12):
        graph = random_graph(random, int(random.integers(3, 12))) if model == "random" else parse_graph(MOMENTUM)
        relaxed, order = Relaxed.of(graph, machine, Budget(20.0)), _Order.of(graph)
        families = list(_families(graph, order, machine.devices == 1))
        labels = fitting_labels(relaxed.tables, random)
        choice = Choice(relaxed.tables.strategy(labels), overlap=WINDOWS[-1])
        lives = Plan(graph, machine, choice, NOTHING, Goal("joint", "time", None)).lifetimes
        used = {step.node: used for step, used in zip(lives.steps, lives.used.tolist(), strict=False)
                if isinstance(step, ComputeStep)}  # fmt: skip
        for number, description in enumerate(descriptions(graph)):
            if description is None or not description.operator.view:
                moment = _moment(graph, machine, number, families, order)
                counted = replace(relaxed, limit=1, moment=moment).line(labels)[FIXED:].sum()
                assert counted <= used[number], (graph, number)


@pytest.mark.parametrize("over", [0, 1])
def test_no_division_is_left_with_which_a_node_alone_exceeds_the_limit(over: int) -> None:
    graph = parse_graph(CHAIN.replace("%KEPT", "%x"))
    where = at(2, 1e12, 2e9)
    pieces = Relaxed.of(graph, where, Budget(20.0)).pieces
    needed = max(float(pieces.bytes(number).min()) for number in range(len(graph.nodes)))
    assert needed == 3 * 8192  # all of an operand that is multiplied by itself, and half of the result
    parts = dict(bound(graph, where, int(needed) - over).parts)
    within = next(seconds for name, seconds in parts.items() if name.startswith(MEMORY))
    assert np.isinf(within) == (over > 0)


@pytest.mark.parametrize(("link", "least"), [(1e4, 0.8), (1e12, 0.49)])
def test_between_slow_links_dividing_is_no_help(link: float, least: float) -> None:
    """The bound then is near the work of one device; between fast links half of it, and what devices copy."""
    graph = parse_graph(CHAIN.replace("%KEPT", "%x"))
    parts = dict(bound(graph, at(2, link, 2e6), None).parts)
    alone = dict(bound(graph, at(1, 0.0, 2e6), None).parts)["work of all nodes over all devices"]
    assert least * alone <= parts[TABLES] <= alone * (0.55 if least < 0.5 else 1 + 1e-6)
