"""What sort of work an operator is, read off its index notation: the one classification, for prices and for colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from girih.ops.derive.divisions import is_elementwise, is_opaque
from girih.ops.expressions import Affine, Applied, Choice, Expression, Position, Read, Reduce, children, walk
from girih.ops.operator import Description

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


@lru_cache(maxsize=65536)
def kind_of(description: Description) -> str:
    """One of `KINDS`: Description objects are shared by nodes of equal shapes, so each is looked at once."""
    if description.operator.view:
        return VIEW
    expressions = list(walk(description.body))
    if any(_looks_up(item, description) for item in expressions):
        return LOOK_UP
    if is_opaque(description):
        return OPAQUE
    for item in expressions:
        if isinstance(item, Reduce) and item.reducer == "sum" and (contraction := _contraction(item)):
            return contraction
    if any(isinstance(item, Reduce) for item in expressions):
        return REDUCTION
    functions = {item.function for item in expressions if isinstance(item, Applied)}
    if functions - _ARITHMETIC:
        return FUNCTION
    if not any(isinstance(item, Read) for item in expressions):
        return CREATION
    return ELEMENTWISE if functions or (is_elementwise(description) and len(description.inputs) > 1) else COPY


def _looks_up(item: Expression, description: Description) -> bool:
    """Does it choose by whether a whole number in a tensor equals a position?"""
    if not isinstance(item, Choice):
        return False
    return any(hit_of(part, description) is not None for part in walk(item.condition))


def dtype_of_products(description: Description) -> str:
    """The dtype by which work is priced: that of a contraction's operands, for which devices have a rate each, and
    float32 for everything else."""
    return description.inputs[0].dtype if description.inputs and kind_of(description) in CONTRACTIONS else "float32"


@lru_cache(maxsize=65536)
def is_product(description: Description) -> bool:
    """Is it a matrix product, which kernels compute in blocks that all threads share: a sum of an element of one matrix
    times an element of another, and of nothing else?"""
    if kind_of(description) != MATMUL:
        return False
    root = description.root
    return root is not None and len(_factors(root.body)) == 2 and _contraction(root) == MATMUL


def _factors(body: Expression) -> list[Read]:
    """The tensor elements that are multiplied with each other."""
    if isinstance(body, Read):
        return [body]
    if isinstance(body, Applied) and body.function == "mul":
        return [read for child in children(body) for read in _factors(child)]
    return []


def hit_of(item: Expression, description: Description) -> tuple[int, Affine] | None:
    """(tensor, position) of a comparison of a tensor's whole number with a position."""
    if not isinstance(item, Applied) or item.function != "eq":
        return None
    reads = [part for side in item.arguments for part in walk(side) if isinstance(part, Read)]
    places = [side for side in item.arguments if isinstance(side, Position)]
    if len(reads) != 1 or len(places) != 1 or not description.inputs[reads[0].tensor].dtype.startswith(("int", "uint")):
        return None
    return reads[0].tensor, places[0].index


def _contraction(item: Reduce) -> str | None:
    """matmul or convolution: two tensors are multiplied and summed, and each element serves several results."""
    if not any(isinstance(part, Applied) and part.function == "mul" for part in walk(item.body)):
        return None
    reads = [part for part in walk(item.body) if isinstance(part, Read)]
    for one, two in combinations(reads, 2):
        first, second = variables_of(one.index), variables_of(two.index)
        summed = set(item.variables)
        if not first & second & summed or not (first - second) or not (second - first):
            continue
        windows = [index for index in (*one.index, *two.index) if index is not None and len(index.terms) > 1]
        slides = any(summed & variables_of((index,)) and variables_of((index,)) - summed for index in windows)
        return CONVOLUTION if slides else MATMUL
    return None


def variables_of(indices: Sequence[Affine | None]) -> set[int]:
    return {variable for index in indices if index is not None for variable, _ in index.terms}
