"""Inference on this processor: what girih.optimize returns against the back ends alone, in one run.

What: the models of TASO and of what came after it, batches of 1, with 1 thread and 2. How: the optimised model, the
model in eager PyTorch, compiled by Inductor with frozen weights, and exported to ONNX Runtime and OpenVINO, all in
float32, run in turns, behind a first call, measured anew after the choice was made. Seconds are those of the faster
rounds (the least fifth): a median of a shared machine tells who else was there; with one thread they are the
processor's. Against: the fastest of the four.
Floors: never slower by more than what two runs of the same model differ by (5 %), 1.1 × in geometric mean, and at most
5 µs beyond the back end's own call of a model of two operators.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

MODELS = (
    "resnet-50", "resnext-50", "resnext-50-branches", "nasnet-4-44", "nasrnn", "bert-12-768", "inception", "squeezenet",
    "vgg", "densenet",
)  # fmt: skip
QUICK = ("squeezenet-tiny", "nasrnn-tiny")
PEERS = ("eager", "inductor", "onnxruntime", "openvino")
SECONDS, ROUNDS = 8.0, (15, 101)
SAME = 0.05
MOST_BEYOND = 5.0
"""Microseconds of a call that are girih's own: is it the call, and the model, for which it was made?"""
CALLS, TURNS = 2000, 7
ENTERING = ("images", "tokens", "segments")
"""What a model is called with; all else of an example is for its loss."""


def called(name: str) -> tuple[Any, tuple[Any, ...]]:
    """(the model, what it is called with), weights and data at random."""
    import torch

    from girih.models import example

    torch.manual_seed(0)
    options = {"sequence": 64} if name.startswith("bert") and "tiny" not in name else {}
    shown = example(name, batch=1, device="cpu", **options)
    return shown.module.eval(), tuple(shown.inputs[key] for key in ENTERING if key in shown.inputs)


