"""The least that has to be copied, exactly: ROC's dynamic programme (Jia et al. 2020, §4.5, Algorithm 3).

A state is the set of operations that are done, and the tensors that the device holds. From each valid state (whatever
an operation needs is done before it) every operation that can come next is tried, in any order or in the given one.

Differences from the paper:

- It counts what is loaded. Here copies out are counted too, and a state says which tensors have a copy in the large
  memory. Its cost is the least of what is copied in, for tensors that may leave for nothing.
- Line 16 of Algorithm 3, as it is printed, keeps nothing for its last use: a tensor would be loaded again for the
  operation behind which it is no longer needed, however much memory there is. Here it may be kept.
- It tries every set of tensors. Here a tensor leaves when room is needed, and no more leave than have to: to evict
  later costs the same or less.
- Memory may consist of pools, of which each tensor takes its part: SwapAdvisor's size classes.

Cost: exponential in the tensors that are alive at once; for graphs of a dozen operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from girih.program.life.lifetimes import Lifetimes
from girih.program.moves.residency import Residency, TooSmallError, floor, in_visits

Amounts = tuple[int, ...]
Front = tuple[tuple[int, int], ...]
"""(bytes copied out, bytes copied in) of which none is better than another in both, ascending by the first."""


@dataclass(frozen=True)
class Operation:
    """reads, writes: tensors that are on the device while it runs. extra: what it takes of each pool besides."""

    reads: frozenset[str]
    writes: frozenset[str] = frozenset()
    extra: Amounts = (0,)


@dataclass(frozen=True)
class Problem:
    """Operations, and how many bytes a copy of each tensor moves.

    takes: what each tensor takes of each pool of memory, where that is not its bytes of the one pool. given: tensors on
    the device at the beginning. stored: those that have a copy in the large memory then. wanted: those that are needed
    behind the last operation, wherever they are; saved: which have to have a copy then. ordered: do the operations keep
    their order?
    """

    operations: tuple[Operation, ...]
    sizes: Mapping[str, int]
    takes: Mapping[str, Amounts] | None = None
    given: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    ordered: bool = False


def valid_states(operations: tuple[Operation, ...]) -> Iterator[frozenset[int]]:
    """The sets of operations that can have been done, by their positions, smaller ones first."""
    makers = {name: number for number, item in enumerate(operations) for name in item.writes}
    before = [{makers[name] for name in item.reads if name in makers} for item in operations]
    for count in range(len(operations) + 1):
        for some in combinations(range(len(operations)), count):
            if all(before[number] <= set(some) for number in some):
                yield frozenset(some)


def live_tensors(operations: tuple[Operation, ...], done: frozenset[int]) -> frozenset[str]:
    """What the operations that are done have touched, and others will read (Table 4.3)."""
    touched = {name for number in done for name in operations[number].reads | operations[number].writes}
    ahead = {name for number, item in enumerate(operations) if number not in done for name in item.reads}
    return frozenset(touched & ahead)


def least_copies(problem: Problem, cap: Amounts) -> Front:
    """The least bytes that are copied out and in where each pool has so much room; () where no order can be met."""
    return _Search(problem, cap).run()


class _State(NamedTuple):
    """Sets as bits: operations that are done, tensors on the device, and tensors with a copy."""

    done: int
    present: int
    copied: int


class _Search:
    """Sets of tensors are bits, in the order of `names`: those that take most of memory first."""

    def __init__(self, problem: Problem, cap: Amounts) -> None:
        takes = problem.takes or {name: (size,) for name, size in problem.sizes.items()}
        names = sorted(problem.sizes, key=lambda name: (-sum(takes[name]), name))
        self.bit = {name: 1 << number for number, name in enumerate(names)}
        self.sizes = [problem.sizes[name] for name in names]
        self.takes = [takes[name] for name in names]
        self.cap = cap
        self.given, self.stored = self.bits(problem.given), self.bits(problem.stored)
        self.saved = self.bits(problem.saved)
        self.wanted = self.bits(problem.wanted) | self.saved
        self.reads = [self.bits(item.reads) for item in problem.operations]
        self.writes = [self.bits(item.writes) for item in problem.operations]
        self.extra = [item.extra for item in problem.operations]
        self.before = [(1 << number) - 1 for number in range(len(self.reads))]  # of each operation, what precedes it
        if not problem.ordered:
            makers = {name: 1 << number for number, item in enumerate(problem.operations) for name in item.writes}
            self.before = [sum({makers.get(name, 0) for name in item.reads}) for item in problem.operations]

    def bits(self, names: Iterable[str]) -> int:
        return sum(self.bit[name] for name in set(names))

    def bytes(self, some: int) -> int:
        return sum(self.sizes[number] for number in _members(some))

    def fits(self, some: int, extra: Amounts) -> bool:
        totals = list(extra)
        for number in _members(some):
            totals = [total + amount for total, amount in zip(totals, self.takes[number], strict=True)]
        return all(total <= most for total, most in zip(totals, self.cap, strict=True))

    def first(self) -> _State | None:
        if not self.fits(self.given, (0,) * len(self.cap)):
            return None
        return _State(0, self.given & (self.read_behind(0) | self.wanted), self.stored)

    def cheapest(self) -> tuple[int, tuple[int, ...]] | None:
        """(the least bytes that are copied, out and in together; what leaves before each operation, as bits), of
        operations in their order. None where the cap cannot be met."""
        state = self.first()
        if state is None:
            return None
        layers: list[dict[_State, tuple[int, _State, int]]] = [{state: (0, state, 0)}]
        for number in range(len(self.reads)):
            layer: dict[_State, tuple[int, _State, int]] = {}
            for state, (cost, _, _) in layers[-1].items():
                for behind, out, back, gone in self.after(state, number):
                    if behind not in layer or cost + out + back < layer[behind][0]:
                        layer[behind] = cost + out + back, state, gone
            layers.append(layer)
        if not layers[-1]:
            return None
        state = min(layers[-1], key=lambda state: layers[-1][state][0])
        least, leaving = layers[-1][state][0], []
        for layer in reversed(layers[1:]):
            _, state, gone = layer[state]
            leaving.append(gone)
        return least, tuple(reversed(leaving))

    def run(self) -> Front:
        states: dict[_State, Front] = {}
        if (state := self.first()) is not None:
            states[state] = ((0, 0),)
        for _ in self.reads:
            costs: dict[_State, set[tuple[int, int]]] = {}
            for state, front in states.items():
                for number, before in enumerate(self.before):
                    if not state.done >> number & 1 and not before & ~state.done:
                        for behind, out, back, _ in self.after(state, number):
                            costs.setdefault(behind, set()).update((cost[0] + out, cost[1] + back) for cost in front)
            states = {state: _front(some) for state, some in costs.items()}
        return _front(cost for front in states.values() for cost in front)

    def read_behind(self, done: int) -> int:
        """What operations read that are not done."""
        some = 0
        for number, reads in enumerate(self.reads):
            some |= 0 if done >> number & 1 else reads
        return some

    def after(self, state: _State, number: int) -> Iterator[tuple[_State, int, int, int]]:
        """The states behind an operation, with the bytes that are copied out and in for it, and what leaves before."""
        reads, writes = self.reads[number], self.writes[number]
        missing = reads & ~state.present
        if missing & ~state.copied:
            return
        done = state.done | 1 << number
        read = self.read_behind(done)
        for gone in self.evictions(state.present & ~(reads | writes), reads | writes, self.extra[number]):
            left = (state.present & ~gone) | reads | writes
            leaving = gone & ~state.copied
            leaving |= left & self.saved & ~read & ~state.copied  # nobody needs it here
            copied = state.copied | leaving
            present = left & (read | (self.wanted & ~(self.saved & copied)))
            behind = _State(done, present, copied & (read | self.wanted))
            yield behind, self.bytes(leaving), self.bytes(missing), gone

    def evictions(self, idle: int, busy: int, extra: Amounts) -> Iterator[int]:
        """The sets of idle tensors without which there is room, none larger than it has to be."""

        def extended(gone: int, numbers: list[int]) -> Iterator[int]:
            if self.fits(busy | idle & ~gone, extra):
                if not any(self.fits(busy | idle & ~gone | 1 << number, extra) for number in _members(gone)):
                    yield gone
                return
            for at, number in enumerate(numbers):
                yield from extended(gone | 1 << number, numbers[at + 1 :])

        return extended(0, list(_members(idle)))


def _members(some: int) -> Iterator[int]:
    while some:
        lowest = some & -some
        yield lowest.bit_length() - 1
        some ^= lowest


def _front(costs: Iterable[tuple[int, int]]) -> Front:
    best: list[tuple[int, int]] = []
    for cost in sorted(costs):
        if not best or cost[1] < best[-1][1]:
            best.append(cost)
    return tuple(best)


# ------------------------------------------------------------------------------------------------- lifetimes


def optimum(lives: Lifetimes, cap: int) -> Front:
    """The least bytes that a step copies out and in within a cap, its steps in their order, whichever state lies in the
    large memory between steps; () where the cap cannot be met."""
    pairs = lives.state
    costs: set[tuple[int, int]] = set()
    for number in range(1 << len(pairs)):
        home = [pair for at, pair in enumerate(pairs) if number >> at & 1]
        costs.update(least_copies(_problem(lives, home), (cap,)))
    return _front(costs)


def least_residency(lives: Lifetimes, cap: int) -> Residency:
    """The residency that copies the least bytes, out and in together, whichever state lies in the large memory between
    steps: what `optimum` counts. For programs of a dozen steps.

    Raises:
        TooSmallError: a step alone needs more than the cap.
    """
    pairs = lives.state
    best: tuple[int, tuple[int, ...], _Search, list[tuple[int, int]]] | None = None
    for number in range(1 << len(pairs)):
        home = [pair for at, pair in enumerate(pairs) if number >> at & 1]
        search = _Search(_problem(lives, home, named=True), (cap,))
        found = search.cheapest()
        if found is not None and (best is None or found[0] < best[0]):
            best = (*found, search, home)
    if best is None:
        needed, worst = floor(lives)
        raise TooSmallError(worst, needed)
    _, leaving, search, home = best
    end = len(lives.steps)
    apart = frozenset(item for pair in home for item in pair)
    visits: dict[int, list[list[int]]] = {}
    for number, storage in enumerate(lives.storages):
        bit = search.bit[str(number)]
        gone = [step for step, some in enumerate(leaving) if some & bit]
        old = storage.born == -1 and number in apart
        touched = [step for step in storage.touched if step >= 0 or not old]
        if storage.lasts and number not in apart and gone and gone[-1] > touched[-1] and touched[-1] < end:
            touched.append(end)  # it comes back for whoever reads it behind the step
        groups: list[list[int]] = []
        for step in touched:
            if groups and not any(groups[-1][-1] < at <= step for at in gone):
                groups[-1].append(step)
            else:
                groups.append([step])
        if len(groups) > 1:
            visits[number] = groups
    return in_visits(lives, visits, lambda step: step, apart)


def _problem(lives: Lifetimes, home: list[tuple[int, int]], named: bool = False) -> Problem:
    """The steps where this state lies in the large memory between applications.

    named: what a program is given and gives back unchanged has one name there, and so does not leave between; to have
    its home in the large memory costs no more.
    """
    end = len(lives.steps)
    old = {pair[0] for pair in home}
    new = {pair[1] for pair in home if pair[0] != pair[1]}
    reads: list[set[str]] = [set() for _ in range(end + 1)]
    writes: list[set[str]] = [set() for _ in range(end + 1)]
    extra = np.asarray(lives.extra, np.int64).copy()
    for number, item in enumerate(lives.storages):
        stays = named and item.born == -1 and item.lasts and number not in old | new
        leaves = item.movable and not stays
        touched = item.touched if leaves else range(item.born, (end if item.lasts else item.last) + 1)
        if not leaves:  # it takes of the room, and is no choice
            extra[list(touched)[1:] if item.born < 0 else list(touched)] += item.bytes
            continue
        for step in touched:
            if step >= 0:
                (writes if step == item.born else reads)[step].add(str(number))
        if item.lasts and number not in old | new:
            reads[end].add(str(number))
    given = {str(number) for number, item in enumerate(lives.storages) if item.born == -1} - set(map(str, old))
    return Problem(
        tuple(
            Operation(frozenset(read), frozenset(made), (int(own),))
            for read, made, own in zip(reads, writes, extra, strict=True)
        ),
        {str(number): item.bytes for number, item in enumerate(lives.storages)},
        given=frozenset(given),
        stored=frozenset(map(str, old)),
        saved=frozenset(map(str, new)),
        ordered=True,
    )
