"""Prices a Program by simulating its execution (FlexFlow §3.4): the very steps that run, on devices and ports.

`girih.simulate.tasks` tells what is a task and who waits for whom, `kernels` how the queue is worked off,
`incremental` how a changed program is simulated anew. Differences from FlexFlow are named there.
"""

from __future__ import annotations

from dataclasses import dataclass

from girih.cost.prices import Prices
from girih.machine import Machine
from girih.ops.scratch import ScratchSource, at_most
from girih.program import Program
from girih.simulate.critical import CriticalPath, critical_path
from girih.simulate.incremental import Simulator
from girih.simulate.patterns import Resolution
from girih.simulate.spans import Schedule, busy_devices, busy_ports, timeline_of
from girih.simulate.tasks import TaskCounts
from girih.simulate.timeline import Timeline


@dataclass(frozen=True)
class Busy:
    """A device or a port and how long it is busy. share: of the makespan."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a program takes. seconds: the makespan, an estimate as good as the prices.

    critical: what the makespan consists of. busiest: the device or port that is busy longest; where it is busy nearly
    all the time, only less work for it makes the step shorter. tasks: how much was simulated, and at which resolution.
    """

    timeline: Timeline
    seconds: float
    critical: CriticalPath
    busiest: Busy
    tasks: TaskCounts
    resolution: Resolution


def simulate(
    program: Program,
    machine: Machine,
    prices: Prices,
    *,
    resolution: Resolution | None = None,
    memory: bool = True,
    threads: int = 0,
    scratch: ScratchSource = at_most,
) -> Simulation:
    """Simulate one run of a program.

    resolution: `messages` for every message by itself (up to 64 devices by default), `volumes` for the bytes that each
    device receives over each mesh axis. memory: follow it on the devices, which takes longer than the simulation; on
    more than 8 of them only on the first and the last. threads, scratch: for that, as of `memory_use`.

    Raises:
        ValueError: the machine or the prices are not for this program.
    """
    simulator = Simulator(program, machine, prices, resolution=resolution)
    schedule = simulator.schedule()
    return Simulation(
        timeline_of(program, schedule, memory=memory, threads=threads, scratch=scratch),
        simulator.seconds,
        critical_path(schedule),
        _busiest(schedule, simulator.seconds),
        simulator.graph.counts(),
        simulator.graph.store.resolution,
    )


def makespan(program: Program, machine: Machine, prices: Prices, *, resolution: Resolution | None = None) -> float:
    """`simulate(…).seconds` alone, for searches: without the timeline. For small changes see `Simulator`.

    Raises:
        ValueError: the machine or the prices are not for this program.
    """
    return Simulator(program, machine, prices, resolution=resolution).seconds


def _busiest(schedule: Schedule, makespan: float) -> Busy:
    devices, ports = busy_devices(schedule), busy_ports(schedule)
    device = int(devices.argmax())
    name, seconds = f"device {device}, computing", float(devices[device])
    if len(ports) and float(ports.max()) > seconds:
        name, seconds = schedule.graph.store.ports.names[int(ports.argmax())], float(ports.max())
    return Busy(name, seconds, seconds / makespan if makespan else 0.0)
