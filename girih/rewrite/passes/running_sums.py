"""Running sums of what no worker can hold → of tiles, and of what each tile begins with.

    y = cumsum(x, dim)   →   tiles = reshape(x, (…, count, size, …))
                             sums = cumsum(sum(tiles, size), count)
                             y = reshape(cumsum(tiles, size) + concatenate(0, sums without the last))

Each row of tiles is then computed by itself, so that x is read block by block, twice, and y is written block by block;
sums are one element for each tile. So are running products of whole numbers; those of others could overflow in a tile
where the whole does not. Sums of floating numbers are those of tiles, added up: nearer to the exact ones than NumPy's.

Tiles are of one size, a divisor of the length: a length of which none is between `SHORTEST` and what fits stays whole.
Cost: linear in the nodes, and the square root of the lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

from girih.graph import Graph, Node, Ref
from girih.graph.graph import ITEM_BYTES
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


@dataclass(frozen=True)
class DivideRunningSums:
    """Write running sums as those of tiles. most: bytes of an array that are held whole."""

    most: float

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, dict.fromkeys(SCANS, self._scan))

    def _scan(self, writer: Writer, node: Node) -> bool:
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
        tiles = writer.reshape(x.name, (*before, count, size, *behind))
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
        writer.reshape(joined, y.shape, y.name)
        return True


def tile_length(length: int, wanted: int, most: int) -> int:
    """The divisor of a length that is nearest to what is wanted, of at most `most`; 0: there is none."""
    divisors = {part for one in range(1, isqrt(length) + 1) if length % one == 0 for part in (one, length // one)}
    able = [part for part in divisors if SHORTEST <= part <= most and part < length]
    return min(able, key=lambda part: max(part / wanted, wanted / part), default=0)
