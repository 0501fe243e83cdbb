"""What a plan takes before it runs.

A plan's program is priced (`girih.cost.pricing`: measured calls, a calibrated roofline, or data sheets) and simulated
(`girih.simulate`). The search for the fastest plan by this measure is in `girih.search.fastest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from girih.cost.pricing import Priced as Prices
from girih.cost.pricing import driver_seconds, price
from girih.cost.profile import Profile, load_profile
from girih.cost.store import Store
from girih.machine import Machine, MachineError
from girih.machine import machine as machine_by_name
from girih.machine.units import format_seconds
from girih.plans.plan import Plan, PlanError
from girih.plans.scratch import notes_of
from girih.simulate.simulate import Simulation, simulate
from girih.simulate.timeline import Timeline


@dataclass(frozen=True)
class Prediction:
    """The simulated step, on which machine, and from where the seconds of how many operators come.

    driver: seconds that a step takes besides, to hand the workers their parts of the batch and to hear from them; 0
    where that was not measured. caution: what is to be known of the measurements by which it goes; "" if nothing.
    """

    simulation: Simulation
    machine: Machine
    sources: dict[str, int]
    driver: float = 0.0
    caution: str = ""

    @property
    def seconds(self) -> float:
        """How long the step takes: an estimate."""
        return self.simulation.seconds

    @property
    def priced_by(self) -> str:
        """From where the operators' seconds come: `60% measured, 40% calibrated`."""
        known = sum(self.sources.values())
        return ", ".join(f"{count / known:.0%} {name}" for name, count in self.sources.items() if count) or "none"

    def __repr__(self) -> str:
        return f"<Prediction: {self}>"

    def __str__(self) -> str:
        busiest = self.simulation.busiest
        return (
            f"on {self.machine} a step takes {format_seconds(self.seconds)}; busiest: {busiest.name}, "
            f"{busiest.share:.0%} of the step; operators priced: {self.priced_by}"
            + (f". {self.caution}" if self.caution else "")
        )

    @property
    def timeline(self) -> Timeline:
        return self.simulation.timeline


def predict(
    plan: Plan,
    *,
    machine: str | Machine | None = None,
    store: str | Path | None = None,
    backend: str = "processes",
    memory: bool = True,
) -> Prediction:
    """Simulate a plan's program; see `girih.Plan.predict`.

    backend: whose measurements count. memory: follow it over time.
    """
    where = plan.machine if machine is None else _other(plan, machine)
    priced = priced_on(plan, where, store, backend)
    notes = notes_of(plan.program, plan.machine, plan.scratch)
    prices = priced.priced.prices
    simulation = simulate(plan.program, priced.simulated, prices, memory=memory, threads=notes.threads, scratch=notes)
    profile = priced.profile
    driver = driver_seconds(plan.program, profile)
    caution = "" if profile is None else profile.caution
    return Prediction(simulation, priced.real, priced.priced.sources, driver, caution)


class Priced(NamedTuple):
    """The machine with what was measured of it, the same as it is simulated, and a program's prices on it."""

    real: Machine
    simulated: Machine
    priced: Prices
    profile: Profile | None


def priced_on(plan: Plan, where: Machine, store: str | Path | None, backend: str) -> Priced:
    with opened(store) as known:
        profile = None if known is None else load_profile(known, where.name, backend)
        real = where if profile is None else profile.applied(where)
        simulated = where if profile is None else profile.simulated(where)
        return Priced(real, simulated, price(plan.program, real, store=known, profile=profile), profile)


def calibrated(where: Machine, store: str | Path | None) -> Machine:
    """The machine with its measured numbers, where the store has them.

    Raises:
        PlanError: the file is no store of costs.
    """
    with opened(store) as known:
        profile = None if known is None else load_profile(known, where.name)
        return where if profile is None else profile.applied(where)


def by_measurements(where: Machine, store: str | Path | None) -> tuple[str, ...]:
    """A note where predictions for a machine go by what was measured of it, and how to go back; one more where an older
    girih measured it; else nothing."""
    with opened(store) as known:
        profile = None if known is None else load_profile(known, where.name)
    if profile is None:
        return ()
    return (
        f"times go by what `girih calibrate` measured of {profile.machine} on {profile.when[:10]}, kept in {store}; "
        f"`girih calibrate --forget --machine {profile.machine}` goes back to data sheets",
        *([profile.caution] if profile.caution else []),
    )


@contextmanager
def opened(path: str | Path | None) -> Iterator[Store | None]:
    """The store; None where there is no file."""
    if path is None or not Path(path).exists():
        yield None
        return
    try:
        with Store(path) as store:
            yield store
    except MachineError as error:
        raise PlanError(str(error)) from error


def _other(plan: Plan, machine: str | Machine) -> Machine:
    try:
        where = machine_by_name(machine)
    except MachineError as error:
        raise PlanError(str(error)) from error
    if where.mesh != plan.strategy.mesh:
        axes = "x".join(map(str, plan.strategy.mesh.sizes))
        raise PlanError(
            f"the plan is for a mesh {plan.strategy.mesh}, {where.name} is {where.mesh}: name a machine with that mesh "
            f"(as many devices on other axes: {where.name}:{axes}), or plan again"
        )
    return where
