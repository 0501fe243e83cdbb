"""Addresses: what a worker needs to know of its arena, so that everything of a step lies where it was planned.

The places of a device (`girih.program.places.places`) by the names that a worker knows: buffers, and positions of
steps. Of the bytes that nothing occupies in a step only the largest stretches are told, and those in which the scratch
memory of the step was placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from girih.program.life.accounts import messages_of
from girih.program.life.lifetimes import Lifetimes
from girih.program.places.items import ALIGNMENT
from girih.program.places.places import Places
from girih.program.steps import StartStep, TransferStep

MOST_RUNS = 8
"""That nothing has in a step and that a worker is told of, beside those of the step's own scratch."""

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Addresses:
    """Where everything of a device lies in its arena, in bytes from the beginning.

    bytes: of the arena. bound: the most that is alive at one time, sizes rounded up; no arena is smaller. peak: the
    same with sizes as they are, exact, but for scratch that is a bound. It may be more than the peak of a run without
    an arena (`memory_use`), which copies nothing of what `copied` names. places: by the buffer with which a storage is
    made, its first byte and its bytes. scratch: of each step that is no free, the runs in which a kernel's requests may
    lie: [steps]. copied: old and new state of which the new is copied to where the old lay, when all steps are done, in
    the order of the copies.
    """

    bytes: int
    bound: int
    peak: int
    places: Mapping[str, tuple[int, int]]
    scratch: tuple[Runs, ...]
    copied: tuple[tuple[str, str], ...]


def addresses_of(lives: Lifetimes, places: Places) -> Addresses:
    """The addresses of a device's places. Cost: as of `Places.gaps`."""
    storages = lives.storages
    known = {
        item.name: (address, item.bytes)
        for item, address in zip(storages, places.addresses, strict=True)
        if item.bytes > 0
    }
    scratch: list[Runs] = []
    for number, step in enumerate(lives.steps):
        if isinstance(step, StartStep):  # what it makes stays until the exchange ends
            transfer = step.transfer
            run = known.get(messages_of(transfer.target)) if isinstance(transfer, TransferStep) else None
            scratch.append(() if run is None else ((run[0], run[0] - -run[1] // ALIGNMENT * ALIGNMENT),))
            continue
        runs = places.gaps[number]
        own = places.scratch[number]
        size = int(places.items.sizes[len(storages) + number])
        mine = (runs[:, 0] < own + size) & (own < runs[:, 1])
        order = np.lexsort((runs[:, 0] - runs[:, 1], ~mine))[: MOST_RUNS + int(mine.sum())]
        scratch.append(tuple((int(low), int(high)) for low, high in runs[order]))
    copied = tuple((storages[old].name, storages[new].name) for old, new in places.items.copied)
    return Addresses(places.bytes, places.bound, places.items.peak, known, tuple(scratch), copied)
