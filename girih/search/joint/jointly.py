"""The joint search from its beginning to its end: compositions, rounds as long as they help, and what is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.partition.search import Search
from girih.partition.searches.stages import micro_batches
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.plans.plan import Plan
from girih.plans.rewritten import ProofError, Rewrite, Rewriting, rules
from girih.program.schedule import accumulating
from girih.search.joint.divisions import QUICKLY
from girih.search.joint.rounds import Rounds, Ways
from girih.search.joint.small import search_small
from girih.search.joint.told import told
from girih.search.memory.limit import too_much_state
from girih.search.stages import counts_of, in_parts
from girih.simulate.bounds import bound_of

REWRITING = 0.25
"""The share of the seconds in which rules are tried at first, and of those that are left afterwards."""
ROUNDS = 0.5
"""The share of the seconds that everything behind the sequential compositions has, at least: on top of them where these
have left less."""
SPLITTING = 0.5
"""The share of the seconds that are left then in which micro-batches are tried."""
FEW = 4_000
"""Nodes × devices of a graph in micro-batches whose cheapest division is looked for at once."""
FAR = 1.5
"""Times the seconds of the best: what takes longer in micro-batches is not looked at further."""
GRAPHS = 4
"""Ways to write the graph that are composed sequentially, at most, beside the given one."""

Sequential = Callable[[Graph, float], Plan]
"""The sequential composition of a graph, in so many seconds of work."""


def jointly(
    graph: Graph, aim: Objective, limit: int | None, search: Search, sequential: Sequential, ways: Ways
) -> Plan:
    """The plan that the joint search finds; the best sequential composition, where nothing is faster.

    limit: bytes of each device, or None.

    Raises:
        PlanError: nothing keeps the limit; the message is that of the sequential composition.
    """
    rounds = Rounds(ways, Budget(search.seconds), aim.machine, limit)
    refused = rounds.compose(graph, (), partial(sequential, graph, search.seconds))
    if refused and limit is not None and too_much_state(graph, aim.machine, limit):
        raise refused
    for number, (other, rewrites) in enumerate(_rewritten(graph, rounds, search.seconds)):
        if number and rounds.best is None:  # it holds about as much as the two that do not fit
            break
        if bound_of(other, aim.machine).seconds < rounds.seconds:  # else no plan of it is faster
            seconds = max(rounds.budget.seconds, 1.0) if number else search.seconds  # as it would have by itself
            rounds.compose(other, rewrites, partial(sequential, other, seconds))
    rounds.budget.extend(ROUNDS * search.seconds)
    _as_without_a_limit(rounds)
    _in_micro_batches(rounds)
    search_small(rounds)
    stopped = ""
    while not stopped:
        before = len(rounds.steps), len(rounds.graphs)
        for written in sorted(rounds.graphs, key=rounds.promise):
            if rounds.open(written.graph):
                rounds.round(written)
        if not any(rounds.open(written.graph) for written in rounds.graphs):
            stopped = "optimal"
        elif rounds.budget.late:
            stopped = rounds.budget.why
        elif (len(rounds.steps), len(rounds.graphs)) == before:
            stopped = "no proposal is faster"
    if rounds.best is None:
        assert refused is not None
        raise refused
    return told(rounds, stopped)


def _as_without_a_limit(rounds: Rounds) -> None:
    """Hold what is cheapest without a limit before all else, of the most promising graph first. The compositions divide
    so that nothing has to move, where that is possible; this is what they leave out most often. Small graphs are
    searched as a whole."""
    for written in sorted(rounds.graphs, key=rounds.promise) if rounds.limit is not None and rounds.best else ():
        if not written.divisions.small:
            rounds.ways.note("joint: the cheapest division", 0.0)
            rounds.consider(rounds.known(written, ("exact",)), 1)


def _in_micro_batches(rounds: Rounds) -> None:
    """Write the graph in micro-batches, twice as many each time as long as that helps, each of which goes forward and
    backward before the next. What a few divisions take says whether it does; where none would be faster than the
    best without a limit, more micro-batches are not looked at. Graphs with which a step is far from the best are left
    out of the rounds. Where nothing fits the limit yet, the most micro-batches, which need least memory, come first,
    until a division fits, and have all the seconds. Pipelines have their own counts (`girih.search.stages`)."""
    written = min(rounds.graphs, key=rounds.promise)
    share, counts, fitting = SPLITTING, counts_of(written.graph), rounds.best is not None
    if not fitting:
        share, counts = 1.0, counts[::-1]
    ends = rounds.budget.spent + share * rounds.budget.seconds * 1e9
    before = float("inf")
    for count in counts:
        if rounds.budget.spent >= ends or rounds.budget.late:
            return
        own = count == micro_batches(written.graph)
        try:
            graph = accumulating(written.graph if own else in_parts(written.graph, count))
        except SearchError:  # all micro-batches would meet
            return
        if not rounds.open(graph):
            return
        rounds.ways.note(f"joint: {count} micro-batches", 0.0)
        other = rounds.write(graph, written.rewrites)
        devices = rounds.machine.devices
        large = devices > 1 and len(graph.nodes) * devices > FEW
        names = QUICKLY if large and fitting else (*QUICKLY, "exact")
        best, limited = rounds.seconds, rounds.limited
        took = _tried(rounds, rounds.known(other, names))
        if not own:
            rounds.parts[count] = took
        if took > FAR * rounds.seconds:
            rounds.graphs.remove(other)
        slower = best <= took < float("inf") and rounds.limited == limited  # even without a limit
        if slower or took >= before < float("inf"):
            return
        before = took


def _tried(rounds: Rounds, plans: Iterator[tuple[str, Plan]]) -> float:
    """The least seconds of divisions in micro-batches when they are held quickly. Where nothing fitted before, one that
    does is enough: fewer micro-batches are more likely to be faster than other divisions of as many."""
    if rounds.best is not None:
        return rounds.consider(plans, 2**62)
    for name, plan in plans:
        if (found := rounds.quick(plan)) is not None:
            rounds.take(found[1], found[0], name)
        if rounds.best is not None:
            return rounds.seconds
    return float("inf")


def _rewritten(graph: Graph, rounds: Rounds, seconds: float) -> Iterator[tuple[Graph, tuple[Rewrite, ...]]]:
    """The graph rewritten by proved rules: by all that pay on one device, of which the sequential composition has the
    choice too, so that it is tried whatever is left of the seconds; then by all but one of them."""
    rounds.ways.note("joint: rewrites", 0.0)
    every, used = rules(), list[str]()
    for without in (None, *range(GRAPHS - 1)):
        left = REWRITING * (seconds if without is None else rounds.budget.seconds)
        if left <= 0 or (without is not None and not without < len(used) > 1):
            return
        some = every if without is None else tuple(rule for rule in every if str(rule) != used[without])
        with suppress(ProofError):
            other, rewrites = Rewriting(seconds=left, rules=some).apply(
                graph, rounds.machine, spend=rounds.budget.spend
            )
            used = used or list(dict.fromkeys(item.rule for item in rewrites))
            if rewrites:
                yield other, rewrites
