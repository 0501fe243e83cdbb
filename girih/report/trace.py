"""A timeline as Chrome trace events, which Perfetto and chrome://tracing open.

Format: "Trace Event Format" (Google, 2016), JSON object form. A process is a device, a thread one of its streams; a
complete event (`X`) is a span, with its operator, division and bytes; a counter (`C`) is the memory in use. Times are
in microseconds from the beginning of the step.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih.plans.file import check_folder
from girih.program import ComputeStep, MoveStep, StartStep, Step, TransferStep
from girih.report.kinds import kind_of
from girih.report.overlap import overlap_words
from girih.report.page.spans import followed
from girih.report.page.transfers import axis_names
from girih.report.tiles import axis_divisions, division_words, parameter_values
from girih.simulate.timeline import COMPUTE, Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Plan

Event = dict[str, Any]
MOST_DEVICES = 64  # for which the collectives of transfers are named


def trace(timeline: Timeline, plan: Plan) -> dict[str, Any]:
    """The trace as an object that `json.dumps` writes. Cost: linear in spans; all devices are in it."""
    parameters = parameter_values(plan.graph)
    described = [_told(plan, step, parameters) for step in plan.program.steps]
    events = list(_names(timeline, plan))
    rows = zip(
        timeline.device.tolist(),
        timeline.stream.tolist(),
        timeline.step.tolist(),
        (timeline.begin * 1e6).tolist(),
        (timeline.end * 1e6).tolist(),
        timeline.amount.tolist(),
        strict=True,
    )
    for device, stream, step, begin, end, amount in sorted(rows):
        name, category, arguments = described[step]
        event = {
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": device,
            "tid": stream,
            "ts": round(begin, 3),
            "dur": round(max(end - begin, 0.0), 3),
            "args": {**arguments, "step": step} | ({} if stream == COMPUTE else {"bytes received": amount}),
        }
        events.append(event)
    for device, memory in followed(timeline):
        for seconds, amount in zip(memory.seconds.tolist(), memory.bytes.tolist(), strict=True):
            counter = {"ph": "C", "name": "memory", "pid": device, "tid": COMPUTE, "ts": round(seconds * 1e6, 3)}
            events.append({**counter, "args": {"bytes": amount}})
    title = {
        "model": plan.origin.model,
        "machine": str(plan.machine),
        "search": plan.search,
        "measured": timeline.measured,
        "overlap": overlap_words(plan, timeline),
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": title}


def write_trace(path: str | Path, timeline: Timeline, plan: Plan) -> Path:
    """Write the trace as JSON, gzipped if the name ends in .gz.

    Raises:
        PlanError: there is no folder to write it into.
    """
    where = Path(path)
    check_folder(where)
    data = json.dumps(trace(timeline, plan), separators=(",", ":"), allow_nan=False).encode()
    where.write_bytes(gzip.compress(data, mtime=0) if where.suffix == ".gz" else data)
    return where


def _names(timeline: Timeline, plan: Plan) -> list[Event]:
    """Metadata events: what processes and threads are called, and their order."""
    axes = axis_names(tuple((level.name, level.axes) for level in plan.machine.levels))
    threads = [timeline.streams[COMPUTE], *(f"receive over {name}" for name in axes)]
    events: list[Event] = []
    for device in range(timeline.devices):
        whole = {"ph": "M", "pid": device, "tid": COMPUTE}
        events.append({**whole, "name": "process_name", "args": {"name": f"device {device}"}})
        events.append({**whole, "name": "process_sort_index", "args": {"sort_index": device}})
        for stream, name in enumerate(threads):
            one = {"ph": "M", "pid": device, "tid": stream}
            events.append({**one, "name": "thread_name", "args": {"name": name}})
            events.append({**one, "name": "thread_sort_index", "args": {"sort_index": stream}})
    return events


def _told(plan: Plan, step: Step, parameters: frozenset[str]) -> tuple[str, str, dict[str, Any]]:
    """Name, category and arguments of the spans of one step."""
    if isinstance(step, ComputeStep):
        graph = plan.graph
        node = graph.nodes[step.node]
        divided = axis_divisions(graph, plan.strategy, step.node, parameters)
        arguments = {
            "operator": node.operator,
            "division": division_words(divided, plan.strategy.mesh),
            "phase": node.phase,
            "module": node.scope,
            "source": node.source,
        }
        return node.name, kind_of(graph, node), {name: value for name, value in arguments.items() if value}
    if isinstance(step, StartStep | TransferStep | MoveStep):
        transfer = step.transfer if isinstance(step, StartStep) else step
        if isinstance(transfer, MoveStep):
            arguments = {"tensor": transfer.value, "for": plan.graph.nodes[transfer.node].name}
            return f"{transfer.purpose} {transfer.value}", "transfer", arguments
        few = plan.machine.devices <= MOST_DEVICES
        kind = plan.program.exchange_of(transfer).kind if few else "transfer"
        arguments = {"tensor": transfer.value, "for": plan.graph.nodes[transfer.node].name, "purpose": transfer.purpose}
        return f"{kind} {transfer.value}", "transfer", arguments
    return "free", "memory", {}
