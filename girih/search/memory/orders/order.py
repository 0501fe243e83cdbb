"""Orders of a program's steps that lower the peak of memory: any topological order gives the same numbers.

An order is a frozen value whose fields are its options; `girih.search.table` names them. `reordered` writes the program
anew. The searches see the memory of one device exactly (`girih.program.life.links`), and what they return never has a
higher peak there than the captured order. Finding the best order is NP-complete (TensorFlowMem §6.3.2).

Where the optimizer is in the graph, updating each tensor right behind its gradient matters most: captured, all
gradients wait for the end.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.life.links import Links, reversed_links
from girih.program.liveness import lasting
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import FreeStep
from girih.program.table import Integers
from girih.rewrite.proposer import Proposer
from girih.search.memory.orders.depth_first import executed, partitions
from girih.search.memory.orders.order_kernels import descended, hoisted
from girih.search.memory.orders.small_orders import optimal

SMALL = 60
"""Steps up to which the order of the lowest peak is looked for among all."""


@dataclass(frozen=True)
class StepOrder(Proposer):
    """A way to order steps. Its options are whole numbers of at least 1."""

    changes: ClassVar[tuple[str, ...]] = ("sequence",)

    @abstractmethod
    def order(self, links: Links) -> Integers:
        """A topological order of the steps: [steps]."""


@dataclass(frozen=True)
class Captured(StepOrder):
    """The order in which the program was captured."""

    name: ClassVar[str] = "captured"

    def order(self, links: Links) -> Integers:
        return links.captured


@dataclass(frozen=True)
class Early(StepOrder):
    """What frees more than it makes comes as early as it can, an optimizer's update right behind its gradient."""

    name: ClassVar[str] = "early"

    def order(self, links: Links) -> Integers:
        captured = links.captured
        early: Integers = hoisted(links, captured, links.peak(captured))
        return early


@dataclass(frozen=True)
class Least(StepOrder):
    """The lowest peak of a descent: what frees is hoisted, what makes is put off, and what lies at the peak is moved
    before or behind it. Small graphs are solved to the optimum.

    attempts: moves that are tried, each of which costs time linear in the steps. rounds: of hoisting and putting off.
    sets: of steps that the exact search may look at, in graphs of up to `SMALL` steps.
    """

    attempts: int = 1000
    rounds: int = 4
    sets: int = 5000

    name: ClassVar[str] = "least"

    def order(self, links: Links) -> Integers:
        best = links.captured
        peak = links.peak(best)
        if len(best) <= SMALL and (solved := optimal(links, self.sets)) is not None:
            return solved
        order = best
        for _ in range(self.rounds):
            order = hoisted(links, order, links.peak(order))
            backwards = hoisted(reversed_links(links), order[::-1].copy(), links.peak(order))
            order = backwards[::-1].copy()
            if links.peak(order) >= peak:
                break
            best, peak = order, links.peak(order)
        least: Integers = descended(links, best, links.ends, self.attempts)
        return least


@dataclass(frozen=True)
class DepthFirst(StepOrder):
    """TensorFlowMem's partitions as published, which may raise the peak: without it, swapping is what lowers it.

    size: steps of a partition. running: partitions that run at a time. Its name says in which order they are visited
    (`girih.search.memory.orders.depth_first.VISITS`).
    """

    size: int = 20
    running: int = 2

    name: ClassVar[str] = "depth-first"

    def order(self, links: Links) -> Integers:
        return executed(links, partitions(links, self.size, self.name), self.running)

    def partitioned(self, program: Program) -> tuple[Program, Integers]:
        """The program in this order, and the partition of each step but for frees, for `swapped` to move tensors by."""
        links = lifetimes(program).links
        numbers = self.order(links)
        partition: Integers = partitions(links, self.size, self.name)[numbers]
        return _written(program, numbers), partition


@dataclass(frozen=True)
class DepthGuided(DepthFirst):
    """The same partitions, visited by depth: the longest path to the end first."""

    name: ClassVar[str] = "depth-guided"


@dataclass(frozen=True)
class DepthFirstGuided(DepthFirst):
    """The same partitions, visited depth first, and the deepest of what a step makes possible first."""

    name: ClassVar[str] = "depth-first-guided"


def reordered(program: Program, order: StepOrder, lives: Lifetimes | None = None) -> Program:
    """The program with its steps in another order, and frees where they follow. The numbers are the same bits.

    lives: the program's lifetimes on its first device, where they are known. Order steps before exchanges overlap with
    computation, which looks at what lies between (`girih.program.overlap`).

    Raises:
        ValueError: the program moves tensors already.
    """
    if program.host:
        raise ValueError("expected a program without moves: order its steps before tensors are moved out of devices")
    if isinstance(order, Captured):
        return program
    links = (lives or lifetimes(program)).links
    numbers = order.order(links)
    return program if np.array_equal(numbers, links.captured) else _written(program, numbers)


def _written(program: Program, numbers: Integers) -> Program:
    steps = [step for step in program.steps if not isinstance(step, FreeStep)]
    return arranged(program, [steps[number] for number in numbers.tolist()], lasting(program.graph))
