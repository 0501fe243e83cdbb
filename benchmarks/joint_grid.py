"""The joint search beside the best of all settings of a standard grid, each planned and simulated under the same limit.

What: simulated seconds of a step within 100, 60 and 35 % of the memory that the free plan needs. The grid is what a
careful user of Megatron-LM, DeepSpeed or Mist reaches, as far as girih's own baselines express it: data parallelism
with state copied (`data`) or sharded (`sharded`), Megatron-LM's tensor parallelism over every number of devices with
data parallelism outside of it (`megatron:tensor=N`), GPipe's and 1F1B's pipelines, layers on devices (`model`); each
with the batch in one to so many micro-batches; and, where that exceeds the limit, each with activation checkpointing
(`sqrt`, `chain`) or offloading (`vdnn`, `lms`, `odswap`). Not in it, since nothing here expresses them: stages that are
divided themselves, and state sharded beside tensor parallelism. Against: the best of `--search joint` for each number
of micro-batches, which it does not choose itself. Mist (EuroSys 2025) reports 1.28 times Megatron-LM. The floor: never
slower than the grid's best, in any case, and this geometric mean of the ratios. Settings that keep the limit are
counted, with those that do not; models of the issue that are left out are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, clock, note, since, timed

CASES: tuple[tuple[str, int | None, str, dict[str, Any]], ...] = (
    ("mlp-tiny", None, "titanx-40g:2", {}),
    ("lenet", 256, "titanx-40g:2", {}),
    ("gpt-tiny", 256, "titanx-40g:4", {}),
    ("bert-tiny", 256, "titanx-40g:4", {}),
    ("llama-tiny", 64, "titanx-40g:4", {}),
)
LEFT_OUT = (
    "GPT-2 XL, Llama 3 8B, a Mixtral-like mixture of experts, ViT-L and a DLRM on dgx-v100, 2x4, 8x8 and 4 × RTX 4090: "
    "enumerating the grid takes hours of one core"
)
SHARES = (1.0, 0.6, 0.35)
COUNTS = (1, 2, 4)
HOLDS = ("sqrt", "chain", "vdnn", "lms", "odswap")
NEVER_WORSE = 1 - 1e-9


def divisions(devices: int) -> Iterator[str]:
    yield from ("data", "sharded", "pipeline", "pipeline-1f1b", "model", "one-weird-trick")
    yield from (f"megatron:tensor={width}" for width in range(2, devices + 1))


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


def setting(graph: Any, machine: str, cap: int, search: str) -> Iterator[tuple[str, float]]:
    """(words, seconds) of one division within the limit: as it is, or else held in each of the published ways; infinite
    where it cannot be."""
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    for hold in ("none", *HOLDS):
        try:
            plan = plan_graph(graph, machine=machine, memory=cap, search=search, hold=hold)
        except PlanError:
            yield f"{search}, {hold}", float("inf")
            continue
        yield search if hold == "none" else f"{search}, {hold}", plan.certificate.cost
        if hold == "none":
            return


def case(graphs: dict[int, Any], machine: str, cap: int, seconds: float) -> Row:
    from girih.api import plan_graph
    from girih.machine import machine as machine_of
    from girih.plans.plan import PlanError

    began = clock()
    tried = [
        (took, f"{count} micro-batches, {words}" if count > 1 else words)
        for count, graph in graphs.items()
        for search in divisions(machine_of(machine).devices)
        for words, took in setting(graph, machine, cap, search)
    ]
    grid, words = min(tried)
    row: Row = {"grid": grid, "setting": words if grid < float("inf") else "none fits"}
    row |= {"settings": len(tried), "that fit": sum(took < float("inf") for took, _ in tried)}
    row["grid CPU"] = round(since(began).cpu, 1)
    joint, cpu = float("inf"), 0.0
    for count, graph in graphs.items():
        try:
            plan, timing = timed(plan_graph, graph, machine=machine, memory=cap, search=f"joint:seconds={seconds}")
        except PlanError:
            continue
        cpu += timing.cpu
        if (took := plan.certificate.cost) < joint:
            joint, by = took, plan.certificate.statistics["found by"]
            row |= {"joint": joint, "micro-batches": count, "by": by, "gap": f"{plan.certificate.gap:.0%}"}
    ratio = 1.0 if grid == joint == float("inf") else grid / joint
    return {**row, "joint": joint, "ratio": ratio, "joint CPU": round(cpu, 1)}


def measure(options: argparse.Namespace) -> Report:
    from girih.api import plan_graph

    rows: list[Row] = []
    for name, batch, machine, sizes in CASES[:1] if options.quick else CASES:
        graph = captured(name, batch, **sizes)
        free = plan_graph(graph, machine=machine, compare=())
        graphs = {count: cut(graph, count) for count in (COUNTS[:1] if options.quick else COUNTS)}
        graphs = {count: item for count, item in graphs.items() if item is not None}
        for share in (0.6,) if options.quick else SHARES:
            known = {"model": name, "machine": machine, "memory": f"{share:.0%}"}
            seconds = 2.0 if options.quick else options.seconds
            rows.append(known | case(graphs, machine, int(share * free.peak), seconds))
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
        (f"left out: {LEFT_OUT}",),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of work of each joint search (default 30)")


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
