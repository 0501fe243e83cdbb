"""A plan on the host where it starts: its scratch memory is measured there, and its memory limit still holds."""

from __future__ import annotations

from girih.cost.measure_scratch import card_setting, setting_here
from girih.machine.units import format_bytes
from girih.plans.plan import Plan, PlanError
from girih.plans.scratch import card_notes, host_notes
from girih.program.life.accounts import memory_uses


def on_this_host(plan: Plan, threads: int, device: str = "cpu") -> Plan:
    """The plan as workers that start here run it: with scratch that is measured here, if it was told otherwise.
    threads: of each worker, which computes on this device.

    A plan without a memory limit promises nothing, and stays as it is.

    Raises:
        PlanError: it does not keep its memory limit here.
    """
    if plan.memory is None or not plan.told_scratch.calls:
        return plan
    told = plan.told_scratch
    on_card = device != "cpu"
    if told.setting == (card_setting() if on_card else setting_here()) and (on_card or told.threads == threads):
        return plan
    notes = card_notes() if on_card else host_notes(threads)
    devices = [use.device for use in plan.memory_by_device]
    worst = max(memory_uses(plan.program, devices, notes.threads, notes), key=lambda use: use.peak)
    if worst.peak > plan.memory:
        raise PlanError(
            f"the plan does not keep its limit of {format_bytes(plan.memory)} for each device on this host: it says "
            f"{format_bytes(plan.peak)} ({told.words}), and device {worst.device} needs {format_bytes(worst.peak)} "
            f"here ({notes.record.words}). Plan again on this host, or with a higher limit"
        )
    return plan.but(scratch=notes.record)
