"""By what a plan's scratch memory is told: measured on this host, read from the plan's file, or a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from girih.cost.scratch import BOUND, Scratch, ScratchSetting, Told
from girih.machine import Machine
from girih.ops.scratch import ScratchCall
from girih.program import Program
from girih.program.life.accounts import MemoryUse, memory_uses, threads_here

FOLLOWED = 16
"""Devices of a machine whose memory is all accounted for; of a larger one the first and the last."""
ELSEWHERE_THREADS = 2
"""Threads that a worker on another machine is taken to have, since nobody knows its cores here: a bound is then the
same wherever it is made."""


class Notes:
    """A source of scratch that notes what it told. setting: where it was measured, once something was. every: of a
    GPU, where each call is measured."""

    def __init__(
        self,
        threads: int,
        ask: Callable[[ScratchCall], Told],
        setting: Callable[[], ScratchSetting | None],
        every: bool = False,
    ):
        self.threads = threads
        self.every = every
        self.calls: dict[str, Told] = {}
        self._ask = ask
        self._setting = setting

    def __call__(self, call: ScratchCall) -> int:
        if call.key not in self.calls:
            self.calls[call.key] = self._ask(call)
        return self.calls[call.key].bytes

    @property
    def record(self) -> Scratch:
        return Scratch(self._setting() if self.calls else None, self.threads, self.calls)


def notes_of(program: Program, machine: Machine, known: Scratch | None) -> Notes:
    """The source for a program on a machine: what is known of it, what this host measures, or, elsewhere, the bound."""
    if known is not None:
        on_card = known.setting is not None and known.setting.on_card
        return Notes(
            known.threads, lambda call: known.calls.get(call.key, _bound(call)), lambda: known.setting, on_card
        )
    if machine.here:
        return host_notes(threads_here(program))
    if machine.on_gpus:
        return card_notes()
    return Notes(ELSEWHERE_THREADS, _bound, lambda: None)


def _bound(call: ScratchCall) -> Told:
    return Told(call.bound, BOUND)


def host_notes(threads: int) -> Notes:
    """What is measured on this host, with so many threads. PyTorch is loaded when something is asked for."""

    def ask(call: ScratchCall) -> Told:
        from girih.cost.measure_scratch import host_scratch

        return host_scratch()(call)

    def setting() -> ScratchSetting:
        from girih.cost.measure_scratch import setting_here

        return setting_here()

    return Notes(threads, ask, setting)


def card_notes() -> Notes:
    """What is measured on this host's GPU; where there is none, as for a plan from another host, the bounds."""
    from girih.cost.measure_scratch import card_scratch, card_setting

    if card_setting() is None:
        return Notes(ELSEWHERE_THREADS, _bound, lambda: None)
    return Notes(ELSEWHERE_THREADS, card_scratch(), card_setting, every=True)


def followed(machine: Machine) -> Sequence[int]:
    """The devices whose memory is followed: all, of a large machine the first and the last."""
    count = machine.devices
    return range(count) if count <= FOLLOWED else (0, count - 1)


def account(program: Program, machine: Machine, known: Scratch | None) -> tuple[tuple[MemoryUse, ...], Scratch]:
    """The memory of each device, of a large machine only of the first and the last, and by what scratch was told."""
    notes = notes_of(program, machine, known)
    return memory_uses(program, followed(machine), notes.threads, notes), notes.record
