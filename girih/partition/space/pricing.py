"""Prices of transfers between the pieces of nodes and the layouts of values, each different one computed once.

Of one value, and of all that have its shape, many nodes read or make the same pieces, under divisions of different
meaning: the pieces are gathered from all nodes first, equal ones found, and the tables of nodes are rows of one table
between different pieces and layouts. The compiled loops release the interpreter's lock: the cores share large tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from girih.graph import Value
from girih.host import cores_here
from girih.layout import Layout, Placements, Transfers, mark_of
from girih.layout.budget import Budget
from girih.layout.mesh import COUNTED

SMALL, LARGE = 1e5, 2e6
"""Pairs × devices below which looking for equal pieces takes longer than it saves, and above which the cores share the
work: below, starting threads takes longer than they save."""
BRIEF = 2**14
"""Bytes of pieces up to which whole tables are compared before they are priced; more would take memory until then."""


PAIR = 12.0
"""Nanoseconds of pricing a transfer on one device."""


class OutOfTimeError(Exception):
    """The budget is too small for the tables."""


@dataclass(frozen=True, eq=False)
class WantedTable:
    """The table [divisions, layouts] of a node and a value.

    reads: does the node read the value, or make it? pieces: by division. stays: of which reducer what the node makes
    may stay partial results; None: of any.
    """

    value: Value
    layouts: tuple[Layout, ...]
    pieces: Placements
    reads: bool
    stays: str | None = None

    @property
    def contents(self) -> tuple[object, ...] | None:
        """Equal for equal tables, of which many nodes want the same; None where the pieces are many."""
        regions = self.pieces.regions
        if regions.nbytes > BRIEF:
            return None
        pieces = (regions.shape, regions.tobytes(), self.pieces.partial.tobytes())
        return (self.value.shape, self.value.item_bytes, self.layouts, *pieces, self.reads, self.stays)


@dataclass(frozen=True, eq=False)
class _Group:
    """Wanted tables between pieces of one shape and the same layouts. different: the pieces of each, without repeats,
    with the number that each division has among them."""

    members: list[int]
    different: list[tuple[Placements, np.ndarray]]

    @property
    def pairs(self) -> int:
        return sum(len(pieces) for pieces, _ in self.different)


def priced(wanted: Sequence[WantedTable], transfers: Transfers, budget: Budget | None = None) -> list[np.ndarray]:
    """The tables, in their order. budget: spends the work; None: there is as much as is needed.

    Raises:
        OutOfTimeError: the budget is smaller than the work, which is known before it is begun, or its clock is over.
    """
    groups: dict[object, _Group] = {}
    devices = transfers.mesh.devices
    small = sum([len(item.pieces) * len(item.layouts) for item in wanted]) * devices < SMALL
    for number, item in enumerate(wanted):
        key = number if small else (item.value.shape, item.value.item_bytes, item.reads, item.layouts)
        group = groups.setdefault(key, _Group([], []))
        group.members.append(number)
        group.different.append(item.pieces.distinct())
    tables: list[np.ndarray] = [np.empty(0)] * len(wanted)

    work_of = [group.pairs * len(wanted[group.members[0]].layouts) * devices for group in groups.values()]
    if budget is not None:
        if not budget.affords(sum(work_of) * PAIR):
            raise OutOfTimeError(f"{len(wanted)} tables could not be priced in time")
        budget.spend(sum(work_of) * PAIR)

    def work(group: _Group) -> None:
        if budget is not None and budget.late:
            raise OutOfTimeError(f"{len(wanted)} tables could not be priced in time")
        for number, table in zip(group.members, _tables(wanted[group.members[0]], group, transfers), strict=True):
            item = wanted[number]
            if item.stays is not None:
                lies = Placements.of(item.layouts, item.value.shape, transfers.mesh).partial
                others = (lies > 0) & (lies // COUNTED != mark_of(item.stays) // COUNTED)
                table = np.where(others.any(axis=1), np.inf, table)
            tables[number] = table

    workers = cores_here()
    if sum(work_of) < LARGE or workers == 1:
        for group in groups.values():
            work(group)
    else:
        order = sorted(zip(work_of, groups.values(), strict=True), key=lambda one: -one[0])
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, [group for _, group in order]))
    return tables


def _tables(item: WantedTable, group: _Group, transfers: Transfers) -> list[np.ndarray]:
    """The tables of a group's members; item: one of them."""
    every, numbers = _joined(group.different)
    lies = Placements.of(item.layouts, item.value.shape, transfers.mesh)
    shape, size = item.value.shape, item.value.item_bytes
    costs = transfers.table(lies, every, shape, size).T if item.reads else transfers.table(every, lies, shape, size)
    return [np.ascontiguousarray(costs[number]) for number in numbers]


def _joined(parts: Sequence[tuple[Placements, np.ndarray]]) -> tuple[Placements, list[np.ndarray]]:
    """All different placements, and for each part's divisions their numbers among them."""
    if len(parts) == 1:
        pieces, number = parts[0]
        return pieces, [number]
    from girih.layout import kernels

    regions = np.concatenate([pieces.regions for pieces, _ in parts])
    partial = np.concatenate([pieces.partial for pieces, _ in parts])
    rows = np.concatenate((regions.reshape(len(regions), -1), partial), axis=1)
    numbers, firsts = kernels.distinct_rows(rows)
    starts = np.cumsum([0, *(len(pieces) for pieces, _ in parts)])
    tables = [numbers[start:][number] for start, (_, number) in zip(starts[:-1], parts, strict=True)]
    return Placements(regions[firsts], partial[firsts]), tables
