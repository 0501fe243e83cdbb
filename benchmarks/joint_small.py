"""The joint search on small random programs under caps, beside brute force over the whole joint space.

What: random programs of three to five operators over square matrices, on two devices with links and a large memory of
random speed; each without a cap, and at 80 and 60 % of what the free plan needs. Against: brute force over every graph
that girih's rules lead to, every order of its operators, every division of every operator and layout of every value,
and, where a cap is exceeded, every window of overlap, every pair of steps that come again, everything that may leave
between two uses and every time at which it may come back. What cannot be faster is left out by bounds that other
benchmarks and tests prove: the step without a cap in the same order, and `girih.search.memory.bound`. The floor: the
share of cases in which nothing is faster than what the joint search finds. In all cases its bound is to hold, and the
sequential composition is not to be faster. Programs with more than `--leaves` ways to hold that the bounds leave are
counted as not ended; caps that are refused are counted, and not tried out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

PROGRAMS, QUICK = 300, (6,)
"""How many random programs, and the one of the quick form, which brute force tries out in seconds."""
SHARES = (None, 0.8, 0.6)
SECONDS = 2.0
UNARY = ("aten.relu", "aten.tanh")
BINARY = ("aten.mm", "aten.mm", "aten.add.Tensor", "aten.mul.Tensor")
MOST_GRAPHS, MOST_AGAIN = 12, 2
ROUNDED = 1e-10
"""Seconds by which what is rounded to the ticks of the simulator may differ."""


def random_program(random: np.random.Generator, operators: int) -> Any:
    """A graph in which most values are read once, so that it is a tree with a few shared values."""
    from girih.graph import Graph, Input, Node, Output, Ref, Value

    side = int(random.choice((16, 32)))
    values: dict[str, Any] = {}
    inputs, nodes = [], []

    def value(name: str) -> str:
        values[name] = Value(name, (side, side), "float32")
        return name

    for number in range(int(random.integers(2, 4))):
        inputs.append(Input(value(f"x{number}"), "batch", str(number)))
    known = [item.name for item in inputs]
    unread = list(known)

    def operand() -> Any:
        name = str(random.choice(unread if unread and random.random() < 0.6 else known))
        if name in unread:
            unread.remove(name)
        return Ref(name)

    for number in range(operators):
        if random.random() < 0.25:
            operator, arguments = str(random.choice(UNARY)), {"self": operand()}
        else:
            operator = str(random.choice(BINARY))
            arguments = {"self": operand(), ("mat2" if operator == "aten.mm" else "other"): operand()}
        name = value(f"v{number}")
        nodes.append(Node(name, operator, tuple(arguments.items()), (name,)))
        known.append(name)
        unread.append(name)
    read = {name for node in nodes for name in node.inputs}
    outputs = tuple(Output(node.name, "result") for node in nodes if node.name not in read)
    used = tuple(item for item in inputs if item.name in read)
    kept = {item.name for item in used} | {node.name for node in nodes}
    return Graph({name: item for name, item in values.items() if name in kept}, tuple(nodes), used, outputs)


def random_machine(random: np.random.Generator) -> Any:
    from girih.machine import Device, Level, Machine
    from girih.machine.machine import Tier

    link, host = (float(random.choice((5e7, 2e8, 1e9))) for _ in range(2))
    device = Device("small", 2e9, 10**9, 1e9, 1e-7)
    return Machine("small", device, (Level("links", (2,), link, 1e-7),), host=Tier("host", 10**9, host, host))


# ---------------------------------------------------------------------------------------------- the whole space


def every_graph(graph: Any) -> list[Any]:
    """The graphs that girih's rules lead to, this one among them."""
    from girih.plans.rewritten import rules
    from girih.rewrite.backtracking import fingerprint
    from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
    from girih.rewrite.passes.computed_once import ComputeOnce
    from girih.rewrite.rules.apply import NodeIndex, matches, replaced

    start = ComputeOnce().apply(BinaryJoins().apply(graph))
    found, waiting, known = [graph], [start], {fingerprint(start)}
    while waiting and len(found) < MOST_GRAPHS:
        current = waiting.pop(0)
        for rule in rules():
            for match in matches(rule, NodeIndex.of(current)):
                child = replaced(current, match)
                if child is not None and (key := fingerprint(child)) not in known:
                    known.add(key)
                    waiting.append(child)
                    found.append(FlatJoins().apply(child))
    return found


def every_order(graph: Any) -> Iterator[Any]:
    """The graph with its nodes in each order in which they can be computed."""
    from girih.graph import Graph

    entering = {item.name for item in graph.inputs}
    for nodes in permutations(graph.nodes):
        made = set(entering)
        for node in nodes:
            if not made.issuperset(node.inputs):
                break
            made.update(node.outputs)
        else:
            yield Graph(graph.values, nodes, graph.inputs, graph.outputs)


