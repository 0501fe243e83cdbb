"""Operators that index notation describes: of those that occur, and of PyTorch's core set.

What: the share of operators with a description, from which divisions, regions, costs and pieces are derived; an
operator without one runs undivided on every device.
How: every family of the catalogue is captured in its tiny variant (the same operators as the large ones), with SGD
with momentum and with Adam; an operator counts as described only if all its calls are. Then the operators that
PyTorch tags as core ATen and that make tensors, by their pages.
Against: Tofu §4.1: of MXNet's 139 operators 134 are described, 77 element-wise, 2 opaque, 11 with output reductions.
The floor: every operator that occurs, and `--floor` of the core set.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.common import Benchmark, Report, Row, captured

TOFU = (134, 139)


def measure(options: argparse.Namespace) -> Report:
    from girih.models import tiny_names
    from girih.ops import description_of
    from girih.ops.coverage import core_operators, count, coverage

    calls = []
    models = ("mlp-tiny", "lenet-tiny", "rnn-tiny", "gpt-tiny") if options.quick else tiny_names()
    for name in models:
        for optimizer in ("momentum",) if options.quick else ("momentum", "adam"):
            graph = captured(name, None, optimizer)
            calls += [(node.operator, description_of(graph, node)) for node in graph.nodes]
    occurring = count(f"operators of {len(models)} model families, {len(calls)} calls", calls)
    core = coverage("core ATen", [name for name, reason in core_operators().items() if not reason])
    rows: list[Row] = [
        {
            "set": item.title,
            "described": item.described,
            "total": item.total,
            "share": round(item.described / max(item.total, 1), 4),
            "elementwise": len(item.elementwise),
            "opaque": len(item.opaque),
            "reducing": len(item.reducing),
            "undescribed": ", ".join(item.undescribed) or "none",
        }
        for item in (occurring, core)
    ]
    rows.append(
        {
            "set": "Tofu §4.1: MXNet",
            "described": TOFU[0],
            "total": TOFU[1],
            "share": round(TOFU[0] / TOFU[1], 4),
            "elementwise": 77,
            "opaque": 2,
            "reducing": 11,
            "undescribed": None,
        }
    )
    misses = []
    if occurring.undescribed:
        misses.append(f"{len(occurring.undescribed)} that occur are not described: {', '.join(occurring.undescribed)}")
    if rows[1]["share"] < options.floor:
        misses.append(
            f"{core.described} of {core.total} core operators ({rows[1]['share']:.1%}), floor {options.floor:.0%}"
        )
    columns = (
        ("operators", "set"),
        ("described", "described"),
        ("of", "total"),
        ("share", "share"),
        ("element-wise", "elementwise"),
        ("opaque", "opaque"),
        ("with reductions", "reducing"),
        ("not described", "undescribed"),
    )
    summary = (
        f"{occurring.described} of {occurring.total} operators that occur and {core.described} of {core.total} "
        f"core ATen operators ({rows[1]['share']:.1%})"
    )
    return Report("Operators described in index notation; Tofu §4.1", columns, tuple(rows), summary, tuple(misses))


BENCHMARK = Benchmark("operator_coverage", __doc__ or "", measure, 0.95, "share of the core set")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
