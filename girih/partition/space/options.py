"""All the ways in which a node may be divided and a value may lie, and where each way puts its pieces.

The space of the search (Tofu §4.2 and §5, without the restriction to recursive plans): each mesh axis divides any
index variable of the node, an output's or a reduction's, several axes may divide one; or repeats the work; or lets
partial sums pass where the operator is linear, and partial maxima and minima where it keeps their order. `Rules` narrow
the space: Tofu's rule for counting bytes (all work is divided over all workers and every stored tensor is held once,
except what is too small to divide), or what a baseline knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.graph import Value
from girih.layout import (
    PARTIAL,
    PARTIAL_BY,
    REPLICATE,
    Layout,
    Mesh,
    Placements,
    Sharding,
    among,
    bounds,
    kind_of,
    mark_of,
    taking_part,
)
from girih.layout.mesh import Shares
from girih.ops import Description
from girih.ops.derive.arithmetic import operations_per_point
from girih.ops.derive.divisions import (
    clipped_regions,
    divisible,
    exact_box,
    executable,
    merged,
    passing_sets,
    placed_regions,
    spans_of,
)
from girih.ops.derive.kinds import dtype_of_products
from girih.ops.derive.passing import Passage, passages, passages_of_sums
from girih.ops.expressions import Affine
from girih.partition.strategy import PASS, REPEAT


@dataclass(frozen=True)
class Rules:
    """What the search may choose.

    repeat: nodes may repeat work and values may be held in copies. partial: values may stay partial sums, and what
    follows from a maximum or a minimum may stay partial (`girih.partition.space.extremes`).
    small: up to so many elements a value may be copied and a node repeated whatever `repeat` says.
    reductions: nodes may be divided along reduced index variables. one_dimension: all axes divide the same one.
    places: nodes and values may be placed on one coordinate of an axis (of at most MOST_PLACES), FlexFlow's operator
    dimension. shared: what several readers fetch may be brought once to a second layout, by `bytes`
    (`girih.partition.space.fetches`). keeps: what is whole or split may become partial sums, for nothing. even: parts
    of one tensor, and of one node's work, are of one length, and one axis alone cuts a dimension.
    """

    repeat: bool = False
    partial: bool = False
    small: int = 0
    reductions: bool = True
    one_dimension: bool = False
    places: bool = False
    shared: bool = False
    keeps: bool = True
    even: bool = False


MOST_PLACES = 8
TOFU = Rules()
APART = Rules(partial=True)
WHOLE = Rules(partial=True, shared=True)
SECONDS = Rules(repeat=True, partial=True)
EVEN = Rules(partial=True, even=True)
EVEN_SECONDS = Rules(repeat=True, partial=True, even=True)
"""What DTensor can say, by `bytes` and by `seconds`."""
SOAP = Rules(repeat=True, partial=True, places=True)
CHAINS = Rules(repeat=True, partial=True, places=True, keeps=False)
"""For Markov chains: they take a way that is free, and stay there, before they try another place."""


@dataclass(frozen=True, eq=False)
class NodeOptions:
    """The divisions of a node [count, axes], and for each where its pieces read and write.

    needs: for each tensor input the placements that it must have; makes: the placements of each output.
    points: the largest piece of the index space, and bytes: the most that a device reads and writes, [count].
    """

    divisions: NDArray[np.int64]
    needs: tuple[Placements, ...]
    makes: tuple[Placements, ...]
    points: NDArray[np.float64]
    bytes: NDArray[np.float64]
    operations: float
    reducer: str | None
    dtype: str = "float32"  # that it multiplies


@lru_cache(maxsize=4096)
def _combinations(choices: tuple[int, ...], mesh: Mesh, rules: Rules) -> NDArray[np.int64]:
    """All assignments of choices to axes; one coordinate alone is a choice too, where the rules allow it."""
    if rules.one_dimension and mesh.axes:
        return np.asarray([[choice] * mesh.axes for choice in choices], np.int64)
    each = [
        [*choices, *(among(REPEAT, (at,)) for at in range(size) if rules.places and 1 < size <= MOST_PLACES)]
        for size in mesh.sizes
    ]
    codes = list(product(*each))
    return np.asarray(codes, np.int64).reshape(len(codes), mesh.axes)


def _parts(codes: NDArray[np.int64], dimensions: int, mesh: Mesh) -> NDArray[np.int64]:
    """Into how many parts each assignment cuts each dimension: [assignments, dimensions]."""
    parts = np.ones((len(codes), dimensions), np.int64)
    for axis, size in enumerate(mesh.sizes):
        parts *= np.where(codes[:, axis, None] == np.arange(dimensions), size, 1)
    return parts


def _narrow(codes: NDArray[np.int64], copies: NDArray[np.bool_], small: bool, repeat: bool) -> NDArray[np.int64]:
    """Without `repeat`, keep what copies as little as can be without partial sums, and those that copy no more."""
    if repeat or small or not len(codes):
        return codes
    count, sums = copies.sum(axis=1), (codes <= PARTIAL).any(axis=1)
    least = (count if sums.all() else count[~sums]).min()
    kept: NDArray[np.int64] = codes[np.where(sums, count <= least, count == least)]
    return kept


@lru_cache(maxsize=65536)
def value_layouts(
    shape: tuple[int, ...], floating: bool, mesh: Mesh, rules: Rules, extremes: tuple[str, ...] = ()
) -> tuple[Layout, ...]:
    """The layouts that a value may have, in a fixed order. extremes: the reducers, besides sums of floating-point
    numbers, of which it may be partial results: of one on all axes."""
    reducers = (*(("sum",) if floating else ()), *extremes) if rules.partial else ()
    partial = [PARTIAL_BY[name] for name in reducers]
    codes = _combinations((*range(len(shape)), REPLICATE, *partial), mesh, rules)
    if len(partial) > 1:
        codes = codes[_of_one_kind(codes)]
    parts, extents = _parts(codes, len(shape), mesh), np.maximum(np.asarray(shape, np.int64), 1)
    fits = (parts <= extents).all(axis=1) & _divides(codes, parts, extents, rules)
    codes = codes[fits]
    codes = _narrow(codes, codes == REPLICATE, prod(shape) <= rules.small, rules.repeat)
    return tuple(map(tuple, codes.tolist()))


def layouts_of(
    value: Value, mesh: Mesh, rules: Rules, stored: bool, extremes: tuple[str, ...] = ()
) -> tuple[Layout, ...]:
    """The layouts of a value; what lives from step to step (`stored`) is never a partial result."""
    floating = value.dtype.startswith(("float", "bfloat")) and not stored
    return value_layouts(value.shape, floating, mesh, rules, () if stored else extremes)


def whole_options(inputs: tuple[Value, ...], outputs: tuple[Value, ...], mesh: Mesh) -> NodeOptions:
    """The one option of an operator that nobody has described: every device computes it whole."""

    def whole(value: Value) -> Placements:
        return Placements.of([(REPLICATE,) * mesh.axes], value.shape, mesh)

    traffic = sum(value.bytes for value in (*inputs, *outputs))
    return NodeOptions(
        np.full((1, mesh.axes), REPEAT, np.int64),
        tuple(map(whole, inputs)),
        tuple(map(whole, outputs)),
        np.asarray([float(max((value.elements for value in outputs), default=0))]),
        np.asarray([float(traffic)]),
        1,
        None,
    )


@lru_cache(maxsize=16384)
def node_options(
    description: Description, item_bytes: tuple[int, ...], mesh: Mesh, rules: Rules, passed: tuple[int, ...] = ()
) -> NodeOptions:
    """Every admissible division of a described node.

    item_bytes: of each input and, last, the output. passed: the `passages` of maxima and minima that are tried.
    """
    codes = division_codes(description, mesh, rules, passed)
    return placed(description, codes, item_bytes, mesh)


@lru_cache(maxsize=4096)
def several_options(
    descriptions: tuple[Description, ...], item_bytes: tuple[int, ...], mesh: Mesh, rules: Rules
) -> NodeOptions:
    """Every division of a node with several described results that is one of each of them.

    item_bytes: of each input, then of each output.
    """
    rules = replace(rules, partial=False)
    every = [_admissible(description, mesh, rules) for description in descriptions]
    common = set.intersection(*(set(map(tuple, codes.tolist())) for codes in every))
    rows = [row for row in every[0].tolist() if tuple(row) in common]
    codes = np.asarray(rows, np.int64).reshape(len(rows), mesh.axes)
    small = all(prod(description.sizes) <= rules.small for description in descriptions)
    codes = _narrow(codes, codes == REPEAT, small, rules.repeat)
    return several_placed(descriptions, codes, item_bytes, mesh)


def several_placed(
    descriptions: tuple[Description, ...],
    codes: NDArray[np.int64],
    item_bytes: tuple[int, ...],
    mesh: Mesh,
    shares: Shares = (),
) -> NodeOptions:
    """Where given divisions put the pieces of a node with several results: all read the same."""
    count = len(item_bytes) - len(descriptions)
    each = [
        placed(description, codes, (*item_bytes[:count], item_bytes[count + result]), mesh, shares)
        for result, description in enumerate(descriptions)
    ]
    return replace(
        each[0],
        makes=tuple(options.makes[0] for options in each),
        points=np.maximum.reduce([options.points for options in each]),
        bytes=np.maximum.reduce([options.bytes for options in each]),
    )


def divisions_along(description: Description, variables: Collection[int], mesh: Mesh) -> NDArray[np.int64]:
    """[count, axes]: the divisions in which every axis cuts one of these index variables."""
    able = [number for number in _dividable(description, partial=False) if number in variables]
    choices = tuple(number for number in able if description.sizes[number] > 1)
    if len(choices) == 1 and not merged(description):  # only how far it can be cut matters
        enough = description.sizes[choices[0]] >= mesh.devices
        return np.full((int(enough), mesh.axes), choices[0], np.int64)
    return _executable(description, _combinations(choices, mesh, Rules()), mesh)


def division_codes(
    description: Description, mesh: Mesh, rules: Rules, passed: tuple[int, ...] = ()
) -> NDArray[np.int64]:
    """[count, axes]: the divisions that the rules allow and whose pieces are boxes, none of them empty. passed: the
    `passages` of maxima and minima that are tried."""
    codes = _admissible(description, mesh, rules, passed)
    return _narrow(codes, codes == REPEAT, prod(description.sizes) <= rules.small, rules.repeat)


def joined_codes(
    description: Description, outer: NDArray[np.int64], inner: NDArray[np.int64], mesh: Mesh
) -> NDArray[np.int64]:
    """[count, axes]: each division by the mesh's first axes with each by its others, as far as pieces are boxes."""
    codes = np.concatenate([np.repeat(outer, len(inner), axis=0), np.tile(inner, (len(outer), 1))], axis=1)
    return _executable(description, codes, mesh)


