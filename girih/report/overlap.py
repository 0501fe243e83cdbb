"""How much of a step's receiving is hidden behind computing, in words; where there is nothing to hide, that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from girih.machine.units import format_seconds
from girih.program import StartStep
from girih.simulate.timeline import COMPUTE, Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Plan

NEGLIGIBLE = 1e-3
"""Share of a step's seconds."""


def overlap_words(plan: Plan, timeline: Timeline) -> str:
    """A sentence without a full stop. Of a run, whose messages are not followed, what the program starts early."""
    if plan.machine.devices == 1:
        return "one device: nothing is exchanged, so there is nothing to overlap"
    if not plan.bytes_received.any():
        return "no device receives anything from another: there is nothing to overlap"
    if timeline.measured:
        early = sum(isinstance(step, StartStep) for step in plan.program.steps)
        if not early:
            return "nothing overlaps: no exchange starts before its result is needed"
        return f"{early} of {len(plan.program.transfers)} transfers start early, beside computing"
    whole, hidden = receiving_seconds(timeline)
    if whole < NEGLIGIBLE * timeline.seconds:
        return f"receiving takes less than {NEGLIGIBLE:.1%} of the step: there is next to nothing to overlap"
    if hidden <= 0:
        return f"nothing overlaps: no device computes while it receives ({format_seconds(whole)} of all devices)"
    share = hidden / whole
    part = "less than 1%" if share < 0.01 else f"{share:.0%}"
    return (
        f"{part} of the {format_seconds(whole)} in which devices receive, all together, overlaps with their computing"
    )


def receiving_seconds(timeline: Timeline) -> tuple[float, float]:
    """Seconds in which devices receive over some axis, all devices together; and of these, while they compute."""
    whole = hidden = 0.0
    order = np.lexsort((timeline.begin, timeline.device))
    cuts = np.searchsorted(timeline.device[order], np.arange(timeline.devices + 1))
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        mine = order[low:high]
        own = timeline.stream[mine] == COMPUTE
        begin, end = timeline.begin[mine], timeline.end[mine]
        received, computed = _merged(begin[~own], end[~own]), _merged(begin[own], end[own])
        whole += float((received[1] - received[0]).sum())
        hidden += float((_before(computed, received[1]) - _before(computed, received[0])).sum())
    return whole, hidden


Spans = tuple[NDArray[np.float64], NDArray[np.float64]]


def _merged(begin: NDArray[np.float64], end: NDArray[np.float64]) -> Spans:
    """The union of spans that are in order of their begin, as disjoint spans."""
    if not len(begin):
        return begin, end
    last = np.maximum.accumulate(end)
    first = np.concatenate(([True], begin[1:] > last[:-1]))
    return begin[first], last[np.concatenate((first[1:], [True]))]


def _before(spans: Spans, moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of disjoint spans before each of some moments."""
    begin, end = spans
    if not len(begin):
        return np.zeros(len(moments))
    total = np.concatenate(([0.0], np.cumsum(end - begin)))
    begun = np.searchsorted(begin, moments, side="right")
    last = np.maximum(begun - 1, 0)
    return np.where(begun > 0, total[last] + np.minimum(moments, end[last]) - begin[last], 0.0)
