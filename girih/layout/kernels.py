"""The hot loops of `girih.layout.transfer`, compiled where there is much to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside
from girih.layout.mesh import COUNTED


@inside()
def _equal(columns, one, other):  # type: ignore[no-untyped-def]
    """Are two rows equal?"""
    place = 0
    while place < columns.shape[1] and columns[one, place] == columns[other, place]:
        place += 1
    return place == columns.shape[1]


@inside()
def _kinds(columns):  # type: ignore[no-untyped-def]
    """For each row of a contiguous [rows, length]: the number of its kind, and one row of each kind."""
    kinds = np.empty(columns.shape[0], np.int64)
    firsts = np.empty(columns.shape[0], np.int64)
    count = 0
    for row in range(columns.shape[0]):
        kind = count
        for known in range(count):
            if _equal(columns, row, firsts[known]):
                kind = known
                break
        kinds[row] = kind
        if kind == count:
            firsts[count] = row
            count += 1
    return kinds, firsts[:count]


SMALL = 1 << 14
"""Elements of which Python finds the different rows as quickly."""


def distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row of [count, width] among the different rows, and the first row of each kind."""
    if rows.size > SMALL:
        rows_and_numbers: tuple[NDArray[np.int64], NDArray[np.int64]] = _distinct_rows(rows)
        return rows_and_numbers
    known: dict[bytes, int] = {}
    numbers = np.asarray([known.setdefault(row.tobytes(), len(known)) for row in rows], np.int64)
    return numbers, np.unique(numbers, return_index=True)[1]


@compiled(nogil=True)
def _distinct_rows(rows):  # type: ignore[no-untyped-def]
    """`distinct_rows` of many, by a table of their hashes."""
    count, width = rows.shape
    slots = 2  # a power of two, so that `& (slots - 1)` is the remainder
    while slots < 2 * count:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    numbers, firsts, different = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for row in range(count):
        mixed = np.uint64(14695981039346656037)  # FNV's beginning, then a hash of the row so far
        for place in range(width):
            mixed = (mixed ^ np.uint64(rows[row, place])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(slots - 1))
        while table[slot] >= 0 and not _equal(rows, row, firsts[table[slot]]):
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:  # the first row of its kind
            table[slot] = different
            firsts[different] = row
            different += 1
        numbers[row] = table[slot]
    return numbers, firsts[:different]


@inside()
def _overlaps(held, needed, source_firsts, target_firsts, d, length, uniform, stays):  # type: ignore[no-untyped-def]
    """For [source kinds, target kinds, levels]: how long regions overlap in a dimension on each device; is it the same
    for all devices; and is it on every device as long as on the level inside."""
    levels, devices = held.shape[1], held.shape[2]
    for i in range(len(source_firsts)):
        for j in range(len(target_firsts)):
            source, target = source_firsts[i], target_firsts[j]
            for level in range(levels - 1, -1, -1):
                alike, same = True, level + 1 < levels
                for c in range(devices):
                    low = max(held[source, level, c, d, 0], needed[target, c, d, 0])
                    high = min(held[source, level, c, d, 1], needed[target, c, d, 1])
                    length[i, j, level, c] = max(0, high - low)
                    alike = alike and length[i, j, level, c] == length[i, j, level, 0]
                    same = same and length[i, j, level, c] == length[i, j, level + 1, c]
                uniform[i, j, level], stays[i, j, level] = alike, same


