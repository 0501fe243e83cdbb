"""What a joint search tells of its answer: its bound, how the best became faster, and what each choice is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace

from girih.layout.budget import Budget
from girih.machine.units import format_gap, format_seconds
from girih.partition.searches.stages import micro_batches
from girih.plans.choice import Choice
from girih.plans.plan import Plan, PlanError
from girih.plans.predict import predict
from girih.search.joint.bound import ANY, MEMORY, WHOLE, Relaxed, step_bound
from girih.search.joint.rounds import Rounds
from girih.search.judge import FAILED
from girih.simulate.bounds import Bound, bound_of

WRITTEN = "the ways to write the graph whose divisions were searched"
SPACE = f"{WRITTEN}, divisions and places of every node, orders, movements"
BOUNDING = 0.25
"""The share of the search's seconds of work that the bound has, on top of them."""
KNOWN = 4
"""Strategies with which the bound of a graph begins."""
BY_STEPS = ("sequence", "residency")
"""Parts of a choice that hold numbers of steps, which all parts before them change."""
SHOWN = 6
"""Plans that were the fastest for a while which the note names."""


def told(rounds: Rounds, stopped: str) -> Plan:
    """The best plan of a search that has ended, with its certificate and notes."""
    best = rounds.best
    assert best is not None
    seconds = rounds.seconds
    least, space = bound(rounds, best)
    limit = min(least.seconds, seconds)  # costs are of whole ticks
    statistics: dict[str, float | int | str] = {
        "found by": rounds.steps[-1].by,
        **{f"seconds, {step.by}": step.seconds for step in rounds.steps},
        **{f"bound, {name}": part for name, part in least.parts},
        "graphs": len(rounds.graphs),
        "proposals": len(rounds.seen),
        "seconds of work": round(rounds.budget.spent / 1e9, 3),
    }
    statistics |= {f"seconds, in {count} micro-batches": took for count, took in rounds.parts.items()}
    notes = [*best.notes, bounded(least), *in_parts(rounds, best)]
    if len(rounds.steps) > 1:
        notes.append(over_time(rounds, limit))
    for name, slower in worth(rounds, best):
        statistics[f"without its {name}"] = slower
        words = "it exceeds the limit" if slower == float("inf") else f"{slower / seconds:.2f} × the time"
        notes.append(f"{name} other than in the best sequential composition; set back alone: {words}")
    certificate = replace(
        best.certificate,
        cost=seconds,
        bound=limit,
        unit="seconds",
        how=least.how,
        stopped=stopped,
        space=space,
        statistics=statistics,
    )
    return best.but(certificate=certificate, search="joint", notes=tuple(notes), simulated=seconds)


def bound(rounds: Rounds, best: Plan) -> tuple[Bound, str]:
    """The least bound of any way in which the graph was written, with its parts, and of which space it speaks."""
    every = (item.graph for item in rounds.graphs if rounds.open(item.graph))  # no plan of others is below the best
    written = {id(graph): graph for graph in (*every, best.graph)}
    graphs, machine, choice = list(written.values()), rounds.machine, best.choice
    work = min((bound_of(graph, machine) for graph in graphs), key=lambda item: item.seconds)
    if work.seconds >= rounds.seconds:
        return work, SPACE
    whole = choice.schedule == "graph" and not choice.pieces and choice.blocks is None
    # Without its tables a graph has no bound but that of its work; they may take as long as the search.
    budget, making = Budget(BOUNDING * rounds.budget.left / 1e9), Budget(rounds.budget.left / 1e9)
    own = Relaxed.of(best.graph, machine, making)
    if own.tables.labels(best.strategy) is None:
        return work, SPACE  # it has places
    held = sorted((item for item in rounds.seen.values() if item is not None), key=lambda item: item[0])
    # The work of each is known; only of that with the least bound so far more has to be.
    waiting = [(bound_of(graph, machine), False, graph) for graph in graphs]
    while True:
        place = min(range(len(waiting)), key=lambda at: waiting[at][0].seconds)
        least, known, graph = waiting[place]
        if known:
            break
        if making.late and graph is not best.graph:
            waiting[place] = least, True, graph
            continue
        item = own if graph is best.graph else Relaxed.of(graph, machine, making)
        strategies = [plan.strategy for _, plan in ((0.0, best), *held) if plan.graph is graph][:KNOWN]
        part = budget.part(budget.seconds / sum(not known for _, known, _ in waiting))
        waiting[place] = step_bound(item, rounds.limit if whole else None, part, strategies), True, graph
        budget.spend(part.spent)
    if least.seconds <= work.seconds:
        return least, SPACE
    memory = any(item.how.startswith(MEMORY) for item, known, _ in waiting if known)
    return least, f"{WRITTEN}, {WHOLE if memory else ANY}"


