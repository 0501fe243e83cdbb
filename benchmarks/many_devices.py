"""Searching for 64 and for 1,024 devices, and by simulated time for 4,096.

What: the `exact` search after capture for WResNet-152-10, a GPT of 48 layers of width 1024 (sequences of 512, a
vocabulary of 50,304) and Llama-3-8B (sequences of 2048), each with SGD with momentum and one sample for each device,
on 8 hosts of 8 GPUs (mesh 8×8) and on 128 hosts of 8 (mesh 128×8), under `--objective` seconds (default) or bytes.
How: each case once, with memos emptied before; CPU and wall seconds of the search (pricing and searching).
Against: Tofu's search is for 8 workers (Table 1: 8.3 s for WResNet-152-10); it grows with each doubling by one step.
The floor is CPU seconds for each search. The gap is stated and has no floor: a search that ends by time tells how far
from the optimum its plan can be at most.

With `--objective time`: Llama-3-8B on 512 hosts of 8 H100 (mesh 512×8), one sample for each device; after capture
everything that `girih.plan(…, objective="time")` does: the exact search over tables, lowering, pricing, simulation,
a lower bound on any plan, and other plans and chains as far as `--seconds` (default 40) allow. The floor is wall
seconds, 60 by default.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common import (
    Benchmark,
    Report,
    Row,
    captured,
    forget,
    note,
    objective,
    searched,
    timed,
    times,
    warm_up,
)

MODELS: tuple[tuple[str, dict[str, Any], float | None], ...] = (
    # model, options, Tofu's seconds for 8 workers
    ("wresnet-152-10", {}, 8.3),
    ("gpt-48-1024", {"sequence": 512, "vocabulary": 50304}, None),
    ("llama-8b", {}, None),
)
MACHINES = (("8x8", 64), ("128x8", 1024))
TIME_CASES: tuple[tuple[str, str], ...] = (("llama-8b", "h100-cluster:512/8"),)
QUICK_TIME_CASES = (("gpt-tiny", "h100-cluster:8/8"),)
FLOORS = {"seconds": 10.0, "bytes": 10.0, "time": 60.0}  # seconds: CPU for searches over tables, wall for `time`
SECONDS = {"seconds": 5.0, "bytes": 5.0, "time": 40.0}
QUICK_MODELS: tuple[tuple[str, dict[str, Any], float | None], ...] = (("gpt-tiny", {}, None),)


def measure(options: argparse.Namespace) -> Report:
    floor = FLOORS[options.objective] if options.floor is None else options.floor
    seconds = SECONDS[options.objective] if options.seconds is None else options.seconds
    return (
        measure_time(options, seconds, floor)
        if options.objective == "time"
        else measure_tables(options, seconds, floor)
    )


def measure_time(options: argparse.Namespace, seconds: float, floor: float) -> Report:
    """The fastest plan by simulation, end to end."""
    from girih.api import plan_graph
    from girih.machine import machine

    warm_up("8x8")
    plan_graph(captured("mlp-tiny"), machine="h100-cluster:2/8", objective="time", search="exact:seconds=5")
    rows: list[Row] = []
    for name, where in QUICK_TIME_CASES if options.quick else TIME_CASES:
        if options.models and name not in options.models:
            continue
        forget()
        count = machine(where).devices
        graph = captured(name, count)
        made, timing = timed(
            plan_graph, graph, machine=where, memory="unlimited", objective="time", search=f"exact:seconds={seconds}"
        )
        found = made.certificate
        rows.append(
            {
                "case": f"{name}, batch {count}, on {where}",
                "devices": count,
                "nodes": len(graph.nodes),
                "cpu": round(timing.cpu, 2),
                "wall": round(timing.wall, 2),
                "cost": found.cost,
                "bound": found.bound,
                "gap": f"{found.gap:.1%}",
                "judged": sum(key.startswith("seconds, ") for key in found.statistics),
                "by": found.statistics["found by"],
                "proposals": found.statistics["proposals"],
                "stopped": found.stopped,
            }
        )
        note(rows[-1])
    misses = [f"{row['case']} took {row['wall']} s, floor {floor:g}" for row in rows if row["wall"] > floor]
    columns = (
        ("case", "case"),
        ("devices", "devices"),
        ("nodes", "nodes"),
        ("wall s", "wall"),
        ("CPU s", "cpu"),
        ("step, simulated s", "cost"),
        ("bound, s", "bound"),
        ("gap", "gap"),
        ("plans simulated", "judged"),
        ("found by", "by"),
        ("proposals", "proposals"),
        ("stopped", "stopped"),
    )
    return Report(
        "The fastest plan by simulation, after capture",
        columns,
        tuple(rows),
        f"{len(rows)} searches by simulated time in at most {max((row['wall'] for row in rows), default=0)} s",
        tuple(misses),
    )


def measure_tables(options: argparse.Namespace, seconds: float, floor: float) -> Report:
    warm_up("8x8")
    rows: list[Row] = []
    for name, overrides, paper in QUICK_MODELS if options.quick else MODELS:
        if options.models and name not in options.models:
            continue
        for devices, count in MACHINES:
            forget()
            graph = captured(name, count, **overrides)
            aim = objective(options.objective, devices)
            found, timing = timed(searched, "exact", graph, aim, seconds)
            certificate = found.certificate
            rows.append(
                {
                    "case": f"{name}, batch {count}, on {devices}",
                    "devices": count,
                    "nodes": len(graph.nodes),
                    "cpu": round(timing.cpu, 2),
                    "wall": round(timing.wall, 2),
                    "price": certificate.statistics["seconds to price"],
                    "search": certificate.statistics["seconds to search"],
                    "cost": certificate.cost,
                    "gap": f"{certificate.gap:.2%}",
                    "stopped": certificate.stopped,
                    "paper": f"{paper} s for 8" if paper else None,
                    "ratio": times(timing.cpu, paper) if paper else None,
                }
            )
            note(rows[-1])
    misses = [f"{row['case']} took {row['cpu']} CPU s, gap {row['gap']}" for row in rows if row["cpu"] > floor]
    columns = (
        ("case", "case"),
        ("devices", "devices"),
        ("nodes", "nodes"),
        ("search CPU s", "cpu"),
        ("wall s", "wall"),
        ("pricing (wall)", "price"),
        ("searching (wall)", "search"),
        (f"cost ({options.objective})", "cost"),
        ("gap", "gap"),
        ("stopped", "stopped"),
        ("Tofu, Table 1", "paper"),
        ("paper's / ours", "ratio"),
    )
    return Report(
        "Search for 64 and 1,024 devices, after capture",
        columns,
        tuple(rows),
        f"{len(rows)} searches in at most {max((row['cpu'] for row in rows), default=0)} CPU s; gaps "
        + ", ".join(row["gap"] for row in rows),
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(floor=None)
    parser.add_argument("--seconds", type=float, help="wall seconds that a search may take (default 5; `time`: 40)")
    parser.add_argument("--objective", choices=tuple(FLOORS), default="seconds")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")


BENCHMARK = Benchmark(
    "many_devices",
    __doc__ or "",
    measure,
    FLOORS["seconds"],
    f"CPU seconds for each search; under `--objective time` wall seconds, {FLOORS['time']:g} if not given",
    add_options,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
