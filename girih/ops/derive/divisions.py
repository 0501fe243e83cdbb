"""What follows from a description alone: how an operator divides, and what its pieces read.

Tofu §4.2. An affine index is its own symbolic interval: over index ranges [start, stop) its extremes are taken
where each coefficient's sign says, so the region that a piece reads is one matrix expression in the bounds of the
index variables, for any number of pieces at once and for any (also uneven) division. Beyond Tofu we derive which
inputs an operator is linear in (a partial sum may pass through it unreduced), and whether a piece of a reshape is
itself a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from girih.ops.derive.linearity import ZERO, degree, is_floating
from girih.ops.expressions import (
    Affine,
    Applied,
    OpaqueRead,
    Piecewise,
    Read,
    Reduce,
    walk,
)
from girih.ops.operator import Description

Bounds = NDArray[np.int64]  # [..., index variables]
Regions = NDArray[np.int64]  # [..., dimensions, 2]: start and stop
Box = tuple[tuple[int, int], ...]  # (start, stop) of each dimension


def is_elementwise(description: Description) -> bool:
    """Every input is read exactly at the output's position (broadcasting allowed), and nothing is reduced."""
    if description.root is not None or description.undivided:
        return False
    output = [index.variable for index in description.place]
    if None in output:
        return False
    for reads in description.reads:
        for read in reads:
            if len(read) > len(output):
                return False
            for index, variable in zip(read, output[len(output) - len(read) :], strict=True):
                if index is None or index.constant or (index.terms and index.variable != variable):
                    return False
    return not any(isinstance(item, (OpaqueRead, Reduce, Piecewise)) for item in walk(description.body))


def is_opaque(description: Description) -> bool:
    return any(isinstance(item, OpaqueRead) for item in walk(description.body))


@lru_cache(maxsize=16384)
def divisible(description: Description) -> tuple[bool, ...]:
    """For each index variable: may it be divided (as an output dimension or as the root's reduction)?"""
    root = set(description.root.variables) if description.root is not None else set()
    return tuple(
        number not in description.undivided and (number < description.outputs or number in root)
        for number in range(description.rank)
    )


# ------------------------------------------------------------------------------------------- regions


