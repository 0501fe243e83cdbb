"""Weights, gradients and optimizer history in bytes, beside Tofu's Table 2.

What: Wang, Huang, Li, EuroSys 2019 (Tofu), §7.1: "a model of weight size W needs to consume at least 3W size of memory
for storing the weight, gradient and the history tensors". Table 2 lists 3W for RNNs of L layers of H cells and for
ResNets of 50, 101 and 152 layers, W times as wide. It shows that the benchmarks' models are the paper's models.
How: each model is captured on the meta device with SGD with momentum (or Adagrad), one history tensor for each weight;
the captured graph's inputs are added up: parameters, one gradient for each parameter that is updated, and the
optimizer's tensors. Nothing is allocated.
Against: Table 2. Its entries are multiples of 0.3: three times W rounded to a tenth, and they fit 2^30 bytes to the
GB, not 10^9. Its 28.5 for L=8, H=6K is a misprint of 25.5: sizes are linear in L, and between 18.6 and 32.1 lies 25.35.
The floor is the largest relative difference of any entry; "rounded" is ours rounded as the paper's.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.common import Benchmark, Report, Row, captured, note

TABLE_2 = {
    "rnn-6-4k": 8.4,
    "rnn-8-4k": 11.4,
    "rnn-10-4k": 14.4,
    "rnn-6-6k": 18.6,
    "rnn-8-6k": 25.5,
    "rnn-10-6k": 32.1,
    "rnn-6-8k": 33.0,
    "rnn-8-8k": 45.3,
    "rnn-10-8k": 57.0,
    "wresnet-50-4": 4.2,
    "wresnet-101-4": 7.8,
    "wresnet-152-4": 10.5,
    "wresnet-50-6": 9.6,
    "wresnet-101-6": 17.1,
    "wresnet-152-6": 23.4,
    "wresnet-50-8": 17.1,
    "wresnet-101-8": 30.6,
    "wresnet-152-8": 41.7,
    "wresnet-50-10": 26.7,
    "wresnet-101-10": 47.7,
    "wresnet-152-10": 65.1,
}
PRINTED = {"rnn-8-6k": "28.5, misprint of 25.5"}


GIB = 2**30


def sizes(name: str, optimizer: str, short: bool) -> dict[str, int]:
    """Bytes of parameters, gradients and history. short: fewer time steps, which share their weights."""
    overrides = {"steps": 2} if short and name.startswith("rnn") else {}
    graph = captured(name, 8, optimizer, **overrides)
    held = {
        role: [item.name for item in graph.inputs if item.role == role] for role in ("parameter", "state", "buffer")
    }
    history = [name for name in held["state"] if graph.values[name].shape]  # not the count of steps
    trained = [name for name in held["parameter"] if name in graph.updates]
    return {
        "parameters": sum(graph.values[name].bytes for name in held["parameter"]),
        "gradients": sum(graph.values[name].bytes for name in trained),
        "history": sum(graph.values[name].bytes for name in history),
    }


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    for name in ("rnn-6-4k", "wresnet-50-4") if options.quick else TABLE_2:
        found = sizes(name, options.optimizer, options.quick)
        total = sum(found.values())
        rows.append(
            {
                "model": name,
                **{key: round(size / GIB, 3) for key, size in found.items()},
                "total": round(total / GIB, 3),
                "rounded": f"{3 * round(found['parameters'] / GIB, 1):.1f}",
                "paper": TABLE_2[name],
                "printed": PRINTED.get(name, f"{TABLE_2[name]}"),
                "ratio": round(total / (TABLE_2[name] * GIB), 4),
            }
        )
        note(rows[-1])
    misses = [
        f"{row['model']} has {row['total']:.2f} GiB, the paper {row['paper']}"
        for row in rows
        if abs(row["ratio"] - 1) > options.floor
    ]
    same = sum(row["rounded"] == f"{row['paper']:.1f}" for row in rows)
    worst = max(abs(row["ratio"] - 1) for row in rows)
    columns = (
        ("model", "model"),
        ("weights GiB", "parameters"),
        ("gradients GiB", "gradients"),
        ("history GiB", "history"),
        ("together GiB", "total"),
        ("rounded", "rounded"),
        ("Tofu, Table 2", "printed"),
        ("ours / paper's", "ratio"),
    )
    return Report(
        f"Weights, gradients and history ({options.optimizer}), captured; Tofu's Table 2",
        columns,
        tuple(rows),
        f"{len(rows)} entries within {worst:.2%} of Table 2 (floor {options.floor:.0%}), {same} equal once rounded",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--optimizer", choices=("momentum", "adagrad"), default="momentum")


BENCHMARK = Benchmark("weight_sizes", __doc__ or "", measure, 0.03, "largest relative difference", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
