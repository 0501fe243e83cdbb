"""The search for rewrites: seconds and relative cost gained, beside what an e-graph optimizer published (TENSAT, Yang
et al., MLSys 2021: its seconds, and its gains in percent, on a T4).

What: seven models, batch 1, batch norms in the convolutions before the search, as the published models have none.
How: backtracking (alpha 1.05) and equality saturation with extraction by an integer program, each in segments, by one
cost function. The published one was the sum of operators measured on a T4; there is none here, so an operator costs
what a T4's data sheet says: 5 µs for its launch, and the larger of its arithmetic at 8.1 TFLOP/s and its bytes at 320
GB/s; relu and bias are free behind a convolution. Gains are comparable in kind, not to the percent: what is free here
was gained there. Seconds are of the processor, one thread.
Floors: no more than ten times the published seconds of search by backtracking, and a cost within the floor of the
e-graph's bound, which is of the space that was explored, in which what backtracking found is: of all that the rules
reach where the e-graph is saturated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.models_of_taso import captured, without_norms

PUBLISHED = {
    "bert-12-768": (1.4, 9.2),
    "resnext-50-branches": (0.7, 8.8),
    "nasnet-4-44": (10.6, 7.3),
    "nasrnn": (0.5, 69.0),
    "inception": (5.1, 10.0),
    "squeezenet": (0.3, 24.5),
    "vgg": (0.4, 8.9),
}
"""Seconds and gain in percent."""
QUICK = ("squeezenet",)
ORDER = 10.0
"""Of magnitude."""


def measure(options: argparse.Namespace) -> Report:
    from benchmarks.data_sheet import DataSheetCosts
    from girih.machine.presets import T4
    from girih.rewrite.backtracking import Backtracking
    from girih.rewrite.certificate import together
    from girih.rewrite.rules.further import inference
    from girih.rewrite.rules.shipped import shipped
    from girih.rewrite.saturation import Saturation
    from girih.rewrite.segments import segments

    rules = (*inference(), *shipped())
    rows: list[Row] = []
    misses = []
    notes = []
    for name in QUICK if options.quick else options.models or tuple(PUBLISHED):
        seconds, gain = PUBLISHED[name]
        graph, weights = without_norms(captured(name))
        costs = DataSheetCosts(T4, frozenset(weights))
        parts = segments(graph, weights)
        _warm(parts[0], rules, costs)

        def share(part: Any, of: Any = graph) -> float:
            return options.seconds * len(part.nodes) / len(of.nodes)

        began = time.process_time()
        found = [Backtracking(seconds=share(part)).search(part, rules, costs) for part in parts]
        searched = time.process_time() - began
        began = time.process_time()
        every = [Saturation(seconds=share(part)).search(part, rules, costs) for part in parts]
        saturated = time.process_time() - began
        bounded = [
            Saturation(seconds=share(part)).bounded(item, part, rules, costs)
            for item, part in zip(found, parts, strict=True)
        ]
        before = sum(item.before for item in found)
        cost = sum(item.cost for item in found)
        certificate = together(tuple(item.certificate for item in bounded if item.certificate is not None))
        gap = cost / certificate.bound - 1
        names = Counter(step.rule.name for item in found for step in item.sequence)
        row: Row = {
            "model": name,
            "ops": len(graph.nodes),
            "ms before": round(before * 1e3, 3),
            "seconds": round(searched, 2),
            "published": seconds,
            "ratio": round(searched / seconds, 2),
            "saturation": round(saturated, 2),
            "gain %": round(100 * (before / cost - 1), 1),
            "published %": gain,
            "saturation %": round(100 * (before / sum(item.cost for item in every) - 1), 1),
            "gap %": round(100 * gap, 2),
            "nodes": int(certificate.statistics["nodes"]),
            "circles": int(certificate.statistics["circles cut"]),
            "stopped": _short(certificate.stopped),
        }
        notes.append(
            f"{name}: {', '.join(f'{count} × {rule}' for rule, count in names.most_common(6)) or 'no rewrite'}"
        )
        rows.append(row)
        note(row)
        if searched > ORDER * seconds:
            misses.append(f"{name}: {searched:.1f} s, published {seconds} s")
        if gap > options.floor:
            misses.append(f"{name}: {gap:.1%} above the e-graph's bound, at most {options.floor:.0%}")
    return Report(
        "Search for rewrites",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{len(rows)} models, at most {max(row['ratio'] for row in rows):.3g} × the published seconds, "
        f"at most {max(row['gap %'] for row in rows):.3g} % above the e-graph's bound",
        tuple(misses),
        (*notes, "Costs are a T4's data sheet, not measured on one; published seconds are of another machine."),
    )


def _short(stopped: str) -> str:
    """`saturated` in how many words the reasons of all parts have."""
    kinds = dict.fromkeys(" ".join(word for word in reason.split() if not word[0].isdigit())
                          for reason in stopped.split("; "))  # fmt: skip
    return "; ".join(kinds)


def _warm(part: Any, rules: Any, costs: Any) -> None:
    """The catalogue of operators and SciPy are read before the clock starts."""
    from girih.rewrite.backtracking import Backtracking
    from girih.rewrite.saturation import Saturation

    Backtracking(graphs=1).search(part, rules, costs)
    Saturation(rounds=1, seconds=2).search(part, rules[:1], costs)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search of a model (default 60)")
    parser.add_argument("--models", nargs="*", choices=tuple(PUBLISHED), help="only these")


BENCHMARK = Benchmark(
    "rewrite_search",
    __doc__ or "",
    measure,
    0.1,
    "most that backtracking may cost above the e-graph's bound",
    add_options,
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
