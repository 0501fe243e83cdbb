"""The compiled hot loops of `girih.simulate.patterns`, compiled where there are many."""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled


@compiled(lambda source, *_: 4.0 * len(source) * source.size)
def pairs(source, target, term, peers, coordinates, sizes):  # type: ignore[no-untyped-def]
    """Elements that each device sends to each other one: the messages of `girih.program.exchange`, summed by pair.

    source, target: regions [devices, dimensions, 2]. term: which contribution each device holds; peers: a number that
    is equal for devices whose contributions are combined with each other.
    Returns senders, receivers, outermost mesh axes on which they differ, and elements, in rounds: first those to the
    next neighbour around the mesh, then those to the one after, so that in a round of a regular exchange every device
    sends to one and receives from one. O(devices² · (dimensions + axes)).
    """
    devices, dimensions, axes = source.shape[0], source.shape[1], sizes.shape[0]
    kind = np.full(devices, -1, np.int32)  # devices with equal regions and terms can serve alike
    kinds = np.empty(devices, np.int32)
    count = 0
    for d in range(devices):
        empty = False
        for i in range(dimensions):
            empty |= source[d, i, 1] <= source[d, i, 0]
        if empty:
            continue
        for k in range(count):
            other = kinds[k]
            if term[other] != term[d]:
                continue
            same = True
            for i in range(dimensions):
                if source[other, i, 0] != source[d, i, 0] or source[other, i, 1] != source[d, i, 1]:
                    same = False
                    break
            if same:
                kind[d] = k
                break
        if kind[d] < 0:
            kinds[count] = d
            kind[d] = count
            count += 1
    elements = np.zeros((devices, devices), np.int64)  # [round, receiver]
    nearest = np.empty(count, np.int64)
    overlap = np.empty(count, np.int64)
    for r in range(devices):
        for k in range(count):
            nearest[k] = np.iinfo(np.int64).max
            volume = 1
            for i in range(dimensions):
                low = max(source[kinds[k], i, 0], target[r, i, 0])
                high = min(source[kinds[k], i, 1], target[r, i, 1])
                volume *= max(0, high - low)
            overlap[k] = volume
        for d in range(devices):
            if kind[d] < 0 or overlap[kind[d]] == 0 or peers[d] != peers[r]:
                continue
            differs, steps = 0, 0
            for axis in range(axes):
                around = (coordinates[d, axis] - coordinates[r, axis]) % sizes[axis]
                differs = differs * 2 + (1 if around > 0 else 0)
                steps = steps * sizes[axis] + around
            nearest[kind[d]] = min(nearest[kind[d]], differs * devices + steps)
        for k in range(count):
            if overlap[k] > 0 and nearest[k] != np.iinfo(np.int64).max:
                elements[nearest[k] % devices, r] += overlap[k]
    elements[0, :] = 0  # what is at home
    total = np.count_nonzero(elements)
    senders, receivers = np.empty(total, np.int32), np.empty(total, np.int32)
    over, amounts = np.empty(total, np.int8), np.empty(total, np.int64)
    number = 0
    for steps in range(1, devices):
        for r in range(devices):
            if elements[steps, r] == 0:
                continue
            sender, outermost, weight, left = 0, -1, 1, steps
            for axis in range(axes - 1, -1, -1):
                around = left % sizes[axis]
                left //= sizes[axis]
                if around > 0:
                    outermost = axis
                sender += (coordinates[r, axis] + around) % sizes[axis] * weight
                weight *= sizes[axis]
            senders[number], receivers[number] = sender, r
            over[number], amounts[number] = outermost, elements[steps, r]
            number += 1
    return senders, receivers, over, amounts


@compiled(lambda first, second, devices: 5.0 * (len(first) + devices))
def links(first, second, devices):  # type: ignore[no-untyped-def]
    """For each device the numbers of the messages that it sends or receives, ascending: offsets and entries."""
    offsets = np.zeros(devices + 1, np.int32)
    for m in range(first.shape[0]):
        offsets[first[m] + 1] += 1
        offsets[second[m] + 1] += 1
    for d in range(devices):
        offsets[d + 1] += offsets[d]
    entries = np.empty(offsets[devices], np.int32)
    filled = offsets[:-1].copy()
    for m in range(first.shape[0]):
        for d in (first[m], second[m]):
            entries[filled[d]] = m
            filled[d] += 1
    return offsets, entries
