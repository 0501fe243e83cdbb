"""`plan.export("dtensor")`: a plan as placements of DTensor, for parameters, buffers, the batch, and at the borders of
modules.

DTensor divides each operator by the placements of what it reads, so that a plan is told by few of them: how parameters
are kept and how they are used, and what goes into and comes out of each module that has any. Between these borders
DTensor takes its own way, which computes the same; where it moves other bytes than the plan, that is the reason.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.graph import Graph, Value
from girih.layout import PARTIAL, REPLICATE, Mesh, Placement, Sharding, reducer_of, regions_of, taking_part
from girih.layout.sharding import Partial, Split
from girih.ops import Description
from girih.ops.derive.lookups import only_moves
from girih.ops.expressions import Affine
from girih.ops.known import descriptions
from girih.partition.searches.data_parallel import batch_dimensions, carrying
from girih.partition.searches.stages import micro_batches
from girih.partition.strategy import Strategy
from girih.plans.inputs import source_of
from girih.plans.plan import Plan, PlanError
from girih.program.lower import node_placements
from girih.program.schedule import laps_of, micro_batches_of

if TYPE_CHECKING:
    from girih.run.export.calls import CallNodes

FORMAT = 1
MOST_REHEARSED = 5000
"""Nodes of a program whose step is rehearsed as it is exported, which takes a second for some hundreds."""

Words = tuple[str, ...]
"""One for each axis of the mesh: S0 for Shard(0), R for Replicate(), P for Partial()."""


@dataclass(frozen=True)
class Border:
    """What goes into a module, or comes out: a tensor of this shape, brought to these places."""

    shape: tuple[int, ...]
    places: Words


@dataclass(frozen=True)
class Kept:
    """Where a parameter or buffer lies from step to step, and where it is brought when its module reads it."""

    kept: Words
    used: Words


@dataclass(frozen=True)
class ModuleBorders:
    """inputs, outputs: in the order in which the module reads and makes them."""

    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]


@dataclass(frozen=True)
class CallBorders:
    """What goes into a call of a function of PyTorch's and comes out, in the forward pass; and in its backward pass the
    gradients of its results, as that reads them, and of its operands, where they go. function, number: its name, and
    how many calls of this name came before it in the step."""

    function: str
    number: int
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]
    gradients: tuple[Border, ...]
    made: tuple[Border, ...]


@dataclass(frozen=True)
class Stages:
    """A pipeline for `torch.distributed.pipelining`: a stage on each rank, in their order; interleaved, several, which
    go round the ranks.

    begins: the path of the module with which each stage begins, but for the first. micro_batches: of a step. schedule:
    `gpipe`, all micro-batches forward and then backward, `1f1b`, or `interleaved`.
    """

    begins: tuple[str, ...]
    micro_batches: int
    schedule: str


@dataclass(frozen=True)
class DTensorExport:
    """A plan as DTensor's placements; `print` shows a page, `save` writes what `dtensor_apply.read` reads.

    mesh, names: of `init_device_mesh`. parameters: by path, buffers too. batch: by path. modules: by path, those that
    have parameters. fsdp: axes along which parameters are kept in shards and used whole, and the batch is divided: what
    FSDP2's `fully_shard` does. different: what of the plan DTensor cannot say, and does otherwise. received: bytes that
    all ranks together receive in a step under DTensor, exact (`girih.run.export.rehearsal`); None where the plan was
    read from a file, without the module. planned: those of the plan. stages: of a plan that is a pipeline, which has no
    placements. fully_sharded: `fully_shard` lays the module out, and nothing else: each axis is one of `fsdp`, and
    modules compute with each sample by itself. gathers_again: it gathers parameters once more for the backward pass,
    unless the plan fetches them once. calls: of the forward pass, where DTensor's own way moves more than the plan.
    """

    mesh: tuple[int, ...]
    names: tuple[str, ...]
    parameters: Mapping[str, Kept]
    batch: Mapping[str, Words]
    modules: Mapping[str, ModuleBorders]
    fsdp: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    received: int | None = None
    planned: int | None = None
    stages: Stages | None = None
    fully_sharded: bool = False
    gathers_again: bool = True
    calls: tuple[CallBorders, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the file says."""
        data: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **asdict(self)}))
        return data

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        def row(name: str, words: Iterable[object]) -> str:
            return f"  {name:<40} {' '.join(map(str, words))}"

        if self.stages is not None:
            ranks, begins = self.mesh[0], self.stages.begins
            lines = [f"a pipeline of {len(begins) + 1} stages on {ranks} ranks, {self.stages.schedule}, "
                     f"{self.stages.micro_batches} micro-batches"]  # fmt: skip
            lines += [f"  stage {number} on rank {number % ranks} begins with {path}"
                      for number, path in enumerate(begins, 1)]  # fmt: skip
            return "\n".join([*lines, "what PyTorch does otherwise", *(f"  {line}" for line in self.different)])
        lines = [f"mesh {'×'.join(map(str, self.mesh))} ({', '.join(self.names)})", "parameters and buffers"]
        for name, item in self.parameters.items():
            used = [] if item.used == item.kept else ["used as", *item.used]
            lines.append(row(name, [*item.kept, *used]))
        lines += ["batch", *(row(name or "(one tensor)", words) for name, words in self.batch.items()), "modules"]
        for name, borders in self.modules.items():
            sides = (" ".join(f"{list(item.shape)} {'·'.join(item.places)}" for item in side)
                     for side in (borders.inputs, borders.outputs))  # fmt: skip
            lines.append(row(name, [" -> ".join(sides)]))
        if self.fsdp:
            lines.append(f"fully_shard over {', '.join(self.fsdp)}")
        if self.received is not None:
            lines.append(f"under DTensor ranks receive {self.received} bytes in a step; by the plan {self.planned}")
        if self.different:
            lines += ["what DTensor does otherwise", *(f"  {line}" for line in self.different)]
        return "\n".join(lines)


