"""The compiled hot loops of `girih.layout.transfer`, imported when a first cost is asked for: Numba is slow to load."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, parallel=True)
def costs(  # type: ignore[no-untyped-def]
    held, source_partial, needed, target_partial, sizes, seconds_per_element, latency
):
    """Seconds of the slowest device [sources, targets]."""
    sources, levels, devices, dimensions = held.shape[0], held.shape[1], held.shape[2], held.shape[3]
    targets, axes = needed.shape[0], sizes.shape[0]
    seconds = np.empty((sources, targets))
    for s in numba.prange(sources):
        copies = np.empty(axes + 1)
        for t in range(targets):
            possible = True
            copies[axes] = 1.0
            for axis in range(axes - 1, -1, -1):
                copies[axis] = copies[axis + 1]
                if target_partial[t, axis] and not source_partial[s, axis]:
                    possible = False
                if source_partial[s, axis] and not target_partial[t, axis]:
                    copies[axis] *= sizes[axis]
            if not possible:
                seconds[s, t] = np.inf
                continue
            slowest = 0.0
            for c in range(devices):
                time, inner = 0.0, 0.0
                for level in range(levels - 1, -1, -1):
                    volume = copies[level]
                    for d in range(dimensions):
                        low = max(held[s, level, c, d, 0], needed[t, c, d, 0])
                        high = min(held[s, level, c, d, 1], needed[t, c, d, 1])
                        volume *= max(0, high - low)
                    if level < axes and volume > inner:
                        time += (volume - inner) * seconds_per_element[level] + latency[level]
                    inner = volume
                slowest = max(slowest, time)
            seconds[s, t] = slowest
    return seconds


@numba.njit(cache=True)
def volumes(held, source_partial, needed, target_partial, sizes):  # type: ignore[no-untyped-def]
    """Total elements received [sources, targets]: the levels of `costs` summed, K·|T| - |T ∩ S|."""
    sources, devices, dimensions = held.shape[0], held.shape[1], held.shape[2]
    targets, axes = needed.shape[0], sizes.shape[0]
    total = np.empty((sources, targets))
    wanted = np.empty(targets)
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
                if target_partial[t, axis] and not source_partial[s, axis]:
                    possible = False
                if source_partial[s, axis] and not target_partial[t, axis]:
                    copies *= sizes[axis]
            if not possible:
                total[s, t] = np.inf
                continue
            amount = copies * wanted[t]
            for c in range(devices):
                volume = 1.0
                for d in range(dimensions):
                    low = max(held[s, c, d, 0], needed[t, c, d, 0])
                    high = min(held[s, c, d, 1], needed[t, c, d, 1])
                    volume *= max(0, high - low)
                amount -= volume
            total[s, t] = amount
    return total


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def hulls(regions, sizes):  # type: ignore[no-untyped-def]
    """`girih.layout.transfer.held_by_levels`: [placements, axes + 1, devices, dimensions, 2]."""
    count, devices, dimensions = regions.shape[0], regions.shape[1], regions.shape[2]
    axes = sizes.shape[0]
    held = np.empty((count, axes + 1, devices, dimensions, 2), np.int64)
    low, high = np.empty(dimensions, np.int64), np.empty(dimensions, np.int64)
    for p in range(count):
        held[p, axes] = regions[p]
        group = 1  # devices that agree on the axes before `level` are neighbours
        for level in range(axes - 1, -1, -1):
            inner = group
            group *= sizes[level]
            for first in range(0, devices, group):
                low[:] = 0
                high[:] = 0
                found = False
                for other in range(first, first + group, inner):
                    part = held[p, level + 1, other]
                    empty = False
                    for d in range(dimensions):
                        empty |= part[d, 1] <= part[d, 0]
                    if empty:
                        continue
                    for d in range(dimensions):
                        low[d] = min(low[d], part[d, 0]) if found else part[d, 0]
                        high[d] = max(high[d], part[d, 1]) if found else part[d, 1]
                    found = True
                for other in range(first, first + group):
                    for d in range(dimensions):
                        held[p, level, other, d, 0] = low[d]
                        held[p, level, other, d, 1] = high[d]
    return held
