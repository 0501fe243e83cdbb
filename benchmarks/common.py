"""What all benchmarks share: the command line, clocks, tables, and the last line with the verdict.

A benchmark is a function from options to a Report. Its last line on standard output is `PASS name: …` or
`FAIL name: …`; with `--json` the output is one JSON object instead, with the verdict in it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

Result = TypeVar("Result")
Row = dict[str, Any]


@dataclass(frozen=True)
class Timing:
    """Seconds: of this process's processors (all its threads), and of the clock on the wall."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{self.cpu:.2f} / {self.wall:.2f}"


@dataclass(frozen=True)
class Report:
    """What a benchmark found.

    rows: the figures, for `--json`. columns: (heading, key of the row) pairs of the table. misses: what missed the
    floor, one phrase each. summary: the verdict's words when nothing did. notes: printed under the table. parts: more
    tables, of which title, columns and rows count.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    summary: str
    misses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Report, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A named measurement with its floor; `floor` may be overruled on the command line, `help` says what it is.

    quick_floor: the floor of `--quick`, which measures something smaller.
    """

    name: str
    about: str
    measure: Callable[[argparse.Namespace], Report]
    floor: float
    floor_help: str
    options: Callable[[argparse.ArgumentParser], None] = field(default=lambda parser: None)
    quick_floor: float | None = None

    def main(self, arguments: list[str] | None = None) -> int:
        """Measure and print. 0, or 1 if the benchmark broke down or, under `--check`, missed its floor."""
        options = self._parser().parse_args(arguments)
        if options.floor is None:
            quick = options.quick and self.quick_floor is not None
            options.floor = self.quick_floor if quick else self.floor
        if not options.json:
            print(head(self.name, options), flush=True)
        began = clock()
        try:
            report = self.measure(options)
        except Exception as error:
            traceback.print_exc()
            verdict = f"FAIL {self.name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            print(json.dumps({"name": self.name, "verdict": verdict}) if options.json else verdict)
            return 1
        misses = list(report.misses)
        words = "; ".join(misses[:3]) + (f"; and {len(misses) - 3} more" if len(misses) > 3 else "")
        verdict = f"FAIL {self.name}: {words}" if misses else f"PASS {self.name}: {report.summary}"
        if options.json:
            every = [row for part in (report, *report.parts) for row in part.rows]
            found = {"name": self.name, **surroundings(), "rows": every, "misses": misses, "verdict": verdict}
            print(json.dumps(found, default=str))
        else:
            show(report)
            print(f"measured in {since(began)} CPU / wall seconds")
            print(verdict, flush=True)
        return 1 if misses and options.check else 0

    def defaults(self, quick: bool) -> argparse.Namespace:
        """The options of a run that another benchmark makes of this one."""
        options = self._parser().parse_args(["--quick"] if quick else [])
        options.floor = self.quick_floor if quick and self.quick_floor is not None else self.floor
        return options

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}",
            description=self.about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--check", action="store_true", help="exit code 1 where the floor is missed")
        parser.add_argument("--quick", action="store_true", help="small models, seconds")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
        default = f"default {self.floor:g}"
        if self.quick_floor is not None:
            default += f", {self.quick_floor:g} of --quick"
        parser.add_argument("--floor", type=float, help=f"{self.floor_help} ({default})")
        self.options(parser)
        return parser


def seconds_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of work of a search (default 60)")


def repeats_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=3, help="of which the median is taken (default 3; --quick: 1)")


# ------------------------------------------------------------------------------------------------- clocks


def clock() -> Timing:
    return Timing(time.process_time(), time.perf_counter())


def since(began: Timing) -> Timing:
    now = clock()
    return Timing(now.cpu - began.cpu, now.wall - began.wall)


def timed(work: Callable[..., Result], *arguments: Any, **options: Any) -> tuple[Result, Timing]:
    began = clock()
    made = work(*arguments, **options)
    return made, since(began)