_known: dict[int, tuple[weakref.ref[Strategy], DTensorExport]] = {}  # by identity: what rehearsals have found


def export_dtensor(plan: Plan) -> DTensorExport:
    """A plan as DTensor's placements; see `girih.api.Plan.export`. A rehearsal takes seconds: of a plan that was made
    for DTensor, and so rehearsed, it is not repeated.

    Raises:
        PlanError: a parameter lies as DTensor cannot say: in parts of stated lengths, or on some devices only. Or
            DTensor fails in a step of it. The message names what.
    """
    strategy = plan.strategy
    if (entry := _known.get(id(strategy))) is not None and entry[0]() is strategy:
        return entry[1]
    if stages := stages_of(plan):
        ranks = plan.machine.devices
        different = ("the loss is the mean of the micro-batches' losses: of labels, as many have to count in each",)
        planned = int(plan.bytes_received.sum())
        return DTensorExport((ranks,), ("stage",), {}, {}, {}, different=different, planned=planned, stages=stages)
    exported = _placements(plan)
    source = source_of(plan)
    if source is None or not hasattr(source.step, "optimizer") or len(plan.graph.nodes) > MOST_REHEARSED:
        return exported
    import torch.distributed as dist

    from girih.run.export.calls import calls_of
    from girih.run.export.rehearsal import rehearsed

    if dist.is_initialized():  # the caller's own: there cannot be another
        return exported
    planned = int(plan.bytes_received.sum())
    rehearsal = rehearsed(exported.data, source.step, source.batch)
    if rehearsal.failed or rehearsal.received > planned:
        # PyTorch's own way moves more than the plan: parameters that stay gathered, or each call at the plan's places.
        if exported.fully_sharded:
            other = replace(exported, gathers_again=False)
        else:
            calls = calls_of(plan.graph, source.step, source.batch)  # type: ignore[arg-type]
            other = replace(exported, calls=_calls(plan, _needs(plan), calls))
        again = rehearsed(other.data, source.step, source.batch)
        if not again.failed and (rehearsal.failed or again.received < rehearsal.received):
            rehearsal, exported = again, other
    if rehearsal.failed:
        raise PlanError(
            f"DTensor fails in a step of this plan ({rehearsal.failed}): plan with for_engine='dtensor', which finds "
            "one that it runs, or export it as fx"
        )
    exported = replace(exported, received=rehearsal.received, planned=planned)
    number = id(strategy)
    _known[number] = weakref.ref(strategy, lambda _: _known.pop(number, None)), exported
    return exported


