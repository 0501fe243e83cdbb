"""Transfer instructions: a new buffer from the parts at home and messages of peers, slices looked up beforehand.

An exchange starts and finishes, at once or with other instructions between:

- start: what must be contiguous is packed; the target is made, unless contributions are combined in it; receives and
  sends are handed to the transport.
- finish: what is at home is copied; the messages are waited for; what did not arrive in the target itself is placed or
  combined there, in the order of terms. Then packed and received pieces are let go.

Between the two, the source, the packed pieces and what is received into are held; the target's slot holds the exchange
under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from time import perf_counter
from typing import Any

import torch

from girih.layout import becomes_partial
from girih.program import Program, TransferStep
from girih.program.life.strides import contiguous_strides, is_contiguous
from girih.run.tiles.spill import in_memory
from girih.run.transport.transport import Messages, Transport
from girih.run.worker.compute import Slots
from girih.run.worker.parts import COMBINE, Cuts, Tensor, held_box, narrow, neutral, relative, shape_of

TRANSFERS = 1  # position in the measured seconds


@dataclass(slots=True)
class ExchangeUnderway:
    """An exchange between its start and its finish.

    target: where it is made already, else None. sends: held, because the transport only refers to them.
    arriving: for each message what it is received into, if that is not the target itself.
    """

    wait: Callable[[], None]
    target: Tensor | None
    sends: Messages
    arriving: list[Tensor | None]


class Transfer:
    """Assemble a new buffer from the parts at home and the messages of peers.

    Where contributions are combined, that is done in the order of terms, on every device that keeps a copy: copies
    then have the same bits. Where a value becomes partial results, what nobody keeps as its term begins with what
    changes none: zeros of sums.
    """

    __slots__ = (
        "begins", "combine", "device", "dtype", "placed", "receives", "sends", "shape", "source", "target", "transport"
    )  # fmt: skip

    def __init__(self, program: Program, step: TransferStep, rank: int, slots: Mapping[str, int], transport: Transport,
                 device: Any) -> None:  # fmt: skip
        messages = program.messages_of(step, rank)
        if not program.graph.values[step.value].shape:
            messages = tuple(replace(message, box=()) for message in messages)
        held = held_box(program, step.source, step.before, rank)
        goal = held_box(program, step.target, step.after, rank)
        self.source = slots[step.source]
        self.target = slots[step.target]
        self.shape = shape_of(goal)
        self.dtype = getattr(torch, program.graph.values[step.value].dtype)
        self.device = device
        self.transport = transport
        self.combine = COMBINE[step.reducer] if program.terms_of(step) > 1 else None
        self.begins = neutral(step.reducer, self.dtype) if becomes_partial(step.before, step.after) else None
        mine = sorted((message for message in messages if message.target == rank), key=attrgetter("term"))
        self.sends = [
            (message.target, relative(message.box, held))
            for message in messages
            if message.source == rank and message.target != rank
        ]
        # What is received: from whom, where in the target, which shape, and may it arrive there directly.
        strides = contiguous_strides(self.shape)
        self.receives = [
            (
                message.source,
                relative(message.box, goal),
                shape_of(message.box),
                self.combine is None and (not transport.packs or is_contiguous(shape_of(message.box), strides)),
            )
            for message in mine
            if message.source != rank
        ]
        # What is placed, in order of terms: where, is it a first term, and cuts of the source if it is at home.
        self.placed: list[tuple[Cuts, bool, Cuts | None]] = [
            (
                relative(message.box, goal),
                message.term == 0,
                relative(message.box, held) if message.source == rank else None,
            )
            for message in mine
        ]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        self.finish(slots, self.start(slots))
        seconds[TRANSFERS] += perf_counter() - began

    def start(self, slots: Slots) -> ExchangeUnderway:
        source, packs = slots[self.source], self.transport.packs
        target = self._empty(self.shape) if self.combine is None else None
        if self.begins is not None and target is not None:
            target.fill_(self.begins)
        sends: list[tuple[int, Tensor]] = []
        packed: dict[Cuts, Tensor] = {}
        for peer, cuts in self.sends:
            part = in_memory(narrow(source, cuts))
            if packs and not part.is_contiguous():
                if cuts not in packed:
                    packed[cuts] = torch.empty(part.shape, dtype=part.dtype, device=part.device)
                    _copy(packed[cuts], part)
                part = packed[cuts]
            sends.append((peer, part))
        arriving: list[Tensor | None] = []
        receives: list[tuple[int, Tensor]] = []
        for peer, cuts, shape, direct in self.receives:
            part = None if direct else self._empty(shape)
            arriving.append(part)
            receives.append((peer, narrow(target, cuts) if direct else part))
        return ExchangeUnderway(self.transport.begin(sends, receives), target, sends, arriving)

    def finish(self, slots: Slots, underway: ExchangeUnderway) -> None:
        source, combine = slots[self.source], self.combine
        target = self._empty(self.shape) if underway.target is None else underway.target
        if combine is None:
            for cuts, _, own in self.placed:
                if own is not None:
                    _copy(narrow(target, cuts), in_memory(narrow(source, own)))
        underway.wait()
        arriving = iter(underway.arriving)
        for cuts, first, own in self.placed:
            if own is None:
                part = next(arriving)
            else:
                part = None if combine is None else in_memory(narrow(source, own))
            if part is None:  # it is there already
                continue
            if first or combine is None:
                _copy(narrow(target, cuts), part)
            else:
                combine(narrow(target, cuts), part)
        slots[self.target] = target

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)


class Start:
    """The start of a transfer that another instruction finishes."""

    __slots__ = ("transfer",)

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        slots[self.transfer.target] = self.transfer.start(slots)
        seconds[TRANSFERS] += perf_counter() - began


class Finish:
    """The finish of a transfer that another instruction has started."""

    __slots__ = ("transfer",)

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer

    def run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        self.transfer.finish(slots, slots[self.transfer.target])
        seconds[TRANSFERS] += perf_counter() - began


def _copy(target: Tensor, part: Tensor) -> None:
    """Copies a part. A matrix that lies transposed is copied as its transpose: PyTorch would take a buffer of its own
    for blocks of it, which no account of memory knows."""
    if part.dim() == 2 and part.stride(0) == 1 and target.is_contiguous():
        target, part = target.t(), part.t()
    target.copy_(part)
