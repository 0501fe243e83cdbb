"""The steps of a program in another sequence, in which some come again: what was dropped is made again.

A sequence is positions among the program's steps that are not frees. A step that comes a second time writes new
buffers, `x~1`, and whoever reads `x` behind it reads those; so `x` is freed after its last reader before, and need not
be kept in between (Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016). Views of what is
computed again are steps that come again too. A transfer that comes again brings what it has brought before once more,
from sources that are still there, or were made again themselves; where it had a start of its own, that comes right
before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from girih.program.check import ProgramError
from girih.program.life.lifetimes import Lifetimes
from girih.program.liveness import lasting
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import FreeStep, StartStep, Step, TransferStep, renamed


def sequenced(program: Program, sequence: Sequence[int]) -> Program:
    """The program with these steps, in this order.

    Raises:
        ProgramError: a step is left out, one comes that there is not, before what it reads, or again though it makes
            what stays when the program has ended; or a transfer is not started as often as it ends.
    """
    steps = [step for step in program.steps if not isinstance(step, FreeStep)]
    kept = lasting(program.graph)
    names = {item.name: item.name for item in program.graph.inputs}
    places, value_of = dict(program.places), dict(program.value_of)
    times = [0] * len(steps)
    ordered: list[Step] = []

    def read(buffer: str) -> str:
        if buffer not in names:
            raise ProgramError(f"step {number} reads {buffer}, which no step before it in the sequence makes")
        return names[buffer]

    def write(buffer: str) -> str:
        names[buffer] = buffer if times[number] == 0 else f"{buffer}~{times[number]}"
        places[names[buffer]], value_of[names[buffer]] = program.places[buffer], program.value_of[buffer]
        return names[buffer]

    for number in sequence:
        if not 0 <= number < len(steps):
            raise ProgramError(f"the sequence has step {number}: there are {len(steps)}, counted from 0")
        step = steps[number]
        if times[number] and not kept.isdisjoint(_made(step).targets):
            raise ProgramError(f"step {number} comes again, but what it makes stays")
        ordered.append(renamed(step, read, write))
        times[number] += 1
    if 0 in times:
        raise ProgramError(f"the sequence leaves out step {times.index(0)} of {len(steps)}")
    ends = {step.target: number for number, step in enumerate(steps) if isinstance(step, TransferStep)}
    for number, step in enumerate(steps):
        if isinstance(step, StartStep) and times[number] != times[ends[step.transfer.target]]:
            raise ProgramError(f"step {number} starts a transfer {times[number]} times, which ends otherwise")
    return arranged(replace(program, places=places, value_of=value_of), ordered, kept)


def _made(step: Step) -> Step:
    """What makes the targets: of a start the transfer that it begins."""
    return step.transfer if isinstance(step, StartStep) else step


def with_again(lives: Lifetimes, behind: int, again: Collection[int]) -> tuple[int, ...]:
    """The sequence in which steps come again, each right before its first reader behind a step.

    lives: of the program. behind: a position among its steps. again: those that come again, if anything behind reads
    what they make; views of that come again too. Cost: linear.
    """
    maker, makers, begun = lives.maker, lives.makers, lives.begun
    renewed = set(again)
    for position, base in sorted(lives.views.values()):
        if maker.get(base) in renewed:
            renewed.add(position)
    sequence: list[int] = []
    done: set[int] = set()

    def missing(number: int) -> list[int]:
        return [number for number in makers[number] if number in renewed and number not in done]

    for number in range(len(lives.steps)):
        if begun.get(number, number) > behind and not renewed.isdisjoint(makers[number]):  # a start reads the source
            pending = missing(number)[::-1]
            while pending:
                if before := missing(pending[-1]):
                    pending += before[::-1]
                elif (first := pending.pop()) not in done:
                    done.add(first)
                    sequence += [begun[first], first] if first in begun else [first]
        sequence.append(number)
    return tuple(sequence)