def stages_of(plan: Plan) -> Stages | None:
    """The stages of a plan that is a pipeline; None of another plan.

    Raises:
        PlanError: it is one, but its stages are no runs of modules, or PyTorch's schedule does not take them.
    """
    graph, mesh = plan.graph, plan.strategy.mesh
    count, (parts, _) = micro_batches(graph), micro_batches_of(graph)
    codes = np.asarray([division.codes for division in plan.strategy.divisions], np.int64)
    taking = taking_part(codes.reshape(len(graph.nodes), mesh.axes), mesh)
    stage = {
        number: int(taking[number].argmax())
        for number, node in enumerate(graph.nodes)
        if node.phase == "forward" and parts[number] == 0 and taking[number].sum() == 1
    }
    layers = [number for number in stage if graph.nodes[number].scope]
    if count == 1 or mesh.devices == 1 or not layers:
        return None
    schedule = plan.choice.schedule if plan.choice.schedule != "graph" else "gpipe"
    laps = laps_of(graph, parts, stage, mesh.devices) if schedule == "interleaved" else dict.fromkeys(stage, 0)
    run = {number: laps[number] * mesh.devices + stage[number] for number in stage}
    first = {run[number]: number for number in reversed(layers)}
    runs = mesh.devices * (max(laps[number] for number in layers) + 1)
    if sorted(first, key=first.__getitem__) != [*range(runs)]:
        on = len({stage[number] for number in layers})
        raise PlanError(
            f"the plan has stages on {on} of {mesh.devices} devices, which do not follow each other: "
            "torch.distributed.pipelining goes round the ranks, one stage on each; plan with search='pipeline'"
        )
    if schedule == "interleaved":
        _check_interleaved(graph, run)
    own = {number: run[number] for number in layers}
    return Stages(tuple(_first_module(graph, first[one], own) for one in range(1, runs)), count, schedule)


def _check_interleaved(graph: Graph, run: Mapping[int, int]) -> None:
    """
    Raises:
        PlanError: something passes a run of layers, and PyTorch's ScheduleInterleaved1F1B sends to the next one alone.
    """
    carried: dict[str, int] = {}  # by value that layers have made: its run
    for number, one in run.items():
        node = graph.nodes[number]
        past = [name for name in node.inputs if one - carried.get(name, one) > 1]
        if past:
            raise PlanError(
                f"{node.scope or node.operator} reads what is computed more than one run of layers before it, and "
                "PyTorch's ScheduleInterleaved1F1B sends to the next run alone: plan with search='pipeline-1f1b', "
                "without chunks"
            )
        if node.scope or any(name in carried for name in node.inputs):
            carried |= dict.fromkeys(node.outputs, one)


def _first_module(graph: Graph, number: int, stage: Mapping[int, int]) -> str:
    """The largest module that begins with a node and lies in its stage as a whole.

    Raises:
        PlanError: a stage begins in the middle of a module.
    """
    parts = graph.nodes[number].scope.split(".")
    for length in range(1, len(parts) + 1):
        path = ".".join(parts[:length])
        inside = {
            stage[other]
            for other in stage
            if graph.nodes[other].scope == path or graph.nodes[other].scope.startswith(f"{path}.")
        }
        if inside == {stage[number]}:
            return path
    raise PlanError(
        f"a stage of the plan begins in the middle of {graph.nodes[number].scope}: torch.distributed.pipelining cuts "
        "between modules"
    )


