"""A small program with state of several kinds, and a run of it whose workers answer one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from run_programs import transfers

from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import Mesh
from girih.partition.strategy import Strategy
from girih.program import Program, lower
from girih.run.errors import NOT_BEGUN
from girih.run.training.session import Run
from girih.run.transport.transport import NoTransport
from girih.run.worker.initial import cut_state
from girih.run.worker.service import Options, Service

STATE = {
    "weight": ((6, 5), "float32"),
    "half": ((7, 2, 3), "bfloat16"),
    "mask": ((9,), "bool"),
    "waves": ((4, 3), "complex64"),
    "count": ((), "int64"),
    "nothing": ((0, 3), "float16"),
}


def state_of(seed: int) -> dict[str, torch.Tensor]:
    """Whole tensors by path."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, (shape, dtype) in STATE.items():
        kind = getattr(torch, dtype)
        if kind == torch.complex64:
            made[name] = torch.randn(shape, dtype=kind, generator=generator)
        else:
            made[name] = (torch.randn(shape, generator=generator) * 50).to(kind)
    return made


def program(devices: int, axis: int = 0) -> Program:
    """Every tensor is divided along its first or last dimension; scalars are with all."""
    values = {name: Value(name, shape, dtype) for name, (shape, dtype) in STATE.items()}
    values["y"] = Value("y", (6, 5), "float32")
    inputs = tuple(Input(name, "buffer", name) for name in STATE)
    node = Node("y", "aten.neg", (("self", Ref("weight")),), ("y",), source="model.py:1")
    graph = Graph(values, (node,), inputs, (Output("y", "result"),))
    layouts = {name: (axis % len(shape) if shape else -1,) for name, (shape, _) in STATE.items()}
    mesh = Mesh((devices,))
    strategy = Strategy.of_codes(mesh, ((axis % 2,),), {**layouts, "y": (axis % 2,)})
    return lower(graph, strategy, transfers(mesh))


class InTurn:
    """A crew in this thread: its workers answer one after another, and a kill at one point is a kill there always."""

    carries = False

    def __init__(self, program: Program) -> None:
        self.size = program.mesh.devices
        self.services = [Service(program, rank, NoTransport(), Options(), list(NOT_BEGUN)) for rank in range(self.size)]

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        return [service.handle(name, own) for service, own in zip(self.services, fields, strict=True)]

    def status(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def run_of(seed: int, devices: int = 2) -> Run:
    """A run that has this state, and is as many steps old."""
    own = program(devices)
    crew = InTurn(own)
    for rank, service in enumerate(crew.services):
        service.worker.take_state(cut_state(own, rank, state_of(seed)))
    return Run(own, crew, seed=seed, steps=seed, observe=None)
