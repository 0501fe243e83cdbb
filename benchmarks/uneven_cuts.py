"""Uneven cuts: a fast and a slow device, and what parts in proportion to their speeds gain over halves.

What: simulated seconds of a chain of matrix products, and of training steps of models under data parallelism (SGD with
momentum), on the two unequal devices of `examples/machines/fast-and-slow.yaml` (70 and 30 TFLOP/s), with their splits
at equal parts and with the same splits at 7:3, as `girih.partition.searches.proportional` states them.
How: the same strategy twice, apart from its shares; both are lowered, priced on each device by its own data sheet, and
simulated. Against: equal parts. The bound: all multiplications and additions of the products, by the arithmetic of both
devices together. Floor: the chain is `--floor` times as fast as with equal parts (100 / 60 is the most that there is),
and no case is slower. Prices are those of data sheets: nothing is run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured

MACHINE = str(Path(__file__).resolve().parent.parent / "examples" / "machines" / "fast-and-slow.yaml")
ROWS, WIDTH, PRODUCTS = 16_384, 4096, 8
MODELS = {"mlp-4096-4096-4096-1000": 16_384, "wresnet-50-2": 64}
QUICK = {"mlp-tiny": 512}


def chain() -> Any:
    """x · w0 · w1 · …, in float32."""
    from girih.graph import Graph, Input, Node, Output, Ref, Value

    values, inputs = {"x": Value("x", (ROWS, WIDTH), "float32")}, [Input("x", "batch", "x")]
    nodes, last = [], "x"
    for number in range(PRODUCTS):
        weight, product = f"w{number}", f"y{number}"
        values[weight] = Value(weight, (WIDTH, WIDTH), "float32")
        values[product] = Value(product, (ROWS, WIDTH), "float32")
        inputs.append(Input(weight, "batch", weight))
        nodes.append(Node(product, "aten.mm", (("self", Ref(last)), ("mat2", Ref(weight))), (product,)))
        last = product
    return Graph(values, tuple(nodes), tuple(inputs), (Output(last, "result"),))


def compared(name: str, graph: Any, where: Any) -> Row:
    """Simulated seconds with equal and with stated shares."""
    from girih.api import plan_graph
    from girih.cost.roofline_costs import compute
    from girih.partition.searches.proportional import shares_along, with_shares
    from girih.plans.predict import predict

    equal = plan_graph(graph, machine=where, objective="seconds", search="data")
    shares = shares_along(where)
    uneven = equal.but(strategy=with_shares(graph, equal.strategy, shares))
    halves, stated = (predict(plan, memory=False).seconds for plan in (equal, uneven))
    operations = compute(graph, where, equal.strategy)[0].sum()
    bound = float(operations / where.figures("flops_per_second").sum())
    told = " ".join(":".join(map(str, some)) for some in shares if some)
    return {"case": name, "shares": told, "equal": halves, "stated": stated, "gain": halves / stated, "bound": bound,
            "above": stated / bound}  # fmt: skip


def measure(options: argparse.Namespace) -> Report:
    from girih.machine import machine

    where = machine(MACHINE)
    cases = {f"{PRODUCTS} products [{ROWS}, {WIDTH}]": chain()}
    for name, batch in (QUICK if options.quick else MODELS).items():
        cases[f"{name}, batch {batch}"] = captured(name, batch)
    rows = tuple(compared(name, graph, where) for name, graph in cases.items())
    first, misses = rows[0], []
    if first["gain"] < options.floor:
        misses.append(f"{first['case']}: {first['gain']:.2f} times as fast, expected {options.floor:g}")
    misses += [f"{row['case']}: slower than with equal parts" for row in rows if row["gain"] < 0.999]
    columns = (("case", "case"), ("shares", "shares"), ("equal s", "equal"), ("stated s", "stated"), ("gain", "gain"),
               ("bound s", "bound"), ("× bound", "above"))  # fmt: skip
    summary = ", ".join(f"{row['case']} {row['gain']:.2f} times as fast as with equal parts" for row in rows)
    return Report(f"simulated on {where}", columns, rows, summary, tuple(misses))


BENCHMARK = Benchmark("uneven_cuts", __doc__ or "", measure, 1.6, "gain of the chain")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