def every_strategy(graph: Any, machine: Any, limit: float) -> Iterator[Any]:
    """The strategies whose computing takes no longer than the limit, and whose transfers neither, by tables: on two
    devices with even parts these are what each device does, so that others take longer in any order."""
    from girih.partition.solver.held import HeldTables
    from girih.partition.solver.in_order import InOrder
    from girih.partition.space.problem import Objective, build, rules_of
    from girih.search.memory.limit import exchanges

    objective = Objective("seconds", machine)
    space = HeldTables(build(graph, objective, rules_of(objective)), exchanges(objective))
    problem = space.plain.problem
    own = [(variable, problem.tables[table]) for variable, table in enumerate(problem.unary) if table >= 0]
    for cost, labels in InOrder(space, steps=10**6):
        if cost > 2 * limit:
            return
        computing = sum(float(table[labels[variable]]) for variable, table in own)
        if max(computing, cost - computing) < limit:
            yield space.plain.strategy(labels)


def sequences(plan: Any) -> Iterator[tuple[int, ...] | None]:
    """The steps as they are, and with one or two that compute coming again before a later reader."""
    from girih.program import ComputeStep

    lives = plan.lifetimes
    steps = lives.steps
    again = [
        (maker, reader)
        for maker, step in enumerate(steps)
        if isinstance(step, ComputeStep)
        for reader in range(maker + 2, len(steps))
        if not set(step.targets).isdisjoint(steps[reader].sources)
    ]
    yield None
    for count in range(1, MOST_AGAIN + 1):
        for chosen in combinations(again, count):
            order: list[int] = []
            for number in range(len(steps)):
                order += [maker for maker, reader in chosen if reader == number]
                order.append(number)
            yield tuple(order)


def residencies(lives: Any, cap: int) -> Iterator[Any]:
    """Everything that may leave between two uses, and every time at which it may come back."""
    from girih.program.moves.residency import Residency, in_visits, misfit

    choices = []
    for number, item in enumerate(lives.storages):
        gaps = len(item.touched) - 1 if item.movable else 0
        choices.append([(number, cut) for cut in product((False, True), repeat=gaps)])
    for chosen in product(*choices):
        visits = {}
        for number, cut in chosen:
            if any(cut):
                first, *others = lives.storages[number].touched
                groups = [[first]]
                for at, leaves in zip(others, cut, strict=True):
                    groups = [*groups, [at]] if leaves else [*groups[:-1], [*groups[-1], at]]
                visits[number] = groups
        late = in_visits(lives, visits, lambda step: step)
        if int(late.used(lives.touches).max()) > cap:
            continue
        early = in_visits(lives, visits, lambda step: 0)
        begins = [range(a.start, b.start + 1) for a, b in zip(_by_first(early), _by_first(late), strict=True)]
        for starts in product(*begins):
            stays = [stay._replace(start=at) for stay, at in zip(_by_first(late), starts, strict=True)]
            one = Residency.of(sorted(stays, key=lambda stay: (stay.start, stay.first, stay.storage)))
            if int(one.used(lives.touches).max()) <= cap and not misfit(one, lives):
                yield one


def _by_first(residency: Any) -> list[Any]:
    return sorted(residency.stays, key=lambda stay: (stay.storage, stay.first))


class TooManyError(Exception):
    """More ways to hold are left than are tried."""


def fastest(graph: Any, machine: Any, cap: int | None, limit: float, leaves: int) -> float:
    """The least seconds of a step by brute force; the limit, where nothing takes less.

    Raises:
        TooManyError: there are more than so many ways to hold whose bounds are below the limit.
    """
    from girih.plans.choice import Choice
    from girih.plans.plan import Goal, Plan
    from girih.rewrite.certificate import Certificate
    from girih.search.judge import Judge
    from girih.search.memory.limit import WINDOWS
    from girih.search.table import search_of

    certificate = Certificate(float("inf"), 0.0, "seconds", "none", "", "")
    best, left = limit * (1 - 1e-6), leaves
    from girih.partition.space.problem import Objective

    for written in every_graph(graph):
        for ordered in every_order(written):
            start = search_of("single").search(ordered, Objective("seconds", machine)).strategy
            plain = Plan(ordered, machine, Choice(start, overlap=WINDOWS[0]), certificate, Goal("joint", "time", cap))
            judge = Judge(plain.but(memory=None))
            for strategy in every_strategy(ordered, machine, best):
                if judge(strategy) >= best:
                    continue
                plan = plain.but(strategy=strategy)
                for window in WINDOWS:
                    tried, seconds = _held(plan.but(overlap=window), cap, best, left)
                    left -= tried
                    if left <= 0:
                        raise TooManyError
                    best = min(best, seconds)
    return best if best < limit * (1 - 1e-6) else limit


