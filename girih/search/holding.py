"""How a plan keeps within a memory limit that its division alone does not meet: what is moved, and what is computed
again.

Each tensor is kept, moved out and back (`girih.memory.residency`), or dropped and computed again (`girih.memory.cut`,
or the optimum for chains of `girih.memory.baselines`). Candidates come from few numbers, the price of a kept byte, the
number of segments, the planner's threshold, the window of overlap between devices; the simulator judges each, and what
is better than its neighbours is refined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from girih.lower import BlockStep
from girih.lower.steps import node_of
from girih.machine.units import format_bytes
from girih.memory.accounts import host_bytes
from girih.memory.again import with_again
from girih.memory.baselines.baseline import Baseline, Setting
from girih.memory.baselines.checkpointing import OptimalChain
from girih.memory.bound import memory_bound
from girih.memory.cut import boundaries, cheapest, pivot_of
from girih.memory.lifetimes import Lifetimes
from girih.memory.orders.locality import staying, updates_early
from girih.memory.orders.order import order_of
from girih.memory.orders.step_graph import step_graph
from girih.memory.residency import TooSmallError, belady, floor
from girih.partition.solver.clock import Clock
from girih.plans.cutting import in_smaller_pieces, pieces_help
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import predict
from girih.search.apart import held_apart
from girih.search.memory_limit import WINDOWS
from girih.search.published import held_as_published
from girih.search.step_seconds import StepSeconds, copy_rates, step_seconds
from girih.simulate.ticks import seconds_of, ticks

SHARES = (0.01, 0.1)
"""Of the step: what was touched so shortly before is not moved out, if anything else can be."""
LRU = -1.0
"""In place of a share: what was touched longest ago is moved out first, which is right now and then."""
SECONDS = 45
"""After which no other way is tried, if one keeps the limit."""
LEAST = 4
"""Ways to compute again that are tried however long they take: one is found by the first, the others are near it."""
ENOUGH = 0.002
"""So near to the bound, or to the step with unlimited memory, nothing else is tried."""
PRICES = tuple(4.0**power for power in (-1, -2, 0, -3, 1, 2))
"""Of a byte that is kept, in seconds of copying it out and in: the first that are tried."""
SEGMENTS = (256, 64, 16, 4, 1)
"""Into how many segments kept boundaries divide what is computed again."""

FAILED = 1e6  # seconds for each byte of a limit that would have to be higher: more than any step takes

Sequence = tuple[int, ...] | None


def held(plan: Plan, hold: str | Baseline, *, order: str = "auto", store: str | Path | None, note: Observe) -> Plan:
    """The plan in the best way to keep it within its memory limit.

    hold: `auto`, `swap`, `recompute`, or a published way to do it. order: of the steps, one of
    `girih.memory.orders.order.ORDERS`, or `auto`: the best of several.

    Raises:
        PlanError: no way keeps it; the message names the smallest limit that can be met, and the tensors that set it.
    """
    limit, host = plan.memory, plan.machine.host
    assert limit is not None
    if host is None and hold == "swap":
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    windows = WINDOWS if plan.lowered.transfers and plan.schedule == "graph" else (plan.overlap,)
    unlimited = replace(plan, memory=None, residency=None, overlap=windows[0])
    plan = replace(plan, unlimited=predict(unlimited, store=store, memory=False).seconds)
    if plan.lowered.orders:
        return held_apart(plan, hold, store=store, note=note)
    if isinstance(hold, Baseline):
        tried = [replace(plan, overlap=window) for window in windows]
        return held_as_published(plan, hold, tried, order=order, store=store, note=note)
    plan = in_smaller_pieces(plan)
    windows = (plan.overlap,) if plan.pieces else windows
    ways: list[_Ways] = []
    for number, window in enumerate(windows):  # with less overlap less is held
        note("hold", number / len(windows))
        way = _Ways(replace(plan, overlap=window), store, host is not None and hold != "recompute", order)
        way.explore(again=hold != "swap", note=partial(_note_part, note, number, len(windows)))
        ways.append(way)
        if way.best is not None and way.best[0] <= (1 + ENOUGH) * (plan.unlimited or 0.0):
            break
    kept = [(*way.best, way.bound) for way in ways if way.best is not None]
    if not kept:
        raise PlanError(min(ways, key=lambda way: way.smallest).refusal())
    _, best, least = min(kept, key=lambda way: way[0])
    return best.bounded(least)


def _note_part(note: Observe, number: int, count: int, share: float) -> None:
    note("hold", (number + share) / count)


@dataclass
class _Ways:
    """The ways to hold one program that have been judged. best: (simulated seconds, plan) of the fastest that keeps the
    limit. What does not keep it is judged by its excess. smallest: bytes of the smallest limit that a way was seen to
    need; refused: the plan of that way, and why. overfull: bytes of the large memory, if that is what is too small.
    bound: of the seconds of all ways.
    """

    plan: Plan
    store: str | Path | None
    moving: bool
    named: str = "auto"
    best: tuple[float, Plan] | None = None
    smallest: float = np.inf
    refused: tuple[Plan, TooSmallError] | None = None
    overfull: float = np.inf
    bound: float | None = None
    judged: dict[tuple[Sequence, float], float] = field(default_factory=dict)

    def explore(self, again: bool, note: Callable[[float], None]) -> None:
        """Judge what is likely: first the order, then the price and the number of segments in turn, then the share."""
        clock = Clock()
        order: Sequence = self.named_order() if self.named != "auto" else None
        for other in self.orders() if self.named == "auto" else ():
            order = min((order, other), key=self.judge)
            if self.best is not None and perf_counter() > clock.end(SECONDS / 3):
                break
        ordered = self.plan.held(order)
        lives, seconds = ordered.lifetimes, self.seconds(order)
        assert ordered.memory is not None
        computing = seconds_of(ticks(self.seconds(order, computing=True)))  # by the simulator's clock
        host = self.plan.machine.host if self.moving else None
        self.bound = memory_bound(lives, ordered.memory, computing, host, recompute=again).seconds
        pivot = pivot_of(lives)
        unit = self.price_of_a_byte(float(seconds.sum()), int(lives.used.max()))

        def recomputing(price: float, segments: int) -> Sequence:
            kept = boundaries(lives, seconds, pivot, segments) if segments > 1 else frozenset()
            steps = cheapest(lives, seconds, pivot, price * unit, kept)
            sequence = with_again(lives, pivot, steps)
            return sequence if order is None else tuple(order[number] for number in sequence)

        tried = {(0.0, 1): self.judge(order)}

        def over() -> bool:
            if self.best is None:
                return False
            late = perf_counter() > clock.end(SECONDS) and len(tried) > LEAST
            return late or self.best[0] <= (1 + ENOUGH) * (self.bound or 0.0)

        def trying(prices: Iterable[float], counts: Iterable[int]) -> tuple[float, int]:
            """The best so far behind these."""
            for price in prices:
                for count in counts:
                    if again and (price, count) not in tried and not over():
                        tried[price, count] = self.judge(recomputing(price, count))
                        note(len(tried) / 20)
            return min(tried, key=tried.__getitem__)

        if again and self.chains_pay(lives):
            captured, early = None, updates_early(self.plan.held(None).lifetimes)
            for other in (order,) if self.moving else dict.fromkeys((order, captured, early)):
                if other == order or perf_counter() < clock.end(SECONDS / 3):
                    self.judge_chain(other)
        price, count = trying(PRICES[:1], SEGMENTS[:2])  # what most large graphs need
        price, count = trying(PRICES, SEGMENTS[:1] if self.moving else SEGMENTS)
        price, count = trying([price], SEGMENTS)
        for factor in (2.0, 2**0.5):
            price, count = trying([price / factor, price * factor], [count])
        if self.moving:
            # Where nothing has kept the limits yet, any of these may.
            sequences = dict.fromkeys(sequence for sequence, _ in self.judged)
            for sequence in sequences if self.best is None else [self.best[1].sequence]:
                for share in SHARES:
                    if not over():
                        self.judge(sequence, share)
            early = updates_early(self.plan.held(None).lifetimes)
            for sequence in dict.fromkeys((order, None, early)):
                if self.best is not None and not over():
                    self.judge(sequence, LRU)

    def chains_pay(self, lives: Lifetimes) -> bool:
        """Can the limit be met without movements at all? What moves has other ways where state alone is too large, and
        none where a step alone needs more."""
        assert self.plan.memory is not None
        state = sum(lives.storages[new].bytes for _, new in lives.state)
        return not self.moving or max(state, floor(lives)[0]) < self.plan.memory

    def judge_chain(self, order: Sequence) -> None:
        """The optimum for chains, in which steps may come again several times: a cut computes each once more."""
        ordered = self.plan.held(order)
        assert ordered.memory is not None

        def whole(again: tuple[int, ...]) -> tuple[int, ...]:
            return again if order is None else tuple(order[number] for number in again)

        def look(again: tuple[int, ...]) -> Lifetimes:
            return self.plan.held(whole(again)).lifetimes

        endless = (np.inf, np.inf)
        setting = Setting(ordered.lifetimes, ordered.memory, self.seconds(order), endless, look)
        try:
            sequence = OptimalChain().hold(setting).sequence
        except TooSmallError as error:
            if not self.moving:
                self.smallest = min(self.smallest, error.needed)
            return
        if sequence is not None:
            self.judge(whole(sequence))

    def named_order(self) -> tuple[int, ...]:
        graph = step_graph(self.plan.lifetimes)
        return tuple(order_of(self.named).order(graph).tolist())

    def orders(self) -> Iterator[Sequence]:
        """With early updates, with steps together that touch the same, and as it is."""
        assert self.plan.memory is not None
        yield updates_early(self.plan.lifetimes)
        together = staying(self.plan.lifetimes, self.plan.memory)
        early = updates_early(self.plan.held(together).lifetimes)
        yield tuple(together[number] for number in early)

    def price_of_a_byte(self, seconds: float, peak: int) -> float:
        """What copying it out and in takes; without a large memory, the time of the step for each byte of the peak."""
        return sum(1 / rate for rate in self.rates) if self.moving else seconds / peak

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes/s of copies out, and in."""
        return copy_rates(self.plan.machine)

    @cached_property
    def _seconds(self) -> StepSeconds:
        return step_seconds(self.plan, self.store)

    def seconds(self, sequence: Sequence, computing: bool = False) -> NDArray[np.float64]:
        return self._seconds.of(sequence, computing)

    def needs(self, plan: Plan) -> int:
        """Bytes of a plan without movements."""
        return int(plan.lifetimes.used.max()) if plan.machine.devices == 1 else plan.peak

    def judge(self, sequence: Sequence, share: float = 0.0) -> float:
        """The simulated seconds of the step with this sequence; if it does not keep the limits, far more."""
        if (sequence, share) not in self.judged:
            self.judged[sequence, share] = self._judge(sequence, share)
        return self.judged[sequence, share]

    def _judge(self, sequence: Sequence, share: float) -> float:
        plan, limit, host = self.plan.held(sequence), self.plan.memory, self.plan.machine.host
        assert limit is not None
        if self.needs(plan) > limit and self.moving:
            assert host is not None
            seconds = self.seconds(sequence)
            try:
                recent, lru = max(share, 0.0) * float(np.sum(seconds)), share == LRU
                residency = belady(plan.lifetimes, limit, seconds, recent, self.rates, lru)
            except TooSmallError as error:
                if error.needed < self.smallest:
                    self.smallest, self.refused = error.needed, (plan, error)
                return FAILED * error.needed
            plan = plan.held(sequence, residency)
            if (needed := host_bytes(plan.program)) > host.memory_bytes:
                self.overfull = min(self.overfull, needed)
                return FAILED * needed
        if plan.peak > limit:
            self.smallest = min(self.smallest, plan.peak)
            return FAILED * plan.peak
        simulated = predict(plan, store=self.store, memory=False).seconds
        if self.best is None or simulated < self.best[0]:
            self.best = simulated, plan
        return simulated

    def refusal(self) -> str:
        plan, limit = self.plan, self.plan.memory
        assert limit is not None
        if self.overfull < np.inf:
            host = plan.machine.host
            assert host is not None
            return (
                f"to keep {format_bytes(limit)} on a device, {format_bytes(self.overfull)} would have to lie in "
                f"{host.name} at once, which has {format_bytes(host.memory_bytes)} for each device: raise the limit, "
                "use more devices, or make the batch smaller"
            )
        if self.refused is not None and self.refused[1].needed == self.smallest:
            return _refusal(*self.refused)
        if self.moving:
            how, advice = "tensors are moved out", "or make the batch smaller"
        elif plan.machine.host is None:
            how, advice = "is computed again", "make the batch smaller, or give the machine's file a `host` to move to"
        else:
            how, advice = "is computed again", "make the batch smaller, or allow movements (hold auto)"
        return (
            f"{format_bytes(limit)} for each device cannot be met: whatever {how}, the plan needs "
            f"{format_bytes(self.smallest)} ({int(self.smallest)} bytes). Raise the limit, use more devices, {advice}"
        )


def _refusal(plan: Plan, error: TooSmallError) -> str:
    assert plan.memory is not None
    lives = plan.lifetimes
    touched = [item for item in lives.storages if error.step in item.touched]
    touched.sort(key=lambda item: -item.bytes)
    tensors = ", ".join(f"{item.name} ({format_bytes(item.bytes)})" for item in touched[:4])
    extra = int(lives.extra[error.step])
    scratch = f" and {format_bytes(extra)} of scratch memory" if extra else ""
    node, during = "the batch" if error.step < 0 else "the end of the step", ""
    if 0 <= error.step < len(lives.steps):
        step = lives.steps[error.step]
        item = plan.graph.nodes[node_of(step)]
        node, during = f"node {item.name!r} ({item.operator})", f", {item.source}" if item.source else ""
        if isinstance(step, BlockStep):
            node = f"the loop over pieces of {len(step.members)} steps, the last of them {node},"
    return (
        f"{format_bytes(plan.memory)} for each device cannot be met, whatever is moved out: {node}{during} alone "
        f"needs {format_bytes(error.needed)} ({error.needed} bytes), the smallest limit: {tensors}{scratch}. "
        f"{pieces_help(plan)}Raise the limit, use more devices, or make the batch smaller"
    )