def interval(index: Affine, starts: Bounds, stops: Bounds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one past the last value of an affine index over boxes of index variables; nothing over an empty box."""
    if index.variable is not None:  # itself, as nearly all are
        first = starts[..., index.variable]
        return first, np.maximum(first, stops[..., index.variable])
    low = np.full(starts.shape[:-1], index.constant, np.int64)
    high = np.full(starts.shape[:-1], index.constant, np.int64)
    some = np.ones(starts.shape[:-1], np.int64)
    for variable, coefficient in index.terms:
        begin, end = starts[..., variable], stops[..., variable]
        first, last = coefficient * begin, coefficient * np.maximum(begin, end - 1)
        low += np.minimum(first, last)
        high += np.maximum(first, last)
        some &= end > begin
    return low, np.where(some, high + 1, low)


def span(index: Affine, starts: Sequence[int], stops: Sequence[int]) -> tuple[int, int]:
    """`interval` of one box in plain numbers: arrays of one take longer to begin than this to end."""
    low = high = index.constant
    some = True
    for variable, coefficient in index.terms:
        begin, end = starts[variable], stops[variable]
        first, last = coefficient * begin, coefficient * max(begin, end - 1)
        low += min(first, last)
        high += max(first, last)
        some = some and end > begin
    return low, high + 1 if some else low


def read_box(description: Description, tensor: int, starts: Sequence[int], stops: Sequence[int]) -> Box:
    """`input_regions` of one box in plain numbers."""
    box = []
    for dimension, size in enumerate(description.inputs[tensor].shape):
        indices = [read[dimension] for read in description.reads[tensor]]
        ends = [(0, size) if index is None else span(index, starts, stops) for index in indices]
        box.append((min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0, 0))
    return tuple(box)


def clip_box(box: Box, shape: Sequence[int]) -> Box:
    """`clip` of one box in plain numbers."""
    inside = [(min(max(low, 0), size), min(max(high, 0), size)) for (low, high), size in zip(box, shape, strict=True)]
    return tuple([(low, max(low, high)) for low, high in inside])


def output_regions(description: Description, starts: Bounds, stops: Bounds) -> Regions:
    """Where in the output each piece of the index space lands: [..., output dimensions, 2]."""
    regions = np.empty((*starts.shape[:-1], len(description.place), 2), np.int64)
    for dimension, index in enumerate(description.place):
        regions[..., dimension, 0], regions[..., dimension, 1] = interval(index, starts, stops)
    return regions


def input_regions(description: Description, tensor: int, starts: Bounds, stops: Bounds) -> Regions:
    """What each piece reads of one input, as the hull of its reads, NOT yet cut to the tensor's bounds.

    Reads outside of the bounds are padding; `clip` cuts them.
    """
    shape = description.inputs[tensor].shape
    regions = np.empty((*starts.shape[:-1], len(shape), 2), np.int64)
    for dimension, size in enumerate(shape):
        whole = np.zeros(starts.shape[:-1], np.int64), np.full(starts.shape[:-1], size, np.int64)
        indices = [read[dimension] for read in description.reads[tensor]]
        bounds = [whole if index is None else interval(index, starts, stops) for index in indices]
        if bounds:
            regions[..., dimension, 0] = np.minimum.reduce([low for low, _ in bounds])
            regions[..., dimension, 1] = np.maximum.reduce([high for _, high in bounds])
        else:  # never read: an input whose shape alone matters
            regions[..., dimension, :] = 0
    return regions


def spans_of(starts: Bounds, stops: Bounds) -> Regions:
    """[..., index variables + 1, 2]: from where to where each goes, and behind them from 0 to 1."""
    spans = np.empty((*starts.shape[:-1], starts.shape[-1] + 1, 2), np.int64)
    spans[..., :-1, 0], spans[..., :-1, 1] = starts, stops
    spans[..., -1, :] = 0, 1
    return spans


@lru_cache(maxsize=65536)
def _bare(description: Description, tensor: int) -> tuple[int, ...] | None:
    """The index variables that one input is read at, dimension by dimension, if it is read inside of its bounds and at
    bare variables or 0 alone; for 0 stands the number after the last variable. Of the tensor -1: the output."""
    reads, sizes = description.reads[tensor] if tensor >= 0 else (description.place,), (*description.sizes, 1)
    shape = description.inputs[tensor].shape if tensor >= 0 else description.output.shape
    if len(reads) != 1:
        return None
    dimensions = []
    for index, size in zip(reads[0], shape, strict=True):
        first = index is not None and not index.terms and index.constant == 0
        variable = description.rank if first else None if index is None else index.variable
        if variable is None or sizes[variable] > size:
            return None
        dimensions.append(variable)
    return tuple(dimensions)


def clipped_regions(description: Description, tensor: int, spans: Regions) -> Regions:
    """`input_regions`, cut to the tensor's bounds. spans: as of `spans_of`."""
    variables = _bare(description, tensor)
    if variables is not None:  # as nearly all are
        return np.take(spans, np.asarray(variables, np.int64), axis=-2)
    starts, stops = spans[..., :-1, 0], spans[..., :-1, 1]
    return clip(input_regions(description, tensor, starts, stops), description.inputs[tensor].shape)


def placed_regions(description: Description, spans: Regions) -> Regions:
    """`output_regions`. spans: as of `spans_of`."""
    variables = _bare(description, -1)
    if variables is not None:
        return np.take(spans, np.asarray(variables, np.int64), axis=-2)
    return output_regions(description, spans[..., :-1, 0], spans[..., :-1, 1])


def clip(regions: Regions, shape: tuple[int, ...]) -> Regions:
    """Regions cut to a tensor's bounds; what lies outside becomes empty."""
    cut = np.maximum(regions, 0)
    np.minimum(cut, np.repeat(np.asarray(shape, np.int64), 2).reshape(-1, 2), out=cut)
    np.maximum(cut[..., 0], cut[..., 1], out=cut[..., 1])
    return cut


def exact_box(indices: tuple[Affine | None, ...], starts: Bounds, stops: Bounds) -> NDArray[np.bool_]:
    """Does each piece cover the box that is the hull of its positions, each position once?

    A reshape's merged index `width * i + j` covers a contiguous run only if `j` is whole or `i` is one row. An index
    of one variable always does; a slice's step is the operator's own to take.
    """
    good = np.ones(starts.shape[:-1], np.bool_)
    lengths = stops - starts
    for index in indices:
        if index is None or len(index.terms) < 2:
            continue
        low, high = interval(index, starts, stops)
        count = np.ones_like(low)
        for variable, _ in index.terms:
            count *= lengths[..., variable]
        good &= (high - low) == count
    return good


def executable(description: Description, starts: Bounds, stops: Bounds) -> NDArray[np.bool_]:
    """Can the operator itself compute each piece from the regions that it reads?

    Where positions merge several index variables one to one (a reshape's `6 * i + j`), in the output or in an
    input, a piece must be a box of merged positions. A convolution's window `y + u` overlaps, and may be cut freely.
    """
    good = np.ones(starts.shape[:-1], np.bool_)
    for indices in merged(description):
        good &= exact_box(indices, starts, stops)
    return good


@lru_cache(maxsize=16384)
def merged(description: Description) -> tuple[tuple[Affine, ...], ...]:
    """Where positions merge several index variables: of the output, and one to one of each read that has such."""
    zeros, sizes = np.zeros(description.rank, np.int64), np.asarray(description.sizes, np.int64)
    groups = [tuple([index for index in description.place if len(index.terms) > 1])]
    for read in (read for reads in description.reads for read in reads):
        several = [index for index in read if index is not None and len(index.terms) > 1]
        groups.append(tuple([index for index in several if exact_box((index,), zeros, sizes).item()]))
    return tuple([indices for indices in groups if indices])


# ------------------------------------------------------------------------------------------- linearity


@lru_cache(maxsize=16384)
def passing_sets(description: Description) -> tuple[frozenset[int], ...]:
    """Minimal sets of inputs through which a partial sum passes: the operator is linear in them together.

    If every input of a set is a partial sum over some devices, the piecewise results are partial sums of the result.
    What is zero whatever is read is a sum of any number of zeros: the set is empty. No sum passes through a division
    by what is read: where that is 0, parts of a sum give infinities of both signs, or 0 / 0.
    """
    if degree(description.body, frozenset()) == ZERO and is_floating(description.output.dtype):
        return (frozenset(),)
    count = len(description.inputs)
    read = [number for number in range(count) if description.reads[number]]
    divided = {
        item.tensor
        for division in walk(description.body)
        if isinstance(division, Applied) and division.function == "div"
        if any(isinstance(item, Read) for item in walk(division.arguments[1]))
        for item in walk(division.arguments[0])
        if isinstance(item, Read)
    }
    floating = [number for number in read if is_floating(description.inputs[number].dtype) and number not in divided]
    sets: list[frozenset[int]] = []
    # Operators of many inputs are concatenations and sums of one shape of term: linear in one input, or in all.
    few = len(floating) <= 6
    sizes = range(1, min(len(floating), 3) + 1) if few else range(1, 2)
    for size in sizes:
        for chosen in combinations(floating, size):
            candidate = frozenset(chosen)
            if not any(known <= candidate for known in sets) and degree(description.body, candidate) == 1:
                sets.append(candidate)
    everything = frozenset(floating)
    if len(floating) > 3 and not sets and degree(description.body, everything) == 1:
        sets.append(everything)
    return tuple(sets)
