"""A worker's tiles: its parts of arrays that live from one program to the next, by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Any

import torch

from girih.capture.lazy.sources import Part
from girih.program import Program
from girih.run.errors import Spoilt, failure_of
from girih.run.tiles import checkpoint as tile_checkpoint
from girih.run.tiles.spill import Streamed, in_memory, on_file
from girih.run.training.checkpoint import Answer, CheckpointError
from girih.run.transport.transport import Transport
from girih.run.worker.parts import Tensor
from girih.run.worker.worker import Running, Times, Worker, settle


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
        self.running: tuple[Worker, Running] | None = None

    def evaluate(self, keep: Mapping[str, int], report: tuple[str, ...], **fields: Any) -> dict[str, Tensor] | Spoilt:
        """Run a program on tiles, keep what it makes, and return what is to be reported; fields as for `begin`."""
        self.begin(**fields)
        worker, step = self._under_way()
        failure = worker.attempt(step)
        if failure is None:
            return self.finish(keep, report)
        self.running = None
        return Spoilt(failure_of(self.rank, failure))

    def begin(
        self,
        number: int,
        program: Program | None,
        held: Mapping[str, int],
        passed: dict[str, Tensor],
        placed: Mapping[str, tuple[int, Tensor | Part]],
        free: tuple[int, ...],
    ) -> None:
        """Take what a program needs; `advance` and `finish` follow."""
        self.running = None
        for key in free:
            self.held.pop(key, None)
        if program is not None:
            self.workers[number] = Worker(
                program, self.rank, self.transport, device=self.device, progress=self.progress
            )
            self.workers[number].times = self.times
        worker = self.workers[number]
        self.place(
            {
                key: Streamed(part) if name in worker.program.streamed and isinstance(part, Part) else part
                for name, (key, part) in placed.items()
            }
        )
        self.spill([key for name, (key, _) in placed.items() if name in worker.program.files])
        worker.state = {name: self.held[key] for name, key in held.items()}
        worker.state.update((name, self.held[key]) for name, (key, _) in placed.items())
        try:
            self.running = worker, worker.begin({name: part.to(self.device) for name, part in passed.items()})
        finally:
            worker.state = {}

    def advance(self, stop: int | None) -> None:
        """Run the instructions before `stop`, or all that are left."""
        worker, step = self._under_way()
        worker.advance(step, len(worker.program.steps) if stop is None else stop)

    def finish(self, keep: Mapping[str, int], report: tuple[str, ...]) -> dict[str, Tensor]:
        worker, step = self._under_way()
        self.running = None
        values = worker.finish(step)
        for name, key in keep.items():
            self.held[key] = settle(values[name])
        return {name: values[name].cpu() for name in report}

    def place(self, parts: Mapping[int, Tensor | Part]) -> None:
        """Keep tiles, by key, that come from the driver or are read where they are."""
        for key, part in parts.items():
            self.held[key] = (torch.from_numpy(part.read()) if isinstance(part, Part) else part).to(self.device)

    def spill(self, keys: Sequence[int]) -> None:
        """Move tiles from memory to files."""
        for key in keys:
            if not isinstance(self.held[key], Streamed):
                self.held[key] = on_file(self.held[key])

    def fetch(self, keys: Mapping[str, int]) -> dict[str, Tensor]:
        """Tiles by the given names."""
        return {name: self.held[key].cpu() for name, key in keys.items()}

    def drop(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.held.pop(key, None)

    def forget(self, number: int) -> None:
        """A program that will not be asked for again."""
        self.workers.pop(number, None)

    def check_place(self, place: str) -> None:
        """Raises where this worker cannot reach the checkpoint at `place`."""
        tile_checkpoint.check(place)

    def save_tiles(self, place: str, keys: Sequence[int]) -> Answer:
        """Write tiles to the checkpoint at `place` (`girih.run.tiles.checkpoint`)."""
        return self._told(
            lambda: tile_checkpoint.save_tiles(place, self.rank, {key: in_memory(self.held[key]) for key in keys})
        )

    def load_tiles(self, place: str, keys: Sequence[int]) -> Answer:
        return self._told(lambda: self._load_tiles(place, keys))

    def _load_tiles(self, place: str, keys: Sequence[int]) -> None:
        for key, tensor in tile_checkpoint.load_tiles(place, self.rank, keys):
            self.held[key] = tensor.to(self.device)

    def save_step(self, place: str, name: str) -> Answer:
        """Write what the program that is under way has made so far."""
        step = self._under_way()[1]
        return self._told(lambda: tile_checkpoint.save_step(place, name, self.rank, step, self.held))

    def load_step(self, place: str, name: str) -> Answer:
        """Go on, in the program that has begun, from what `save_step` wrote."""
        step = self._under_way()[1]
        return self._told(lambda: tile_checkpoint.load_step(place, name, self.rank, step, self.held))

    def _told(self, do: Callable[[], None]) -> Answer:
        """A checkpoint that cannot be written or read is no reason for a worker to end."""
        try:
            do()
        except CheckpointError as error:
            return Answer(f"worker {self.rank}: {error}")
        return Answer()

    def _under_way(self) -> tuple[Worker, Running]:
        if self.running is None:
            raise RuntimeError("no program is under way")
        return self.running

    def tiles(self) -> dict[int, int]:
        """Bytes of each tile, by key."""
        return {key: tensor.nbytes for key, tensor in self.held.items()}
