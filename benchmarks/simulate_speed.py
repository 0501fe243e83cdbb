"""Simulating a program anew after a change, beside simulating it in full, and FlexFlow's delta simulation.

What: training steps of FlexFlow's six models at its batches (64 for each device, 256 for AlexNet) on 4 to 64 P100, 4 to
a node. As its search does (§3.5.2), it starts from data parallelism and from a random strategy, half of the proposals
each: a random operator gets a random division, the layouts of its outputs follow, and what is not slower is kept.
How: of each proposal the steps of the operator and of all readers of its outputs are lowered and priced anew (not
timed, in either way). *Delta*: the steps are replaced in the task graph, and what differs is simulated. *Full*: the
task graph of the changed program is built from nothing and simulated, for every so many-th proposal; both must give the
same makespan to the last bit. CPU seconds of one proposal, means; prices by the machine's data sheet.
Against: Table 3.4 of Jia 2020 (FlexFlow), full over delta, of whole searches on its machines.
Floors: on 64 devices full takes at least `--floor` times as long as delta for Inception-v3, ResNet-101 and NMT; and the
simulation alone, without building, takes at most 50 ms for 100,000 tasks, in every case that has as many.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, forget, note, timed
from benchmarks.proposed_changes import Changing

DEVICES = (4, 8, 16, 32, 64)
PAPER: dict[str, tuple[str, int, tuple[float, ...]]] = {
    # what it is called here: its name, samples for each device, and how many times faster delta is, by devices
    "alexnet": ("AlexNet", 256, (2.9, 3.0, 2.9, 3.0, 3.0)),
    "resnet-101": ("ResNet-101", 64, (3.2, 3.2, 3.1, 3.2, 3.3)),
    "inception": ("Inception-v3", 64, (3.4, 3.9, 5.0, 5.9, 6.9)),
    "rnntc": ("RNNTC", 64, (2.2, 2.3, 2.4, 2.6, 3.0)),
    "rnnlm": ("RNNLM", 64, (2.3, 2.5, 2.7, 3.2, 3.6)),
    "nmt": ("NMT", 64, (2.5, 2.7, 3.0, 3.8, 4.1)),
}
LARGE = ("inception", "resnet-101", "nmt")  # that have a floor, on the most devices
TASKS = 100_000
MILLISECONDS = 50.0  # for so many tasks, at most
STARTS = ("data", "random")
QUICK, QUICK_DEVICES = ("alexnet",), 16


@dataclass(frozen=True)
class Measured:
    """Of one start: CPU seconds of building, of simulating all, and of delta, means; and what was simulated."""

    tasks: int
    build: float
    simulate: float
    delta: float
    redone: float
    kept: int
    wrong: int

    @property
    def full(self) -> float:
        return self.build + self.simulate

    @property
    def hundred(self) -> float:
        """Milliseconds that simulating so many tasks takes."""
        return self.simulate * 1e3 * TASKS / self.tasks


def proposals(graph: Any, machine: Any, start: str, count: int, every: int, seed: int) -> Measured:
    """Propose and accept; each `every`-th proposal is simulated in full too."""
    from girih.partition.strategy import Strategy
    from girih.program import lower
    from girih.simulate.incremental import Simulator

    work = Changing(graph, machine, np.random.default_rng(seed))
    work.start(start)
    steps = work.lowered(range(len(graph.nodes)))
    blocks = {number: work.block(number, made) for number, made in steps.items()}
    strategy = Strategy.of_codes(machine.mesh, tuple(work.divisions), dict(work.layouts))
    base = lower(graph, strategy, work.transfers)
    program, prices, firsts = joined(base, blocks.values())
    simulator = Simulator(program, machine, prices, blocks=firsts)
    message_tasks = simulator.graph.counts().message_tasks
    build, simulate, delta, redone, kept, wrong = [], [], [], [], 0, 0
    for turn in range(count):
        numbers, before = work.change()
        changes = {number: work.block(number, made) for number, made in work.lowered(numbers).items()}
        seconds, proposing = timed(simulator.propose, changes)
        delta.append(proposing.cpu)
        redone.append(simulator.effort.messages / max(message_tasks, 1))
        if turn % every == 0:
            building, simulating, makespan = in_full(base, {**blocks, **changes}, machine)
            build.append(building)
            simulate.append(simulating)
            wrong += makespan != seconds
        if seconds <= simulator.seconds:
            delta[-1] += timed(simulator.accept)[1].cpu
            blocks.update(changes)
            kept += 1
        else:
            work.take_back(before)
    tasks = simulator.graph.counts().tasks
    return Measured(tasks, *(float(np.mean(item)) for item in (build, simulate, delta, redone)), kept, wrong)


def joined(base: Any, blocks: Iterable[Any]) -> tuple[Any, Any, list[int]]:
    """A program of blocks, its prices, and where the blocks begin."""
    from girih.cost.prices import Prices

    parts = list(blocks)
    steps = tuple(step for part in parts for step in part.steps)
    prices = Prices(
        np.concatenate([part.prices.before for part in parts]), np.concatenate([part.prices.after for part in parts])
    )
    lengths = [len(part.steps) for part in parts]
    return replace(base, steps=steps), prices, np.concatenate([[0], np.cumsum(lengths)[:-1]]).tolist()


def in_full(base: Any, blocks: dict[int, Any], machine: Any) -> tuple[float, float, float]:
    """CPU seconds of building, and of simulating; the makespan."""
    from girih.simulate.kernels.workspace import Workspace
    from girih.simulate.tasks import build
    from girih.simulate.ticks import TICKS_PER_SECOND

    program, prices, _ = joined(base, (blocks[number] for number in sorted(blocks)))
    graph, building = timed(build, program, prices, machine)
    makespan, simulating = timed(lambda: Workspace(graph).simulate_all())
    return building.cpu, simulating.cpu, makespan / TICKS_PER_SECOND


def measure(options: argparse.Namespace) -> Report:
    from girih.machine import machine

    warm_up()
    rows: list[Row] = []
    misses: list[str] = []
    notes: list[str] = []
    models = options.models or (QUICK if options.quick else PAPER)
    for name in models:
        title, batch, paper = PAPER[name]
        for number, count in enumerate(DEVICES):
            if count not in (options.devices or ((QUICK_DEVICES,) if options.quick else DEVICES)):
                continue
            forget()
            try:
                graph = captured(name, batch * count)
            except ValueError as error:
                notes.append(f"{title} is left out: {error}")
                break
            where = machine(f"p100-cluster:{count // 4}")
            found = {
                start: proposals(graph, where, start, options.proposals, options.every, options.seed)
                for start in STARTS
            }
            rows.append(row_of(title, count, len(graph.nodes), found, paper[number]))
            note(rows[-1])
            misses += missed(name, title, count, found, rows[-1], options)
    return Report(
        "One proposal: full simulation and delta simulation",
        COLUMNS,
        tuple(rows),
        summary(rows),
        tuple(misses),
        tuple(notes),
    )


COLUMNS = (
    ("model", "model"),
    ("devices", "devices"),
    ("nodes", "nodes"),
    ("tasks, data / random", "tasks"),
    ("full ms", "full"),
    ("of it building", "build"),
    ("delta ms", "delta"),
    ("full / delta", "ratio"),
    ("from data parallelism", "data"),
    ("from random", "random"),
    ("FlexFlow", "paper"),
    ("messages redone", "redone"),
    ("ms for 100,000 tasks", "hundred"),
)


def row_of(title: str, count: int, nodes: int, found: dict[str, Measured], paper: float) -> Row:
    both = list(found.values())
    full, delta = (sum(getattr(item, key) for item in both) / len(both) for key in ("full", "delta"))
    large = [item.hundred for item in both if item.tasks >= TASKS]
    return {
        "model": title,
        "devices": count,
        "nodes": nodes,
        "tasks": " / ".join(f"{found[start].tasks:,}" for start in STARTS),
        "full": round(full * 1e3, 2),
        "build": round(sum(item.build for item in both) / len(both) * 1e3, 2),
        "delta": round(delta * 1e3, 3),
        "ratio": round(full / delta, 1),
        **{start: round(found[start].full / found[start].delta, 1) for start in STARTS},
        "paper": paper,
        "redone": f"{np.mean([item.redone for item in both]):.2%}",
        "hundred": round(max(large), 1) if large else None,
        "kept": sum(item.kept for item in both),
    }


def missed(
    name: str, title: str, count: int, found: dict[str, Measured], row: Row, options: argparse.Namespace
) -> list[str]:
    misses = [
        f"{title} on {count}, from {start}: {item.wrong} makespans differ from a full simulation's"
        for start, item in found.items()
        if item.wrong
    ]
    if (options.quick or (name in LARGE and count == DEVICES[-1])) and row["ratio"] < options.floor:
        misses.append(f"{title} on {count}: full / delta is {row['ratio']}, floor {options.floor:g}")
    if row["hundred"] is not None and row["hundred"] > MILLISECONDS:
        misses.append(f"{title} on {count}: 100,000 tasks take {row['hundred']} ms, floor {MILLISECONDS:g} ms")
    return misses


def summary(rows: Sequence[Row]) -> str:
    most = [row for row in rows if row["devices"] == max(row["devices"] for row in rows)]
    ratios = ", ".join(f"{row['model']} {row['ratio']} ×" for row in most)
    slowest = max((row["hundred"] for row in rows if row["hundred"] is not None), default=None)
    speed = "" if slowest is None else f"; 100,000 tasks in at most {slowest} ms"
    return f"full / delta on {max((row['devices'] for row in rows), default=0)} devices: {ratios}{speed}"


def warm_up() -> None:
    """Compile, or load what was compiled, before the clock starts."""
    from girih.machine import machine

    proposals(captured("mlp-tiny", 16), machine("p100-cluster:1"), "random", 4, 2, 0)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=PAPER, metavar="NAME", help="only these")
    parser.add_argument("--devices", nargs="+", type=int, metavar="COUNT", help="only on so many")
    parser.add_argument("--proposals", type=int, default=40, help="from each start (default 40)")
    parser.add_argument("--every", type=int, default=10, help="each such one is simulated in full too (default 10)")
    parser.add_argument("--seed", type=int, default=0)


BENCHMARK = Benchmark(
    "simulate_speed", __doc__ or "", measure, 7.0, "times that full takes as long as delta, on 64 devices", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
