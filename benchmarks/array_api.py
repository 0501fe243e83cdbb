"""How much of the Python array API standard girih.array keeps, by an outside judge.

What: the share of tests that pass. `--suite DIR` is a checkout of the public suite (data-apis/array-api-tests, with its
submodule), which runs on `girih.array` itself, without a compatibility layer, and on NumPy beside it; skipped tests are
listed with their reasons and count for nothing. Without a checkout it is girih's own tests: every function, operator
and extension of the standard on `--examples` random calls against array-api-strict, on one worker and on three.
Against: NumPy's share in the same run of the suite (it does not pass all of it).
The floor: `--floor` of the tests that ran.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from benchmarks.common import Benchmark, Report, Row

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "tests" / "array" / "standard"
USAGE_ERROR = 4  # pytest's code for options that it does not know
MOST_NAMES = 30


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", type=Path, metavar="DIR", help="a checkout of data-apis/array-api-tests")
    parser.add_argument(
        "--examples", type=int, metavar="N", help="random calls of each function (default: 200; own 20)"
    )
    parser.add_argument("--select", metavar="WORDS", help="only tests whose names fit, as pytest's -k")


def measure(given: argparse.Namespace) -> Report:
    examples = given.examples or (1 if given.quick else 200 if given.suite else 20)
    select = given.select or ("workers3 or not workers" if given.quick and given.suite is None else None)
    found = outcomes(given.suite, examples, select)
    groups = sorted({group for group, *_ in found})
    rows: list[Row] = [row(group, [what for name, _, what, _ in found if name == group]) for group in groups]
    rows.append(row("all", [what for _, _, what, _ in found]))
    both: set[str] = set()
    if given.suite is not None:
        known = outcomes(given.suite, examples, select, "numpy")
        both = {name for _, name, what, _ in known if what == "failed"}
        for item in rows:
            of_numpy = [what for name, _, what, _ in known if item["group"] in (name, "all")]
            item["numpy"] = row("", of_numpy)["share"]
    share = rows[-1]["share"]
    failed = [name for _, name, what, _ in found if what == "failed"]
    reasons = Counter(reason for _, _, what, reason in found if what == "skipped")
    notes = [f"skipped: {count} × {reason}" for reason, count in reasons.most_common()]
    notes += [f"failed{' (by NumPy, too)' if name in both else ''}: {name}" for name in failed[:MOST_NAMES]]
    if len(failed) > MOST_NAMES:
        notes.append(f"and {len(failed) - MOST_NAMES} more failed")
    judge = f"the public suite in {given.suite}" if given.suite else "girih's own tests against array-api-strict"
    summary = f"{share:.1%} of {rows[-1]['ran']} tests of the array standard pass, {examples} examples each; {judge}"
    misses = [] if share >= given.floor else [f"{summary}; floor {given.floor:.0%}"]
    columns = (
        ("tests", "group"),
        ("passed", "passed"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("share", "share"),
        *((("NumPy's", "numpy"),) if given.suite is not None else ()),
    )
    return Report(f"The array API standard on girih.array: {judge}", columns, tuple(rows), summary, tuple(misses),
                  tuple(notes))  # fmt: skip


def row(group: str, results: list[str]) -> Row:
    count = Counter(results)
    ran = count["passed"] + count["failed"]
    return {
        "group": group,
        "passed": count["passed"],
        "failed": count["failed"],
        "skipped": count["skipped"],
        "ran": ran,
        "share": round(count["passed"] / ran, 4) if ran else 1.0,
    }


def outcomes(
    suite: Path | None, examples: int, select: str | None, module: str = "girih.array"
) -> list[tuple[str, str, str, str]]:
    """(group, test, passed or failed or skipped, reason) of every test. module: what the public suite runs on.

    Raises:
        FileNotFoundError: the suite is not there. RuntimeError: pytest ran no tests.
    """
    folder = OWN if suite is None else suite / "array_api_tests"
    if not folder.is_dir():
        raise FileNotFoundError(f"{suite} has no folder array_api_tests: expected a checkout of array-api-tests")
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(folder)]
        command += [] if select is None else ["-k", select]
        count = ["--examples", str(examples)] if suite is None else ["--max-examples", str(examples)]
        done = run(command + count + ([] if suite is None else ["--disable-deadline"]), suite, module)
        if done.returncode == USAGE_ERROR and suite is not None:
            done = run(command + count, suite, module)
        if not report.exists():
            raise RuntimeError(f"pytest ran no tests in {folder}: {last_line(done)}")
        found = [outcome(case) for case in ET.parse(report).iter("testcase")]
    if not found:
        raise RuntimeError(f"pytest found no tests in {folder}: {last_line(done)}")
    return found


def run(command: list[str], suite: Path | None, module: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(item for item in (str(ROOT), os.environ.get("PYTHONPATH")) if item)
    environment = {**os.environ, "ARRAY_API_TESTS_MODULE": module, "PYTHONPATH": path}
    folder = ROOT if suite is None else suite
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def outcome(case: ET.Element) -> tuple[str, str, str, str]:
    group, name = case.get("classname", "").rpartition(".")[2], case.get("name", "")
    for what in ("failure", "error"):
        if case.find(what) is not None:
            return group, f"{group}::{name}", "failed", ""
    skipped = case.find("skipped")
    if skipped is not None:
        return group, f"{group}::{name}", "skipped", skipped.get("message", "").splitlines()[0]
    return group, f"{group}::{name}", "passed", ""


BENCHMARK = Benchmark("array_api", __doc__ or "", measure, 0.97, "share of the tests that ran", options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
