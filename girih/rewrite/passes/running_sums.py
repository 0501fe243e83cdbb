"""Running sums of what no worker can hold → of tiles, and of what each tile begins with.

    y = cumsum(x, dim)   →   tiles = reshape(x, (…, count, size, …))
                             sums = cumsum(sum(tiles, size), count)
                             y = reshape(cumsum(tiles, size) + concatenate(0, sums without the last))

Each row of tiles is then computed by itself, so that x is read block by block, twice, and y is written block by block;
sums are one element for each tile. What x is made of element by element, and what reads y so or reduces it along the
scan, is written in tiles, too: it is computed with them in one loop, and neither x nor y need exist as a whole. So are
running products of whole numbers; those of others could overflow in a tile where the whole does not. Sums of floating
numbers are those of tiles, added up: nearer to the exact ones than NumPy's.

Tiles are of one size, a divisor of the length: a length of which none is between `SHORTEST` and what fits stays whole.
Cost: linear in the nodes, and the square root of the lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

from girih.graph import Graph, Node, Ref, Value
from girih.graph.graph import ITEM_BYTES
from girih.ops import description_of
from girih.ops.derive.divisions import is_elementwise
from girih.rewrite.writer import Writer, rewritten

TILE_BYTES = 1 << 19
"""Of a tile, about: it is summed in the cache."""
TILES = 64
"""So many of them at least are what is held whole."""
FEW = 16
"""What is held whole is this many outer rows at least, else tiles are cut along the scan."""
SHORTEST = 32
"""Elements of a tile; the sums of shorter ones are many, and held."""
SCANS = {
    "aten.cumsum": ("aten.sum.dim_IntList", "aten.add.Tensor"),
    "aten.cumprod": ("aten.prod.dim_int", "aten.mul.Tensor"),
}
"""By scan, what makes one element of a tile, and what joins it with those behind."""
REDUCTIONS = {"aten.amax": "dim", "aten.amin": "dim", "aten.sum.dim_IntList": "dim", "girih.mean": "dims"}
"""What a reduction calls its dimensions."""


@dataclass(frozen=True)
class DivideRunningSums:
    """Write running sums as those of tiles. most: bytes of an array that are held whole."""

    most: float

    def apply(self, graph: Graph) -> Graph:
        if not any(node.operator in SCANS for node in graph.nodes):
            return graph
        tiling = _Tiling(graph, self.most)
        return rewritten(graph, dict.fromkeys({node.operator for node in graph.nodes}, tiling.divide))


@dataclass(frozen=True)
class _Tiles:
    """A value in tiles of `size` along an axis: under another name, with one more dimension."""

    name: str
    axis: int
    size: int


class _Tiling:
    """A graph while its running sums are divided. tiles: by name, what is there in tiles, too."""

    def __init__(self, graph: Graph, most: float) -> None:
        self.graph = graph
        self.most = most
        self.tiles: dict[str, _Tiles] = {}

    def divide(self, writer: Writer, node: Node) -> bool:
        if node.operator in SCANS:
            return self.scan(writer, node)
        tiled = next((self.tiles[name] for name in node.inputs if name in self.tiles), None)
        if tiled is None or len(node.outputs) != 1:
            return False
        if node.operator in REDUCTIONS:
            return self.reduction(writer, node, tiled)
        if not self.is_elementwise(node):
            return False
        y = writer.values[node.outputs[0]]
        return self.named(writer, self.elementwise(writer, node, tiled.axis, tiled.size), y, tiled)

    def named(self, writer: Writer, tiles: str, value: Value, like: _Tiles) -> bool:
        """Give a value that was made in tiles its own shape and name."""
        self.tiles[value.name] = replace(like, name=tiles)
        writer.reshape(tiles, value.shape, value.name)
        return True

    def is_elementwise(self, node: Node) -> bool:
        """Of arrays of the result's shape, and of numbers."""
        values = self.graph.values
        shape = values[node.outputs[0]].shape
        if len(node.outputs) != 1 or any(values[name].shape not in (shape, ()) for name in node.inputs):
            return False
        description = description_of(self.graph, node)
        return description is not None and bool(description.inputs) and is_elementwise(description)

    def in_tiles(self, writer: Writer, name: str, axis: int, size: int) -> str:
        """A value in tiles: made so, as far back as its elements are functions of others at the same place."""
        known = self.tiles.get(name)
        if known is not None and (known.axis, known.size) == (axis, size):
            return known.name
        at = self.graph.producer.get(name)
        node = None if at is None else self.graph.nodes[at]
        if node is not None and self.is_elementwise(node):
            tiles = self.elementwise(writer, node, axis, size)
        else:
            tiles = writer.reshape(name, _in_tiles(writer.values[name].shape, axis, size))
        self.tiles[name] = _Tiles(tiles, axis, size)
        return tiles

    def elementwise(self, writer: Writer, node: Node, axis: int, size: int) -> str:
        """The result of an element-wise node in tiles."""
        operands = {
            name: self.in_tiles(writer, name, axis, size) if self.graph.values[name].shape else name
            for name in node.inputs
        }
        arguments = {key: Ref(operands[item.name]) if isinstance(item, Ref) else item for key, item in node.arguments}
        y = self.graph.values[node.outputs[0]]
        return writer.one(node.operator, _in_tiles(y.shape, axis, size), y.dtype, **arguments)

    def reduction(self, writer: Writer, node: Node, tiled: _Tiles) -> bool:
        """Over the tiles, whose dimensions are one more; what is left of them gets its shape."""
        arguments: dict[str, Any] = dict(node.arguments)
        word = REDUCTIONS[node.operator]
        tiles, y = writer.values[tiled.name], writer.values[node.outputs[0]]
        rank = len(tiles.shape) - 1
        dims = {dim % rank for dim in arguments[word]} or set(range(rank))
        if tiled.axis not in dims:
            return False
        over = tuple(d for d in range(rank + 1) if (d if d <= tiled.axis else d - 1) in dims)
        kept = tuple(1 if d in over else size for d, size in enumerate(tiles.shape))
        shape = kept if arguments.get("keepdim") else tuple(size for d, size in enumerate(tiles.shape) if d not in over)
        first = node.arguments[0][0]
        arguments |= {first: Ref(tiled.name), word: over}
        writer.reshape(writer.one(node.operator, shape, y.dtype, **arguments), y.shape, y.name)
        return True

    def scan(self, writer: Writer, node: Node) -> bool:
        arguments: dict[str, Any] = dict(node.arguments)
        x, y = writer.values[arguments["self"].name], writer.values[node.outputs[0]]
        if x.bytes <= self.most or not x.shape or (node.operator == "aten.cumprod" and "int" not in x.dtype):
            return False
        axis = arguments["dim"] % len(x.shape)
        before, length, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        if prod(before) > 1 and x.bytes / prod(before) <= self.most / FEW:
            return False  # whose blocks are some of the outer rows
        line = ITEM_BYTES[x.dtype] * prod(before) * prod(behind)
        size = tile_length(length, max(1, int(min(TILE_BYTES, self.most / TILES) / line)), int(self.most // line))
        if not size:
            return False
        reduce, join = SCANS[node.operator]
        count = length // size
        tiles = self.in_tiles(writer, x.name, axis, size)
        dim: Any = (axis + 1,) if node.operator == "aten.cumsum" else axis + 1
        ends = (*before, count, 1, *behind)
        totals = writer.one(reduce, ends, x.dtype, self=Ref(tiles), dim=dim, keepdim=True)
        running = writer.one(node.operator, ends, x.dtype, self=Ref(totals), dim=axis)
        first = writer.full((*before, 1, 1, *behind), int(node.operator == "aten.cumprod"), x.dtype)
        parts = (Ref(first), Ref(writer.part(running, axis, 0, count - 1)))
        begins = writer.one("aten.cat", ends, x.dtype, tensors=parts, dim=axis)
        shape = writer.values[tiles].shape
        inner = writer.one(node.operator, shape, y.dtype, self=Ref(tiles), dim=axis + 1)
        joined = writer.one(join, shape, y.dtype, self=Ref(inner), other=Ref(begins))
        return self.named(writer, joined, y, _Tiles(joined, axis, size))


def _in_tiles(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])


def tile_length(length: int, wanted: int, most: int) -> int:
    """The divisor of a length that is nearest to what is wanted, of at most `most`; 0: there is none."""
    divisors = {part for one in range(1, isqrt(length) + 1) if length % one == 0 for part in (one, length // one)}
    able = [part for part in divisors if SHORTEST <= part <= most and part < length]
    return min(able, key=lambda part: max(part / wanted, wanted / part), default=0)