def _held(plan: Any, cap: int | None, limit: float, leaves: int) -> tuple[int, float]:
    """(ways to hold that were tried, the least seconds of any of them)."""
    from girih.plans.predict import predict
    from girih.program import ProgramError
    from girih.program.moves.residency import floor
    from girih.search.memory.bound import memory_bound
    from girih.search.memory.step_seconds import step_seconds
    from girih.simulate.ticks import seconds_of, ticks

    if cap is None or plan.peak <= cap:
        return 1, predict(plan, memory=False).seconds
    if floor(plan.lifetimes)[0] > cap:
        return 0, float("inf")
    known = step_seconds(plan, None)
    computing = seconds_of(ticks(known.of(None, computing=True)))
    if memory_bound(plan.lifetimes, cap, computing, known.machine.host, recompute=True).seconds >= limit:
        return 0, float("inf")
    tried, best = 0, limit
    for sequence in sequences(plan):
        own = plan.but(sequence=sequence)
        try:
            lives = own.lifetimes
        except ProgramError:
            continue
        if own.peak <= cap:
            tried, best = tried + 1, min(best, predict(own, memory=False).seconds)
        for residency in residencies(lives, cap):
            tried += 1
            if tried > leaves:
                return tried, best
            moved = own.but(residency=(residency,), room=cap)
            seconds = predict(moved, memory=False).seconds
            if seconds < best and moved.peak <= cap:
                best = seconds
    return tried, best


# ---------------------------------------------------------------------------------------------- what is measured


def one(seed: int, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(what came out, words) of a program under each cap."""
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    random = np.random.default_rng(seed)
    graph, machine = random_program(random, 3 + seed % 3), random_machine(random)
    free = plan_graph(graph, machine=machine)
    for share in SHARES[:2] if options.quick else SHARES:
        cap = None if share is None else int(share * free.peak)
        case = f"program {seed}, {'no cap' if cap is None else f'{cap} bytes'}"
        try:
            turn = plan_graph(graph, machine=machine, memory=cap).certificate.cost
        except PlanError:
            turn = float("inf")
        try:
            told = plan_graph(graph, machine=machine, memory=cap, search=f"joint:seconds={SECONDS}").certificate
            cost = told.cost
            bound = max(float(part) for name, part in told.statistics.items() if name.startswith("bound, "))
        except PlanError:
            yield ("refused" if turn == float("inf") else "above"), case
            continue
        if cost > turn:
            yield "above", f"{case}: {cost:.6g} s, in turn {turn:.6g}"
        try:
            least = fastest(graph, machine, cap, cost, options.leaves)
        except TooManyError:
            yield "not ended", case
            continue
        if bound > least * (1 + 1e-6) + ROUNDED:
            yield "wrong bound", f"{case}: {bound:.6g} s, brute force {least:.6g}"
        if least < cost:
            yield "slower", f"{case}: {cost:.6g} s, brute force {least:.6g}"
        else:
            yield "optimal", case
        if cost < turn * (1 - 1e-6):
            yield "faster than in turn", f"{turn / cost}"


def measure(options: argparse.Namespace) -> Report:
    counts: dict[str, int] = {}
    misses: list[str] = []
    gains = []
    seeds = QUICK if options.quick else range(options.first, options.first + options.programs)
    for seed in seeds:
        for what, words in one(seed, options):
            counts[what] = counts.get(what, 0) + 1
            if what in ("above", "wrong bound", "slower"):
                misses.append(f"{what}: {words}")
            if what == "faster than in turn":
                gains.append(float(words) if np.isfinite(float(words)) else 2.0)
            note({"seed": seed, "what": what, "words": words})
    ended = counts.get("optimal", 0) + counts.get("slower", 0)
    share = counts.get("optimal", 0) / max(ended, 1)
    row: Row = {
        "programs": len(seeds),
        "cases": ended,
        "optimal": counts.get("optimal", 0),
        "share": f"{share:.1%}",
        "refused": counts.get("refused", 0),
        "not ended": counts.get("not ended", 0),
        "wrong": counts.get("wrong bound", 0) + counts.get("above", 0),
        "faster": len(gains),
        "mean": f"{float(np.exp(np.mean(np.log(gains or [1.0])))):.3f}",
    }
    hard = [miss for miss in misses if not miss.startswith("slower")]
    columns = (
        ("programs", "programs"),
        ("cases that ended", "cases"),
        ("optimal", "optimal"),
        ("share", "share"),
        ("refused by both, not tried out", "refused"),
        ("brute force did not end", "not ended"),
        ("wrong bounds, or above the sequential", "wrong"),
        ("faster than the sequential", "faster"),
        ("× of these, geometric mean", "mean"),
    )
    return Report(
        "The joint search on small random programs under caps, beside brute force over the whole space",
        columns,
        (row,),
        f"{share:.1%} of {ended} cases optimal",
        tuple(misses if share < options.floor else hard),
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"random programs (default {PROGRAMS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them: all can be run in slices (default 0)")
    parser.add_argument("--leaves", type=int, default=3000, help="ways to hold that are tried for a case, at most")


BENCHMARK = Benchmark("joint_small", __doc__ or "", measure, 0.95, "share of small cases that are optimal", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
