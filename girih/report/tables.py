"""Terminal tables of a plan, made with rich; as text when there is no terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from girih.graph import repeats
from girih.layout import part_shape
from girih.machine.units import format_bytes, format_count, format_gap, format_seconds
from girih.ops import first_description
from girih.ops.derive.arithmetic import floating_point_operations
from girih.ops.derive.kinds import CONTRACTIONS, dtype_of_products, kind_of
from girih.program import BlockStep, ComputeStep
from girih.program.life.accounts import host_bytes
from girih.report.tiles import axis_divisions, division_words
from girih.rewrite.certificate import explained

if TYPE_CHECKING:
    from girih.plans.plan import Costs, Plan

BELIEVED = 0.75
"""A larger share of the devices' peak than this is not believed: large products alone reached 68 to 79 % of it on the
card that was measured (`python -m benchmarks.gpu_rates`), and a training step has other work besides."""
FULL = 0.9
"""Share of the large memory beyond which its size may be why something is computed again: the bound does not know."""


def render(item: RenderableType, width: int = 110) -> str:
    """The renderable as plain text."""
    out = io.StringIO()
    Console(file=out, width=width, no_color=True, highlight=False).print(item)
    return out.getvalue().rstrip()


def title(plan: Plan) -> str:
    """The plan in one line."""
    return (
        f"{plan.origin.model or 'program'} on {plan.machine}, search {plan.search}, "
        f"cost {plan.certificate.amount(plan.certificate.cost)}, gap {format_gap(plan.gap)}"
    )


def summary(plan: Plan) -> RenderableType:
    """What a plan costs on each device, its certificate, and what the alternatives would cost."""
    head = Text()
    title = plan.origin.model or "program"
    count = sum(plan.graph.values[item.name].elements for item in plan.graph.inputs if item.role == "parameter")
    head.append(f"{title}", style="bold")
    head.append(
        f" on {plan.machine}: {len(plan.graph.nodes)} nodes, {format_count(count)} parameters, "
        f"search {plan.search}, objective {plan.objective}\n"
    )
    head.append("\n".join(explained(plan.certificate)))
    if plan.objective == "seconds":
        head.append(
            "\nthis cost is the sum of the roofline's seconds of computing and of transfers, nothing overlapped"
        )
    if plan.costs.simulated is not None:
        head.append(f"\na step takes {format_seconds(plan.costs.simulated)}, simulated")
        share = 0.0 if plan.machine.here else utilisation(plan)
        if share >= 0.005:
            head.append(f"; products at {share:.0%} of the devices' peak (model FLOPs utilisation)")
            if share > BELIEVED:
                head.append(
                    "\nnote: no such device reaches that: its data sheet's rates are taken at their word; "
                    "`girih calibrate` on the machine itself tells what it reaches"
                )
    if plan.predicted.unlimited is not None:
        head.append(f"\n{held_words(plan)}")
    if words := arena_words(plan):
        head.append(f"\n{words}")
    for note in plan.notes:
        head.append(f"\nnote: {note}")
    parts = sorted(repeats(plan.graph), key=lambda part: -part.period * part.count)[:4]
    if parts:
        copies = ", ".join(f"{part.count} × {part.period} nodes" for part in sorted(parts, key=lambda part: part.start))
        head.append(f"\nrepeated layers or timesteps: {copies}")
    undescribed = undivided(plan)
    if undescribed:
        head.append(f"\nundivided on every device, for want of a description: {', '.join(sorted(undescribed))}")
    if plan.told_scratch.calls:
        head.append(f"\npeak memory is {plan.told_scratch.words}")
    return Group(head, devices_table(plan), alternatives_table(plan), *map(Text, alternatives_notes(plan)))


def utilisation(plan: Plan) -> float:
    """The share of the time of a step that its products would take at the devices' peaks, by the dtypes that they
    multiply, without what is computed again: model FLOPs utilisation (Chowdhery et al. 2022); 0 without a simulation.
    """
    if not plan.costs.simulated:
        return 0.0
    kinds = [plan.machine.device] if not plan.machine.groups else [device for device, _ in plan.machine.groups]
    counts = [plan.machine.devices] if not plan.machine.groups else [count for _, count in plan.machine.groups]
    seconds = 0.0
    for node in plan.graph.nodes:
        description = first_description(plan.graph, node)
        if description is not None and kind_of(description) in CONTRACTIONS:
            dtype = dtype_of_products(description)
            rate = sum(count * device.flops(dtype) for device, count in zip(kinds, counts, strict=True))
            seconds += floating_point_operations(description) / rate
    return seconds / plan.costs.simulated


def copied_bytes(plan: Plan) -> tuple[int, int]:
    """Bytes that go out to the large memory, and that come back, in one step: of one device of a plan in which all do
    alike, else of all devices together."""
    residencies = plan.choice.residency
    if len(residencies) == 1:
        return residencies[0].copied_bytes(plan.lifetimes.touches)
    out = back = 0
    for order, lives, residency in zip(plan.unmoved.classes, plan.lifetimes_by_class, residencies, strict=False):
        one_out, one_back = residency.copied_bytes(lives.touches)
        out, back = out + len(order.devices) * one_out, back + len(order.devices) * one_back
    return out, back


def held_words(plan: Plan) -> str:
    """How a plan keeps within its memory."""
    assert plan.memory is not None
    choice, told = plan.choice, plan.predicted
    assert told.unlimited is not None
    ways = []
    if len(choice.residency) == 1:
        assert plan.machine.host is not None
        out, back = copied_bytes(plan)
        state = sum(plan.lifetimes.storages[number].bytes for number in choice.residency[0].home) // 2
        ways.append(
            f"by moving tensors: each step {format_bytes(out)} go out to {plan.machine.host.name} and "
            f"{format_bytes(back)} come back; {format_bytes(state)} of state lie there"
        )
        needed, room = host_bytes(plan.program), plan.machine.host.memory_bytes
        if needed > FULL * room:
            ways[-1] += f" ({format_bytes(needed)} at once: its {format_bytes(room)} are what limits, too)"
    if len(choice.residency) > 1:
        assert plan.machine.host is not None
        out, back = copied_bytes(plan)
        ways.append(
            f"by moving tensors: each step {format_bytes(out)} of all devices go out to {plan.machine.host.name} and "
            f"{format_bytes(back)} come back"
        )
    if choice.pieces:
        count = len({position for loop in choice.pieces for position, _ in loop.steps})
        repeated = sum(len(loop.steps) for loop in choice.pieces) - count
        times = f", {repeated} of them again" if repeated else ""
        ways.append(f"by computing {count} steps in pieces{times}")
    if choice.sequence is not None:
        own, once = ([isinstance(step, ComputeStep | BlockStep) for step in program.steps].count(True)
                     for program in (plan.unmoved, plan.lowered))  # fmt: skip
        ways += [f"by computing {own - once} of {once} steps again"] if own > once else []
        if (anew := int(plan.bytes_received.sum() - plan.lowered.bytes_received().sum())) > 0:
            ways.append(f"by receiving {format_bytes(anew)} of all devices again")
    line = f"within {format_bytes(plan.memory)} {', and '.join(ways) or 'by the order of steps'}"
    if plan.costs.simulated:
        slower = plan.costs.simulated / told.unlimited
        line += f"; a step takes {slower:.2f} × that with unlimited memory, {format_seconds(told.unlimited)}"
        if told.memory_bound is not None:
            gap = max(plan.costs.simulated / told.memory_bound - 1, 0.0)
            line += f"; in this order at least {format_seconds(told.memory_bound)}, gap {format_gap(gap)}"
    return line


def arena_words(plan: Plan) -> str:
    """How large the region of memory is in which everything of a device has its address; "" where the plan has no
    limit, or its machine is not this host's processors, on which a run allocates it."""
    if plan.memory is None or not plan.machine.here:
        return ""
    if plan.arena is None or plan.no_arena:
        return (
            f"no arena: {plan.no_arena}; the account keeps the limit, and the process may take more, since the "
            "C library keeps what is freed in between"
        )
    return (
        f"everything of a step has its address in an arena of {format_bytes(plan.arena.bytes)}, "
        f"{plan.arena.bytes / max(plan.arena.bound, 1):.4f} × the most that is alive at one time"
    )


