"""Steps that alone need more than the memory limit, or a share of it, in pieces (`girih.memory.pieces`)."""

from __future__ import annotations

from dataclasses import replace

from girih.lower import Overlap, Program
from girih.machine.units import format_bytes
from girih.memory.lifetimes import Lifetimes, lifetimes
from girih.memory.pieces import cuts
from girih.memory.residency import floor
from girih.plans.plan import Plan
from girih.plans.scratch import notes_of


def in_smaller_pieces(plan: Plan) -> Plan:
    """The plan with those steps in pieces that alone need more than its limit, or come as near to it as they can.

    Exchanges do not overlap with loops over pieces.
    """
    assert plan.memory is not None
    return _cut(plan, plan.memory, nearest=True)


def in_pieces_within(plan: Plan, size: int) -> Plan:
    """The plan with those steps in pieces that alone need more than `size` bytes; as it is, where that is not to be
    had."""
    return _cut(plan, size, nearest=False)


def _cut(plan: Plan, size: int, nearest: bool) -> Plan:
    def measured(program: Program) -> Lifetimes:
        notes = notes_of(program, plan.machine, plan.scratch)
        return lifetimes(program, 0, notes.threads, notes)

    plain = plan if plan.overlap == Overlap() else replace(plan, overlap=Overlap())
    loops = cuts(plain.lifetimes, size, measured, nearest=nearest).loops
    return replace(plain, pieces=loops) if loops else plan


def pieces_help(plan: Plan) -> str:
    """A sentence for a plan that cannot keep its limit: do pieces help?"""
    if not plan.pieces:
        return "To compute it in pieces does not help. "
    whole = floor(replace(plan, pieces=(), sequence=None, residency=None).lifetimes)[0]
    count = len({position for loop in plan.pieces for position, _ in loop.steps})
    return f"Already {count} steps are to be computed in pieces; without, at least {format_bytes(whole)} are needed. "
