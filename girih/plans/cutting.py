"""Steps that alone need more than the memory limit, or a share of it, in pieces (`girih.program.pieces`)."""

from __future__ import annotations

from dataclasses import dataclass

from girih.layout.budget import Budget
from girih.machine.units import format_bytes
from girih.ops.gate import is_exact
from girih.plans.plan import Plan
from girih.plans.scratch import notes_of
from girih.program import Overlap, Program
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.residency import floor
from girih.program.pieces import OutOfWorkError, PieceFinder, Spend


def in_smaller_pieces(plan: Plan, work: Budget) -> Plan:
    """The plan with those steps in pieces that alone need more than its limit, or come as near to it as they can.

    Exchanges do not overlap with loops over pieces. work: after which nothing more is tried; it is spent there.
    """
    assert plan.memory is not None

    def spend(nanoseconds: float) -> None:
        work.spend(nanoseconds)
        if work.late:
            raise OutOfWorkError

    return Cutting.of(plan, spend).within(plan.memory, nearest=True)


@dataclass(frozen=True, eq=False)
class Cutting:
    """Finds the steps of a plan to compute in pieces, for one size after the other."""

    plan: Plan
    finder: PieceFinder

    @classmethod
    def of(cls, plan: Plan, spend: Spend) -> Cutting:
        """spend: told what is to be done, before it is; what it raises ends the search."""

        def measured(program: Program) -> Lifetimes:
            notes = notes_of(program, plan.machine, plan.scratch)
            return lifetimes(program, 0, notes.threads, notes)

        plain = plan.but(overlap=Overlap()) if plan.lowered.transfers else plan
        threads = notes_of(plain.unmoved, plan.machine, plan.scratch).threads
        return cls(plan, PieceFinder(plain.lifetimes, measured, threads, spend))

    def within(self, size: int, *, nearest: bool = False) -> Plan:
        """The plan with those steps in pieces that alone need more than `size` bytes. Where that is not to be had, the
        plan as it is, or, with `nearest`, as near to it as pieces come."""
        loops = self.finder.cuts(size, nearest=nearest).loops
        return self.plan.but(overlap=Overlap(), pieces=loops) if loops else self.plan


def pieces_help(plan: Plan) -> str:
    """A sentence for a plan that cannot keep its limit: do pieces help?"""
    if is_exact(plan.graph):
        return (
            "exact=True keeps each operator whole, since one in pieces has other last digits: without it less may do. "
        )
    if not plan.choice.pieces:
        return "No way to compute it in pieces was found that helps. "
    whole = floor(plan.but(pieces=(), sequence=None, residency=()).lifetimes)[0]
    count = len({position for loop in plan.choice.pieces for position, _ in loop.steps})
    return f"Already {count} steps are to be computed in pieces; without, at least {format_bytes(whole)} are needed. "
