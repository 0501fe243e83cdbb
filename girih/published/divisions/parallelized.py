"""A division that the user has written with PyTorch's own engines: FSDP2, tensor parallelism, or both.

What `fully_shard` and `parallelize_module` have made of a module is held: how parameters lie, and the optimizer's state
with them, how the batch is divided, and what lies at the borders of modules where that is said. What PyTorch decides by
itself, operator by operator, the exact search fills in: the best plan of this kind.

- Over axes of `fully_shard` the batch is divided, and with it all work that carries it, as in `sharded`. An axis that
  nothing is divided along is one of these, since else its ranks would all do the same.
- Over axes of `parallelize_module` the cut of each parameter is followed through the graph as for Megatron-LM's
  division (`girih.published.divisions.transformer_blocks`): a node computes with the part of a weight that its device
  has.
  Where a module's output is said to be whole, a cut ends there. A cut that cannot be followed leaves to the search how
  the nodes use what they read.

Where we differ from PyTorch's run: a parameter that both cut along the same dimension is cut along another one for
FSDP, which moves the same bytes; parameters are gathered by each operator that needs them, where FSDP2 gathers those of
a module together, also what its backward pass does not read.

Cost: one walk over the nodes, then the exact search over few choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from girih.graph import Graph
from girih.layout import REPLICATE, Layout, Mesh
from girih.machine import Machine
from girih.machine import machine as machine_by_name
from girih.partition.search import Search
from girih.partition.searches.data_parallel import along
from girih.partition.searches.exact import exact
from girih.partition.space.options import SECONDS
from girih.partition.space.problem import Objective
from girih.partition.strategy import SearchResult
from girih.plans.plan import PlanError
from girih.published.divisions.megatron import candidates_of
from girih.published.divisions.transformer_blocks import Flow, TransformerBlock
from girih.rewrite.passes.heads import SeparateHeads
from girih.run.export.dtensor import borders_of

if TYPE_CHECKING:
    from girih.capture.parallelized import Parallelism, RankAxis, StatedPlacements

PARAMETER = "parameter"


@dataclass(frozen=True)
class AsParallelized(Search):
    """The division that `fully_shard` and `parallelize_module` have made of a module.

    cuts: by the path of a parameter, the dimension that each axis of the mesh divides, REPLICATE for none. inner: how
    many axes, the last ones, are those of tensor parallelism. outputs: by the path of a module, for each of its
    outputs what the inner axes do: `R`, or `S` and a dimension, from the end where it is below 0; None: nothing is
    said.
    alone: by the path of a module, how the gradient of its input lies behind it, in the same words.
    """

    cuts: Mapping[str, Layout] = field(default_factory=dict, repr=False)
    inner: int = field(default=0, repr=False)
    outputs: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict, repr=False)
    alone: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict, repr=False)

    name: ClassVar[str] = "as-parallelized"

    def __hash__(self) -> int:
        return hash((self.seconds, self.inner, *self.cuts.items()))

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        apart = SeparateHeads().apply(graph) if self.inner else graph
        mesh = objective.machine.mesh
        outer = Mesh(mesh.sizes[: mesh.axes - self.inner])
        held = self._held(apart)
        flow, lost = self._flow(apart, prod(mesh.sizes[outer.axes :]), held)
        shards = {item.name: self._shards(apart, item.name, item.path, outer) for item in apart.state_inputs}
        sequence = any(code not in (REPLICATE, flow.cuts.get(name, REPLICATE)) for name, code in held.items())
        candidates = candidates_of(apart, mesh, outer, flow, shards, held, free=bool(lost) or sequence)
        told = f"; how {', '.join(lost[:3])} {'is' if len(lost) == 1 else 'are'} used, too" if lost else ""
        space = f"parameters, batch and borders of modules as PyTorch has them, all else searched{told}"
        result = exact(apart, objective, rules=SECONDS, candidates=candidates, seconds=self.seconds, space=space)
        return result if apart is graph else replace(result, graph=apart)

    def _held(self, graph: Graph) -> dict[str, int]:
        """By value, the dimension that the inner axes cut where a module's output says it."""
        held: dict[str, int] = {}
        for borders, phase in ((self.alone, "backward"), (self.outputs, "forward")):
            for path, places in borders.items():
                leaving = borders_of(graph, path, phase)[1]
                for name, place in zip(leaving[-len(places) :], places, strict=False):  # equal nodes of modules are one
                    rank = len(graph.values[name].shape)
                    if place is not None and rank:
                        held[name] = REPLICATE if place == "R" else int(place[1:]) % rank
        return held

    def _flow(self, graph: Graph, devices: int, held: Mapping[str, int]) -> tuple[Flow, list[str]]:
        """What follows from the cuts of parameters over the inner axes, and the paths of those that cannot be followed,
        which are left out."""
        cut = {
            item.name: self.cuts[item.path][-1]
            for item in graph.inputs
            if item.role == PARAMETER and self.inner and self.cuts.get(item.path, (REPLICATE,))[-1] != REPLICATE
        }
        blocks = [TransformerBlock(PARAMETER, {name: dimension}) for name, dimension in cut.items()]
        whole = frozenset(name for name, code in held.items() if code == REPLICATE)
        lost: list[str] = []
        while True:
            flow = Flow(graph, devices, whole=whole).followed(blocks)
            if not flow.stuck:
                return flow, [item.path for item in graph.inputs if item.name in lost]
            lost += [name for number in flow.stuck for name in blocks[number].cuts]
            blocks = [block for number, block in enumerate(blocks) if number not in flow.stuck]

    def _shards(self, graph: Graph, name: str, path: str, outer: Mesh) -> Layout:
        """How the outer axes divide what lives from step to step; an optimizer's state lies as its parameter does."""
        value, codes = graph.values[name], self.cuts.get(path.partition("/")[0], ())
        parameter = next((item.name for item in graph.inputs if item.path == path.partition("/")[0]), name)
        if not codes or graph.values[parameter].shape != value.shape:
            return (REPLICATE,) * outer.axes
        inside = {code for code in codes[outer.axes :] if code != REPLICATE}
        found = []
        for number, code in enumerate(codes[: outer.axes]):
            before = Mesh(outer.sizes[: number + 1])
            if code in inside:  # cut by both: the largest other dimension that can be
                others = [one for one, size in enumerate(value.shape) if one not in inside and size >= outer.devices]
                code = max(others, key=lambda one: value.shape[one], default=REPLICATE)
            fits = code != REPLICATE and along(value, code, before)[-1] != REPLICATE
            found.append(code if fits else REPLICATE)
        return tuple(found)


