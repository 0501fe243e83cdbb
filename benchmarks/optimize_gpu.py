"""Inference on a GPU: rewritten programs against Inductor's max-autotune and CUDA graphs, in one run.

What: TASO's five models, batch 1. How: the search has the costs of the GPU's data sheet (one of those in
`girih.machine.presets` by its name), and what it finds runs as a CUDA graph of eager kernels and compiled by
Inductor's max-autotune, which uses CUDA graphs too; so does the model as it is. All run in turns, timed by CUDA
events; seconds are medians. A guard keeps the fastest of the rewritten ones that gives the model's results, and the
model as it is where that is faster. Against: the fastest of the model in eager PyTorch, as a CUDA graph, and
compiled. Floor: 1.1 × in geometric mean. Where there is no GPU nothing is measured, and it says so.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.models_of_taso import captured

MODELS = ("resnet-50", "resnext-50-branches", "nasnet-4-44", "nasrnn", "bert-12-768")
QUICK = ("nasrnn",)
ROUNDS = 50
TOLERANCE = 1e-2
"""Of the largest number: TensorFloat-32 may be used by either side."""


def measure(options: argparse.Namespace) -> Report:
    import torch

    if not torch.cuda.is_available():
        return Report(
            "Optimised inference on a GPU",
            (("measured", "measured"),),
            ({"measured": "nothing: PyTorch sees no GPU here"},),
            "there is no GPU here, so nothing was measured",
        )
    rows: list[Row] = []
    misses = []
    for name in QUICK if options.quick else options.models or MODELS:
        row = measured(name, min(options.seconds, 10.0) if options.quick else options.seconds)
        rows.append(row)
        note(row)
    mean = math.exp(statistics.fmean(math.log(row["best / girih"]) for row in rows))
    if mean < options.floor:
        misses.append(f"{mean:.3f} × the best back end in geometric mean, floor {options.floor}")
    return Report(
        f"Optimised inference on {torch.cuda.get_device_name()}",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{mean:.3f} × the best back end in geometric mean of {len(rows)}",
        tuple(misses),
    )


def measured(name: str, seconds: float) -> Row:
    import torch

    from girih.inference.searching import rewrite
    from girih.rewrite.backtracking import Backtracking

    found = captured(name, "cpu")
    result = rewrite(found.graph, found.weights, _rules(), _costs(found.weights), Backtracking(seconds=seconds))
    batch = [item.name for item in result.graph.inputs if item.name not in result.weights]
    assert len(batch) == len(found.data)
    better, model = _on_gpu(result.graph, result.weights), found.module.cuda()
    data = tuple(tensor.cuda() for tensor in found.data.values())
    torch._dynamo.reset()
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "eager": lambda: lambda: model(*data),
        "CUDA graph": lambda: graphed(model, data),
        "max-autotune": lambda: compiled(model, data),
        "girih, CUDA graph": lambda: graphed(better, data),
        "girih, max-autotune": lambda: compiled(better, data),
    }
    runs: dict[str, Callable[[], Any]] = {}
    with torch.no_grad():
        expected = _tensor(model(*data))
        for way, build in ways.items():
            run = build()
            if _same(_tensor(run()), expected):
                runs[way] = run
        took = in_turn(runs)
    peers = {way: took[way] for way in took if not way.startswith("girih")}
    ours = {way: took[way] for way in took if way.startswith("girih")} | {
        f"as it was, {way}": value for way, value in peers.items()
    }
    chosen = min(ours, key=lambda way: ours[way])
    steps = Counter(step.rule.name for part in result.searched for step in part.sequence)
    return {
        "model": name,
        **{f"{way} ms": round(value, 3) for way, value in took.items()},
        "best / girih": round(min(peers.values()) / ours[chosen], 3),
        "chosen": chosen,
        "sequence": ", ".join(f"{count} × {rule}" for rule, count in steps.most_common(4)),
    }


def _rules() -> tuple[Any, ...]:
    from girih.rewrite.rules.further import inference
    from girih.rewrite.rules.shipped import shipped

    return (*inference(), *shipped())


def _costs(weights: Mapping[str, Any]) -> Any:
    """By the data sheet of the GPU that is here, or of an H100."""
    import torch

    from benchmarks.data_sheet import DataSheetCosts
    from girih.machine.presets import DEVICES

    here = torch.cuda.get_device_name()
    device = next((item for name, item in DEVICES.items() if name in here), DEVICES["H100"])
    return DataSheetCosts(device, frozenset(weights))


def _on_gpu(graph: Any, weights: Mapping[str, Any]) -> Any:
    """The rewritten module, with what it makes from nothing on the GPU too."""
    import torch

    from girih.inference.module import module_of

    module = module_of(graph, weights)
    for node in module.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.update_kwarg("device", torch.device("cuda"))
    module.recompile()
    return module.cuda().eval()


def graphed(module: Any, data: tuple[Any, ...]) -> Callable[[], Any]:
    """A CUDA graph of a call, replayed on the same memory."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are chosen, and memory is taken, before the capture
        for _ in range(3):
            module(*data)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(*data)

    def run() -> Any:
        graph.replay()
        return result

    return run


def compiled(module: Any, data: tuple[Any, ...]) -> Callable[[], Any]:
    import torch

    fast = torch.compile(module, mode="max-autotune")

    def run() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return fast(*data)

    for _ in range(3):
        run()
    return run


def in_turn(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Medians in milliseconds."""
    import torch

    took: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(ROUNDS + 5):
        for way, run in runs.items():
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            run()
            ended.record()
            ended.synchronize()
            took[way].append(began.elapsed_time(ended))
    return {way: statistics.median(times[5:]) for way, times in took.items()}


def _tensor(result: Any) -> Any:
    from torch.utils._pytree import tree_leaves

    return tree_leaves(result)[0].clone()


def _same(one: Any, other: Any) -> bool:
    bound = TOLERANCE * float(other.abs().max())
    return bool(one.shape == other.shape and float((one - other).abs().max()) <= bound)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search (default 60)")
    parser.add_argument("--models", nargs="*", choices=MODELS, help="only these")


BENCHMARK = Benchmark(
    "optimize_gpu", __doc__ or "", measure, 1.1, "least gain over the best back end, geometric mean", add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