def undivided(plan: Plan) -> set[str]:
    """Operators that run whole on every device because they have no description."""
    return {node.operator for node in plan.graph.nodes if first_description(plan.graph, node) is None}


def devices_table(plan: Plan, most: int = 16) -> Table:
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for name, justify in (("device", "right"), ("compute", "right"), ("computing", "right"), ("received", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("state", justify="right")
    table.add_column("peak memory", justify="right")
    if plan.memory is not None:
        table.add_column("of the limit", justify="right")
    operations, seconds = plan.compute
    memory = {use.device: use for use in plan.memory_by_device}
    for device in sorted(memory)[:most]:
        use = memory[device]
        cells = [
            str(device),
            f"{format_count(operations[device])}FLOP",
            format_seconds(float(seconds[device])),
            format_bytes(int(plan.bytes_received[device])),
            format_bytes(use.state),
            format_bytes(use.peak),
        ]
        if plan.memory is not None:
            cells.append(f"{use.peak / plan.memory:.0%}")
        table.add_row(*cells)
    if plan.machine.devices > len(memory):
        table.caption = f"{len(memory)} of {plan.machine.devices} devices shown"
    return table


def alternatives_table(plan: Plan) -> Table:
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    table.add_column("against")
    own = plan.costs
    rows = (own, *plan.baselines)
    how, times = times_of(rows)
    for name in ("bytes moved", "×", "peak of a device", "×", how, "×"):
        table.add_column(name, justify="right")
    for item, took in zip(rows, times, strict=True):
        name = {"single": "one device"}.get(item.name, item.name)
        table.add_row(
            name + ("" if item is not own else " (this plan)"),
            format_bytes(item.bytes),
            _ratio(item.bytes, own.bytes),
            format_bytes(item.peak) + ("" if (plan.fits if item is own else item.peak <= plan.limit) else " !"),
            _ratio(item.peak, own.peak),
            format_seconds(took),
            _ratio(took, times[0]),
        )
    return table


def alternatives_notes(plan: Plan) -> list[str]:
    """What the table of alternatives leaves unsaid."""
    notes = []
    if not plan.fits or any(item.peak > plan.limit for item in plan.baselines):
        notes.append(f"! does not fit {format_bytes(plan.limit)}" + ("" if plan.memory else " of a device"))
    if plan.objective == "bytes" and any(0 < item.bytes < plan.costs.bytes for item in plan.baselines):
        notes.append("fewer bytes than this plan by holding copies, which the objective `bytes` does not allow")
    return notes


def times_of(rows: Sequence[Costs]) -> tuple[str, list[float]]:
    """What to call the seconds of a step, and those of each row: simulated, or where not all were the plain sums."""
    simulated = [item.simulated for item in rows if item.simulated is not None]
    if len(simulated) == len(rows):
        return "time, simulated", simulated
    return "time, nothing overlapped", [item.seconds for item in rows]


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def tensors_table(plan: Plan, most: int | None = None) -> Table:
    """A row for each tensor: its size, its layout over the mesh, and each device's part."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tensor", "shape", "dtype", "bytes", f"layout on {plan.machine.mesh}", "each device"):
        table.add_column(name)
    roles = {item.name: item for item in plan.graph.inputs}
    ordered = [*roles, *(name for name in plan.graph.values if name not in roles)]
    for name in ordered[:most]:
        value = plan.graph.values[name]
        part = list(part_shape(plan.program.layout_regions(name)[0], value.shape))
        label = f"{name} ({roles[name].role})" if name in roles else name
        table.add_row(
            label,
            str(list(value.shape)),
            value.dtype,
            format_bytes(value.bytes),
            str(plan.strategy.layouts[name]),
            str(part),
        )
    return table


def operators_table(plan: Plan, most: int | None = None) -> Table:
    """A row for each node: its operator, and its division by each axis of the mesh."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "operator", "phase", "division by mesh axis", "source"):
        table.add_column(name)
    for number, node in list(enumerate(plan.graph.nodes))[:most]:
        divided = axis_divisions(plan.graph, plan.strategy, number, frozenset())
        words = division_words(divided, plan.strategy.mesh)
        table.add_row(node.name, node.operator, node.phase, words, node.source)
    return table
