"""Places for the requests of one call of a kernel, which did not fit as they came.

A kernel asks for several blocks of scratch one after another, and frees them in another order. Served as they come,
they may leave holes that the next does not fit into, though together they are never more than was planned. As they come
alike in every call, they are packed once: one by one at the lowest free address, in several orders, until all fit. A
result's place may be used before the result is asked for. Cost: the square of the requests, for each order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from girih.program.places.items import ALIGNMENT

TRIES = 300
"""Orders."""
MOST = 64
"""Requests of a call that are packed."""

Span = tuple[int, int]


def owners(requests: np.ndarray, results: Sequence[Span], found: Mapping[int, int]) -> dict[int, int]:
    """By number of a request the place of the result that it was for. found: by place of a result that lay elsewhere,
    where it lay; the others lie at their places. One that was served outside of the region is known by its size, if no
    other request that was kept has it."""
    where = {found.get(at, at): (at, size) for at, size in results}
    kept = [number for number, request in enumerate(requests) if request["end"] < 0]
    known = {}
    for number in kept:
        if requests[number]["start"] < 0:
            continue
        at, size = where.get(int(requests[number]["start"]), (-1, -1))
        if requests[number]["bytes"] == size:
            known[number] = at
    for at, size in results:
        alike = [number for number in kept if number not in known and requests[number]["bytes"] == size]
        if at in found and at not in known.values() and len(alike) == 1 and requests[alike[0]]["start"] < 0:
            known[alike[0]] = at
    return known


def packed(
    requests: np.ndarray, own: Mapping[int, int], runs: Sequence[Span], seed: int = 0
) -> NDArray[np.int64] | None:
    """Places for all requests (`girih.run.arena.arena.REQUEST`) in the runs and where results will lie, those of
    results included, or None if none were found. own: as of `owners`."""
    if len(requests) > MOST:
        return None
    count = len(requests)
    sizes = -(-requests["bytes"] // ALIGNMENT) * ALIGNMENT
    never = 2 * count + 1
    begins, ends = requests["begin"], np.where(requests["end"] < 0, never, requests["end"])
    places = np.full(count, -1, np.int64)
    places[list(own)] = list(own.values())
    free = _joined([*runs, *((at, at + int(sizes[number])) for number, at in own.items())])
    loose = np.flatnonzero(places < 0)
    random = np.random.default_rng(seed)
    orders = [loose[np.argsort(-sizes[loose], kind="stable")], loose]
    for number in range(TRIES):
        order = orders[number] if number < len(orders) else random.permutation(loose)
        tried = places.copy()
        for at in order:
            together = (tried >= 0) & (begins < ends[at]) & (begins[at] < ends)
            taken = sorted((int(tried[other]), int(tried[other] + sizes[other])) for other in np.flatnonzero(together))
            tried[at] = _lowest(int(sizes[at]), taken, free)
            if tried[at] < 0:
                break
        else:
            return tried
    return None


def _lowest(size: int, taken: Sequence[Span], free: Sequence[Span]) -> int:
    for low, high in free:
        at = low
        for first, end in taken:
            if end <= at:
                continue
            if first >= at + size:
                break
            at = end
        if at + size <= high:
            return at
    return -1


def _joined(runs: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for low, high in sorted(runs):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined
