"""Training throughput with too little memory, against the ideal of infinite memory: SwapAdvisor, figure 5.1, simulated.

What: the five models of the figure, at its largest batch and, for images, at 16; one V100 with 16 GB, PCIe at 10 GB/s
each way, a host with 244 GB (p3.8xlarge, as the thesis §5.1 has it for what needs more than 61 GB). How: the simulated
step of the plan that `girih.plan(memory="16GB")` finds, after at most 45 s of search, against the step that needs no
movements: its share is the throughput. Against: the shares that the thesis's text gives for SwapAdvisor (§5.2; what it
says of ranges is taken at the upper end), and, in a second table, the published ways of `girih.published.memory` on
the same simulator, each in its better order: ODSwap, TensorFlow LMS, vDNN, layer by layer, TensorFlowMem, checkpointing
by square root and by the optimum for chains; where one cannot keep 16 GB, what it needs. WResNet-152-4 is the largest
model that TensorFlow LMS runs (figure 5.2). Beside ours the lower bound for the plan's order, with recomputing. All of
it also with operators that take 0.7 and 1.5 times as long, to see what depends on girih's prices. NASNet has 168
filters and images of 331: its tensors then need 174 GB, nearest to the 193 GB of table 5.1. Floors: no share below the
thesis's, nor below a published way's; each within 3 % of the bound, or its gap is shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured, note

CAP = 16_000_000_000
MACHINE = "p3.8xlarge"
MODELS = (  # batch, share of the ideal in the thesis
    ("wresnet-152-10", 64, 0.95),
    ("inception4-4", 64, 0.65),
    ("inception4-4", 16, 0.80),
    ("nasnet-25-168-331", 64, 0.53),
    ("nasnet-25-168-331", 16, 0.80),
    ("rnn-8-8k", 256, 0.80),
    ("brnn-4-8k", 128, 0.80),
    ("wresnet-152-4", 64, None),
)
QUICK = (("alexnet", 256, None),)
TIMES = (1.0, 0.7, 1.5)
NEAR = 0.03


def slower(machine: Any, factor: float) -> Any:
    """The machine whose operators take this much longer."""
    device = machine.device
    rates = {
        "flops_per_second": device.flops_per_second / factor,
        "memory_bytes_per_second": device.memory_bytes_per_second / factor,
    }
    return replace(machine, device=replace(device, **rates))


def published(plan: Any, name: str) -> float | str:
    """The share of the ideal throughput of a published way, or what it needs where it cannot keep the limit."""
    from girih.plans.plan import PlanError
    from girih.plans.predict import predict
    from girih.search.memory.published import held_as_published
    from girih.search.table import baseline_of

    plain = plan.but(pieces=(), sequence=None, residency=())
    try:
        held = held_as_published(
            plain, baseline_of(name), [plain], order="auto", store=None, note=lambda what, share: None
        )
    except PlanError as error:
        return f"needs {str(error).partition('which needs ')[2].partition(' (')[0]}"
    assert held.peak <= plan.memory
    return round(plan.predicted.unlimited / predict(held, memory=False).seconds, 3)


def measure(options: argparse.Namespace) -> Report:
    from girih.api import plan_graph
    from girih.machine import machine
    from girih.report.tables import copied_bytes

    rows: list[Row] = []
    beside: list[Row] = []
    misses, notes = [], []
    models = QUICK if options.quick else MODELS
    known = [f"{name}@{batch}" for name, batch, _ in models]
    if unknown := set(options.model or ()).difference(known):
        raise SystemExit(f"no model {', '.join(sorted(unknown))}: expected some of {', '.join(known)}")
    for name, batch, thesis in models:
        if options.model and f"{name}@{batch}" not in options.model:
            continue
        graph = captured(name, batch)
        for factor in TIMES[:1] if options.quick or options.once else TIMES:
            where = slower(machine(MACHINE), factor)
            ideal = plan_graph(graph, machine=where, memory="unlimited", compare=(), objective="bytes")
            cap = ideal.peak * 8 // 10 if options.quick else CAP
            began = time.perf_counter()
            plan = plan_graph(graph, machine=where, memory=cap, compare=(), objective="bytes")
            took = time.perf_counter() - began
            told = plan.predicted
            assert told.simulated is not None
            assert told.memory_bound is not None
            assert plan.peak <= cap
            share, gap = told.unlimited / told.simulated, told.simulated / told.memory_bound - 1
            out, back = copied_bytes(plan)
            row: Row = {
                "model": f"{name}@{batch}",
                "times": factor,
                "needs GB": round(ideal.peak / 1e9, 1),
                "ideal s": round(told.unlimited, 3),
                "girih s": round(told.simulated, 3),
                "share": round(share, 3),
                "thesis": thesis,
                "bound s": round(told.memory_bound, 3),
                "gap": round(gap, 3),
                "out GB": round(out / 1e9, 1),
                "in GB": round(back / 1e9, 1),
                "again": len(plan.choice.sequence or ()) - len(set(plan.choice.sequence or ())),
                "search s": round(took, 1),
            }
            rows.append(row)
            note(row)
            if factor == 1.0:
                others: Row = {other: published(plan, other) for other in options.baselines.split(",") if other}
                beside.append({"model": row["model"], "girih": row["share"], "thesis": thesis, **others})
                note(beside[-1])
                for other, value in others.items():
                    if isinstance(value, float) and value > row["share"]:
                        misses.append(f"{name}@{batch}: {share:.3f} of the ideal, {other} has {value:.3f}")
            if factor == 1.0 and thesis is not None and share < thesis - options.floor:
                misses.append(f"{name}@{batch}: {share:.3f} of the ideal, the thesis has {thesis}")
            if gap > NEAR:
                notes.append(f"{name}@{batch}, times × {factor}: {gap:.1%} above the lower bound")
    keys = list(rows[0])
    shares = [row["share"] for row in rows if row["times"] == 1.0]
    return Report(
        "Throughput with 16 GB, against infinite memory (simulated)",
        tuple((key, key) for key in keys),
        tuple(rows),
        f"{min(shares):.1%} to {max(shares):.1%} of the ideal throughput",
        tuple(misses),
        tuple(notes),
        (
            Report(
                "Beside published ways, shares of the ideal throughput",
                tuple((key, key) for key in beside[0]),
                tuple(beside),
                "",
            ),
        ),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    from girih.search.table import BASELINES

    parser.add_argument("--once", action="store_true", help="operators at girih's prices only")
    parser.add_argument("--model", action="append", metavar="NAME@BATCH", help="only this model; may be repeated")
    parser.add_argument(
        "--baselines", default=",".join(BASELINES), metavar="NAME,...", help="of `girih holds` (default: all; '': none)"
    )


BENCHMARK = Benchmark(
    "swap_throughput", __doc__ or "", measure, 0.0, "how far below the thesis's share", options=add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
