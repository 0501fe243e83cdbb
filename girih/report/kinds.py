"""What sort of work a node is, read off its description: for colours and totals."""

from __future__ import annotations

from functools import lru_cache

from girih.graph import Graph, Node
from girih.ops import Description, first_description
from girih.ops.derive.divisions import is_elementwise, is_opaque
from girih.ops.language import Affine, Call, Choice, Expression, Read, Reduce, children, walk

CONVOLUTION = "convolution"
PRODUCT = "matrix product"
REDUCTION = "reduction"
ELEMENTWISE = "element-wise"
MOVEMENT = "data movement"
OPAQUE = "opaque function"
UNDESCRIBED = "not described"

KINDS = (PRODUCT, CONVOLUTION, REDUCTION, ELEMENTWISE, MOVEMENT, OPAQUE, UNDESCRIBED)


def kind_of(graph: Graph, node: Node) -> str:
    """One of `KINDS`."""
    description = first_description(graph, node)
    return UNDESCRIBED if description is None else _kind(description)


@lru_cache(maxsize=16384)
def _kind(description: Description) -> str:
    for expression in walk(description.body):
        if isinstance(expression, Reduce) and expression.reducer == "sum":
            factors = _factors(expression.body)
            if _contracts(factors):
                window = any(_merges(index) for factor in factors for index in factor.index)
                return CONVOLUTION if window else PRODUCT
    if is_opaque(description):
        return OPAQUE
    if any(isinstance(expression, Reduce) for expression in walk(description.body)):
        return REDUCTION
    computes = any(isinstance(expression, Call | Choice) for expression in walk(description.body))
    return ELEMENTWISE if computes and not description.operator.view and is_elementwise(description) else MOVEMENT


def _factors(body: Expression) -> list[Read]:
    """The tensor elements that are multiplied with each other."""
    if isinstance(body, Read):
        return [body]
    if isinstance(body, Call) and body.function == "mul":
        return [read for child in children(body) for read in _factors(child)]
    return []


def _contracts(factors: list[Read]) -> bool:
    """Two tensors, each walked by an index variable that the other is not: an outer product, summed."""
    if len(factors) != 2:
        return False
    first, second = ({variable for index in item.index for variable in _variables(index)} for item in factors)
    return bool(first - second) and bool(second - first)


def _variables(index: Affine | None) -> tuple[int, ...]:
    return () if index is None else tuple(variable for variable, _ in index.terms)


def _merges(index: Affine | None) -> bool:
    return index is not None and len(index.terms) > 1