def bounded(least: Bound) -> str:
    """What the bound knows, the largest part first."""
    parts = sorted(least.parts, key=lambda part: -part[1])
    words = "; ".join(f"{format_seconds(seconds)} by {name}" for name, seconds in parts)
    return (
        f"no step is shorter than {words}. Not in the bound: waiting, and that links, copies and computing take turns"
    )


def in_parts(rounds: Rounds, best: Plan) -> Iterator[str]:
    """Which counts of micro-batches were tried, and which one was taken."""
    if not rounds.parts:
        return
    tried = ", ".join(
        f"{count}: {'not within the limit' if took == float('inf') else format_seconds(took)}"
        for count, took in rounds.parts.items()
    )
    count = micro_batches(best.graph)
    taken = "the batch as a whole" if count == 1 else f"{count} micro-batches"
    yield (
        f"chosen: {taken}; in micro-batches a step takes, by the first divisions that were tried, {tried} "
        "(at least so long, where that is no less than the best)"
    )


def over_time(rounds: Rounds, least: float) -> str:
    """How the best became faster, and its gap smaller, with the work."""
    first, *others = rounds.steps
    shown = [first, *others[-(SHOWN - 1) :]]
    words = "; ".join(
        f"{format_seconds(step.seconds)} (gap {format_gap(step.seconds / least - 1 if least else float('inf'))}) after "
        f"{step.work:.1f} s of work by {step.by}"
        for step in shown
    )
    return f"the best over time: {words}"


def worth(rounds: Rounds, best: Plan) -> Iterator[tuple[str, float]]:
    """Each part of the choice that is other than in the best sequential composition, with the seconds of the step where
    it alone is set back; infinite where the limit is exceeded then. What is of another division is as if nothing of it
    was chosen. Left out is what cannot be set back alone: a part whose steps another chosen part counts, and one that
    would count the steps of the other composition (`BY_STEPS`).
    """
    if not rounds.compositions:
        return
    before = min(rounds.compositions, key=lambda plan: plan.certificate.cost)
    if best.choice == before.choice:
        return
    plain = Choice(best.strategy)
    same = best.graph is before.graph and best.strategy == before.strategy
    if best.graph is not before.graph or best.strategy != before.strategy:
        cut = micro_batches(best.graph) != micro_batches(before.graph)
        rewritten = best.choice.rewrites != before.choice.rewrites
        yield "micro-batches" if cut else "rewrites" if rewritten else "strategy", before.certificate.cost
    for part in fields(Choice):
        if part.name in ("rewrites", "strategy", "routes", "room", "schedule"):
            continue
        own, other = (getattr(choice, part.name) for choice in (best.choice, before.choice if same else plain))
        if own == other or own == getattr(before.choice, part.name):
            continue
        by_steps = part.name in BY_STEPS
        later = BY_STEPS[BY_STEPS.index(part.name) + 1 :] if by_steps else BY_STEPS
        if any(getattr(best.choice, name) for name in later) or (by_steps and other):
            continue
        slower = float("inf")
        with suppress(PlanError, ValueError):
            changed = best.but(**{part.name: other}, **({"room": None} if part.name == "residency" else {}))
            refused = rounds.kept.judge.refused(changed)
            if refused < FAILED:
                slower = predict(changed, store=rounds.ways.store, memory=False).seconds
        yield part.name, slower
