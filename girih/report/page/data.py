"""What the page's scripts draw: everything of a plan and its timelines as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from girih.report.page.holdings import holdings_data
from girih.report.page.measured import measured_data
from girih.report.page.nodes import graph_data
from girih.report.page.spans import timeline_data
from girih.report.page.tables import TextNumbers
from girih.report.page.transfers import axis_names, links_data, traffic_of
from girih.report.palette import device_colours
from girih.report.timelines import chosen_devices
from girih.simulate.timeline import Timeline

if TYPE_CHECKING:
    from girih.plans.plan import Plan


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
