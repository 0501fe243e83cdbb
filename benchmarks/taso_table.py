"""TASO's evaluation (Figs. 2.7, 2.11, 2.12): what rewrites gain for its five models, by a V100's data sheet and here.

What: ResNet-50, ResNeXt-50 (as 32 branches, as TASO's figure 2.9a), NasNet-A, NasRNN, BERT, batch 1. Four tables.
By a V100: the cost of a graph as it is, with its batch norms in the convolutions, and as the search leaves it; a launch
takes 5 µs, arithmetic and bytes what the data sheet says; beside it the paper's gain over the best framework (measured
on a V100, over frameworks that do some of it themselves). Sizes of rules: the same with the rules that have at most 2,
3, 4 operators on a side, and with all. Here: `girih.optimize` on one thread, measured in turns against the model in
eager PyTorch, in seconds of the processor. Strategies: for BERT, what is chosen by rewrites alone, layouts alone,
rewrites and then layouts, and both together, by kernels that are measured here, since a data sheet knows no layouts;
each is also run, in turns.
Floors: the gain by the data sheet of the five in geometric mean; larger rules never cost more; both together never cost
more than the three others, but for the noise between measurements.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.models_of_taso import Captured, captured, without_norms
from benchmarks.optimize_cpu import in_turn

PAPER = {
    "resnet-50": "on par", "resnext-50-branches": "2.8", "nasnet-4-44": "1.3 to 2.8", "nasrnn": "1.3 to 2.8",
    "bert-12-768": "1.3 to 2.8",
}  # fmt: skip
"""Section 2.9.2, cuDNN: what its text says of figure 2.7."""
QUICK = ("nasrnn",)
SIZES = (2, 3, 4)
SAME = 0.02


def all_rules() -> tuple[Any, ...]:
    from girih.rewrite.rules.further import inference
    from girih.rewrite.rules.shipped import shipped

    return (*inference(), *shipped())


def of_size(rules: Sequence[Any], size: int) -> tuple[Any, ...]:
    """Those with at most so many operators on a side."""
    from girih.rewrite.rules.rule import operators

    return tuple(rule for rule in rules if max(operators(rule.source), operators(rule.target)) <= size)


def searched(graph: Any, weights: Collection[str], rules: Sequence[Any], seconds: float) -> list[Any]:
    """By a V100's data sheet, in segments."""
    from benchmarks.data_sheet import DataSheetCosts
    from girih.machine.presets import V100
    from girih.rewrite.backtracking import Backtracking
    from girih.rewrite.segments import segments

    costs = DataSheetCosts(V100, frozenset(weights))
    return [
        Backtracking(seconds=seconds * len(part.nodes) / len(graph.nodes)).search(part, rules, costs)
        for part in segments(graph, weights)
    ]


def by_data_sheet(names: Sequence[str], seconds: float) -> tuple[list[Row], list[Row]]:
    """(gains beside the paper's, gains by the size of rules)."""
    rows: list[Row] = []
    sizes: list[Row] = []
    for name in names:
        note({"by the data sheet": name})
        found = captured(name)
        graph, weights = without_norms(found)
        as_it_is = sum(item.before for item in searched(found.graph, found.weights, (), 1.0))
        every = {}
        for size in (*SIZES, 0):
            began = time.perf_counter()
            rules = of_size(all_rules(), size) if size else all_rules()
            parts = searched(graph, weights, rules, seconds)
            every[size] = (parts, time.perf_counter() - began, len(rules))
        parts, took, _ = every[0]
        before, cost = sum(item.before for item in parts), sum(item.cost for item in parts)
        steps = Counter(step.rule.name for item in parts for step in item.sequence)
        rows.append({
            "model": name,
            "ms as it is": round(as_it_is * 1e3, 3),
            "ms, norms folded": round(before * 1e3, 3),
            "ms rewritten": round(cost * 1e3, 3),
            "gain": round(before / cost, 2),
            "gain with norms": round(as_it_is / cost, 2),
            "paper": PAPER[name],
            "seconds": round(took, 1),
            "sequence": ", ".join(f"{count} × {rule}" for rule, count in steps.most_common(5)),
        })  # fmt: skip
        note(rows[-1])
        sizes.append({
            "model": name,
            **{
                (f"rules ≤ {size}" if size else "all rules"): round(before / sum(item.cost for item in parts), 3)
                for size, (parts, _, _) in every.items()
            },
        })  # fmt: skip
        note(sizes[-1])
    return rows, sizes


def here(names: Sequence[str], seconds: float) -> list[Row]:
    """Measured: `girih.optimize` against eager PyTorch, one thread."""
    import torch

    import girih

    rows: list[Row] = []
    for name in names:
        note({"measured here": name})
        found = captured(name, "cpu")
        data = tuple(found.data.values())
        fast = girih.optimize(found.module, data, threads=1, seconds=seconds, backends=("eager", "onednn"))
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        with torch.no_grad():
            took = in_turn({"girih": lambda fast=fast, data=data: fast(*data),
                            "eager": lambda found=found, data=data: found.module(*data)}, 1)  # fmt: skip
        torch.set_num_threads(before)
        explanation = fast.explain()
        steps = Counter(step.rule.name for step in explanation.sequence)
        rows.append({
            "model": name,
            "ms eager": round(took["eager"] * 1e3, 2),
            "ms girih": round(took["girih"] * 1e3, 2),
            "eager / girih": round(took["eager"] / took["girih"], 2),
            "kernels, before / behind": round(explanation.before / explanation.cost, 3),
            "chosen": f"{explanation.chosen.program}, {explanation.chosen.backend}",
            "sequence": ", ".join(f"{count} × {rule}" for rule, count in steps.most_common(4)),
        })  # fmt: skip
        note(rows[-1])
    return rows


