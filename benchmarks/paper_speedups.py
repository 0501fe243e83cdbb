"""Simulated speed-ups over data parallelism on FlexFlow's clusters, beside the paper's (Figures 3.6 and 3.11).

What: for FlexFlow's six models on its P100 cluster (16 devices) and its K80 cluster (64 devices), and for DLRM and
Candle Uno on 96 V100 of Summit (64 examples for each device, 256 for AlexNet): the simulated step under girih's plan
(`--objective time`), under data parallelism and under the expert's plan, all priced by the same simulator and the
machine's data sheets.
Against: Jia 2020 (FlexFlow): 1.3 to 3.3 times over data parallelism and the experts for the six models, but ResNet-101
as data parallelism (§3.7.2); up to 10 times for DLRM, up to 7.8 for Candle Uno (§3.7.3).
The floor: at least `--floor` times the least speed-up that the paper states for the model. What bounds a plan that
falls short (its busiest device or port, and the gap to a bound on any plan) stands beside it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

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
    busiest = found.predict().simulation.busiest
    return {
        "devices": found.machine.devices,
        "step": cost,
        "gap": f"{found.certificate.gap:.1%}",
        "over data": round(others["data"].certificate.cost / cost, 2),
        "over expert": round(others[expert].certificate.cost / cost, 2),
        "bytes": round(float(others["data"].bytes_received.sum()) / max(float(found.bytes_received.sum()), 1.0), 2),
        "bound by": f"{busiest.name}, {busiest.share:.0%}",
    }


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    for name, machine, each, expert, least, words in QUICK if options.quick else CASES:
        if options.models and name not in options.models:
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
    )
    return Report(
        "Simulated speed-ups on FlexFlow's clusters",
        columns,
        tuple(rows),
        f"{len(rows)} cases at least as the paper states",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")


BENCHMARK = Benchmark(
    "paper_speedups", __doc__ or "", measure, 1.0, "share of the paper's least speed-up to be reached", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
