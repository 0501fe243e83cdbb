"""How much each kind of plan communicates, and what a worker then needs, beside Tofu's Figure 10.

What: for each of Tofu's models on its machine (p2.8xlarge: 8 K80 of 12 GB, mesh 2×4) the bytes that all workers
receive in one training step under the plan of each search, the time that the roofline predicts, the memory of the
worker that needs most, and whether that exceeds 12 GB.
How: each model is captured with SGD with momentum; each search is given the same graph, the same costs and the same
wall seconds; the plan is lowered, and its bytes and memory are read from the program that would run (exact). Batches:
the paper names 128 for WResNet-50-4, "at most 32" for WResNet-152-4, 8 for WResNet-152-10, 512 for RNNs and 128 for
RNN-10-8K; for the others we choose, by width, from 32 down to 8.
Against: Tofu §7.3, Figure 10, on RNN-4-8K and WResNet-152-10, in words: AllRow-Greedy (`row`) is worst and runs out
of memory for WResNet-152-10; Spartan (`greedy`) and EqualChop (`equal`) lower the communication overhead by 3 to 10%
but stay worse than Tofu; ICML18 (`no-reduction`) is 7% slower for RNN-4-8K and runs out of memory for WResNet-152-10;
Tofu (`recursive`) fits both. Figure 10 has no printed bytes.
The floor: `exact` never communicates more than `--floor` times any other plan. `data` and `sharded` hold copies (of
weights; of what is computed from them), which `exact` under this objective may not: no theorem says that it wins
against them, so where one of them communicates less, it is a miss and a note says what its copies cost in memory.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured, note, objective, searched, seconds_option, timed

MACHINE = "p2.8xlarge"
SAME_SPACE = ("recursive", "no-reduction", "equal", "greedy", "row")
COPIES = ("data", "sharded")
SEARCHED = ("exact", *SAME_SPACE, *COPIES)
TEXTS = {"exact": "exact:space=tofu"}
"""Searches whose names need options: Tofu's own space, that of the plans beside it."""

BATCHES = {"wresnet-50-4": 128, "wresnet-152-10": 8, "rnn-10-8k": 128}
MODELS = (
    "rnn-4-8k",
    *(f"rnn-{layers}-{hidden}k" for layers in (6, 8, 10) for hidden in (4, 6, 8)),
    *(f"wresnet-{depth}-{width}" for depth in (50, 101, 152) for width in (4, 6, 8, 10)),
)
QUICK = ("lenet-tiny", "mlp-512-512-10")

PAPER = {
    ("rnn-4-8k", "recursive"): "fits; the reference",
    ("rnn-4-8k", "no-reduction"): "7% slower",
    ("rnn-4-8k", "equal"): "slower",
    ("rnn-4-8k", "greedy"): "slower",
    ("rnn-4-8k", "row"): "slowest",
    ("wresnet-152-10", "recursive"): "fits; the reference",
    ("wresnet-152-10", "no-reduction"): "out of memory",
    ("wresnet-152-10", "equal"): "slower",
    ("wresnet-152-10", "greedy"): "slower",
    ("wresnet-152-10", "row"): "out of memory",
}


def batch_of(name: str) -> int | None:
    """The model's batch; None: the catalogue's."""
    if name in BATCHES or not name.startswith("wresnet"):
        return BATCHES.get(name)
    width = name.split("-")[-1]
    return {"4": 32, "6": 32, "8": 16, "10": 8}.get(width)


def cost(graph: Any, name: str, seconds: float) -> Row:
    """Bytes, predicted seconds and memory of one search's plan; or why there is none."""
    from girih.api import Plan
    from girih.plans.choice import Choice
    from girih.plans.plan import Goal

    aim = objective("bytes", MACHINE)
    try:
        found, timing = timed(searched, TEXTS.get(name, name), graph, aim, seconds)
    except ValueError as error:
        return {"search": name, "failed": str(error).splitlines()[0]}
    choice = Choice(found.strategy, routes=aim.unit)
    made = Plan(graph, aim.machine, choice, found.certificate, Goal(name, "bytes"))
    return {
        "search": name,
        "bytes": int(made.bytes_received.sum()),
        "predicted seconds": made.costs.seconds,
        "peak": made.peak,
        "fits": "fits" if made.peak <= aim.machine.device.memory_bytes else "exceeds 12 GB",
        "gap": found.certificate.gap if name == "exact" else None,
        "seconds": timing,
    }


def measure(options: argparse.Namespace) -> Report:
    names = options.models or (QUICK if options.quick else MODELS)
    rows: list[Row] = []
    misses: list[str] = []
    notes: list[str] = []
    for name in names:
        batch = batch_of(name)
        graph = captured(name, batch)
        found = {search: cost(graph, search, options.seconds) for search in SEARCHED}
        best = found["exact"]["bytes"]
        for search, row in found.items():
            moved = row.get("bytes")
            rows.append(
                {
                    "model": f"{name}, batch {_batch(graph)}",
                    **row,
                    "GB": None if moved is None else round(moved / 1e9, 4),
                    "ratio": None if not moved or not best else round(moved / best, 3),
                    "peak GB": None if moved is None else round(row["peak"] / 1e9, 3),
                    "fits": row.get("fits", row.get("failed")),
                    "paper": PAPER.get((name, search)),
                }
            )
            note(rows[-1])
            if moved is None:
                continue
            if search != "exact" and best > moved * options.floor:
                misses.append(f"{name}: exact moves {best / 1e9:.4g} GB, {search} {moved / 1e9:.4g}")
            if search in COPIES and best > moved:
                notes.append(
                    f"{name}: {search} moves {moved / best:.2f} of exact's bytes by holding copies, "
                    f"with {row['peak'] / found['exact']['peak']:.2f} times its memory on a worker"
                )
    columns = (
        ("model", "model"),
        ("search", "search"),
        ("moved GB", "GB"),
        ("× exact", "ratio"),
        ("predicted s", "predicted seconds"),
        ("worker's peak GB", "peak GB"),
        ("12 GB", "fits"),
        ("gap", "gap"),
        ("search CPU / wall", "seconds"),
        ("Tofu, Figure 10", "paper"),
    )
    over = sum(row["search"] == "exact" and row["fits"] != "fits" for row in rows)
    return Report(
        "Communication of a training step on 8 workers; Tofu's Figure 10",
        columns,
        tuple(rows),
        f"exact never moves more than {', '.join(SEARCHED[1:])} on {len(names)} models; {over} of them exceed 12 GB",
        tuple(misses),
        tuple(notes),
    )


def _batch(graph: Any) -> int:
    return int(next(graph.values[item.name].shape[0] for item in graph.inputs if item.role == "batch"))


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help=f"of the catalogue (default: {', '.join(MODELS)})")


BENCHMARK = Benchmark(
    "partition_quality", __doc__ or "", measure, 1.0, "exact's bytes over another's, at most", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