@compiled(lambda held, _, needed, *__: held.size / 2 * len(needed), nogil=True)
def costs(  # type: ignore[no-untyped-def]
    held, source_partial, needed, target_partial, sizes, seconds_per_element, latency
):
    """Seconds of the slowest device [sources, targets].

    A volume is a product over dimensions, and in one dimension few placements differ: the overlaps of a dimension are
    computed once for each kind, and multiplied for all devices at once. A level adds nothing where no overlap grows.
    Where all overlaps are the same for all devices, one device stands for all.
    """
    sources, levels, devices, dimensions = held.shape[0], held.shape[1], held.shape[2], held.shape[3]
    targets, axes = needed.shape[0], sizes.shape[0]
    # 1. For each dimension the kinds of placements, and how much each two of them overlap.
    source_kinds = np.empty((dimensions, sources), np.int64)
    target_kinds = np.empty((dimensions, targets), np.int64)
    firsts, most, widest = [], 0, 0
    for d in range(dimensions):
        kinds, source_firsts = _kinds(np.ascontiguousarray(held[:, :, :, d]).reshape(sources, -1))
        for s in range(sources):  # one by one: to copy a row, Numba compiles the text of its error for two seconds
            source_kinds[d, s] = kinds[s]
        kinds, target_firsts = _kinds(np.ascontiguousarray(needed[:, :, d]).reshape(targets, -1))
        for t in range(targets):
            target_kinds[d, t] = kinds[t]
        firsts.append((source_firsts, target_firsts))
        most, widest = max(most, len(source_firsts)), max(widest, len(target_firsts))
    length = np.empty((dimensions, most, widest, levels, devices))
    uniform = np.empty((dimensions, most, widest, levels), np.bool_)
    stays = np.empty((dimensions, most, widest, levels), np.bool_)
    for d in range(dimensions):
        source_firsts, target_firsts = firsts[d]
        _overlaps(held, needed, source_firsts, target_firsts, d, length[d], uniform[d], stays[d])
    always = np.empty((dimensions, most, widest), np.bool_)
    for d in range(dimensions):
        for i in range(len(firsts[d][0])):
            for j in range(len(firsts[d][1])):
                always[d, i, j] = uniform[d, i, j].all()
    # 2. For each two placements the time, from the innermost level to the outermost.
    seconds = np.empty((sources, targets))
    copies = np.empty(axes + 1)
    volume, inner, time = np.empty(devices), np.empty(devices), np.empty(devices)
    for s in range(sources):
        for t in range(targets):
            possible = True  # unless a partial result would have to be made of something else
            copies[axes] = 1.0  # how many partial results are received, up to each level
            for axis in range(axes - 1, -1, -1):
                copies[axis] = copies[axis + 1]
                if target_partial[t, axis] and source_partial[s, axis] != target_partial[t, axis]:
                    possible = False
                if source_partial[s, axis] and not target_partial[t, axis]:
                    copies[axis] *= source_partial[s, axis] % COUNTED
            if not possible:
                seconds[s, t] = np.inf
                continue
            different = devices  # how many devices to compute for
            alike = True
            for d in range(dimensions):
                alike = alike and always[d, source_kinds[d, s], target_kinds[d, t]]
            if alike:
                different = 1
            for c in range(different):
                time[c] = 0.0
            for level in range(levels - 1, -1, -1):
                same = level < axes and copies[level] == copies[level + 1]
                for d in range(dimensions):
                    same = same and stays[d, source_kinds[d, s], target_kinds[d, t], level]
                if same:
                    continue
                # volume: what a device gets inside of this level; `inner`: inside of the level before
                factor = copies[level]
                for d in range(dimensions):
                    i, j = source_kinds[d, s], target_kinds[d, t]
                    if uniform[d, i, j, level]:
                        factor *= length[d, i, j, level, 0]
                for c in range(different):
                    volume[c] = factor
                for d in range(dimensions):
                    i, j = source_kinds[d, s], target_kinds[d, t]
                    if not uniform[d, i, j, level]:
                        for c in range(different):
                            volume[c] *= length[d, i, j, level, c]
                if level < axes:
                    per_element, start = seconds_per_element[level], latency[level]
                    for c in range(different):
                        more = volume[c] - inner[c]
                        time[c] += more * per_element + start if more > 0 else 0.0
                for c in range(different):
                    inner[c] = volume[c]
            slowest = 0.0
            for c in range(different):
                slowest = max(slowest, time[c])
            seconds[s, t] = slowest
    return seconds


@compiled(lambda held, _, needed, *__: held.size / 2 * len(needed), nogil=True)
def volumes(held, source_partial, needed, target_partial, sizes):  # type: ignore[no-untyped-def]
    """Total elements received [sources, targets]: the levels of `costs` summed, K·|T| - |T ∩ S|."""
    sources, devices, dimensions = held.shape[0], held.shape[1], held.shape[2]
    targets, axes = needed.shape[0], sizes.shape[0]
    total = np.empty((sources, targets))
    wanted = np.empty(targets)  # |T|: elements that all devices need
    for t in range(targets):
        amount = 0.0
        for c in range(devices):
            volume = 1.0
            for d in range(dimensions):
                volume *= max(0, needed[t, c, d, 1] - needed[t, c, d, 0])
            amount += volume
        wanted[t] = amount
    for s in range(sources):
        for t in range(targets):
            possible, copies = True, 1.0
            for axis in range(axes):
                if target_partial[t, axis] and source_partial[s, axis] != target_partial[t, axis]:
                    possible = False
                if source_partial[s, axis] and not target_partial[t, axis]:
                    copies *= source_partial[s, axis] % COUNTED
            if not possible:
                total[s, t] = np.inf
                continue
            amount = copies * wanted[t]  # of which |T ∩ S| lies there already
            for c in range(devices):
                volume = 1.0
                for d in range(dimensions):
                    low = max(held[s, c, d, 0], needed[t, c, d, 0])
                    high = min(held[s, c, d, 1], needed[t, c, d, 1])
                    volume *= max(0, high - low)
                amount -= volume
            total[s, t] = amount
    return total


