"""Tiles: arrays that live in the workers between programs, by key. One crew runs many programs on them, one by one.

This is the driver's side, `girih.run.tiles.store` a worker's. Programs are those of `girih.program`; arrays enter them
as state that nothing replaces, and what they make is kept under a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from girih.capture.lazy.sources import Part, Source
from girih.graph import Graph
from girih.layout import Links, Mesh, Transfers
from girih.partition.strategy import Strategy
from girih.program import Program, lower
from girih.run.engines.crew import Crew, first_failure
from girih.run.engines.engine import Engine
from girih.run.errors import Spoilt, SpoiltError
from girih.run.worker.pages import large_pages
from girih.run.worker.parts import Box, Tensor, assemble, box_of, cut, reporters
from girih.run.worker.service import Options, Statistics


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation does with a program.

    number: of the program, which the workers remember. held: by input name, the key of a kept array. passed: whole
    tensors by input name, for this evaluation only. placed: by input name, a key and a whole tensor that is kept under
    it from now on, or a Source of which each worker reads its tile. keep: by output name the key of what is made.
    report: outputs of which the driver wants the value. room: bytes of each worker's limit that the program leaves.
    """

    number: int
    held: Mapping[str, int]
    passed: Mapping[str, Tensor]
    placed: Mapping[str, tuple[int, Tensor | Source]]
    keep: Mapping[str, int]
    report: tuple[str, ...] = ()
    free: tuple[int, ...] = field(default=())
    room: int = 0


class TileRun:
    """Workers that keep tiles; a context manager by `close`.

    engine: where the workers live. outlives: are the tiles still there after a WorkerError?

    Raises:
        WorkerError: a worker could not start.
    """

    outlives = False

    def __init__(self, mesh: Mesh, engine: Engine, options: Options) -> None:
        large_pages()
        self.mesh = mesh
        self.engine = engine
        self.options = options
        self.crew = self._new_crew()
        self._known: set[int] = set()
        self._held: dict[int, tuple[Program | Graph, str]] = {}

    @property
    def ranks(self) -> range:
        return range(self.mesh.devices)

    def _new_crew(self) -> Crew:
        return self.engine.crew(nothing(self.mesh), self.options)

    def evaluate(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        """Run a program once on kept and given arrays; the reported outputs, whole.

        Raises:
            SpoiltError: a worker failed while it computed; nothing was made, and the tiles are as before. What was
                `placed` or made elsewhere may still lie under its key, to be freed.
            WorkerError: a worker died or hung, or an exchange failed; the crew is gone, and all tiles with it.
        """
        self.let_go(what.free)
        results = self._once(program, what)
        self._held.update((key, (program, name)) for name, (key, _) in what.placed.items())
        self._held.update((key, (program, name)) for name, key in what.keep.items())
        return results

    def _once(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        replies = self._start("evaluate", program, what, [self._ending(program, what, rank) for rank in self.ranks])
        if failures := [reply.failure for reply in replies if isinstance(reply, Spoilt)]:
            raise first_failure(failures).error(SpoiltError)
        return {name: whole(program, name, replies) for name in what.report}

    def fetch(self, program: Program, name: str, key: int) -> Tensor:
        """The whole of a kept array; `program` has it as the value `name`."""
        replies = self.crew.command(
            "fetch",
            [{"keys": {name: key} if rank in reporters(program, name) else {}} for rank in self.ranks],
        )
        return whole(program, name, replies)

    def fetch_tile(self, name: str, key: int, rank: int) -> Tensor:
        """One worker's tile of a kept array."""
        fields = [{"keys": {name: key} if other == rank else {}} for other in self.ranks]
        tile: Tensor = self.crew.command("fetch", fields)[rank][name]
        return tile

    def spill(self, keys: Sequence[int]) -> None:
        """Move kept arrays from the workers' memory to files."""
        self.crew.command("spill", [{"keys": list(keys)} for _ in self.ranks])

    def forget(self, number: int) -> None:
        """The workers may forget a program."""
        if number in self._known:
            self._known.discard(number)
            self.crew.command("forget", [{"number": number}] * self.mesh.devices)

    def statistics(self) -> list[Statistics]:
        """What each worker has measured since it started: bytes, seconds."""
        return list(self.crew.command("statistics", [{} for _ in self.ranks]))

    def tiles(self) -> list[dict[int, int]]:
        """The bytes of each worker's tile of every kept array, by key, in the order of the workers."""
        return list(self.crew.command("tiles", [{} for _ in self.ranks]))

    def held(self) -> Mapping[int, tuple[Program | Graph, str]]:
        """The driver's account of the kept arrays: by key, a program, and its value whose layout the array has; or a
        graph that the only worker has computed, which has all of the value."""
        return dict(self._held)

    def hold(self, key: int, graph: Graph, name: str) -> None:
        """The only worker keeps a value of a graph, which the driver has given it."""
        self._held[key] = graph, name

    def let_go(self, keys: Iterable[int]) -> None:
        """Arrays that the worker has been told to drop."""
        for key in keys:
            self._held.pop(key, None)

    def close(self) -> None:
        self.crew.close()

    def _start(self, command: str, program: Program, what: Evaluation, more: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Hand a program what it needs, by `evaluate` or `begin`; more: further fields, by rank."""
        self.crew.program = program  # whose instructions the workers' progress counts
        fields = [
            {
                "number": what.number,
                "program": None if what.number in self._known else program,
                "held": what.held,
                "passed": {name: cut(tensor, box_of(program, name, rank)) for name, tensor in what.passed.items()},
                "placed": {
                    name: (key, part_of(content, box_of(program, name, rank), what.room))
                    for name, (key, content) in what.placed.items()
                },
                "free": what.free,
                **more[rank],
            }
            for rank in self.ranks
        ]
        replies = self.crew.command(command, fields)
        self._known.add(what.number)
        return list(replies)

    def _ending(self, program: Program, what: Evaluation, rank: int) -> dict[str, Any]:
        report = tuple(name for name in what.report if rank in reporters(program, name))
        return {"keep": what.keep, "report": report}


def part_of(content: Tensor | Source, box: Box, room: int = 0) -> Tensor | Part:
    return Part(content, box, room) if isinstance(content, Source) else cut(content, box)


def whole(program: Program, name: str, replies: Iterable[Mapping[str, Tensor]]) -> Tensor:
    parts = [(rank, reply[name]) for rank, reply in enumerate(replies) if name in reply]
    if len(parts) == 1 and tuple(parts[0][1].shape) == program.graph.values[name].shape:
        return parts[0][1]
    return assemble(program, name, parts)


def nothing(mesh: Mesh) -> Program:
    """The program of a crew that waits for programs."""
    links = Links((0.0,) * mesh.axes, (0.0,) * mesh.axes)
    return lower(Graph({}, (), (), ()), Strategy(mesh, (), {}), Transfers(mesh, links, "bytes"))
