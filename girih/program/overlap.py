"""Overlap: exchanges begin before, and end after, the places where lowering has put them.

FlexFlow (§3.4) lets transfers run beside computation: a transfer is a task of its own, on the link. Tofu (§6) issues
remote fetches as late as it can, so that remote data does not wait in memory. Here a window of a few compute steps
reconciles the two: a fetch starts at most `fetch` compute steps before its use, and a store (the reduce-scatter of a
gradient) finishes at most `store` compute steps after its production. Only compute steps that do work are counted:
views take no time. What this costs in memory is told by `girih.program.life.accounts`, exactly.

- Compute steps keep their order, and are what everything else is placed between.
- A store finishes before its target is first read. If a fetch reads it, that fetch keeps its own window, or half of
  the steps between where there are too few.
- A route of several hops shares the window among its hops: each starts when the one before has finished.
- At one place, what is needed at once and stays whole goes first, so that its messages do not queue behind later ones;
  then exchanges start, the one that is needed first before the others; then others are waited for.
- What moves nothing between devices, and what has no work to run beside, stays whole.

All devices' orders follow the list of steps, so all start their exchanges in one order: messages between two devices
keep matching without tags, and nobody waits for a message whose sender waits for him. Cost: O(steps · log steps).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from girih.ops.known import descriptions
from girih.program.exchange import is_local
from girih.program.liveness import lasting
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import ComputeStep, StartStep, Step, TransferStep
from girih.program.table import Kinds


@dataclass(frozen=True)
class Overlap:
    """How far an exchange may reach over computation, in compute steps that do work; 0: not at all.

    fetch: how far before its use a fetch may start. store: how far behind its production a store may finish.

    Raises:
        ValueError: a window is negative.
    """

    fetch: int = 0
    store: int = 0

    def __post_init__(self) -> None:
        if self.fetch < 0 or self.store < 0:
            raise ValueError(f"a window of overlap is a number of compute steps from 0, got {self}")

    def apply(self, program: Program) -> Program:
        """The same program with exchanges that overlap with computation (`overlapped`)."""
        return overlapped(program, self)


def overlapped(program: Program, options: Overlap) -> Program:
    """The same program with exchanges that overlap with computation. The bytes that are moved stay the same.

    Raises:
        ValueError: the program's exchanges overlap already.
    """
    if options == Overlap():
        return program
    if any(isinstance(step, StartStep) for step in program.steps):
        raise ValueError("this program's exchanges overlap already: start from the program that `lower` makes")
    from girih.program import window_kernels as loops

    table, does = program.table, _works(program)
    entering = np.arange(len(program.graph.inputs))
    windows = loops.windows(table, does, options.fetch, options.store)
    starts, rows = loops.ordered(table, does, entering, *windows)
    steps: list[Step] = []
    for start, row in zip(starts.tolist(), rows.tolist(), strict=True):
        step = program.steps[row]
        steps.append(StartStep(step) if start and isinstance(step, TransferStep) else step)
    return arranged(program, steps, lasting(program.graph))


def works(program: Program, step: ComputeStep) -> bool:
    """Does any device compute something: not a view, and not only empty pieces?"""
    description = descriptions(program.graph)[step.node]
    if description is not None and description.operator.view and len(step.reads) == 1:
        return False
    regions = [program.places[buffer].regions for buffer in step.writes]
    return any(bool((part[..., 0] < part[..., 1]).all(axis=-1).any()) for part in regions)


def _works(program: Program) -> Kinds:
    """Does each step compute something, or exchange anything between devices? [steps]."""
    return np.asarray(
        [
            works(program, step)
            if isinstance(step, ComputeStep)
            else isinstance(step, TransferStep) and not is_local(program.mesh, step.before, step.after)
            for step in program.steps
        ],
        np.uint8,
    )
