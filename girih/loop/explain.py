"""What a loop does, for people: dependences, how it is divided and why, who sends what to whom, how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from girih.loop.capture.body import Body, KnownSpace, lines_of
from girih.loop.capture.dependences import is_reduction, text
from girih.loop.run.threads import Span
from girih.loop.schedules.blocks import imbalance
from girih.loop.schedules.schedule import Schedule, schedule
from girih.loop.schedules.strategy import LoopStrategy, Movement, named
from girih.loop.schedules.timeline import simulated
from girih.machine.units import format_bytes
from girih.rewrite.certificate import explained


@dataclass(frozen=True)
class Explanation:
    """The text that `explain()` shows, and what it says.

    seconds: of the last execution, measured; predicted: by the simulated schedule, from what earlier executions took.
    """

    text: str
    strategy: LoopStrategy
    plan: Schedule
    references: tuple[str, ...]
    bytes_moved: int
    imbalance: float
    seconds: float | None
    predicted: float | None

    @property
    def kind(self) -> str:
        return self.strategy.kind

    @property
    def vectors(self) -> tuple[str, ...]:
        return tuple(map(text, self.strategy.vectors))

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def explanation(
    space: KnownSpace, count: int, body: Body, strategy: LoopStrategy, plan: Schedule, work: np.ndarray | None,
    spans: Sequence[Span], seconds: Sequence[float], here: str, losses: Sequence[str],
) -> Explanation:  # fmt: skip
    """Explain a loop for certain arrays. work: entries of each block. spans: of the last execution; seconds: of all."""
    movements = [_moving(item, plan) for item in strategy.movements]
    moved = sum(_bytes(body, item) for item in movements)
    uneven = 1.0 if work is None or not work.sum() else imbalance(work.reshape(plan.workers, -1).sum(axis=1))
    predicted = _predicted(plan, work, count, seconds, spans)
    lines = [
        f"{body.source.tree.name}: {' × '.join(map(str, space.shape))}, {count:,} iterations, "
        f"{'ordered' if strategy.ordered else 'unordered'}",
        *(f"  {line}" for line in lines_of(body.references)),
        *(f"  {name}: a sum over iterations" for name in body.reductions if is_reduction(body, name, strategy.ordered)),
        *(f"  {name}: buffered" for name in body.buffered),
        *(f"  {name}: accumulated" for name in body.accumulated),
        f"dependence vectors: {', '.join(map(text, strategy.vectors)) or 'none'}",
        f"{divided(strategy)}: {strategy.why}",
    ]
    if plan.workers > 1:
        lines.append(
            f"{plan.workers} workers, {plan.spaces} × {plan.times} blocks, largest share {uneven:.2f} of the mean"
        )
        for item in movements:
            lines.append(f"  {item.array} {_how(item, plan)}: {item.elements:,} elements")
        rounds = plan.spaces // plan.workers
        first, *others = explained(strategy.certificate)
        lines += [f"moved between processes in a round: {first}", *others]
        lines.append(f"with {rounds} round{'s' if rounds > 1 else ''} {format_bytes(moved)}. Threads share them")
    if here:
        lines.append(f"on threads of this process: {here}")
    lines += [f"{loss}: begun anew" for loss in losses]
    if seconds:
        line = f"the last execution took {seconds[-1]:.4g} s"
        lines.append(line if predicted is None else f"{line}, predicted {predicted:.4g} s")
        if predicted is not None and plan.workers > 1:
            lines.append(f"workers waited for each other in {waited(spans, plan.workers):.0%} of it")
    return Explanation(
        "\n".join(lines), strategy, plan, tuple(lines_of(body.references)), moved, uneven,
        seconds[-1] if seconds else None, predicted,
    )  # fmt: skip


def _moving(item: Movement, plan: Schedule) -> Movement:
    """In all rounds: a part that travels comes by once for each space part."""
    if item.how != "travels" or plan.workers == 1:
        return item
    once = item.elements // (plan.workers - 1)
    return replace(item, elements=once * plan.hand_overs // plan.times)


def busy(strategy: LoopStrategy, options: Any) -> float:
    """How many workers compute at a time, in the mean, if all blocks take as long; options: of the loop."""
    plan = schedule(strategy, options.pipelined, options.rounds)
    blocks = np.ones((plan.spaces, plan.times))
    return float(blocks.sum() / simulated(plan, blocks).seconds)


def divided(strategy: LoopStrategy) -> str:
    if strategy.kind == "serial":
        return "serial"
    if strategy.kind == "1d":
        return f"1D along {named(strategy.space)}"
    words = "2D" if strategy.kind == "2d" else "unimodular"
    found = f"{words}, space {named(strategy.space)}, time {named(strategy.time)}"
    if strategy.transformation is not None:
        found += f", matrix {list(map(list, strategy.transformation.matrix))}"
    return found


def _how(item: Movement, plan: Schedule) -> str:
    if item.how == "travels":
        return f"travels in {plan.times} parts, from worker to worker"
    return {
        "stays": "stays with its worker", "copied": "is read by all", "added": "is added up from all",
        "served": "is needed by all",
    }[item.how]  # fmt: skip


def _bytes(body: Body, item: Movement) -> int:
    role = body.roles[item.array]
    return item.elements * np.dtype(getattr(role, "dtype", "float64")).itemsize


def waited(spans: Sequence[Span], workers: int) -> float:
    """The workers' mean share of an execution's blocks in which they ran none."""
    whole = max(span.ended for span in spans) - min(span.began for span in spans)
    return 1 - sum(span.ended - span.began for span in spans) / workers / whole if whole else 0.0


def _predicted(
    plan: Schedule, work: np.ndarray | None, count: int, seconds: Sequence[float], spans: Sequence[Span]
) -> float | None:
    """Seconds of the schedule, if blocks are as fast for their size, and hand-overs as fast, as the medians were."""
    if not seconds or not spans:
        return None
    blocks = np.full((plan.spaces, plan.times), count / (plan.spaces * plan.times)) if work is None else work
    if {(span.space, span.time) for span in spans} != {(s, t) for s in range(plan.spaces) for t in range(plan.times)}:
        return None
    each = [
        (span.ended - span.began) / blocks[span.space, span.time] for span in spans if blocks[span.space, span.time]
    ]
    if not each:
        return None
    late = _hand_overs(plan, spans)
    latency = float(np.median(late)) if late else 0.0
    return simulated(plan, blocks * float(np.median(each)), float(bool(late)), latency=latency).seconds


def _hand_overs(plan: Schedule, spans: Sequence[Span]) -> list[float]:
    """Seconds from when a block might have begun, its worker being free and its part done elsewhere, until it did."""
    at = {(span.space, span.time): span for span in spans}
    found = []
    for tasks in plan.tasks:
        for before, task in pairwise(tasks):
            if task.after is not None:
                other = plan.tasks[task.after[0]][task.after[1] - 1]
                ready = max(at[before.space, before.time].ended, at[other.space, other.time].ended)
                found.append(max(0.0, at[task.space, task.time].began - ready))
    return found
