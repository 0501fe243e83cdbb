"""The fastest plan of small cases, proved: LeNet on 4 devices, and RNNLM unrolled twice.

The space: one configuration for each operator of the model (its dimensions over mesh axes, or placed, or repeated), all
else following from it (`girih.published.optimum.configurations`); or as in the plan that `exact` finds. The search
bounds all strategies and simulates every one that the bounds leave; cost and lower bound are then equal. Checked
beside: every strategy that differs from the optimum in one operator is simulated as any plan is, and none is faster
nor below its bound. Simulating all strategies of small spaces gives the same optimum
(`tests/published/test_optimum.py`).
Against: §3.7.5 of Jia 2020 (FlexFlow), hours of depth-first search with A* in its own space (any assignment of parts
to devices, no repeated work), on 4 devices. Beside: data parallelism, and the sampled search, which divides every node
by itself: a larger space, in which it proves nothing. Floor: `--floor` seconds of processor time for the search with
its proof.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, captured, forget, note, timed

MACHINE = "p100-cluster:1"
CASES: dict[str, tuple[int, dict[str, Any], float]] = {
    # batch, options of the model, the paper's hours
    "lenet": (256, {}, 0.8),
    "rnnlm": (256, {"steps": 2}, 18.0),
}
BESIDE = 30.0
"""Seconds for each of the other searches."""
QUICK: dict[str, tuple[int, dict[str, Any], float | None]] = {"mlp-tiny": (64, {}, None)}


def proved(graph: Any, seconds: float) -> tuple[Row, list[str]]:
    """The optimum of one case, and what is wrong with it."""
    from girih.api import plan_graph

    found, timing = timed(plan_graph, graph, machine=MACHINE, objective="time", search=f"optimum:seconds={seconds}")
    told = found.certificate
    beside, wrong = neighbours(graph, found)
    others = {
        name: plan_graph(
            graph, machine=MACHINE, objective="time", search=f"{search}:seconds={min(seconds, BESIDE)}"
        ).certificate.cost
        for name, search in (("data", "data"), ("sampled", "exact"))
    }
    others["exact"] = float(told.statistics["seconds, exact"])
    row: Row = {
        "operators": told.statistics["operators"],
        "configurations": told.statistics["configurations"],
        "strategies": told.statistics["strategies"],
        "bounds": told.statistics["bounds"],
        "left": told.statistics["strategies below the first answer"],
        "simulated": told.statistics["simulated"],
        "first": told.statistics["first answer"],
        "step": told.cost,
        "bound": told.bound,
        "gap": f"{told.gap:.0%}",
        "cpu": round(timing.cpu, 1),
        "wall": round(timing.wall, 1),
        "beside": beside,
        **others,
    }
    return row, wrong


def neighbours(graph: Any, found: Any) -> tuple[int, list[str]]:
    """How many strategies differ from the optimum in one operator; which of them are faster, or below their bound."""
    from girih.layout.budget import Budget
    from girih.partition.space.problem import Objective
    from girih.plans.predict import predict
    from girih.published.optimum.configurations import space_of
    from girih.published.optimum.lower_bounds import NEVER
    from girih.published.optimum.search import BranchAndBound
    from girih.search.table import search_of
    from girih.simulate.ticks import TICKS_PER_SECOND

    def judge(strategy: Any) -> float:
        return predict(found.but(strategy=strategy), memory=False).seconds

    objective = Objective("seconds", found.machine)
    space = space_of(graph, objective, [search_of("exact", 60.0).search(graph, objective).strategy])
    search = BranchAndBound(space, objective, judge, Budget(float("inf")), found.choice.overlap)
    best = tuple(int(part) for part in str(found.certificate.statistics["choice"]).split())
    wrong = [] if space.strategy(best) == found.strategy else ["the plan's strategy is not the one that was chosen"]
    count = 0
    for operator, size in enumerate(search.sizes.tolist()):
        for number in range(size):
            choice = (*best[:operator], number, *best[operator + 1 :])
            bound = search.bound(choice)
            if number == best[operator] or bound == NEVER:
                continue
            count += 1
            seconds = judge(space.strategy(choice))
            if seconds < found.certificate.cost:
                wrong.append(f"{choice} takes {seconds} s, less than the optimum's {found.certificate.cost}")
            if bound > round(seconds * TICKS_PER_SECOND):
                wrong.append(f"{choice} takes {seconds} s, less than its bound")
    return count, wrong


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    for name, (batch, overrides, hours) in (QUICK if options.quick else CASES).items():
        forget()
        graph = captured(name, batch, **overrides)
        found, wrong = proved(graph, options.seconds)
        row: Row = {"model": name, "nodes": len(graph.nodes), **found, "hours": hours}
        rows.append(row)
        note(row)
        misses += [f"{name}: {words}" for words in wrong]
        if row["cpu"] > options.floor:
            misses.append(f"{name} took {row['cpu']} s of processor time, floor {options.floor:g}")
        if row["step"] > row["bound"]:
            misses.append(f"{name}: {row['step']:.4g} s a step is not proved, bound {row['bound']:.4g}")
    columns = (
        ("model", "model"),
        ("nodes", "nodes"),
        ("configurations", "configurations"),
        ("strategies", "strategies"),
        ("bounds", "bounds"),
        ("left", "left"),
        ("simulated", "simulated"),
        ("optimum, s", "step"),
        ("lower bound", "bound"),
        ("gap", "gap"),
        ("CPU s", "cpu"),
        ("wall s", "wall"),
        ("paper, hours", "hours"),
        ("neighbours, none faster", "beside"),
        ("data parallel", "data"),
        ("exact, of the tables", "exact"),
        ("sampled, larger space", "sampled"),
    )
    return Report(
        f"The fastest of all strategies of one configuration for each operator, on {MACHINE}; FlexFlow's §3.7.5",
        columns,
        tuple(rows),
        f"{len(rows)} optima proved in at most {max(row['cpu'] for row in rows)} s of processor time",
        tuple(misses),
        ("optimal among the strategies of the stated space, for girih's simulator; not among all plans",),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=300.0, help="wall seconds for a search (default 300)")


BENCHMARK = Benchmark(
    "small_optimum", __doc__ or "", measure, 60.0, "seconds of processor time for a proved optimum", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
