"""What a user waits for at first: commands beside `python -c "import torch"` on the same machine.

What: `girih models`, `machines` and `show` of a plan (at most 0.5 × the time of importing torch), `ops` (0.8 ×),
`plan gpt-tiny` again (2 ×) and for the first time after installation (4 ×).
How: each command is a process of its own, timed from outside by the clock on the wall; all commands in turn,
`--repeats` times; medians, divided by the median of importing torch in the same turns. For the first time after
installation girih's cache folder and Numba's are empty, Python's compiled files are there (pip makes them).
Floor: the factor by which every limit is multiplied.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import Benchmark, Report, Row, note

TORCH = "import torch"
LIMITS = {"models": 0.5, "machines": 0.5, "show": 0.5, "ops": 0.8, "plan again": 2.0, "plan first": 4.0}


def measure(options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        seconds = _seconds(Path(folder), 1 if options.quick else options.repeats, warm=not options.quick)
    torch = statistics.median(seconds.pop(TORCH))
    rows: list[Row] = []
    misses = []
    for name, limit in LIMITS.items():
        median, allowed = statistics.median(seconds[name]), limit * options.floor
        rows.append(
            {
                "case": name,
                "seconds": round(median, 2),
                "spread": f"{min(seconds[name]):.2f}-{max(seconds[name]):.2f}",
                "ratio": round(median / torch, 2),
                "limit": allowed,
            }
        )
        note(rows[-1])
        if median > allowed * torch:
            misses.append(f"{name} takes {median / torch:.2f} × importing torch, floor {allowed:g}")
    columns = (
        ("command", "case"),
        ("seconds", "seconds"),
        ("from-to", "spread"),
        ("× importing torch", "ratio"),
        ("floor", "limit"),
    )
    words = ", ".join(f"{row['case']} {row['ratio']}" for row in rows)
    title = f"First use; importing torch takes {torch:.2f} s here"
    return Report(title, columns, tuple(rows), f"{words} × importing torch", tuple(misses))


def _seconds(folder: Path, repeats: int, warm: bool) -> dict[str, list[float]]:
    """Wall seconds of each command in each turn. warm: each once before; else the plan that is shown is also
    the first one."""
    plan = str(folder / "plan.json")
    girih = [sys.executable, "-m", "girih"]
    commands = {
        TORCH: [sys.executable, "-c", TORCH],
        "models": [*girih, "models"],
        "machines": [*girih, "machines"],
        "ops": [*girih, "ops"],
        "show": [*girih, "show", plan],
        "plan again": [*girih, "plan", "gpt-tiny"],
        "plan first": [*girih, "plan", "gpt-tiny"],
    }
    known = _environment(folder / "known")
    first = _timed([*girih, "plan", "gpt-tiny", "-o", plan], known)
    for name, command in commands.items() if warm else ():  # files into the system's cache
        if name != "plan first":
            _timed(command, known)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(repeats):
        for name, command in commands.items():
            if name == "plan first" and not warm:
                seconds[name].append(first)
                continue
            fresh = _environment(folder / f"new {turn}") if name == "plan first" else known
            seconds[name].append(_timed(command, fresh))
    return seconds


def _environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": str(cache / "numba")}


def _timed(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - began


def _repeats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeats", type=int, default=5, help="turns of which medians are taken (default 5; --quick: 1)"
    )


BENCHMARK = Benchmark("first_use", __doc__ or "", measure, 1.0, "factor of all limits", _repeats)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
