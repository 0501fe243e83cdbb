"""Transfer instructions: a new buffer from the parts at home and messages of peers, slices looked up beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch

from girih.lower import Message, Program, TransferStep
from girih.run.compute import Slots
from girih.run.parts import Cuts, Tensor, as_box, narrow, relative, shape_of
from girih.run.transport import Transport

TRANSFERS = 1  # position in the measured seconds


def _combine_logsumexp(target: Tensor, part: Tensor) -> None:
    torch.logaddexp(target, part, out=target)


COMBINE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": lambda target, part: target.add_(part),
    "prod": lambda target, part: target.mul_(part),
    "max": lambda target, part: torch.maximum(target, part, out=target),
    "min": lambda target, part: torch.minimum(target, part, out=target),
    "logsumexp": _combine_logsumexp,
}


class Transfer:
    """Assemble a new buffer from the parts at home and the messages of peers.

    Where contributions are combined, that is done in the order of terms, on every device that keeps a copy: copies
    then have the same bits.
    """

    __slots__ = ("combine", "device", "dtype", "placed", "receives", "sends", "shape", "source", "target", "transport")

    def __init__(self, program: Program, step: TransferStep, rank: int, slots: Mapping[str, int], transport: Transport,
                 device: Any) -> None:  # fmt: skip
        swap = program.exchange_of(step)
        held = as_box(step.before.regions[rank])
        goal = as_box(step.after.regions[rank])
        self.source = slots[step.source]
        self.target = slots[step.target]
        self.shape = shape_of(goal)
        self.dtype = getattr(torch, program.graph.values[step.value].dtype)
        self.device = device
        self.transport = transport
        self.combine = COMBINE[step.reducer] if swap.terms > 1 else None
        mine = [message for message in swap.messages if message.target == rank]
        self.sends = [
            (message.target, relative(message.box, held))
            for message in swap.messages
            if message.source == rank and message.target != rank
        ]
        # What is received, and where: placed in order of terms, each from home (cuts of the source) or from a peer.
        self.receives = [(message.source, shape_of(message.box)) for message in mine if message.source != rank]
        self.placed: list[tuple[Cuts, bool, Cuts | None]] = [
            (
                relative(message.box, goal),
                message.term == 0,
                relative(message.box, held) if message.source == rank else None,
            )
            for message in sorted(mine, key=_term)
        ]
        assert [m for m in sorted(mine, key=_term) if m.source != rank] == [m for m in mine if m.source != rank]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        started = perf_counter()
        source = slots[self.source]
        target = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        transport, packs = self.transport, self.transport.packs
        sends, packed = [], {}
        for peer, cuts in self.sends:
            part = narrow(source, cuts)
            if packs and not part.is_contiguous():
                if cuts not in packed:
                    packed[cuts] = part.contiguous()
                part = packed[cuts]
            sends.append((peer, part))
        staged: list[tuple[Tensor, Tensor, bool]] = []  # (where in the target, what, is it a first term)
        receives: list[tuple[int, Tensor]] = []
        incoming = iter(self.receives)
        home: list[tuple[Tensor, Tensor]] = []
        for cuts, first, own in self.placed:
            place = narrow(target, cuts)
            if own is not None:
                part = narrow(source, own)
                if self.combine is None:
                    home.append((place, part))
                else:
                    staged.append((place, part, first))
                continue
            peer, shape = next(incoming)
            if self.combine is None and (place.is_contiguous() or not packs):
                receives.append((peer, place))
            else:
                part = torch.empty(shape, dtype=self.dtype, device=self.device)
                receives.append((peer, part))
                staged.append((place, part, first))
        wait = transport.begin(sends, receives)
        for place, part in home:
            place.copy_(part)
        wait()
        for place, part, first in staged:
            if first or self.combine is None:
                place.copy_(part)
            else:
                self.combine(place, part)
        slots[self.target] = target
        seconds[TRANSFERS] += perf_counter() - started


def _term(message: Message) -> int:
    return message.term
