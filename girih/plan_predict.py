"""What a plan takes before it runs, and plans that are fast by that measure.

A plan's program is priced (`girih.plan_prices`: measured calls, a calibrated roofline, or data sheets) and simulated
(`girih.simulate`). The search for the fastest plan begins with the answer of the search over tables, goes on with the
sampled search, and lets the simulator judge what they find.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from girih.machine import Machine, MachineError
from girih.machine import machine as machine_by_name
from girih.machine.costs import Store
from girih.machine.profile import Profile, load_profile
from girih.partition import Certificate, Strategy
from girih.partition.crossed import crossed
from girih.partition.options import MOST_PLACES, SECONDS, SOAP, Rules
from girih.partition.sampled import sampled
from girih.partition.searches import SEARCHES
from girih.plan_composed import Composer
from girih.plan_prices import PRESET, Priced, Pricing, price
from girih.plans import Observe, PlanError, goal_of
from girih.simulate.simulate import Simulation, simulate
from girih.simulate.timeline import Timeline

if TYPE_CHECKING:
    from girih.plans import Plan

CROSSING = 0.3
"""Of the time that is left, for exchanging layers between the first candidates."""
LEAST = 0.2
"""Seconds that a search over tables is given, however few are left."""
EXPERTS = ("one-weird-trick", "rnn-expert", "hybrid", "model")
"""The sampled search begins with the best of their plans, too (FlexFlow §3.5.2), beside data parallelism."""


@dataclass(frozen=True)
class Prediction:
    """The simulated step, on which machine, and from where the seconds of how many operators come.

    driver: seconds that a step takes besides, to hand the workers their parts of the batch and to hear from them; 0
    where that was not measured.
    """

    simulation: Simulation
    machine: Machine
    sources: dict[str, int]
    driver: float = 0.0

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
    found = _priced(plan, where, store, backend)
    simulation = simulate(plan.program, found.simulated, found.priced.prices, memory=memory)
    return Prediction(simulation, found.real, found.priced.sources, _driver(plan, found.profile))


def _driver(plan: Plan, profile: Profile | None) -> float:
    """What the driver of a step takes, by the largest share of the batch that a worker is handed."""
    if profile is None or profile.handing is None:
        return 0.0
    program = plan.program
    handed = np.zeros(program.mesh.devices)
    for item in program.graph.inputs:
        if item.role == "batch":
            regions = program.places[item.name].regions
            handed += (regions[..., 1] - regions[..., 0]).prod(axis=-1) * program.graph.values[item.name].item_bytes
    return profile.handing.seconds(max(float(handed.max()), 1.0))


class _Priced(NamedTuple):
    """The machine with what was measured of it, the same as it is simulated, and a program's prices on it."""

    real: Machine
    simulated: Machine
    priced: Priced
    profile: Profile | None


def _priced(plan: Plan, where: Machine, store: str | Path | None, backend: str) -> _Priced:
    with _opened(store) as known:
        profile = None if known is None else load_profile(known, where.name, backend)
        real = where if profile is None else profile.applied(where)
        simulated = where if profile is None else profile.simulated(where)
        return _Priced(real, simulated, price(plan.program, real, store=known, profile=profile), profile)


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


class _Judge:
    """The simulated seconds of strategies, each simulated once; infinite above the memory limit.

    seconds: what the slowest call took, for planning the time.
    """

    def __init__(self, made: Plan, store: str | Path | None) -> None:
        self.made = made
        where = made.machine
        with _opened(store) as known:
            profile = None if known is None else load_profile(known, where.name)
            pricing = Pricing(where if profile is None else profile.applied(where), store=known, profile=profile)
        transfers = goal_of(made.objective, where).transfers
        simulated = where if profile is None else profile.simulated(where)
        self.composer = Composer(made.graph, where, transfers, made.overlap, pricing, simulated)
        self.known: dict[int, tuple[Strategy, float]] = {}  # by identity, with the strategy to keep it alive
        self.seconds = 0.0

    def __call__(self, strategy: Strategy) -> float:
        if id(strategy) not in self.known:
            started = time.perf_counter()
            self.known[id(strategy)] = strategy, self.simulated(strategy)
            self.seconds = max(self.seconds, time.perf_counter() - started)
        return self.known[id(strategy)][1]

    def simulated(self, strategy: Strategy) -> float:
        seconds = self.composer.seconds(strategy)
        if self.made.memory is None or seconds == float("inf"):
            return seconds
        return seconds if self.plan(strategy).peak <= self.made.memory else float("inf")

    def plan(self, strategy: Strategy) -> Plan:
        return self.made if strategy is self.made.strategy else replace(self.made, strategy=strategy)

    def in_full(self, strategy: Strategy) -> float:
        """The same by lowering and pricing the whole program, for data sheets: a proof should not rest on pieces."""
        tried = self.plan(strategy)
        if tried.memory is not None and tried.peak > tried.memory:
            return float("inf")
        return predict(tried, memory=False).seconds


