"""The Program: an ordered list of steps that all devices share, and each device's own instructions in it.

The steps are written once for all devices (the same order everywhere, so that exchanges match without tags); what a
step means on one device, its regions, attributes and peers, follows from the device's number. The Program that is
priced is the Program that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from girih.graph import Graph
from girih.layout import Layout, Mesh, Placement, level_volumes, part_shape, regions_of
from girih.lower.exchange import Exchange, Message, exchange, messages_of, terms_of
from girih.partition.strategy import Strategy


@dataclass(frozen=True)
class ReadPart:
    """One tensor input of a compute step: which buffer, and the region of the value that each device reads."""

    buffer: str
    needed: Placement


@dataclass(frozen=True)
class ComputeStep:
    """Every device computes its piece of a node.

    reads: one for each tensor input, in the node's order. writes: the buffer of each output.
    """

    node: int
    reads: tuple[ReadPart, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class BlockStep:
    """Every device computes its pieces of several nodes block by block: what is made and read inside exists one block
    long.

    members: in order. variables: of each member the index variable that is cut; all have the same range on a device.
    rows: the length of a block. reads, writes: buffers from outside, and those that are made whole.
    """

    members: tuple[ComputeStep, ...]
    variables: tuple[int, ...]
    rows: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class TransferStep:
    """A value changes its placement: from the buffer `source` to the new buffer `target`.

    purpose: `fetch` (an input of a node) or `store` (what a node made goes to its layout).
    reducer: how contributions combine, where partial sums (maxima, …) are resolved.
    """

    value: str
    node: int
    source: str
    target: str
    before: Placement
    after: Placement
    purpose: str
    reducer: str


@dataclass(frozen=True)
class StartStep:
    """The exchange of a later transfer begins: its messages are handed over, and the device goes on with its work.

    The transfer step itself, which comes later and is equal to `transfer`, waits for the messages and makes the target.
    """

    transfer: TransferStep


@dataclass(frozen=True)
class FreeStep:
    """Buffers that no later step reads."""

    buffers: tuple[str, ...]


Step: TypeAlias = ComputeStep | BlockStep | StartStep | TransferStep | FreeStep


@dataclass(frozen=True)
class Program:
    """What every device does in one application of the graph.

    places: where each buffer lies. streamed: inputs that lie elsewhere, and of which is read what is needed; files:
    buffers that lie in files, of which memory holds what the system pleases. stealing: workers are threads
    that compute chunks of each other's loops over blocks.
    """

    graph: Graph
    strategy: Strategy
    steps: tuple[Step, ...]
    places: dict[str, Placement]
    value_of: dict[str, str]
    streamed: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    stealing: bool = False

    @property
    def mesh(self) -> Mesh:
        return self.strategy.mesh

    @cached_property
    def transfers(self) -> tuple[TransferStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, TransferStep))

    def exchange_of(self, step: TransferStep) -> Exchange:
        """The messages of all devices, and the name of the collective: slow on large meshes."""
        return exchange(self.mesh, step.before, step.after)

    def messages_of(self, step: TransferStep, device: int) -> tuple[Message, ...]:
        """The messages that one device receives, sends or copies at home."""
        return messages_of(self.mesh, step.before, step.after, device)

    def terms_of(self, step: TransferStep) -> int:
        """How many contributions are combined: 1 where nothing is reduced."""
        return terms_of(self.mesh, step.before, step.after)

    def layout_regions(self, name: str) -> np.ndarray:
        """[devices, dimensions, 2]: where each device's part of a value lies."""
        layout: Layout = self.strategy.layouts[name]
        return regions_of(layout, self.graph.values[name].shape, self.mesh)

    def part_shape(self, buffer: str, place: Placement, device: int) -> tuple[int, ...]:
        """The shape of one device's part of a buffer's value at a place."""
        return part_shape(place.regions[device], self.graph.values[self.value_of[buffer]].shape)

    def bytes_received(self) -> np.ndarray:
        """Bytes that each device receives from others in one run of the program: [devices]. Exact.

        By volumes and not by messages, which are many on large meshes; a test holds both against each other.
        """
        total = np.zeros(self.mesh.devices, np.int64)
        for step in self.transfers:
            volumes = level_volumes(self.mesh, step.before, step.after)
            total += volumes.sum(axis=1) * self.graph.values[step.value].item_bytes
        return total

    def kinds(self) -> dict[str, tuple[int, int]]:
        """For each collective: how often, and the bytes received by all devices together."""
        found: dict[str, tuple[int, int]] = {}
        for step in self.transfers:
            swap = self.exchange_of(step)
            item = self.graph.values[step.value].item_bytes
            size = sum(message.elements * item for message in swap.messages if message.source != message.target)
            count, total = found.get(swap.kind, (0, 0))
            found[swap.kind] = (count + 1, total + size)
        return found

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)
