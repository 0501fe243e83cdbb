"""What is held on a device that is too small: the residency whose simulated step is fastest (SwapAdvisor §4.3).

The published planner is asked with several thresholds, for each window of overlap between devices, and the simulator
judges its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from girih.cost.prices import Prices
from girih.lower import BlockStep, ComputeStep, FreeStep
from girih.machine import Machine
from girih.machine.units import format_bytes
from girih.memory.accounts import host_bytes
from girih.memory.bound import MemoryBound, memory_bound
from girih.memory.residency import TooSmallError, belady
from girih.plans.plan import Observe, Plan, PlanError
from girih.plans.predict import predict, priced_on
from girih.search.memory_limit import WINDOWS
from girih.simulate.bounds import program_bound
from girih.simulate.ticks import seconds_of, ticks

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
    limit, host = plan.memory, plan.machine.host
    assert limit is not None
    if host is None:
        raise PlanError(f"{plan.machine.name} has no large memory to move tensors to: give its file a `host`")
    if plan.unmoved.orders:
        raise PlanError("tensors are not yet moved out of devices that do different things: raise the limit")
    windows = WINDOWS if plan.unmoved.transfers and plan.schedule == "graph" else (plan.overlap,)
    unlimited = replace(plan, memory=None, residency=None, overlap=windows[0])
    plan = replace(plan, unlimited=predict(unlimited, store=store, memory=False).seconds)
    best: tuple[float, Plan] | None = None
    refused: TooSmallError | None = None
    for number, window in enumerate(windows):  # with less overlap less is held
        note("hold", number / len(windows))
        plan = replace(plan, overlap=window)
        try:
            best = min((*_moving(plan, store), *([best] if best else [])), key=lambda one: one[0])
        except TooSmallError as error:
            refused = error
    if best is None:
        assert refused is not None
        raise PlanError(_refusal(plan, refused)) from refused
    worst = max(best[1].memory_by_device, key=lambda use: use.peak)
    if worst.peak > limit:
        raise PlanError(
            f"with movements the plan needs {format_bytes(worst.peak)} on device {worst.device}, its limit is "
            f"{format_bytes(limit)}"
        )
    needed = host_bytes(best[1].program)
    if needed > host.memory_bytes:
        raise PlanError(
            f"to keep {format_bytes(limit)} on a device, {format_bytes(needed)} would have to lie in {host.name} "
            f"at once, which has {format_bytes(host.memory_bytes)} for each device: raise the limit, use more devices, "
            "or make the batch smaller"
        )
    return best[1]


def _moving(plan: Plan, store: str | Path | None) -> Iterator[tuple[float, Plan]]:
    """The plan with several residencies, and the seconds of its simulated step.

    Raises:
        TooSmallError: a step alone needs more than the limit.
    """
    limit = plan.memory
    assert limit is not None
    program = plan.unmoved
    priced = priced_on(replace(plan, memory=None), plan.machine, store, "processes")
    prices = priced.priced.prices
    plan = replace(plan, memory_bound=_bound(plan, priced.simulated, prices))
    steps = [at for at, step in enumerate(program.steps) if not isinstance(step, FreeStep)]
    seconds = (prices.before + prices.after).max(axis=1)[steps]
    for share in SHARES:
        residency = belady(plan.lifetimes, limit, seconds, share * float(np.sum(seconds)))
        candidate = replace(plan, residency=residency)
        yield predict(candidate, store=store, memory=False).seconds, candidate


def _bound(plan: Plan, machine: Machine, prices: Prices) -> MemoryBound:
    """By what is computed and copied on the first device, and by the program without movements: what it takes of any
    device or port, and its longest path, movements only add to."""
    assert plan.memory is not None
    assert machine.host is not None
    lives = plan.lifetimes
    # Of steps that compute; what of an exchange is packed and placed is in the other bound.
    computing = [
        isinstance(step, ComputeStep | BlockStep) for step in plan.unmoved.steps if not isinstance(step, FreeStep)
    ]
    steps = [at for at, step in enumerate(plan.unmoved.steps) if not isinstance(step, FreeStep)]
    seconds = np.where(computing, seconds_of(ticks(prices.before[steps, 0])), 0.0)
    moving = memory_bound(lives, plan.memory, seconds, machine.host)
    still = program_bound(plan.unmoved, machine, prices)
    if still.seconds <= moving.seconds:
        return moving
    return replace(moving, seconds=still.seconds, busiest="the program without movements")


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
