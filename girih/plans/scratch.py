"""By what a plan's scratch memory is told: measured on this host, read from the plan's file, or a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from girih.cost.scratch import BOUND, Scratch, ScratchSetting, Told
from girih.lower import Program
from girih.machine.units import format_bytes
from girih.memory.accounts import MemoryUse, memory_use, threads_here
from girih.ops.scratch import ScratchCall

if TYPE_CHECKING:
    from girih.plans.plan import Plan

FOLLOWED = 16
"""Devices of a machine whose memory is all accounted for; of a larger one the first and the last."""
ELSEWHERE_THREADS = 2
"""Of a worker on another machine, whose cores nobody knows here: a bound is then the same wherever it is made."""


class Notes:
    """A source of scratch that notes what it told. setting: where it was measured, once something was."""

    def __init__(self, threads: int, ask: Callable[[ScratchCall], Told], setting: Callable[[], ScratchSetting | None]):
        self.threads = threads
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


def notes_of(plan: Plan, program: Program) -> Notes:
    """The source for a plan: what its file says, what this host measures, or, for other machines, the bound."""
    known = plan.scratch
    if known is not None:
        return Notes(known.threads, lambda call: known.calls.get(call.key, _bound(call)), lambda: known.setting)
    if plan.machine.name.startswith("local:"):
        return host_notes(threads_here(program))
    return Notes(ELSEWHERE_THREADS, _bound, lambda: None)


def _bound(call: ScratchCall) -> Told:
    return Told(call.bound, BOUND)


def host_notes(threads: int) -> Notes:
    """What is measured on this host, with so many threads. PyTorch is loaded when something is asked for."""

    def ask(call: ScratchCall) -> Told:
        from girih.run.calibrate.measure_scratch import host_scratch

        return host_scratch()(call)

    def setting() -> ScratchSetting:
        from girih.run.calibrate.measure_scratch import setting_here

        return setting_here()

    return Notes(threads, ask, setting)


def account(plan: Plan, program: Program) -> tuple[tuple[MemoryUse, ...], Scratch]:
    """The memory of each device, of a large machine only of the first and the last, and by what scratch was told."""
    count = plan.machine.devices
    devices = range(count) if count <= FOLLOWED else (0, count - 1)
    notes = notes_of(plan, program)
    uses = tuple(memory_use(program, device, notes.threads, notes) for device in devices)
    return uses, notes.record


def on_this_host(plan: Plan, backend: str) -> Plan:
    """The plan as workers that start here run it: with scratch that is measured here, if it was told otherwise.

    A plan without a memory limit promises nothing, and stays as it is.

    Raises:
        PlanError: it does not keep its memory limit here.
    """
    from girih.cost.setting import threads_of
    from girih.plans.plan import PlanError
    from girih.run.calibrate.measure_scratch import setting_here

    if plan.memory is None or not plan.told_scratch.calls:
        return plan
    told = plan.told_scratch
    threads = threads_of(plan.machine.devices, "threads" if backend == "torchrun" else backend)
    if told.setting == setting_here() and told.threads == threads:
        return plan
    notes = host_notes(threads)
    devices = [use.device for use in plan.memory_by_device]
    worst = max((memory_use(plan.program, device, threads, notes) for device in devices), key=lambda use: use.peak)
    if worst.peak > plan.memory:
        raise PlanError(
            f"the plan does not keep its limit of {format_bytes(plan.memory)} for each device on this host: it says "
            f"{format_bytes(plan.peak)} ({told.words}), and device {worst.device} needs {format_bytes(worst.peak)} "
            f"here ({notes.record.words}). Plan again on this host, or with a higher limit"
        )
    return replace(plan, scratch=notes.record)
