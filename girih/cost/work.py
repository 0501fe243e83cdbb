"""What a call has to do: its kind, arithmetic operations and bytes, derived from its description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod

from girih.graph.graph import ITEM_BYTES
from girih.graph.identity import Same
from girih.ops import Description
from girih.ops.derive.divisions import groups_of, is_elementwise, is_opaque, operations_per_point
from girih.ops.language import Affine, Call, Choice, Expression, Position, Read, Reduce, walk

MATMUL, CONVOLUTION, ELEMENTWISE, FUNCTION = "matmul", "convolution", "element-wise", "function"
REDUCTION, COPY, VIEW, LOOK_UP, CREATION, OPAQUE = "reduction", "copy", "view", "look-up", "creation", "opaque"

KINDS = (MATMUL, CONVOLUTION, ELEMENTWISE, FUNCTION, REDUCTION, COPY, VIEW, LOOK_UP, CREATION, OPAQUE)
"""matmul, convolution: sums of products in which elements are used again. function: element-wise with other than
arithmetic (exp, erf, random numbers). copy: elements only move. view: nothing moves. look-up: found by number."""

CONTRACTIONS = (MATMUL, CONVOLUTION)

_ARITHMETIC = frozenset({
    "add", "sub", "mul", "div", "neg", "abs", "max", "min", "sign", "sqrt", "rsqrt", "reciprocal",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not",
})  # fmt: skip
"""What vector units have an instruction for."""


@dataclass(frozen=True)
class Work:
    """Of one call on one device. operations: arithmetic, an estimate for opaque functions. bytes: read and written."""

    kind: str
    operator: str
    operations: float
    bytes: float


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
    if kind == LOOK_UP:  # nothing is compared with every row
        return Work(kind, operator, 0.0, sum(_looked_up(description, extents, inputs)) + output)
    points = prod(extents) / groups_of(description)
    return Work(kind, operator, points * operations_of(description), sum(inputs) + output)


def _looked_up(description: Description, extents: Sequence[int], inputs: Sequence[float]) -> list[float]:
    """Bytes that are read of each input: of a table what is found, one row for each number; of all else everything."""
    tables, compared = _tables(Same(description))
    found = prod(extent for variable, extent in enumerate(extents) if variable not in compared)
    kinds = description.inputs
    return [
        min(size, float(found * ITEM_BYTES[kinds[number].dtype])) if number in tables else size
        for number, size in enumerate(inputs)
    ]


@lru_cache(maxsize=65536)
def _facts(same: Same[Description]) -> tuple[str, int]:
    return _kind(same.item), operations_per_point(same.item)


@lru_cache(maxsize=65536)
def _tables(same: Same[Description]) -> tuple[frozenset[int], frozenset[int]]:
    """The tensors of which only what is found is read, and the index variables that are compared with numbers.

    A variable that is compared and summed goes through a table, of which one row is found. A compared variable of the
    result says where something goes: what goes there is read from the first element to the last.
    """
    description = same.item
    hits = [hit for item in walk(description.body) if (hit := _hit(item, description)) is not None]
    compared = frozenset(variable for _, index in hits for variable, _ in index.terms)
    summed = compared - _variables(description.place)
    reads = (item for item in walk(description.body) if isinstance(item, Read))
    return frozenset(item.tensor for item in reads if not summed.isdisjoint(_variables(item.index))), compared


def kind_of(description: Description) -> str:
    return _facts(Same(description))[0]


def operations_of(description: Description) -> int:
    """Arithmetic operations for each point of the index space."""
    return _facts(Same(description))[1]


def _kind(description: Description) -> str:
    if description.operator.view:
        return VIEW
    expressions = list(walk(description.body))
    if any(_looks_up(item, description) for item in expressions):
        return LOOK_UP
    if is_opaque(description):
        return OPAQUE
    for item in expressions:
        if isinstance(item, Reduce) and item.reducer == "sum" and (found := _contraction(item)):
            return found
    if any(isinstance(item, Reduce) for item in expressions):
        return REDUCTION
    functions = {item.function for item in expressions if isinstance(item, Call)}
    if functions - _ARITHMETIC:
        return FUNCTION
    if not any(isinstance(item, Read) for item in expressions):
        return CREATION
    return ELEMENTWISE if functions or (is_elementwise(description) and len(description.inputs) > 1) else COPY


def _looks_up(item: Expression, description: Description) -> bool:
    """Does it choose by whether a whole number in a tensor equals a position?"""
    if not isinstance(item, Choice):
        return False
    return any(_hit(part, description) is not None for part in walk(item.condition))


def _hit(item: Expression, description: Description) -> tuple[int, Affine] | None:
    """(tensor, position) of a comparison of a tensor's whole number with a position."""
    if not isinstance(item, Call) or item.function != "eq":
        return None
    reads = [part for side in item.arguments for part in walk(side) if isinstance(part, Read)]
    places = [side for side in item.arguments if isinstance(side, Position)]
    if len(reads) != 1 or len(places) != 1 or not description.inputs[reads[0].tensor].dtype.startswith(("int", "uint")):
        return None
    return reads[0].tensor, places[0].index


def index_ranges(description: Description) -> dict[int, int]:
    """By number, the tensors of whole numbers that are compared with positions: one more than the largest position."""
    found: dict[int, int] = {}
    for item in walk(description.body):
        hit = _hit(item, description)
        if hit is not None:
            tensor, index = hit
            largest = sum(max(0, factor * (description.sizes[variable] - 1)) for variable, factor in index.terms)
            count = largest + index.constant + 1
            found[tensor] = min(count, found.get(tensor, count))
    return found


def _contraction(item: Reduce) -> str | None:
    """matmul or convolution: two tensors are multiplied and summed, and each element serves several results."""
    if not any(isinstance(part, Call) and part.function == "mul" for part in walk(item.body)):
        return None
    reads = [part for part in walk(item.body) if isinstance(part, Read)]
    for one, two in combinations(reads, 2):
        first, second = _variables(one.index), _variables(two.index)
        summed = set(item.variables)
        if not first & second & summed or not (first - second) or not (second - first):
            continue
        windows = [index for index in (*one.index, *two.index) if index is not None and len(index.terms) > 1]
        slides = any(summed & _variables((index,)) and _variables((index,)) - summed for index in windows)
        return CONVOLUTION if slides else MATMUL
    return None


def _variables(indices: Sequence[Affine | None]) -> set[int]:
    return {variable for index in indices if index is not None for variable, _ in index.terms}
