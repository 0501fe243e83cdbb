"""What a plan takes before it runs, and plans that are fast by that measure.

A plan's program is priced (`girih.plan_prices`: measured calls, a calibrated roofline, or data sheets) and simulated
(`girih.simulate`). The search for the fastest plan begins with the answer of the search over tables, goes on with the
sampled search, and lets the simulator judge what they find.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from girih.machine import Machine, MachineError
from girih.machine import machine as machine_by_name
from girih.machine.costs import Store
from girih.machine.profile import load_profile
from girih.partition import Certificate, Strategy
from girih.partition.sampled import sampled
from girih.partition.searches import SEARCHES
from girih.plan_prices import price
from girih.plans import Observe, PlanError, goal_of
from girih.simulate.simulate import Simulation, simulate
from girih.simulate.timeline import Timeline

if TYPE_CHECKING:
    from girih.plans import Plan

EXPERTS = ("one-weird-trick", "rnn-expert", "hybrid")
"""The sampled search begins with the best of their plans, too (FlexFlow §3.5.2), beside data parallelism."""


@dataclass(frozen=True)
class Prediction:
    """The simulated step, on which machine, and from where the seconds of how many operators come."""

    simulation: Simulation
    machine: Machine
    sources: dict[str, int]

    @property
    def seconds(self) -> float:
        """Of the step: an estimate."""
        return self.simulation.seconds

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
    """Simulate a plan's program; see `Plan.predict`. backend: whose measurements count. memory: follow it over time."""
    where = plan.machine if machine is None else _other(plan, machine)
    with _opened(store) as known:
        profile = None if known is None else load_profile(known, where.name, backend)
        real = where if profile is None else profile.applied(where)
        priced = price(plan.program, real, store=known, profile=profile)
    return Prediction(simulate(plan.program, real, priced.prices, memory=memory), real, priced.sources)


def calibrated(where: Machine, store: str | Path | None) -> Machine:
    """The machine with its measured numbers, where the store has them.

    Raises:
        PlanError: the file is no store of costs.
    """
    with _opened(store) as known:
        profile = None if known is None else load_profile(known, where.name)
        return where if profile is None else profile.applied(where)


@contextmanager
def _opened(path: str | Path | None) -> Iterator[Store | None]:
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


def fastest(made: Plan, *, seconds: float, store: str | Path | None, note: Observe) -> Plan:
    """The plan of the objective `time`: the given one, or a faster one from the sampled search.

    Only the exact search goes on with the sampled one; what another search found is priced as it is.

    Raises:
        PlanError: the store is none.
    """
    from girih.simulate.bounds import bound_of

    best = bound_of(made.graph, made.machine)

    def judge(strategy: Strategy) -> float:
        tried = made if strategy is made.strategy else replace(made, strategy=strategy)
        if tried.memory is not None and tried.peak > tried.memory:
            return float("inf")
        return predict(tried, store=store, memory=False).seconds

    if made.search != "exact":
        note("simulate", 0.0)
        told = replace(made.certificate, cost=judge(made.strategy), bound=best.seconds, how=best.how)
        return replace(made, certificate=told)
    goal = goal_of(made.objective, made.machine)
    initial = {"exact": made.strategy}
    if made.machine.devices > 1:
        note("search experts", 0.0)
        experts = {name: SEARCHES[name](made.graph, goal, seconds=seconds / 8).strategy for name in EXPERTS}
        best_of_them = min(experts, key=lambda name: judge(experts[name]))
        initial[best_of_them] = experts[best_of_them]
    note("search sampled", 0.0)
    found = sampled(
        made.graph,
        goal,
        seconds=seconds,
        judge=judge,
        initial=initial,
        bound=best.seconds,
        how=best.how,
    )
    certificate: Certificate = found.certificate
    return replace(made, strategy=found.strategy, certificate=certificate, search="sampled")
