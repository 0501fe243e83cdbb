"""A plan in a notebook: a compact fragment of HTML without scripts, for `_repr_html_`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from girih.machine.units import format_bytes, format_count, format_gap, format_seconds
from girih.ops import first_description
from girih.ops.derive.arithmetic import floating_point_operations
from girih.report.palette import device_colours
from girih.report.tables import times_of
from girih.report.tiles import DrawnTile, axis_divisions, division_words, parameter_values, tile_of

if TYPE_CHECKING:
    from girih.plans.plan import Plan

MOST_DEVICES = 8
MOST_OPERATORS = 10
SIDE = 22
STYLE = (
    "<style>.girih-plan{font:13px/1.45 system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    ".girih-plan table{border-collapse:collapse;margin:10px 0;font:inherit}"
    ".girih-plan th,.girih-plan td{padding:2px 16px 2px 0;text-align:right;border:0;background:none}"
    ".girih-plan th:first-child,.girih-plan td:first-child{text-align:left}"
    ".girih-plan th{font-weight:600;opacity:.6}.girih-plan small{opacity:.65}"
    ".girih-plan .ops{display:flex;flex-wrap:wrap;gap:6px 20px;margin:8px 0}"
    ".girih-plan .ops span{display:inline-flex;align-items:center;gap:7px}</style>"
)


def notebook_html(plan: Plan) -> str:
    """What the plan costs beside its alternatives, each device, and how the heaviest operators are divided."""
    title = f"<b>{escape(plan.origin.model or 'program')}</b> on {escape(str(plan.machine))}"
    gap = f"gap {format_gap(plan.gap)}, {escape(plan.certificate.how)}"
    head = f"{title}<br><small>search {escape(plan.search)}, objective {escape(plan.objective)}; {gap}</small>"
    parts = (STYLE, head, _alternatives(plan), _devices(plan), _operators(plan))
    return f'<div class="girih-plan">{"".join(parts)}</div>'


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]], note: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" + (f"<small>{escape(note)}</small>" if note else "")


def _alternatives(plan: Plan) -> str:
    names = {"single": "one device", "data": "data parallelism"}
    costs = (plan.costs, *plan.baselines)
    how, times = times_of(costs)
    rows = [
        (
            "this plan" if item is plan.costs else names.get(item.name, item.name),
            format_bytes(item.bytes),
            format_bytes(item.peak),
            format_seconds(took),
        )
        for item, took in zip(costs, times, strict=True)
    ]
    return _table(("", "bytes moved", "peak of a device", how), rows)


def _devices(plan: Plan) -> str:
    operations, _ = plan.compute
    used = plan.memory_by_device
    rows = [
        (
            f"device {use.device}",
            f"{format_count(operations[use.device])}FLOP",
            format_bytes(int(plan.bytes_received[use.device])),
            format_bytes(use.state),
            format_bytes(use.peak),
        )
        for use in used[:MOST_DEVICES]
    ]
    count = plan.machine.devices
    note = f"{len(rows)} of {count} devices" if len(rows) < count else ""
    return _table(("", "compute", "received", "state", "peak memory"), rows, note)


def _operators(plan: Plan) -> str:
    """The operators with most arithmetic, equal ones of equal division together."""
    parameters = parameter_values(plan.graph)
    total: dict[tuple[str, DrawnTile], list[int]] = {}
    words: dict[tuple[str, DrawnTile], str] = {}
    for number, node in enumerate(plan.graph.nodes):
        description = first_description(plan.graph, node)
        if description is None or description.operator.view:
            continue
        divided = axis_divisions(plan.graph, plan.strategy, number, parameters)
        mesh = plan.strategy.mesh
        key = node.operator.split(".")[1], tile_of(divided, mesh)
        words.setdefault(key, division_words(divided, mesh))
        count = total.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += floating_point_operations(description)
    heaviest = sorted(total.items(), key=lambda item: -item[1][1])[:MOST_OPERATORS]
    colours = device_colours(plan.machine.devices)
    items = [
        f"<span>{tile_svg(tile, colours, words[name, tile])}{escape(name)} <small>×{count}</small></span>"
        for (name, tile), (count, _) in heaviest
    ]
    return f'<div class="ops">{"".join(items)}</div>'


def tile_svg(tile: DrawnTile, colours: tuple[str, ...], words: str) -> str:
    """A tile as a small picture; a cell that several devices compute has a stripe for each of the first four."""
    width, height = SIDE / tile.columns, SIDE / tile.rows
    gap = 1.0 if max(tile.rows, tile.columns) <= 8 else 0.0
    drawn = []
    for number, devices in enumerate(tile.cells):
        left, top = number % tile.columns * width, number // tile.columns * height
        shown = devices[:4]
        part = (width - gap) / len(shown)
        drawn += [
            f'<rect x="{left + n * part:.2f}" y="{top:.2f}" width="{part:.2f}" height="{height - gap:.2f}"'
            f' fill="{colours[device]}"/>'
            for n, device in enumerate(shown)
        ]
    sign = (
        f'<circle cx="{SIDE / 2}" cy="{SIDE / 2}" r="6" fill="#fff"/><text x="{SIDE / 2}" y="{SIDE / 2 + 3.3}"'
        ' text-anchor="middle" font-size="9" font-weight="700" fill="#222">Σ</text>'
    )
    return (
        f'<svg width="{SIDE}" height="{SIDE}" role="img" aria-label="{escape(words)}">'
        f"<title>{escape(words)}</title>{''.join(drawn)}{sign if tile.summed else ''}</svg>"
    )
