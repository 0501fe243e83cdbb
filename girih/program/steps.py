"""The steps of a Program, and the order in which the devices of a class take them.

Every step says in the same words what it is: `node`, the node that it computes (a group the last), or for whose sake it
exchanges or copies, -1 of frees; `stream`; `sources`, the buffers that it reads; `targets`, those that it makes. A
transfer, or a move, reads its source from its start to its finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, TypeAlias

from girih.layout import Placement


class Stream(StrEnum):
    """What of a device a step keeps busy; what lies on different streams may run at one time.

    OUT, IN: copies from the device's memory to the large memory behind it, and back. MEMORY: nothing; the step only
    says which memory is free again, and takes no time.
    """

    COMPUTE = "compute"
    TRANSFER = "transfer"
    OUT = "copy out"
    IN = "copy in"
    MEMORY = "memory"


@dataclass(frozen=True)
class ReadPart:
    """One tensor input of a compute step: which buffer, and the region of the value that each device reads."""

    buffer: str
    needed: Placement


@dataclass(frozen=True)
class ComputeStep:
    """A device computes its piece of a node.

    reads: one for each tensor input, in the node's order. writes: the buffer of each output.
    """

    node: int
    reads: tuple[ReadPart, ...]
    writes: tuple[str, ...]
    stream: ClassVar[Stream] = Stream.COMPUTE

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(part.buffer for part in self.reads)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.writes


@dataclass(frozen=True)
class BlockStep:
    """A device computes its pieces of several nodes block by block: what is made and read inside exists one block
    long.

    members: in order. variables: of each member the index variable that is cut; all have the same range on a device.
    rows: the length of a block. reads, writes: buffers from outside, and those that are made whole.
    """

    members: tuple[ComputeStep, ...]
    variables: tuple[int, ...]
    rows: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    stream: ClassVar[Stream] = Stream.COMPUTE

    @property
    def node(self) -> int:
        return self.members[-1].node

    @property
    def sources(self) -> tuple[str, ...]:
        return self.reads

    @property
    def targets(self) -> tuple[str, ...]:
        return self.writes


class _FromTo:
    """One buffer becomes another."""

    source: str
    target: str

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)


@dataclass(frozen=True)
class TransferStep(_FromTo):
    """A value changes its placement: from the buffer `source` to the new buffer `target`.

    purpose: `fetch` (an input of a node) or `store` (what a node made goes to its layout).
    reducer: how contributions combine, where partial sums (maxima, …) are resolved, or made of what is whole.
    """

    value: str
    node: int
    source: str
    target: str
    before: Placement
    after: Placement
    purpose: str
    reducer: str
    stream: ClassVar[Stream] = Stream.TRANSFER


@dataclass(frozen=True)
class MoveStep(_FromTo):
    """A buffer is copied to the large memory behind the device, or back: to a new buffer `target`, in which its
    elements lie in the same order (SwapAdvisor §4.3.2, swap-out and swap-in).

    node: for whose sake. out: to the large memory.
    """

    value: str
    node: int
    source: str
    target: str
    out: bool

    @property
    def stream(self) -> Stream:
        return Stream.OUT if self.out else Stream.IN

    @property
    def purpose(self) -> str:
        return str(self.stream)


@dataclass(frozen=True)
class StartStep:
    """The exchange of a later transfer, or the copy of a later move, begins, and the device goes on with its work.

    The step itself, which comes later and is equal to `transfer`, waits for the messages, or for the copy, and makes
    the target. after: targets of moves that must have ended before this one begins, because it takes the memory that
    they leave; the device does not wait for them.
    """

    transfer: TransferStep | MoveStep
    after: tuple[str, ...] = ()
    targets: ClassVar[tuple[str, ...]] = ()

    @property
    def node(self) -> int:
        return self.transfer.node

    @property
    def sources(self) -> tuple[str, ...]:
        return self.transfer.sources

    @property
    def stream(self) -> Stream:
        return self.transfer.stream


@dataclass(frozen=True)
class FreeStep:
    """Buffers that no later step of the device reads."""

    buffers: tuple[str, ...]
    stream: ClassVar[Stream] = Stream.MEMORY
    node: ClassVar[int] = -1
    sources: ClassVar[tuple[str, ...]] = ()
    targets: ClassVar[tuple[str, ...]] = ()


Step: TypeAlias = ComputeStep | BlockStep | StartStep | TransferStep | MoveStep | FreeStep


Renaming = Callable[[str], str]


def renamed(step: Step, read: Renaming, write: Renaming) -> Step:
    """The step with the names of what it reads, then of what it writes, replaced: each is asked for once, in order."""
    if isinstance(step, StartStep):
        transfer = renamed(step.transfer, read, write)
        assert isinstance(transfer, TransferStep | MoveStep)
        return StartStep(transfer, step.after)
    if isinstance(step, TransferStep | MoveStep):
        return replace(step, source=read(step.source), target=write(step.target))
    assert isinstance(step, ComputeStep | BlockStep)
    names = {buffer: read(buffer) for buffer in step.sources}
    names |= {buffer: write(buffer) for buffer in step.targets}
    if all(name == buffer for buffer, name in names.items()):
        return step
    if isinstance(step, ComputeStep):
        return _on(step, names)
    members = tuple(_on(member, names) for member in step.members)
    reads, writes = (tuple(names[name] for name in buffers) for buffers in (step.reads, step.writes))
    return replace(step, members=members, reads=reads, writes=writes)


def _on(step: ComputeStep, names: dict[str, str]) -> ComputeStep:
    reads = tuple(ReadPart(names.get(part.buffer, part.buffer), part.needed) for part in step.reads)
    return ComputeStep(step.node, reads, tuple(names.get(name, name) for name in step.writes))


@dataclass(frozen=True)
class Devices:
    """A set of devices, as ranges: thousands in a row, or at equal distances, are one range."""

    ranges: tuple[range, ...]

    @staticmethod
    def of(numbers: Iterable[int]) -> Devices:
        """Equal sets have equal ranges, each as long as it can be from the smallest number on."""
        left = sorted(set(numbers))
        ranges: list[range] = []
        at = 0
        while at < len(left):
            distance = left[at + 1] - left[at] if at + 1 < len(left) else 1
            end = at + 1
            while end < len(left) and left[end] - left[end - 1] == distance:
                end += 1
            if end - at == 2 and distance > 1:  # two alone, or the second begins a range
                end, distance = at + 1, 1
            ranges.append(range(left[at], left[end - 1] + 1, distance))
            at = end
        return Devices(tuple(ranges))

    @property
    def first(self) -> int:
        return self.ranges[0].start

    def __contains__(self, device: int) -> bool:
        return any(device in part for part in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for part in self.ranges:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __str__(self) -> str:
        """`0-3, 8, 16-30:2`"""
        return ", ".join(
            str(part.start)
            if len(part) == 1
            else f"{part.start}-{part[-1]}" + (f":{part.step}" if part.step != 1 else "")
            for part in self.ranges
        )


@dataclass(frozen=True)
class Order:
    """What devices that are alike do, one step behind the other: positions in the program's `steps`.

    Classes that do the same share one tuple.
    """

    devices: Devices
    steps: tuple[int, ...]
