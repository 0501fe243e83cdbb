"""Template, style, scripts and data become one file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih.plans.file import check_folder
from girih.report.page.data import page_data
from girih.report.page.library import scripts
from girih.report.page.verdict import comparisons, figures, sentences
from girih.simulate.timeline import Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Costs, Plan

OWN_SCRIPTS = (
    "data.js", "words.js", "tiles.js", "details.js", "charts.js", "lanes.js", "timeline.js", "moving.js", "pointing.js",
    "memory.js", "graph.js", "folded.js", "panels.js", "measured.js", "main.js",
)  # fmt: skip


def page(plan: Plan, timeline: Timeline, *, measured: Timeline | None = None, others: Sequence[Costs] = ()) -> str:
    """The HTML of a plan and its timeline; with the timeline of a run, both beside each other.

    others: what else one could do, in seconds simulated as those of the timeline.

    Raises:
        MissingLibraryError: if bokeh is not installed.
    """
    library = scripts()
    title = f"{plan.origin.model or 'program'} on {plan.machine.described_devices}"
    return fill(
        _static("page.html"),
        {
            "title": escape(title),
            "style": _static("page.css"),
            "verdict": _verdict(sentences(plan, timeline, others)),
            "figures": "".join(map(_figure, figures(plan, timeline, measured))),
            "comparisons": "".join(map(_comparison, comparisons(plan, timeline, others))) if others else "",
            "data": to_script(page_data(plan, timeline, measured)),
            "library": "".join(f"<script>{_closed(text)}</script>\n" for text in library),
            "scripts": "".join(f"<script>\n{_static(name)}</script>\n" for name in OWN_SCRIPTS),
        },
    )


def write_page(
    path: str | Path,
    plan: Plan,
    timeline: Timeline,
    *,
    measured: Timeline | None = None,
    others: Sequence[Costs] = (),
) -> Path:
    """Write the page to a file, which a browser opens without a server; see `page`.

    Raises:
        MissingLibraryError: if bokeh is not installed.
        PlanError: there is no folder to write it into.
    """
    where = Path(path)
    check_folder(where)
    text = page(plan, timeline, measured=measured, others=others)
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


def _static(name: str) -> str:
    return (files("girih.report.page") / "static" / name).read_text(encoding="utf-8")


def _verdict(items: list[str]) -> str:
    # A number and its unit stay on one line.
    first, *rest = (re.sub(r"(?<=\d) (?=\S)", "\u00a0", text) for text in items)
    return f'<p class="lead">{escape(first)}</p>' + "".join(f"<p>{escape(text)}</p>" for text in rest)


def _figure(item: tuple[str, str, str]) -> str:
    name, number, note = map(escape, item)
    return f"<div><dt>{name}</dt><dd><strong>{number}</strong><span>{note}</span></dd></div>"


def _comparison(item: dict[str, Any]) -> str:
    most = max((amount for _, amount, _, _ in item["rows"]), default=0) or 1
    rows = []
    for number, (name, amount, text, fits) in enumerate(item["rows"]):
        note = "" if fits else ' <em class="warning">does not fit</em>'
        share = f'<span class="bar"><i style="width:{100 * amount / most:.2f}%"></i></span>'
        own = ' class="own"' if number == 0 else ""
        rows.append(f"<tr{own}><th scope=row>{escape(name)}</th><td>{share}</td><td>{escape(text)}{note}</td></tr>")
    return f"<table><caption>{item['title']}<small>{item['note']}</small></caption>{''.join(rows)}</table>"
