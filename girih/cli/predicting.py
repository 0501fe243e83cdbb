"""`girih calibrate`, `simulate`, `report` and `trace`: what a plan takes, and how to see it."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from girih.api import Plan, load
from girih.cli.programs import random_batch
from girih.cost.cache import cache_folder, usable_cache
from girih.cost.store import Store
from girih.machine import MachineError
from girih.machine.units import format_bytes, format_gap, format_seconds
from girih.plans.plan import Observe, PlanError
from girih.plans.predict import Prediction, predict
from girih.program import ComputeStep, TransferStep
from girih.report.overlap import overlap_words
from girih.report.tables import render
from girih.run.engines.launcher import refusal_alone
from girih.simulate.timeline import COMPUTE, Timeline

MOST_CALIBRATED = 64


def store_path(path: str | None) -> Path | None:
    """Where measured costs are kept: as given, or in the user's cache; None where that may not be used."""
    if path:
        return Path(path)
    folder = usable_cache()
    return None if folder is None else folder / "costs.sqlite"


def calibrate_machine(options: argparse.Namespace, progress: Observe) -> tuple[dict[str, Any], list[str]]:
    """Measure; (numbers for programs, lines for people)."""
    from girih.run.calibrate.calibrate import calibrate

    path = store_path(options.store)
    if path is None:
        folder = cache_folder()
        raise PlanError(f"there is nowhere to keep what is measured: {folder} may not be used; give --store FILE")
    if options.forget:
        return _forget(path, options.machine)
    plans = [load(name, trust=options.trust) for name in options.plans]
    name = options.machine or (plans[0].machine.name if plans else "local:2")
    if other := [item.machine.name for item in plans if item.machine.name != name]:
        raise PlanError(f"one machine is calibrated at a time: {name}, and a plan is for {other[0]}")
    if (match := re.fullmatch("local:([0-9]+)", name)) and int(match[1]) > MOST_CALIBRATED:
        raise PlanError(f"{name}: at most {MOST_CALIBRATED} workers are started at once to be measured")
    if plans:
        from girih.plans.trial import try_plan

        for item in plans:  # its operators are called with data of their sizes
            try_plan(item, item.machine.devices)
    try:
        profile = calibrate(
            name,
            store_path=path,
            programs=[item.program for item in plans],
            budget_seconds=options.seconds,
            backend=options.backend,
            again=options.again,
            observe=progress,
        )
    except MachineError as error:
        raise PlanError(str(error)) from error
    device = profile.device
    fit = profile.roofline.error
    lines = [
        f"{profile.machine}, {profile.source}",
        f"each worker: {device.flops_per_second / 1e9:.3g} GFLOP/s, {format_bytes(device.memory_bytes_per_second)}/s "
        f"of memory, {format_seconds(device.launch_seconds)} to start an operator",
    ]
    for pattern, table in profile.links:
        latency, rate = table.line()
        lines.append(f"messages, {pattern}: {format_seconds(latency)}, then {format_bytes(rate)}/s")
    if fit is not None:
        lines.append(
            f"the roofline is off by {fit.median:.0%} in the median, {fit.largest:.0%} at most, "
            f"over {fit.measurements} measured calls"
        )
    lines += [
        f"kept in {path}: from now on predictions for {profile.machine} (`girih plan --objective time`, `simulate`, "
        "`report`, `trace`) go by it",
        f"to undo it: girih calibrate --forget --machine {profile.machine}"
        + (f" --store {path}" if options.store else ""),
    ]
    numbers = {
        "machine": profile.machine,
        "backend": profile.backend,
        "device": vars(device),
        "links": {pattern: dict(zip(("latency", "bytes_per_second"), table.line(), strict=True))
                  for pattern, table in profile.links},
        "error": None if fit is None else vars(fit),
        "store": str(path),
    }  # fmt: skip
    return numbers, lines


def _forget(path: Path, machine: str | None) -> tuple[dict[str, Any], list[str]]:
    """Remove what was measured of a machine, or of all."""
    count = 0
    if path.exists():
        try:
            with Store(path) as store:
                count = store.forget(machine)
        except MachineError as error:
            raise PlanError(str(error)) from error
    of = f" of {machine}" if machine else ""
    line = f"{path}: forgot {count} calibration{'s' if count != 1 else ''}{of}; predictions go by data sheets again"
    return {"store": str(path), "forgotten": count}, [line]


def predicted(item: Plan, options: argparse.Namespace, memory: bool = True) -> Prediction:
    return predict(item, machine=getattr(options, "machine", None), store=store_path(options.store), memory=memory)


@dataclass(frozen=True)
class Beside:
    """Predicted beside measured seconds of one operator or collective, of all devices together."""

    name: str
    count: int
    predicted: float
    measured: float


