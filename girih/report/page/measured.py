"""Predicted beside measured: totals, by kind of work, and the steps that differ most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from girih.program import ComputeStep, StartStep, Step, TransferStep
from girih.report.kinds import kind_of
from girih.simulate.timeline import COMPUTE, Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Plan

MOST_STEPS = 12


def measured_data(plan: Plan, predicted: Timeline, measured: Timeline, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Seconds, (predicted, measured) each.

    totals: of the step, of the device that computes longest, and of that which receives longest: what is measured of a
    transfer begins with the wait for it, and is told of one axis where several carry it. kinds: mean over devices, by
    kind of operator and by collective. steps: [position of the step, predicted, measured], mean over devices, largest
    difference first.

    kinds (argument): the collective of each transfer of the program.
    """
    collective = {step.target: kind for step, kind in zip(plan.program.transfers, kinds, strict=True)}

    def label(step: Step) -> str:
        if isinstance(step, ComputeStep):
            return kind_of(plan.graph, plan.graph.nodes[step.node])
        if isinstance(step, TransferStep):
            return collective[step.target]
        return collective[step.transfer.target] if isinstance(step, StartStep) else "other"

    one, other = _by_step(plan, predicted), _by_step(plan, measured)
    order = np.argsort(-np.abs(one - other), kind="stable")[:MOST_STEPS]
    return {
        "totals": _totals(predicted, measured),
        "kinds": _by_label(plan, one, other, label),
        "steps": [[int(at), float(one[at]), float(other[at])] for at in order if one[at] or other[at]],
    }


def _by_step(plan: Plan, timeline: Timeline) -> NDArray[np.float64]:
    """[steps]: seconds of a step, mean over devices, all streams together."""
    seconds = timeline.end - timeline.begin
    total = np.bincount(timeline.step, seconds, minlength=len(plan.program.steps))
    mean: NDArray[np.float64] = total / max(timeline.devices, 1)
    return mean


def _totals(predicted: Timeline, measured: Timeline) -> list[list[Any]]:
    rows: list[list[Any]] = [["whole step", predicted.seconds, measured.seconds]]
    received = "receiving, latency aside; measured: and waiting for it"
    for name, of in (("computing", Timeline.busy), (received, _receiving)):
        rows.append([name, float(of(predicted).max()), float(of(measured).max())])
    return rows


def _receiving(timeline: Timeline) -> NDArray[np.float64]:
    """Seconds by device, over all axes."""
    links = range(COMPUTE + 1, len(timeline.streams))
    return np.sum([timeline.busy(stream) for stream in links], axis=0) if links else np.zeros(timeline.devices)


def _by_label(
    plan: Plan, one: NDArray[np.float64], other: NDArray[np.float64], label: Callable[[Step], str]
) -> list[list[Any]]:
    rows: dict[str, list[float]] = {}
    for position in np.flatnonzero((one > 0) | (other > 0)).tolist():
        row = rows.setdefault(label(plan.program.steps[position]), [0.0, 0.0])
        row[0] += float(one[position])
        row[1] += float(other[position])
    return [[name, *row] for name, row in sorted(rows.items(), key=lambda item: -max(item[1]))]