def _placements(plan: Plan) -> DTensorExport:
    graph, strategy, mesh = plan.graph, plan.strategy, plan.strategy.mesh
    if not mesh.axes:
        raise PlanError("the plan is for one device: there is nothing to place")
    different: list[str] = []
    kept = {
        item.name: _words(strategy.layouts[item.name], item.path or item.name)
        for item in graph.inputs
        if item.role in ("parameter", "buffer", "batch")
    }
    for name in kept:
        if uneven := _uneven(graph.values[name], kept[name], mesh):
            different.append(f"{name}: {uneven}")
    needs = _needs(plan)
    parameters = {}
    convolving = {
        item.path.rpartition(".")[0]
        for item in graph.inputs
        if item.role == "parameter" and _convolves(graph, graph.consumers[item.name])
    }
    for item in graph.inputs:
        if item.role in ("parameter", "buffer"):
            used = _place(plan, needs, item.name, None) or kept[item.name]
            if "P" in used:  # each rank its part, and zeros: DTensor has no such step
                different.append(f"{item.path}: the plan adds each rank's part of it, DTensor gathers it before")
                used = tuple("R" if word == "P" else word for word in used)
            if item.path.rpartition(".")[0] in convolving:
                used = ("R",) * mesh.axes
            parameters[item.path] = Kept(kept[item.name], used)
    if any(_convolves(graph, [number]) and not _by_samples(plan, needs, number) for number, _ in needs):
        different.append("DTensor divides convolutions by the batch alone, with whole weights")
    batch = {item.path: kept[item.name] for item in graph.inputs if item.role == "batch"}
    for item in graph.inputs:
        if item.role == "state" and graph.values[item.name].shape:
            owner = item.path.rpartition("/")[0]
            own = _words(strategy.layouts[item.name], item.path)
            if owner in parameters and own != parameters[owner].kept:
                different.append(f"{item.path}: the plan keeps it as {'·'.join(own)}, DTensor as its parameter")
    different += _without_rules(graph)
    names = tuple(f"axis_{number}" for number in range(mesh.axes))
    whole = [number for number in range(mesh.axes) if _gathered(parameters.values(), batch.values(), number)]
    return DTensorExport(
        mesh.sizes,
        names,
        parameters,
        batch,
        _modules(plan, parameters, needs),
        tuple(names[number] for number in whole),
        tuple(different),
        fully_sharded=len(whole) == mesh.axes and _for_fully_shard(plan),
    )


def _for_fully_shard(plan: Plan) -> bool:
    """Can `fully_shard` lay the module out? Modules then compute with each rank's samples alone, no parameter is shared
    by two of them, and none is a scalar."""
    graph, keys = plan.graph, plan.origin.keys or {}
    if len(set(keys.values())) < len(keys):
        return False
    if any(item.role == "parameter" and not graph.values[item.name].shape for item in graph.inputs):
        return False
    carriers = batch_dimensions(graph)
    for node, described in zip(graph.nodes, descriptions(graph), strict=True):
        dimensions = tuple(map(carriers.get, node.inputs))
        if node.phase != "forward" or not node.scope or not any(item is not None for item in dimensions):
            continue
        if described is None:
            return False
        variables = carrying(described, dimensions)
        if len(variables) > 1 or (described.root is not None and variables & set(described.root.variables)):
            return False
    return True


def _convolves(graph: Graph, numbers: Iterable[int]) -> bool:
    return any(graph.nodes[number].operator.startswith("aten.convolution") for number in numbers)


def _by_samples(plan: Plan, needs: Needs, number: int) -> bool:
    """Does a convolution read its input whole or by samples?"""
    graph = plan.graph
    words = _as_words(needs[number, 0], graph.values[graph.nodes[number].inputs[0]].shape, plan.strategy.mesh)
    return words is not None and set(words) <= {"S0", "R"}


