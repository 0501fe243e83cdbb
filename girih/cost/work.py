"""What a call has to do: its kind, arithmetic operations and bytes, derived from its description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from girih.graph.graph import ITEM_BYTES, Same
from girih.ops import Description
from girih.ops.derive.arithmetic import compared_of, group_bounds, groups_of, operations_per_point
from girih.ops.derive.kinds import COPY, LOOK_UP, VIEW, dtype_of_products, hit_of, kind_of, variables_of
from girih.ops.language import Read, walk


@dataclass(frozen=True)
class Work:
    """What one call on one device does. operations: arithmetic, an estimate for opaque functions. bytes: read and
    written. dtype: of the numbers that it multiplies (`dtype_of_products`)."""

    kind: str
    operator: str
    operations: float
    bytes: float
    dtype: str = "float32"


def work_of(
    description: Description, extents: Sequence[int], inputs: Sequence[float], output: float, moves: bool = True
) -> Work:
    """The work of a piece.

    extents: of the piece in each index variable. inputs, output: bytes of the regions that it reads and writes.
    moves: False if the operator is a view and can be one here.
    """
    kind, operator = kind_of(description), description.operator.name
    if kind == VIEW:
        return Work(COPY, operator, 0.0, sum(inputs) + output) if moves else Work(VIEW, operator, 0.0, 0.0)
    if kind == LOOK_UP and groups_of(description):  # the edges of a graph: each belongs to one row, and reads one
        operations = prod(extents) * operations_per_point(description)
        return Work(kind, operator, operations, sum(_read_by_edges(description, extents, inputs)) + output)
    if kind == LOOK_UP:  # nothing is compared with every row
        return Work(kind, operator, 0.0, sum(_looked_up(description, extents, inputs)) + output)
    operations = prod(extents) * operations_per_point(description)
    return Work(kind, operator, operations, sum(inputs) + output, dtype_of_products(description))


def _looked_up(description: Description, extents: Sequence[int], inputs: Sequence[float]) -> list[float]:
    """Bytes that are read of each input: of a table what is found, one row for each number; of all else everything."""
    tables, compared = _tables(Same(description))
    count = prod(extent for variable, extent in enumerate(extents) if variable not in compared)
    kinds = description.inputs
    return [
        min(size, float(count * ITEM_BYTES[kinds[number].dtype])) if number in tables else size
        for number, size in enumerate(inputs)
    ]


def _read_by_edges(description: Description, extents: Sequence[int], inputs: Sequence[float]) -> list[float]:
    """Bytes that are read of each input where edges belong to the groups of a range: of what is looked up, a row for
    each edge, however often; of what edges have, the edges that are here; of all else everything.

    A piece of the groups, or of the rows that are looked up, is taken to have its share of the edges: how many there
    are in truth is in the tensors.
    """
    groups, compared = groups_of(description), compared_of(description)
    here, found = (
        prod([extents[v] / max(description.sizes[v], 1) for v in some]) for some in (groups, groups | compared)
    )
    edges: dict[int, set[int]] = {}  # of the sum in which a variable is compared: several sums have edges of their own
    for item in walk(description.body):
        if (hit := hit_of(item, description)) is not None:
            found_at = {v for part in walk(item) if isinstance(part, Read) for v in variables_of(part.index)}
            for variable in variables_of((hit[1],)):
                edges.setdefault(variable, set()).update(found_at)
    read = []
    for number, (kind, size) in enumerate(zip(description.inputs, inputs, strict=True)):
        of_reads = [variables_of(index) for index in description.reads[number]]
        counts = []
        for variables in of_reads:
            if variables & compared:
                of_edges = set().union(*(edges[variable] for variable in variables & compared))
                counts.append(prod(extents[v] for v in (variables - compared - groups) | of_edges))
        if counts:
            size = found * max(counts) * ITEM_BYTES[kind.dtype]
        elif any(variables & set().union(*edges.values()) for variables in of_reads):
            size *= here
        read.append(float(size))
    return read


@lru_cache(maxsize=65536)
def _tables(same: Same[Description]) -> tuple[frozenset[int], frozenset[int]]:
    """The tensors of which only what is found is read, and the index variables that are compared with numbers.

    A variable that is compared and summed goes through a table, of which one row is found. A compared variable of the
    result says where something goes: what goes there is read from the first element to the last.
    """
    description = same.item
    compared = compared_of(description)
    summed = compared - variables_of(description.place)
    reads = (item for item in walk(description.body) if isinstance(item, Read))
    return frozenset(item.tensor for item in reads if not summed.isdisjoint(variables_of(item.index))), compared


def index_ranges(description: Description) -> dict[int, int]:
    """By number, the tensors of whole numbers that are compared with positions: one more than the largest position."""
    ranges: dict[int, int] = {}
    for item in walk(description.body):
        hit = hit_of(item, description)
        if hit is not None:
            tensor, index = hit
            largest = sum(max(0, factor * (description.sizes[variable] - 1)) for variable, factor in index.terms)
            count = largest + index.constant + 1
            ranges[tensor] = min(count, ranges.get(tensor, count))
    return ranges


def bounds_of_edges(description: Description, extents: Sequence[int]) -> dict[int, int]:
    """By number, the tensors that ascend because they say which edges belong to which row of a graph: one more than the
    edges that a piece of such extents is taken to have (`_read_by_edges`)."""
    bounds: dict[int, int] = {}
    if kind_of(description) == LOOK_UP:
        hits = [hit_of(item, description) for item in walk(description.body)]
        edges = max((description.inputs[hit[0]].shape[0] for hit in hits if hit is not None), default=0)
        for tensor, group in group_bounds(description):
            bounds[tensor] = 1 + edges * extents[group] // max(description.sizes[group], 1)
    return bounds
