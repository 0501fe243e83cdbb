"""Layers on devices: model parallelism, and with micro-batches a pipeline (Huang et al. 2019, GPipe §2.2).

The modules of a program are cut into as many runs as there are devices, so that the longest run takes as little as it
can (roofline seconds of forward, backward and update together): `girih.partition.searches.stages`.

A device walks the program's steps and computes its own: all micro-batches forward, then all backward. While the second
stage has the first micro-batch, the first stage has the second one, and m micro-batches take s stages about
(m + s - 1) / m of one stage's work, in place of s times it. Stages hold the activations of all micro-batches, or of s
at most in the order 1F1B (Narayanan et al. 2021); GPipe's re-computing of them is up to the model
(torch.utils.checkpoint).

With fewer stages than devices, each stage is a submesh of the machine, and divided there (Narayanan et al. 2021,
"Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", §3: pipelines between hosts, tensor
and data parallelism inside).

Interleaved (ibid., §2.2) each stage has several chunks of layers, one in every round of all stages, so that the first
micro-batch is sooner at the last stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from girih.graph import Graph
from girih.partition.search import PlacingSearch
from girih.partition.searches.stages import divided_inside, equal_submeshes, in_stages, micro_batches, stages_of
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchError, SearchResult, check_placeable
from girih.search.table import search_of


@dataclass(frozen=True)
class Pipeline(PlacingSearch):
    """GPipe: stages of equal work on all devices, through which micro-batches go one behind the other.

    Raises:
        SearchError: the step has no micro-batches.
    """

    name: ClassVar[str] = "pipeline"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        count = _count(graph)
        return _on_devices(
            graph, objective, self.seconds, f"{count} micro-batches through stages, layers placed on devices"
        )


@dataclass(frozen=True)
class OneForwardOneBackward(PlacingSearch):
    """PipeDream-flush: the stages of `pipeline`, each of which goes backward as early as it can, in less memory.

    A stage holds the activations of no more micro-batches than there are stages (`girih.program.schedule`).

    stages: how many, each on an equal submesh of the machine; 0: one on each device. within: by which search a stage is
    divided over the devices of its submesh, as `data`, `sharded`, `megatron` or `exact`. chunks: runs of layers on each
    stage; with several the order is the interleaved one: stages wait less, send more, and hold more.

    Raises:
        SearchError: the step has no micro-batches, or there are no such submeshes of the machine; or, with several
            chunks, there are too few layers, or micro-batches that are no whole groups of as many as there are stages.
    """

    stages: int = 0
    within: str = "data"
    chunks: int = 1

    name: ClassVar[str] = "pipeline-1f1b"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stages < 0:
            raise SearchError(f"stages must be at least 0, got {self.stages}")
        if self.chunks < 1:
            raise SearchError(f"chunks must be at least 1, got {self.chunks}")
        search_of(self.within)

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        mesh = objective.machine.mesh
        count, number = _count(graph), self.stages or mesh.devices
        schedule = "1f1b" if self.chunks == 1 else "interleaved"
        if self.chunks > 1 and (number < 2 or count % number):
            raise SearchError(
                f"{self.chunks} chunks on each stage need micro-batches in groups of as many as there are stages, at "
                f"least two: this step has {count} micro-batches for {number} stages"
            )
        each = "" if self.chunks == 1 else f" in {self.chunks} chunks each"
        if number == mesh.devices:
            space = f"{count} micro-batches through stages{each}, layers placed on devices"
            return replace(_on_devices(graph, objective, self.seconds, space, self.chunks), schedule=schedule)
        check_placeable(mesh)
        submeshes = equal_submeshes(mesh, number)
        inner = search_of(self.within, self.seconds)
        written, inside = divided_inside(graph, objective, submeshes, (inner,) * number)
        space = (
            f"{count} micro-batches through {number} stages{each} of {mesh.devices // number} devices, each divided by "
            f"search {self.within}"
        )
        stages = _rounds(written, objective, number, self.chunks)
        result = in_stages(written, objective, stages, submeshes, inside, seconds=self.seconds, space=space)
        return replace(result, schedule=schedule, graph=None if written is graph else written)


@dataclass(frozen=True)
class ModelParallel(PlacingSearch):
    """Each layer on one device, neighbours together, in shares of equal work."""

    name: ClassVar[str] = "model"

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return _on_devices(graph, objective, self.seconds, "layers placed on devices")


def _count(graph: Graph) -> int:
    """The micro-batches of a step.

    Raises:
        SearchError: it has one.
    """
    count = micro_batches(graph)
    if count == 1:
        raise SearchError(
            "a pipeline needs micro-batches, and this step works on its batch as a whole: plan with "
            "`--micro-batches 4`, or capture TrainingStep(…, micro_batches=4); the search `model` goes without"
        )
    return count


def _on_devices(graph: Graph, objective: Objective, seconds: float, space: str, chunks: int = 1) -> SearchResult:
    """One stage on each device."""
    mesh = objective.machine.mesh
    check_placeable(mesh)
    submeshes = equal_submeshes(mesh, mesh.devices)
    stages = _rounds(graph, objective, mesh.devices, chunks)
    return in_stages(graph, objective, stages, submeshes, (None,) * len(submeshes), seconds=seconds, space=space)


def _rounds(graph: Graph, objective: Objective, stages: int, chunks: int) -> dict[int, int]:
    """The stage of each node, where the runs of layers go round all stages so many times.

    Raises:
        SearchError: there are fewer layers than runs.
    """
    runs = stages_of(graph, objective, stages * chunks)
    if chunks > 1 and (layers := len(set(runs.values()))) < stages * chunks:
        raise SearchError(
            f"{stages} stages of {chunks} chunks need {stages * chunks} layers, and this step has {layers}: expected "
            f"at most {layers // stages} chunks"
        )
    return {node: run % stages for node, run in runs.items()}
