"""Passes: each is a frozen dataclass of its options, with one verb, from a Program to a Program that computes the same.

In this order each finds what it needs: Lower, Schedule, then Pieces, `Overlap` (`girih.program.overlap`) or `Blocks`
(`girih.program.fusion.blocks`), then Reorder, then Move, then Address. What a pass needs to know beside the program is
among its fields, what costs time as a function that is asked when the pass comes to it. `girih.plans.choice` says which
passes a Choice is; addresses follow from the program that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from girih.layout import Transfers
from girih.machine import Machine
from girih.program.again import sequenced
from girih.program.check import check
from girih.program.life.lifetimes import Lifetimes
from girih.program.lower import lower
from girih.program.moves.apart import moved_apart
from girih.program.moves.moves import moved
from girih.program.moves.residency import Residency
from girih.program.pieces import InPieces, in_pieces
from girih.program.places.addresses import Addresses
from girih.program.places.items import StateError
from girih.program.places.places import addresses_of, placed
from girih.program.program import Program
from girih.program.schedule import scheduled


class Pass(Protocol):
    """What makes a program from a program."""

    def apply(self, program: Program) -> Program:
        """The program with what this pass adds or changes; the same one where that is nothing."""
        ...


def apply(program: Program, passes: Iterable[Pass], *, law: bool = False) -> Program:
    """The program behind all passes. law: hold it against the law of Programs behind each (`girih.program.check`).

    Raises:
        ProgramError: a pass was given what is none of this program's; or, with `law`, has broken it.
        ValueError: the same, of options that say more than which steps.
    """
    for item in passes:
        program = item.apply(program)
        if law:
            check(program)
    return program


@dataclass(frozen=True)
class Lower:
    """Writes the steps of a graph that is divided by the program's strategy. transfers: choose the routes of values."""

    transfers: Transfers

    def apply(self, program: Program) -> Program:
        return lower(program.graph, program.strategy, self.transfers)


@dataclass(frozen=True)
class Schedule:
    """Orders the work of a pipeline (`girih.program.schedule`). machine: by whose data sheet nodes take their time."""

    name: str
    machine: Machine

    def apply(self, program: Program) -> Program:
        return scheduled(program, self.name, self.machine)


@dataclass(frozen=True)
class Pieces:
    """Computes steps together, piece by piece (`girih.program.pieces`)."""

    loops: tuple[InPieces, ...]

    def apply(self, program: Program) -> Program:
        return in_pieces(program, self.loops)


@dataclass(frozen=True)
class Reorder:
    """Brings steps into a sequence, in which some come again (`girih.program.again`)."""

    sequence: tuple[int, ...]

    def apply(self, program: Program) -> Program:
        return sequenced(program, self.sequence)


@dataclass(frozen=True)
class Move:
    """Moves storages out of the devices, and back (`girih.program.moves`).

    residencies: one for all devices, or one for each class where classes do different things. room: bytes of a device
    within which they keep. lives: of the program without movements, tells the lifetimes for which they were made.
    """

    residencies: tuple[Residency, ...]
    room: int
    lives: Callable[[Program], Sequence[Lifetimes]]

    def apply(self, program: Program) -> Program:
        lives = self.lives(program)
        if program.orders:
            return moved_apart(lives, self.residencies, self.room)
        return moved(lives[0], self.residencies[0], self.room)


@dataclass(frozen=True)
class Address:
    """Adds where everything lies on each device, in one region of memory for each (`girih.program.places`).

    lives: of each device, in their order. enough: bytes of a region that need not be smaller; 0: as small as is found.
    turns: of loops after which the search ends: a fraction of a second for each device that is unlike the others.
    """

    lives: Callable[[Program], Iterable[Lifetimes]]
    enough: int = 0
    turns: int = 10_000_000

    def apply(self, program: Program) -> Program:
        alike: dict[object, Addresses] = {}
        addresses = []
        for lives in self.lives(program):
            storages = tuple((item.name, item.bytes, item.lasts, *item.touched) for item in lives.storages)
            key = storages, lives.extra.tobytes(), lives.handed, tuple(lives.taken.items())
            try:
                if key not in alike:
                    alike[key] = addresses_of(lives, placed(lives, self.turns, enough=self.enough))
            except StateError:
                return program
            addresses.append(alike[key])
        return replace(program, addresses=tuple(addresses))
