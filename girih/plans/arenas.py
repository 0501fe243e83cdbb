"""Where everything lies on each device of a plan, in one region of memory for each."""

from __future__ import annotations

from collections.abc import Sequence

from girih.cost.scratch import Scratch
from girih.machine import Machine
from girih.plans.scratch import notes_of
from girih.program import Program
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.places.addresses import Addresses, addresses_of
from girih.program.places.items import StateError
from girih.program.places.places import placed

TURNS = 10_000_000
"""Turns of loops after which the search for addresses ends: a fraction of a second for each device that is unlike the
others."""


def arenas(
    program: Program, machine: Machine, known: Scratch | None, limit: int, walked: Sequence[Lifetimes] = ()
) -> tuple[Addresses, ...]:
    """Addresses on each device; () where some state has no address that stays from step to step. limit: bytes of a
    region that need not be smaller; 0: as small as is found. walked: the lifetimes on each device, where known. The
    same for the same program."""
    notes = notes_of(program, machine, known)
    alike: dict[object, Addresses] = {}
    result = []
    for device in range(machine.devices):
        lives = walked[device] if walked else lifetimes(program, device, notes.threads, notes)
        key = _key(lives)
        if key not in alike:
            try:
                alike[key] = addresses_of(lives, placed(lives, TURNS, enough=limit))
            except StateError:
                return ()
        result.append(alike[key])
    return tuple(result)


def _key(lives: Lifetimes) -> object:
    """Equal where all addresses are."""
    storages = tuple((item.name, item.bytes, item.lasts, *item.touched) for item in lives.storages)
    return storages, lives.extra.tobytes(), lives.handed, tuple(lives.taken.items())
