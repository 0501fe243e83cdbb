"""A step in micro-batches: the graph of the undivided batch, computed part by part.

What a loss divides by (the labels that are not ignored, the weights of the classes, a mask of the user's own) is a sum
over the whole batch, and a mean of the parts' means is another number. So the step is captured as it stands, for the
whole batch, and its graph is cut: each node along the index variable that carries the batch, as a division over devices
would cut it (`girih.ops.derive`), so that every piece is a part of the same sum. Where the batch is summed up, the
pieces are added and what follows is computed once: a loss that is a sum divided by a count is both sums, and one
division; a weight's gradient is the sum of the parts'. So the numbers are those of the undivided batch to rounding,
random masks included, whatever the loss.

Where a node cannot be cut (an operator without a description, each sample compared with each), it reads its inputs as a
whole, joined from the parts, and what it makes is cut again. Statistics over the batch (batch norm) are sums, and then
needed by every part. Both are exact, but all parts have to meet there: `MeetingNode`.

Values that carry the batch are `_Cut`: a dimension, seen as `outer` runs of equal length, of each of which a part has
its share. (Rows of [steps · batch, width] are cut so, where steps come first.) A reshape keeps the number of runs in
the tensor as a whole, from which the new dimension follows.

Nodes are ordered for a pipeline: a part goes forward as a whole, then the next one; backward the last comes first
(GPipe, Huang et al. 2019, figure 2). Where parts meet, all of them come there before the first goes on.

Cost: linear in the nodes times the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from girih.capture.errors import CaptureError
from girih.graph import Argument, Graph, Node, Ref, Value, check, without_unread
from girih.ops.derive.divisions import Box, divisible, executable, span
from girih.ops.derive.pieces import PieceCall, make_piece
from girih.ops.expressions import Affine
from girih.ops.known import several_descriptions
from girih.ops.operator import Description

PHASES = ("forward", "backward", "update")
COMBINED = {"sum": "aten.add.Tensor", "prod": "aten.mul.Tensor", "max": "aten.maximum", "min": "aten.minimum"}
"""What puts the pieces of a reduction together, two at a time."""

SUMMED = "a sum over the batch"

Key = tuple[int, int, int, int, int]  # phase, how often parts have met, part in the order of its phase, node, serial


@dataclass(frozen=True)
class MeetingNode:
    """A node of the forward pass at which all parts meet before any of them goes on. why: what it needs of them."""

    operator: str
    source: str
    why: str

    @property
    def sums(self) -> bool:
        return self.why == SUMMED


@dataclass(frozen=True)
class _Cut:
    dim: int
    outer: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Read:
    """What the pieces of a node read of one input. dim: the one that is cut, or None. boxes: by part."""

    dim: int | None
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class _NodeCut:
    """A node along one of its index variables. results: by output the dimension that is cut, or how pieces combine."""

    outer: int
    calls: tuple[PieceCall, ...]
    reads: tuple[_Read | None, ...]
    results: tuple[int | str, ...]
    shapes: tuple[tuple[int, ...], ...]


def in_micro_batches(graph: Graph, count: int) -> tuple[Graph, tuple[MeetingNode, ...]]:
    """The graph with its batch in so many equal parts along dimension 0 of its tensors, and where these meet.

    Raises:
        CaptureError: the batch has tensors of different lengths, or of one that the count does not divide.
    """
    shapes = [graph.values[item.name].shape for item in graph.inputs if item.role == "batch"]
    lengths = {shape[0] for shape in shapes if shape}
    if len(lengths) != 1 or next(iter(lengths)) % count:
        raise CaptureError(
            f"{count} micro-batches: expected tensors of one length along dimension 0 that {count} divides, "
            f"got {[list(shape) for shape in shapes]}"
        )
    cutter = _Cutter(graph, count, lengths.pop())
    made = cutter.run()
    check(made)
    return made, tuple(cutter.meetings)


class _Cutter:
    """The graph that is being made.

    whole: by value of the old graph the name of what holds it undivided; cuts: its parts; pieces: other parts of it
    that were asked for. level: of new values, how often parts have met before. rank: of new values, the latest phase.
    """

    def __init__(self, graph: Graph, count: int, length: int) -> None:
        self.graph, self.count, self.length = graph, count, length
        self.several = several_descriptions(graph)
        self.values = {item.name: graph.values[item.name] for item in graph.inputs}
        self.whole = {item.name: item.name for item in graph.inputs}
        self.cuts: dict[str, _Cut] = {}
        self.pieces: dict[tuple[str, int, int], _Cut] = {}
        self.level = dict.fromkeys(self.whole, 0)
        self.rank = dict.fromkeys(self.whole, 0)
        self.placed: list[tuple[Key, Node]] = []
        self.meetings: list[MeetingNode] = []
        self.met: dict[str, MeetingNode] = {}  # by value that is there when all parts are

    def run(self) -> Graph:
        for item in self.graph.inputs:
            if item.role == "batch" and self.graph.values[item.name].shape:
                self.cuts[item.name] = self.extracted(item.name, 0, 1)
                del self.whole[item.name]  # who needs it whole reads the parts: then the parts are all that is read
        for index, node in enumerate(self.graph.nodes):
            self.take(index, node)
        outputs = tuple(replace(item, name=self.entire(item.name)) for item in self.graph.outputs)
        nodes = self.in_order()
        made = replace(self.graph, values=self.values, nodes=nodes, outputs=outputs)
        return without_unread(made)

    # Nodes of the old graph

    def take(self, index: int, node: Node) -> None:
        if not any(name in self.cuts for name in node.inputs):
            self.undivided(index, node)
            return
        if node.operator == "aten.reshape" and self.reshaped(index, node):
            return
        way = self.way(index, node)
        if way is not None:
            self.divide(index, node, way)
            return
        self.undivided(index, node)
        for name in node.outputs:
            shape = self.graph.values[name].shape
            if shape and shape[0] == self.length:
                self.cuts[name] = self.extracted(name, 0, 1)

    def undivided(self, index: int, node: Node) -> None:
        """Take the node over as it was."""
        names = {name: self.entire(name) for name in node.inputs}
        outputs = tuple((name, self.graph.values[name].shape, self.graph.values[name].dtype) for name in node.outputs)
        made = self.emit(node.renamed(names.__getitem__), outputs, index, None)
        self.whole.update(zip(node.outputs, made, strict=True))

    def way(self, index: int, node: Node) -> _NodeCut | None:
        """The way to cut the node for which the least has to be joined or cut anew."""
        descriptions = self.several[index]
        if not descriptions:
            return None
        candidates: dict[tuple[int, int], None] = {}
        for number, name in enumerate(node.inputs):
            cut = self.cuts.get(name)
            for read in descriptions[0].reads[number] if cut is not None else ():
                position = read[cut.dim]  # type: ignore[union-attr]
                if position is not None and position.terms:
                    variable = max(position.terms, key=lambda term: term[1])[0]
                    candidates.setdefault((variable, cut.outer))  # type: ignore[union-attr]
        best: tuple[int, _NodeCut] | None = None
        for variable, outer in candidates:
            way = _along(node, self.graph, descriptions, variable, outer, self.count)
            if way is not None and (best is None or self.joins(node, way) < best[0]):
                best = self.joins(node, way), way
        return None if best is None else best[1]

    def joins(self, node: Node, way: _NodeCut) -> int:
        """How many elements come from values that are not cut as they are needed."""
        other = 0
        for name, read in zip(node.inputs, way.reads, strict=True):
            cut = self.cuts.get(name)
            if read is not None and cut is not None and (cut.dim, cut.outer) != (read.dim, way.outer):
                other += self.graph.values[name].elements
        return other

    def divide(self, index: int, node: Node, way: _NodeCut) -> None:
        """The node in pieces, and what follows: parts, or one value that they add up to."""
        made = self.in_pieces(index, node, way)
        for number, (name, result) in enumerate(zip(node.outputs, way.results, strict=True)):
            parts = tuple(names[number] for names in made)
            if isinstance(result, int):
                self.cuts[name] = _Cut(result, way.outer, parts)
            else:
                self.combine(index, node, name, COMBINED[result], parts)

    def in_pieces(self, index: int, node: Node, way: _NodeCut) -> list[tuple[str, ...]]:
        """For each part the names of what the node's piece makes."""
        made = []
        sources = [None if read is None else self.source(name, read.dim, way.outer)
                   for name, read in zip(node.inputs, way.reads, strict=True)]  # fmt: skip
        for part, call in enumerate(way.calls):
            inputs = [
                "" if read is None or names is None
                else self.boxed(index, node, names[part], read.boxes[part], part)
                for names, read in zip(sources, way.reads, strict=True)
            ]  # fmt: skip
            arguments = call.arguments([Ref(name) for name in inputs])
            outputs = tuple((f"{name}.{part}", shape, self.graph.values[name].dtype)
                            for name, shape in zip(node.outputs, way.shapes, strict=True))  # fmt: skip
            order = [name for name, _ in node.arguments if name in arguments]
            named = {
                name: _frozen(arguments[name])
                for name in dict.fromkeys((*order, *arguments))
                if name in order or not _is_default(self.several[index][0], name, arguments[name])
            }
            piece = replace(node, operator=call.operator, arguments=tuple(named.items()))
            made.append(self.emit(piece, outputs, index, part))
        return made

    def source(self, name: str, dim: int | None, outer: int) -> tuple[str, ...]:
        """By part what holds an input's share; of one that is read whole the same for all."""
        return (self.entire(name),) * self.count if dim is None else self.parts(name, dim, outer).names

    def boxed(self, index: int, node: Node, name: str, box: Box, part: int) -> str:
        """A box of what holds an input's share."""
        for dim, (start, stop) in enumerate(box):
            if (start, stop) != (0, self.values[name].shape[dim]):
                name = self.sliced(index, node, name, dim, start, stop, part)
        return name

    def reshaped(self, index: int, node: Node) -> bool:
        """A reshape of a value in parts, if a dimension of the result can be cut as they are."""
        cut, before = self.cuts[node.inputs[0]], self.graph.values[node.inputs[0]].shape
        after = self.graph.values[node.outputs[0]]
        runs = prod(before[: cut.dim]) * cut.outer
        for dim, size in enumerate(after.shape):
            ahead = prod(after.shape[:dim])
            if ahead and runs % ahead == 0 and size and size % (runs // ahead * self.count) == 0:
                shape = (*after.shape[:dim], size // self.count, *after.shape[dim + 1 :])
                names = [
                    self.reshape(index, node, name, shape, part, f"{after.name}.{part}")
                    for part, name in enumerate(cut.names)
                ]
                self.cuts[after.name] = _Cut(dim, runs // ahead, tuple(names))
                return True
        return False

    # Values

    def parts(self, name: str, dim: int, outer: int) -> _Cut:
        """A value in parts along a dimension."""
        own = self.cuts.get(name)
        if own is not None and (own.dim, own.outer) == (dim, outer):
            return own
        key = name, dim, outer
        if key not in self.pieces:
            made = self.made_in_parts(name, dim, outer) if own is None else None
            self.pieces[key] = made or self.extracted(name, dim, outer)
        return self.pieces[key]

    def made_in_parts(self, name: str, dim: int, outer: int) -> _Cut | None:
        """The parts of a mask or an expanded number, each computed by itself: they read little or nothing."""
        index = self.graph.producer.get(name)
        if index is None or not self.several[index]:
            return None
        node, description = self.graph.nodes[index], self.several[index][0]
        read = sum(self.graph.values[item].elements for item in node.inputs)
        variable = description.place[dim].variable
        if variable is None or len(node.outputs) > 1 or read * self.count > self.graph.values[name].elements:
            return None
        way = _along(node, self.graph, self.several[index], variable, outer, self.count)
        if way is None or way.results != (dim,):
            return None
        return _Cut(dim, outer, tuple(names[0] for names in self.in_pieces(index, node, way)))

    def extracted(self, name: str, dim: int, outer: int) -> _Cut:
        """Parts of a value that is there as a whole."""
        index = self.graph.producer.get(name, -1)
        like = self.graph.nodes[index] if index >= 0 else Node("", "", (), ())
        entire = self.entire(name)
        shape = self.values[entire].shape
        size = shape[dim] // (outer * self.count)
        if outer == 1:
            return _Cut(dim, 1, tuple([
                self.sliced(index, like, entire, dim, part * size, (part + 1) * size, part)
                for part in range(self.count)
            ]))  # fmt: skip
        runs = self.reshape(index, like, entire, (*shape[:dim], outer, self.count, size, *shape[dim + 1 :]), None)
        names = []
        for part in range(self.count):
            run = self.sliced(index, like, runs, dim + 1, part, part + 1, part)
            names.append(self.reshape(index, like, run, (*shape[:dim], outer * size, *shape[dim + 1 :]), part))
        return _Cut(dim, outer, tuple(names))

    def entire(self, name: str) -> str:
        """What holds a value undivided; its parts are joined where nothing does."""
        if name in self.whole:
            return self.whole[name]
        cut, value = self.cuts[name], self.graph.values[name]
        index = self.graph.producer.get(name, -1)
        like = self.graph.nodes[index] if index >= 0 else Node("", "", (), ())
        shape, dim, names = value.shape, cut.dim, list(cut.names)
        if cut.outer > 1:
            size = shape[dim] // (cut.outer * self.count)
            inner = (*shape[:dim], cut.outer, 1, size, *shape[dim + 1 :])
            names = [self.reshape(index, like, item, inner, part) for part, item in enumerate(names)]
            dim += 1
        items = tuple(Ref(item) for item in names)
        node = replace(like, operator="aten.cat", arguments=(("tensors", items), ("dim", dim)))
        joined = shape
        if cut.outer > 1:
            joined = (*shape[: cut.dim], cut.outer, self.count, size, *shape[cut.dim + 1 :])
        (made,) = self.emit(node, ((f"{name}.whole", joined, value.dtype),), index, None, met="the batch as a whole")
        if cut.outer > 1:
            made = self.reshape(index, like, made, shape, None)
        self.whole[name] = made
        return made

    def combine(self, index: int, node: Node, name: str, operator: str, parts: Sequence[str]) -> None:
        """The pieces of a reduction, put together as they come."""
        order = range(self.count) if self.rank[parts[0]] == 0 else range(self.count - 1, -1, -1)
        first, *rest = order
        total, value = parts[first], self.graph.values[name]
        for part in rest:
            arguments = (("self", Ref(total)), ("other", Ref(parts[part])))
            add = replace(node, operator=operator, arguments=arguments)
            last = part == rest[-1]
            made = (name if last else f"{name}.to.{part}", value.shape, value.dtype)
            met = SUMMED if last else ""
            (total,) = self.emit(add, (made,), index, part, met=met, by=node.operator)
        self.whole[name] = total

    # New nodes

    def sliced(self, index: int, like: Node, name: str, dim: int, start: int, stop: int, part: int) -> str:
        value = self.values[name]
        arguments: tuple[tuple[str, Argument], ...] = (
            ("self", Ref(name)), ("dim", dim), ("start", start), ("end", stop), ("step", 1)
        )  # fmt: skip
        shape = (*value.shape[:dim], stop - start, *value.shape[dim + 1 :])
        node = replace(like, operator="aten.slice.Tensor", arguments=arguments)
        return self.emit(node, ((f"{name}.{part}", shape, value.dtype),), index, part)[0]

    def reshape(
        self, index: int, like: Node, name: str, shape: tuple[int, ...], part: int | None, wanted: str = ""
    ) -> str:
        node = replace(like, operator="aten.reshape", arguments=(("self", Ref(name)), ("shape", shape)))
        return self.emit(node, ((wanted or f"{name}.runs", shape, self.values[name].dtype),), index, part)[0]

    def emit(
        self,
        node: Node,
        outputs: Sequence[tuple[str, tuple[int, ...], str]],
        index: int,
        part: int | None,
        *,
        met: str = "",
        by: str = "",
    ) -> tuple[str, ...]:
        """Place a node, and name what it makes. met: what readers need of all parts, if they have to wait for them; by:
        the operator that needs all of them, if it is not the reader."""
        names = []
        for name, shape, dtype in outputs:
            while name in self.values or (name in self.graph.values and name not in node.outputs):
                name += "_"
            self.values[name] = Value(name, shape, dtype)
            names.append(name)
        inputs = node.inputs
        level = max((self.level[name] for name in inputs), default=0)
        rank = max([PHASES.index(node.phase), *(self.rank[name] for name in inputs)])
        if rank == 0 and part is not None:
            self.meetings += [_blamed(self.met.pop(name), node) for name in dict.fromkeys(inputs) if name in self.met]
        level += bool(met) and part is None  # it waits itself
        turn = -1 if part is None else part if rank == 0 else self.count - 1 - part
        made = replace(node, name=names[0], outputs=tuple(names))
        self.placed.append(((rank, level, turn, index, len(self.placed)), made))
        for name in names:
            self.level[name], self.rank[name] = level + (bool(met) and part is not None), rank
            if met:
                self.met[name] = MeetingNode(by or "aten.cat", node.source, met)
            elif part is None and (waiting := [self.met[item] for item in inputs if item in self.met]):
                self.met[name] = _blamed(waiting[0], node)
        return tuple(names)

    def in_order(self) -> tuple[Node, ...]:
        """The nodes by their keys; what needs no part right before its first reader, as a user's program has it."""
        self.placed.sort(key=lambda item: item[0])
        early = {name: node for key, node in self.placed if key[:3] == (0, 0, -1) for name in node.outputs}
        nodes: list[Node] = []
        for key, node in self.placed:
            if key[:3] == (0, 0, -1):
                continue
            pending = [node]
            while pending:
                last = pending[-1]
                if needed := [early[name] for name in last.inputs if name in early]:
                    pending.append(needed[0])
                    continue
                nodes.append(pending.pop())
                for name in last.outputs:
                    early.pop(name, None)
        return (*{id(node): node for node in early.values()}.values(), *nodes)


def _along(
    node: Node, graph: Graph, descriptions: Sequence[Description], variable: int, outer: int, count: int
) -> _NodeCut | None:
    """A node cut along an index variable into equal pieces; None where it cannot be.

    outer: of more than one, the variable goes through so many runs, of each of which a piece has its share. Its reads
    must then be at the variable itself, and nothing may depend on its value: then any rows may be a piece.
    """
    first = descriptions[0]
    size = first.sizes[variable]
    if not divisible(first)[variable] or size % (outer * count) or (first.alongside and variable >= first.outputs):
        return None
    bare = _is_bare(descriptions, variable)
    if outer > 1 and (not bare or any(variable in item.positions for item in descriptions)):
        return None
    step = size // count
    starts = np.zeros((count, first.rank), np.int64)
    stops = np.tile(np.asarray(first.sizes, np.int64), (count, 1))
    for part in range(count):
        begin = part * step if outer == 1 else 0
        starts[part, variable], stops[part, variable] = begin, begin + step
    if not bare and not all(executable(item, starts, stops).all() for item in descriptions):
        return None
    attributes = node.attributes
    calls = [make_piece(first, attributes, starts[part], stops[part]) for part in range(count)]
    if any(amount for call in calls for pads in call.pads for pair in pads for amount in pair):
        return None
    if len(descriptions) > 1:
        calls = [replace(call, result=None) for call in calls]
    if any(call.result is not None for call in calls):
        return None
    reads: list[_Read | None] = []
    for number, name in enumerate(node.inputs):
        if calls[0].names[number] is None:
            reads.append(None)
            continue
        dims = _dims(first.reads[number], variable)
        read = _read(graph.values[name].shape, [call.regions[number] for call in calls], dims, outer, count)
        if read is None:
            return None
        reads.append(read)
    results: list[int | str] = []
    shapes = []
    for description in descriptions:
        ends = np.tile(np.asarray(description.sizes, np.int64), (count, 1))  # what is not cut may differ
        begins = np.zeros_like(ends)
        begins[:, variable], ends[:, variable] = starts[:, variable], stops[:, variable]
        boxes = [
            tuple([span(position, low, high) for position in description.place])
            for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        shapes.append(tuple(high - low for low, high in boxes[0]))
        if variable >= description.outputs:
            if description.reducer not in COMBINED:
                return None
            results.append(description.reducer)
            continue
        read = _read(description.output.shape, boxes, _dims((description.place,), variable), outer, count)
        if read is None or read.dim is None or any(
            pair != (0, length) for pair, length in zip(read.boxes[0], shapes[-1], strict=True)
        ):  # fmt: skip
            return None
        results.append(read.dim)
    return _NodeCut(outer, tuple(calls), tuple(reads), tuple(results), tuple(shapes))


def _blamed(meeting: MeetingNode, reader: Node) -> MeetingNode:
    """The meeting; of parts that are joined it is the reader who needs it."""
    if meeting.operator != "aten.cat" or reader.operator == "aten.reshape":
        return meeting
    return replace(meeting, operator=reader.operator, source=reader.source)


def _is_bare(descriptions: Sequence[Description], variable: int) -> bool:
    """Is every position that depends on the variable the variable itself?"""
    positions = [index for item in descriptions for read in (item.place, *(r for reads in item.reads for r in reads))
                 for index in read]  # fmt: skip
    return all(
        index is None or index.variable == variable or all(number != variable for number, _ in index.terms)
        for index in positions
    )


def _dims(reads: Sequence[Sequence[Affine | None]], variable: int) -> set[int]:
    """The dimensions of a tensor that are read, or made, by an index variable."""
    return {
        dim
        for read in reads
        for dim, index in enumerate(read)
        if index is not None and any(number == variable for number, _ in index.terms)
    }


def _read(shape: tuple[int, ...], boxes: Sequence[Box], dims: set[int], outer: int, count: int) -> _Read | None:
    """What pieces read of a tensor, or make of it: its shares along a dimension, and of these a box."""
    if any(high <= low for box in boxes for low, high in box):
        return None
    found = []
    for dim in dims:
        size = shape[dim] // count
        shares = [(part * size, (part + 1) * size) if outer == 1 else (0, size) for part in range(count)]
        if shape[dim] % (outer * count) == 0 and [box[dim] for box in boxes] == shares:
            found.append(dim)
    if len(found) > 1 or (outer > 1 and len(found) < len(dims)):
        return None
    if not found:
        return _Read(None, tuple(boxes))
    (dim,) = found
    length = shape[dim] // count
    return _Read(dim, tuple((*box[:dim], (0, length), *box[dim + 1 :]) for box in boxes))


def _is_default(description: Description, name: str, argument: Any) -> bool:
    """Is it what the description takes where a node does not say? Graphs leave that out."""
    parameter = description.operator.parameters.get(name)
    return parameter is not None and not isinstance(argument, (Ref, tuple, list)) and parameter.default == argument


def _frozen(argument: Any) -> Argument:
    return tuple(map(_frozen, argument)) if isinstance(argument, (tuple, list)) else argument