def by_operator(item: Plan, forecast: Timeline, measured: Timeline) -> list[Beside]:
    """Each device's own work by operator, the largest measured first; transfers and their waits are one line."""
    program = item.program
    moving = "transfers, with waiting" if item.bytes_received.any() else "copies inside a device"

    def name(step: int) -> str:
        one = program.steps[step]
        if isinstance(one, ComputeStep):
            return program.graph.nodes[one.node].operator
        return moving if isinstance(one, TransferStep) else "starting transfers"

    sums: dict[str, list[float]] = {}
    for column, timeline in enumerate((forecast, measured)):
        own = (timeline.stream == COMPUTE) if column == 0 else np.ones(len(timeline.step), np.bool_)
        for step, length in zip(
            timeline.step[own].tolist(), (timeline.end - timeline.begin)[own].tolist(), strict=True
        ):
            row = sums.setdefault(name(step), [0.0, 0.0, 0.0])
            row[column] += length
            row[2] += column
    waits = sums.get(moving) if item.bytes_received.any() else None
    if waits is not None:  # predicted: what the devices do not compute
        waits[0] = forecast.seconds * forecast.devices - sum(row[0] for other, row in sums.items() if other != moving)
    rows = [Beside(which, int(row[2]), row[0], row[1]) for which, row in sums.items()]
    return sorted(rows, key=lambda row: -row.measured)


def measured_beside(item: Plan, measured: Timeline, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What `girih run --measure` adds: numbers for programs, lines for people."""
    forecast = predicted(item, options, memory=False)
    rows = by_operator(item, forecast.timeline, measured)
    numbers = {
        "measured_seconds": measured.seconds,
        "predicted_seconds": forecast.seconds,
        "operators": [vars(row) for row in rows],
    }
    share = f" ({forecast.seconds / measured.seconds:.2f} of it)" if measured.seconds else ""
    # The first step of a worker compiles kernels and fills caches.
    warm = "" if options.steps > 1 else "; it was the first of these workers: --steps 2 leaves out what starting takes"
    head = [
        f"the last step took {format_seconds(measured.seconds)}, predicted {format_seconds(forecast.seconds)}{share}"
        f"{warm}",
        *([forecast.caution] if forecast.caution else []),
        overlap_words(item, measured),
        "seconds of all devices together:",
    ]
    return numbers, [*head, *render(beside_table(rows), width=100).splitlines()]


def beside_table(rows: list[Beside]) -> Table:
    table = Table("operator", "measured", "predicted", "predicted / measured", "times", box=None, header_style="bold")
    for row in rows[:24]:
        ratio = f"{row.predicted / row.measured:.2f}" if row.measured and row.predicted else "-"  # a view takes no time
        table.add_row(row.name, format_seconds(row.measured), format_seconds(row.predicted), ratio, str(row.count))
    if len(rows) > 24:
        rest = rows[24:]
        own, told = sum(row.measured for row in rest), sum(row.predicted for row in rest)
        table.add_row(
            f"{len(rest)} more", format_seconds(own), format_seconds(told), f"{told / own:.2f}" if own else "-"
        )
    return table


def measured_steps(item: Plan, progress: Observe) -> Timeline:
    """The second step on this host's processes, on random data: the first compiles kernels and fills caches."""
    if why := refusal_alone("--measure"):
        raise PlanError(f"{why}, or measure the ranks by girih run --measure")
    progress("start workers", 0.0)
    with item.start(measure=True) as running:
        for number in range(2):
            progress(f"measure step {number + 1} of 2", number / 2)
            running.step(random_batch(item, number))
        return running.timeline()


def simulation_numbers(item: Plan, prediction: Prediction) -> dict[str, Any]:
    """What `girih simulate --json` prints."""
    result = prediction.simulation
    busy = result.timeline.busy() / result.seconds if result.seconds else result.timeline.busy()
    return {
        "machine": prediction.machine.name,
        "seconds": result.seconds,
        "bound": item.certificate.bound if item.objective == "time" else None,
        "busiest": vars(result.busiest),
        "computing": [round(float(share), 6) for share in busy],
        "tasks": result.tasks.tasks,
        "resolution": result.resolution,
        "sources": prediction.sources,
        "caution": prediction.caution,
        "bytes": int(item.bytes_received.sum()),
        "peak": item.peak,
    }


def simulation_table(item: Plan, prediction: Prediction) -> list[Any]:
    """What `girih simulate` prints: lines and a table of devices."""
    result = prediction.simulation
    timeline = result.timeline
    links = timeline.streams[1:]
    measured = any(prediction.sources.get(name) for name in ("measured", "calibrated"))
    heads = [name if links.count(name) == 1 else f"{name} (axis {axis})" for axis, name in enumerate(links)]
    table = Table("device", "computing", "share", *(f"receiving, {head}" for head in heads), box=None)
    busy = [timeline.busy(stream) for stream in range(len(timeline.streams))]
    for device in range(timeline.devices):
        if timeline.devices > 16 and 8 <= device < timeline.devices - 1:
            continue
        share = busy[0][device] / result.seconds if result.seconds else 0.0
        table.add_row(
            str(device),
            format_seconds(float(busy[0][device])),
            f"{share:.0%}",
            *(format_seconds(float(other[device])) if other[device] else "nothing" for other in busy[1:]),
        )
    head = [
        f"{item.origin.model or 'program'} on {prediction.machine}: a step takes {format_seconds(result.seconds)}",
        f"busiest: {result.busiest.name}, {result.busiest.share:.0%} of the step; "
        f"operators priced: {prediction.priced_by}",
        overlap_words(item, timeline),
    ]
    if measured:
        head.append("what `girih calibrate` measured was used; `girih calibrate --forget` removes it")
    head += [prediction.caution] if prediction.caution else []
    if item.objective == "time":
        head.append(
            f"no plan takes less than {format_seconds(item.certificate.bound)} ({item.certificate.how}): "
            f"gap {format_gap(item.gap)}"
        )
    return [*head, table]
