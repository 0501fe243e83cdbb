"""The Program: what devices do, each class of like devices in an order of its own.

The steps are written once for all devices; what a step means on one device, its regions, attributes and peers, follows
from the device's number. An order names the steps that a device takes part in. All orders follow one order of all
steps, that of `steps`: whoever is at the earliest step that is not done can do it, so that nobody waits in a circle,
and two devices send each other their messages in one order, without tags. The Program that is priced is the Program
that runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from girih.graph import Graph
from girih.layout import Mesh, Placement, level_volumes, part_shape, regions_of
from girih.partition.strategy import Strategy
from girih.program.exchange import Exchange, Message, exchange, messages_of, terms_of
from girih.program.places.addresses import Addresses
from girih.program.steps import Devices, MoveStep, Order, Step, TransferStep
from girih.program.table import Table, table_of
from girih.program.text import Written, parse_written, written_text


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What devices do in one application of the graph.

    steps: each once, in an order that all devices' orders follow. places: where each buffer lies. value_of: of which
    value it is. streamed: inputs that lie elsewhere, and of which is read what is needed; files: buffers that lie in
    files, of which memory holds what the system pleases. stealing: workers are threads that compute chunks of each
    other's loops over blocks. orders: what the devices of each class do; empty where all devices do all steps. host:
    buffers that lie in the large memory behind the devices, state among them; moves alone read and make them.
    addresses: by device where everything lies in one region of memory; empty where nobody has asked, or some state has
    no address that stays from step to step.
    """

    graph: Graph
    strategy: Strategy
    steps: tuple[Step, ...]
    places: dict[str, Placement]
    value_of: dict[str, str]
    streamed: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    stealing: bool = False
    orders: tuple[Order, ...] = ()
    host: frozenset[str] = frozenset()
    addresses: tuple[Addresses, ...] = ()

    @property
    def mesh(self) -> Mesh:
        return self.strategy.mesh

    @cached_property
    def classes(self) -> tuple[Order, ...]:
        """The classes of like devices, at least one: `orders` where devices differ."""
        everywhere = Devices((range(self.mesh.devices),))
        return self.orders or (Order(everywhere, tuple(range(len(self.steps)))),)

    def order_of(self, device: int) -> tuple[int, ...]:
        """The positions in `steps` of what a device does, in its order."""
        return next((order.steps for order in self.classes if device in order.devices), ())

    def steps_of(self, device: int) -> tuple[Step, ...]:
        """What a device does, in its order."""
        return tuple(self.steps[number] for number in self.order_of(device))

    @property
    def table(self) -> Table:
        """The steps as columns."""
        return self._numbered[0]

    @property
    def numbers(self) -> dict[str, int]:
        """By buffer its number in `table`: the graph's inputs, in their order, then as steps name them."""
        return self._numbered[1]

    @cached_property
    def _numbered(self) -> tuple[Table, dict[str, int]]:
        return table_of(self.steps, (item.name for item in self.graph.inputs))

    @cached_property
    def transfers(self) -> tuple[TransferStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, TransferStep))

    @cached_property
    def moves(self) -> tuple[MoveStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, MoveStep))

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
        return regions_of(self.strategy.layouts[name], self.graph.values[name].shape, self.mesh)

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
        counts: dict[str, tuple[int, int]] = {}
        for step in self.transfers:
            swap = self.exchange_of(step)
            item = self.graph.values[step.value].item_bytes
            size = sum(message.elements * item for message in swap.messages if message.source != message.target)
            count, total = counts.get(swap.kind, (0, 0))
            counts[swap.kind] = (count + 1, total + size)
        return counts

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        alike = self.graph == other.graph and self.strategy == other.strategy
        return self is other or (alike and str(self) == str(other))

    def __repr__(self) -> str:
        return f"<Program: {len(self.steps)} steps on {self.mesh.devices} devices, {len(self.classes)} orders>"

    def __str__(self) -> str:
        """All of it but graph and strategy: the text that `Program.parse` reads."""
        return written_text(Written(*(getattr(self, name) for name in Written._fields)))

    @staticmethod
    def parse(text: str, graph: Graph, strategy: Strategy) -> Program:
        """The program that `str` has written: equal to the one before.

        Raises:
            ValueError: naming the line that cannot be read.
        """
        return Program(graph, strategy, *parse_written(text))
