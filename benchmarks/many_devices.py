"""Searching for 64 and for 1,024 devices.

What: the `exact` search after capture for WResNet-152-10, a GPT of 48 layers of width 1024 (sequences of 512, a
vocabulary of 50,304) and Llama-3-8B (sequences of 2048), each with SGD with momentum and one sample for each device,
on 8 hosts of 8 GPUs (mesh 8×8) and on 128 hosts of 8 (mesh 128×8), under `--objective` seconds (default) or bytes.
How: each case once, with memos emptied before; CPU and wall seconds of the search (pricing and searching).
Against: Tofu's search is for 8 workers (Table 1: 8.3 s for WResNet-152-10); it grows with each doubling by one step.
The floor is CPU seconds for each search. The gap is stated and has no floor: a search that ends by time tells how far
from the optimum its plan can be at most.
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
QUICK_MODELS: tuple[tuple[str, dict[str, Any], float | None], ...] = (("gpt-tiny", {}, None),)


def measure(options: argparse.Namespace) -> Report:
    warm_up("8x8")
    rows: list[Row] = []
    for name, overrides, paper in QUICK_MODELS if options.quick else MODELS:
        if options.models and name not in options.models:
            continue
        for devices, count in MACHINES:
            forget()
            graph = captured(name, count, **overrides)
            aim = objective(options.objective, devices)
            found, timing = timed(searched, "exact", graph, aim, options.seconds)
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
    misses = [f"{row['case']} took {row['cpu']} CPU s, gap {row['gap']}" for row in rows if row["cpu"] > options.floor]
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
    parser.add_argument("--seconds", type=float, default=5.0, help="wall seconds that a search may take (default 5)")
    parser.add_argument("--objective", choices=("seconds", "bytes"), default="seconds")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")


BENCHMARK = Benchmark("many_devices", __doc__ or "", measure, 10.0, "CPU seconds for each search", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
