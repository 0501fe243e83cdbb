"""Cuts of a line of vertices into contiguous pieces, by running sums of what vertices cost.

Two ways: the published one, which halves the pieces and finds each cut by binary search (ROC, Jia et al. 2020, §4.4.2;
O(pieces · log vertices)), and the one whose largest piece is the least that any cut into contiguous pieces has.

The latter is Nicol's parametric search (Nicol 1994; Pınar and Aykanat 2004, §4): whether a largest piece of cost B can
be kept is answered by filling each piece as far as it goes, which is right as no vertex costs less than nothing. The
first piece of the answer either ends where B is just kept by all that follows, or one vertex before; so the answer is
one of at most `pieces` ranges, and no rounding is involved: what is returned is the cost of a range, to the bit.
O(pieces² · log² vertices) at most; the mean and the largest vertex bound the answer, which leaves few ends to be tried.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside

Running = NDArray[np.float64]


def recursive_cut(running: Running, pieces: int) -> tuple[int, ...]:
    """The published cuts, pieces + 1 of them: where the running cost comes nearest to half of the pieces' share, then
    each side in the same way."""
    cuts = [0] * (pieces + 1)
    cuts[-1] = len(running) - 1

    def halve(first: int, last: int) -> None:
        if last - first < 2:
            return
        middle = (first + last) // 2
        start, stop = cuts[first], cuts[last]
        share = running[start] + (running[stop] - running[start]) * (middle - first) / (last - first)
        cuts[middle] = _nearest(running, start, stop, float(share))
        halve(first, middle)
        halve(middle, last)

    halve(0, pieces)
    return tuple(cuts)


def best_cut(running: Running, pieces: int) -> tuple[int, ...]:
    """The cuts whose largest piece is the least; among those that come as near to equal shares as that allows. No piece
    is empty where there are vertices for all.

    running: the cost of the vertices before each vertex, ascending: (vertices + 1,).
    """
    end = len(running) - 1
    most = float(_least_largest(running, pieces, np.diff(running).max(initial=0.0)))
    # Cut p lies between where pieces that are filled from the right begin, and where those from the left end.
    earliest = [end] * (pieces + 1)
    for number in range(pieces - 1, -1, -1):
        earliest[number] = int(_first(running, earliest[number + 1], most))
    cuts = [0]
    for number in range(1, pieces):
        start, left = cuts[-1], pieces - number
        high = max(min(int(_last(running, start, most)), end - left), start)
        low = min(max(start + 1, earliest[number]), high) if high > earliest[number] else earliest[number]
        share = running[start] + (running[end] - running[start]) / (left + 1)
        cuts.append(_nearest(running, low, max(low, high), float(share)))
    return (*cuts, end)


def lower_bound(running: Running, pieces: int) -> float:
    """What the largest piece costs at least however vertices are dealt, contiguous or not: the mean piece, or the
    largest vertex."""
    if len(running) == 1:
        return 0.0
    return float(max(running[-1] / pieces, np.diff(running).max()))


def _nearest(running: Running, low: int, high: int, share: float) -> int:
    """The position from low to high at which the running cost is nearest to a share; the last of equal ones."""
    after = int(np.clip(np.searchsorted(running[low : high + 1], share, "right") + low, low, high))
    before = max(low, after - 1)
    return before if share - running[before] < running[after] - share else after


@inside()
def _last(running, start, most):  # type: ignore[no-untyped-def]
    """The end of the longest range from start that costs at most so much."""
    end = len(running) - 1
    stop = min(max(np.searchsorted(running, running[start] + most, "right") - 1, start), end)
    while stop > start and running[stop] - running[start] > most:  # the sum above is rounded, differences decide
        stop -= 1
    while stop < end and running[stop + 1] - running[start] <= most:
        stop += 1
    return stop


@inside()
def _first(running, stop, most):  # type: ignore[no-untyped-def]
    """The start of the longest range to stop that costs at most so much."""
    start = min(np.searchsorted(running, running[stop] - most, "left"), stop)
    while start < stop and running[stop] - running[start] > most:
        start += 1
    while start > 0 and running[stop] - running[start - 1] <= most:
        start -= 1
    return start


@inside()
def _fits(running, start, pieces, most):  # type: ignore[no-untyped-def]
    """Can all behind start be cut into so many pieces of at most so much?"""
    end = len(running) - 1
    for _ in range(pieces):
        if start == end:
            break
        start = _last(running, start, most)
    return start == end


@compiled(lambda running, pieces, largest: float(pieces * pieces * 16))
def _least_largest(running, pieces, largest):  # type: ignore[no-untyped-def]
    """The cost of the largest piece of the best cut; largest: of a vertex. Before piece p begins at `start`, it is
    known that the answer is `best`, or that the first p pieces cost less and end at `start`."""
    end = len(running) - 1
    best = running[end]
    start = 0
    for piece in range(1, pieces):
        left = pieces - piece + 1
        # The least end with which all behind start can be cut into `left` pieces of the cost of [start, end of it).
        floor = max((running[end] - running[start]) / left * (1 - 1e-9), largest)
        low, high = start, _last(running, start, best)
        low = max(low, _last(running, start, floor) - 1)
        while low > start and _fits(running, start, left, running[low] - running[start]):
            low -= 1
        if _fits(running, start, left, running[high] - running[start]):
            while high - low > 1:
                middle = (low + high) // 2
                if _fits(running, start, left, running[middle] - running[start]):
                    high = middle
                else:
                    low = middle
            if low == start and _fits(running, start, left, 0.0):
                high = start
            best = min(best, running[high] - running[start])
            start = max(high - 1, start)
        else:
            start = high
    return min(best, running[end] - running[start])
