"""Searches: each a frozen dataclass of its options, and the one table of them.

The table feeds `girih.plan(search=)`, the command line, `girih.cluster(search=)` and the documentation. What a search
needs is imported when it runs: naming searches is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from girih.graph import Graph
    from girih.partition.space.problem import Objective
    from girih.partition.strategy import SearchResult

OBJECTIVES = ("bytes", "seconds", "time")
"""What a plan may minimise: bytes received; the roofline of the pieces plus transfers; the simulated step."""


class UnknownSearchError(ValueError):
    """There is no search of this name; the message lists those that there are."""


@dataclass(frozen=True)
class Search:
    """One way to divide a graph; its fields are its options.

    seconds: after so long the best answer so far is returned, with its gap. Some searches end by themselves.

    name: as users write it. objectives: which it can minimise. limited: it can also find the cheapest strategy that
    keeps a memory limit. arrays: array programs can be tiled by it.
    """

    name: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]] = OBJECTIVES
    limited: ClassVar[bool] = False
    arrays: ClassVar[bool] = False

    seconds: float = 60.0

    def supports(self, objective: str) -> bool:
        """Can the search minimise this objective?"""
        return objective in self.objectives

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        """A strategy for the graph, and what is proved of it.

        Raises:
            SearchError: the search can make nothing of this graph; the message says why.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls) -> str:
        """What the search does, in one line."""
        return (cls.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Exact(Search):
    """The least cost over all strategies, with a proof (Tofu §5, without its restrictions).

    By the objective `time` it goes on where the clock allows: layers are exchanged between several answers, and chains
    of the SOAP space are sampled (FlexFlow §3.5), each judged by the simulated step.
    """

    name = "exact"
    limited = True
    arrays = True

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.searches.exact import exact

        return exact(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Optimum(Exact):
    """The fastest simulated step of a small space, proved by branch and bound."""

    name = "optimum"
    objectives = ("time",)
    arrays = False


@dataclass(frozen=True)
class Recursive(Search):
    """One mesh axis at a time, each tensor cut along one dimension a step (Tofu §5.2, as published)."""

    name = "recursive"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.searches.recursive import recursive

        return recursive(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Greedy(Search):
    """The largest tensor first takes its cheapest layout, then the next (Tofu §7.3, of Spartan)."""

    name = "greedy"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import greedy

        return greedy(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Spartan(Search):
    """Spartan's smart tiling: greedy, the most connected array first (Spartan §3.3)."""

    name = "spartan"
    arrays = True

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.searches.spartan import spartan

        return spartan(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Data(Search):
    """Data parallelism: the batch is split, weights and optimizer state are replicated."""

    name = "data"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import data

        return data(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Sharded(Search):
    """Data parallelism with weights and optimizer state in parts (ZeRO-3)."""

    name = "sharded"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import data

        return data(graph, objective, sharded=True, seconds=self.seconds)


@dataclass(frozen=True)
class Row(Search):
    """Every tensor is split along its first dimension (Tofu §7.3: AllRow-Greedy)."""

    name = "row"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import row

        return row(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Equal(Search):
    """The optimum where every tensor and node is cut along one dimension only (Tofu §7.3: EqualChop)."""

    name = "equal"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import equal

        return equal(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class NoReduction(Search):
    """The optimum where no reduction is divided (Tofu §7.3: ICML18, Jia et al.)."""

    name = "no-reduction"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import no_reduction

        return no_reduction(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Megatron(Search):
    """Megatron-LM's tensor parallelism inside a host, data parallelism over hosts (Shoeybi et al. 2019)."""

    name = "megatron"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.megatron import megatron

        return megatron(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class OneWeirdTrick(Search):
    """Convolutions by data parallelism, fully connected layers by their parameters (Krizhevsky 2014)."""

    name = "one-weird-trick"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.experts import one_weird_trick

        return one_weird_trick(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Model(Search):
    """Each layer on one device, neighbours together, in shares of equal work."""

    name = "model"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.pipeline import model_parallel

        return model_parallel(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Pipeline(Search):
    """Stages of equal work, through which micro-batches go one behind the other (GPipe)."""

    name = "pipeline"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.pipeline import pipeline

        return pipeline(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class OneForwardOneBackward(Search):
    """The stages of `pipeline`, each of which goes backward as early as it can, in less memory (PipeDream-flush)."""

    name = "pipeline-1f1b"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.pipeline import one_forward_one_backward

        return one_forward_one_backward(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class RecurrentExpert(Search):
    """For recurrent networks: a replica on each host, in it each layer on a device (Wu et al. 2016)."""

    name = "rnn-expert"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.experts import rnn_expert

        return rnn_expert(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Hybrid(Search):
    """For DLRM: embedding tables whole on devices, the rest by data parallelism."""

    name = "hybrid"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.experts import hybrid

        return hybrid(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class ParameterServer(Search):
    """Data parallelism without collectives: one device updates each weight (Li et al. 2014)."""

    name = "parameter-server"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.experts import parameter_server

        return parameter_server(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Proportional(Search):
    """What `exact` finds, cut in shares by the devices' speeds, for machines with unequal devices."""

    name = "proportional"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.searches.proportional import proportional

        return proportional(graph, objective, seconds=self.seconds)


@dataclass(frozen=True)
class Single(Search):
    """Everything on every device: what one device would do."""

    name = "single"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        from girih.partition.baselines.classic import single

        return single(graph, objective, seconds=self.seconds)


SEARCHES: dict[str, type[Search]] = {
    item.name: item
    for item in (
        Exact, Optimum, Recursive, Greedy, Spartan, Data, Sharded, Row, Equal, NoReduction, Megatron, OneWeirdTrick,
        Model, Pipeline, OneForwardOneBackward, RecurrentExpert, Hybrid, ParameterServer, Proportional, Single,
    )
}  # fmt: skip


def search_of(search: str | Search, seconds: float | None = None) -> Search:
    """A search, or the one of a name with its default options. seconds: for a search that is named, or any.

    Raises:
        UnknownSearchError: there is none of this name.
    """
    if isinstance(search, str):
        if search not in SEARCHES:
            raise UnknownSearchError(f"no search {search!r}: expected one of {', '.join(SEARCHES)}")
        search = SEARCHES[search]()
    elif not isinstance(search, Search):
        raise UnknownSearchError(f"no search {search!r}: expected a name ({', '.join(SEARCHES)}) or a search's value")
    return search if seconds is None else replace(search, seconds=seconds)
