"""What each step of a plan's program takes, and how fast tensors are copied: what proposals of movements are told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from girih.cost.prices import Prices
from girih.cost.roofline_costs import TransferSeconds
from girih.machine import Machine
from girih.plans.plan import Plan
from girih.plans.predict import predict, priced_on
from girih.program import BlockStep, ComputeStep, FreeStep, TransferStep


@dataclass(frozen=True, eq=False)
class StepSeconds:
    """Seconds of each step of a lowered program that is not a free: every, on the device that takes longest, and
    operators alone, on the first. machine: as it is simulated. prices: of all steps, frees too."""

    every: NDArray[np.float64]
    operators: NDArray[np.float64]
    machine: Machine
    prices: Prices

    def of(self, sequence: tuple[int, ...] | None, computing: bool = False) -> NDArray[np.float64]:
        """The seconds of each step in a sequence. computing: those of operators alone."""
        seconds = self.operators if computing else self.every
        return seconds if sequence is None else seconds[list(sequence)]


def step_seconds(plan: Plan, store: str | Path | None) -> StepSeconds:
    """By the prices of a plan's machine, with everything on the devices."""
    plain = plan.but(sequence=None, residency=())
    known = priced_on(plain, plain.machine, store, "processes")
    prices = known.priced.prices
    steps = plain.lowered.steps
    places = [at for at, step in enumerate(steps) if not isinstance(step, FreeStep)]
    computing = np.asarray([isinstance(steps[at], ComputeStep | BlockStep) for at in places])
    every = (prices.before + prices.after).max(axis=1)[places]
    return StepSeconds(every, prices.before[places, 0] * computing, known.simulated, prices)


def link_seconds(plan: Plan) -> NDArray[np.float64]:
    """Seconds while the links carry what each step of a lowered program that is not a free brings, to the device that
    waits longest; 0 of steps that bring nothing, and of starts, as the step that ends the transfer has them."""
    each = TransferSeconds(plan.lowered, plan.machine)
    steps = [step for step in plan.lowered.steps if not isinstance(step, FreeStep)]
    return np.asarray([each.of(step).max() if isinstance(step, TransferStep) else 0.0 for step in steps])


def simulated_seconds(plan: Plan, store: str | Path | None) -> float:
    """How long a plan's step takes, simulated; where it was simulated already, the plan knows."""
    known = plan.predicted.simulated
    return predict(plan, store=store, memory=False).seconds if known is None else known


def copy_rates(machine: Machine) -> tuple[float, float]:
    """Bytes/s of copies out of a device to the large memory behind it, and in."""
    host = machine.host
    assert host is not None
    both = host.both_bytes_per_second / 2 or np.inf
    return min(host.out_bytes_per_second, both), min(host.in_bytes_per_second, both)
