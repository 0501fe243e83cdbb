"""`plan.export("dtensor")`: a plan as placements of DTensor, for parameters, buffers, the batch, and at the borders of
modules.

DTensor divides each operator by the placements of what it reads, so that a plan is told by few of them: how parameters
are kept and how they are used, and what goes into and comes out of each module that has any. Between these borders
DTensor takes its own way, which computes the same; where it moves other bytes than the plan, that is the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from girih.graph import Graph, Value
from girih.layout import PARTIAL, REPLICATE, Mesh, Placement, Sharding, regions_of
from girih.layout.sharding import Partial, Split
from girih.ops import Description
from girih.ops.derive.lookups import only_moves
from girih.ops.expressions import Affine
from girih.ops.known import descriptions
from girih.plans.plan import Plan, PlanError
from girih.program.lower import node_placements

FORMAT = 1

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
class DTensorExport:
    """A plan as DTensor's placements; `print` shows a page, `save` writes what `dtensor_apply.read` reads.

    mesh, names: of `init_device_mesh`. parameters: by path, buffers too. batch: by path. modules: by path, those that
    have parameters. fsdp: axes along which parameters are kept in shards and used whole, and the batch is divided: what
    FSDP2's `fully_shard` does. different: what of the plan DTensor cannot say, and does otherwise.
    """

    mesh: tuple[int, ...]
    names: tuple[str, ...]
    parameters: Mapping[str, Kept]
    batch: Mapping[str, Words]
    modules: Mapping[str, ModuleBorders]
    fsdp: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        def row(name: str, words: Iterable[object]) -> str:
            return f"  {name:<40} {' '.join(map(str, words))}"

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
        if self.different:
            lines += ["what DTensor does otherwise", *(f"  {line}" for line in self.different)]
        return "\n".join(lines)


def export_dtensor(plan: Plan) -> DTensorExport:
    """A plan as DTensor's placements; see `girih.api.Plan.export`.

    Raises:
        PlanError: a parameter lies as DTensor cannot say: in parts of stated lengths, or on some devices only. The
            message names it.
    """
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
    if any(_convolves(graph, [number]) and strategy.divisions[number].codes for number in range(len(graph.nodes))):
        different.append("DTensor divides convolutions by the batch alone, with whole weights")
    batch = {item.path: kept[item.name] for item in graph.inputs if item.role == "batch"}
    for item in graph.inputs:
        if item.role == "state" and graph.values[item.name].shape:
            owner = item.path.rpartition("/")[0]
            own = _words(strategy.layouts[item.name], item.path)
            if owner in parameters and own != parameters[owner].kept:
                different.append(f"{item.path}: the plan keeps it as {'·'.join(own)}, DTensor as its parameter")
    different += _without_rules(graph)
    labels = {name for node in graph.nodes if node.operator == "girih.pick" for name in node.inputs[1:]}
    if any(
        strategy.layouts[name].axes and set(_words_or_none(strategy.layouts[name]) or "S") - {"R"} for name in labels
    ):
        different.append(
            "of a mean over labels, DTensor takes the mean of the ranks' means, which is another number where labels "
            "are left out (-100), unequally many on each rank: divide the sum by the count in your loss"
        )
    for node in graph.nodes:
        if node.operator == "girih.mean" and node.phase == "forward" and not graph.values[node.outputs[0]].shape:
            words = _words_or_none(strategy.layouts[node.inputs[0]])
            if words is None or any(word.startswith("S") for word in words):
                different.append(
                    f"{node.source or 'the loss'}: of F.mse_loss, smooth_l1_loss and huber_loss with reduction='mean' "
                    "DTensor makes gradients as many times too large as ranks divide their input (PyTorch 2.13): write "
                    "the mean, (x - y).square().mean()"
                )
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
    )


def _convolves(graph: Graph, numbers: Iterable[int]) -> bool:
    return any(graph.nodes[number].operator.startswith("aten.convolution") for number in numbers)


def _without_rules(graph: Graph) -> list[str]:
    """Operators of PyTorch in the model, each once, that DTensor does not know: it raises NotImplementedError there."""
    from torch.distributed.tensor import DTensor

    from girih.kernels.evaluate import resolve

    known = DTensor._op_dispatcher.sharding_propagator
    tables = [getattr(known, name, {}) for name in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")]
    found: dict[str, str] = {}
    for node in graph.nodes:
        called = node.phase != "update" and node.inputs and node.operator.startswith("aten.")
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
    """(node, operand) -> where its pieces are read, of the forward pass."""
    found: Needs = {}
    for number, node in enumerate(plan.graph.nodes):
        if node.phase == "forward":
            options = node_placements(plan.graph, number, plan.strategy)
            found |= {(number, operand): options.needs[operand][0] for operand in range(len(node.inputs))}
    return found


def _as_words(place: Placement, shape: tuple[int, ...], mesh: Mesh) -> Words | None:
    """The words whose parts are those of a place; None if there are none."""
    choices = [*range(len(shape)), REPLICATE]
    each = [[PARTIAL] if terms > 1 else choices for terms in place.partial]
    if (sum(terms > 1 for terms in place.partial)) > 0 and len(place.partial) != mesh.axes:
        return None
    for codes in product(*each):
        if (regions_of(codes, shape, mesh) == place.regions).all():
            return tuple("P" if code == PARTIAL else "R" if code == REPLICATE else f"S{code}" for code in codes)
    return None


def _place(plan: Plan, needs: Needs, name: str, inside: frozenset[int] | None) -> Words | None:
    """How a value is read by the first node, of those inside, that computes with it: nodes that only move it are
    passed, as far as its dimensions can be followed."""
    graph = plan.graph
    shape, moving = graph.values[name].shape, descriptions(graph)
    at, follow = name, list(range(len(shape)))  # of each dimension of `at`, the one of the value; -1: none
    seen: Words | None = None
    for _ in range(len(graph.nodes)):
        users = [
            n for n in graph.consumers[at] if graph.nodes[n].phase == "forward" and (inside is None or n in inside)
        ]
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


def _modules(plan: Plan, parameters: Mapping[str, Kept], needs: Needs) -> dict[str, ModuleBorders]:
    """The borders of the modules that have parameters of their own."""
    graph = plan.graph
    owners = list(dict.fromkeys(path.rpartition(".")[0] for path in parameters))
    outputs = {output.name for output in graph.outputs}
    found = {}
    for owner in owners:
        inside = frozenset(
            number
            for number, node in enumerate(graph.nodes)
            if node.phase == "forward" and (node.scope == owner or node.scope.startswith(f"{owner}.")) and owner
        )
        if not inside:
            continue
        made = {name for number in inside for name in graph.nodes[number].outputs}
        reads = dict.fromkeys(name for number in sorted(inside) for name in graph.nodes[number].inputs)
        entering = [name for name in reads if name not in made and graph.role_of(name) in (None, "batch")]
        leaving = [
            name
            for number in sorted(inside)
            for name in graph.nodes[number].outputs
            if name in outputs
            or any(user not in inside and graph.nodes[user].phase == "forward" for user in graph.consumers[name])
        ]
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


def _words_or_none(layout: Sharding) -> Words | None:
    try:
        return _words(layout, "")
    except PlanError:
        return None
