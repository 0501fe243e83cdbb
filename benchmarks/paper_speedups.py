"""Simulated speed-ups over data parallelism on FlexFlow's clusters, beside the paper's (Figures 3.6 and 3.11).

What: for FlexFlow's six models on its P100 cluster (16 devices) and its K80 cluster (64 devices), and for DLRM and
Candle Uno on 96 V100 of Summit (64 examples for each device, 256 for AlexNet): the simulated step under girih's plan
(`--objective time`), under two kinds of data parallelism and under the expert's plan, all priced by the same simulator
and the machine's data sheets.
Against: Jia 2020 (FlexFlow): 1.3 to 3.3 times over data parallelism and the experts for the six models, but ResNet-101
as data parallelism (§3.7.2); up to 10 times for DLRM, up to 7.8 for Candle Uno (§3.7.3).

Which data parallelism: the paper measures that of its own runtime. Its task graph (§3.4.1) has transfers between two
devices and no collectives; its published runtime gathers the gradients of a weight from all replicas on one device,
which updates the weight and hands it out: a parameter server for each weight. That is the search `parameter-server`
here ("the paper's data"), at its best: weights spread over all devices, exchanges overlapping with computation. The
search `data` ("our data") reduces gradients by reduce-scatter and all-gather, as libraries have done since; a speed-up
over it is smaller, and no plan's exceeds its step divided by the lower bound on any plan ("limit").
Candle Uno's hosts are a mesh of 4×4, and each host's devices one of 2×3 (all axes of Summit's own two levels), so that
a layer may be divided by samples along one axis and by parameters along another.
The floor: at least `--floor` times the least speed-up that the paper states for the model, over the paper's data
parallelism. Where the same is not reached over ours too, the notes say why, from the timelines: what share of the step
the busiest device computes, how much of it is communication that nothing hides, and what no plan can be faster than.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, forget, note, seconds_option
from benchmarks.soap_search import load_kernels

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
    ("candle-uno", "summit:4x4/2/3", 64, "model", 7.8, "up to 7.8"),
)
QUICK = (("dlrm-criteo-tiny", "p100-cluster:1", 8, "hybrid", 1.0, "-"),)


def compared(graph: Any, machine: str, expert: str, seconds: float) -> Row:
    from girih.api import plan_graph

    found = plan_graph(graph, machine=machine, memory="unlimited", objective="time", search=f"exact:seconds={seconds}")
    others = {
        name: plan_graph(
            graph, machine=machine, memory="unlimited", objective="time", search=f"{name}:seconds={seconds}"
        )
        for name in ("data", "parameter-server", expert)
    }
    cost, bound = found.certificate.cost, found.certificate.bound
    times = {name: other.certificate.cost / cost for name, other in others.items()}
    simulation = found.predict().simulation
    return {
        "devices": found.machine.devices,
        "step": cost,
        "gap": f"{found.certificate.gap:.1%}",
        "over paper": round(times["parameter-server"], 2),
        "over data": round(times["data"], 2),
        "limit": round(others["data"].certificate.cost / bound, 2),
        "over expert": round(times[expert], 2),
        "bytes": round(float(others["data"].bytes_received.sum()) / max(float(found.bytes_received.sum()), 1.0), 2),
        "bound by": f"{simulation.busiest.name}, {simulation.busiest.share:.0%}",
        "found by": found.certificate.statistics["found by"],
        "bound": bound,
        "timeline": consists_of(found, simulation),
        "network": crossing(found),
        "data network": crossing(others["data"]),
        "data timeline": consists_of(others["data"], others["data"].predict().simulation),
    }


def consists_of(plan: Any, simulation: Any) -> str:
    """Of the busiest device its computing and what nothing hides, and the parts of the critical path of a step."""
    from girih.simulate.critical import OWN, PORT, TRANSFER
    from girih.simulate.timeline import COMPUTE

    timeline, path = simulation.timeline, simulation.critical
    mine = timeline.stream == COMPUTE
    busy = np.bincount(timeline.device[mine], (timeline.end - timeline.begin)[mine], timeline.devices).max()
    parts = ((OWN, "own work of devices"), (TRANSFER, "messages under way"), (PORT, "waiting for ports"))
    shares = ", ".join(f"{path.share(kind):.0%} {words}" for kind, words in parts)
    return (
        f"{simulation.seconds * 1e3:.3g} ms a step, of which the busiest device works {busy * 1e3:.3g} ms "
        f"({busy / simulation.seconds:.0%}) and waits {(simulation.seconds - busy) * 1e3:.3g} ms for messages that "
        f"nothing hides; critical path: {shares}; busiest {simulation.busiest.name}"
    )


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
    able = "no plan can" if row["limit"] < least else "the bound, in which messages take no time, would allow"
    return (
        f"{row['case']}, {row['over data']} times as fast as our data parallelism, {row['over paper']} times as the "
        f"paper's ({row['paper']}): {row['timeline']}. Its outermost network brings {ours / 1e6:.3g} MB to a host, "
        f"{seconds * 1e3:.3g} ms at its rate; under our data parallelism ({row['data timeline']}) {theirs / 1e6:.3g} "
        f"MB, {longer * 1e3:.3g} ms. No plan takes less than {row['bound'] * 1e3:.3g} ms, {row['limit']} times as "
        f"fast as our data parallelism: {able} {least:g} times"
    )


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    notes: list[str] = []
    load_kernels((4,) if options.quick else (4, 64))
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
        if rows[-1]["over paper"] < least * options.floor:
            misses.append(
                f"{rows[-1]['case']}: {rows[-1]['over paper']} over the paper's data parallelism, the paper {words}; "
                f"bound by {rows[-1]['bound by']}, gap {rows[-1]['gap']}"
            )
        if min(rows[-1]["over data"], rows[-1]["over paper"]) < least * options.floor:
            notes.append(explained(rows[-1], least * options.floor))
    columns = (
        ("case", "case"),
        ("devices", "devices"),
        ("step, simulated s", "step"),
        ("gap", "gap"),
        ("paper", "paper"),
        ("over the paper's data", "over paper"),
        ("over our data", "over data"),
        ("limit", "limit"),
        ("over expert", "over expert"),
        ("our data's bytes / the plan's", "bytes"),
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
