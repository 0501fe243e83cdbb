"""The verdict in sentences: what a plan buys, what bounds it, how far it is from the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from girih.machine.units import format_bytes, format_count, format_gap, format_seconds
from girih.program import ComputeStep
from girih.report.kinds import kind_of
from girih.report.tables import copied_bytes, held_words
from girih.simulate.timeline import COMPUTE, Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Costs, Plan

PACKING = "packing"  # the kind of a device's own work in transfers
NAMES = {
    "single": "one device",
    "data": "data parallelism",
    "sharded": "sharded data parallelism",
    "megatron": "Megatron-LM's division",
}


def name_of(search: str) -> str:
    """A search as people call what it finds."""
    return NAMES.get(search, search)


def sentences(plan: Plan, timeline: Timeline, others: Sequence[Costs]) -> list[str]:
    """The first is the verdict, the others its reasons. others: what else one could do, in simulated seconds."""
    held = [f"It keeps {held_words(plan)}."] if plan.predicted.unlimited is not None else []
    return [headline(plan, timeline, others), *held, bound_sentence(plan, timeline), gap_sentence(plan)]


def headline(plan: Plan, timeline: Timeline, others: Sequence[Costs]) -> str:
    """What the plan buys against the fastest of the others, and against one device."""
    devices, limit = plan.machine.devices, plan.limit
    ordered = _ordered(others)
    fitting = [item for item in ordered if item.peak <= limit]
    text = f"A step takes {format_seconds(timeline.seconds)} on {f'{devices} devices' if devices > 1 else 'one device'}"
    divided = sorted((item for item in fitting if item.name != "single"), key=lambda item: item.seconds)
    if told := [*divided[:1], *(item for item in fitting if item.name == "single")]:
        text += ": " + ", ".join(_speed(timeline.seconds, item) for item in told)
    text += f"; each device needs {format_bytes(plan.peak)}"
    largest = max(fitting, key=lambda item: item.peak, default=None)
    if largest is not None and largest.peak > 1.05 * plan.peak:
        text += f", {_times(largest.peak / plan.peak)} less than {_with(largest)}"
    if len(fitting) < len(ordered):
        large = [item for item in ordered if item.peak > limit]
        needs = " and ".join(f"{format_bytes(item.peak)} {_with(item)}" for item in large)
        text += f", where it would need {needs}: more than the {format_bytes(limit)} that it has"
    return text + "."


def _with(item: Costs) -> str:
    """`under data parallelism`, `alone`: a baseline as seen from a device."""
    return "alone" if item.name == "single" else f"under {name_of(item.name)}"


def _ordered(others: Sequence[Costs]) -> list[Costs]:
    """Data parallelism first, one device last."""
    return sorted(others, key=lambda item: (item.name == "single", item.name != "data"))


def _speed(own: float, other: Costs) -> str:
    name = name_of(other.name)
    if own <= 0 or other.seconds <= 0 or 0.98 < other.seconds / own < 1.02:
        return f"as fast as {name}"
    if other.seconds > own:
        return f"{_times(other.seconds / own)} faster than {name}"
    return f"{_times(own / other.seconds)} slower than {name}"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×" if ratio >= 1.995 else f"{ratio:.2f}×"


def bound_sentence(plan: Plan, timeline: Timeline) -> str:
    """Which resource is busy for the largest share of the step."""
    whole = timeline.seconds
    if whole <= 0:
        return "Nothing in this program takes time."
    shares = [float(timeline.busy(stream).max()) / whole for stream in range(len(timeline.streams))]
    computing = shares[COMPUTE]
    links = max(range(len(shares)), key=lambda stream: shares[stream] if stream != COMPUTE else -1.0)
    if links == COMPUTE or computing >= shares[links]:
        kind, share = _heaviest_kind(plan, timeline)
        if kind == PACKING:
            return (
                f"Exchanges bound it: the busiest device works for {_percent(computing)} of the step, "
                f"{_percent(share)} of that on messages: it packs, copies and combines them."
            )
        text = f"Computing bounds it: the busiest device computes for {_percent(computing)} of the step"
        return text + (f", {_percent(share)} of that in {_plural(kind)}." if kind else ".")
    return (
        f"Transfers over {timeline.streams[links]} bound it: a device receives over it for {_percent(shares[links])} "
        f"of the step, and no device computes for more than {_percent(computing)}."
    )


def _plural(kind: str) -> str:
    return {"data movement": kind, "element-wise": "element-wise work"}.get(kind, f"{kind}s")


def _heaviest_kind(plan: Plan, timeline: Timeline) -> tuple[str, float]:
    """(the kind of operator in which the busiest device spends most of its computing, its share)."""
    device = int(np.argmax(timeline.busy()))
    mine = (timeline.device == device) & (timeline.stream == COMPUTE)
    total: dict[str, float] = {}
    steps = plan.program.steps
    for position, seconds in zip(timeline.step[mine], (timeline.end - timeline.begin)[mine], strict=True):
        step = steps[int(position)]
        kind = kind_of(plan.graph, plan.graph.nodes[step.node]) if isinstance(step, ComputeStep) else PACKING
        total[kind] = total.get(kind, 0.0) + float(seconds)
    if not total or sum(total.values()) <= 0:
        return "", 0.0
    kind = max(total, key=lambda name: total[name])
    return kind, total[kind] / sum(total.values())


def gap_sentence(plan: Plan) -> str:
    """What the certificate proves, in the terms of its objective."""
    what = "moves fewer bytes" if plan.objective == "bytes" else "is predicted to be faster"
    space = plan.certificate.space
    if plan.gap == 0:
        return f"No plan {what}, of all that the search may choose from ({space}): proved."
    if plan.gap == float("inf"):
        return "How far it is from the best plan is not known: this search proves no bound."
    best = "moves" if plan.objective == "bytes" else "takes"
    less = plan.gap / (1 + plan.gap) * 100
    return f"The best plan {best} at most {less:.2f} % less, of all in the search's space ({space})."


def figures(plan: Plan, timeline: Timeline, measured: Timeline | None = None) -> list[tuple[str, str, str]]:
    """(name, number, what to know of it) of each key figure."""
    limit = plan.limit
    share = f"{_percent(plan.peak / limit)} of {format_bytes(limit)}" if limit else ""
    parameters = sum(plan.graph.values[item.name].elements for item in plan.graph.inputs if item.role == "parameter")
    received = int(plan.bytes_received.sum())
    most = int(plan.bytes_received.max(initial=0))
    gap = format_gap(plan.gap).removesuffix(" (proved)")
    ended = {
        "optimal": "at most; the search is complete",
        "time": "at most; the time was up",
        "clock": "at most; stopped by the clock, on a machine that is slow or busy",
    }
    how = "proved" if plan.gap == 0 else ended.get(plan.certificate.stopped, plan.certificate.stopped)
    machine = plan.machine
    step = "measured" if timeline.measured else "predicted"
    if measured is not None:
        step += f"; measured {format_seconds(measured.seconds)}"
    return [
        ("Step", format_seconds(timeline.seconds), step),
        ("Exchanged in a step", format_bytes(received), f"a device receives up to {format_bytes(most)} of others"),
        *_copies(plan),
        ("Peak of a device", format_bytes(plan.peak), share),
        ("Gap", gap, how),
        ("Model", f"{format_count(parameters)}", f"parameters in {len(plan.graph.nodes)} operators"),
        ("Machine", machine.described_devices, f"{machine.name}, mesh {machine.mesh}"),
        ("Search", plan.search, f"least {plan.objective}; {plan.certificate.how}"),
    ]


def _copies(plan: Plan) -> list[tuple[str, str, str]]:
    """What a plan under a limit moves to the large memory and back."""
    out, back = copied_bytes(plan)
    if not out and not back:
        return []
    host = plan.machine.host.name if plan.machine.host is not None else "the large memory"
    whose = "a device" if len(plan.choice.residency) == 1 and plan.machine.devices > 1 else "all devices"
    told = f"of {whose}: {format_bytes(out)} out to {host}, {format_bytes(back)} back"
    return [("Copied in a step", format_bytes(out + back), told)]


def _percent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.001 else f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def comparisons(plan: Plan, timeline: Timeline, others: Sequence[Costs]) -> list[dict[str, object]]:
    """For each measure the plan and the others: rows of (name, amount, its text, whether it fits)."""
    limit = plan.limit
    own = replace(plan.costs, seconds=timeline.seconds)
    rows = [("this plan", own), *((name_of(item.name), item) for item in _ordered(others))]
    return [
        {
            "title": "Time of a step",
            "note": "simulated",
            "rows": [(name, item.seconds, format_seconds(item.seconds), True) for name, item in rows],
        },
        {
            "title": "Bytes exchanged",
            "note": "received by all devices together of each other",
            "rows": [(name, item.bytes, format_bytes(item.bytes), True) for name, item in rows],
        },
        {
            "title": "Peak memory",
            "note": "of the device that needs most",
            "rows": [(name, item.peak, format_bytes(item.peak), item.peak <= limit) for name, item in rows],
        },
    ]
