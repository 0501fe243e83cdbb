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
from collections.abc import Iterable
from dataclasses import dataclass, replace

from girih.layout import Placement
from girih.lower.liveness import lasting
from girih.lower.orders import arranged
from girih.lower.program import Program
from girih.lower.renamed import renamed
from girih.lower.steps import ComputeStep, MoveStep, StartStep, Step, node_of
from girih.memory.lifetimes import Lifetimes
from girih.memory.residency import Residency, Stay


def moved(lives: Lifetimes, residency: Residency, cap: int) -> Program:
    """The program with the movements of a residency that needs at most `cap` bytes.

    Raises:
        ValueError: the program has several orders, or moves already.
    """
    program = lives.program
    if program.orders:
        raise ValueError("expected a program in which all devices do the same: see `girih.memory.apart`")
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
    """used: bytes on the device. names: of each buffer that can be read now. times: how often each storage has come.
    copies: its copy in the large memory, once it has one. underway: moves by their targets. leaving: by the target of
    a copy out, bytes that it will leave, less what others have taken over; waits: by that of a copy in, the copies out
    that it waits for.
    """

    def __init__(self, lives: Lifetimes, residency: Residency, cap: int) -> None:
        self.lives = lives
        self.program = lives.program
        self.cap = cap
        self.residency = residency
        self.storage_of = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
        self.steps: list[Step] = []
        self.own: list[int] = []  # where the program's steps are among them
        self.places = dict(self.program.places)
        self.value_of = dict(self.program.value_of)
        self.host: set[str] = set()
        self.used = 0
        self.names: dict[str, str] = {}
        self.times = [0] * len(lives.storages)
        stays = Counter(stay.storage for stay in residency.stays)
        self.plain = {  # in which stay buffers keep their names: the one in which they leave the program, or the first
            number: -1 if number in residency.home else stays[number] - 1 if item.lasts else 0
            for number, item in enumerate(lives.storages)
        }
        self.copies: dict[int, str] = {}
        self.underway: dict[str, MoveStep] = {}
        self.leaving: dict[str, int] = {}
        self.waits: dict[str, tuple[str, ...]] = {}
        self.node = 0

    def write(self) -> Written:
        stays, extra = self.residency.stays, self.lives.extra
        fresh = _grouped((stay.start, stay) for stay in stays if stay.fresh)
        starting = _grouped((stay.start, stay) for stay in stays if not stay.fresh)
        arriving = _grouped((stay.first, stay) for stay in stays if not stay.fresh)
        ending = _grouped((stay.last, stay) for stay in stays if not stay.lasts)
        self.begin(fresh.get(-1, []))
        for stay in ending.get(-1, []):
            self.end(stay)
        for number, step in enumerate((*self.lives.steps, None)):
            if step is not None:
                self.node = node_of(step)
            coming = sum(self.bytes_of(stay) for stay in fresh.get(number, [])) + int(extra[number])
            for stay in starting.get(number, []):
                self.start(stay, coming)
            for stay in arriving.get(number, []):
                self.arrive(stay)
            self.make_room(coming)
            if step is not None:
                self.steps.append(renamed(step, self.read, self.write_name))
                self.own.append(len(self.steps) - 1)
            self.used += coming - int(extra[number])
            for stay in ending.get(number, []):
                self.end(stay)
        for item in self.program.graph.outputs:
            if item.name not in self.host:
                self.read(item.name)
        for target in list(self.underway):
            self.finish(target)
        return Written(tuple(self.steps), tuple(self.own), self.places, self.value_of, frozenset(self.host))

    def bytes_of(self, stay: Stay) -> int:
        return self.lives.storages[stay.storage].bytes

    def begin(self, stays: Iterable[Stay]) -> None:
        """Inputs of the program: on the device, or, of state at home in the large memory, there."""
        self.used = sum(self.bytes_of(stay) for stay in stays)
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

    def start(self, stay: Stay, coming: int) -> None:
        """A copy in begins. coming: bytes that the step needs besides, for which there is to be room."""
        number, wanted = stay.storage, self.bytes_of(stay)
        storage, copy = self.lives.storages[number], self.copies[stay.storage]
        self.times[number] += 1
        after = []
        own = [copy] if copy in self.underway else []
        for target in dict.fromkeys([*own, *self.leaving]):
            if target not in own and self.used + storage.bytes + coming <= self.cap:
                break
            taken = min(wanted, self.leaving.get(target, 0))
            if taken or target in own:
                self.leaving[target] -= taken
                self.used -= taken
                wanted -= taken
                after.append(target)
        target = self.named(storage.name, number)
        move = MoveStep(self.value_of[target], self.node, copy, target, out=False)
        self.waits[target] = tuple(after)
        self.underway[target] = move
        self.steps.append(StartStep(move, self.waits[target]))
        self.used += self.bytes_of(stay)

    def arrive(self, stay: Stay) -> None:
        storage = self.lives.storages[stay.storage]
        target = self.named(storage.name, stay.storage)
        for other in self.waits.pop(target):
            if other in self.underway:  # the copy in has waited for it
                self.finish(other)
        self.finish(target)
        self.names[storage.name] = target

    def finish(self, target: str) -> None:
        self.steps.append(self.underway.pop(target))
        self.used -= self.leaving.pop(target, 0)

    def make_room(self, coming: int) -> None:
        for target in list(self.leaving):
            if self.used + coming <= self.cap:
                return
            self.finish(target)

    def end(self, stay: Stay) -> None:
        """A storage leaves the device: with a copy, or because nobody needs it, or because there is a copy."""
        number = stay.storage
        storage = self.lives.storages[number]
        if stay.copied:
            target = storage.name if number in self.residency.home else self.known(f"{storage.name}^host", storage.name)
            source = self.read(storage.name)
            move = MoveStep(self.value_of[source], self.node, source, target, out=True)
            self.copies[number] = target
            self.host.add(target)
            self.underway[target] = move
            self.leaving[target] = storage.bytes
            self.steps.append(StartStep(move))
        else:
            self.used -= storage.bytes
        for buffer in storage.buffers:
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


def _grouped(items: Iterable[tuple[int, Stay]]) -> dict[int, list[Stay]]:
    groups: dict[int, list[Stay]] = {}
    for step, stay in items:
        groups.setdefault(step, []).append(stay)
    return groups
