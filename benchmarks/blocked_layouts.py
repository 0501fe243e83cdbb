"""Are oneDNN's blocked activations worth a layout of their own, beside channels last with packed weights?

What: each convolution of ResNet-50, of one image, as many times as the model has it. How: with one thread, weights in
oneDNN's order, activations with their channels last, or in oneDNN's blocks (`to_mkldnn`) as they would lie between two
convolutions that keep them; in turns, in seconds of the processor, the faster rounds. What brings an activation into
blocks and back is measured beside, and is not in the sums. Floor: channels last takes no more than blocks do, but for
noise; where it does, the search wants blocks as a third layout (docs/design/011-blocked-activations.md).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.common import Benchmark, Report, Row
from benchmarks.models_of_taso import captured

ROUNDS = 25
QUICK_ROUNDS, QUICK_SHAPES = 5, 4


def measure(options: argparse.Namespace) -> Report:
    import torch

    shapes = list(_convolutions("resnet-50").items())[: QUICK_SHAPES if options.quick else None]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            rows = [_row(shape, count, options) for shape, count in shapes]
    finally:
        torch.set_num_threads(before)
    last, blocks = (sum(row[key] * row["times"] for row in rows) for key in ("channels last ms", "blocks ms"))
    ratio = blocks / last
    misses = [] if ratio >= options.floor else [f"blocks take {ratio:.3f} × what channels last takes"]
    return Report(
        "Layouts of activations",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"blocks take {ratio:.3f} × the seconds of channels last, {last:.1f} ms, over all convolutions",
        tuple(misses),
    )


Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[str, Any], ...]]


def _convolutions(name: str) -> Counter[Shape]:
    """(data, weight, attributes) of each, and how often the model has it."""
    graph = captured(name).graph
    found: Counter[Shape] = Counter()
    for node in graph.nodes:
        if node.operator == "aten.convolution":
            data, weight = (graph.values[name].shape for name in node.inputs[:2])
            options = tuple((key, node.attributes[key]) for key in ("padding", "stride", "dilation", "groups"))
            found[data, weight, options] += 1
    return found


def _row(shape: Shape, count: int, options: argparse.Namespace) -> Row:
    import torch

    from girih.kernels.onednn import CONVOLUTION, packed

    data, weight, attributes = shape
    torch.manual_seed(0)
    x, filters, at = torch.randn(data), torch.randn(weight), dict(attributes)
    order, call, behind = packed(CONVOLUTION, at, filters, data)
    last = x.to(memory_format=torch.channels_last)
    blocks = x.to_mkldnn()
    window = [list(at[key]) for key in ("padding", "stride", "dilation")]
    in_blocks = torch._C._nn.mkldnn_reorder_conv2d_weight(filters.to_mkldnn(), *window, at["groups"], list(data))
    took = in_turn(
        {
            "channels last": lambda: call(last, order, None, *behind),
            "blocks": lambda: torch.mkldnn_convolution(blocks, in_blocks, None, *window, at["groups"]),
            "to blocks": lambda: last.to_mkldnn(),
        },
        QUICK_ROUNDS if options.quick else ROUNDS,
    )
    return {
        "data": "×".join(map(str, data[1:])),
        "weight": "×".join(map(str, weight)),
        "stride": at["stride"][0],
        "times": count,
        "channels last ms": round(took["channels last"] * 1e3, 3),
        "blocks ms": round(took["blocks"] * 1e3, 3),
        "blocks / channels last": round(took["blocks"] / took["channels last"], 2),
        "to blocks ms": round(took["to blocks"] * 1e3, 3),
    }


def in_turn(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    from girih.inference.trial import quick

    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            began = time.process_time()
            run()
            took[name].append(time.process_time() - began)
    return {name: quick(times[1:]) for name, times in took.items()}


BENCHMARK = Benchmark(
    "blocked_layouts", __doc__ or "", measure, 0.95, "least that blocks take, in parts of channels last's seconds"
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
