"""How a plan keeps within a memory limit that its division alone does not meet: what is moved, and what is computed
or fetched again.

Each tensor is kept, moved out and back (`girih.program.moves.residency`), or dropped and computed again, or brought
again from the devices that have it (`girih.search.memory.cut`, or the optimum for chains of `girih.published.memory`).
Candidates come from few numbers,
the price of a kept byte, the number of segments, the planner's threshold, the window of overlap between devices; the
simulator judges each, and what is better than its neighbours is refined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from girih.layout.budget import Budget, without_collection
from girih.machine.machine import Tier
from girih.machine.units import format_bytes
from girih.ops.gate import called
from girih.plans.cutting import in_smaller_pieces, pieces_help
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import predict
from girih.program import BlockStep, Step
from girih.program.again import with_again
from girih.program.life.lifetimes import Lifetimes
from girih.program.life.sequences import Sequenced, able, follow, lifetimes_in, sequenced
from girih.program.moves.residency import Residency, TooSmallError, floor
from girih.search.judge import DEVICE, FAILED, Best, Judge
from girih.search.memory.apart import held_apart
from girih.search.memory.belady import belady, timed
from girih.search.memory.belady import held as held_on
from girih.search.memory.bound import MemoryBound, memory_bound
from girih.search.memory.cut import boundaries, cheapest, least_held, pivot_of
from girih.search.memory.held_steps import HeldRows, HeldSteps
from girih.search.memory.holds import Baseline, Setting
from girih.search.memory.limit import WINDOWS
from girih.search.memory.orders.locality import staying, updates_early
from girih.search.memory.orders.order import StepOrder
from girih.search.memory.published import held_as_published
from girih.search.memory.roc import least_residency
from girih.search.memory.step_seconds import StepSeconds, copy_rates, link_seconds, step_seconds
from girih.search.table import baseline_of, order_of
from girih.simulate.ticks import seconds_of, ticks

SHARES = (0.01, 0.1)
"""Shares of the step: what was touched so shortly before is not moved out, if anything else can be."""
LRU = -1.0
"""In place of a share: what was touched longest ago is moved out first, which is right now and then."""
SECONDS = 20
"""Seconds of computing, counted (`NANOSECONDS`), after which no other way is tried if one keeps the limit."""
NANOSECONDS, ROWS, WRITTEN = 10_000.0, 30_000.0, 250_000.0
"""What a core of 2023 takes about for each step of a way that is judged by columns, by the rows of several devices, and
as a Program that is written."""
PREPARED = 400_000.0
"""And for each step of a program before the first way is judged, and of the best, which is written."""
PARTS = (1.0, 0.85, 0.7)
"""Shares of the limit for which it is planned what leaves, the first that are tried: the rest is for what is being
copied."""
NEARER = (0.1, 0.05)
"""Between parts that are tried next to the best."""
TIMINGS = 2
"""How often copies in are put where the last simulation says that they have to begin."""
PROMISING = 1.5
"""Times the fastest: what takes longer is not put anew."""
HOT = (1.0, 0.5, 0.25)
"""Shares of the limit that what was touched last is taken to fill, where steps that touch the same come together."""
WITHIN = (0.25, 0.125, 0.0625)
"""Shares of the step within which they do: what comes together from far away leaves copies nothing to run beside."""
ALIKE = 0.002
"""Where the time differs by so little between two such orders, no other is tried."""
LOOKS = 10
"""Sequences that the optimum for chains looks at."""
LEAST = 4
"""Ways to compute again that are tried however long they take: one is found by the first, the others are near it."""
LEANER = 12
"""Ways to compute again that are tried however long they take where none has kept the limit yet."""
ENOUGH = 0.002
"""So near to the bound, or to the step with unlimited memory, nothing else is tried."""
PRICES = tuple(4.0**power for power in (-1, -2, 0, -3, 1, 2))
"""Prices of a byte that is kept, in seconds of copying it out and in: the first that are tried."""
DEARER = tuple(sorted(price for price in PRICES if price > PRICES[0]))
"""What is tried next where the first of them has not kept the limit."""
SEGMENTS = (256, 64, 16, 4, 1)
"""Into how many segments kept boundaries divide what is computed again."""
FACTORS = (2.0, 2**0.5)
"""Factors by which the price and the number of segments are refined."""

CUTTING, LEAST_CUTTING = 0.5, 5.0
"""The share of the work in which steps that alone need more than the limit are put in pieces, and its least seconds."""
SMALL, FEW = 12, 4
"""Steps, and tensors of state, of programs for which the least that has to be copied is found exactly."""
SHORT = 512
"""Steps of programs for which the order of the least peak is tried, too."""
KEPT = 4
"""Sequences whose walked programs are kept."""
ROOMS = 5
"""Smaller rooms that are tried where addresses need more than the limit."""

Sequence = tuple[int, ...] | None


class TooLittleError(PlanError):
    """No way keeps a plan within its limit. smallest: bytes of the smallest limit that a way was seen to need. proved:
    does every way of the orders that were tried need more than the limit, so that more work finds none?"""

    def __init__(self, message: str, smallest: float, proved: bool = False) -> None:
        super().__init__(message)
        self.smallest, self.proved = smallest, proved


@without_collection()
def held(
    plan: Plan,
    hold: str | Baseline,
    *,
    order: str | StepOrder = "auto",
    store: str | Path | None,
    note: Observe,
    work: Budget | None = None,
) -> Plan:
    """The plan in the best way to keep it within its memory limit.

    hold: `auto`, `swap`, `recompute`, or a published way to do it. order: of the steps, one of
    `girih.search.table.ORDERS`, or `auto`: the best of several. work: of all windows of overlap together, after which
    no other way is tried (None: `SECONDS`); what is done is spent there. Without any, the first that keep it are taken,
    of a few that are tried in any case.

    Raises:
        PlanError: no way that was tried keeps it; the message names the smallest limit that can be met, and the tensors
            that set it.
    """
    limit, host = plan.memory, plan.machine.host
    assert limit is not None
    if host is None and hold == "swap":
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    work = Budget(SECONDS) if work is None else work
    if (host is None or hold == "recompute") and work.late:
        _refuse_state(plan)
    windows = WINDOWS if plan.lowered.transfers and plan.choice.schedule == "graph" else (plan.choice.overlap,)
    unlimited = predict(plan.but(memory=None, overlap=windows[0]), store=store, memory=False).seconds
    plan = plan.but(unlimited=unlimited)
    if plan.lowered.orders:
        return held_apart(plan, hold, store=store, note=note, work=work)
    if isinstance(hold, Baseline):
        tried = [plan.but(overlap=window) for window in windows]
        return held_as_published(plan, hold, tried, order=order, store=store, note=note)
    cutting = Budget(max(CUTTING * work.seconds, LEAST_CUTTING))
    plan = in_smaller_pieces(plan, cutting)
    work.spend(cutting.spent)
    windows = (plan.choice.overlap,) if plan.choice.pieces else windows
    ways: list[_Ways] = []
    programs: list[tuple[Step, ...]] = []
    left = list(windows)
    while left:
        own = plan.but(overlap=left.pop(0))
        if own.lowered.steps in programs:
            continue
        programs.append(own.lowered.steps)
        number = len(windows) - len(left) - 1
        note("hold", number / len(windows))
        moving = host is not None and hold != "recompute"
        way = _Ways(own, store, moving, order, work.part(work.seconds / (len(left) + 1)))
        way.explore(again=hold != "swap", note=partial(_note_part, note, number, len(windows)))
        work.spend(way.work.spent + PREPARED * len(own.lifetimes.steps))
        ways.append(way)
        kept = way.best.plan is not None
        if way.best.seconds <= (1 + ENOUGH) * unlimited or (kept and work.late) or (len(ways) == 2 and not kept):
            break
        if len(ways) == 1 and not kept:  # with less overlap less is held: if the least does not fit, nothing does
            left = [*left[-1:], *left[:-1]]
    way = min(ways, key=lambda way: way.best.seconds)
    best, fastest = way.best.plan, way.best.seconds
    if best is None:
        leanest = min(ways, key=lambda way: way.smallest)
        raise TooLittleError(leanest.refusal(), leanest.smallest, all(way.needed for way in ways) and not cutting.over)
    if plan.machine.here:  # elsewhere nothing is run, or a GPU's allocator gives addresses
        addressed = way.addressed(best)
        if addressed is not best:
            best, fastest = addressed, predict(addressed, store=store, memory=False).seconds
    return best.but(memory_bound=way.bound, simulated=fastest)


def _refuse_state(plan: Plan) -> None:
    """Refuse a plan that moves nothing and has more state than its limit: all of it is there when the step begins.

    Raises:
        TooLittleError: if so.
    """
    state = max(use.state for use in plan.memory_by_device)
    assert plan.memory is not None
    if state > plan.memory:
        raise TooLittleError(
            f"{format_bytes(plan.memory)} for each device cannot be met without movements: what lives from step to "
            f"step needs {format_bytes(state)} ({state} bytes) of one. Raise the limit, divide it over more devices, "
            "or give the machine's file a `host` to move to",
            state,
            proved=True,
        )


def _note_part(note: Observe, number: int, count: int, share: float) -> None:
    note("hold", (number + share) / count)


@dataclass(frozen=True, eq=False)
class _Cuts:
    """What may come again in one order of the steps. lives, seconds: of the steps in it; links: seconds in which the
    links carry what they bring. unit: seconds that a byte costs at price 1."""

    order: Sequence
    lives: Lifetimes
    seconds: NDArray[np.float64]
    links: NDArray[np.float64]
    unit: float

    @cached_property
    def pivot(self) -> int:
        return pivot_of(self.lives)

    def sequence(self, price: float, segments: int, fetching: bool = False) -> Sequence:
        """The sequence in which comes again what the minimum cut for a price says, in so many segments. fetching: may
        transfers come again, too?"""
        lives, pivot = self.lives, self.pivot
        kept = boundaries(lives, self.seconds, pivot, segments) if segments > 1 else frozenset()
        seconds = self.seconds + self.links if fetching else self.seconds
        again = with_again(lives, pivot, cheapest(lives, seconds, pivot, price * self.unit, kept, fetching=fetching))
        return again if self.order is None else tuple(self.order[number] for number in again)


@dataclass
class _Ways:
    """The ways to hold one program that have been judged.

    refused: the plan of the way that needs least where none keeps the limit, and why. bound: of the seconds of all
    ways. needed: bytes that every way in the orders that were tried needs, where that is more than the limit, else 0.
    work: after which no other way is tried; it is counted, so that what is found is the same on a busy machine. quick:
    what keeps the limit by the columns of the program, with its seconds: it is written as a Program, and accounted,
    when all have been judged. cuts: of each order what may be computed again.
    """

    plan: Plan
    store: str | Path | None
    moving: bool
    named: str | StepOrder = "auto"
    work: Budget = field(default_factory=lambda: Budget(SECONDS))
    refused: tuple[Plan, TooSmallError] | None = None
    bound: float | None = None
    needed: int = 0
    judged: dict[tuple[Sequence, float, float], float] = field(default_factory=dict)
    quick: list[tuple[float, Sequence, Residency | None]] = field(default_factory=list)
    cuts: dict[Sequence, _Cuts] = field(default_factory=dict)
    plans: dict[Sequence, Plan] = field(default_factory=dict)

    def explore(self, again: bool, note: Callable[[float], None]) -> None:
        """Judge what is likely: first the order, then the price and the number of segments in turn, then the share."""
        with ThreadPoolExecutor(1) as beside:  # HiGHS needs no interpreter
            self._explore(again, note, beside)

    def _explore(self, again: bool, note: Callable[[float], None], beside: Executor) -> None:
        order, part = self.ordered(again)
        lives, limit = self.lifetimes_in(order), self.plan.memory
        assert limit is not None
        computing = seconds_of(ticks(self.seconds(order, computing=True)))  # by the simulator's clock
        host = self.host if self.moving else None

        @cache
        def bound() -> Future[MemoryBound]:
            return beside.submit(memory_bound, lives, limit, computing, host, recompute=again)

        @cache
        def least() -> float:
            """What no way takes less than."""
            if self.steps is None:  # judging takes long: it may not be worth while
                self.bound = bound().result().seconds
                return self.bound
            bound()
            return float(computing.sum())

        cuts, fetching = self.cuts_in(order), False
        tried = {(0.0, 1): self.judge(order, part=part)}

        def late() -> bool:
            enough = 0 if self.needed else LEAST if self.fastest < np.inf else LEANER
            return self.work.late and (len(tried) > enough or not again)

        def over() -> bool:
            return late() or (self.fastest < np.inf and self.fastest <= (1 + ENOUGH) * least())

        def trying(prices: Iterable[float], counts: Iterable[int]) -> tuple[float, int]:
            """The best so far behind these."""
            for price in prices:
                for count in counts:
                    if again and (price, count) not in tried and not over():
                        tried[price, count] = self.judge(cuts.sequence(price, count, fetching), part=part)
                        note(min(1.0, len(tried) / 30))
            return min(tried, key=tried.__getitem__)

        def chains() -> None:
            for other in (order,) if self.moving else dict.fromkeys((order, None, self.early)):
                if other == order or not self.much_done:
                    self.judge_chain(other, fetching)

        chained = not again or (self.needed and self.work.late) or not self.chains_pay(lives)
        if not chained and not self.work.late:
            chained = True
            chains()
        price, count = trying(PRICES[:1], SEGMENTS)
        if self.fastest == np.inf:
            price, count = trying(DEARER, [count])
            price, count = trying([price], SEGMENTS)
        if self.fastest == np.inf and self.links.any():  # what is fetched may come again, too, where memory is short
            fetching, tried = True, {(0.0, 1): tried[0.0, 1]}
            if chained and not late():
                chains()
            price, count = trying(PRICES[:1], SEGMENTS)
            price, count = trying(DEARER, [count])
            price, count = trying([price], SEGMENTS)
        price, count = trying(PRICES, [count] if self.moving else SEGMENTS)
        price, count = trying([price], SEGMENTS)
        if not chained and self.fastest == np.inf:  # the optimum takes as long as many cuts
            chains()
        for factor in FACTORS:
            before = None
            while before != (price, count):
                before = price, count
                price, count = trying([price], [round(count / factor), round(count * factor)] if count > 1 else [])
                price, count = trying([price / factor, price * factor], [count])
        if self.moving:
            # Where nothing has kept the limits yet, any of these may.
            sequences = dict.fromkeys(sequence for sequence, _, _ in self.judged)
            for sequence in sequences if self.fastest == np.inf else [self.fastest_way[0]]:
                for share in SHARES:
                    if not over():
                        self.judge(sequence, share, part)
            for apart in (PARTS[0] - PARTS[1], *NEARER) if self.fastest < np.inf and self.steps is not None else ():
                fastest, share, best = self.fastest_way
                for near in (best - apart, best + apart):
                    if not over() and 0 < near <= 1:
                        self.judge(fastest, share, round(near, 4))
            for sequence in dict.fromkeys((order, None, self.early)):
                done = late() if sequence == order else over()  # once however good others are: it is the published way
                if self.fastest < np.inf and not done:
                    self.judge(sequence, LRU)

        self.write()
        if self.moving and len(lives.steps) <= SMALL and len(lives.state) <= FEW:
            self.exactly(order, lives)
        kept = self.best.plan
        if kept is None:
            return
        self.bound = bound().result().seconds
        if (own := self.order_in(kept.choice.sequence)) != self.order_in(order):
            computing = seconds_of(ticks(self.seconds(own, computing=True)))
            self.bound = memory_bound(self.lifetimes_in(own), limit, computing, host, recompute=again).seconds

    def order_in(self, sequence: Sequence) -> Sequence:
        """The order of the steps in a sequence, each as it comes first: the bound is of all ways in one order."""
        captured = tuple(range(len(self.plan.lifetimes.steps)))
        order = tuple(dict.fromkeys(sequence or captured))
        return None if order == captured else order

    def exactly(self, order: Sequence, lives: Lifetimes) -> None:
        """Judge the residency that copies least, which is found exactly where steps are few."""
        limit = self.plan.memory
        assert limit is not None
        with suppress(TooSmallError):
            self.best.offer(self.plan.but(sequence=order, residency=(least_residency(lives, limit),), room=limit))

    @cached_property
    def best(self) -> Best:
        """The fastest way that keeps the limits, written as a Program."""
        return Best(Judge(self.plan, self.store))

    @property
    def smallest(self) -> float:
        """Bytes of the smallest limit of a device that a way was seen to need."""
        return self.best.judge.needed.get(DEVICE, np.inf)

    @cached_property
    def early(self) -> Sequence:
        """The order in which parameters are updated as soon as their gradients are there."""
        return updates_early(self.plan.lifetimes)

    @property
    def much_done(self) -> bool:
        """Has a third of the budget been used?"""
        return self.work.spent > self.work.left / 3

    @property
    def fastest(self) -> float:
        """Seconds of the fastest way so far that keeps the limits."""
        return min((seconds for seconds in self.judged.values() if seconds < FAILED), default=np.inf)

    @property
    def fastest_way(self) -> tuple[Sequence, float, float]:
        return min(self.judged, key=self.judged.__getitem__)

    def chains_pay(self, lives: Lifetimes) -> bool:
        """Can the limit be met without movements at all? What moves has other ways where state alone is too large, and
        none where a step alone needs more."""
        assert self.plan.memory is not None
        state = sum(lives.storages[new].bytes for _, new in lives.state)
        return not self.moving or max(state, floor(lives)[0]) < self.plan.memory

    def judge_chain(self, order: Sequence, fetching: bool) -> None:
        """The optimum for chains, in which steps may come again several times: a cut computes each once more. fetching:
        may transfers come again, too?"""
        assert self.plan.memory is not None
        self.work.spend(LOOKS * self.judging)

        def whole(again: tuple[int, ...]) -> tuple[int, ...]:
            return again if order is None else tuple(order[number] for number in again)

        def look(again: tuple[int, ...]) -> Lifetimes:
            return self.lifetimes_in(whole(again))

        def counted(again: tuple[int, ...]) -> NDArray[np.int64]:
            return look(again).used if self.columns is None else sequenced(self.columns, whole(again)).touches.used

        endless = (np.inf, np.inf)
        seconds = self.seconds(order) + self.links_in(order) * fetching
        setting = Setting(self.lifetimes_in(order), self.plan.memory, seconds, endless, look, counted, fetching)
        try:
            sequence = baseline_of("chain").hold(setting).sequence
        except TooSmallError as error:
            if not self.moving:
                self.best.judge.refuse(error.needed)
            return
        if sequence is not None:
            self.judge(whole(sequence))

    def named_order(self, name: str | StepOrder) -> tuple[int, ...]:
        return tuple(order_of(name).order(self.plan.lifetimes.links).tolist())

    def ordered(self, again: bool) -> tuple[Sequence, float]:
        """The order with which steps are fastest, and the part of the limit (`PARTS`) for it. again: also with what one
        cut computes again, as with nothing else some programs move so much that all orders take the same."""
        known: dict[Sequence, tuple[float, float]] = {}

        def measure(order: Sequence) -> float:
            part = self.in_parts(order)
            known[order] = self.judge(order, part=part), part
            if again and self.steps is not None:
                other = self.judge(self.cuts_in(order).sequence(PRICES[0], SEGMENTS[1]), part=part)
                known[order] = min(known[order][0], other), part
            return known[order][0]

        limit = self.plan.memory
        assert limit is not None
        if self.named != "auto":
            named = self.named_order(self.named)
            measure(named)
            self.needed = self.least(named) if self.fastest == np.inf and self.least(named) > limit else 0
            return named, known[named][1]
        measure(None)
        early = measure(self.early)
        for sequence in self.together():
            if self.much_done and (self.fastest < np.inf or self.work.late):
                break
            if sequence not in known and abs(measure(sequence) - early) <= ALIKE * early and len(known) == 3:
                break
        if len(self.plan.lifetimes.steps) <= SHORT:
            measure(self.named_order("least"))
        able = list(known)
        if self.fastest == np.inf:
            least = {order: self.least(order) for order in known}
            able = [order for order in known if least[order] <= limit]
            self.needed = 0 if able else min(least.values())
        best = min(able or known, key=known.__getitem__)
        return best, known[best][1]

    def least(self, order: Sequence) -> int:
        """Bytes that every way in an order needs."""
        return least_held(self.lifetimes_in(order), moving=self.moving)

    def together(self) -> Iterator[Sequence]:
        """Orders with early updates in which steps come together that touch the same."""
        lives, limit = self.plan.lifetimes, self.plan.memory
        assert limit is not None
        clock = np.cumsum(self.seconds(None))
        few = self.steps is None  # judging takes long
        for share in (np.inf, *(() if few else WITHIN)):
            latest = np.searchsorted(clock, clock + share * clock[-1], "right")
            for hot in HOT[:1] if few else HOT:
                yield updates_early(lives, staying(lives, int(hot * limit), latest))

    def in_parts(self, sequence: Sequence) -> float:
        """The part of the limit with which a sequence is fastest, of the first until it gets slower."""
        best = PARTS[0]
        for part in PARTS[1:] if self.moving and self.steps is not None else ():
            if self.judge(sequence, part=part) >= self.judge(sequence, part=best):
                break
            best = part
        return best

    def cuts_in(self, order: Sequence) -> _Cuts:
        """What may be computed again in an order."""
        if order not in self.cuts:
            lives, seconds = self.lifetimes_in(order), self.seconds(order)
            unit = self.price_of_a_byte(float(seconds.sum()), int(lives.used.max()))
            self.cuts[order] = _Cuts(order, lives, seconds, self.links_in(order), unit)
        return self.cuts[order]

    def lifetimes_in(self, order: Sequence) -> Lifetimes:
        if order is None or self.columns is None:
            return self.in_sequence(order).lifetimes
        return lifetimes_in(self.columns, sequenced(self.columns, order))

    def in_sequence(self, sequence: Sequence) -> Plan:
        """The plan with its steps in a sequence, nothing moved. The last few are kept with what is known of them, as
        most are judged several times."""
        if sequence not in self.plans:
            if len(self.plans) == KEPT:
                del self.plans[next(iter(self.plans))]
            self.plans[sequence] = self.plan.but(sequence=sequence)
        return self.plans[sequence]

    def price_of_a_byte(self, seconds: float, peak: int) -> float:
        """What copying it out and in takes; without a large memory, the time of the step for each byte of the peak."""
        return sum(1 / rate for rate in self.rates) if self.moving else seconds / peak

    @cached_property
    def host(self) -> Tier | None:
        """The large memory as it is simulated: with what was measured of it, if anything was."""
        return self._seconds.machine.host

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes/s of copies out, and in."""
        return copy_rates(self._seconds.machine)

    @cached_property
    def _seconds(self) -> StepSeconds:
        return step_seconds(self.plan, self.store)

    def seconds(self, sequence: Sequence, computing: bool = False) -> NDArray[np.float64]:
        return self._seconds.of(sequence, computing)

    @cached_property
    def links(self) -> NDArray[np.float64]:
        return link_seconds(self.plan)

    def links_in(self, order: Sequence) -> NDArray[np.float64]:
        """Seconds while the links carry what each step of an order brings."""
        return self.links if order is None else self.links[list(order)]

    @property
    def judging(self) -> float:
        """Nanoseconds that judging a way takes about."""
        by_rows = ROWS if self.rows is not None else WRITTEN
        return len(self._seconds.every) * (by_rows if self.steps is None else NANOSECONDS)

    def needs(self, plan: Plan) -> int:
        """Bytes of a plan without movements."""
        return int(plan.lifetimes.used.max()) if plan.machine.devices == 1 else plan.peak

    @cached_property
    def columns(self) -> Lifetimes | None:
        """From what the lifetimes in other sequences follow; None where they have to be walked."""
        lives = self.plan.lifetimes
        return lives if follow(lives) and self.needs(self.plan) == int(lives.used.max()) else None

    @cached_property
    def steps(self) -> HeldSteps | None:
        """What judges without writing a Program; None where there are several devices."""
        plan, limit = self.plan, self.plan.memory
        if limit is None or not able(plan.lifetimes):
            return None
        return HeldSteps(plan.lifetimes, self._seconds.machine, limit, self._seconds.every)

    @cached_property
    def rows(self) -> HeldRows | None:
        """What judges without writing a Program where there are several devices; None where something moves and a view
        takes time, or the large memory might be too small, which the Program tells."""
        plan, limit = self.plan, self.plan.memory
        if limit is None or self.steps is not None:
            return None
        host = self.host if self.moving else None
        if host is not None and int(plan.lifetimes.touches.bytes.sum()) > host.memory_bytes:
            return None
        rows = HeldRows(plan.lifetimes, self._seconds.prices, self._seconds.machine, limit)
        return rows if rows.able or (rows.plain and not self.moving) else None

    def judge(self, sequence: Sequence, share: float = 0.0, part: float = 1.0) -> float:
        """The simulated seconds of the step with this sequence; if it does not keep the limits, far more."""
        if (sequence, share, part) not in self.judged:
            self.judged[sequence, share, part] = self._judge(sequence, share, part)
        return self.judged[sequence, share, part]

    def _judge(self, sequence: Sequence, share: float, part: float) -> float:
        """By the columns of the program where its lifetimes follow from them, else by the Program."""
        self.work.spend(self.judging)
        plan, limit, host = self.in_sequence(sequence), self.plan.memory, self.plan.machine.host
        assert limit is not None
        item = None if self.columns is None else sequenced(self.columns, sequence)
        residency = None
        peak = self.needs(plan) if item is None else int(item.touches.used.max())
        if peak > limit and not self.moving:
            return self.best.judge.refuse(peak)
        if peak > limit:
            seconds = self.seconds(sequence)
            recent, lru = max(share, 0.0) * float(np.sum(seconds)), share == LRU
            try:
                if item is None:
                    residency = belady(plan.lifetimes, limit, seconds, recent, self.rates, lru)
                else:
                    residency = held_on(item.touches, limit, seconds, recent, self.rates, lru, int(part * limit))
            except TooSmallError as error:
                if error.needed < self.smallest:
                    self.refused = plan, error
                return self.best.judge.refuse(error.needed)
        if item is None or self.steps is None:
            if self.rows is None:
                return self.best.offer(plan if residency is None else plan.but(residency=(residency,), room=limit))
            order = range(len(self.rows.row)) if sequence is None else sequence
            where = plan.lifetimes if item is None and residency is not None else item
            took = self.rows.simulated(order, where, residency).seconds
            self.quick.append((took, sequence, residency))
            return took
        simulated, needed, residency = self._timed(self.steps, item, residency)
        if host is not None and needed > host.memory_bytes:
            return self.best.judge.refuse(needed, host.name)
        self.quick.append((simulated, sequence, residency))
        return simulated

    def _timed(
        self, steps: HeldSteps, item: Sequenced, residency: Residency | None
    ) -> tuple[float, int, Residency | None]:
        """(seconds, bytes of the large memory, residency) of the fastest of several times at which copies in begin."""
        limit, last = self.plan.memory, steps.simulated(item, residency)
        assert limit is not None
        best = last.seconds, last.host_bytes, residency
        for _ in range(TIMINGS if residency is not None else 0):
            if best[0] > PROMISING * self.fastest:
                break
            assert residency is not None
            residency = timed(item.touches, residency, limit, last.clock, self.rates)
            last = steps.simulated(item, residency)
            if last.seconds >= best[0]:
                break
            best = last.seconds, last.host_bytes, residency
        return best

    def write(self) -> None:
        """Write the fastest of those that were judged quickly, if it keeps the limit as a Program; else the next."""
        for simulated, sequence, residency in sorted(self.quick, key=itemgetter(0)):
            plan, limit = self.in_sequence(sequence), self.plan.memory
            assert limit is not None
            if sequence is not None and self.columns is not None:
                item = sequenced(self.columns, sequence)
                plan = plan.knowing(lifetimes=lifetimes_in(self.columns, item, plan.unmoved))
            plan = plan if residency is None else plan.but(residency=(residency,), room=limit)
            self.best.offer(plan, simulated)
            if self.best.plan is plan:
                return

    def addressed(self, best: Plan) -> Plan:
        """The plan, if everything has an address within the limit; else with a residency for less room, in which
        everything has; if none is found, the plan as it is, which runs without an arena (`Plan.no_arena`)."""
        limit = self.plan.memory
        assert limit is not None
        room, smaller = limit, best
        for _ in range(ROOMS if self.moving else 0):
            if smaller.arena is None or not smaller.no_arena:
                return smaller
            room = int(room * limit / smaller.arena.bytes) - 1
            plan, seconds = best.but(residency=()), self.seconds(best.choice.sequence)
            try:
                residency = belady(plan.lifetimes, room, seconds, rates=self.rates)
            except TooSmallError:
                break
            smaller = plan.but(residency=(residency,), room=room)
        return best if smaller.no_arena else smaller

    def refusal(self) -> str:
        plan, limit = self.plan, self.plan.memory
        assert limit is not None
        host = plan.machine.host
        if host is not None and (overfull := self.best.judge.needed.get(host.name)) is not None:
            return (
                f"to keep {format_bytes(limit)} on a device, {format_bytes(overfull)} would have to lie in "
                f"{host.name} at once, which has {format_bytes(host.memory_bytes)} for each device: raise the limit, "
                "use more devices, or make the batch smaller"
            )
        if self.refused is not None and self.refused[1].needed == self.smallest:
            return _refusal(*self.refused)
        again = "results are computed again"
        if self.moving:
            how, advice = "tensors are moved out", "or make the batch smaller"
        elif plan.machine.host is None:
            how, advice = (
                "results are computed again",
                "make the batch smaller, or give the machine's file a `host` to move to",
            )
        else:
            how, advice = again, "make the batch smaller, or allow movements (hold auto)"
        may = "though one may exist"
        if self.needed:
            may = f"and each in the orders of steps that were tried needs {format_bytes(self.needed)} at least"
        return (
            f"no way was found to keep {format_bytes(limit)} for each device, {may}: where {how}, the "
            f"leanest that was tried needs {format_bytes(self.smallest)} ({int(self.smallest)} bytes). Raise the "
            f"limit, use more devices, {advice}"
        )


