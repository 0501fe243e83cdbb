"""The joint search on models, beside the best sequential composition, with all memory and with a part of it.

What: the simulated step of the joint search's plan (`--search joint`), and of the best sequential composition: the
graph as it is and as proved rules make it cheapest for one device, each divided, ordered and held by `portfolio`, with
as many seconds of work. At 100, 60 and 35 % of the memory that the free plan needs. The ablation beside: which parts of
the choice differ, and what the step takes where one alone is set back. Against: Mist (EuroSys 2025) reports 1.28 times
Megatron-LM and 1.27 times Aceso for joining parallelism with checkpointing, state and offloading. The floor: never
slower than the sequential composition, in any case; the geometric mean under caps is printed, with the cases that only
the joint search fits, and the largest part of each bound.

In slices: `--models`, `--machines` and `--memory` choose cases, those of `LARGE` among them, which are not run unless
they are named. The last line names all cases that were not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, clock, note, since, timed

Model = tuple[str, int | None, dict[str, Any]]
"""Name, batch (None: the model's own), and options."""
Case = tuple[Model, str]
"""A model on a machine."""

CASES: tuple[Case, ...] = (
    (("mlp-tiny", None, {}), "titanx-40g:2"),
    (("lenet", 256, {}), "titanx-40g:2"),
    (("gpt-tiny", 256, {}), "titanx-40g:4"),
    (("bert-tiny", 256, {}), "titanx-40g:4"),
    (("llama-tiny", 64, {}), "titanx-40g:4"),
    (("alexnet", 256, {}), "titanx-40g:4"),
    (("rnn-4-1k", None, {}), "titanx-40g:4"),
)
PAPERS: tuple[Case, ...] = (
    (("wresnet-152-10", None, {}), "p2.8xlarge"),
    (("rnn-8-8k", None, {}), "p2.8xlarge"),
    (("resnet-152", 256, {}), "dgx-v100"),
    (("inception4", 256, {}), "dgx-v100"),
    (("nasnet-25", 128, {}), "dgx-v100"),
    (("inception", 1024, {}), "p100-cluster"),
    (("rnntc", 1024, {}), "p100-cluster"),
    (("rnnlm", 1024, {}), "p100-cluster"),
    (("nmt", 1024, {}), "p100-cluster"),
    (("dlrm-criteo", 1024, {}), "p100-cluster"),
    (("candle-uno", 1024, {}), "p100-cluster"),
    (("squeezenet", 256, {}), "dgx-v100"),
    (("resnext-50", 256, {}), "dgx-v100"),
    (("nasrnn", 256, {}), "dgx-v100"),
    (("bert-24-1024", 64, {}), "dgx-v100"),
    (("transformer", 64, {}), "dgx-v100"),
    (("moe-12", 64, {}), "dgx-v100"),
    (("deepspeech", 64, {}), "dgx-v100"),
)
TODAY: tuple[Model, ...] = (
    ("gpt2-xl", 64, {}),
    ("llama-8b", 8, {"sequence": 2048, "precision": "bf16"}),
    ("moe-32-2048", 64, {}),
    ("vit-l", 256, {}),
    ("dlrm", 1024, {}),
)
LARGE: tuple[Case, ...] = (*PAPERS, *product(TODAY, ("dgx-v100", "2x4", "8x8", "rtx-4090:4")))
"""Each takes minutes to hours of one core."""
SHARES = (1.0, 0.6, 0.35)
COMPOSED = ("sequential", "sequential, rewritten")
"""What a joint search begins with, by its own words."""


def slices(options: argparse.Namespace) -> list[tuple[Model, str, float]]:
    """(model, machine, share of the memory) of the cases that are chosen."""
    if options.quick:
        return [(*CASES[0], 0.6)]
    named = options.models or [model[0] for model, _ in CASES]
    return [
        (model, machine, share)
        for model, machine in (*CASES, *LARGE)
        if model[0] in named and (not options.machines or machine in options.machines)
        for share in SHARES
        if not options.memory or round(100 * share) in options.memory
    ]


def missing(done: Sequence[tuple[Model, str, float]]) -> str:
    """The cases that were not run, those together that are of one model and machine."""
    known = {(model[0], machine, share) for model, machine, share in done}
    left = [
        (f"{model[0]} on {machine}", f"{share:.0%}")
        for model, machine in (*CASES, *LARGE)
        for share in SHARES
        if (model[0], machine, share) not in known
    ]
    words = [
        f"{what} at {', '.join(share for _, share in group)}" for what, group in groupby(left, lambda item: item[0])
    ]
    return f"not run: {len(left)} of {len(left) + len(done)} cases: {'; '.join(words)}"


def freed(chosen: Sequence[tuple[Model, str, float]], seconds: float) -> Iterator[tuple[Row, Any, str, int]]:
    """(the first entries of a row, graph, machine, bytes that the free plan needs), each model captured once. seconds:
    of work of the free plan's search."""
    from girih.api import plan_graph

    for (model, machine), group in groupby(chosen, lambda item: item[:2]):
        name, batch, sizes = model
        graph = captured(name, batch, **sizes)
        search = f"portfolio:seconds={seconds}"
        free = plan_graph(graph, machine=machine, memory="unlimited", search=search, compare=())
        for _, _, share in group:
            yield {"model": name, "machine": machine, "memory": f"{share:.0%}"}, graph, machine, int(share * free.peak)


def slices_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", help="by name, large ones too (default: the small ones)")
    parser.add_argument("--machines", nargs="+", help="only on these")
    parser.add_argument("--memory", nargs="+", type=int, help="only at these percents of the free plan's: 100 60 35")


def sequential(graph: Any, machine: str, cap: int, seconds: float) -> float:
    """Seconds of the best sequential composition; infinite where nothing fits."""
    from girih.api import plan_graph
    from girih.machine import machine as machine_of
    from girih.plans.plan import PlanError
    from girih.plans.rewritten import Rewriting

    rewritten, rewrites = Rewriting().apply(graph, machine_of(machine))
    best = float("inf")
    for item in (graph, rewritten) if rewrites else (graph,):
        try:
            search = f"portfolio:seconds={seconds}"
            best = min(best, plan_graph(item, machine=machine, memory=cap, search=search, compare=()).certificate.cost)
        except PlanError:
            continue
    return best


def case(known: Row, graph: Any, machine: str, cap: int, options: argparse.Namespace) -> Row:
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    seconds = 2.0 if options.quick else options.seconds
    before, row, spent = float("inf"), {**known, "nodes": len(graph.nodes)}, list[float]()
    if not options.told:
        before, first = timed(sequential, graph, machine, cap, seconds)
        row["sequential CPU"] = round(first.cpu, 1)
    began = clock()

    def observed(what: str, share: float) -> None:
        if what == "joint: rewrites":  # the given graph is composed
            spent.append(round(since(began).cpu, 1))

    try:
        search = f"joint:seconds={seconds}"
        plan = plan_graph(graph, machine=machine, memory=cap, search=search, compare=(), observe=observed)
    except PlanError:
        took = round(since(began).cpu, 1)  # it may be refused before the graph is composed
        row |= {"first": next(iter(spent), took), "CPU": took, "sequential": before}
        return {**row, "joint": float("inf"), "ratio": 1.0 if before == float("inf") else 0.0, "by": "refused"}
    told, timing = plan.certificate, since(began)
    composed = (told.statistics.get(f"seconds, {name}", float("inf")) for name in COMPOSED)
    before = min(composed) if options.told else before
    changed = [
        f"{part.removeprefix('without its ')} {float(slower) / told.cost:.2f} ×"
        for part, slower in told.statistics.items()
        if part.startswith("without its ")
    ]
    return {
        **row,
        "sequential": before,
        "joint": told.cost,
        "ratio": before / told.cost,
        "by": told.statistics["found by"],
        "gap": f"{told.gap:.0%}",
        "bound": told.how,
        "first": spent[0],
        "CPU": round(timing.cpu, 1),
        "stopped": told.stopped,
        "set back": ", ".join(changed),
    }


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    chosen = slices(options)
    for known, graph, machine, cap in freed(chosen, options.seconds):
        rows.append(case(known, graph, machine, cap, options))
        note(rows[-1])
    limited = [row["ratio"] for row in rows if row["memory"] != "100%"]
    capped = [ratio for ratio in limited if 0 < ratio < float("inf")]
    alone = [row for row in rows if row["ratio"] == float("inf")]
    mean = float(np.exp(np.mean(np.log(capped)))) if capped else 1.0
    slower = [
        f"{row['model']} on {row['machine']} at {row['memory']}: {row['joint']} s, in turn {row['sequential']} s"
        for row in rows
        if row["ratio"] < options.floor
    ]
    columns = tuple(
        (words, words)
        for words in (
            "model", "machine", "memory", "nodes", "sequential", "joint", "ratio", "by", "gap", "bound",
            "sequential CPU", "first", "CPU", "stopped", "set back",
        )
    )  # fmt: skip
    return Report(
        "The joint search beside the best sequential composition, simulated seconds of a step",
        columns,
        tuple(rows),
        f"{mean:.3f} × under caps in geometric mean of {len(capped)}; only the joint search fits {len(alone)}",
        tuple(slower),
        (missing(chosen),),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    slices_options(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of work of each search (default 60)")
    told = "the sequential composition is the one with which the joint search says that it began (half of the time)"
    parser.add_argument("--told", action="store_true", help=told)


BENCHMARK = Benchmark(
    "joint_models", __doc__ or "", measure, 1.0 - 1e-9, "times the sequential composition, at least", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
