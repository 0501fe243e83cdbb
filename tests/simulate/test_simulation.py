"""Random programs: what is simulated equals a slow and obvious simulator, and keeps every law of a schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counts import random_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import Case, cases, random_prices, random_program
from simulate_reference import simulate as reference

from girih.cost.pricing import price
from girih.layout.compiled import Compiled, _Budget
from girih.program.life.accounts import memory_use
from girih.simulate.bounds import schedule_bound
from girih.simulate.incremental import Simulator
from girih.simulate.kernels import devices as device_kernels
from girih.simulate.kernels import ports as port_kernels
from girih.simulate.kernels import schedule as kernels
from girih.simulate.simulate import makespan, simulate

THOROUGH = settings(max_examples=random_cases(150), suppress_health_check=[HealthCheck.too_slow])


@given(cases())
@THOROUGH
def test_equal_to_the_reference(case: Case) -> None:
    program, machine, prices = case
    expected = reference(program, machine, prices)
    simulator = Simulator(program, machine, prices)
    assert simulator.makespan == expected.makespan
    schedule = simulator.schedule()
    for row, step in enumerate(schedule.step.tolist()):
        assert schedule.done[row].tolist() == [expected.done[step, d] for d in range(program.mesh.devices)]
    tasks = [task for step in sorted(expected.tasks) for task in sorted(expected.tasks[step], key=lambda t: t.order)]
    assert schedule.start.tolist() == [task.begin for task in tasks]


@given(st.integers(0, 2**32), st.sampled_from([(2,), (3,), (2, 2)]))
@settings(max_examples=random_cases(60), suppress_health_check=list(HealthCheck))
def test_devices_spend_no_time_in_what_others_do(seed: int, sizes: tuple[int, ...]) -> None:
    """Of placed programs, with prices for all devices in all steps: what is not in a device's order takes none."""
    random = np.random.default_rng(seed)
    program, machine = random_program(random, sizes, 4, training=True, placed=True)
    prices = random_prices(random, program)
    expected = reference(program, machine, prices)
    assert Simulator(program, machine, prices).makespan == expected.makespan
    timeline = simulate(program, machine, prices, memory=False).timeline
    for device in range(program.mesh.devices):
        assert set(timeline.step[timeline.device == device].tolist()) <= set(program.order_of(device))
    own = price(program, machine).prices
    assert makespan(program, machine, own) == simulate(replace(program, orders=()), machine, own, memory=False).seconds


@given(cases())
@settings(max_examples=random_cases(40), suppress_health_check=[HealthCheck.too_slow])
def test_plain_python_and_compiled_loops_simulate_alike(case: Case) -> None:
    """Small programs are simulated by the loops as they stand, large ones by what Numba makes of them."""
    program, machine, prices = case
    loops = [item for page in (kernels, device_kernels, port_kernels) for item in vars(page).values()]
    assert kernels.simulate.machine is not None
    found = []
    for plain in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            for item in loops if plain else ():
                if isinstance(item, Compiled):
                    patch.setattr(item, "_machine", None)
            patch.setattr(_Budget, "left", float("inf") if plain else 0.0)
            simulator = Simulator(program, machine, prices)
            schedule = simulator.schedule()
            found.append((simulator.makespan, schedule.done.tolist(), schedule.start.tolist()))
    assert found[0] == found[1]


@given(cases())
@settings(max_examples=random_cases(80), suppress_health_check=[HealthCheck.too_slow])
def test_the_laws_of_a_timeline(case: Case) -> None:
    program, machine, prices = case
    found = simulate(program, machine, prices)
    timeline = found.timeline
    assert timeline.seconds <= found.seconds == makespan(program, machine, prices)
    received = np.bincount(timeline.device, timeline.amount, program.mesh.devices)
    assert (received == program.bytes_received()).all()
    assert (timeline.end > timeline.begin).all()
    # One thing at a time: on a device itself, and at its port of a level.
    level = np.asarray([0, *(1 + machine.levels.index(level) for level in levels_of(machine))])
    lanes = timeline.device * (1 + len(machine.levels)) + level[timeline.stream]
    for lane in np.unique(lanes):
        mine = np.flatnonzero(lanes == lane)
        mine = mine[np.argsort(timeline.begin[mine])]
        assert (timeline.begin[mine][1:] >= timeline.end[mine][:-1]).all()
    for device, memory in enumerate(timeline.memory):
        assert memory.bytes.max() == memory_use(program, device).peak
        assert (np.diff(memory.seconds) >= 0).all()
        assert len(memory.seconds) == len(memory.bytes)
        assert memory.seconds[-1] <= found.seconds
    assert len(timeline.memory) == program.mesh.devices


def levels_of(machine):  # type: ignore[no-untyped-def]
    return [level for level in machine.levels for _ in level.axes]


@given(cases())
@settings(max_examples=random_cases(80), suppress_health_check=[HealthCheck.too_slow])
def test_the_critical_path_is_the_makespan(case: Case) -> None:
    found = simulate(*case, memory=False)
    path = found.critical
    if len(path):
        assert path.begin[0] == 0
        assert path.end[-1] == found.seconds
        assert (path.begin[1:] == path.end[:-1]).all()
        assert (path.end > path.begin).all()
    else:
        assert found.seconds == 0
    assert 0 <= found.busiest.share <= 1 + 1e-12


@given(cases())
@settings(max_examples=random_cases(80), suppress_health_check=[HealthCheck.too_slow])
def test_no_program_beats_its_bound(case: Case) -> None:
    for resolution in ("messages", "volumes"):
        simulator = Simulator(*case, resolution=resolution)  # type: ignore[arg-type]
        bound = schedule_bound(simulator.schedule())
        assert bound.seconds <= simulator.seconds * (1 + 1e-12)
        assert bound.seconds == max(seconds for _, seconds in bound.parts)
