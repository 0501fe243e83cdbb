"""A worker's tiles: its parts of arrays that live from one program to the next, by key."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from typing import Any

import torch

from girih.capture.sources import Part
from girih.lower import Program
from girih.run.parts import Tensor
from girih.run.transport import Transport
from girih.run.worker import Times, Worker, settle


class TileStore:
    """One worker's tiles and the programs that it knows."""

    def __init__(
        self, rank: int, transport: Transport, device: Any, progress: MutableSequence[int], times: Times
    ) -> None:
        self.rank = rank
        self.transport = transport
        self.device = device
        self.progress = progress
        self.times = times
        self.held: dict[int, Tensor] = {}
        self.workers: dict[int, Worker] = {}

    def evaluate(
        self,
        number: int,
        program: Program | None,
        held: Mapping[str, int],
        given: dict[str, Tensor],
        placed: Mapping[str, tuple[int, Tensor | Part]],
        keep: Mapping[str, int],
        report: tuple[str, ...],
        free: tuple[int, ...],
    ) -> dict[str, Tensor]:
        """Run a program on tiles, keep what it makes, and return what is to be reported."""
        for key in free:
            self.held.pop(key, None)
        if program is not None:
            self.workers[number] = Worker(
                program, self.rank, self.transport, device=self.device, progress=self.progress
            )
            self.workers[number].times = self.times
        worker = self.workers[number]
        for key, part in placed.values():
            self.held[key] = (torch.from_numpy(part.read()) if isinstance(part, Part) else part).to(self.device)
        worker.state = {name: self.held[key] for name, key in held.items()}
        worker.state.update((name, self.held[key]) for name, (key, _) in placed.items())
        try:
            made = worker.step({name: part.to(self.device) for name, part in given.items()})
        finally:
            worker.state = {}
        for name, key in keep.items():
            self.held[key] = settle(made[name])
        return {name: made[name].cpu() for name in report}

    def fetch(self, keys: Mapping[str, int]) -> dict[str, Tensor]:
        return {name: self.held[key].cpu() for name, key in keys.items()}

    def sizes(self) -> dict[int, int]:
        return {key: tensor.nbytes for key, tensor in self.held.items()}
