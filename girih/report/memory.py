"""Memory of one device over a step, as text: the curve of bytes in use against the limit, and who holds what, when."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from girih.machine.units import format_bytes
from girih.report.storages import DeviceMemory, Span, StorageOverTime, device_memory
from girih.report.tables import arena_words

if TYPE_CHECKING:
    from girih.plans.plan import Plan

WIDTH, HEIGHT = 64, 8  # of the curve, in characters
STRIP = 32
MOST = 24  # storages that are shown
NEAR = 2.0  # the limit is drawn up to so many times the peak
EIGHTHS = " ▁▂▃▄▅▆▇█"
THERE, COPYING, AWAY = "█", "░", "·"


def memory_table(plan: Plan, device: int = 0, most: int = MOST) -> RenderableType:
    """What `girih show --memory` prints."""
    memory = device_memory(plan, device)
    words = arena_words(plan)
    head = Text(_title(plan, memory) + "\n" + _totals(plan, memory) + (f"\n{words}" if words else ""))
    return Group(head, Text(), *map(Text, curve(memory, plan.memory)), Text(), _storages(memory, most))


def memory_numbers(plan: Plan, device: int = 0) -> dict[str, Any]:
    """The same for programs: `girih show --memory --json`. Times are numbers of operators, counted from 0."""
    memory = device_memory(plan, device)
    return {
        "device": device,
        "limit": plan.memory,
        "peak": memory.peak,
        "arena": plan.arenas[device].bytes if arena_words(plan) and not plan.no_arena else None,
        "operators": list(memory.operators),
        "used": memory.used.tolist(),
        "out": memory.moved(True)[0],
        "in": memory.moved(False)[0],
        "host": memory.host,
        "home": memory.home,
        "storages": [
            {
                "name": item.name,
                "bytes": item.bytes,
                "what": item.what,
                "stays": item.stays,
                "moves": [{"out": move.out, "bytes": move.bytes, "span": move.span} for move in item.moves],
                "away": item.away,
            }
            for item in memory.storages
        ],
    }


def _title(plan: Plan, memory: DeviceMemory) -> str:
    where = f"device {memory.device} of {plan.machine.name}"
    limit = "" if plan.memory is None else f", limit {format_bytes(plan.memory)}"
    at = int(memory.used.argmax())
    during = f"during {memory.at(at)}, operator {at + 1} of {len(memory.operators)}"
    if at == len(memory.operators):
        during = "at the end"
    return f"{plan.origin.model or 'program'} on {where}: at most {format_bytes(memory.peak)} {during}{limit}"


def _totals(plan: Plan, memory: DeviceMemory) -> str:
    (out, times_out), (back, times_in) = memory.moved(True), memory.moved(False)
    if not out and not back and not memory.host:
        return "nothing is moved out of the device"
    host = plan.machine.host.name if plan.machine.host is not None else "the large memory"
    return (
        f"each step {format_bytes(out)} go out to {host} in {_count(times_out, 'copy', 'copies')}, and "
        f"{format_bytes(back)} come back in {times_in}; at most {format_bytes(memory.host)} lie there at once, "
        f"{format_bytes(memory.home)} of state between steps"
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def curve(memory: DeviceMemory, limit: int | None) -> list[str]:
    """Lines of a plot of the bytes in use, one column for the most of equally many operators."""
    drawn = limit is not None and limit <= NEAR * memory.peak
    top = max(memory.peak, limit) if drawn and limit is not None else memory.peak
    heights = [8 * HEIGHT * int(memory.used[low:high].max()) / max(top, 1) for low, high in _columns(memory, WIDTH)]
    rows = []
    for row in reversed(range(HEIGHT)):
        filled = [min(8, max(0, int(np.ceil(height)) - 8 * row)) for height in heights]
        rows.append("".join(EIGHTHS[eighths] for eighths in filled).rstrip())
    label = max(len(format_bytes(amount)) for amount in (top, top // 2, 0))
    names = {0: format_bytes(top), HEIGHT // 2: format_bytes(top // 2)}
    lines = [f"{names.get(number, ''):>{label}} ┤{row}" for number, row in enumerate(rows)]
    if drawn and limit is not None:
        lines.insert(0, f"{'limit':>{label}}  {'┄' * WIDTH}")
    first, last = memory.at(0), memory.operators[-1] if memory.operators else ""
    apart = max(1, len(heights) - len(first) - len(last))
    return [*lines, f"{format_bytes(0):>{label}} └{'─' * len(heights)}", f"{'':>{label}}  {first}{' ' * apart}{last}"]


def _columns(memory: DeviceMemory, width: int) -> list[Span]:
    """The operators cut into as many ranges of about one length: [first, one behind the last)."""
    count = len(memory.used)
    return list(pairwise(np.linspace(0, count, min(width, count) + 1).astype(int).tolist()))


def _storages(memory: DeviceMemory, most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("storage", "left"), ("bytes", "right"), ("what", "left"), ("", "left"), ("when", "left")):
        table.add_column(name, justify=justify, no_wrap=name == "")  # type: ignore[arg-type]
    for item in memory.storages[:most]:
        table.add_row(item.name, format_bytes(item.bytes), item.what, strip(memory, item), words(memory, item))
    rest = memory.storages[most:]
    words_of_rest = f"{len(rest)} smaller ones of at most {format_bytes(rest[0].bytes)} are not shown; " if rest else ""
    table.caption = (
        f"{words_of_rest}{THERE} on the device, {COPYING} there while it is copied, {AWAY} in the large memory alone"
    )
    table.caption_justify = "left"
    return table


def strip(memory: DeviceMemory, item: StorageOverTime, width: int = STRIP) -> str:
    """A storage over the step, as one line of characters."""
    marks = np.full(len(memory.used), " ")
    for spans, mark in ((item.away, AWAY), (item.stays, THERE)):
        for first, last in spans:
            marks[max(first, 0) : last + 1] = mark
    for move in item.moves:
        span = marks[move.span[0] : move.span[1] + 1]
        span[span == THERE] = COPYING
    order = [THERE, COPYING, AWAY, " "]  # of several marks in one column the first is drawn
    return "".join(min(marks[low:high], key=order.index) for low, high in _columns(memory, width)).rstrip()


def words(memory: DeviceMemory, item: StorageOverTime, most: int = 3) -> str:
    """From which operator to which a storage lies on the device, stay by stay."""
    end = len(memory.operators)
    parts = []
    for first, last in item.stays[:most]:
        begin = "start" if first < 0 else memory.at(first)
        parts.append(f"{begin} to {'end' if last == end else memory.at(last)}" if last > first else begin)
    if len(item.stays) > most:
        parts.append(f"{len(item.stays) - most} more stays")
    return "; ".join(parts)