def median(timings: Iterable[Timing]) -> Timing:
    found = list(timings)
    return Timing(statistics.median(item.cpu for item in found), statistics.median(item.wall for item in found))


def forget() -> None:
    """Empty girih's memos of shapes, so that the next search of this process is as its first.

    The catalogue of operators stays: it is read once.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("girih.") and not name.startswith("girih.ops.catalogue"):
            for attribute, item in list(vars(module).items()):
                if attribute != "catalogue" and hasattr(item, "cache_clear"):
                    item.cache_clear()


def warm_up(devices: str = "p2.8xlarge") -> None:
    """Load PyTorch, the catalogue, and Numba's machine code (compiled once on each machine) before the clock starts."""
    from girih.program import lower
    from girih.program.life.accounts import memory_use

    graph = captured("mlp-tiny")
    for name in ("bytes", "seconds"):
        aim = objective(name, devices)
        found = searched("exact", graph, aim, 20.0)
        memory_use(lower(found.graph or graph, found.strategy, aim.transfers))
    searched("exact", captured("wresnet-tiny"), objective("bytes", "local:2"), 20.0)
    forget()


# ------------------------------------------------------------------------------------------------- models


def training_step(
    name: str, batch: int | None = None, optimizer: str = "momentum", precision: str = "fp32", **overrides: Any
) -> tuple[Any, Any]:
    """(TrainingStep, batch) of a model of the catalogue on the meta device: nothing is allocated. precision: "bf16"
    computes under autocast, with state in float32."""
    import torch

    from girih.capture import TrainingStep
    from girih.models import example

    made = example(name, batch=batch, **overrides)
    rules = {
        "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
        "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    }
    autocast = torch.bfloat16 if precision == "bf16" else None
    update = rules[optimizer](made.module.parameters())
    return TrainingStep(made.module, step=made.step, optimizer=update, autocast=autocast), made.inputs


def captured(name: str, batch: int | None = None, optimizer: str = "momentum", **overrides: Any) -> Any:
    """The graph of a training step of a model of the catalogue."""
    from girih.capture import capture

    return capture(*training_step(name, batch, optimizer, **overrides)).graph


def objective(name: str, devices: str) -> Any:
    """`bytes` or `seconds` on a machine by name."""
    from girih.machine import machine
    from girih.partition.space.problem import Objective

    return Objective(name, machine(devices))


def searched(name: str, graph: Any, aim: Any, seconds: float) -> Any:
    """The SearchResult of a search by name."""
    from girih.search.table import search_of

    return search_of(name, seconds).search(graph, aim)


# ------------------------------------------------------------------------------------------------- printing


def surroundings() -> Row:
    """Where it was measured. load: runnable processes over the last minute, beside the cores that there are."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def head(name: str, options: argparse.Namespace) -> str:
    at = surroundings()
    mode = " (quick)" if options.quick else ""
    return (
        f"{name}{mode}: {at['processor']}, {at['cores']} cores, load {at['load']}; "
        f"Python {at['python']}, torch {at['torch']}"
    )


def note(row: Row) -> None:
    """Say a row as soon as it is known, on the error stream: a run that is cut short has not been for nothing."""
    known = ", ".join(f"{key} {cell(value)}" for key, value in row.items() if value not in (None, ""))
    print(f"  {known}", file=sys.stderr, flush=True)


def show(report: Report) -> None:
    table = Table(title=report.title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading, key in report.columns:
        numbers = all(isinstance(row.get(key), (int, float, Timing)) or row.get(key) is None for row in report.rows)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in report.rows:
        table.add_row(*(cell(row.get(key)) for _, key in report.columns))
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table)
    for line in report.notes:
        console.print(line, markup=False)
    for part in report.parts:
        show(part)


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def gigabytes(count: float) -> float:
    """Decimal, as Tofu counts."""
    return round(count / 1e9, 4)


def times(ours: float, theirs: float) -> str:
    """`12.3 ×`: how many times theirs is ours."""
    return f"{theirs / ours:.3g} ×" if ours > 0 else "–"
