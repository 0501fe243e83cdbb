"""Tiles: arrays that live in the workers between programs, by key. One crew runs many programs on them, one by one.

This is the driver's side, `girih.run.tile_store` a worker's. Programs are those of `girih.lower`; arrays enter them as
state that nothing replaces, and what they make is kept under a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from girih.capture.sources import Part, Source
from girih.graph import Graph
from girih.layout import Links, Mesh, Transfers
from girih.lower import Program, lower
from girih.partition.strategy import Strategy
from girih.run.parts import Box, Tensor, assemble, box_of, cut, reporters
from girih.run.processes import ProcessCrew
from girih.run.service import Options, Statistics
from girih.run.threads import ThreadCrew

CREWS: dict[str, Any] = {"processes": ProcessCrew, "threads": ThreadCrew}


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation does with a program.

    number: of the program, which the workers remember. held: by input name, the key of a kept array. given: whole
    tensors by input name, for this evaluation only. placed: by input name, a key and a whole tensor that is kept under
    it from now on, or a Source of which each worker reads its tile. keep: by output name the key of what is made.
    report: outputs of which the driver wants the value.
    """

    number: int
    held: Mapping[str, int]
    given: Mapping[str, Tensor]
    placed: Mapping[str, tuple[int, Tensor | Source]]
    keep: Mapping[str, int]
    report: tuple[str, ...] = ()
    free: tuple[int, ...] = field(default=())


class TileRun:
    """Workers that keep tiles; a context manager by `close`.

    backend: `threads` of this process or `processes` of this host.

    Raises:
        WorkerError: a worker could not start.
    """

    def __init__(self, mesh: Mesh, backend: str, options: Options) -> None:
        self.mesh = mesh
        self.crew = CREWS[backend](_nothing(mesh), options)
        self._known: set[int] = set()

    def evaluate(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        """Run a program once on kept and given arrays; the reported outputs, whole.

        Raises:
            WorkerError: a worker failed, died or hung; the crew is gone, and all tiles with it.
        """
        self.crew.program = program  # whose instructions the workers' progress counts
        first = None if what.number in self._known else program
        fields = [self._fields(program, first, what, rank) for rank in range(self.mesh.devices)]
        replies = self.crew.command("evaluate", fields)
        self._known.add(what.number)
        return {name: whole(program, name, replies) for name in what.report}

    def fetch(self, program: Program, name: str, key: int) -> Tensor:
        """The whole of a kept array; `program` has it as the value `name`."""
        replies = self.crew.command(
            "fetch",
            [{"keys": {name: key} if rank in reporters(program, name) else {}} for rank in range(self.mesh.devices)],
        )
        return whole(program, name, replies)

    def fetch_tile(self, name: str, key: int, rank: int) -> Tensor:
        """One worker's tile of a kept array."""
        fields = [{"keys": {name: key} if other == rank else {}} for other in range(self.mesh.devices)]
        tile: Tensor = self.crew.command("fetch", fields)[rank][name]
        return tile

    def forget(self, number: int) -> None:
        """The workers may forget a program."""
        if number in self._known:
            self._known.discard(number)
            self.crew.command("forget", [{"number": number}] * self.mesh.devices)

    def statistics(self) -> list[Statistics]:
        """What each worker has measured since it started: bytes, seconds."""
        return list(self.crew.command("statistics", [{} for _ in range(self.mesh.devices)]))

    def tiles(self) -> list[dict[int, int]]:
        """Of each worker, the bytes of its tile of every kept array, by key."""
        return list(self.crew.command("tiles", [{} for _ in range(self.mesh.devices)]))

    def close(self) -> None:
        self.crew.close()

    def _fields(self, program: Program, first: Program | None, what: Evaluation, rank: int) -> dict[str, Any]:
        return {
            "number": what.number,
            "program": first,
            "held": what.held,
            "given": {name: cut(tensor, box_of(program, name, rank)) for name, tensor in what.given.items()},
            "placed": {
                name: (key, _part(content, box_of(program, name, rank))) for name, (key, content) in what.placed.items()
            },
            "keep": what.keep,
            "report": tuple(name for name in what.report if rank in reporters(program, name)),
            "free": what.free,
        }


def _part(content: Tensor | Source, box: Box) -> Tensor | Part:
    return Part(content, box) if isinstance(content, Source) else cut(content, box)


def whole(program: Program, name: str, replies: Iterable[Mapping[str, Tensor]]) -> Tensor:
    parts = [(rank, reply[name]) for rank, reply in enumerate(replies) if name in reply]
    if len(parts) == 1 and tuple(parts[0][1].shape) == program.graph.values[name].shape:
        return parts[0][1]
    return assemble(program, name, parts)


def _nothing(mesh: Mesh) -> Program:
    """The program of a crew that waits for programs."""
    links = Links((0.0,) * mesh.axes, (0.0,) * mesh.axes)
    return lower(Graph({}, (), (), ()), Strategy(mesh, (), {}), Transfers(mesh, links, "bytes"))
