"""Users' functions along an axis → on a tile for each worker, then between the tiles.

    y = fold_whole(x, f)      →   parts = fold_tiles(x, f, size); y = fold_whole(parts, f)
    y = scan(x, f, combine)   →   tiles = reshape(x); inner = scan(tiles, f)
                                  y = reshape(carried(inner, carries(last of each tile, combine), combine))

Between tiles only what each of them comes to moves. Cost: linear in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from girih.graph import Graph, Node, Ref
from girih.rewrite.writer import Writer, rewritten


@dataclass(frozen=True)
class DivideTileFunctions:
    """Write folds and scans along an axis as those of tiles. workers: that compute it."""

    workers: int

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, {"girih.fold_whole": self._fold, "girih.scan": self._scan})

    def _fold(self, writer: Writer, node: Node) -> bool:
        arguments: dict[str, Any] = dict(node.arguments)
        x, y, axis = writer.values[arguments["input"].name], writer.values[node.outputs[0]], arguments["axis"]
        size = -(-x.shape[axis] // self.workers)
        folded = any(x.name in other.outputs for other in writer.nodes if other.operator == "girih.fold_tiles")
        if folded or size >= x.shape[axis]:
            return False
        count = -(-x.shape[axis] // size)
        tiles = writer.one("girih.fold_tiles", (count, *y.shape), y.dtype, **arguments, size=size)
        writer.one("girih.fold_whole", y.shape, y.dtype, y.name, **{**arguments, "input": Ref(tiles), "axis": 0})
        return True

    def _scan(self, writer: Writer, node: Node) -> bool:
        arguments: dict[str, Any] = dict(node.arguments)
        combine = arguments.pop("combine", None)
        x, y, axis = writer.values[arguments["input"].name], writer.values[node.outputs[0]], arguments["axis"]
        length = x.shape[axis]
        size = -(-length // self.workers)
        if combine is None or size >= length:  # of tiles already, or of one worker
            return False
        count = -(-length // size)
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        name = x.name
        if count * size != length:  # what comes behind does not change what is before it
            name = writer.pad(name, *(count * size - length if at == axis else 0 for at in range(len(x.shape))))
        tiles = writer.reshape(name, (*before, count, size, *behind))
        shape = writer.values[tiles].shape
        inner = writer.one("girih.scan", shape, y.dtype, **{**arguments, "input": Ref(tiles), "axis": axis + 1})
        last = writer.reshape(writer.part(inner, axis + 1, size - 1, size), (*before, count, *behind))
        joint: dict[str, Any] = {"function": combine, "axis": axis}
        carries = writer.one("girih.carries", (*before, count, *behind), y.dtype, input=Ref(last), **joint)
        carried = writer.one("girih.carried", shape, y.dtype, input=Ref(inner), carries=Ref(carries), **joint)
        exact = count * size == length
        whole = writer.reshape(carried, (*before, count * size, *behind), y.name if exact else "")
        if not exact:
            writer.part(whole, axis, 0, length, y.name)
        return True
