"""Template, style, scripts and data become one file. BokehJS, which draws the charts, is in the package bokeh."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih.plans.file import check_folder
from girih.report.page.holdings import holdings_data
from girih.report.page.measured import measured_data
from girih.report.page.nodes import TextNumbers, graph_data
from girih.report.page.spans import chosen_devices, timeline_data
from girih.report.page.transfers import axis_names, links_data, traffic_of
from girih.report.page.verdict import comparisons, figures, sentences
from girih.report.palette import device_colours
from girih.simulate.timeline import Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Costs, Plan

OWN_SCRIPTS = (
    "data.js", "words.js", "tiles.js", "details.js", "charts.js", "lanes.js", "timeline.js", "moving.js", "pointing.js",
    "memory.js", "graph.js", "folded.js", "panels.js", "measured.js", "main.js",
)  # fmt: skip


def page(
    plan: Plan,
    timeline: Timeline,
    *,
    measured: Timeline | None = None,
    others: Sequence[Costs] = (),
    beside: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The HTML of a plan and its timeline; with the timeline of a run, both beside each other.

    others: what else one could do, in seconds simulated as those of the timeline. beside: more tables of bars, each a
    `title`, a `note` and `rows` of (name, amount, its text, whether it fits).

    Raises:
        MissingLibraryError: if bokeh is not installed.
    """
    library = scripts()
    title = f"{plan.origin.model or 'program'} on {plan.machine.described_devices}"
    return fill(
        static("page.html"),
        {
            "title": escape(title),
            "style": static("page.css"),
            "verdict": _verdict(sentences(plan, timeline, others)),
            "figures": "".join(map(figure, figures(plan, timeline, measured))),
            "comparisons": "".join(
                map(_comparison, (*(comparisons(plan, timeline, others) if others else ()), *beside))
            ),
            "data": to_script(page_data(plan, timeline, measured)),
            "library": "".join(f"<script>{_closed(text)}</script>\n" for text in library),
            "scripts": "".join(f"<script>\n{static(name)}</script>\n" for name in OWN_SCRIPTS),
        },
    )


def write_page(
    path: str | Path,
    plan: Plan,
    timeline: Timeline,
    *,
    measured: Timeline | None = None,
    others: Sequence[Costs] = (),
    beside: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write the page to a file, which a browser opens without a server; see `page`.

    Raises:
        MissingLibraryError: if bokeh is not installed.
        PlanError: there is no folder to write it into.
    """
    where = Path(path)
    check_folder(where)
    text = page(plan, timeline, measured=measured, others=others, beside=beside)
    where.write_text(text, encoding="utf-8")
    return where


def fill(template: str, slots: dict[str, str]) -> str:
    """`<!-- slot: NAME -->` in a template, and `/* slot: NAME */` in its style, become the slot's text."""
    return re.sub(r"<!-- slot: (\w+) -->|/\* slot: (\w+) \*/", lambda match: slots[match[1] or match[2]], template)


def to_script(data: Any) -> str:
    """JSON that can stand in a script element whatever names are in it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _closed(script: str) -> str:
    return script.replace("</script", "<\\/script")


def static(name: str) -> str:
    return (files("girih.report.page") / "static" / name).read_text(encoding="utf-8")


def _verdict(items: list[str]) -> str:
    # A number and its unit stay on one line.
    first, *rest = (re.sub(r"(?<=\d) (?=\S)", "\u00a0", text) for text in items)
    return f'<p class="lead">{escape(first)}</p>' + "".join(f"<p>{escape(text)}</p>" for text in rest)


def figure(item: tuple[str, str, str]) -> str:
    name, number, note = map(escape, item)
    return f"<div><dt>{name}</dt><dd><strong>{number}</strong><span>{note}</span></dd></div>"


def _comparison(item: Mapping[str, Any]) -> str:
    most = max((amount for _, amount, _, _ in item["rows"]), default=0) or 1
    rows = []
    for number, (name, amount, text, fits) in enumerate(item["rows"]):
        note = "" if fits else ' <em class="warning">does not fit</em>'
        share = f'<span class="bar"><i style="width:{100 * amount / most:.2f}%"></i></span>'
        own = ' class="own"' if number == 0 else ""
        rows.append(f"<tr{own}><th scope=row>{escape(name)}</th><td>{share}</td><td>{escape(text)}{note}</td></tr>")
    return f"<table><caption>{item['title']}<small>{item['note']}</small></caption>{''.join(rows)}</table>"


# ------------------------------------------------------------------------------------------- data


def page_data(plan: Plan, timeline: Timeline, measured: Timeline | None = None) -> dict[str, Any]:
    """The page's data; texts that occur often are numbered in `texts`."""
    texts: TextNumbers[str] = TextNumbers()
    traffic = traffic_of(plan.program)
    axes = axis_names(tuple((level.name, level.axes) for level in plan.machine.levels))
    devices, why = chosen_devices(timeline)
    data = {
        "objective": plan.objective,
        "devices": plan.machine.devices,
        "drawn": why,
        "colours": device_colours(plan.machine.devices),
        "timelines": [timeline_data(item, devices) for item in (timeline, measured) if item is not None],
        "graph": graph_data(plan, traffic, axes, texts),
        "holdings": holdings_data(plan),
        "links": links_data(traffic, devices, axes),
        "measured": None if measured is None else measured_data(plan, timeline, measured, traffic.kinds),
    }
    return {**data, "texts": texts.items}


# ------------------------------------------------------------------------------------------- BokehJS

FILES = ("bokeh.min.js", "bokeh-api.min.js")


class MissingLibraryError(ImportError):
    """The page cannot be made without bokeh; the message says how to install it."""


def scripts() -> list[str]:
    """The scripts that a page inlines.

    Raises:
        MissingLibraryError: if bokeh is not installed.
    """
    package = find_spec("bokeh")
    if package is None or not package.submodule_search_locations:
        raise MissingLibraryError("the page draws with Bokeh, which is not installed: pip install 'girih[report]'")
    folder = Path(package.submodule_search_locations[0]) / "server" / "static" / "js"
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        names = ", ".join(missing)
        raise MissingLibraryError(f"bokeh in {folder} has no {names}: pip install --upgrade 'girih[report]'")
    return [(folder / name).read_text(encoding="utf-8") for name in FILES]