def _refusal(plan: Plan, error: TooSmallError) -> str:
    assert plan.memory is not None
    lives = plan.lifetimes
    touched = [item for item in lives.storages if error.step in item.touched]
    touched.sort(key=lambda item: -item.bytes)
    tensors = ", ".join(f"{item.name} ({format_bytes(item.bytes)})" for item in touched[:4])
    extra = int(lives.extra[error.step])
    scratch = f" and {format_bytes(extra)} of scratch memory" if extra > 0 else ""
    if extra < 0:
        scratch = f" ({format_bytes(-extra)} of which count once, since the result is written over what it is made of)"
    node, during = "the batch" if error.step < 0 else "the end of the step", ""
    if 0 <= error.step < len(lives.steps):
        step = lives.steps[error.step]
        item = plan.graph.nodes[step.node]
        node, during = f"node {item.name!r} ({called(item)})", f", {item.source}" if item.source else ""
        if isinstance(step, BlockStep):
            node = f"the loop over pieces of {len(step.members)} steps, the last of them {node},"
    return (
        f"{format_bytes(plan.memory)} for each device cannot be met, whatever is moved out: {node}{during} alone "
        f"needs {format_bytes(error.needed)} ({error.needed} bytes), the smallest limit: {tensors}{scratch}. "
        f"{pieces_help(plan)}Raise the limit, use more devices, or make the batch smaller"
    )
