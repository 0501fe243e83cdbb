"""The first minute with girih: what commands take, as ratios to importing PyTorch.

What: processes of `girih models`, `machines`, `ops`, `show` of a plan of gpt-tiny, and `plan gpt-tiny` for two processes
of this host; that once with Numba's machine code kept from before, and once with an empty folder for it, as in the first
run after installation (compiled Python files are there, as pip writes them).
How: rounds in which every command and `python -c "import torch"` run once, one after another; of each the median of wall
seconds, and its ratio to that of importing PyTorch. CPU seconds, of all threads and child processes, are shown beside.
Against: importing PyTorch on the same machine in the same rounds. A floor is what the ratio may be: 0.5 for `models`,
`machines` and `show`, 0.8 for `ops`, 2 for `plan`, 4 for the first `plan`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import Benchmark, Report, Row, Timing, note, repeats_option

TORCH = "import torch"
PLAN = ("plan", "gpt-tiny", "--machine", "local:2")
FLOORS = {"models": 0.5, "machines": 0.5, "ops": 0.8, "show": 0.5, "plan": 2.0, "plan, first": 4.0}


def measure(options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = str(folder / "plan.json")
        commands = {
            TORCH: ("-c", TORCH),
            **{name: ("-m", "girih", name) for name in ("models", "machines", "ops")},
            "show": ("-m", "girih", "show", saved),
            "plan": ("-m", "girih", *PLAN, "-o", saved),
            "plan, first": ("-m", "girih", *PLAN),
        }
        taken(commands["plan"], folder / "kept")  # compiles, and writes the plan that `show` reads
        found: dict[str, list[Timing]] = {name: [] for name in commands}
        for number in range(1 if options.quick else options.repeats):
            for name, command in commands.items():
                compiled = folder / (f"empty {number}" if name == "plan, first" else "kept")
                found[name].append(taken(command, compiled))
    return _report(found, options.floor)


def taken(arguments: tuple[str, ...], compiled: Path) -> Timing:
    """What a process takes; compiled: the folder of Numba's machine code."""
    surroundings = {**os.environ, "NUMBA_CACHE_DIR": str(compiled)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=surroundings, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Timing(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began)


def _report(found: dict[str, list[Timing]], slack: float) -> Report:
    walls = {name: statistics.median(item.wall for item in timings) for name, timings in found.items()}
    rows: list[Row] = []
    misses = []
    for name, timings in found.items():
        ratio = walls[name] / walls[TORCH]
        floor = FLOORS[name] * slack if name in FLOORS else None
        rows.append(
            {
                "command": name,
                "wall": round(walls[name], 3),
                "cpu": round(statistics.median(item.cpu for item in timings), 3),
                "least": round(min(item.wall for item in timings), 3),
                "most": round(max(item.wall for item in timings), 3),
                "ratio": round(ratio, 2),
                "floor": floor,
            }
        )
        note(rows[-1])
        if floor is not None and ratio > floor:
            misses.append(f"{name} takes {ratio:.2f} of importing PyTorch, floor {floor:g}")
    columns = (
        ("command", "command"),
        ("wall s, median", "wall"),
        ("least", "least"),
        ("most", "most"),
        ("CPU s", "cpu"),
        ("of importing PyTorch", "ratio"),
        ("floor", "floor"),
    )
    words = ", ".join(f"{row['command']} {row['ratio']}" for row in rows[1:])
    return Report("First use, by importing PyTorch", columns, tuple(rows), words, tuple(misses))


BENCHMARK = Benchmark("first_use", __doc__ or "", measure, 1.0, "times the ratios that are allowed", repeats_option)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
