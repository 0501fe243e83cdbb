"""Movements for devices that do different things: each class of like devices has its own, in its own order.

A program with several orders, such as a pipeline's, writes each step once for all devices. What moves on one class has
other names there (`girih.program.moves.moves`); so only that may move which one class alone holds and touches: weights,
optimizer state and activations of a stage, but not what several stages share. A transfer from one class to another
reads what the sender has in its place, and makes what the receiver keeps. The movements of a class come right before
the step of its own that they precede, so that all orders still follow that of the steps.

Cost: that of one class for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from girih.ops.scratch import ScratchSource, at_most
from girih.program.life.lifetimes import Lifetimes, lifetimes, unlike, widest
from girih.program.liveness import lasting
from girih.program.moves.moves import written
from girih.program.moves.residency import Residency
from girih.program.orders import Shares, arranged
from girih.program.program import Program
from girih.program.steps import FreeStep, StartStep, Step, TransferStep


def lifetimes_by_class(
    program: Program, followed: Sequence[int], threads: int = 0, scratch: ScratchSource = at_most
) -> tuple[Lifetimes, ...]:
    """The lifetimes of each class, in the order of `Program.classes`, with the largest part of each storage; movable is
    what a class has to itself. followed: devices whose parts are looked at, besides the first of each class."""
    shared = _shared(program)
    result = []
    for order in program.classes:
        members = sorted({order.devices.first, *(device for device in followed if device in order.devices)})
        lives = widest([lifetimes(program, device, threads, scratch) for device in unlike(program, members)])
        storages = [replace(item, movable=item.movable and shared.isdisjoint(item.buffers)) for item in lives.storages]
        pairs = tuple(pair for pair in lives.state if all(storages[number].movable for number in pair))
        for number in {number for pair in lives.state if pair not in pairs for number in pair}:
            storages[number] = replace(storages[number], movable=False)  # both of a pair, or neither
        result.append(replace(lives, storages=tuple(storages), state=pairs, known=None))
    return tuple(result)


def _shared(program: Program) -> set[str]:
    """Buffers that several classes hold, or that a step of several classes computes with."""
    shares = Shares(program)
    firsts = [order.devices.first for order in program.classes]
    shared = {buffer for buffer in program.places if sum(bool(shares.holders(buffer)[at]) for at in firsts) > 1}
    for step in program.steps:
        if isinstance(step, FreeStep | TransferStep | StartStep):
            continue
        if sum(bool(shares.of_step(step)[at]) for at in firsts) > 1:
            shared.update(step.sources)
            shared.update(step.targets)
    return shared


def moved_apart(lives: Sequence[Lifetimes], residencies: Sequence[Residency], cap: int) -> Program:
    """The program with the movements of each class, whose residency needs at most `cap` bytes.

    lives: of the classes of a program, as `lifetimes_by_class` has them; residencies: of each.
    """
    program = lives[0].program
    parts = [written(own, residency, cap) for own, residency in zip(lives, residencies, strict=True)]
    before: dict[int, list[Step]] = {}  # by position of a step, the movements that come before it
    versions: dict[int, Step] = {}
    ends: list[Step] = []
    for order, part in zip(program.classes, parts, strict=True):
        own = [at for at in order.steps if not isinstance(program.steps[at], FreeStep)]
        begin = 0
        for at, place in zip(own, part.places_of_steps, strict=True):
            before.setdefault(at, []).extend(part.steps[begin:place])
            versions[at] = _combined(program.steps[at], versions.get(at), part.steps[place])
            begin = place + 1
        ends += part.steps[begin:]
    steps: list[Step] = []
    for at, step in enumerate(program.steps):
        if not isinstance(step, FreeStep):
            steps += [*before.get(at, ()), versions.get(at, step)]
    places, value_of, host = dict(program.places), dict(program.value_of), set[str]()
    for part in parts:
        places |= part.places
        value_of |= part.value_of
        host |= part.host
    whole = replace(program, places=places, value_of=value_of, host=frozenset(host))
    return arranged(whole, [*steps, *ends], lasting(program.graph))


def _combined(step: Step, known: Step | None, other: Step) -> Step:
    """A step that several classes take, with the names that one of them has given to what it holds alone."""
    if known is None or known == step:
        return other
    assert other in (step, known), f"two classes have other names for what {step} reads"
    return known
