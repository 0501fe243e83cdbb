"""When each storage is on the device: SwapAdvisor's swap planner (§4.3.2) on exact bytes.

Steps are taken in their order. What a step touches has to be on the device; where there is no room, the storage leaves
that is needed again last (Belady 1966), among those that were not touched within the last `recent` seconds, so that
there is time to copy it. A storage that has a copy in the large memory already leaves without copying.

A step is applied again and again, so what it finds in memory has to be what it leaves there. The plan is made in rounds
(the paper makes two): at first no state is taken to lie on the device, and what is there at the end lies there from
then on; in the next rounds, state that has to leave before it is used lies in the large memory, until nothing changes.
State that leaves between its first use and its replacement need not lie there: it comes back in time.

Then every copy into the device begins as early as there is room, in the order of need; copies out begin right after the
last use (`girih.memory.moves` writes both into the program).

Cost: O(touches · log touches) for each round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from girih.memory.lifetimes import Lifetimes

FEW = 16  # pairs of state, of which each is tried in both places


@dataclass(frozen=True)
class Stay:
    """A storage on the device, from before step `start` (its first use there is step `first`) to behind step `last`.

    start < first where a copy in runs beside computation. fresh: a step makes it, or the program begins with it; else
    it is copied in. copied: it is copied out behind its last use. lasts: it is there at the end.
    """

    storage: int
    start: int
    first: int
    last: int
    fresh: bool
    copied: bool = False
    lasts: bool = False


@dataclass(frozen=True)
class Residency:
    """stays: of all storages, in the order of their starts. home: storages of state that lie in the large memory
    between applications, old and new. Storages are numbered as `girih.memory.lifetimes` does."""

    stays: tuple[Stay, ...]
    home: frozenset[int]

    def copied_bytes(self, lives: Lifetimes) -> tuple[int, int]:
        """Bytes that go out, and that come in, in one application."""
        sizes = [storage.bytes for storage in lives.storages]
        out = sum(sizes[stay.storage] for stay in self.stays if stay.copied)
        return out, sum(sizes[stay.storage] for stay in self.stays if not stay.fresh)

    def used(self, lives: Lifetimes) -> NDArray[np.int64]:
        """Bytes on the device in each step: [steps + 1]."""
        change = np.zeros(len(lives.steps) + 2, np.int64)
        for stay in self.stays:
            size = lives.storages[stay.storage].bytes
            change[max(stay.start, 0)] += size
            change[(len(lives.steps) if stay.lasts else stay.last) + 1] -= size
        used: NDArray[np.int64] = np.cumsum(change)[:-1] + lives.extra
        return used


class TooSmallError(ValueError):
    """A step alone needs more than the cap: its position, and the bytes of what it touches and holds."""

    def __init__(self, step: int, needed: int) -> None:
        super().__init__(f"step {step} needs {needed} bytes")
        self.step = step
        self.needed = needed


def alone(lives: Lifetimes) -> NDArray[np.int64]:
    """Bytes that each step needs by itself, whatever is moved: [steps + 1]."""
    needed = lives.extra.copy()
    state = {number for pair in lives.state for number in pair}
    for number, storage in enumerate(lives.storages):
        touched = np.asarray([step for step in storage.touched if step >= 0], np.int64)
        if not storage.movable:
            touched = np.arange(max(storage.born, 0), len(needed) if storage.lasts else storage.last + 1)
        elif storage.lasts and number not in state:
            touched = np.append(touched, len(lives.steps))
        needed[touched] += storage.bytes
    return needed


def floor(lives: Lifetimes) -> tuple[int, int]:
    """(bytes, step) of the step that needs most by itself: whatever is moved, no peak is smaller. Step -1: what the
    program is given, the batch, with which it begins."""
    needed = alone(lives)
    state = {number for pair in lives.state for number in pair}
    given = sum(item.bytes for number, item in enumerate(lives.storages) if item.born == -1 and number not in state)
    worst = int(needed.argmax())
    return (given, -1) if given > needed[worst] else (int(needed[worst]), worst)


def belady(
    lives: Lifetimes,
    cap: int,
    seconds: Sequence[float] | NDArray[np.float64],
    recent: float = 0.0,
    rates: tuple[float, float] = (np.inf, np.inf),
    lru: bool = False,
) -> Residency:
    """The residency of the published planner.

    seconds: of each step. rates: bytes/s of copies out, and in. lru: what was touched longest ago leaves first, as a
    system does that does not know what comes (ODSwap, thesis §5.1).

    Raises:
        TooSmallError: a step alone needs more.
    """
    needed, worst = floor(lives)
    if needed > cap:
        raise TooSmallError(worst, needed)
    planner = _Planner(lives, cap, seconds, recent, lru)
    home = frozenset(number for pair in planner.pairs for number in pair)
    first = planner.run(home, forever=True)
    remaining = {stay.storage for stay in first if stay.lasts}
    home = frozenset(number for pair in planner.pairs if pair[1] not in remaining for number in pair)
    while True:
        stays = planner.run(home)
        driven = {number for pair in planner.pairs if planner.driven.intersection(pair) for number in pair}
        if driven <= home:
            break
        home |= driven
    best = Residency(_prefetched(lives, stays, cap, home, planner.clock, rates), home)
    if lru or len(planner.pairs) > FEW:
        return best
    # The first round may have found too much state without a place: is there one where less has to leave?
    for pair in sorted(planner.pairs, key=lambda pair: -lives.storages[pair[0]].bytes):
        fewer = best.home - set(pair)
        if fewer != best.home:
            with suppress(TooSmallError):
                stays = planner.run(fewer)
                if fewer.issuperset(planner.driven):
                    other = Residency(_prefetched(lives, stays, cap, fewer, planner.clock, rates), fewer)
                    best = min(best, other, key=lambda residency: sum(residency.copied_bytes(lives)))
    return best


def in_visits(
    lives: Lifetimes,
    visits: Mapping[int, Sequence[Sequence[int]]],
    begins: Callable[[int], int],
    home: frozenset[int] = frozenset(),
) -> Residency:
    """The residency in which storages leave between their visits, which are given, and all others stay.

    visits: by storage, the steps that touch it (-1: the beginning), in groups; it leaves behind each but the last.
    begins: the step before which a copy in begins for the sake of a step, or as soon as the storage has left. home:
    state in the large memory between applications, of which the old one begins there. Cost: linear in the touches.
    """
    stays: list[Stay] = []
    for number, storage in enumerate(lives.storages):
        old = number in home and storage.born == -1
        touched = [at for at in storage.touched if at >= 0 or not old]
        groups = visits.get(number) or ([touched] if touched else [])
        mine = [Stay(number, at[0], at[0], at[-1], fresh=rank == 0 and not old) for rank, at in enumerate(groups)]
        for rank, stay in enumerate(mine):
            if not stay.fresh:
                start = max(begins(stay.first), mine[rank - 1].last + 1 if rank else 0)
                mine[rank] = replace(stay, start=min(start, stay.first))
        if mine and not old:  # there is one copy from its first leaving on
            mine[0] = replace(mine[0], copied=len(mine) > 1 or number in home)
        if mine and storage.lasts and number not in home:
            mine[-1] = replace(mine[-1], lasts=True)
        stays += mine
    return Residency(tuple(sorted(stays, key=lambda stay: (stay.start, stay.first, stay.storage))), home)


class _Planner:
    """Takes the steps in their order. pairs: movable storages of (old, new) state.

    driven: state that lies on the device between applications, and had to leave it in the last run.
    """

    def __init__(
        self, lives: Lifetimes, cap: int, seconds: Sequence[float] | NDArray[np.float64], recent: float, lru: bool
    ) -> None:
        self.lives = lives
        self.lru = lru
        self.cap = cap
        self.recent = recent
        self.clock = np.concatenate([[0.0], np.cumsum(np.asarray(seconds, np.float64))])
        self.pairs = lives.state
        self.next_of = {new: lives.storages[old].touched for old, new in self.pairs}  # what of a next application
        self.partner = {number: pair for pair in self.pairs for number in pair}
        self.end = len(lives.steps)
        self.touching: list[list[int]] = [[] for _ in range(self.end + 1)]
        for number, storage in enumerate(lives.storages):
            for step in storage.touched:
                if step >= 0:
                    self.touching[step].append(number)

    def run(self, home: frozenset[int], forever: bool = False) -> tuple[Stay, ...]:
        """The stays where this state lies in the large memory between applications. forever: new state may stay on
        the device at the end nevertheless, to see what would."""
        storages = self.lives.storages
        old, new = {pair[0] for pair in self.pairs}, {pair[1] for pair in self.pairs}
        self.driven: set[int] = set()
        self.stays: list[Stay] = []
        self.present: dict[int, Stay] = {}
        self.queue: list[tuple[int, int, int]] = []  # (rank, storage, when it was touched)
        self.copied = set(home & old)  # which have a copy in the large memory
        self.bytes = 0
        leaving = home & new if not forever else set()
        stay_at_end = {number for number, item in enumerate(storages) if item.lasts} - leaving - (home & (old - new))
        for number, item in enumerate(storages):
            if item.born == -1 and number not in self.copied:
                self.enter(number, -1)
        self.make_room(0, -1, {number for number in self.present if number not in self.partner}, home)
        for step, touched in enumerate(self.touching):
            if step == self.end:
                touched = sorted(stay_at_end - (new if forever else set()) - (self.present.keys() & new))
            coming = [number for number in touched if number not in self.present]
            needed = sum(storages[number].bytes for number in coming) + int(self.lives.extra[step])
            self.make_room(needed, step, set(touched), home)
            for number in coming:
                self.enter(number, step)
            for number in touched:
                self.present[number] = replace(self.present[number], last=step)
                self.wait(number, step)
            for number in touched:
                if step == storages[number].last and number not in stay_at_end:
                    self.leave(number, keep=number in leaving)
        for number in list(self.present):
            self.stays.append(replace(self.present.pop(number), lasts=True))
        return tuple(sorted(self.stays, key=lambda stay: (stay.start, stay.storage)))

    def enter(self, number: int, step: int) -> None:
        born = self.lives.storages[number].born
        self.present[number] = Stay(number, step, step, step, fresh=born == step)
        self.wait(number, step)
        self.bytes += self.lives.storages[number].bytes

    def leave(self, number: int, keep: bool) -> None:
        """Off the device. keep: it is needed again, so that there must be a copy."""
        stay = self.present.pop(number)
        self.bytes -= self.lives.storages[number].bytes
        self.stays.append(replace(stay, copied=keep and number not in self.copied))
        if keep:
            self.copied.add(number)

    def make_room(self, needed: int, step: int, touched: set[int], home: frozenset[int]) -> None:
        """Let storages leave until there is room: what is needed again last, of what was not touched lately."""
        storages = self.lives.storages
        kept: list[tuple[int, int, int]] = []  # what cannot leave now
        late: list[tuple[int, int, int]] = []  # what was touched lately
        leaving: dict[int, tuple[int, int, int]] = {}
        missing = self.bytes + needed - self.cap
        while missing > 0 and (self.queue or late):
            item = heappop(self.queue) if self.queue else late.pop(0)
            _, number, last = item
            stay = self.present.get(number)
            if stay is None or stay.last != last or number in leaving:
                continue
            if number in touched or not storages[number].movable:
                kept.append(item)
            elif self.queue and self.clock[max(step, 0)] - self.clock[last + 1] < self.recent:
                late.append(item)
            else:
                leaving[number] = item
                missing -= storages[number].bytes
        for number, item in reversed(leaving.items()):  # without some of them the others leave enough
            if missing + storages[number].bytes <= 0:
                missing += storages[number].bytes
                kept.append(item)
                continue
            if number not in home and self.between(number):
                self.driven.add(number)
            self.leave(number, keep=True)
        for item in (*kept, *late):
            heappush(self.queue, item)
        if self.bytes + needed > self.cap:
            raise TooSmallError(step, self.bytes + needed)

    def wait(self, number: int, step: int) -> None:
        """Behind a step that touches it, a storage may leave until its next use."""
        key = step if self.lru else -self.next_use(number, step + 1)
        heappush(self.queue, (key, number, step))

    def between(self, number: int) -> bool:
        """Would state that leaves now be in the large memory between applications? Old state that was used and is used
        again is not: it comes back before it is replaced. What nothing replaces has to come back under its own name."""
        old, new = self.partner.get(number, (-1, -1))
        if old == new:
            return number == old
        return self.present[number].last == (-1 if number == old else self.lives.storages[number].last)

    def next_use(self, number: int, step: int) -> int:
        """The position of the step that touches a storage next; of new state, in the next application."""
        touched = self.lives.storages[number].touched
        at = bisect_left(touched, step)
        if at < len(touched):
            return touched[at]
        again = self.next_of.get(number)
        if again is not None:
            return self.end + next((use for use in again if use >= 0), self.end)
        return self.end


def _prefetched(
    lives: Lifetimes,
    stays: tuple[Stay, ...],
    cap: int,
    home: frozenset[int],
    clock: NDArray[np.float64],
    rates: tuple[float, float],
) -> tuple[Stay, ...]:
    """The stays with copies into the device as early as there is room, those first that are needed first.

    What is copied out takes room until it has left. Where that is too long for a copy in to arrive in time, it begins
    when it must, and takes over what copies out leave. clock: seconds before each step.
    """
    used = Residency(stays, frozenset()).used(lives)
    sizes = [storage.bytes for storage in lives.storages]
    gone = _gone(stays, sizes, clock, rates[0])
    latest = _latest(stays, sizes, clock, rates[1])
    busy = used.copy()  # with what has not left yet
    for stay, until in gone.items():
        busy[stay.last + 1 : until] += sizes[stay.storage]
    chosen: dict[int, list[Stay]] = {}  # by storage
    for stay in sorted(stays, key=lambda stay: (stay.first, stay.last)):
        mine, size = chosen.setdefault(stay.storage, []), sizes[stay.storage]
        if not stay.fresh:
            end, earliest = stay.first, mine[-1].last + 1 if mine else 0
            if mine and not (used[earliest:end] + size > cap).any():  # there is room for it to stay
                start, before = earliest, mine.pop()
                busy[start : gone.pop(before, start)] -= size
                until = gone.pop(stay, 0)
                stay = replace(stay, start=before.start, first=before.first, fresh=before.fresh)
                stay = replace(stay, copied=stay.copied or before.copied)
                gone[stay] = until
            else:
                safe, room = (_behind_full(amount[:end], size, cap) for amount in (busy, used))
                start = max(room, min(safe, latest[stay]), earliest)
                stay = replace(stay, start=start)
            used[start:end] += size
            busy[start:end] += size
        mine.append(stay)
    for number, mine in chosen.items():
        if mine[-1].copied and number not in home:
            mine[-1] = replace(mine[-1], copied=False)  # it does not come back
    every = (stay for mine in chosen.values() for stay in mine)
    return tuple(sorted(every, key=lambda stay: (stay.start, stay.first, stay.storage)))


def _behind_full(amount: NDArray[np.int64], size: int, cap: int) -> int:
    """The step from which on there is room for this size."""
    full = np.flatnonzero(amount + size > cap)
    return int(full[-1]) + 1 if len(full) else 0


def _gone(stays: tuple[Stay, ...], sizes: list[int], clock: NDArray[np.float64], rate: float) -> dict[Stay, int]:
    """By stay that is copied out, the step before which it has left: copies follow each other."""
    gone: dict[Stay, int] = {}
    end = 0.0
    for stay in sorted((stay for stay in stays if stay.copied), key=lambda stay: stay.last):
        end = max(end, clock[stay.last + 1]) + sizes[stay.storage] / rate
        gone[stay] = int(np.searchsorted(clock, end))
    return gone


def _latest(stays: tuple[Stay, ...], sizes: list[int], clock: NDArray[np.float64], rate: float) -> dict[Stay, int]:
    """By stay that is copied in, the step before which that must begin, so that it and all later ones come in time."""
    latest: dict[Stay, int] = {}
    begin = np.inf
    for stay in sorted((stay for stay in stays if not stay.fresh), key=lambda stay: -stay.first):
        begin = min(begin, clock[stay.first]) - sizes[stay.storage] / rate
        latest[stay] = max(int(np.searchsorted(clock, begin, "right")) - 1, 0)
    return latest
