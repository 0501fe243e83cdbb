"""The solutions of a weighted constraint problem in the order of their cost, one after another.

Bucket elimination (`factors.py`) leaves for each variable the tables that it was minimised out of. Read backwards they
tell, when the variables that were eliminated later have labels, exactly what the best completion of each label costs
more than the best one: a perfect heuristic. A* (Hart, Nilsson, Raphael 1968) with it opens no partial solution that
does not lead to a solution of that cost. Solutions that hold too much memory at some moment are not followed: for each
moment the bytes of the labels that are chosen, and the fewest of each variable that is not, are summed. The limit may
be lowered while solutions are drawn.

Cost: each step has a vector operation over labels × moments; as many steps as there are solutions up to the cost that
is reached and within the limit, times variables at most. Deterministic: it stops by counts, never by a clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from girih.partition.solver.elimination import load
from girih.partition.solver.factors import Factors
from girih.partition.solver.held import HeldTables, moments
from girih.partition.solver.tables import Tables

ENTRIES = 2**18
"""Entries of the largest table that elimination may make here."""


class InOrder:
    """Solutions of `held.plain` in the order of their cost.

    most_bytes: what a solution may hold at most; lower it at will. reached: no solution within it that has not been
    drawn costs less. done: all were drawn. able: whether the problem is small enough for this.
    """

    def __init__(self, held: HeldTables, *, steps: int) -> None:
        self.held = held
        self.steps = steps
        self.most_bytes = math.inf
        self.reached = 0.0
        self.done = False
        self.store = Tables()
        factors = load(held.plain.problem, self.store)
        factors.eliminate(ENTRIES, ENTRIES * 64)
        self.able = not factors.left
        if self.able:
            self._prepare(factors)

    def _prepare(self, factors: Factors) -> None:
        """Memory by variable and label at all moments, and what the variables that come later hold at least."""
        problem, graph = self.held.plain.problem, self.held.plain.graph
        self.constant = factors.constant
        self.turns = list(reversed(factors.trail))
        turn_of = {entry[0]: turn for turn, entry in enumerate(self.turns)}
        every = moments(graph)
        count = len(every)
        self.single = [np.zeros((size, count)) for size in problem.domains]
        self.pairs: list[list[tuple[int, int, NDArray[np.float64]]]] = [[] for _ in problem.domains]
        for moment, terms in enumerate(map(self.held.terms, every)):
            for variable, table in terms.single.items():
                self.single[variable][:, moment] += table
            for pair, table in terms.pairs.items():
                a, b, _ = problem.pairs[pair]
                if turn_of[a] > turn_of[b]:
                    self.pairs[a].append((b, moment, table.T))
                else:
                    self.pairs[b].append((a, moment, table))
        least = np.stack([table.min(axis=0) for table in self.single])
        later = np.zeros((len(self.turns) + 1, count))
        for turn in range(len(self.turns) - 1, -1, -1):
            later[turn] = later[turn + 1] + least[self.turns[turn][0]]
        self.later = later

    def __iter__(self) -> Iterator[tuple[float, NDArray[np.int64]]]:
        """(cost, labels), the cheapest first."""
        if not self.able:
            return
        number = 0
        size = len(self.held.plain.problem.domains)
        start = np.zeros(size, np.int64)
        queue = [(self.constant, 0, number, start, np.zeros(self.later.shape[1]))]
        while queue:
            cost, depth, _, labels, bytes_ = heapq.heappop(queue)
            self.reached = max(self.reached, cost)
            if (bytes_ + self.later[-depth]).max(initial=0.0) > self.most_bytes:
                continue
            if -depth == len(self.turns):
                yield cost, labels
                continue
            if self.steps <= 0:
                return
            self.steps -= 1
            v = self.turns[-depth][0]
            more = self._more(-depth, labels)
            held = bytes_ + self.single[v]
            for other, moment, table in self.pairs[v]:
                held[:, moment] += table[labels[other]]
            good = np.isfinite(more) & ((held + self.later[1 - depth]).max(axis=1) <= self.most_bytes)
            for label in np.flatnonzero(good).tolist():
                number += 1
                child = labels.copy()
                child[v] = label
                heapq.heappush(queue, (cost + float(more[label]), depth - 1, number, child, held[label]))
        self.done = True

    def _more(self, turn: int, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """What each label of the variable whose turn it is costs more than its best, whatever comes later."""
        entry = self.turns[turn]
        total = np.zeros(self.held.plain.problem.domains[entry[0]])
        if len(entry) == 3:
            _, neighbours, key = entry
            for table, places in key:
                index = tuple([slice(None) if p == len(neighbours) else labels[neighbours[p]] for p in places])
                total = total + self.store.arrays[table][index]
        else:
            total[np.arange(len(total)) != entry[1]] = np.inf
        more: NDArray[np.float64] = total - total.min()
        return more
