"""When each storage is on the device: SwapAdvisor's swap planner (§4.3.2) on exact bytes.

Steps are taken in their order. What a step touches has to be on the device; where there is no room, the storage leaves
that is needed again last (Belady 1966), among those that were not touched within the last `recent` seconds, so that
there is time to copy it. A storage that has a copy in the large memory already leaves without copying.

A step is applied again and again, so what it finds in memory has to be what it leaves there. The plan is made in rounds
(the paper makes two): at first no state is taken to lie on the device, and what is there at the end lies there from
then on; in the next rounds, state that has to leave before it is used lies in the large memory, until nothing changes.
State that leaves between its first use and its replacement need not lie there: it comes back in time.

Then every copy into the device begins as early as there is room, in the order of need; copies out begin right after the
last use (`girih.program.moves.moves` writes both into the program).

Cost: O(touches · log touches) for each round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes
from girih.program.life.touches import Flags, Touches
from girih.program.moves.residency import FIRST, LAST, LASTS, START, STORAGE, Residency, TooSmallError, floor_of
from girih.program.table import Integers
from girih.search.memory.residency_kernels import planned, prefetched

FEW = 16  # pairs of state, of which each is tried in both places


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
    return held(lives.touches, cap, np.asarray(seconds, np.float64), recent, rates, lru)


def held(
    touches: Touches,
    cap: int,
    seconds: NDArray[np.float64],
    recent: float = 0.0,
    rates: tuple[float, float] = (np.inf, np.inf),
    lru: bool = False,
    room: int | None = None,
) -> Residency:
    """`belady` on arrays. room: bytes for which it is planned what leaves, if every step has room in them; what the cap
    has beside is for what is being copied. Default: the cap."""
    needed, worst = floor_of(touches)
    if needed > cap:
        raise TooSmallError(worst, needed)
    room = cap if room is None else min(max(room, needed), cap)
    clock = np.concatenate([[0.0], np.cumsum(seconds)])
    new_of = touches.new
    pairs = np.flatnonzero(new_of >= 0)  # old state

    def run(home: Flags, forever: bool = False) -> tuple[Integers, Flags]:
        stays, driven, step, least = planned(touches, room, clock, recent, lru, home, forever)
        if least:
            raise TooSmallError(step, least)
        return stays, driven

    def both(old: Integers) -> Flags:
        """For each storage: is it old state of these, or what replaces it?"""
        chosen = np.zeros(len(touches.bytes), np.bool_)
        chosen[old] = chosen[new_of[old]] = True
        return chosen

    first, _ = run(both(pairs), forever=True)
    remaining = np.zeros(len(touches.bytes), np.bool_)
    remaining[first[first[:, LASTS] > 0, STORAGE]] = True
    home = both(pairs[~remaining[new_of[pairs]]])
    while True:
        stays, driven = run(home)
        more = both(pairs[driven[pairs] | driven[new_of[pairs]]])
        if not (more & ~home).any():
            break
        home = home | more
    best = _early(touches, stays, home, cap, clock, rates)
    if lru or len(pairs) > FEW:
        return best
    # The first round may have found too much state without a place: is there one where less has to leave?
    for pair in sorted(pairs.tolist(), key=lambda old: (-int(touches.bytes[old]), old)):
        fewer = best.at_home(len(home)) & ~both(np.asarray([pair]))
        if pair in best.home:
            try:
                stays, driven = run(fewer)
            except TooSmallError:
                continue
            if not (driven & ~fewer).any():
                other = _early(touches, stays, fewer, cap, clock, rates)
                best = min(best, other, key=lambda item: sum(item.copied_bytes(touches)))
    return best


def timed(
    touches: Touches, residency: Residency, cap: int, clock: NDArray[np.float64], rates: tuple[float, float]
) -> Residency:
    """The same with copies in that begin when they have to by another clock, as one that was simulated, in which the
    device waits for copies. clock: seconds before each step, and of all. Where the device waits much, copies in would
    else begin too early, and take the memory that results need."""
    assert residency.planned is not None, "copies in begin as they do: expected a residency of `held`"
    return _early(touches, residency.planned, residency.at_home(len(touches.bytes)), cap, clock, rates)


def _early(
    touches: Touches,
    stays: Integers,
    home: Flags,
    cap: int,
    clock: NDArray[np.float64],
    rates: tuple[float, float],
) -> Residency:
    first, last = stays[:, FIRST], stays[:, LAST]
    orders = np.lexsort((last, first)), np.argsort(last, kind="stable"), np.argsort(-first, kind="stable")
    result = prefetched(touches, stays, *orders, cap, home, clock, *rates)
    rows = result[np.lexsort((result[:, STORAGE], result[:, FIRST], result[:, START]))]
    return Residency(rows, frozenset(np.flatnonzero(home).tolist()), stays)
