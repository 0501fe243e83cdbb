"""What users' functions were seen to update, in place of the guess that each updates the whole result (Spartan §3.3).

The cost of `join_update` is that of its updates, which only a run of the function tells. So its first evaluation has

    D = join_update(f, x, …)   →   parts, seen = join_parts(f, x, …)      a tile for each worker
                                   D = join_reduced(parts)                whole updates, as before

and `seen` says which box of the result each tile updated, and how long that took. The same function on the same shapes
is then planned in two ways, and the one that moves less is taken: as it stands, or with windows as large as the
largest update seen,

    D = view(parts)                   where the tiles' windows lie one after another: nothing moves
    D = join_placed(parts, seen)      else: windows go where they belong, in place of whole results

What moves is what is priced: windows have fixed shapes. An update that does not fit into its window is left out and
`seen` says so: the evaluation is made again, with windows that hold this update too. After more than `MOST_MISSES` of
these the function is left as it stands. Functions are known by what they are: with other values it is another function.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from girih.capture.lazy.expressions import Expression
from girih.graph import Argument, Graph, Node, Output, Ref, Value
from girih.kernels.tiles import seen_of
from girih.machine.units import format_bytes

JOIN = "girih.join_update"
FEWEST_BYTES = 1 << 12
"""Results below this size are not observed: whole updates of them cost little."""
MOST_MISSES = 2
MOST_FUNCTIONS = 512
"""That are remembered, the latest seen."""


@dataclass(frozen=True)
class Observed:
    """Updates of one function on arrays of given shapes, in so many tiles.

    boxes: for each tile and dimension (start, stop) of all that it was seen to update. extents: of the largest update
    in each dimension, wherever it was. elements: of the largest. seconds: of the slowest tile in the first evaluation,
    for each element that was joined. misses: evaluations in which a window was too small.
    """

    boxes: tuple[tuple[tuple[int, int], ...], ...]
    extents: tuple[int, ...]
    elements: int
    seconds: float
    misses: int = 0

    @property
    def unsteady(self) -> bool:
        """Is what it updates not to be foretold?"""
        return self.misses > MOST_MISSES

    def along(self, shape: tuple[int, ...]) -> int:
        """The dimension along which the tiles update one part of the result after another, or -1."""
        for dim, extent in enumerate(shape):
            width = -(-extent // len(self.boxes))
            parts = [box[dim] for box in self.boxes]
            if width < extent and all(
                start == stop or number * width <= start < stop <= (number + 1) * width
                for number, (start, stop) in enumerate(parts)
            ):
                return dim
        return -1

    def window(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that holds the update of any tile."""
        dim = self.along(shape)
        if dim >= 0:
            return (*shape[:dim], -(-shape[dim] // len(self.boxes)), *shape[dim + 1 :])
        return tuple(max(1, extent) for extent in self.extents)


@dataclass(frozen=True)
class Look:
    """Where a graph says what was seen. key: of the function and its shapes. elements: that are joined in a tile."""

    key: Hashable
    rank: int
    elements: int


@dataclass(frozen=True)
class Observing:
    """A graph in which updates are observed. looks: by the output that says what was seen. new: is any
    function among them that was not seen before?"""

    graph: Graph
    looks: Mapping[str, Look]
    new: bool


class Observations:
    """What a session has seen, of one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Observed] = {}

    def state(self, nodes: Iterable[Expression]) -> Hashable:
        """What is known of these: plans that were made with something else known are others."""
        return tuple(self._form(item) for item in nodes if item.operator == JOIN)

    def _form(self, item: Expression) -> Hashable:
        known = self._known.get(_key_of(item))
        return None if known is None else (known.along(item.shape), known.window(item.shape), known.unsteady)

    def observing(self, graph: Graph, workers: int) -> Observing | None:
        """The graph in which updates are observed, and move as was observed; None where there is nothing to see."""
        nodes: list[Node] = []
        values, looks, new = dict(graph.values), {}, False
        for node in graph.nodes:
            work = _Work.of(graph, node, workers)
            known = self._known.get(work.key) if work is not None else None
            if work is None or (known is not None and not work.less(known)):
                nodes.append(node)
                continue
            new = new or known is None
            parts, seen = work.nodes(known)
            for part, value in parts:
                nodes.append(part)
                values.update((item.name, item) for item in value)
            looks[seen] = Look(work.key, len(work.shape), work.joined)
        if not looks:
            return None
        outputs = (*graph.outputs, *(Output(name, "result") for name in looks))
        names = (*(item.name for item in graph.inputs), *(name for node in nodes for name in node.outputs))
        read = {name: values[name] for name in names}
        return Observing(replace(graph, values=read, nodes=tuple(nodes), outputs=outputs), looks, new)

    def told(self, graph: Graph, workers: int, used: bool) -> tuple[str, ...]:
        """What was seen of a graph's functions, for people. used: does the plan go by it?"""
        works = [_Work.of(graph, node, workers) for node in graph.nodes]
        return tuple(
            work.told(self._known[work.key], used) for work in works if work is not None and work.key in self._known
        )

    def learn(self, looks: Mapping[str, Look], reported: Mapping[str, Any]) -> bool:
        """Take what an evaluation has seen; was everything where it was expected? Else its results are wrong."""
        fine = True
        for name, look in looks.items():
            seen = np.asarray(reported[name])
            rank = look.rank
            boxes = np.stack([seen[:, rank : 2 * rank], seen[:, 2 * rank : 3 * rank]], -1)
            before = self._known.pop(look.key, None)
            missed = bool(seen[:, -1].any())
            sizes = boxes[..., 1] - boxes[..., 0]
            extents, elements = sizes.max(0), int(sizes.prod(-1).max())
            if before is not None:
                boxes = _joined(boxes, np.asarray(before.boxes, np.int64).reshape(boxes.shape))
                extents, elements = np.maximum(extents, before.extents), max(elements, before.elements)
            self._known[look.key] = Observed(
                tuple(tuple((int(start), int(stop)) for start, stop in box) for box in boxes.tolist()),
                tuple(extents.tolist()),
                elements,
                before.seconds if before is not None else float(seen[:, -2].max()) * 1e-9 / max(1, look.elements),
                (before.misses if before is not None else 0) + missed,
            )
            fine = fine and not missed
            if len(self._known) > MOST_FUNCTIONS:
                del self._known[next(iter(self._known))]
        return fine


def _joined(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[tiles, dimensions, 2]: the boxes around two each; empty ones hold nothing."""
    around = np.stack([np.minimum(boxes, others)[..., 0], np.maximum(boxes, others)[..., 1]], -1)
    for one, other in ((boxes, others), (others, boxes)):
        empty = (one[..., 0] == one[..., 1]).any(-1)
        around[empty] = other[empty]
    return around


@dataclass(frozen=True)
class _Work:
    """A join_update that is worth a look. size: of the joined axis in a tile. joined: elements of the arrays that are
    cut, in a tile."""

    node: Node
    result: Value
    given: Mapping[str, Any]
    key: Hashable
    workers: int
    size: int
    joined: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.result.shape

    @classmethod
    def of(cls, graph: Graph, node: Node, workers: int) -> _Work | None:
        """The work of a node; None for another operator, a result or tiles too small, or a single worker."""
        if node.operator != JOIN or workers == 1 or graph.values[node.outputs[0]].bytes < FEWEST_BYTES:
            return None
        arguments: dict[str, Any] = dict(node.arguments)
        tensors = [graph.values[item.name] for item in arguments["tensors"]]
        cut = [(x, axis) for x, axis in zip(tensors, arguments["axes"], strict=True) if axis >= 0]
        length = cut[0][0].shape[cut[0][1]]
        size = -(-length // workers)
        if -(-length // size) < workers:
            return None
        key = _key(node.arguments, [(x.shape, x.dtype) for x in tensors])
        joined = sum(x.elements // length * size for x, _ in cut)
        return cls(node, graph.values[node.outputs[0]], arguments, key, workers, size, joined)

    def less(self, known: Observed) -> bool:
        """May windows move less than whole results? There are as many as workers, and each may go to all."""
        shape = self.shape
        if known.unsteady:
            return False
        return known.along(shape) >= 0 or self.workers * prod(known.window(shape)) < prod(shape)

    def nodes(self, known: Observed | None) -> tuple[list[tuple[Node, tuple[Value, ...]]], str]:
        """What makes the result, and the name of what says what was seen."""
        result, reducer = self.result, self.given["reducer"]
        written: list[tuple[Node, tuple[Value, ...]]] = []
        rank, count = len(self.shape), self.workers
        along = -1 if known is None else known.along(self.shape)
        window = self.shape if known is None else known.window(self.shape)
        parts = Value(f"parts.{result.name}", (count, *window), result.dtype)
        seen = Value(f"seen.{result.name}", (count, seen_of(rank)), "int64")
        arguments = (*self.node.arguments, ("size", self.size), ("window", window), ("along", along))
        arguments = (*arguments, ("timed", True)) if known is None else arguments
        names = (parts.name, seen.name)
        written.append(
            (replace(self.node, operator="girih.join_parts", arguments=arguments, outputs=names), (parts, seen))
        )

        def then(operator: str, name: str, shape: tuple[int, ...], /, **arguments: Argument) -> Ref:
            value = Value(name, shape, result.dtype)
            node = replace(self.node, name=name, operator=operator, arguments=tuple(arguments.items()), outputs=(name,))
            if name == result.name:  # the first of these nodes has its name
                node = replace(node, name=f"placed.{name}")
            written.append((node, (value,)))
            return Ref(name)

        last = Ref(parts.name)
        if known is None:
            then("girih.join_reduced", result.name, self.shape, parts=last, reducer=reducer)
        elif along < 0:
            where: dict[str, Argument] = {"seen": Ref(seen.name), "reducer": reducer, "shape": self.shape}
            then("girih.join_placed", result.name, self.shape, parts=last, **where)
        else:
            order = (*range(1, along + 1), 0, *range(along + 1, rank + 1))
            if along:
                shape = tuple(parts.shape[dim] for dim in order)
                last = then("aten.permute", f"turned.{result.name}", shape, self=last, dims=order)
            long = (*self.shape[:along], count * window[along], *self.shape[along + 1 :])
            exact = long == self.shape
            name = result.name if exact else f"long.{result.name}"
            last = then("aten.view", name, long, self=last, size=long)
            if not exact:
                part: dict[str, Argument] = {"dim": along, "start": 0, "end": self.shape[along], "step": 1}
                then("aten.slice.Tensor", result.name, self.shape, self=last, **part)
        return written, seen.name

    def told(self, known: Observed, used: bool) -> str:
        name = str(self.given["function"]).partition("|")[0]
        size = self.result.bytes // prod(self.shape)
        sizes = f"{format_bytes(known.elements * size)} of {format_bytes(self.result.bytes)}"
        where = self.node.source or self.node.name
        moves = "that" if used and self.less(known) else "the whole result"
        return (
            f"{where}: {name} was seen to update {sizes} for each of {self.workers} tiles, in "
            f"{known.seconds * 1e9:.3g} ns for each element; {moves} is what may move"
        )


def _key_of(item: Expression) -> Hashable:
    tensors: Any = dict(item.arguments)["tensors"]
    return _key(item.arguments, [(x.shape, x.dtype) for x in tensors])


def _key(arguments: Iterable[tuple[str, Any]], tensors: list[tuple[tuple[int, ...], str]]) -> Hashable:
    """Tells a function with the shapes of its arguments; the same for an expression and for its node in a graph."""
    return tuple((name, value) for name, value in arguments if name != "tensors"), tuple(tensors)
