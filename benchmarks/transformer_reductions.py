"""Reductions of activations in each layer of transformers, beside Megatron-LM's.

What: the proved optimum by `seconds` of a training step of BERT, GPT and Llama on 4 and 8 GPUs with fast links. An
activation is whatever forward and backward make that is at least as large as what flows between layers, and no gradient
of a weight; its reduction is a transfer in which devices combine partial sums of it. A layer's name stands in the scope
of its nodes.
How: the plan is lowered, and the program's transfers are counted by the layer for whose sake they are; an all-reduce in
two hops counts once, since only the first combines.
Against: Megatron-LM's own division of the same graph (`megatron`), counted alike: two all-reduces in each pass of a
layer, four together. Floor: no layer reduces activations more often than `--floor` times, nor than one of Megatron's
plan does; beside stands how often all layers do, and what is in none.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured, note, objective, searched, seconds_option, timed

CASES = (
    # model, batch, options, elements of what flows between layers
    ("bert-12-768", 8, {"sequence": 128}, 8 * 128 * 768),
    ("gpt-12-1024", 8, {"sequence": 128, "vocabulary": 50304}, 8 * 128 * 1024),
    ("llama-8-1024", 8, {"sequence": 128}, 8 * 128 * 1024),
)
QUICK = (("bert-2-256", 4, {"sequence": 32}, 4 * 32 * 256), ("gpt-2-256", 4, {"sequence": 32}, 4 * 32 * 256))
MACHINES = ("dgx-v100:4", "dgx-h100")
LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


def reductions(graph: Any, strategy: Any, transfers: Any, elements: int) -> Counter[str]:
    """How often activations are reduced, by the number of the layer; "" for what is in none."""
    from girih.layout import level_volumes
    from girih.program import lower

    program = lower(graph, strategy, transfers)
    weights = {graph.values[item.name].shape for item in graph.state_inputs}
    counts: Counter[str] = Counter()
    for step in program.transfers:
        value, node = graph.values[step.value], graph.nodes[step.node]
        large = value.elements >= elements and value.shape not in weights and node.phase != "update"
        if not large or program.terms_of(step) == 1:
            continue
        if level_volumes(program.mesh, step.before, step.after).any():
            layer = LAYER.search(node.scope or "")
            counts[layer[1] if layer else ""] += 1
    return counts


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    for name, batch, overrides, elements in QUICK if options.quick else CASES:
        graph = captured(name, batch, **overrides)
        for machine in MACHINES[:1] if options.quick else MACHINES:
            aim = objective("seconds", machine)
            found, timing = timed(searched, "exact", graph, aim, options.seconds)
            expert = searched("megatron", graph, aim, options.seconds)
            own = reductions(found.graph or graph, found.strategy, aim.transfers, elements)
            theirs = reductions(expert.graph or graph, expert.strategy, aim.transfers, elements)
            most = max((count for layer, count in own.items() if layer), default=0)
            row: Row = {
                "model": f"{name}, batch {batch}",
                "machine": machine,
                "most": most,
                "together": sum(own.values()),
                "megatron most": max((count for layer, count in theirs.items() if layer), default=0),
                "megatron": sum(theirs.values()),
                "ratio": round(found.certificate.cost / expert.certificate.cost, 3),
                "gap": f"{found.certificate.gap:.2%}",
                "cpu": round(timing.cpu, 2),
            }
            rows.append(row)
            note(row)
            if most > min(options.floor, row["megatron most"]):
                misses.append(f"{name} on {machine}: {most} in a layer, Megatron's {row['megatron most']}")
    columns = (
        ("model", "model"),
        ("machine", "machine"),
        ("most in a layer", "most"),
        ("together", "together"),
        ("Megatron's, in a layer", "megatron most"),
        ("together", "megatron"),
        ("seconds / Megatron's", "ratio"),
        ("gap", "gap"),
        ("search CPU s", "cpu"),
    )
    return Report(
        "Reductions of activations in a training step, by seconds",
        columns,
        tuple(rows),
        f"at most {max(row['most'] for row in rows)} reductions of activations in a layer",
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "transformer_reductions", __doc__ or "", measure, 4.0, "reductions of activations in a layer", seconds_option
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