@dataclass(frozen=True)
class Parallelized:
    """A step that is laid out already. step: for one device; machine: with the axes of the step's mesh; search: makes
    the plan that holds its division."""

    step: Any
    machine: Machine
    search: AsParallelized


def as_parallelized(step: Any, machine: str | Machine = "local:2", seconds: float = 60.0) -> Parallelized:
    """What a step costs as `fully_shard` and `parallelize_module` have laid its model out:

        given = girih.as_parallelized(step, "local:4")
        plan = girih.plan(given.step, batch, machine=given.machine, search=given.search)
        better = girih.plan(given.step, batch, machine=given.machine)

    step: a TrainingStep whose model is laid out over as many ranks as the machine has devices; the module stays as it
    is. The batch is the whole one, of all ranks. seconds: of work that the search may do.

    Raises:
        CaptureError: the model is not laid out, or as girih cannot say.
        PlanError: the machine has another number of devices, or its hosts do not fit the mesh.
    """
    from girih.capture.parallelized import parallelism_of, plain_step

    found = parallelism_of(step.model)
    where = machine if isinstance(machine, Machine) else machine_by_name(machine)
    if where.devices != found.ranks:
        raise PlanError(
            f"the model is laid out over {found.ranks} ranks, and {where.name} has {where.devices} devices: expected "
            "as many"
        )
    fitted = with_axes(where, (*found.data, *found.tensor, *_other_axes(found)))
    strides = [prod(fitted.mesh.sizes[number + 1 :]) for number in range(fitted.mesh.axes)]

    def covers(axis: RankAxis, number: int) -> bool:
        return axis.stride <= strides[number] < axis.stride * axis.size

    tensor = [any(covers(axis, number) for axis in found.tensor) for number in range(len(strides))]
    inner = sum(tensor)
    if inner and not all(tensor[-inner:]):
        raise PlanError(
            f"the mesh has axes of fully_shard inside those of tensor parallelism ({_said(found)}): make it with "
            "those of tensor parallelism last, as init_device_mesh(device, (data, tensor))"
        )
    cuts = {}
    for path, own in found.cuts.items():
        codes = [
            next((dimension for axis, dimension in own.items() if covers(axis, number)), REPLICATE)
            for number in range(len(strides))
        ]
        if len(set(codes[len(codes) - inner :])) > 1:
            raise PlanError(
                f"{path!r} is cut along {codes[len(codes) - inner :]} by the axes of tensor parallelism: girih reads "
                "one axis of fully_shard, or more, and one of tensor parallelism"
            )
        cuts[path] = tuple(codes)
    said = [
        {path: _words(border) for path, border in borders.items() if set(border.axes) <= found.tensor}
        for borders in (found.outputs, found.alone)
    ]
    return Parallelized(plain_step(step), fitted, AsParallelized(seconds, cuts, inner, *said))


def _words(border: StatedPlacements) -> tuple[str | None, ...]:
    return tuple(
        None if place is None or place.is_partial() else "R" if place.is_replicate() else f"S{place.dim}"
        for place in border.places
    )


def _other_axes(found: Parallelism) -> tuple[RankAxis, ...]:
    return tuple(axis for border in found.outputs.values() for axis in border.axes)


def _said(found: Parallelism) -> str:
    return ", ".join(
        f"{kind} of {axis.size} ranks at distances of {axis.stride}"
        for kind, axes in (("data", found.data), ("tensor", found.tensor))
        for axis in sorted(axes, reverse=True)
    )


def with_axes(machine: Machine, axes: Sequence[RankAxis]) -> Machine:
    """The machine whose mesh has these axes, each as one axis or several.

    Raises:
        PlanError: its levels, or axes among themselves, cut the ranks otherwise.
    """
    edges = {1, machine.devices} | {edge for axis in axes for edge in (axis.stride, axis.stride * axis.size)}
    sizes = [size for level in machine.levels for size in level.axes]
    own = {prod(sizes[number:]) for number in range(len(sizes))}
    levels = {machine.devices_inside(number) for number in range(len(machine.levels))}
    for chosen in (edges | levels | own, edges | levels):
        ordered = sorted(chosen)
        if all(larger % smaller == 0 for smaller, larger in pairwise(ordered)):
            break
    else:
        raise PlanError(
            f"the axes of the model's mesh begin and end at {sorted(edges)} ranks, and parts of {machine.name} at "
            f"{sorted(levels)}: expected each to divide the next, as a mesh whose inner axes are those of a host"
        )
    fitted = []
    for number, level in enumerate(machine.levels):
        inside = machine.devices_inside(number)
        within = [edge for edge in ordered if inside <= edge <= inside * level.parts]
        sizes_of = [larger // smaller for smaller, larger in pairwise(within)]
        fitted.append(replace(level, axes=tuple(reversed(sizes_of))))
    return replace(machine, levels=tuple(fitted))
