"""Writes movements into a Program: copies out and in, what waits for what, and views that are looked at anew.

A storage that comes back is a new buffer, `x^1`, `x^2`, …; its copy in the large memory is `x^host`. State that lies in
the large memory between applications keeps its names there, so that the device's part of `w` is `w^1`.

- A copy out begins right behind the last use, and frees its source when it ends.
- A copy in begins where the residency says. Where there is no room yet, it takes over the memory that copies out leave,
  and waits for them by itself: the device goes on.
- A step that needs memory that copies out have not left yet waits for the oldest ones.
- Buffers that are views of a storage are not copied: the step that made the view is done again where it is read next.

All of this is SwapAdvisor's augmented dataflow graph with its control edges (§4.3.2).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from girih.layout import Placement
from girih.program.life.lifetimes import Lifetimes
from girih.program.liveness import lasting
from girih.program.moves.residency import Residency, Stay
from girih.program.moves.script_kernels import END_OUT, IN, OUT, STEP, script
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import ComputeStep, MoveStep, StartStep, Step, renamed


def moved(lives: Lifetimes, residency: Residency, cap: int) -> Program:
    """The program with the movements of a residency that needs at most `cap` bytes.

    Raises:
        ValueError: the program has several orders, or moves already.
    """
    program = lives.program
    if program.orders:
        raise ValueError("expected a program in which all devices do the same: see `girih.program.moves.apart`")
    part = written(lives, residency, cap)
    whole = replace(program, places=part.places, value_of=part.value_of, host=part.host)
    return arranged(whole, part.steps, lasting(program.graph))


@dataclass(frozen=True)
class Written:
    """What the devices of one class do. steps: but for frees; places_of_steps: of the program's own steps among them.
    places, value_of, host: of the program's buffers and those of the movements."""

    steps: tuple[Step, ...]
    places_of_steps: tuple[int, ...]
    places: dict[str, Placement]
    value_of: dict[str, str]
    host: frozenset[str]


def written(lives: Lifetimes, residency: Residency, cap: int) -> Written:
    """The steps of the devices of these lifetimes with the movements of a residency.

    Raises:
        ValueError: the program moves already.
    """
    if lives.program.host:
        raise ValueError("expected a program without moves: start from `lower`")
    return _Writer(lives, residency, cap).write()