def fastest(made: Plan, *, seconds: float, store: str | Path | None, note: Observe) -> Plan:
    """The plan of the objective `time`: the given one, or a faster one.

    Only the exact search goes on; what another search found is priced as it is. seconds: for all of the search, that
    over tables included. The simulator judges the exact search's answer and data parallelism (always: it may see what
    the tables do not); then, as far as the time allows, the experts' plans; then chains are sampled from the exact
    answer, data parallelism and the best expert's. What is not begun for want of time is estimated from what was
    measured before it.

    Raises:
        PlanError: the store is none, or the search `optimum` cannot prove its answer.
    """
    from girih.plan_optimum import proved
    from girih.simulate.bounds import WORK, bound_of

    told = made.certificate
    pricing, searching = (float(told.statistics.get(f"seconds to {what}", 0.0)) for what in ("price", "search"))
    deadline = time.perf_counter() + seconds - pricing - searching
    judge = _Judge(made, store)
    best = bound_of(made.graph, made.machine)
    note("simulate", 0.0)
    if made.search == "optimum":
        _by_data_sheet(made, store)
        return proved(made, judge.in_full, deadline - time.perf_counter(), note)
    first = judge(made.strategy)
    if made.search != "exact":
        return replace(made, certificate=replace(told, cost=first, bound=best.seconds, how=best.how))
    candidates = {"exact": made.strategy}
    if made.machine.devices > 1:
        note("search experts", 0.0)
        alone = dict(best.parts)[WORK] * made.machine.devices < first  # less than sending takes: a small model
        names = ("data", *(("single",) if alone else ()), *EXPERTS)
        candidates |= _experts(names, made, judge, pricing + searching, deadline, at_least=("data",))
        note("cross", 0.0)
        until = time.perf_counter() + CROSSING * (deadline - time.perf_counter())
        joined = crossed(made.graph, list(candidates.values()), judge, until)
        if joined.seconds < min(map(judge, candidates.values())):
            candidates["crossed"] = joined.strategy
    left = deadline - time.perf_counter()
    rules = _affordable(made.machine, pricing, left - 2 * judge.seconds)
    if rules is None:
        name = min(candidates, key=lambda name: judge(candidates[name]))
        statistics = told.statistics | {"found by": name, "proposals": 0}
        statistics |= {f"seconds, {name}": judge(strategy) for name, strategy in candidates.items()}
        found = replace(
            told, cost=judge(candidates[name]), bound=best.seconds, how=best.how, stopped="time", statistics=statistics
        )
        return replace(made, strategy=candidates[name], certificate=found)
    note("search sampled", 0.0)
    chosen = min((name for name in candidates if name in EXPERTS), key=lambda name: judge(candidates[name]), default="")
    result = sampled(
        made.graph,
        goal_of(made.objective, made.machine),
        seconds=left,
        judge=judge,
        judging=judge.seconds,
        initial={name: strategy for name, strategy in candidates.items() if name not in EXPERTS or name == chosen},
        bound=best.seconds,
        how=best.how,
        rules=rules,
    )
    certificate: Certificate = result.certificate
    return replace(made, strategy=result.strategy, certificate=certificate, search="sampled")


def _by_data_sheet(made: Plan, store: str | Path | None) -> None:
    """The bounds of the search `optimum` know the data sheet alone."""
    found = _priced(made, made.machine, store, "processes")
    if other := {name: count for name, count in found.priced.sources.items() if count and name != PRESET}:
        raise PlanError(
            f"search 'optimum' proves by the prices of data sheets; of {made.machine.name} the store {store} has "
            f"others ({', '.join(f'{count} operators {name}' for name, count in other.items())}): plan without it"
        )


def _experts(
    names: Sequence[str], made: Plan, judge: _Judge, longest: float, deadline: float, at_least: tuple[str, ...]
) -> dict[str, Strategy]:
    """The strategies of these searches, judged; those for which there is time, and those of at_least.

    longest: seconds that one search over tables takes, by those before it.
    """
    found: dict[str, Strategy] = {}
    goal = goal_of(made.objective, made.machine)
    for name in names:
        started = time.perf_counter()
        left = deadline - started - judge.seconds
        if left < longest and name not in at_least:
            break
        share = 2 if name in at_least else 4
        strategy = SEARCHES[name](made.graph, goal, seconds=max(left / share, LEAST)).strategy
        longest = max(longest, time.perf_counter() - started)
        found["data parallel" if name == "data" else name] = strategy
        judge(strategy)
    return found


def _affordable(machine: Machine, pricing: float, left: float) -> Rules | None:
    """The widest space whose tables can be priced in most of the time that is left; None: not even without places.

    pricing: seconds that the tables without places took. With places it takes more by an estimate: a tensor of two
    dimensions has four codes for a mesh axis; places add one for each coordinate, and tables are between pairs, some
    of which are equal (AlexNet on meshes of 4×2×2 and 16×2×2: 12 and 4 times).
    """
    more = float(np.prod([(4 + size) / 4 for size in machine.mesh.sizes if size <= MOST_PLACES])) ** 1.7
    return SOAP if pricing * more <= 0.8 * left else SECONDS if pricing <= 0.8 * left else None
