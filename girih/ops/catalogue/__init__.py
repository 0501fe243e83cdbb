"""Every operator that is described, collected from the pages of this folder."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from girih.ops.catalogue import normalisation, pooling, random, reductions, tile_functions
from girih.ops.catalogue.contractions import convolution, groups, linear_algebra, paths, sparse
from girih.ops.catalogue.moves import creation, labels, lookup, reshape, shape, sorting
from girih.ops.catalogue.pointwise import (
    activations,
    comparison,
    complex_numbers,
    transcendental,
)
from girih.ops.catalogue.pointwise import (
    arithmetic as pointwise,
)
from girih.ops.operator import Operator

PAGES: tuple[ModuleType, ...] = (
    pointwise,
    comparison,
    transcendental,
    complex_numbers,
    activations,
    linear_algebra,
    convolution,
    pooling,
    reductions,
    reshape,
    normalisation,
    paths,
    groups,
    lookup,
    labels,
    shape,
    creation,
    random,
    sorting,
    sparse,
    tile_functions,
)


@cache
def catalogue() -> dict[str, Operator]:
    """Operators by name; a name described twice is an error in the pages."""
    found: dict[str, Operator] = {}
    for page in PAGES:
        for item in vars(page).values():
            for described in item if isinstance(item, tuple) else ():
                if not isinstance(described, Operator):
                    continue
                if found.get(described.name, described) is not described:
                    raise ValueError(f"{described.name} is described twice; the second time in {page.__name__}")
                found[described.name] = described
    return found
