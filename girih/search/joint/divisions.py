"""Divisions that the joint search proposes for one graph: what others do, and what is cheapest under prices.

A priced problem is the constraint problem of the division (`girih.partition.space.problem`) whose tables are weighted:
arithmetic by the price of computing, transfers by the price of links, and every byte that a device holds at a moment
when memory was exceeded by a price of its own. The prices are multipliers: they rise where a simulated step was short
of something, and fall where it was not (Held and Karp 1971).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import SearchResult, Strategy
from girih.partition.searches.exact import solve
from girih.partition.solver.elimination import Problem, restricted
from girih.partition.solver.held import Exchanged, HeldTables, Moment, moments_of
from girih.partition.solver.in_order import InOrder
from girih.partition.solver.memory_constrained import ENOUGH
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective, build, rules_of
from girih.partition.strategy import SearchError
from girih.rewrite.passes.attention import key_blocks
from girih.search.stages import proposed
from girih.search.table import search_of

Labels = NDArray[np.int64]

STAGES, BY_KEYS = "stages", "exact:attention=keys"
NAMES = (
    "exact", "data", "sharded", "megatron", "single", "one-weird-trick", "experts", "model", "pipeline",
    "pipeline-1f1b", "pipeline-1f1b:chunks=2", BY_KEYS, STAGES,
)  # fmt: skip
"""Searches whose divisions are held and judged, whatever they take without a limit; `tensor_parallel` has others."""
QUICKLY = ("data", "sharded", "megatron")
"""Those among them whose tables are small, which tell whether micro-batches make a step faster."""
ANY_ROOM = 2**62
"""Bytes of devices for stages that are moved within the limit afterwards."""
SMALL = 60
"""Variables of the largest problem whose strategies are drawn in the order of their cost, and changed node by node."""
DRAWN = 20_000
"""Steps of drawing strategies in the order of their cost."""
FASTER = 0.5
"""How strongly the prices of computing and of links follow the shares of the step in which each is busy."""


@dataclass(frozen=True)
class Busy:
    """What a simulated step was short of. computing, links: the largest share of the step in which a device computes,
    or a port carries messages. over: bytes beyond the limit, with everything on the devices. at: the node during which
    most is held (-1: before the first)."""

    computing: float
    links: float
    over: float
    at: int


@dataclass
class Prices:
    """The multipliers: of computing, of links, and of a byte that is held at a moment, in seconds."""

    computing: float = 1.0
    links: float = 1.0
    held: dict[Moment, float] = field(default_factory=dict)

    def follow(self, busy: Busy, moment: Moment, per_byte: float, turn: int) -> None:
        """Move by what a step was short of. per_byte: what moving a byte out of the way costs, in seconds; turn: how
        often the prices have moved."""
        ratio = math.exp(FASTER * (busy.links - busy.computing))
        self.links, self.computing = self.links * ratio, self.computing / ratio
        if busy.over > 0:
            self.held[moment] = self.held.get(moment, 0.0) + per_byte * 2.0 ** (turn - 2)
        else:
            self.held = {at: price / 2 for at, price in self.held.items()}


@dataclass
class Divisions:
    """Proposes strategies of one graph on one machine.

    budget: of the whole joint search, which it spends. left_out: names of searches that need not be asked. names: of
    those that were not asked yet.
    """

    graph: Graph
    objective: Objective
    exchanged: Exchanged
    budget: Budget
    left_out: frozenset[str] = frozenset()
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        devices = self.objective.machine.devices
        names = (*NAMES, *tensor_parallel(self.objective.machine)) if devices > 1 else NAMES[:1]
        left_out = self.left_out if devices > 1 and key_blocks(self.graph, devices) else self.left_out | {BY_KEYS}
        self.names = [name for name in names if name not in left_out]

    def known(self, below: float, among: Collection[str] = ()) -> Iterator[tuple[str, SearchResult]]:
        """What searches over tables find, each once; what can make nothing of the graph is left out. among: only these,
        where any are named. below: seconds of a step that an estimate must be below."""
        asked = [name for name in self.names if not among or name in among]
        for name in asked:
            if self.budget.late:
                return
            self.names.remove(name)
            with suppress(SearchError, OutOfTimeError):
                yield from ((name, found) for found in self.found(name, below))

    def found(self, name: str, below: float) -> Iterator[SearchResult]:
        """What one search finds; of stages several."""
        seconds = max(self.budget.seconds / 4, 1.0)
        if name == STAGES:
            yield from proposed(self.graph, self.objective, ANY_ROOM, below, self.budget, seconds)
            return
        search = search_of(name, seconds)
        if search.supports(self.objective):
            result = search.search(self.graph, self.objective)
            self.budget.spend(result.certificate.work * 1e9)
            yield result

    @cached_property
    def space(self) -> HeldTables:
        plain = build(self.graph, self.objective, rules_of(self.objective))
        self.budget.spend(plain.seconds * 1e9)
        return HeldTables(plain, self.exchanged)

    @property
    def small(self) -> bool:
        return len(self.graph.nodes) + len(self.graph.values) <= SMALL

    def moment(self, strategy: Strategy, at: int) -> Moment:
        """The moment of a node at which devices hold most under a strategy."""
        moments = moments_of(self.graph, at)
        labels = self.space.plain.labels(strategy)
        if labels is None:
            return moments[0]
        return max(moments, key=lambda moment: self.space.bytes(moment, labels, True))

    def priced(self, prices: Prices) -> Strategy:
        """The cheapest strategy under prices, as near as the solver comes in a part of the budget."""
        plain = self.space.plain
        problem = weighted(plain.problem, prices.computing, prices.links)
        space = HeldTables(replace(plain, problem=problem), self.exchanged)
        return self._solved(space.priced(prices.held, likely=True))

    def _solved(self, problem: Problem, among: list[NDArray[np.int64]] | None = None) -> Strategy:
        solution = solve(problem, self.objective, max(self.budget.seconds / 8, 0.5), enough=ENOUGH)
        self.budget.spend(float(solution.statistics["seconds of work"]) * 1e9)
        labels = solution.labels
        if among is not None:
            labels = np.asarray([kept[label] for kept, label in zip(among, labels, strict=True)])
        return self.space.plain.strategy(labels)

    def in_order(self) -> Iterator[tuple[float, Labels]]:
        """Labels of the strategies of a small graph with their seconds by tables, the cheapest first."""
        search = InOrder(self.space, steps=DRAWN)
        if search.able:
            yield from search

    def strategy(self, labels: Labels) -> Strategy:
        return self.space.plain.strategy(labels)

    def near(self, strategy: Strategy) -> Iterator[Strategy]:
        """Strategies of a small graph in which one node is divided otherwise, or one value lies otherwise: all other
        nodes stay as they are, and the values lie as is cheapest for them."""
        plain = self.space.plain
        now = plain.labels(strategy)
        if now is None:
            return
        values = len(plain.layouts)
        fixed = [np.asarray([label]) for label in now]
        free = [np.arange(size) for size in plain.problem.domains[:values]] + fixed[values:]
        for variable, size in enumerate(plain.problem.domains):
            for label in range(size):
                if label == now[variable]:
                    continue
                for others in (free, fixed):
                    among = [*others[:variable], np.asarray([label]), *others[variable + 1 :]]
                    try:
                        yield self._solved(restricted(plain.problem, among), among)
                    except ValueError:  # no strategy is so
                        continue


def tensor_parallel(machine: Machine) -> Iterator[str]:
    """Megatron-LM's division over every number of neighbours other than all of a host; and over each with the state
    divided by the others."""
    sizes, host = machine.mesh.sizes, prod(machine.levels[-1].axes)
    for axes in range(1, len(sizes) + 1):
        width = prod(sizes[-axes:])
        if width != host:
            yield f"megatron:tensor={width}"
        if width < machine.devices:
            yield f"megatron:tensor={width},state=sharded"


def weighted(problem: Problem, computing: float, links: float) -> Problem:
    """The problem with the costs of nodes and of transfers at these prices."""
    if computing == links == 1.0:
        return problem
    tables = [table * computing for table in problem.tables]
    pairs = tuple((a, b, table + len(problem.tables)) for a, b, table in problem.pairs)
    return replace(problem, pairs=pairs, tables=(*tables, *(table * links for table in problem.tables)))
