"""What planning under a memory limit does: programs written, walks of liveness, task graphs, CPU seconds.

What: the training steps of ResNet-50 (batch 16, 60 % of what it needs), WResNet-152-10 and NASNet (batch 64, 16 GB) on
one V100 of a p3.8xlarge, whose host tensors can be moved to; `--quick`: resnet-tiny on this host, 60 %.
How: `girih.plan(memory=…, objective="bytes")` once for each, its graph captured before; loading the machine code in
Numba's cache counts. Counted are, while it plans: divisions lowered, Programs, walks of liveness over a program,
Lifetimes (by a walk, or derived), task graphs that were simulated, and simulations of whole programs. CPU seconds are
of this process with all its threads, beside those of the planner that wrote and walked a Program for each candidate, in
November 2026 on two cores of an EPYC of the third generation: on another machine only counts can be compared.
Against: the floor is the most walks of liveness for one plan; each division is lowered once, and the step takes no
longer than that of the earlier planner.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured, note, timed

CASES = (  # model, batch, machine, limit (a share of what it needs, or bytes), CPU and simulated seconds then
    ("resnet-50", 16, "p3.8xlarge", 0.6, 11.3, 0.05564142599268962),
    ("wresnet-152-10", 64, "p3.8xlarge", 16e9, 27.3, 31.889207746683496),
    ("nasnet-25-168-331", 64, "p3.8xlarge", 16e9, 89.9, 4.740169771011097),
)
QUICK = (("resnet-tiny", None, "local:1", 0.6, 6.3, 0.0355383),)
NEAR = 1e-3
"""Of the seconds of a step: what a machine's prices of this host may differ by."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts what is made of these kinds, and how often these functions are called, while it lasts."""
    import girih.plans.predict
    import girih.program.passes
    from girih.program.life.accounts import Tracker
    from girih.program.life.lifetimes import Lifetimes
    from girih.program.program import Program
    from girih.simulate.tasks import TaskGraph

    counts: Counter[str] = Counter()
    places: list[tuple[Any, str, str]] = [
        (Program, "__init__", "programs"),
        (Tracker, "__init__", "walks"),
        (Lifetimes, "__init__", "lifetimes"),
        (TaskGraph, "__init__", "task graphs"),
        (girih.program.passes, "lower", "lowered"),
        (girih.plans.predict, "simulate", "simulated"),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]

    def counting(function: Any, key: str) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            counts[key] += 1
            return function(*arguments, **options)

        return called

    for (owner, name, key), (_, _, function) in zip(places, before, strict=True):
        setattr(owner, name, counting(function, key))
    try:
        yield counts
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def measure(options: argparse.Namespace) -> Report:
    from girih.api import plan_graph

    rows: list[Row] = []
    misses: list[str] = []
    for name, batch, where, share, cpu, seconds in QUICK if options.quick else CASES:
        if options.model and name not in options.model:
            continue
        graph = captured(name, batch)
        given: dict[str, Any] = {"machine": where, "compare": (), "objective": "bytes"}
        ideal = plan_graph(graph, memory="unlimited", **given)
        cap = int(ideal.peak * share if share < 1 else share)
        with counted() as counts:
            plan, took = timed(plan_graph, graph, memory=cap, **given)
        assert plan.predicted.simulated is not None
        assert plan.peak <= cap
        row: Row = {
            "model": name if batch is None else f"{name}@{batch}",
            "nodes": len(graph.nodes),
            "limit / needs": round(cap / ideal.peak, 3),
            **{key: counts[key] for key in ("lowered", "programs", "walks", "lifetimes", "task graphs", "simulated")},
            "CPU s": round(took.cpu, 1),
            "CPU s then": cpu,
            "step s": plan.predicted.simulated,
            "bound s": plan.predicted.memory_bound,
        }
        rows.append(row)
        note(row)
        if counts["walks"] > options.floor:
            misses.append(f"{name}: {counts['walks']} walks of liveness, floor {options.floor:g}")
        if counts["lowered"] > 1:
            misses.append(f"{name}: one division was lowered {counts['lowered']} times")
        if not options.quick and plan.predicted.simulated > seconds * (1 + NEAR):
            misses.append(f"{name}: a step of {plan.predicted.simulated:.6g} s, {seconds:.6g} s then")
    keys = list(rows[0])
    return Report(
        "Planning under a memory limit",
        tuple((key, key) for key in keys),
        tuple(rows),
        ", ".join(f"{row['model']} {row['CPU s']} CPU s and {row['walks']} walks" for row in rows),
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", action="append", metavar="NAME", help="only this model; may be repeated")


BENCHMARK = Benchmark(
    "capped_planning", __doc__ or "", measure, 10.0, "most walks of liveness for one plan", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
