"""What is held on a device that is too small: the residency whose simulated step is fastest (SwapAdvisor §4.3).

The published planner is asked with several thresholds, and the simulator judges its answers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from girih.lower import FreeStep
from girih.machine.units import format_bytes
from girih.memory.accounts import host_bytes
from girih.memory.residency import TooSmallError, belady
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import predict, priced_on

HOLDS = ("auto", "swap", "none")
"""What to do where a plan does not fit: the best of all that there is, move tensors out and back, or refuse it."""
SHARES = (0.0, 0.01, 0.1)
"""Of the step: what was touched so shortly before is not moved out, if anything else can be."""


def held(plan: Plan, *, store: str | Path | None, note: Observe) -> Plan:
    """The plan with movements that keep it within its memory limit.

    Raises:
        PlanError: the machine has no large memory behind its devices, or a step alone needs more than the limit; the
            message names the smallest limit that can be met, and the tensors that set it.
    """
    assert plan.memory is not None
    if plan.machine.host is None:
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    program, lives = plan.unmoved, plan.lifetimes
    if program.orders:
        raise PlanError("tensors are not yet moved out of devices that do different things: raise the limit")
    free = replace(plan, memory=None, residency=None)
    prices = priced_on(free, plan.machine, store, "processes").priced.prices
    steps = [at for at, step in enumerate(program.steps) if not isinstance(step, FreeStep)]
    seconds = (prices.before + prices.after).max(axis=1)[steps]
    unlimited = predict(free, store=store, memory=False).seconds
    best: tuple[float, Plan] | None = None
    for number, share in enumerate(SHARES):
        note("hold", number / len(SHARES))
        try:
            residency = belady(lives, plan.memory, seconds, share * float(np.sum(seconds)))
        except TooSmallError as error:
            raise PlanError(_refusal(plan, error)) from error
        candidate = replace(plan, residency=residency, unlimited=unlimited)
        took = predict(candidate, store=store, memory=False).seconds
        if best is None or took < best[0]:
            best = took, candidate
    assert best is not None
    worst = max(best[1].memory_by_device, key=lambda use: use.peak)
    if worst.peak > plan.memory:
        raise PlanError(
            f"with movements the plan needs {format_bytes(worst.peak)} on device {worst.device}, its limit is "
            f"{format_bytes(plan.memory)}"
        )
    needed, host = host_bytes(best[1].program), plan.machine.host
    if needed > host.memory_bytes:
        raise PlanError(
            f"to keep {format_bytes(plan.memory)} on a device, {format_bytes(needed)} would have to lie in {host.name} "
            f"at once, which has {format_bytes(host.memory_bytes)} for each device: raise the limit, use more devices, "
            "or make the batch smaller"
        )
    return best[1]


def _refusal(plan: Plan, error: TooSmallError) -> str:
    assert plan.memory is not None
    lives = plan.lifetimes
    touched = [item for item in lives.storages if error.step in item.touched]
    touched.sort(key=lambda item: -item.bytes)
    tensors = ", ".join(f"{item.name} ({format_bytes(item.bytes)})" for item in touched[:4])
    extra = int(lives.extra[error.step])
    scratch = f" and {format_bytes(extra)} of scratch memory" if extra else ""
    node, during = "the batch" if error.step < 0 else "the end of the step", ""
    if 0 <= error.step < len(lives.steps):
        step = lives.steps[error.step]
        number = getattr(step, "node", None)
        if number is not None:
            item = plan.graph.nodes[number]
            node, during = f"node {item.name!r} ({item.operator})", f", {item.source}" if item.source else ""
    return (
        f"{format_bytes(plan.memory)} for each device cannot be met, whatever is moved out: {node}{during} alone "
        f"needs {format_bytes(error.needed)} ({error.needed} bytes), the smallest limit: {tensors}{scratch}. Raise the "
        "limit, use more devices, or make the batch smaller"
    )
