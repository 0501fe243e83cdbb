"""What is judged without a Program is what its Program takes, to the last bit; sequences on arrays are as walked."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from counts import but_long
from graphs import perceptron

from girih.api import plan_graph
from girih.capture import capture
from girih.graph import Graph
from girih.layout import budget
from girih.machine import machine
from girih.machine.machine import Machine, Tier
from girih.models import example
from girih.plans.plan import Plan
from girih.plans.predict import predict
from girih.program import Overlap, TransferStep, check
from girih.program.again import sequenced, with_again
from girih.program.life import sequences as columns
from girih.program.life.accounts import host_bytes
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.liveness import lasting
from girih.program.moves.residency import TooSmallError, floor
from girih.search.memory.belady import belady, held, timed
from girih.search.memory.cut import cheapest, pivot_of
from girih.search.memory.held_steps import HeldRows, HeldSteps
from girih.search.memory.holding import _Ways
from girih.search.memory.orders.locality import staying, updates_early
from girih.search.memory.step_seconds import copy_rates, step_seconds


def recurrent() -> Graph:
    """Two unrolled layers: weights are read again and again, and views of them are looked at."""
    import torch

    from girih.capture import TrainingStep

    made = example("rnn-tiny", device="meta")
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.1, momentum=0.9)
    return capture(TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs).graph


def on(rate: float, share: float) -> Machine:
    host = Tier("host", 1 << 50, rate, 1.3 * rate, latency_seconds=1e-7, computing_share=share)
    return replace(machine("p3.2xlarge"), host=host)


@pytest.fixture(scope="module", params=["perceptron", "recurrent"])
def plan(request: pytest.FixtureRequest) -> Plan:
    graph = perceptron(3, 64, 32) if request.param == "perceptron" else recurrent()
    return plan_graph(graph, machine=on(1e9, 0.0), compare=(), objective="bytes")


def sequences(plan: Plan) -> list[tuple[int, ...] | None]:
    lives = plan.lifetimes
    seconds, pivot = _Ways(plan, None, True).seconds(None), pivot_of(lives)
    again = [with_again(lives, pivot, cheapest(lives, seconds, pivot, price)) for price in (1e-11, 1e-9)]
    return [None, updates_early(lives), updates_early(lives, staying(lives, plan.peak // 2)), *again]


def test_lifetimes_in_any_sequence_follow_from_one_walk(plan: Plan) -> None:
    lives = plan.lifetimes
    for sequence in filter(None, sequences(plan)):
        program = sequenced(plan.lowered, sequence)
        walked, item = lifetimes(program), columns.sequenced(lives, sequence)
        for name, expected in walked.touches._asdict().items():
            np.testing.assert_array_equal(getattr(item.touches, name), expected, err_msg=name)
        np.testing.assert_array_equal(item.touches.used, walked.used)
        derived = columns.lifetimes_in(lives, item, program)
        assert tuple(derived.storages) == walked.storages
        assert (derived.views, derived.state, derived.steps) == (walked.views, walked.state, walked.steps)
        assert (dict(derived.takers), dict(derived.taken)) == (dict(walked.takers), dict(walked.taken))


def with_transfers(lives: Lifetimes, random: np.random.Generator) -> tuple[int, ...]:
    """A sequence in which any steps come again, transfers among them."""
    kept = lasting(lives.program.graph)
    some = [at for at in np.flatnonzero(lives.repeats).tolist() if kept.isdisjoint(lives.steps[at].targets)]
    again = [at for at in some if random.random() < 0.5]
    return with_again(lives, int(random.integers(len(lives.steps))), again)


@pytest.mark.parametrize("window", [Overlap(), Overlap(4, 16)])
@pytest.mark.parametrize("search", ["data", "sharded"])
def test_lifetimes_of_several_devices_follow_from_one_walk(plan: Plan, search: str, window: Overlap) -> None:
    """Exchanges hold their ends while they are under way; what is computed again is not what peers look at; what is
    fetched may be fetched again."""
    divided = plan_graph(plan.graph, machine="titanx-40g:4", memory="unlimited", search=search).but(overlap=window)
    lives, random = divided.lifetimes, np.random.default_rng(0)
    assert columns.follow(lives)
    anew = [with_transfers(lives, random) for _ in range(6)]
    transfers = [at for at, step in enumerate(lives.steps) if isinstance(step, TransferStep)]
    assert any(sequence.count(at) > 1 for sequence in anew for at in transfers)
    for sequence in (*sequences(divided), *anew):
        own = divided.but(sequence=sequence)
        check(own.unmoved)
        walked, item = own.lifetimes, columns.sequenced(lives, sequence)
        for name, expected in walked.touches._asdict().items():
            np.testing.assert_array_equal(getattr(item.touches, name), expected, err_msg=name)
        assert int(item.touches.used.max()) == own.peak
        derived = columns.lifetimes_in(lives, item, own.unmoved)
        assert tuple(derived.storages) == tuple(walked.storages)
        assert (derived.views, derived.state, derived.steps) == (walked.views, walked.state, walked.steps)
        assert (dict(derived.takers), dict(derived.taken)) == (dict(walked.takers), dict(walked.taken))
        assert dict(derived.sent_takers) == dict(walked.sent_takers)


@pytest.mark.parametrize(
    ("rate", "share"), but_long([(1e8, 0.0), (1e8, 0.5), (1e11, 0.0), (1e11, 0.5)], [(1e8, 0.0), (1e11, 0.5)])
)
def test_a_residency_takes_what_its_program_takes(plan: Plan, rate: float, share: float) -> None:
    where, judged = on(rate, share), 0
    plan = plan_graph(plan.graph, machine=where, compare=(), objective="bytes")
    ways, lives = _Ways(plan.but(memory=plan.peak), None, True), plan.lifetimes
    seconds = ways.seconds(None)
    for sequence in sequences(plan):
        item = columns.sequenced(lives, sequence)
        for cap in (floor(plan.lifetimes)[0], plan.peak * 6 // 10):
            try:
                residency = held(item.touches, cap, seconds[item.sequence], rates=ways.rates)
            except TooSmallError:
                continue
            written = plan.but(memory=cap, sequence=sequence, residency=(residency,), room=cap)
            assert written.peak <= cap
            expected = predict(written, memory=False).seconds, host_bytes(written.program)
            got = HeldSteps(lives, where, cap, seconds).simulated(item, residency)
            assert (got.seconds, got.host_bytes) == expected
            own = seconds[item.sequence]
            assert len(got.clock) == len(own) + 1
            assert (np.diff(got.clock) >= own - 1e-9).all()  # each step takes its time, and waits for copies besides
            assert got.clock[-1] <= got.seconds * (1 + 1e-9)
            judged += 1
    assert judged >= 5


@pytest.mark.parametrize(("rate", "share"), [(1e8, 0.5), (1e11, 0.0)])
def test_rows_of_several_devices_take_what_their_program_takes(plan: Plan, rate: float, share: float) -> None:
    where, judged = replace(machine("titanx-40g:4"), host=on(rate, share).host), 0
    divided = plan_graph(plan.graph, machine=where, memory="unlimited", search="data")
    known, lives = step_seconds(divided, None), divided.lifetimes
    pivot = pivot_of(lives)
    again = with_again(lives, pivot, cheapest(lives, known.of(None), pivot, 1e-9))
    for sequence in (None, updates_early(lives), again):
        own = divided.but(sequence=sequence)
        order = range(len(lives.steps)) if sequence is None else sequence
        for cap in (floor(own.lifetimes)[0], own.peak * 6 // 10):
            rows = HeldRows(divided.lifetimes, known.prices, known.machine, cap)
            assert rows.able
            assert rows.simulated(order).seconds == predict(own, memory=False).seconds
            try:
                residency = belady(own.lifetimes, cap, known.of(sequence), rates=copy_rates(where))
            except TooSmallError:
                continue
            written = own.but(memory=cap, residency=(residency,), room=cap)
            assert written.peak <= cap
            got = rows.simulated(order, own.lifetimes, residency)
            assert got.seconds == predict(written, memory=False).seconds
            assert len(got.clock) == len(order) + 1
            assert (np.diff(got.clock) >= 0).all()
            judged += 1
    assert judged >= 3


def test_nothing_comes_again_where_nothing_has_a_price(plan: Plan) -> None:
    lives = plan.lifetimes
    assert cheapest(lives, np.zeros(len(lives.steps)), pivot_of(lives), 0.0) == frozenset()


@pytest.mark.parametrize("room", [0.5, 0.8])
def test_room_for_copies_and_other_clocks_keep_the_limit(plan: Plan, room: float) -> None:
    """What is planned for less leaves more; copies in that are put by what was simulated begin later, never the end of
    what needs them; and both are still what their Program is."""
    where, judged = on(1e9, 0.0), 0
    plan = plan_graph(plan.graph, machine=where, compare=(), objective="bytes")
    ways, lives = _Ways(plan.but(memory=plan.peak), None, True), plan.lifetimes
    seconds, cap = ways.seconds(None), plan.peak * 6 // 10
    for sequence in sequences(plan):
        item = columns.sequenced(lives, sequence)
        own = seconds[item.sequence]
        whole, less = (held(item.touches, cap, own, rates=ways.rates, room=part) for part in (None, int(room * cap)))
        assert sum(less.copied_bytes(item.touches)) >= sum(whole.copied_bytes(item.touches))
        computing = np.concatenate([[0.0], np.cumsum(own)])
        np.testing.assert_array_equal(timed(item.touches, whole, cap, computing, ways.rates).rows, whole.rows)
        steps = HeldSteps(lives, where, cap, seconds)
        later = timed(item.touches, less, cap, steps.simulated(item, less).clock, ways.rates)
        for residency in (less, later):
            written = plan.but(memory=cap, sequence=sequence, residency=(residency,), room=cap)
            assert written.peak <= cap
            got = steps.simulated(item, residency)
            assert (got.seconds, got.host_bytes) == (
                predict(written, memory=False).seconds,
                host_bytes(written.program),
            )
            judged += 1
    assert judged >= 6


def test_steps_come_together_no_further_than_they_may(plan: Plan) -> None:
    lives, count = plan.lifetimes, len(plan.lifetimes.steps)
    own = np.arange(count)
    nodes = lives.program.graph.nodes
    update = [nodes[step.node].phase == "update" for step in lives.steps]  # these come where they were
    still = [step for step in staying(lives, plan.peak // 2, own) if not update[step]]
    assert still == sorted(still)  # none may come while an earlier one waits
    far = staying(lives, plan.peak // 2)
    assert sorted(far) == list(range(count))
    near = np.asarray(staying(lives, plan.peak // 2, own + 2))
    place = np.argsort(near)
    needs = lives.needs
    for at, step in enumerate(near.tolist()):
        waits = [other for other in range(step) if place[other] > at and all(place[n] < at for n in needs[other])]
        assert update[step] or all(step <= other + 2 for other in waits if not update[other])


def test_copies_by_the_devices_own_cores_take_its_time() -> None:
    graph = perceptron(4, 512, 256)
    limit = plan_graph(graph, machine=on(12e9, 0.0), objective="bytes").peak * 6 // 10
    plans = [
        plan_graph(graph, machine=on(12e9, share), memory=limit, hold="swap", objective="bytes")
        for share in (0.0, 0.5, 1.0)
    ]
    times = [plan.predicted.simulated for plan in plans]
    assert times == sorted(times)
    assert times[0] < times[-1]
    for plan, share in zip(plans, (0.0, 0.5, 1.0), strict=True):
        assert plan.predicted.memory_bound is not None
        assert plan.choice.residency
        assert plan.machine.host is not None
        assert plan.predicted.memory_bound <= plan.predicted.simulated * (1 + 1e-9)
        sizes = [item.bytes for item in plan.lifetimes.storages]
        copies = [(sizes[stay.storage], True) for stay in plan.choice.residency[0].stays if stay.copied]
        copies += [(sizes[stay.storage], False) for stay in plan.choice.residency[0].stays if not stay.fresh]
        own = sum(plan.machine.host.copy_seconds(size, out) for size, out in copies) * share
        assert plan.predicted.simulated >= plan.predicted.unlimited + own - 1e-9


def test_a_busy_machine_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried under a limit is counted: time that passes meanwhile changes nothing."""
    graph, where = perceptron(3, 64, 32), on(1e9, 0.0)
    cap = plan_graph(graph, machine=where, compare=(), objective="bytes").peak * 6 // 10
    quiet = plan_graph(graph, machine=where, memory=cap, compare=(), objective="bytes")
    asked = count()
    monkeypatch.setattr(budget, "_now", lambda: 0.1 * next(asked))  # ten seconds for a hundred looks at the clock
    busy = plan_graph(graph, machine=where, memory=cap, compare=(), objective="bytes")
    assert busy.choice == quiet.choice
    assert busy.predicted == quiet.predicted
