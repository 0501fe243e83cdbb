"""Workspace for the compiled simulation of a task graph: its working arrays, made once and used again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from girih.simulate.tasks import TaskGraph

if TYPE_CHECKING:
    from girih.simulate.kernels.arrays import Past, Pool, Rows, Work

SLACK = 1.25  # of rows, tasks and gates, so that a changed program mostly fits


@dataclass(frozen=True)
class Effort:
    """What a simulation did: message tasks served, tasks of devices run, and how often it began from a state."""

    messages: int
    device_tasks: int
    restorations: int


class Workspace:
    """Arrays for as many rows, tasks and gates as a task graph has, and some more."""

    def __init__(self, graph: TaskGraph) -> None:
        from girih.simulate.kernels import arrays

        self.graph = graph
        devices = graph.devices
        self.rows = rows = int(graph.row_places.end * SLACK) + 64
        self.tasks = tasks = int(graph.task_places.end * SLACK) + 1024
        self.gates = gates = int(graph.gate_places.end * SLACK) + 1024
        self.fresh = np.zeros(rows, np.uint8)
        ports = graph.store.ports
        self.work: Work = arrays.Work(
            position=np.zeros(rows, np.int32),
            touched=np.zeros(rows, np.uint8),
            fresh=self.fresh,
            completed=np.zeros(rows, np.int32),
            done=np.zeros((rows, devices), np.int64),
            left=np.zeros((rows, devices), np.int32),
            latest=np.zeros((rows, devices), np.int64),
            start=np.zeros(tasks, np.int64),
            begun=np.zeros(tasks, np.uint8),
            follow=np.zeros(tasks, np.int32),
            line=np.zeros((tasks, arrays.LINE), np.int32),
            spare=np.zeros(tasks, np.int32),
            gate_left=np.zeros(gates, np.int32),
            gate_latest=np.zeros(gates, np.int64),
            at=np.zeros(devices, np.int32),
            clock=np.zeros(devices, np.int64),
            current=np.zeros(devices, np.int32),
            shift=np.zeros(rows, np.int64),
            free=np.zeros(ports.count, np.int64),
            first=np.zeros(ports.count, np.int32),
            last=np.zeros(ports.count, np.int32),
            hint=np.zeros(ports.count, np.int32),
            active=np.zeros(ports.count, np.int32),
            seen=np.zeros(ports.count, np.int64),
            outward=ports.outward,
            events=np.zeros((tasks + ports.count, 2), np.int64),
            choices=np.zeros((2 * ports.count + 1, 2), np.int64),
            scalars=np.zeros(arrays.SCALARS, np.int64),
        )

    def fits(self, graph: TaskGraph) -> bool:
        places = (graph.row_places.end, graph.task_places.end, graph.gate_places.end)
        return all(needed <= held for needed, held in zip(places, (self.rows, self.tasks, self.gates), strict=True))

    def pool(self) -> Pool:
        from girih.simulate.kernels import arrays

        columns = self.graph.store.columns
        return arrays.Pool(*(columns[name].array for name in arrays.Pool._fields))

    def table(self) -> Rows:
        from girih.simulate.kernels import arrays

        columns = {**self.graph.columns, "releases": self.graph.releases}
        return arrays.Rows(*(columns[name].array for name in arrays.Rows._fields))

    def simulate(self, order: NDArray[np.int32], regions: NDArray[np.int64], past: Past) -> int:
        """The makespan in ticks of rows that differ from the past's in some regions."""
        from girih.simulate.kernels import schedule as kernels

        return int(kernels.simulate(order, regions, self.table(), self.pool(), past, self.work))

    def simulate_all(self) -> int:
        """The makespan in ticks of the task graph, simulated in full."""
        from girih.simulate.kernels import arrays

        self.fresh[:] = 1
        nothing = np.zeros(0, np.int64)
        past = arrays.Past(np.zeros((0, self.graph.devices), np.int64), nothing, nothing)
        return self.simulate(self.graph.order, np.asarray([[0, len(self.graph.order)]]), past)

    @property
    def effort(self) -> Effort:
        from girih.simulate.kernels.arrays import BEGUN, RAN, RESTORED

        scalars = self.work.scalars
        return Effort(int(scalars[BEGUN]), int(scalars[RAN]), int(scalars[RESTORED]))

    def as_past(self) -> Past:
        """What was simulated in full, as a schedule; the workspace is used up."""
        from girih.simulate.kernels import arrays

        return arrays.Past(self.work.done, self.work.start, np.zeros(self.rows, np.int64))

    def grown(self, past: Past) -> Past:
        """The schedule in arrays as large as this workspace's."""
        from girih.simulate.kernels import arrays

        def larger(array: NDArray[np.int64], size: int) -> NDArray[np.int64]:
            if len(array) >= size:
                return array
            copy = np.zeros((size, *array.shape[1:]), np.int64)
            copy[: len(array)] = array
            return copy

        return arrays.Past(larger(past.done, self.rows), larger(past.start, self.tasks), larger(past.base, self.rows))

    def commit(self, order: NDArray[np.int32], past: Past) -> None:
        from girih.simulate.kernels import schedule as kernels

        kernels.commit(order, self.table(), self.pool(), past, self.work)
