"""The joint search beside the best of all settings of a standard grid, each planned and simulated under the same limit.

What: simulated seconds of a step within 100, 60 and 35 % of the memory that the free plan needs. The grid is what a
careful user of Megatron-LM, DeepSpeed or Mist reaches, as far as girih's own baselines express it: data parallelism
with state copied (`data`) or sharded (`sharded`), experts on devices of their own (`experts`), Megatron-LM's tensor
parallelism over every number of devices with data parallelism outside of it, whose state is copied or sharded
(`megatron:tensor=N,state=sharded`), GPipe's and 1F1B's pipelines, with several runs of layers on each stage too, and
with stages that are divided themselves (`pipeline-1f1b:stages=N,within=megatron`), layers on devices (`model`); each
with the batch in one to so many micro-batches, which outside of pipelines go forward and backward one after the other,
as accumulated gradients do; and, where that exceeds the limit, each with activation checkpointing (`sqrt`, `chain`) or
offloading (`vdnn`, `lms`, `odswap`). Against: `--search joint`, which chooses how many micro-batches by itself. Mist
(EuroSys 2025) reports 1.28 times Megatron-LM. The floor: never slower than the grid's best, in any case, and this
geometric mean of the ratios. Settings that keep the limit are counted, with those that do not.

In slices, as `joint_models` has them. Each setting is divided once for all limits, since no limit changes what these
searches divide.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, clock, note, since, timed
from benchmarks.joint_models import freed, missing, slices, slices_options

COUNTS = (1, 2, 4)
HOLDS = ("sqrt", "chain", "vdnn", "lms", "odswap")
NEVER_WORSE = 1 - 1e-9


def divisions(devices: int) -> Iterator[str]:
    yield from ("data", "sharded", "one-weird-trick", "experts")
    for width in range(2, devices + 1):
        yield f"megatron:tensor={width}"
        if width < devices:
            yield f"megatron:tensor={width},state=sharded"


def pipelines(devices: int) -> Iterator[str]:
    yield from ("pipeline", "model", "pipeline-1f1b", "pipeline-1f1b:chunks=2")
    for stages in range(2, devices):
        yield from (f"pipeline-1f1b:stages={stages},within={within}" for within in ("data", "sharded", "megatron"))


def cut(graph: Any, count: int) -> Any | None:
    """The graph with its batch in so many micro-batches; None where it cannot be cut so."""
    from girih.capture.errors import CaptureError
    from girih.capture.micro_batches import in_micro_batches

    if count == 1:
        return graph
    try:
        return in_micro_batches(graph, count)[0]
    except CaptureError:
        return None


def grid_of(graph: Any, machine: str, counts: Sequence[int]) -> list[tuple[str, Any]]:
    """(words, plan without a limit) of every division of every number of micro-batches that there is."""
    from girih.api import plan_graph
    from girih.machine import machine as machine_of
    from girih.plans.plan import PlanError
    from girih.program.schedule import accumulating

    every, devices = [], machine_of(machine).devices
    for count in counts:
        if (parts := cut(graph, count)) is None:
            continue
        for written, searches in ((accumulating(parts), divisions(devices)), (parts, pipelines(devices))):
            for search in searches:
                try:
                    plan = plan_graph(written, machine=machine, memory="unlimited", search=search, compare=())
                except PlanError:
                    continue
                every.append((f"{count} micro-batches, {search}" if count > 1 else search, plan))
    return every


def setting(words: str, plan: Any, cap: int) -> Iterator[tuple[float, str]]:
    """(seconds, words) of one division within the limit: as it is, or else held in each of the published ways; infinite
    where it cannot be."""
    from girih.plans.plan import PlanError
    from girih.plans.predict import predict
    from girih.program import Overlap
    from girih.search.choose import hold_of
    from girih.search.memory.holding import held
    from girih.search.memory.limit import widest_overlap
    from girih.search.memory.step_seconds import simulated_seconds

    limited = plan.whole.but(memory=cap, simulated=None, overlap=Overlap())
    if limited.peak <= cap:
        limited = limited.but(overlap=widest_overlap(limited))
    if limited.peak <= cap:
        yield predict(limited, memory=False).seconds, words
        return
    for hold in HOLDS:
        try:
            kept = held(limited, hold_of(hold), store=None, note=lambda what, share: None)
            yield simulated_seconds(kept, None), f"{words}, {hold}"
        except PlanError:
            yield float("inf"), f"{words}, {hold}"


def case(known: Row, grid: list[tuple[str, Any]], graph: Any, machine: str, cap: int, seconds: float) -> Row:
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    began = clock()
    tried = [item for words, plan in grid for item in setting(words, plan, cap)]
    least, words = min(tried)
    row: Row = {**known, "grid": least, "setting": words if least < float("inf") else "none fits"}
    row |= {"settings": len(tried), "that fit": sum(took < float("inf") for took, _ in tried)}
    row["grid CPU"] = round(since(began).cpu, 1)
    try:
        search = f"joint:seconds={seconds}"
        plan, timing = timed(plan_graph, graph, machine=machine, memory=cap, search=search, compare=())
    except PlanError:
        return {**row, "joint": float("inf"), "ratio": 1.0 if least == float("inf") else 0.0, "by": "refused"}
    joint, by = plan.certificate.cost, plan.certificate.statistics["found by"]
    row |= {"micro-batches": plan.choice.micro_batches, "by": by, "gap": f"{plan.certificate.gap:.0%}"}
    return {**row, "joint": joint, "ratio": least / joint, "joint CPU": round(timing.cpu, 1)}


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    chosen = slices(options)
    counts = COUNTS[:1] if options.quick else options.counts
    for (_, machine), group in groupby(freed(chosen, options.seconds), lambda item: (id(item[1]), item[2])):
        grid: list[tuple[str, Any]] = []
        for known, graph, _, cap in group:
            if not grid:
                grid, timing = timed(grid_of, graph, machine, counts)
                note({**known, "divisions of the grid": len(grid), "CPU": timing.cpu})
            rows.append(case(known, grid, graph, machine, cap, 2.0 if options.quick else options.seconds))
            note(rows[-1])
    ratios = [row["ratio"] for row in rows if 0 < row["ratio"] < float("inf")]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else 0.0
    alone = sum(row["ratio"] == float("inf") for row in rows)
    misses = [
        f"{row['model']} on {row['machine']} at {row['memory']}: {row['joint']} s, the grid {row['grid']} s by "
        f"{row['setting']}"
        for row in rows
        if row["ratio"] < NEVER_WORSE
    ]
    if mean < options.floor and ratios:
        misses.append(f"{mean:.3f} × the grid in geometric mean, below {options.floor:g}")
    columns = ("model", "machine", "memory", "grid", "setting", "settings", "that fit", "joint", "micro-batches", "by",
               "ratio", "gap", "grid CPU", "joint CPU")  # fmt: skip
    return Report(
        "The joint search beside the best of all settings of the standard grid, simulated seconds of a step",
        tuple((words, words) for words in columns),
        tuple(rows),
        f"{mean:.3f} × in geometric mean of {len(ratios)} cases, never slower; only the joint search fits {alone}",
        tuple(misses),
        (missing(chosen),),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    slices_options(parser)
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="micro-batches (default 1 2 4)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of work of each joint search (default 60)")


BENCHMARK = Benchmark(
    "joint_grid",
    __doc__ or "",
    measure,
    1.1,
    "times the best of the grid in geometric mean, at least",
    add_options,
    quick_floor=1.0,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
