"""Promises that could be broken without a word: each is a program of a user's, run as a user would run it.

Every file of `benchmarks/promised/` is one: its docstring says what is promised, its exit code is 0 if that holds, and
what it writes to its error stream says what went wrong. Each runs in a process of its own, in an empty folder, with an
empty cache that all of them share (so that nothing of this user's is read, and machine code is compiled once); a
program that does not end within `--seconds` has failed, and all that it started is ended with it. Processes are
started, killed, stopped and interrupted; torchrun joins network namespaces where the machine allows it.
Floor: at most so many promises broken. `--only` names programs by a part of their names.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import Benchmark, Report, Row, note

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks" / "promised"
QUICK = ("batches", "loop_order")


def programs(only: list[str] | None, quick: bool) -> list[Path]:
    """Raises: ValueError, if a name is no part of any program's."""
    every = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
    for word in only or ():
        if not any(word in path.stem for path in every):
            raise ValueError(f"--only {word}: no program of {FOLDER.relative_to(ROOT)} has that in its name")
    if only:
        return [path for path in every if any(word in path.stem for word in only)]
    return [path for path in every if not quick or path.stem in QUICK]


def promise(program: Path) -> str:
    said = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    return " ".join(said.split("\n\n")[0].split())


def run(program: Path, surroundings: dict[str, str], seconds: float) -> Row:
    """Run one program in an empty folder. broken: why its promise does not hold, "" if it does."""
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="girih-promises-") as folder,
        open(Path(folder) / "errors", "w+", encoding="utf-8", errors="replace") as errors,
    ):
        process = subprocess.Popen(
            [sys.executable, str(program)], cwd=folder, env=surroundings, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
        errors.seek(0)
        lines = errors.read().rstrip().splitlines()
    broken = "" if code == 0 else f"it did not end within {seconds:g} s" if code is None else f"exit code {code}"
    if broken and lines:
        broken = f"{broken}: {lines[-1]}"
    return {
        "program": program.stem, "promise": promise(program), "seconds": round(time.perf_counter() - began, 1),
        "broken": broken, "verdict": "broken: " + broken if broken else "kept",
    }  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """End what the program has started too: it is a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def measure(options: argparse.Namespace) -> Report:
    rows = []
    with tempfile.TemporaryDirectory(prefix="girih-promises-cache-") as cache:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        surroundings = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": cache}
        for program in programs(options.only, options.quick):
            rows.append(run(program, surroundings, options.seconds))
            note({key: rows[-1][key] for key in ("program", "seconds", "verdict")})
    broken = [f"{row['program']}: {row['broken']}" for row in rows if row["broken"]]
    columns = (("program", "program"), ("what is promised", "promise"), ("s", "seconds"), ("", "verdict"))
    misses = broken if len(broken) > options.floor else []
    return Report(
        f"{len(rows)} promises, each a program of its own", columns, tuple(rows),
        f"{len(rows) - len(broken)} of {len(rows)} promises are kept", tuple(misses),
    )  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="WORD", help="programs with one of these words in their names")
    parser.add_argument("--seconds", type=float, default=300.0, help="that a program may take (default 300)")


BENCHMARK = Benchmark("promises", __doc__ or "", measure, 0.0, "promises that may be broken", options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