def strategies(found: Captured, seconds: float) -> list[Row]:
    """Figure 2.12's four, by kernels measured here with one thread: the sums, and what the programs take."""
    import torch

    from girih.inference.layouts import ENDS, LayoutCosts
    from girih.inference.module import module_of
    from girih.inference.searching import rewrite
    from girih.rewrite.backtracking import Backtracking
    from girih.rewrite.ways import ROWS, cheapest

    class InRows(LayoutCosts):
        """PyTorch's own kernels, all in rows."""

        def ways(self, graph: Any, node: Any, constant: Any) -> Any:
            every = super().ways(graph, node, constant)
            return tuple(
                way for way in every if way.kernel == "aten" and way.makes == ROWS and set(way.reads) <= {ROWS}
            )

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    joint, rows_only = LayoutCosts(found.weights, 1), InRows(found.weights, 1)
    rows_only.known = joint.known  # each kernel is measured once
    graph, weights, rules = found.graph, dict(found.weights), all_rules()
    plain = rewrite(graph, weights, (), rows_only, Backtracking(seconds=1))
    substituted = rewrite(graph, weights, rules, rows_only, Backtracking(seconds=seconds))
    laid = rewrite(graph, weights, (), joint, Backtracking(seconds=1, ends=ENDS))
    later_costs = LayoutCosts(substituted.weights, 1)
    later_costs.known = joint.known
    later = cheapest(substituted.graph, later_costs)
    both = rewrite(graph, weights, rules, joint, Backtracking(seconds=seconds, ends=ENDS))
    if later.cost < both.choice.cost:  # what one after the other finds is in the space of both together
        both = type(both)(substituted.graph, substituted.weights, later, both.before, both.searched)
    named = {
        "as it is": (plain.graph, plain.weights, plain.choice),
        "substitutions alone": (substituted.graph, substituted.weights, substituted.choice),
        "layouts alone": (laid.graph, laid.weights, laid.choice),
        "one after the other": (substituted.graph, substituted.weights, later),
        "both together": (both.graph, both.weights, both.choice),
    }
    runs = {}
    for name, (program, tensors, choice) in named.items():
        module = module_of(program, tensors, ways=choice.ways)
        runs[name] = lambda module=module: module(*found.data.values())
    with torch.no_grad():
        took = in_turn(runs, 1)
    torch.set_num_threads(before)
    first = plain.choice.cost
    return [
        {
            "strategy": name,
            "ms of kernels": round(choice.cost * 1e3, 3),
            "gain": round(first / choice.cost, 3),
            "ms measured": round(took[name] * 1e3, 2),
            "measured gain": round(took["as it is"] / took[name], 3),
            "tensors not in rows": len(choice.layouts),
            "conversions": len(choice.conversions),
        }
        for name, (_, _, choice) in named.items()
    ]


def measure(options: argparse.Namespace) -> Report:
    names = QUICK if options.quick else options.models or tuple(PAPER)
    seconds = min(options.seconds, 4.0) if options.quick else options.seconds
    rows, sizes = by_data_sheet(names, seconds)
    note({"strategies": "by kernels measured here"})
    four = strategies(captured("nasrnn-tiny" if options.quick else "bert-12-768", "cpu"), seconds)
    for row in four:
        note(row)
    measured = [] if options.quick else here(names, seconds)
    misses = []
    mean = math.exp(statistics.fmean(math.log(row["gain"]) for row in rows))
    if mean < options.floor:
        misses.append(f"{mean:.2f} × in geometric mean, floor {options.floor}")
    for row in sizes:
        gains = [value for key, value in row.items() if key != "model"]
        if any(second < first * (1 - SAME) for first, second in pairwise(gains)):
            misses.append(f"{row['model']}: larger rules cost more")
    *others, both = four
    if any(both["ms of kernels"] > other["ms of kernels"] * (1 + SAME) for other in others):
        misses.append("both together cost more than another strategy")
    return Report(
        "By a V100's data sheet",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{mean:.2f} × in geometric mean of {len(rows)}, at most {max(row['gain'] for row in rows):.2f} × "
        f"(paper: at most 2.8 ×); both together {both['gain']:.2f} ×",
        tuple(misses),
        parts=(
            Report("Sizes of rules (gain by the data sheet)", tuple((key, key) for key in sizes[0]), tuple(sizes), ""),
            Report("Strategies, measured here", tuple((key, key) for key in four[0]), tuple(four), ""),
            *(
                [Report("Measured here", tuple((key, key) for key in measured[0]), tuple(measured), "")]
                if measured
                else []
            ),
        ),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search (default 30)")
    parser.add_argument("--models", nargs="*", choices=tuple(PAPER), help="only these")


BENCHMARK = Benchmark(
    "taso_table", __doc__ or "", measure, 1.1, "least gain by the data sheet, geometric mean", add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
