"""Joint plans under a memory limit, run: predicted and measured time of a step, beside the sequential composition's.

What: four models (an MLP, a recurrent network, a GPT, BERT; steps of some tens to hundreds of milliseconds) on one, two
and four processes of this host, each device within 60 % of the memory that the free plan needs: the plan of `--search
joint`, and the best sequential composition (`portfolio` of the graph as it is, and as proved rules make it cheapest for
one device), with as many seconds of work. The joint search begins with that composition and says what it takes, so that
it is searched again only where something else was faster. How: each machine is calibrated with the free plans'
operators before plans are searched with what was measured, and once more with the operators of the plans that were
found. The workers of both plans of a case are then started once, and the plans take turns: `--repeats` turns of each,
of `--steps` steps after two that do not count. A time is the median of all steps, from handing a batch in to the loss.
All losses are compared with PyTorch's own. Where both searches end with one program, it is run once, and its times
count as equal. Against: Mist (EuroSys 2025) reports measured steps 1.28 times as fast as Megatron-LM's. Floors: no
prediction is off by more than `--floor`; in at least five of six cases the joint plan takes at most 2 % longer than the
sequential one, which is what two runs of one plan differ by; losses differ by at most 2e-4 of themselves. Predictions
for more workers than this host has cores, and those of `--quick`, which calibrates for half a second, are shown and
held to no floor: the time of the first is that of the system's scheduling.

Two processes plan at a time, one case each; while anything is measured, neither plans. The cases of one machine come
together, so that its rows are known before the next machine is calibrated.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, repeats_option, timed
from benchmarks.joint_models import COMPOSED
from benchmarks.same_training import train_eagerly, worst_loss

SHARE, EQUAL, OFTEN, SAME = 0.6, 1.02, 5 / 6, 2e-4
WARM, RATE = 2, 0.001
PLANNING = 2
"""Cases that are planned at a time."""


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    machine: str
    options: tuple[tuple[str, int], ...] = ()

    @property
    def workers(self) -> int:
        return int(self.machine.partition(":")[2])

    @property
    def held(self) -> bool:
        """Is a prediction held to the floor?"""
        return self.workers <= (os.cpu_count() or 1)

    def __str__(self) -> str:
        return f"{self.model} on {self.machine}"

    def random(self, seed: int) -> Any:
        from girih.models import random_batch

        return random_batch(self.model, self.batch, seed=seed, **dict(self.options))

    def planned(self, search: str, memory: str | int, store: Path | None = None, rewrite: bool = False) -> Any:
        import girih

        made, step = self.step()
        return girih.plan(
            girih.TrainingStep(made.module, step=made.step, optimizer=step),
            self.random(1),
            machine=self.machine,
            memory=memory,
            search=search,
            compare=(),
            store=store,
            rewrite=rewrite,
        )

    def step(self) -> tuple[Any, Any]:
        """Its model and optimizer, on this host."""
        import torch

        from girih.models import example

        made = example(self.model, self.batch, device="cpu", **dict(self.options))
        return made, torch.optim.SGD(made.module.parameters(), lr=RATE, momentum=0.9)


SHORT = (("sequence", 128), ("vocabulary", 2048))
MODELS: tuple[tuple[str, int, tuple[tuple[str, int], ...]], ...] = (
    ("mlp-1024-1024-1024-1024", 256, ()),
    ("rnn-2-256", 64, ()),
    ("gpt-2-256", 4, SHORT),
    ("bert-2-256", 4, SHORT),
)
MACHINES = ("local:1", "local:2", "local:4")
CASES = tuple(Case(name, batch, machine, own) for machine, (name, batch, own) in product(MACHINES, MODELS))
QUICK = (Case("mlp-tiny", 64, "local:2"),)


# ------------------------------------------------------------------------------------------------- planning


def free(case: Case, folder: Path) -> Path:
    """The plan without a limit."""
    path = folder / f"{case} free.json"
    case.planned("portfolio:seconds=5", "unlimited").save(path)
    return path


def within(case: Case, cap: int, folder: Path, store: Path, seconds: float) -> tuple[Row, dict[str, Path]]:
    """What is told of both plans within the limit, and the plans. Where there is none, the row says why."""
    from girih.plans.plan import PlanError

    row: Row = {"case": str(case), "MB": round(cap / 1e6, 2)}
    try:
        plan, timing = timed(case.planned, f"joint:seconds={seconds}", cap, store)
    except PlanError as error:
        return {**row, "refused": str(error)}, {}
    except Exception as error:  # a miss of this case, which the others outlive
        traceback.print_exc()
        return {**row, "refused": f"{type(error).__name__}: {error}"}, {}
    told = plan.certificate.statistics
    row |= {"by": told["found by"], "planning CPU": round(timing.cpu, 1)}
    paths = {"joint": folder / f"{case} joint.json"}
    plan.save(paths["joint"])
    composed = [name for name in COMPOSED if f"seconds, {name}" in told]
    if told["found by"] in COMPOSED:
        return {**row, "sequential plan": "the same"}, paths
    if not composed:
        return {**row, "sequential plan": "refused"}, paths
    other = case.planned(f"portfolio:seconds={seconds}", cap, store, composed[-1] != COMPOSED[0])
    if other.program == plan.program:
        return {**row, "sequential plan": "the same"}, paths
    paths["sequential"] = folder / f"{case} sequential.json"
    other.save(paths["sequential"])
    return {**row, "sequential plan": "another"}, paths


# ------------------------------------------------------------------------------------------------- running


def measured(case: Case, plans: dict[str, Any], steps: int, turns: int) -> tuple[dict[str, list[float]], float]:
    """Seconds of each plan's steps, and by how much losses differ from PyTorch's. The plans take turns of so many
    steps, after some that do not count, from the same weights on the same batches."""
    made, _ = case.step()
    batches = [case.random(1 + number) for number in range(turns * (steps + WARM))]
    losses: dict[str, list[float]] = {name: [] for name in plans}
    times: dict[str, list[float]] = {name: [] for name in plans}
    with ExitStack() as stack:
        running = {name: stack.enter_context(plan.start(model=made.module)) for name, plan in plans.items()}
        for _ in range(turns):
            for name, run in running.items():
                for number in range(steps + WARM):
                    batch = batches[len(losses[name])]
                    began = time.perf_counter()
                    losses[name].append(float(run.step(batch, lr=RATE)))
                    if number >= WARM:
                        times[name].append(time.perf_counter() - began)
    expected, _ = train_eagerly(copy.deepcopy(made.module), made.step, batches, RATE)
    return times, max(worst_loss(own, expected) for own in losses.values())


def compared(case: Case, row: Row, plans: dict[str, Any], store: Path, steps: int, turns: int) -> Row:
    """The row with what a step was predicted to take, and what it took."""
    from girih.plans.predict import predict

    if not plans:
        return {**row, "held": case.held}
    told = {}
    for name, plan in plans.items():
        prediction = predict(plan, store=store, memory=False)
        told[name] = prediction.seconds + prediction.driver
    times, loss = measured(case, plans, steps, turns)
    took = {name: statistics.median(own) for name, own in times.items()}
    before = float("inf") if row["sequential plan"] == "refused" else took.get("sequential", took["joint"])
    return {
        **row,
        "predicted": told["joint"],
        "measured": took["joint"],
        "error": abs(told["joint"] / took["joint"] - 1),
        "held": case.held,
        "sequential predicted": told.get("sequential"),
        "sequential": before,
        "ratio": round(before / took["joint"], 3),
        "loss": loss,
    }


def calibrated(machine: str, plans: Iterable[Any], store: Path, budget: float) -> None:
    """Measure links, copies, common calls and the calls of all these plans."""
    from girih.run.calibrate.calibrate import calibrate

    programs = [plan.program for plan in plans]
    calibrate(machine, store_path=store, programs=programs, budget_seconds=budget)


def on_machine(machine: str, cases: Sequence[Case], folder: Path, options: argparse.Namespace, each: Each) -> list[Row]:
    """The rows of the cases of one machine. each: a function of all items of lists, several at a time."""
    import girih

    store = folder / "costs.sqlite"
    unlimited = [girih.load(path) for path in each(partial(free, folder=folder), cases)]
    calibrated(machine, unlimited, store, options.budget)
    caps = [int(SHARE * plan.peak) for plan in unlimited]
    found = each(partial(within, folder=folder, store=store, seconds=options.seconds), cases, caps)
    plans = [{name: girih.load(path) for name, path in paths.items()} for _, paths in found]
    calibrated(machine, [plan for own in plans for plan in own.values()], store, options.budget)
    rows = []
    for case, (row, _), own in zip(cases, found, plans, strict=True):
        rows.append(compared(case, row, own, store, options.steps, options.repeats))
        note(rows[-1])
    return rows


Each = Callable[..., list[Any]]


def misses_of(rows: list[Row], floor: float) -> tuple[str, ...]:
    ran = [row for row in rows if "measured" in row]
    misses = [f"{row['case']}: refused: {row['refused']}" for row in rows if "measured" not in row]
    misses += [f"{row['case']}: off by {row['error']:.0%}" for row in ran if row["held"] and row["error"] > floor]
    misses += [f"{row['case']}: losses differ by {row['loss']:.1e}" for row in ran if not row["loss"] <= SAME]
    slower = [f"{row['case']}: {row['ratio']}" for row in ran if row["ratio"] < 1 / EQUAL]
    if len(ran) - len(slower) < OFTEN * len(rows):
        misses.append(f"slower than the sequential plan in {len(slower)} of {len(rows)}: {', '.join(slower)}")
    return tuple(misses)


def measure(options: argparse.Namespace) -> Report:
    chosen = [
        case
        for case in (QUICK if options.quick else CASES)
        if (not options.models or case.model in options.models)
        and (not options.machines or case.machine in options.machines)
    ]
    if options.quick:
        options.budget, options.seconds, options.steps, options.repeats = 0.5, 2.0, 2, 1
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        several: Callable[..., Iterable[Any]] = map
        if len(chosen) > 1:
            context = multiprocessing.get_context("spawn")
            several = stack.enter_context(ProcessPoolExecutor(PLANNING, context)).map
        for machine in dict.fromkeys(case.machine for case in chosen):
            own = [case for case in chosen if case.machine == machine]
            rows += on_machine(machine, own, folder, options, lambda *given: list(several(*given)))
    if options.quick:  # calibrated for half a second
        rows = [{**row, "held": False} for row in rows]
    ran = [row for row in rows if "measured" in row]
    errors = [row["error"] for row in ran if row["held"]]
    told = f"{len(errors)} predicted within {max(errors):.0%}" if errors else "no prediction is held to the floor"
    others = [row for row in ran if row["sequential plan"] != "the same"]
    columns = tuple((words, words) for words in ("case", "MB", "predicted", "measured", "error", "held",
                    "sequential predicted", "sequential", "ratio", "sequential plan", "loss", "by", "planning CPU",
                    "refused"))  # fmt: skip
    left = [str(case) for case in CASES if case not in chosen]
    return Report(
        "Joint plans under a limit, run: seconds of a step, and the sequential composition's",
        columns,
        tuple(rows),
        f"{len(ran)} plans: {told}; {len(ran) - len(others)} are the sequential plan itself, and of the {len(others)} "
        f"others {sum(row['ratio'] >= 1 / EQUAL for row in others)} are as fast as it or faster",
        misses_of(rows, options.floor),
        (f"not run: {len(left)} of {len(CASES)} cases: {', '.join(left)}",) if left else (),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--machines", nargs="+", metavar="NAME", help=f"only these of {', '.join(MACHINES)}")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each plan and turn (default 10)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds to calibrate, each time (default 20)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of work of each search (default 10)")


BENCHMARK = Benchmark(
    "joint_runs", __doc__ or "", measure, 0.15, "largest relative error of a predicted step", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