class _Writer:
    """names: of each buffer that can be read now. times: how often each storage has come. copies: its copy in the large
    memory, once it has one. underway: the moves of stays, out and in."""

    def __init__(self, lives: Lifetimes, residency: Residency, cap: int) -> None:
        self.lives = lives
        self.program = lives.program
        self.residency = residency
        self.cap = cap
        self.storage_of = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
        self.steps: list[Step] = []
        self.own: list[int] = []  # where the program's steps are among them
        self.places = dict(self.program.places)
        self.value_of = dict(self.program.value_of)
        self.host: set[str] = set()
        self.names: dict[str, str] = {}
        self.times = [0] * len(lives.storages)
        stays = Counter(stay.storage for stay in residency.stays)
        self.plain = {  # in which stay buffers keep their names: the one in which they leave the program, or the first
            number: -1 if number in residency.home else stays[number] - 1 if item.lasts else 0
            for number, item in enumerate(lives.storages)
        }
        self.copies: dict[int, str] = {}
        self.underway: dict[tuple[int, bool], MoveStep] = {}
        self.node = 0

    def write(self) -> Written:
        stays, steps = self.residency.stays, self.lives.steps
        sizes = np.asarray([item.bytes for item in self.lives.storages], np.int64)
        plan = script(self.residency.rows, sizes, self.lives.extra, self.cap)
        after, begin, end = plan.after.tolist(), plan.after_from.tolist(), plan.after_to.tolist()
        leaving: dict[int, list[Stay]] = {}  # without a copy, behind each step
        for stay in stays:
            if not stay.lasts and not stay.copied:
                leaving.setdefault(stay.last, []).append(stay)
        self.begin()
        for stay in leaving.get(-1, []):
            self.forget(stay)
        for what, number in plan.events.tolist():
            if what == STEP and number < len(steps):
                self.node = steps[number].node
                self.steps.append(renamed(steps[number], self.read, self.write_name))
                self.own.append(len(self.steps) - 1)
                for stay in leaving.get(number, []):
                    self.forget(stay)
            elif what == STEP:
                for item in self.program.graph.outputs:
                    if item.name not in self.host:
                        self.read(item.name)
            elif what == OUT:
                self.start_out(stays[number], number)
            elif what == IN:
                self.start_in(stays[number], number, after[begin[number] : end[number]])
            else:
                self.finish(stays[number], number, what == END_OUT)
        return Written(tuple(self.steps), tuple(self.own), self.places, self.value_of, frozenset(self.host))

    def begin(self) -> None:
        """Inputs of the program: on the device, or, of state at home in the large memory, there."""
        for item in self.program.graph.inputs:
            number = self.storage_of[item.name]
            if number in self.residency.home:
                self.copies[number] = item.name
                self.host.add(item.name)
            else:
                self.names[item.name] = self.named(item.name, number)

    def named(self, buffer: str, number: int) -> str:
        """The name of a buffer in the present stay of its storage."""
        times = self.times[number]
        if times == self.plain[number]:
            return buffer
        return self.known(f"{buffer}^{times}", buffer)

    def known(self, name: str, buffer: str) -> str:
        self.places[name], self.value_of[name] = self.program.places[buffer], self.program.value_of[buffer]
        return name

    def start_in(self, stay: Stay, number: int, after: list[int]) -> None:
        """A copy in begins; after: the stays whose copies out it waits for."""
        name = self.lives.storages[stay.storage].name
        self.times[stay.storage] += 1
        target = self.named(name, stay.storage)
        if stay.start < len(self.lives.steps):
            self.node = self.lives.steps[stay.start].node
        move = MoveStep(self.value_of[target], self.node, self.copies[stay.storage], target, out=False)
        self.underway[number, False] = move
        self.steps.append(StartStep(move, tuple(self.underway[other, True].target for other in after)))

    def start_out(self, stay: Stay, number: int) -> None:
        """A copy out begins, and the storage leaves the device."""
        storage = self.lives.storages[stay.storage].name
        home = stay.storage in self.residency.home
        target = storage if home else self.known(f"{storage}^host", storage)
        source = self.read(storage)
        move = MoveStep(self.value_of[source], self.node, source, target, out=True)
        self.copies[stay.storage] = target
        self.host.add(target)
        self.underway[number, True] = move
        self.steps.append(StartStep(move))
        self.forget(stay)

    def finish(self, stay: Stay, number: int, out: bool) -> None:
        move = self.underway.pop((number, out))
        self.steps.append(move)
        if not out:
            self.names[self.lives.storages[stay.storage].name] = move.target

    def forget(self, stay: Stay) -> None:
        """A storage is no longer on the device: nobody reads its buffers there."""
        for buffer in self.lives.storages[stay.storage].buffers:
            self.names.pop(buffer, None)

    def read(self, buffer: str) -> str:
        """The name under which a buffer can be read now; a view is looked at anew."""
        number = self.storage_of.get(buffer)
        if number is None:  # the device has no part of it
            return buffer
        if buffer not in self.names:
            position, base = self.lives.views[buffer]
            step = self.lives.steps[position]
            assert isinstance(step, ComputeStep)
            reads = (replace(step.reads[0], buffer=self.read(base)),)
            self.names[buffer] = self.named(buffer, number)
            self.steps.append(ComputeStep(step.node, reads, (self.names[buffer],)))
        return self.names[buffer]

    def write_name(self, buffer: str) -> str:
        number = self.storage_of.get(buffer)
        if number is None:
            return buffer
        self.names[buffer] = self.named(buffer, number)
        return self.names[buffer]
