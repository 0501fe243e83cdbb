"""What the pieces and transfers of one step cost on each device by the roofline: estimates, nothing overlapped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import bounds_of, level_volumes
from girih.machine import Machine
from girih.ops import first_description
from girih.ops.derive.arithmetic import operations_per_point
from girih.partition import Strategy
from girih.program import Program, TransferStep
from girih.program.lower import node_placements

Amounts = NDArray[np.float64]  # [devices]


def compute(graph: Graph, machine: Machine, strategy: Strategy) -> tuple[Amounts, Amounts]:
    """(arithmetic operations, seconds) of each device in one step."""
    mesh = machine.mesh
    flops, memory = machine.figures("flops_per_second"), machine.figures("memory_bytes_per_second")
    launch = machine.figures("launch_seconds")
    operations, seconds = np.zeros(mesh.devices), np.zeros(mesh.devices)
    for number, node in enumerate(graph.nodes):
        description = first_description(graph, node)
        options = node_placements(graph, number, strategy)
        if options.operations == 0:
            continue
        amount = np.full(mesh.devices, float(options.points[0]))
        traffic = np.full(mesh.devices, float(options.bytes[0]))
        if description is not None:
            division = strategy.divisions[number]
            starts, stops = bounds_of(division, description.sizes, mesh)
            points = (stops - starts).prod(axis=-1, dtype=np.float64) * division.taking_part(mesh)
            amount = points * operations_per_point(description)
            traffic = traffic * (points / max(float(points.max()), 1.0))
        operations += amount
        seconds += np.maximum(amount / flops, traffic / memory) + launch
    return operations, seconds


def transfer_seconds(program: Program, machine: Machine) -> Amounts:
    """Seconds of each device in transfers in one step."""
    each = TransferSeconds(program, machine)
    return sum(map(each.of, program.transfers), start=np.zeros(machine.mesh.devices))


class TransferSeconds:
    """Seconds of each device while the links carry what it receives in a transfer; equal transfers are priced once."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.values, self.mesh, links = program.graph.values, machine.mesh, machine.links
        self.per_byte, self.latency = np.asarray(links.seconds_per_byte), np.asarray(links.latency)
        self.known: dict[object, Amounts] = {}

    def of(self, step: TransferStep) -> Amounts:
        """[devices]"""
        item = self.values[step.value].item_bytes
        key = id(step.before), id(step.after), item
        if key not in self.known:
            volumes = level_volumes(self.mesh, step.before, step.after) * item
            self.known[key] = (volumes * self.per_byte + (volumes > 0) * self.latency).sum(axis=1)
        return self.known[key]
