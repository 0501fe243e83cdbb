"""When each storage is on the device: stays, what has to hold of them, and what each step needs by itself.

Which storage leaves, and when it comes back, is chosen elsewhere (`girih.search.memory.belady` and other proposers);
`girih.program.moves.moves` writes it into the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from girih.program.life.lifetimes import Lifetimes, Storage
from girih.program.life.touches import Flags, Touches
from girih.program.table import Integers

STORAGE, START, FIRST, LAST, FRESH, COPIED, LASTS = range(7)


class Stay(NamedTuple):
    """A row of a residency, to read: a storage on the device, from before step `start` (its first use there is step
    `first`) to behind step `last`.

    start < first where a copy in runs beside computation. fresh: a step makes it, or the program begins with it; else
    it is copied in. copied: it is copied out behind its last use. lasts: it is there at the end.
    """

    storage: int
    start: int
    first: int
    last: int
    fresh: bool
    copied: bool = False
    lasts: bool = False


@dataclass(frozen=True, eq=False)
class Residency:
    """When each storage is on the device. Storages are numbered as `girih.program.life.lifetimes` does.

    rows: the stays of all storages, in the order of their starts: [stays, 7], with the columns STORAGE, START, FIRST,
    LAST, FRESH, COPIED, LASTS of `Stay`. home: storages of state that lie in the large memory between applications, old
    and new. planned: the rows before copies in began ahead of need, from which other times for them follow; None where
    nobody asks. Two residencies are equal if rows and home are.
    """

    rows: Integers
    home: frozenset[int]
    planned: Integers | None = None

    @staticmethod
    def of(stays: Iterable[Sequence[int]], home: Iterable[int] = ()) -> Residency:
        """The residency of these stays."""
        return Residency(np.asarray([*stays], np.int64).reshape(-1, len(Stay._fields)), frozenset(home))

    @cached_property
    def stays(self) -> tuple[Stay, ...]:
        return tuple(Stay(*row[:FRESH], *map(bool, row[FRESH:])) for row in self.rows.tolist())

    def at_home(self, storages: int) -> Flags:
        """For each storage: is it in `home`?"""
        flags = np.zeros(storages, np.bool_)
        flags[list(self.home)] = True
        return flags

    def copied_bytes(self, touches: Touches) -> tuple[int, int]:
        """Bytes that go out, and that come in, in one application."""
        sizes = touches.bytes[self.rows[:, STORAGE]]
        return int(sizes[self.rows[:, COPIED] > 0].sum()), int(sizes[self.rows[:, FRESH] == 0].sum())

    def used(self, touches: Touches) -> Integers:
        """Bytes on the device in each step: [steps + 1]."""
        rows, end = self.rows, len(touches.extra) - 1
        sizes = touches.bytes[rows[:, STORAGE]]
        change = np.zeros(end + 2, np.int64)
        np.add.at(change, np.maximum(rows[:, START], 0), sizes)
        np.add.at(change, np.where(rows[:, LASTS] > 0, end, rows[:, LAST]) + 1, -sizes)
        used: Integers = np.cumsum(change)[:-1] + touches.extra
        return used

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Residency):
            return NotImplemented
        return self.home == other.home and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((self.rows.tobytes(), self.home))


def misfit(residency: Residency, lives: Lifetimes) -> str:
    """What keeps a residency from being one of these lifetimes, with its key; "" where nothing does.

    All that `girih.program.moves.moves` and its compiled loops rely on: numbers of storages and steps that there are;
    stays of a storage that follow each other and cover the steps that touch it; copies that are there when they are
    copied in. Not whether it keeps a cap. Cost: linear.
    """
    storages, end = lives.storages, len(lives.steps)
    partner = {**dict(lives.state), **{new: old for old, new in lives.state}}
    for number in sorted(residency.home):
        if not 0 <= number < len(storages):
            return f"home: expected numbers of {len(storages)} storages, counted from 0, there is {number}"
        if partner.get(number) not in residency.home:
            return (
                f"home: storage {number} ({storages[number].name}) is there without what replaces it, or is no state "
                "that can be moved: expected both of a pair of old and new state"
            )
    stays: list[list[tuple[int, Stay]]] = [[] for _ in storages]
    for at, stay in enumerate(residency.stays):
        if not 0 <= stay.storage < len(storages):
            return f"stays[{at}]: the storage: expected one of {len(storages)}, counted from 0, there is {stay.storage}"
        if not -1 <= stay.start <= stay.first <= stay.last <= end:
            return (
                f"stays[{at}]: start, first and last: expected steps from -1 to {end}, none before the one before it, "
                f"there are {stay.start}, {stay.first} and {stay.last}"
            )
        stays[stay.storage].append((at, stay))
    for number, (storage, own) in enumerate(zip(storages, stays, strict=True)):
        old = number in residency.home and storage.born == -1
        if wrong := _misfit(storage, own, old, number in residency.home):
            return wrong
    return ""


def _misfit(storage: Storage, stays: Sequence[tuple[int, Stay]], old: bool, home: bool) -> str:
    """The same of one storage. old: is it state that lies in the large memory at the beginning? home: or at the end?"""
    copy, behind = old, -2
    touched = [at for at in storage.touched if at >= 0 or not old]
    inside = 0
    for rank, (at, stay) in enumerate(stays):
        named = f"stays[{at}] (of {storage.name})"
        if stay.start <= behind:
            return (
                f"{named}: expected a start behind step {behind}, to which the stay before lasts, there is {stay.start}"
            )
        if stay.fresh != (rank == 0 and not old):
            expected = "true: nothing was there before" if rank == 0 and not old else "false: it was there before"
            return f"{named}: fresh: expected {expected}"
        if stay.fresh and not stay.start == stay.first == storage.born:
            return (
                f"{named}: expected start and first as the step that makes it, {storage.born}, there are {stay.start} "
                f"and {stay.first}"
            )
        if not stay.fresh and (not copy or stay.start < 0):
            return f"{named}: it is copied in, but no stay before it was copied out"
        if stay.copied and (copy or not storage.movable):
            return f"{named}: copied: expected false: {'it has a copy' if copy else 'it cannot be moved'}"
        if stay.lasts and (home or not storage.lasts or rank < len(stays) - 1):
            return f"{named}: lasts: expected false: it is not there at the end, or is in the large memory then"
        copy, behind = copy or stay.copied, stay.last
        inside += sum(stay.first <= step <= stay.last for step in touched)
    if storage.lasts and not (copy if home else stays and stays[-1][1].lasts):
        return (
            f"stays: the last of {storage.name}: {'copied' if home else 'lasts'}: expected true: it is there at the end"
        )
    if inside < len(touched):
        return f"stays: those of {storage.name} leave out a step that touches it: expected all of {touched[:8]}"
    return ""


class TooSmallError(ValueError):
    """A step alone needs more than the cap: its position, and the bytes of what it touches and holds."""

    def __init__(self, step: int, needed: int) -> None:
        super().__init__(f"step {step} needs {needed} bytes")
        self.step = step
        self.needed = needed


def alone(lives: Lifetimes) -> Integers:
    """Bytes that each step needs by itself, whatever is moved: [steps + 1]."""
    return alone_of(lives.touches)


def alone_of(touches: Touches) -> Integers:
    end = len(touches.extra) - 1
    count = len(touches.bytes)
    owner = np.repeat(np.arange(count), np.diff(touches.starts))
    moves = touches.movable[owner] & (touches.steps >= 0)
    needed = touches.extra.copy()
    np.add.at(needed, touches.steps[moves], touches.bytes[owner[moves]])
    needed[end] += int(touches.bytes[touches.movable & touches.lasts & ~touches.state].sum())
    still = ~touches.movable
    change = np.zeros(end + 2, np.int64)
    np.add.at(change, np.maximum(touches.born[still], 0), touches.bytes[still])
    np.add.at(change, np.where(touches.lasts[still], end, touches.last[still]) + 1, -touches.bytes[still])
    return needed + np.cumsum(change)[: end + 1]


def floor(lives: Lifetimes) -> tuple[int, int]:
    """(bytes, step) of the step that needs most by itself: whatever is moved, no peak is smaller. Step -1: what the
    program is given, the batch, with which it begins."""
    return floor_of(lives.touches)


def floor_of(touches: Touches) -> tuple[int, int]:
    needed = alone_of(touches)
    given = int(touches.bytes[(touches.born == -1) & ~touches.state].sum())
    worst = int(needed.argmax())
    return (given, -1) if given > needed[worst] else (int(needed[worst]), worst)


def in_visits(
    lives: Lifetimes,
    visits: Mapping[int, Sequence[Sequence[int]]],
    begins: Callable[[int], int],
    home: frozenset[int] = frozenset(),
) -> Residency:
    """The residency in which storages leave between their visits, which are given, and all others stay.

    visits: by storage, the steps that touch it (-1: the beginning), in groups; it leaves behind each but the last.
    begins: the step before which a copy in begins for the sake of a step, or as soon as the storage has left. home:
    state in the large memory between applications, of which the old one begins there. Cost: linear in the touches.
    """
    stays: list[Stay] = []
    for number, storage in enumerate(lives.storages):
        old = number in home and storage.born == -1
        touched = [at for at in storage.touched if at >= 0 or not old]
        groups = visits.get(number) or ([touched] if touched else [])
        mine = [Stay(number, at[0], at[0], at[-1], fresh=rank == 0 and not old) for rank, at in enumerate(groups)]
        for rank, stay in enumerate(mine):
            if not stay.fresh:
                start = max(begins(stay.first), mine[rank - 1].last + 1 if rank else 0)
                mine[rank] = stay._replace(start=min(start, stay.first))
        if mine and not old:  # there is one copy from its first leaving on
            mine[0] = mine[0]._replace(copied=len(mine) > 1 or number in home)
        if mine and storage.lasts and number not in home:
            mine[-1] = mine[-1]._replace(lasts=True)
        stays += mine
    stays.sort(key=lambda stay: (stay.start, stay.first, stay.storage))
    return Residency.of(stays, home)
