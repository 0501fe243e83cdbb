"""Inference on this processor: what girih.optimize returns against the back ends alone, in one run.

What: the models of TASO and of what came after it, batches of 1, with 1 thread and 2. How: the optimised model, the
model in eager PyTorch, and the model compiled by Inductor with frozen weights run in turns, behind a first call;
seconds are medians, measured anew after the choice was made. Against: the faster of the two. Floors: never slower by
more than what two runs of the same model differ by (5 %), and 1.1 × in geometric mean. ONNX Runtime and OpenVINO are
not compared with yet: girih writes no ONNX.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

MODELS = (
    "resnet-50", "resnext-50", "resnext-50-branches", "nasnet-4-44", "nasrnn", "bert-12-768", "inception", "squeezenet",
    "vgg", "densenet",
)  # fmt: skip
QUICK = ("squeezenet-tiny", "nasrnn-tiny")
ROUNDS = 21
SAME = 0.05


def called(name: str) -> tuple[Any, Any]:
    """(the model, what it is called with), weights and data at random."""
    import torch

    from girih.models import example

    torch.manual_seed(0)
    options = {"sequence": 64} if name.startswith("bert") else {}
    shown = example(name, batch=1, device="cpu", **options)
    data = next(iter(shown.inputs.values()))
    return shown.module.eval(), data


def in_turn(runs: dict[str, Any], rounds: int) -> dict[str, float]:
    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            took[name].append(time.perf_counter() - began)
    return {name: statistics.median(times[1:]) for name, times in took.items()}


def measure(options: argparse.Namespace) -> Report:
    import torch

    import girih

    rows: list[Row] = []
    misses = []
    before = torch.get_num_threads()
    for threads in (1,) if options.quick else (1, 2):
        for name in QUICK if options.quick else options.models or MODELS:
            model, data = called(name)
            torch._dynamo.reset()
            backends = ("eager", "onednn") if options.quick else ("eager", "onednn", "inductor")
            began = time.perf_counter()
            fast = girih.optimize(model, data, threads=threads, seconds=options.seconds, backends=backends)
            took = time.perf_counter() - began
            torch.set_num_threads(threads)
            runs = {
                "girih": lambda fast=fast, data=data: fast(data),
                "eager": lambda model=model, data=data: model(data),
            }
            if not options.quick:
                compiled = torch.compile(model, options={"freezing": True})
                runs["inductor"] = lambda compiled=compiled, data=data: compiled(data)
            with torch.no_grad():
                seconds = in_turn(runs, ROUNDS)
            torch.set_num_threads(before)
            explanation = fast.explain()
            best = min(seconds[peer] for peer in runs if peer != "girih")
            row: Row = {
                "model": name,
                "threads": threads,
                "ms": round(seconds["girih"] * 1e3, 3),
                "best / girih": round(best / seconds["girih"], 3),
                "eager / girih": round(seconds["eager"] / seconds["girih"], 3),
                "inductor / girih": round(seconds["inductor"] / seconds["girih"], 3) if "inductor" in seconds else None,
                "rewrites": len(explanation.sequence),
                "chosen": f"{explanation.chosen.program}, {explanation.chosen.backend}",
                "seconds to optimise": round(took, 1),
            }
            rows.append(row)
            note(row)
            if not options.quick and best / seconds["girih"] < 1 - SAME:
                misses.append(f"{name}, {threads} threads: {best / seconds['girih']:.2f} × the best back end")
    mean = math.exp(statistics.fmean(math.log(row["best / girih"]) for row in rows))
    if not options.quick and mean < options.floor:
        misses.append(f"{mean:.3f} × the best back end in geometric mean, floor {options.floor}")
    return Report(
        "Optimised inference",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{mean:.3f} × the best back end in geometric mean of {len(rows)}",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search (default 60)")
    parser.add_argument("--models", nargs="*", help="only these")


BENCHMARK = Benchmark(
    "optimize_cpu", __doc__ or "", measure, 1.1, "least gain over the best back end, geometric mean", add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