@compiled(lambda held, _, needed, __, sizes: held.shape[0] * needed.size / 2, nogil=True)
def becoming(held, source_partial, needed, target_partial, sizes):  # type: ignore[no-untyped-def]
    """[sources, targets]: does the source become more partial results for nothing (`Transfers.direct`)?

    Devices that agree on all axes but the new ones are a group. Of those with the same region, one keeps it: the first
    along each new axis. What the keepers of a group hold together has to be all that the target wants there.
    """
    sources, devices, dimensions = held.shape[0], held.shape[1], held.shape[2]
    targets, axes = needed.shape[0], sizes.shape[0]
    result = np.zeros((sources, targets), np.bool_)
    strides = np.ones(axes, np.int64)
    for axis in range(axes - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    met = np.empty(devices)
    for s in range(sources):
        for t in range(targets):
            fresh, able = False, True
            for axis in range(axes):
                if target_partial[t, axis] != source_partial[s, axis]:
                    fresh = True
                    able = able and source_partial[s, axis] == 0
            if not (fresh and able):
                continue
            met[:] = 0.0
            for c in range(devices):
                volume, leader, keeps = 1.0, c, True
                for d in range(dimensions):
                    low = max(held[s, c, d, 0], needed[t, c, d, 0])
                    volume *= max(0, min(held[s, c, d, 1], needed[t, c, d, 1]) - low)
                if volume == 0.0:
                    continue
                for axis in range(axes):
                    if target_partial[t, axis] == source_partial[s, axis]:
                        continue
                    place = (c // strides[axis]) % sizes[axis]
                    leader -= place * strides[axis]
                    for other in range(c - place * strides[axis], c, strides[axis]):
                        same = keeps
                        for d in range(dimensions):
                            same = same and held[s, other, d, 0] == held[s, c, d, 0]
                            same = same and held[s, other, d, 1] == held[s, c, d, 1]
                            same = same and needed[t, other, d, 0] < needed[t, other, d, 1]
                        if same:
                            keeps = False
                            break
                if keeps:
                    met[leader] += volume
            for c in range(devices):
                volume, leader = 1.0, c
                for d in range(dimensions):
                    volume *= max(0, needed[t, c, d, 1] - needed[t, c, d, 0])
                for axis in range(axes):
                    if target_partial[t, axis] != source_partial[s, axis]:
                        leader -= ((c // strides[axis]) % sizes[axis]) * strides[axis]
                able = able and (volume == 0.0 or met[leader] == volume)
            result[s, t] = able
    return result


@compiled(lambda first, second, _: first.size * second.shape[1], nogil=True)
def min_plus(first, second, out):  # type: ignore[no-untyped-def]
    """out[s, t] = min(out[s, t], min over m of first[s, m] + second[m, t])."""
    for s in range(first.shape[0]):
        for m in range(first.shape[1]):
            left = first[s, m]
            if left == np.inf:
                continue
            for t in range(second.shape[1]):
                cost = left + second[m, t]
                if cost < out[s, t]:
                    out[s, t] = cost


@compiled(lambda regions, sizes: regions.size * (1 + len(sizes)), nogil=True)
def hulls(regions, sizes):  # type: ignore[no-untyped-def]
    """`girih.layout.transfer.held_by_levels`: [placements, axes + 1, devices, dimensions, 2]."""
    count, devices, dimensions = regions.shape[0], regions.shape[1], regions.shape[2]
    axes = sizes.shape[0]
    held = np.empty((count, axes + 1, devices, dimensions, 2), np.int64)
    low, high = np.empty(dimensions, np.int64), np.empty(dimensions, np.int64)
    for p in range(count):
        for device in range(devices):
            for d in range(dimensions):
                for end in range(2):
                    held[p, axes, device, d, end] = regions[p, device, d, end]
        group = 1  # devices that agree on the axes before `level` are neighbours
        for level in range(axes - 1, -1, -1):
            inner = group
            group *= sizes[level]
            for first in range(0, devices, group):
                low[:] = 0
                high[:] = 0
                any_row = False
                for other in range(first, first + group, inner):
                    empty = False
                    for d in range(dimensions):
                        empty |= held[p, level + 1, other, d, 1] <= held[p, level + 1, other, d, 0]
                    if empty:
                        continue
                    for d in range(dimensions):
                        start, stop = held[p, level + 1, other, d, 0], held[p, level + 1, other, d, 1]
                        low[d] = min(low[d], start) if any_row else start
                        high[d] = max(high[d], stop) if any_row else stop
                    any_row = True
                for other in range(first, first + group):
                    for d in range(dimensions):
                        held[p, level, other, d, 0] = low[d]
                        held[p, level, other, d, 1] = high[d]
    return held
