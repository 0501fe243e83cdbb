"""Simulated speed-ups over data parallelism on FlexFlow's clusters, beside the paper's (Figures 3.6 and 3.11).

What: for FlexFlow's six models on its P100 cluster (16 devices) and its K80 cluster (64 devices), and for DLRM and
Candle Uno on 96 V100 of Summit (64 examples for each device, 256 for AlexNet): the simulated step under girih's plan
(`--objective time`), under data parallelism and under the expert's plan, all priced by the same simulator and the
machine's data sheets.
Against: Jia 2020 (FlexFlow): 1.3 to 3.3 times over data parallelism and the experts for the six models, but ResNet-101
as data parallelism (§3.7.2); up to 10 times for DLRM, up to 7.8 for Candle Uno (§3.7.3).
The floor: at least `--floor` times the least speed-up that the paper states for the model. What bounds a plan that
falls short stands beside it (its busiest device or port, and the gap to a bound on any plan), and under the table,
read from its timeline: what its step consists of, the bytes that cross the outermost network into a host and how long
they take, beside data parallelism's, and how many could cross in the time of the paper's speed-up.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, forget, note, seconds_option

CASES: tuple[tuple[str, str, int, str, float, str], ...] = (
    # model, machine, examples for each device, expert, the paper's least speed-up over data parallelism, in its words
    ("alexnet", "p100-cluster", 256, "one-weird-trick", 1.3, "1.3-3.3"),
    ("alexnet", "k80-cluster", 256, "one-weird-trick", 1.3, "1.3-3.3"),
    ("resnet-101", "p100-cluster", 64, "one-weird-trick", 1.0, "similar"),
    ("resnet-101", "k80-cluster", 64, "one-weird-trick", 1.0, "similar"),
    ("inception", "p100-cluster", 64, "one-weird-trick", 1.1, "1.12 on 4 P100"),
    ("inception", "k80-cluster", 64, "one-weird-trick", 1.3, "1.3-3.3"),
    ("rnntc", "p100-cluster", 64, "rnn-expert", 1.3, "1.3-3.3"),
    ("rnntc", "k80-cluster", 64, "rnn-expert", 1.3, "1.3-3.3"),
    ("rnnlm", "p100-cluster", 64, "rnn-expert", 1.3, "1.3-3.3"),
    ("rnnlm", "k80-cluster", 64, "rnn-expert", 1.3, "1.3-3.3"),
    ("nmt", "p100-cluster", 64, "rnn-expert", 1.3, "1.3-3.3"),
    ("nmt", "k80-cluster", 64, "rnn-expert", 1.7, "1.7-2.4"),
    ("dlrm-criteo", "summit:16", 64, "hybrid", 10.0, "up to 10"),
    ("candle-uno", "summit:16", 64, "model", 7.8, "up to 7.8"),
)
QUICK = (("dlrm-criteo-tiny", "p100-cluster:1", 8, "hybrid", 1.0, "-"),)


def compared(graph: Any, machine: str, expert: str, seconds: float) -> Row:
    from girih.plans import plan_graph

    found = plan_graph(graph, machine=machine, objective="time", seconds=seconds)
    others = {
        name: plan_graph(graph, machine=machine, objective="time", search=name, seconds=seconds)
        for name in ("data", expert)
    }
    cost = found.certificate.cost
    simulation = found.predict().simulation
    busiest = simulation.busiest
    return {
        "devices": found.machine.devices,
        "step": cost,
        "gap": f"{found.certificate.gap:.1%}",
        "over data": round(others["data"].certificate.cost / cost, 2),
        "over expert": round(others[expert].certificate.cost / cost, 2),
        "bytes": round(float(others["data"].bytes_received.sum()) / max(float(found.bytes_received.sum()), 1.0), 2),
        "bound by": f"{busiest.name}, {busiest.share:.0%}",
        "found by": found.certificate.statistics["found by"],
        "timeline": consists_of(found, simulation),
        "network": crossing(found),
        "data network": crossing(others["data"]),
        "data timeline": consists_of(others["data"], others["data"].predict().simulation),
    }


def consists_of(plan: Any, simulation: Any) -> str:
    """The parts of the critical path of a step, and what its busiest device computes."""
    from girih.simulate.critical import OWN, PORT, TRANSFER

    path = simulation.critical
    parts = ((OWN, "own work of devices"), (TRANSFER, "messages under way"), (PORT, "waiting for ports"))
    shares = ", ".join(f"{path.share(kind):.0%} {words}" for kind, words in parts)
    return f"{simulation.seconds * 1e3:.3g} ms a step: {shares}; busiest {simulation.busiest.name}"


def crossing(plan: Any) -> tuple[float, float]:
    """(bytes that the outermost network brings to one of its parts, at most; seconds that they take at its rate)."""
    from girih.layout import level_volumes

    level, mesh = plan.machine.levels[0], plan.machine.mesh
    inside = mesh.devices // level.parts if level.shared else 1
    total = np.zeros(mesh.devices // inside)
    for step in plan.program.transfers:
        received = level_volumes(mesh, step.before, step.after)[:, : len(level.axes)].sum(axis=1)
        total += received.reshape(-1, inside).sum(axis=1) * plan.graph.values[step.value].item_bytes
    return float(total.max()), float(total.max()) / level.bytes_per_second


def explained(row: Row, least: float) -> str:
    """Why a plan is no faster, from its timeline."""
    ours, seconds = row["network"]
    theirs, longer = row["data network"]
    goal = row["step"] * row["over data"] / least
    return (
        f"{row['case']}: {row['timeline']}. Its outermost network brings {ours / 1e6:.3g} MB to a host, "
        f"{seconds * 1e3:.3g} ms at its rate; under data parallelism ({row['data timeline']}) {theirs / 1e6:.3g} MB, "
        f"{longer * 1e3:.3g} ms. {least:g} times data parallelism's speed is {goal * 1e3:.3g} ms a step, in which "
        f"{goal / seconds * ours / 1e6 if seconds else 0:.3g} MB could cross"
    )


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    notes: list[str] = []
    for name, machine, each, expert, least, words in QUICK if options.quick else CASES:
        if (options.models and name not in options.models) or not machine.startswith(options.machine):
            continue
        forget()
        from girih.machine import machine as named

        graph = captured(name, named(machine).devices * each)
        rows.append(
            {"case": f"{name} on {machine}", **compared(graph, machine, expert, options.seconds), "paper": words}
        )
        note(rows[-1])
        if rows[-1]["over data"] < least * options.floor:
            misses.append(
                f"{rows[-1]['case']}: {rows[-1]['over data']} over data parallelism, the paper {words}; "
                f"bound by {rows[-1]['bound by']}, gap {rows[-1]['gap']}"
            )
            notes.append(explained(rows[-1], least * options.floor))
    columns = (
        ("case", "case"),
        ("devices", "devices"),
        ("step, simulated s", "step"),
        ("gap", "gap"),
        ("over data", "over data"),
        ("paper", "paper"),
        ("over expert", "over expert"),
        ("data's bytes / ours", "bytes"),
        ("busiest", "bound by"),
        ("found by", "found by"),
    )
    return Report(
        "Simulated speed-ups on FlexFlow's clusters",
        columns,
        tuple(rows),
        f"{len(rows)} cases at least as the paper states",
        tuple(misses),
        tuple(notes),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--machine", default="", metavar="PREFIX", help="only machines whose name begins so")


BENCHMARK = Benchmark(
    "paper_speedups", __doc__ or "", measure, 1.0, "share of the paper's least speed-up to be reached", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