def _without_rules(graph: Graph) -> list[str]:
    """Operators of PyTorch in the model, each once, that DTensor does not know: it raises NotImplementedError there."""
    from torch.distributed.tensor import DTensor

    from girih.kernels.evaluate import resolve
    from girih.run.export.dtensor_apply import EACH_IMAGE

    known = DTensor._op_dispatcher.sharding_propagator
    tables = [getattr(known, name, {}) for name in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")]
    found: dict[str, str] = {}
    for node in graph.nodes:
        called = node.phase != "update" and node.inputs and node.operator.startswith("aten.")
        called = called and node.operator.removeprefix("aten.") not in EACH_IMAGE
        if called and node.operator not in found:
            rule = resolve(node.operator)
            there = any(rule in table for table in tables) or rule in DTensor._op_dispatcher._custom_op_handlers
            found[node.operator] = "" if there else node.source or node.scope or "no source line"
    return [
        f"DTensor has no rule for {operator} ({where}), and will refuse it"
        for operator, where in found.items()
        if where
    ]


def _gathered(parameters: Iterable[Kept], batch: Iterable[Words], axis: int) -> bool:
    """Is an axis of the mesh FSDP's: the batch in parts, parameters in shards, and whole where they are used?"""
    items = list(parameters)
    shards = [item for item in items if item.kept[axis] != "R"]
    whole = all(item.used[axis] == "R" for item in items)
    return bool(shards) and whole and all(words[axis] == "S0" for words in batch)


def _words(layout: Sharding, name: str) -> Words:
    """Raises PlanError for a layout that DTensor has not."""
    found = []
    for axis in layout.axes:
        if axis.on is not None:
            raise PlanError(
                f"{name!r} lies as {layout}: on some devices only, which DTensor cannot say. Plan with "
                "for_engine='dtensor', which finds the best plan that it can"
            )
        if isinstance(axis, Split):
            if axis.shares is not None:
                raise PlanError(
                    f"{name!r} lies as {layout}: in parts of stated lengths, which DTensor cannot say. Plan with "
                    "for_engine='dtensor', which finds the best plan that it can"
                )
            found.append(f"S{axis.dimension}")
        else:
            if isinstance(axis, Partial) and axis.reducer != "sum":
                raise PlanError(
                    f"{name!r} lies as {layout}: in partial maxima or minima, which the export does not say. Plan with "
                    "for_engine='dtensor', which finds the best plan that it can"
                )
            found.append("P" if isinstance(axis, Partial) else "R")
    return tuple(found)


def _uneven(value: Value, words: Words, mesh: Mesh) -> str:
    for dimension, extent in enumerate(value.shape):
        sizes = (size for size, word in zip(mesh.sizes, words, strict=True) if word == f"S{dimension}")
        parts = int(np.prod(list(sizes)))
        if extent % parts:
            return f"{extent} in {parts} parts, which DTensor cuts in chunks of {-(-extent // parts)}"
    return ""


Needs = dict[tuple[int, int], Placement]


def _needs(plan: Plan) -> Needs:
    """(node, operand) -> where its pieces are read, of the forward and the backward pass."""
    found: Needs = {}
    for number, node in enumerate(plan.graph.nodes):
        if node.phase != "update":
            options = node_placements(plan.graph, number, plan.strategy)
            found |= {(number, operand): options.needs[operand][0] for operand in range(len(node.inputs))}
    return found


def _as_words(place: Placement, shape: tuple[int, ...], mesh: Mesh) -> Words | None:
    """The words whose parts are those of a place; None if there are none."""
    choices = [*range(len(shape)), REPLICATE]
    if reducer_of(place.partial) not in (None, "sum"):
        return None
    each = [[PARTIAL] if terms > 1 else choices for terms in place.partial]
    if (sum(terms > 1 for terms in place.partial)) > 0 and len(place.partial) != mesh.axes:
        return None
    for codes in product(*each):
        if (regions_of(codes, shape, mesh) == place.regions).all():
            return tuple("P" if code == PARTIAL else "R" if code == REPLICATE else f"S{code}" for code in codes)
    return None


def _place(plan: Plan, needs: Needs, name: str, inside: frozenset[int] | None, phase: str = "forward") -> Words | None:
    """How a value is read by the first node, of those inside, that computes with it: nodes that only move it are
    passed, as far as its dimensions can be followed."""
    graph = plan.graph
    shape, moving = graph.values[name].shape, descriptions(graph)
    at, follow = name, list(range(len(shape)))  # of each dimension of `at`, the one of the value; -1: none
    seen: Words | None = None
    for _ in range(len(graph.nodes)):
        users = [n for n in graph.consumers[at] if graph.nodes[n].phase == phase and (inside is None or n in inside)]
        if not users:
            return seen
        node, number = graph.nodes[users[0]], users[0]
        words = _as_words(needs[number, node.inputs.index(at)], graph.values[at].shape, plan.strategy.mesh)
        told = _back(words, follow)
        seen = told if told is not None else seen
        described = moving[number]
        if described is None or len(node.inputs) > 1 or not only_moves(described.body):
            return seen
        follow = _followed(described, follow)
        at = node.outputs[0]
    return seen


def _back(words: Words | None, follow: list[int]) -> Words | None:
    if words is None:
        return None
    found = [word if not word.startswith("S") else f"S{follow[int(word[1:])]}" for word in words]
    return None if "S-1" in found else tuple(found)


def _followed(described: Description, follow: list[int]) -> list[int]:
    """For each dimension of the result of a node that only moves its operand: which dimension of the operand it was.

    Where one dimension joins several, that is the outermost of them, along which it is cut.
    """
    read = [_outer(index) for index in described.reads[0][0]]
    outer = [_outer(index) for index in described.place]
    return [follow[read.index(one)] if one is not None and one in read else -1 for one in outer]


def _outer(index: Affine | None) -> int | None:
    """The index variable that goes through an index in the longest strides."""
    return max(index.terms, key=lambda term: term[1])[0] if index is not None and index.terms else None


def borders_of(graph: Graph, module: str, phase: str = "forward") -> tuple[list[str], list[str]]:
    """The values that go into a module, and those that come out of it, in a pass; none where it does nothing.

    module: its path, as nodes have it for their scope.
    """
    return _borders(graph, _inside(graph, module, phase), phase)


def _borders(graph: Graph, inside: Collection[int], phase: str) -> tuple[list[str], list[str]]:
    """The values that go into these nodes of a pass, and those that come out."""
    made = {name for number in inside for name in graph.nodes[number].outputs}
    reads = dict.fromkeys(name for number in sorted(inside) for name in graph.nodes[number].inputs)
    outputs = {output.name for output in graph.outputs} if phase == "forward" else set()
    entering = [name for name in reads if name not in made and graph.role_of(name) in (None, "batch")]
    leaving = [
        name
        for number in sorted(inside)
        for name in graph.nodes[number].outputs
        if name in outputs
        or any(user not in inside and graph.nodes[user].phase == phase for user in graph.consumers[name])
    ]
    return entering, leaving


def _inside(graph: Graph, module: str, phase: str = "forward") -> frozenset[int]:
    """The nodes of a module in a pass."""
    return frozenset(
        number
        for number, node in enumerate(graph.nodes)
        if node.phase == phase and (node.scope == module or node.scope.startswith(f"{module}.")) and module
    )


def _modules(plan: Plan, parameters: Mapping[str, Kept], needs: Needs) -> dict[str, ModuleBorders]:
    """The borders of the modules that have parameters of their own."""
    graph = plan.graph
    found = {}
    for owner in dict.fromkeys(path.rpartition(".")[0] for path in parameters):
        inside = _inside(graph, owner)
        if not inside:
            continue
        entering, leaving = borders_of(graph, owner)
        inputs = [(name, _place(plan, needs, name, inside)) for name in entering]
        if _convolves(graph, inside):
            inputs = [
                (name, words and tuple(word if word == "S0" else "R" for word in words)) for name, words in inputs
            ]
        results = [(name, _words_or_none(plan.strategy.layouts[name])) for name in leaving]
        found[owner] = ModuleBorders(*(
            tuple(Border(graph.values[name].shape, words) for name, words in side if words is not None)
            for side in (inputs, results)
        ))  # fmt: skip
    return found


def _calls(plan: Plan, needs: Needs, calls: Iterable[CallNodes]) -> tuple[CallBorders, ...]:
    """The borders of calls. Parameters are left to their modules."""
    graph, found = plan.graph, []
    grown = {name for node in graph.nodes if node.phase == "backward" for name in node.outputs}

    def bordered(names: Sequence[str], words: Callable[[str], Words | None]) -> tuple[Border, ...]:
        told = [(graph.values[name].shape, words(name)) for name in names]
        return tuple(Border(shape, word) for shape, word in told if word is not None)

    def stored(name: str) -> Words | None:
        return _words_or_none(plan.strategy.layouts[name])

    for call in calls:
        forward, backward = frozenset(call.forward), frozenset(call.backward)
        entering, leaving = _borders(graph, forward, "forward")
        arriving, going = _borders(graph, backward, "backward")
        arriving = [name for name in arriving if name in grown]
        inputs = bordered(entering, lambda name: _place(plan, needs, name, forward))  # noqa: B023
        if _convolves(graph, forward):
            inputs = tuple(
                Border(item.shape, tuple(word if word == "S0" else "R" for word in item.places)) for item in inputs
            )
        found.append(CallBorders(
            call.function,
            call.number,
            inputs,
            bordered(leaving, stored),
            bordered(arriving, lambda name: _place(plan, needs, name, backward, "backward")),  # noqa: B023
            bordered(going, stored),
        ))  # fmt: skip
    return tuple(item for item in found if item.inputs or item.outputs or item.gradients or item.made)


def _words_or_none(layout: Sharding) -> Words | None:
    try:
        return _words(layout, "")
    except PlanError:
        return None
