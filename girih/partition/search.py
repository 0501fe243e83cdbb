"""What a search is: a proposer of strategies, from a Graph and an Objective to a SearchResult.

`girih.search.table` has all searches by name. A search proposes: what an answer costs it is told, by the tables of
`girih.partition.space.problem` or by the objective's score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from girih.graph import Graph
from girih.layout import Mesh
from girih.machine import Machine
from girih.partition.space.problem import OBJECTIVES, Objective
from girih.partition.strategy import SearchError, SearchResult, Strategy, check_placeable
from girih.rewrite.proposer import Proposer


@dataclass(frozen=True)
class Support:
    """Whether a search can be asked for an objective: true, or false with the reason in `why_not`."""

    why_not: str = ""

    def __bool__(self) -> bool:
        return not self.why_not


SUPPORTED = Support()


@dataclass(frozen=True)
class Search(Proposer):
    """A search with its options: it divides a graph, and places and orders the parts.

    seconds: of work, counted, after which it returns the best answer so far, with its gap: what is found does not
    depend on how busy the machine is. What has to be done before there is any answer is done however long it takes.
    The clock ends it after ten times the seconds, and the certificate says so (`stopped`).

    Raises:
        SearchError: the seconds are no finite number of at least 0.
    """

    seconds: float = 60.0

    changes: ClassVar[tuple[str, ...]] = ("strategy", "schedule")
    objectives: ClassVar[tuple[str, ...]] = OBJECTIVES
    """What it can minimise."""

    def __post_init__(self) -> None:
        if not is_seconds(self.seconds):
            raise SearchError(f"seconds must be a finite number of at least 0, got {self.seconds!r}")

    def supports(self, objective: Objective) -> Support:
        """Whether it can be asked for this objective on this machine. What a graph lacks, only `search` can tell."""
        if objective.name in self.objectives:
            return SUPPORTED
        return Support(f"it is of --objective {' or '.join(self.objectives)}, not of {objective.name}")

    @abstractmethod
    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        """The best strategy that it finds, and what is proved of it.

        Raises:
            SearchError: it can make nothing of this graph, or does not support the objective.
            OutOfTimeError: the objective has a budget, and it is too small for the tables.
        """


@dataclass(frozen=True)
class PlacingSearch(Search):
    """A search that puts layers on devices of their own: on axes of few devices only, which codes can name."""

    def places(self, machine: Machine) -> Mesh:
        """The devices, as a mesh, between which it chooses."""
        return machine.mesh

    def supports(self, objective: Objective) -> Support:
        try:
            check_placeable(self.places(objective.machine))
        except SearchError as error:
            return Support(str(error))
        return super().supports(objective)


def nobody(what: str, share: float) -> None:
    """Observes nothing."""


@dataclass(frozen=True)
class ScoredSearch(Search):
    """A search by the simulated step: it asks the objective's score what a strategy takes.

    known: answers that there are already, by the name of their search; it begins with these. observe: is told what is
    done, and how far it is.
    """

    known: tuple[SearchResult, ...] = field(default=(), repr=False)
    observe: Callable[[str, float], None] = field(default=nobody, compare=False, repr=False)

    objectives: ClassVar[tuple[str, ...]] = ("time",)

    def score(self, objective: Objective) -> Callable[[Strategy], float]:
        """Raises SearchError where the objective has none."""
        if objective.score is None:
            raise SearchError(
                f"search {self.name} needs a score: expected Objective('time', machine, score=…), got {objective}"
            )
        return objective.score


def is_seconds(value: Any) -> bool:
    """A finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
