"""Steps computed piece by piece, where one alone does not fit: over-partitioning, as VMesh's, inside a device.

What a single step touches is a floor below which moving tensors out cannot go. It falls where a large tensor never
exists whole. A tensor that is too large is cut along one of its dimensions, and so are all that make it and read it:
they become one loop over blocks (`BlockStep`), in which it exists one block long. Small results are written whole,
those in which the dimension is summed up are sums over the blocks (the weight gradient of a batch, the logarithm of a
sum of exponentials over the vocabulary). What reads a large tensor, but needs beside it something that is known only
when the loop has ended, goes into a later loop, in which the large tensor is computed again (the scores of attention,
in the backward pass). Where nothing needs to wait, forward and backward pass share one loop: the loss over a large
vocabulary with its gradient, or a whole perceptron, whose batch then comes in micro-batches.

Which tensors are too large is tried by size, largest first; along which dimension, by which loop needs less; in how
many blocks, from few to many. The first that keeps the cap is taken, else the one with the lowest floor. Cost: a few
walks of the program for each size, linear in its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from girih.ops.known import descriptions
from girih.program.check import ProgramError
from girih.program.fusion.block_memory import LoopBytes, loop_bytes
from girih.program.fusion.block_units import Unit, ordered
from girih.program.fusion.registers import Member, member_of, ranges
from girih.program.life.accounts import threads_here
from girih.program.life.lifetimes import Lifetimes
from girih.program.life.sequences import able, blocked
from girih.program.liveness import lasting
from girih.program.moves.residency import alone, alone_of, floor, floor_of
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep, StartStep, Step, renamed

MOST_SIZES = 6
"""So many sizes are tried, from which on a tensor is too large."""
GOALS = tuple(0.8**power for power in range(1, 21))
"""Shares of the floor that are aimed at where the cap itself was not reached."""
DERIVED, WALKED = 10_000.0, 200_000.0
"""Nanoseconds that a core of 2023 takes about for each step of a program: to say what it needs from the program without
loops, and to write and walk it."""

Spend = Callable[[float], None]
"""Told nanoseconds of work; raises `OutOfWorkError` where these are too many."""


class OutOfWorkError(Exception):
    """Nothing more is to be tried."""


@dataclass(frozen=True)
class InPieces:
    """Steps that are computed together, piece by piece.

    steps: positions among the program's steps that are not frees, ascending, each with the index variable along which
    it is cut. rows: values of the variable in each piece.
    """

    steps: tuple[tuple[int, int], ...]
    rows: int


def in_pieces(program: Program, loops: Sequence[InPieces]) -> Program:
    """The program with these loops in the place of their steps. A step that was in a loop before is computed again.

    Raises:
        ProgramError: a step cannot be cut so, or not with the others of its loop, or is none that computes.
    """
    steps = [step for step in program.steps if not isinstance(step, FreeStep)]
    kept, places, value_of = lasting(program.graph), dict(program.places), dict(program.value_of)
    times = dict.fromkeys((position for loop in loops for position, _ in loop.steps), 0)
    bodies: list[tuple[InPieces, list[ComputeStep]]] = []
    for loop in loops:
        names: dict[str, str] = {}
        dims: dict[str, int | None] = {}
        spans: set[bytes] = set()
        members: list[ComputeStep] = []
        for position, variable in loop.steps:
            step = steps[position] if 0 <= position < len(steps) else None
            cut = _member(program, step, variable) if isinstance(step, ComputeStep) else None
            if cut is None:
                raise ProgramError(f"step {position} cannot be computed in pieces of its index variable {variable}")
            step = cut.step
            spans.add(ranges(program, step, variable).tobytes())
            if len(spans) > 1 or any(dims.get(name, at) != at for name, at in _touched(cut)[:-1]):
                raise ProgramError(f"step {position} is not cut as the steps before it in its loop are: by {variable}")
            dims[cut.write] = cut.way.made
            for buffer in step.writes:
                name = names[buffer] = f"{buffer}~{times[position]}" if times[position] else buffer
                places[name], value_of[name] = program.places[buffer], program.value_of[buffer]
            member = renamed(step, lambda name, names=names: names.get(name, name), names.__getitem__)  # type: ignore[misc]
            assert isinstance(member, ComputeStep)
            members.append(member)
            times[position] += 1
        bodies.append((loop, members))
    alone = [(position, step) for position, step in enumerate(steps) if position not in times]
    outside = [set(step.sources) for _, step in alone]
    outside += [{name for member in members for name in member.sources} - _made(members) for _, members in bodies]
    wanted = kept.union(*outside)
    parts: list[tuple[Unit, list[Step]]] = [(Unit(0, position, step), [step]) for position, step in alone]
    first: set[int] = set()
    for (loop, members), reads in zip(bodies, outside[len(alone) :], strict=True):
        writes = tuple(member.writes[0] for member in members if member.writes[0] in wanted)
        variables = tuple(variable for _, variable in loop.steps)
        own = [position for position, _ in loop.steps if position not in first]
        first.update(own)
        block = BlockStep(tuple(members), variables, loop.rows, tuple(sorted(reads)), writes)
        parts.append((Unit(0, min(own, default=0)), [block]))
    parts.sort(key=lambda part: part[0].position)
    return arranged(replace(program, places=places, value_of=value_of), ordered(parts), kept)


def _made(members: Iterable[ComputeStep]) -> set[str]:
    return {name for member in members for name in member.writes}


def _member(program: Program, step: ComputeStep, variable: int) -> Member | None:
    """The step along a variable; None where it cannot be cut along it on every device."""
    description = descriptions(program.graph)[step.node]
    if description is None or variable >= description.rank or len(step.writes) != 1:
        return None
    members = [member_of(program, step, variable, device) for device in range(program.mesh.devices)]
    return None if None in members else members[0]


@dataclass(frozen=True)
class Cut:
    """Loops, and the floor of the program with them: bytes of the step that needs most by itself."""

    loops: tuple[InPieces, ...]
    floor: int


@dataclass(frozen=True)
class _Component:
    """Steps around a tensor that is too large. cut: of each such tensor the dimension that is cut. variables: of each
    step the index variable. length: of the range that all have. bodies: of each loop the steps, ascending."""

    cut: Mapping[str, int]
    variables: Mapping[int, int]
    length: int
    bodies: tuple[tuple[int, ...], ...]

    @property
    def steps(self) -> int:
        return sum(map(len, self.bodies))

    def loops(self, blocks: int) -> tuple[InPieces, ...]:
        rows = -(-self.length // min(blocks, self.length))
        return tuple(InPieces(tuple((at, self.variables[at]) for at in body), rows) for body in self.bodies)


@dataclass(frozen=True, eq=False)
class _Way:
    """A step along one of its index variables. span: the ranges of all devices. touched: as of `_touched`."""

    span: bytes
    member: Member
    touched: tuple[tuple[str, int], ...]


class _NotCutError(Exception):
    """A tensor cannot be cut with the others."""

    def __init__(self, buffer: str) -> None:
        super().__init__(buffer)
        self.buffer = buffer


class PieceFinder:
    """Finds loops for one program, under any cap; what was measured for one is not measured again for another.

    lives: of the program, which has neither loops nor movements. measured: the lifetimes of another program on the
    device, where they do not follow from these (`girih.program.life.sequences.blocked`). threads: of a worker. spend:
    told what is to be done, before it is. maker: by buffer the position of its step.
    """

    def __init__(
        self,
        lives: Lifetimes,
        measured: Callable[[Program], Lifetimes],
        threads: int = 0,
        spend: Spend = lambda nanoseconds: None,
    ) -> None:
        self.lives = lives
        self.measured = measured
        self.spend = spend
        self.threads = threads or threads_here(lives.program)
        self.whole = floor(lives)[0]
        self.needs: dict[tuple[InPieces, ...], tuple[int, int]] = {}
        self.dividing: dict[tuple[str, bytes], bool] = {}
        self.found: dict[tuple[str, int], tuple[_Component, ...]] = {}
        self.program = lives.program
        self.steps = lives.steps
        self.reads = [frozenset(step.sources) for step in lives.steps]
        self.maker, self.makers = lives.maker, lives.makers
        self.readers: dict[str, list[int]] = {}
        for position, reads in enumerate(self.reads):
            for name in reads:
                self.readers.setdefault(name, []).append(position)
        self.known: dict[int, list[_Way]] = {}

    @cached_property
    def derives(self) -> bool:
        """Does what programs with loops need follow from this one; or are they to be walked?"""
        return able(self.lives)

    def cuts(self, cap: int, *, nearest: bool = True) -> Cut:
        """Loops that keep every step within a cap; if none do, those with the lowest floor, or without `nearest` none.
        Where the work is over, the lowest until then.

        The cap itself is aimed at first, then shares of the floor that do not depend on the cap: so the lowest floor
        that is named where a cap cannot be kept can be kept as a cap.
        """
        best = plain = Cut((), self.whole)
        loops = any(isinstance(step, BlockStep | StartStep) for step in self.steps)
        if plain.floor <= cap or self.program.orders or loops:
            return plain
        try:
            if (exact := self.cut(cap)).floor <= cap:
                return exact
            for share in GOALS if nearest else ():
                candidate = self.cut(int(plain.floor * share))
                best = min(best, candidate, key=lambda one: one.floor)
                if candidate.floor <= cap or candidate.floor > plain.floor * share:
                    break
        except OutOfWorkError:
            if not nearest:
                raise
        return best

    def cut(self, cap: int) -> Cut:
        """The loops that are found first, if sizes from the largest on are too large."""
        lives, best = self.lives, Cut((), self.whole)
        too_large = {number for number, size in enumerate(alone(lives)) if size > cap}
        inner = [item for item in lives.storages if item.born >= 0 and not item.lasts and item.bytes]
        touched = [item for item in inner if not too_large.isdisjoint(item.touched)]
        seeds = {name: item.bytes for item in touched for name in item.buffers}
        for least in sorted({item.bytes for item in touched}, reverse=True)[:MOST_SIZES]:
            large = {name for item in inner if item.bytes >= least for name in item.buffers}
            chosen: list[_Component] = []
            for seed in sorted(seeds.keys() & large, key=lambda name: (-seeds[name], self.maker[name])):
                if any(seed in one.cut for one in chosen):
                    continue
                taken = {position for one in chosen for position in one.variables}
                if (seed, least) not in self.found:
                    self.found[seed, least] = tuple(self.components(seed, large))
                ways = [one for one in self.found[seed, least] if taken.isdisjoint(one.variables)]
                judged = [(max(cap, self.need(one.loops(one.length))[1]), one.steps, one) for one in ways]
                chosen += [min(judged, key=lambda item: item[:2])[2]] if judged else []
            if chosen:
                best = min(self.in_blocks(chosen, cap), best, key=lambda one: max(one.floor, cap))
            if best.floor <= cap:
                break
        return best

    def in_blocks(self, components: Sequence[_Component], cap: int) -> Cut:
        """The loops in as few blocks as keep the cap, or with the lowest floor."""
        longest = max(one.length for one in components)
        best: Cut | None = None
        for blocks in (2**power for power in range(1, longest.bit_length() + 1)):
            loops = tuple(loop for one in components for loop in one.loops(blocks))
            candidate = Cut(loops, self.need(loops)[0])
            best = candidate if best is None or candidate.floor < best.floor else best
            if best.floor <= cap:
                break
        assert best is not None
        return best

    def need(self, loops: tuple[InPieces, ...]) -> tuple[int, int]:
        """The floor of the program with these loops, and the bytes that the largest of them needs."""
        if loops not in self.needs:
            self.needs[loops] = self.derived(loops) or self.walked(loops)
        return self.needs[loops]

    def walked(self, loops: tuple[InPieces, ...]) -> tuple[int, int]:
        """The same of the program, written and walked."""
        self.spend(WALKED * len(self.steps))
        lives = self.measured(in_pieces(self.program, loops))
        sizes = zip(alone(lives), lives.steps, strict=False)
        largest = max(int(size) for size, step in sizes if isinstance(step, BlockStep))
        return floor(lives)[0], largest

    def derived(self, loops: tuple[InPieces, ...]) -> tuple[int, int] | None:
        """The same without a walk; None where it does not follow from the program without loops."""
        if not self.derives:
            return None
        self.spend(DERIVED * len(self.steps))
        first: dict[int, int] = {}  # of each step in loops the first of them: what it writes is read from there
        for number, loop in enumerate(loops):
            for position, _ in loop.steps:
                first.setdefault(position, number)
        inside = [{position for position, _ in loop.steps} for loop in loops]
        outside = [
            {name for at in own for name in self.reads[at] if self.maker.get(name, -1) not in own} for own in inside
        ]
        alone_at = [position for position in range(len(self.steps)) if position not in first]
        wanted = lasting(self.program.graph).union(*outside, *(self.reads[position] for position in alone_at))
        blocks: list[tuple[BlockStep, LoopBytes]] = []
        for number, (loop, reads) in enumerate(zip(loops, outside, strict=True)):
            members = tuple(self.steps[position] for position, _ in loop.steps)
            writes = [self.steps[at].targets[0] for at, _ in loop.steps if first[at] == number]
            variables = tuple(variable for _, variable in loop.steps)
            kept = tuple(name for name in writes if name in wanted)
            block = BlockStep(members, variables, loop.rows, tuple(sorted(reads)), kept)  # type: ignore[arg-type]
            blocks.append((block, loop_bytes(self.program, block, self.lives.device, self.threads)))
        order = self.order(inside, first, alone_at)
        touches = blocked(self.lives, blocks, order)
        if touches is None:
            return None
        sizes = alone_of(touches)
        return floor_of(touches)[0], int(sizes[:-1][order >= len(self.steps)].max())

    def order(
        self, inside: Sequence[Collection[int]], first: Mapping[int, int], alone_at: Sequence[int]
    ) -> NDArray[np.int64]:
        """Steps, and behind them numbered loops, in the order in which `in_pieces` puts them."""
        count = len(self.steps)
        unit = [count + first[at] if at in first else at for at in range(count)]
        needs: dict[int, set[int]] = {}  # of loops
        turns: dict[int, list[int]] = {at: [at] for at in alone_at}  # by position, the units whose place it is
        place = list(range(count + len(inside)))
        for number, own in enumerate(inside):
            loop = count + number
            needs[loop] = {unit[maker] for at in own for maker in self.makers[at] if maker not in own} - {loop}
            place[loop] = min((at for at in own if first[at] == number), default=0)
            turns.setdefault(place[loop], []).append(loop)
        done = [False] * len(place)
        waiting: dict[int, set[int]] = {}  # whose turn was before what they need was done
        readers: dict[int, list[int]] = {}
        ready: list[tuple[int, int]] = []
        order: list[int] = []

        def take(at: int) -> None:
            order.append(at)
            done[at] = True
            for reader in readers.pop(at, ()):
                waiting[reader].discard(at)
                if not waiting[reader]:
                    heappush(ready, (place[reader], reader))

        for position in sorted(turns):
            for at in turns[position]:
                needed = needs[at] if at >= count else [unit[maker] for maker in self.makers[at]]
                missing = {one for one in needed if not done[one]}
                if not missing:
                    take(at)
                    while ready:
                        take(heappop(ready)[1])
                    continue
                waiting[at] = missing
                for one in missing:
                    readers.setdefault(one, []).append(at)
        return np.asarray(order, np.int64)

    def members(self, position: int) -> list[_Way]:
        """A step along each variable along which it can be cut."""
        if position not in self.known:
            step = self.steps[position]
            description = descriptions(self.program.graph)[step.node]
            rank = description.rank if isinstance(step, ComputeStep) and description is not None else 0
            ways = [_member(self.program, step, variable) for variable in range(rank)]  # type: ignore[arg-type]
            self.known[position] = [
                _Way(ranges(self.program, way.step, way.variable).tobytes(), way, tuple(_touched(way)))
                for way in ways
                if way is not None
            ]
        return self.known[position]

    def components(self, seed: str, large: Collection[str]) -> Iterator[_Component]:
        """What is cut with a large buffer, along each of its dimensions. large: what should be cut, if it can."""
        for way in self.members(self.maker[seed]):
            self.spend(DERIVED * len(self.steps))
            span, member = way.span, way.member
            if member.way.made is None:
                continue
            wanted = {name for name in large if self.divisible(name, span)}
            while seed in wanted:
                try:
                    dims, variables = self.component(seed, member.way.made, span, wanted)
                except _NotCutError as error:
                    wanted.discard(error.buffer)
                else:
                    low, high = ranges(self.program, member.step, member.variable)[0].tolist()
                    bodies = self.bodies(dims, variables, span)
                    if bodies:  # else nothing is made of it
                        yield _Component(dims, variables, high - low, bodies)
                    break

    def divisible(self, buffer: str, span: bytes) -> bool:
        """Does it have a dimension along which its maker and each of its readers can be cut, whatever else is cut?"""
        if (buffer, span) not in self.dividing:
            steps = [self.members(at) for at in (self.maker[buffer], *self.readers.get(buffer, []))]
            dims = [
                {at for way in ways if way.span == span for name, at in way.touched if name == buffer} for ways in steps
            ]
            self.dividing[buffer, span] = any(at >= 0 for at in set.intersection(*dims))
        return self.dividing[buffer, span]

    def component(
        self, seed: str, dimension: int, span: bytes, large: Collection[str]
    ) -> tuple[dict[str, int], dict[int, int]]:
        """By large buffer the dimension that is cut, and by step the variable.

        Raises:
            _NotCutError: naming a large buffer that has to be whole.
        """
        dims, variables = {seed: dimension}, dict[int, int]()
        pending = [seed]
        while pending:
            buffer = pending.pop()
            for position in (self.maker[buffer], *self.readers.get(buffer, [])):
                way = self.fitting(position, span, dims, large, buffer)
                variables[position] = way.member.variable
                for name, at in way.touched:
                    if name in large and name not in dims:
                        dims[name] = at
                        pending.append(name)
        return dims, variables

    def fitting(self, position: int, span: bytes, dims: Mapping[str, int], large: Collection[str], buffer: str) -> _Way:
        """The step along the variable that reads and makes large buffers as they are cut."""
        blamed = buffer
        for way in self.members(position):
            if way.span != span or any(dims.get(name, at) != at for name, at in way.touched):
                continue
            whole = next((name for name, at in way.touched if at < 0 and name in large), None)
            if whole is None:
                return way
            blamed = whole
        raise _NotCutError(blamed)

    def bodies(self, large: Mapping[str, int], variables: dict[int, int], span: bytes) -> tuple[tuple[int, ...], ...]:
        """The steps of each loop: the first that a step can be in, with the steps before it that make large buffers
        again. Small steps between them join, if they can be cut too; they are added to `variables`."""
        between = self.ancestors(variables)
        loop_of: dict[int, int] = {}
        dims: dict[str, int] = {}  # of what is made inside of loops and not summed up
        whole: dict[str, int] = {}  # the first loop before which a buffer is there as a whole
        for position in range(len(self.steps)):
            way = self.joining(position, span, dims, variables) if position in between else None
            if way is None:
                if level := max((whole[name] for name in self.reads[position] if name in whole), default=0):
                    whole.update(dict.fromkeys(self.steps[position].targets, level))
                continue
            member = way.member
            variables[position] = member.variable
            level = loop_of[position] = max(
                (
                    loop_of[self.maker[name]] if dims.get(name) == at else whole.get(name, 0)
                    for name, at in way.touched[:-1]
                ),
                default=0,
            )
            whole[member.write] = level + 1
            if member.way.made is not None:
                dims[member.write] = member.way.made
        bodies: list[set[int]] = [set() for _ in range(max(loop_of.values(), default=-1) + 1)]
        for position, level in loop_of.items():  # large buffers are made where something that stays is made of them
            pending = [] if large.keys() >= set(self.steps[position].targets) else [position]
            while pending:
                at = pending.pop()
                if at in bodies[level]:
                    continue
                bodies[level].add(at)
                makers = [self.maker[name] for name in self.reads[at] if name in large]
                pending += [maker for maker in makers if loop_of[maker] <= level]
        return tuple(tuple(sorted(body)) for body in bodies if body)

    def ancestors(self, variables: Collection[int]) -> set[int]:
        """These steps, and all before them that they need."""
        needed = set(variables)
        for position in range(len(self.steps) - 1, -1, -1):
            if position in needed:
                needed.update(self.makers[position])
        return needed

    def joining(self, position: int, span: bytes, dims: Mapping[str, int], variables: Mapping[int, int]) -> _Way | None:
        """The step as it is cut; of steps that are not to be cut those that read block by block what others make."""
        inside = dims.keys() & self.reads[position]
        for way in self.members(position) if inside or position in variables else ():
            if position in variables:
                if way.member.variable == variables[position]:
                    return way
                continue
            made = way.member.way.made
            if way.span == span and made is not None and all(dims.get(name, at) == at for name, at in way.touched[:-1]):
                return way
        return None


def _touched(member: Member) -> list[tuple[str, int]]:
    """What a member reads and makes, with the dimension that is cut; -1 or less where it is whole."""
    read = [(part.buffer, at) for part, at in zip(member.step.reads, member.way.read, strict=True)]
    return [*read, (member.write, -1 if member.way.made is None else member.way.made)]
