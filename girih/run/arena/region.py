"""A worker's region: the arena in which everything that it holds lies at its planned address.

Before each instruction the arena hears what the instruction may ask for (`Arena.ticket`), and behind it the results are
looked at. One that lies elsewhere is copied to its place: that happens once where several of a kernel's requests have
the result's size, as the arena then learns which of them it is; always where not all would fit then, and where a result
is not PyTorch's memory, as NumPy's. So a run whose kernels ask otherwise than planned goes on with the same bits, and
tells of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from girih.program import BlockStep, FreeStep, MoveStep, Program, StartStep, TransferStep
from girih.program.places.addresses import Addresses, Runs
from girih.run.arena.arena import Arena, take_library_buffers
from girih.run.arena.packing import owners, packed

Tensor = Any  # torch is untyped for the type checker
Slots = list[Any]


class Runnable(Protocol):
    """An instruction."""

    def run(self, slots: Slots, seconds: list[float]) -> None: ...


@dataclass(frozen=True)
class ArenaUse:
    """What was measured of a worker's arena. In bytes as asked for, not rounded.

    bytes: of the region, allocated once. bound: the most that the plan has alive at one time; no region is smaller.
    peak: the most in use at one time, with what lay outside. outside: the most that lay outside at one time. requests:
    how many were served outside; strays: results that lay elsewhere, and were copied to their places; moved: their
    bytes. All since the worker started, or since they were last reset (`Run.peak_bytes`).
    """

    bytes: int
    bound: int
    peak: int
    outside: int
    requests: int
    strays: int
    moved: int


class Region:
    """The arena of one worker. strict: memory that was not planned is refused.

    Raises:
        ArenaError: there can be none. MemoryError: the system does not give that much memory.
    """

    def __init__(self, addresses: Addresses, strict: bool = False) -> None:
        take_library_buffers()
        self.addresses = addresses
        self.arena = Arena(addresses.bytes, strict)
        self.strays = 0
        self.moved = 0
        self._asked: dict[int, tuple[list[tuple[int, int]], Runs]] = {}  # results and runs, by ticket
        self._hopeless: dict[int, bytes] = {}  # by ticket what was asked for, where no places were found
        self._strayed: set[int] = set()  # tickets of this step that were packed by where their results lay

    def serving(self) -> AbstractContextManager[None]:
        """This thread's tensors lie in the arena."""
        return self.arena.serving()

    def start_of(self, buffer: str) -> int | None:
        """The address of what lies in this buffer, as a pointer."""
        place = self.addresses.places.get(buffer)
        return None if place is None else self.arena.start + place[0]

    @contextmanager
    def making(self, buffer: str) -> Iterator[None]:
        """This thread's next tensor is the buffer, and lies in its place."""
        place = self.addresses.places.get(buffer)
        if place is None:
            yield
            return
        with self.arena.at(*place):
            yield

    def entering(self, buffer: str, tensor: Tensor) -> Tensor:
        """The tensor in the buffer's place: itself if it lies there, else a copy in its order of elements."""
        if buffer not in self.addresses.places or tensor.data_ptr() == self.start_of(buffer):
            return tensor
        with self.making(buffer):
            inside = torch.empty_like(tensor)
        return inside.copy_(tensor)

    def leaving(self, tensor: Tensor) -> Tensor:
        """The tensor, or a copy of one that lies in the arena: its memory is the next step's."""
        if not self.arena.holds(tensor):
            return tensor
        with self.arena.away():
            return tensor.clone()

    def use(self) -> ArenaUse:
        state, planned = self.arena.state(), self.addresses
        return ArenaUse(
            planned.bytes,
            planned.bound,
            state["peak"],
            state["outside_peak"],
            state["outside_requests"],
            self.strays,
            self.moved,
        )

    def restart(self) -> None:
        """Measure anew."""
        self.arena.state(restart=True)
        self.strays = self.moved = 0

    def placed(self, program: Program, rank: int, slots: Mapping[str, int], instructions: Sequence[Any]) -> list[Any]:
        """The instructions of one device with their tickets; those that ask for nothing, and copies, as they are."""
        places, scratch = self.addresses.places, iter(self.addresses.scratch)
        wrapped: list[Any] = []
        for step, instruction in zip(program.steps_of(rank), instructions, strict=True):
            if isinstance(step, FreeStep):
                wrapped.append(instruction)
                continue
            runs = next(scratch)
            transfer = step.transfer if isinstance(step, StartStep) else step
            if isinstance(transfer, MoveStep):
                wrapped.append(instruction)
                continue
            names = [transfer.target] if isinstance(transfer, TransferStep) else step.targets
            begins = isinstance(step, StartStep) and isinstance(transfer, TransferStep)
            if begins and program.terms_of(transfer) > 1:  # type: ignore[arg-type]  # the finish makes it
                names = []
            known = [name for name in names if name in places]
            ticket = self.arena.ticket([places[name] for name in known], runs)
            self._asked[ticket] = [places[name] for name in known], runs
            looked = [] if isinstance(step, StartStep) else [(slots[name], name) for name in known]
            wrapped.append(Placed(self, instruction, ticket, looked))
        return wrapped

    def learn(self) -> None:
        """Behind a step: calls whose scratch did not fit as it came have it packed from now on."""
        for ticket, requests in self.arena.failed():
            if ticket not in self._strayed:
                self._pack(ticket, requests, {})
        self._strayed.clear()

    def _pack(self, ticket: int, requests: np.ndarray, found: Mapping[int, int]) -> None:
        results, runs = self._asked[ticket]
        asked = requests[["bytes", "begin", "end"]].tobytes()
        if self._hopeless.get(ticket) == asked:
            return
        if (places := packed(requests, owners(requests, results, found), runs)) is not None:
            self.arena.teach(ticket, places)
        else:
            self._hopeless[ticket] = asked

    def put(self, slots: Slots, strays: list[tuple[int, str]], ticket: int) -> None:
        """Copy results to their places, and have the next calls serve them there, if all then fits."""
        self.strays += len(strays)
        places, start = self.addresses.places, self.arena.start
        found = {places[name][0]: slots[slot].data_ptr() - start for slot, name in strays}
        self._pack(ticket, self.arena.requests(ticket), found)
        self._strayed.add(ticket)
        if len(strays) > 1:  # one may lie in another's place
            for slot, _ in strays:
                slots[slot] = self.leaving(slots[slot])
        for slot, name in strays:
            self.moved += slots[slot].nbytes
            slots[slot] = self.entering(name, slots[slot])  # outside, where its place is not free


class Placed:
    """An instruction whose results lie in their places. looked: their slots and buffers."""

    __slots__ = ("instruction", "looked", "region", "ticket")

    def __init__(self, region: Region, instruction: Runnable, ticket: int, looked: list[tuple[int, str]]) -> None:
        self.region = region
        self.instruction = instruction
        self.ticket = ticket
        self.looked = [(slot, name, region.start_of(name)) for slot, name in looked]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        region = self.region
        region.arena.call(self.ticket)
        self.instruction.run(slots, seconds)
        strays = [
            (slot, name)
            for slot, name, start in self.looked
            if slots[slot] is not None and slots[slot].data_ptr() != start
        ]
        if strays:
            region.put(slots, strays, self.ticket)


def refusal(program: Program, device: Any) -> str:
    """Why the worker of a program cannot hold what it holds in an arena; "" where it can."""
    if device.type != "cpu":
        return f"{device.type} holds its limit by itself"
    if program.files or program.streamed:
        return "parts of the program lie in files"
    if program.stealing and any(isinstance(step, BlockStep) for step in program.steps):
        return "workers compute pieces of each other's loops"
    return ""
