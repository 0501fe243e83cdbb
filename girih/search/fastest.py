"""The search for the fastest plan by the simulated step: the objective `time`.

First data parallelism, whose tables are small; then, as far as the time allows, what experts do, the optimum where each
node is divided along one dimension, and the optimum over all tables (`exact`); then layers are exchanged between these,
and chains sampled from the best. The objective's score, which is the simulator, judges all of them. Under a memory
limit the search begins with the cheapest plan that meets it.

The time is counted and not measured (`girih.layout.budget.Budget`), so that a busy machine finds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.partition import SearchResult
from girih.partition.search import ScoredSearch
from girih.partition.searches.sampled import Sampled
from girih.partition.space.options import MOST_PLACES, SECONDS, SOAP, Rules
from girih.partition.space.pricing import OutOfTimeError
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError
from girih.search.candidates import Candidates, Counted
from girih.search.table import search_of
from girih.simulate.bounds import WORK, bound_of

CROSSING = 0.3
"""The share of the time that is left in which layers are exchanged, where chains come after that."""
SPACE = "SOAP: divisions and places of every node"
LEAST = 0.2
"""Seconds that a search over tables is given, however few are left."""
LONGER = 8.0
"""How much longer than a search over data parallelism's or an expert's tables one over those of all divisions takes, at
least: what it cannot be stopped in included, the last tables and the solver's first answer."""
CONVOLUTIONAL = ("one-weird-trick", "equal", "exact", "pipeline", "model", "rnn-expert", "hybrid")
RECURRENT = ("pipeline", "model", "rnn-expert", "exact", "hybrid", "one-weird-trick", "equal")
"""The order in which candidates are searched beside data parallelism, for networks with convolutions and others."""
EXPERTS = ("one-weird-trick", "rnn-expert", "hybrid", "pipeline", "model")
"""The sampled search begins with the best of their plans, too (FlexFlow §3.5.2)."""


@dataclass(frozen=True)
class Fastest(ScoredSearch):
    """What `exact` is by the objective `time`.

    known: what data parallelism, or the exact search over tables, found. It spends the objective's budget of work, or
    one of its seconds. What is not begun for want of work is estimated from what other searches took before it.
    """

    name: ClassVar[str] = "fastest"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        budget, objective = objective.budget or Budget(self.seconds), replace(objective, budget=None)
        score = Counted(self.score(objective), budget, objective.judging)
        (first,) = self.known
        best = bound_of(graph, objective.machine)
        score(first.strategy)
        candidates = _Candidates(graph, objective, score, budget, self.observe)
        candidates.gather(first, dict(best.parts)[WORK] * objective.machine.devices)
        rules = candidates.affordable()
        share = 1.0 if rules is None else CROSSING
        candidates.cross(max(share * candidates.left, 0.0), candidates.results)
        if rules is not None:
            self.observe("search sampled", 0.0)
            result = candidates.sampled(rules, best.seconds, best.how)
            if result is not None:
                return result
        told = {**first.certificate.statistics, "proposals": 0}
        return candidates.answer(best.seconds, best.how, budget.why, SPACE, told)


@dataclass
class _Candidates(Candidates):
    """Strategies by name, judged as they come. took: seconds of work that searches over tables took so far, the
    longest; tables: those that the tables of all divisions took, None where they were not made."""

    took: float = 0.0
    tables: float | None = None

    @property
    def left(self) -> float:
        """Seconds of work, without those that judging what is found takes."""
        return self.budget.seconds - self.score.seconds

    def gather(self, first: SearchResult, work: float) -> None:
        """The first answer; then, of several devices, what other searches find.

        work: seconds in which one device does all of it, at least.
        """
        alone, whole = self.objective.machine.devices == 1, first.search == "exact"
        if whole:
            self.tables = _pricing(first)
        self.results[first.search] = first
        if alone:
            return
        self.took = first.certificate.work
        self.observe("search experts", 0.0)
        if whole:
            self.search("data", 0.5, needed=True)
        if work < self.score(first.strategy):  # less than sending takes: a small model
            self.search("single", 0.25)
        for name in _order(self.graph):
            if name != "exact":
                self.search(name, 0.25)
            elif not whole:
                self.search(name, 0.5)

    def search(self, name: str, share: float, needed: bool = False) -> None:
        """What a search over tables finds in a share of the time that is left, if it is likely to find something, or
        is needed. Experts have at least as long as such a search took: what is begun should be likely to end."""
        left = self.left
        if not needed and left < self.took * (LONGER if name == "exact" else 1):
            return
        seconds = max(share * left, min(self.took, left) if name in EXPERTS else 0.0)
        part = self.budget.part(seconds)
        objective = self.objective if needed else replace(self.objective, budget=part)
        try:
            result = self.propose(search_of(name, max(seconds, LEAST)), objective)
        except (OutOfTimeError, SearchError):
            self.budget.spend(part.spent)
            return
        self.budget.spend(result.certificate.work * 1e9)
        if name == "exact":
            self.tables = _pricing(result)
        elif name in EXPERTS:
            self.took = max(self.took, result.certificate.work)
        self.score(result.strategy)

    def affordable(self) -> Rules | None:
        """The widest space whose tables can be priced in the time that chains have."""
        if self.tables is None:
            return None
        return _affordable(self.objective.machine, self.tables, (1 - CROSSING) * self.left - 2 * self.score.seconds)

    def sampled(self, rules: Rules, bound: float, how: str) -> SearchResult | None:
        """What chains find from the best expert's plan and the others; None where the tables take too long."""
        seconds = self.seconds
        experts = [name for name in seconds if name in EXPERTS]
        chosen = min(experts, key=seconds.__getitem__, default="")
        search = Sampled(
            self.budget.seconds,
            tuple(
                replace(result, search=name)
                for name, result in self.results.items()
                if name not in EXPERTS or name == chosen
            ),
            bound=bound,
            how=how,
            rules=rules,
        )
        try:
            return search.search(self.graph, replace(self.objective, budget=self.budget, score=self.score))
        except OutOfTimeError:
            return None


def _order(graph: Graph) -> Sequence[str]:
    """The searches beside data parallelism, the most promising for such a network first."""
    return CONVOLUTIONAL if any("convolution" in node.operator for node in graph.nodes) else RECURRENT


def _pricing(result: SearchResult) -> float:
    """Seconds of work that the tables of a search took."""
    return float(result.certificate.statistics.get("seconds of work to price", 0.0))


def _affordable(machine: Machine, pricing: float, left: float) -> Rules | None:
    """The widest space whose tables can be priced in most of the time that is left; None: not even without places.

    pricing: seconds that the tables without places took. With places it takes more by an estimate: a tensor of two
    dimensions has four codes for a mesh axis; places add one for each coordinate, and tables are between pairs, some
    of which are equal (AlexNet on meshes of 4×2×2 and 16×2×2: 12 and 4 times).
    """
    more = float(np.prod([(4 + size) / 4 for size in machine.mesh.sizes if size <= MOST_PLACES])) ** 1.7
    return SOAP if pricing * more <= 0.8 * left else SECONDS if pricing <= 0.8 * left else None