def peers(model: Any, data: tuple[Any, ...], threads: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Each back end alone, as a function without arguments."""
    import torch

    from girih.inference.export import exported
    from girih.inference.runtimes.backends import RUNTIMES

    runs: dict[str, Any] = {"eager": lambda: model(*data)}
    if "inductor" in names:
        compiled = torch.compile(model, options={"freezing": True})
        runs["inductor"] = lambda: compiled(*data)
    wanted = [name for name in RUNTIMES if name in names]
    if wanted:
        program = exported(model, data).model_proto.SerializeToString()
        for name in wanted:
            run = RUNTIMES[name](program, threads, None)
            runs[name] = lambda run=run: run(*data)
    return runs


def runs_here(name: str, run: Any) -> bool:
    """A back end that does not run the model is no peer: a compiler may need more memory than there is."""
    try:
        run()
    except Exception as error:
        note({"does not run": name, "why": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"})
        return False
    return True


def in_turn(runs: dict[str, Any], threads: int) -> dict[str, float]:
    """Seconds of the faster rounds of each. Each round begins with another one."""
    from girih.inference.trial import PAUSE, clock_of, quick

    clock = clock_of(threads)
    took: dict[str, list[float]] = {name: [] for name in runs}
    names, began = list(runs), time.perf_counter()
    turn, low, high = 0, *ROUNDS
    while turn <= low or (turn <= high and time.perf_counter() - began < SECONDS):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            time.sleep(PAUSE)
            start = clock()
            runs[name]()
            took[name].append(clock() - start)
        turn += 1
    return {name: quick(times[1:]) for name, times in took.items()}


def overheads(names: tuple[str, ...]) -> list[float]:
    """Microseconds that a call of an optimised model of two operators takes beyond the back end's own call, where that
    back end has won; eager's is the model's call as its user wrote it."""
    from unittest.mock import patch

    import torch

    import girih
    from girih.inference import trial
    from girih.inference.export import exported
    from girih.inference.runtimes.backends import installed
    from girih.inference.runtimes.libraries import LIBRARIES

    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()).eval(), torch.randn(4, 16)
    beyond = []
    for name in installed([name for name in names if name in ("eager", *LIBRARIES)]):
        alone: Callable[[], Any] = partial(model, x)
        if name != "eager":
            program = exported(model, (x,)).model_proto.SerializeToString()
            alone = partial(LIBRARIES[name](program, 1, {}), x.numpy())
        with patch.multiple(trial, FAR=math.inf, SECONDS=0.0, choice=lambda took: len(took) - 1):
            fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=(name,))
        with torch.no_grad():
            own, bare, eager = (_microseconds(run) for run in (partial(fast, x), alone, partial(model, x)))
        beyond.append(own - bare)
        row = {
            "a call of a tiny model by": name,
            "µs": own,
            "alone": bare,
            "beyond": own - bare,
            "eager PyTorch": eager,
        }
        note({key: value if isinstance(value, str) else round(value, 1) for key, value in row.items()})
    return beyond


def _microseconds(run: Any) -> float:
    """Of the processor, a call."""
    took = []
    for _ in range(TURNS):
        began = time.process_time()
        for _ in range(CALLS):
            run()
        took.append(time.process_time() - began)
    return min(took) / CALLS * 1e6


def measure(options: argparse.Namespace) -> Report:
    import torch

    import girih

    rows: list[Row] = []
    misses = []
    before = torch.get_num_threads()
    names = ("eager",) if options.quick else PEERS
    for threads in options.threads or ((1,) if options.quick else (1, 2)):
        for name in QUICK if options.quick else options.models or MODELS:
            model, data = called(name)
            torch._dynamo.reset()
            began = time.perf_counter()
            backends = (*(item for item in names if item in (options.peers or names)), "onednn")
            fast = girih.optimize(model, data, threads=threads, seconds=options.seconds, backends=backends)
            took = time.perf_counter() - began
            torch.set_num_threads(threads)
            with torch.no_grad():
                runs = {"girih": lambda fast=fast, data=data: fast(*data), **peers(model, data, threads, backends)}
                runs = {peer: run for peer, run in runs.items() if peer == "girih" or runs_here(peer, run)}
                seconds = in_turn(runs, threads)
            torch.set_num_threads(before)
            explanation = fast.explain()
            best = min((peer for peer in runs if peer != "girih"), key=seconds.__getitem__)
            gain = seconds[best] / seconds["girih"]
            row: Row = {
                "model": name,
                "threads": threads,
                "ms": round(seconds["girih"] * 1e3, 3),
                "best / girih": round(gain, 3),
                "best": best,
                **{f"{peer} / girih": round(seconds[peer] / seconds["girih"], 2) if peer in seconds else None
                   for peer in PEERS},
                "rewrites": len(explanation.sequence),
                "chosen": f"{explanation.chosen.program}, {explanation.chosen.backend}",
                "seconds to optimise": round(took, 1),
            }  # fmt: skip
            rows.append(row)
            note(row)
            if not options.quick and gain < 1 - SAME:
                misses.append(f"{name}, {threads} threads: {gain:.2f} × {best}")
    torch.set_num_threads(1)
    beyond = max(overheads(options.peers or names))
    torch.set_num_threads(before)
    if not options.quick and beyond > MOST_BEYOND:
        misses.append(f"{beyond:.1f} µs beyond a back end's own call of a tiny model, expected {MOST_BEYOND} at most")
    mean = math.exp(statistics.fmean(math.log(row["best / girih"]) for row in rows))
    if not options.quick and mean < options.floor:
        misses.append(f"{mean:.3f} × the best back end in geometric mean, floor {options.floor}")
    return Report(
        "Optimised inference",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{mean:.3f} × the best back end in geometric mean of {len(rows)}; a call takes {beyond:.1f} µs beyond its own",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search (default 60)")
    parser.add_argument("--models", nargs="*", help="only these")
    parser.add_argument("--threads", nargs="*", type=int, help="only these (default 1 and 2)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="only these back ends (default all)")


BENCHMARK = Benchmark(
    "optimize_cpu", __doc__ or "", measure, 1.1, "least gain over the best back end, geometric mean", add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