def _admissible(description: Description, mesh: Mesh, rules: Rules, passed: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """`division_codes`, those that repeat more work than they must included."""
    root = set(description.root.variables) if description.root is not None else set()
    able = [
        number
        for number in _dividable(description, rules.partial)
        if description.sizes[number] > 1 and (rules.reductions or number not in root)
    ]
    choices = [*able, REPEAT]
    if rules.partial:
        choices += [PASS - number for number in (*range(len(passing_sets(description))), *passed)]
    codes = _combinations(tuple(choices), mesh, rules)
    other = [PASS - number for number in passed if passages(description)[number].makes != description.reducer]
    if root and other:  # a piece makes terms of one reducer
        codes = codes[~(_among(codes, sorted(root)).any(axis=1) & _among(codes, other).any(axis=1))]
    even = _divides(codes, _parts(codes, description.rank, mesh), np.asarray(description.sizes, np.int64), rules)
    return _executable(description, codes[even], mesh)


def _divides(
    codes: NDArray[np.int64], parts: NDArray[np.int64], extents: NDArray[np.int64], rules: Rules
) -> NDArray[np.bool_]:
    """[assignments]: are all parts of one length, and cut by one axis each, where the rules ask for that?"""
    if not rules.even:
        return np.ones(len(parts), np.bool_)
    cuts = (codes[:, :, None] == np.arange(parts.shape[1])).sum(axis=1)
    divides: NDArray[np.bool_] = ((extents % parts == 0) & (cuts <= 1)).all(axis=1)
    return divides


def _dividable(description: Description, partial: bool) -> list[int]:
    """The index variables that may be divided. partial: also those for which an input must lie as partial sums."""
    able = [number for number, yes in enumerate(divisible(description)) if yes]
    if description.root is None or partial or not description.alongside:
        return able
    return [number for number in able if number not in description.root.variables]


def _executable(description: Description, codes: NDArray[np.int64], mesh: Mesh) -> NDArray[np.int64]:
    """Those divisions whose pieces the operator itself computes, none of them empty."""
    fits = (_parts(codes, description.rank, mesh) <= np.maximum(np.asarray(description.sizes, np.int64), 1)).all(axis=1)
    # Partial results pass through one set of inputs only: through two, a bilinear operator would mix their terms.
    codes = codes[fits & _of_one_kind(codes)]
    if not merged(description):
        return codes
    starts, stops = bounds(codes, description.sizes, mesh)
    exact = executable(description, starts, stops) | (stops <= starts).any(axis=-1)
    return codes[exact.all(axis=1) & _box_at_every_level(description, codes, mesh)]


def _box_at_every_level(description: Description, codes: NDArray[np.int64], mesh: Mesh) -> NDArray[np.bool_]:
    """Do the devices of one host, of one rack, … together make a box? Transfers are priced by what groups hold.

    Where a merged index has its inner variable cut by an outer axis and its outer variable by an inner axis, each
    piece is one run of the output, but a host holds two runs apart.
    """
    good = np.ones(len(codes), np.bool_)
    if all(len(index.terms) < 2 for index in description.place):
        return good
    for depth in range(1, mesh.axes):
        outer = codes.copy()
        outer[:, depth:] = REPEAT
        starts, stops = bounds(outer, description.sizes, mesh)
        good &= (exact_box(description.place, starts, stops) | (stops <= starts).any(axis=-1)).all(axis=1)
    return good


def _of_one_kind(codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[assignments]: are the codes of partial results all the same?"""
    lowest = np.where(codes <= PASS, codes, 0).min(axis=1, initial=0)
    highest = np.where(codes <= PASS, codes, -(2**31)).max(axis=1, initial=-(2**31))
    good: NDArray[np.bool_] = (lowest == 0) | (lowest == highest)
    return good


def placed(
    description: Description, codes: NDArray[np.int64], item_bytes: tuple[int, ...], mesh: Mesh, shares: Shares = ()
) -> NodeOptions:
    """Where given divisions put their pieces. shares: what each axis states, the same in all divisions."""
    starts, stops = bounds(codes, description.sizes, mesh, shares)
    spans = spans_of(starts, stops)
    root = list(description.root.variables) if description.root is not None else []
    kinds = kind_of(codes)
    passing = _passing(description, PASS - int(kinds.min(initial=0)))
    whole = not shares and bool((kinds == codes).all())  # no device is left out
    terms = np.asarray(mesh.sizes, np.int64) if whole else _terms(codes, mesh)
    absent = None if whole else (stops <= starts).any(axis=-1) | ~taking_part(codes, mesh)
    summed = _among(kinds, root)
    unknown = kinds <= PASS - len(passing)  # a plan's own number, of which the law will say that nothing passes there
    makes_partial = np.where(summed, terms + mark_of(description.reducer or "sum"), np.where(unknown, terms, 0))
    for number, passage in enumerate(passing):
        makes_partial += np.where(kinds == PASS - number, terms + mark_of(passage.makes), 0)
    needs = []
    traffic = np.zeros(starts.shape[:2])
    known: dict[object, tuple[Placements, NDArray[np.int64]]] = {}  # most operators read several tensors alike
    for tensor, item in enumerate(item_bytes[:-1]):
        passed = tuple([number for number, passage in enumerate(passing) if tensor in passage.inputs])
        reads = description.reads[tensor]
        beside = tensor in description.alongside
        alike = (reads, description.inputs[tensor].shape, passed, beside)
        if alike not in known:
            regions = _scalar_too(clipped_regions(description, tensor, spans))
            if absent is not None:
                regions[absent] = 0
            partial = np.where(summed, terms, 0) if beside else np.zeros(codes.shape, np.int64)
            for number in passed:
                partial += np.where(kinds == PASS - number, terms + mark_of(passing[number].takes), 0)
            keys = _keys(codes, (index for indices in reads for index in indices), partial)
            amount = (regions[..., 1] - regions[..., 0]).prod(axis=-1)
            known[alike] = Placements(regions, partial, keys=keys), amount
        need, amount = known[alike]
        needs.append(need)
        traffic += amount * item
    places = _scalar_too(placed_regions(description, spans))
    if absent is not None:
        places[absent] = 0
    traffic += (places[..., 1] - places[..., 0]).prod(axis=-1) * item_bytes[-1]
    points = (stops - starts).prod(axis=-1, dtype=np.float64).max(axis=1)  # whole numbers of 64 bits are too small
    return NodeOptions(
        codes,
        tuple(needs),
        (Placements(places, makes_partial, keys=_keys(codes, description.place, makes_partial)),),
        points,
        traffic.max(axis=1) if not description.operator.view else np.zeros(len(codes)),
        0 if description.operator.view else operations_per_point(description),
        description.reducer if root else None,
        dtype_of_products(description),
    )


def _passing(description: Description, last: int) -> tuple[Passage, ...]:
    """The passages up to the one with this number, at least. Those of sums are found sooner."""
    sums = passages_of_sums(description) if last >= 0 else ()
    return sums if last < len(sums) else passages(description)


def _scalar_too(regions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Regions of a scalar, which have no dimension, as the one element that `girih.layout` has for it."""
    if regions.shape[-2]:
        return regions
    return np.broadcast_to(np.asarray([[0, 1]], np.int64), (*regions.shape[:-2], 1, 2)).copy()


def _among(kinds: NDArray[np.int64], some: list[int]) -> NDArray[np.bool_]:
    """Which codes are some index variables? (`np.isin` takes longer to begin than this to end.)"""
    chosen: NDArray[np.bool_] = (kinds[..., None] == np.asarray(some, np.int64)).any(axis=-1)
    return chosen


def _terms(codes: NDArray[np.int64], mesh: Mesh) -> NDArray[np.int64]:
    """How many coordinates of each axis take part: [count, axes]."""
    bits = (codes - kind_of(codes)) // (among(0, (0,)))
    sizes = np.broadcast_to(np.asarray(mesh.sizes, np.int64), codes.shape)
    return np.where(bits > 0, np.bitwise_count(bits), sizes).astype(np.int64)


def _keys(
    codes: NDArray[np.int64], indices: Iterable[Affine | None], partial: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """[count, axes]: equal where the pieces of a tensor, read or written at these positions, are the same."""
    if len(codes) == 1:
        return None
    variables = {variable for index in indices if index is not None for variable, _ in index.terms}
    kinds = kind_of(codes)
    used = np.where(partial > 0, PASS, np.where(_among(kinds, sorted(variables)), kinds, REPEAT))
    return codes - kinds + used


@lru_cache(maxsize=65536)
def placed_at(
    description: Description, codes: tuple[tuple[int, ...], ...], item_bytes: tuple[int, ...], mesh: Mesh
) -> NodeOptions:
    """`placed`, remembered: repeated layers are divided alike."""
    return placed(description, np.asarray(codes, np.int64).reshape(len(codes), mesh.axes), item_bytes, mesh)


def options_at(
    descriptions: tuple[Description, ...], codes: tuple[tuple[int, ...], ...], item_bytes: tuple[int, ...], mesh: Mesh
) -> NodeOptions:
    """Where given divisions put the pieces of a node, whose results are described one by one."""
    if len(descriptions) == 1:
        return placed_at(descriptions[0], codes, item_bytes, mesh)
    return _several_placed_at(descriptions, codes, item_bytes, mesh)


@lru_cache(maxsize=65536)
def options_under(
    descriptions: tuple[Description, ...], division: Sharding, item_bytes: tuple[int, ...], mesh: Mesh
) -> NodeOptions:
    """Where one division of a strategy puts the pieces of a node, whose results are described one by one."""
    if not division.shares:
        return options_at(descriptions, (division.codes,), item_bytes, mesh)
    codes = np.asarray([division.codes], np.int64)
    return several_placed(descriptions, codes, item_bytes, mesh, division.shares)


@lru_cache(maxsize=4096)
def _several_placed_at(
    descriptions: tuple[Description, ...], codes: tuple[tuple[int, ...], ...], item_bytes: tuple[int, ...], mesh: Mesh
) -> NodeOptions:
    return several_placed(descriptions, np.asarray(codes, np.int64).reshape(len(codes), mesh.axes), item_bytes, mesh)
