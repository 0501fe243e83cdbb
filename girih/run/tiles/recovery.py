"""Tiles that outlive their workers: what is lost is loaded from the last checkpoint or made again.

Tiles never change, and a program makes the same bits from the same tiles, whatever else happened. So it is enough to
remember, of every array since the last checkpoint, which program made it from which others (its lineage), and where a
long program stood when the checkpoint was written. What the driver gave stays with the driver. After a worker is lost
the crew gets another; the arrays that are still asked for are loaded, given or made again, those that they were made
of with them, and the interrupted program goes on from the checkpoint, or from its start.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, TypeVar

from girih.layout import Mesh
from girih.program import Program, StartStep, TransferStep
from girih.run.engines.crew import MendingCrew
from girih.run.engines.engine import Engine
from girih.run.errors import IDLE, SpoiltError, UnreadableError, Where, WorkerError
from girih.run.tiles import checkpoint as tile_checkpoint
from girih.run.tiles.checkpoint import TilesKept, check_kept
from girih.run.tiles.tiles import Evaluation, TileRun, part_of, whole
from girih.run.training.checkpoint import CheckpointError
from girih.run.worker.parts import Tensor, box_of
from girih.run.worker.service import Options, Statistics

ATTEMPTS = 5
"""Losses in a row without an instruction more done, after which the run is given up: it may be the program's fault."""
SLICE_SECONDS = 1.0
"""A long program reports to the driver about so often."""
FIRST_SLICE = 64  # instructions; a program that has no more is not cut

Result = TypeVar("Result")


@dataclass(eq=False)
class Tile:
    """An array with the workers. Either the driver gave it (`given`), or `maker` made it, or a checkpoint has it.

    name: the value of `program` whose layout it has. on_file: it was moved out of memory. away: the workers that do
    not hold their part.
    """

    key: int
    program: Program
    name: str
    given: Any = None
    maker: EvaluationRecipe | None = None
    on_file: bool = False
    away: frozenset[int] = frozenset()


@dataclass(eq=False)
class EvaluationRecipe:
    """An evaluation as it was asked for, and the tiles that it read."""

    program: Program
    what: Evaluation
    reads: tuple[Tile, ...]


@dataclass(frozen=True)
class Loss:
    """A recovery. rank: of the worker that was lost. began: when it was noticed (time.monotonic). seconds: from then
    until the program could go on."""

    rank: int
    reason: str
    began: float
    seconds: float


class RecoveringRun(TileRun):
    """A TileRun that goes on after the loss of workers.

    place: directory or fsspec URL for checkpoints. every: seconds from one to the next. losses: what was recovered
    from. checkpoints: how many were written.

    Raises:
        CheckpointPlaceError: the driver or a worker cannot reach `place`.
    """

    outlives = True

    def __init__(self, mesh: Mesh, engine: Engine, options: Options, place: str, every: float) -> None:
        self.place = tile_checkpoint.new_place(place)
        self._guard = tile_checkpoint.Guard(self.place)
        self.every = every
        self.manifest = TilesKept(mesh.devices)
        self.losses: list[Loss] = []
        self.checkpoints = 0
        self._tiles: dict[int, Tile] = {}
        self._guests: set[Tile] = set()
        self._left: tuple[int, ...] = ()
        self._seconds: dict[int, float] = {}
        self._saved_at = time.monotonic()
        self._steps_saved = 0
        self._attempts = 0
        self._furthest = -1
        try:
            super().__init__(mesh, engine, options)
        except BaseException:
            self._guard.release()
            tile_checkpoint.remove(self.place)
            raise
        try:
            self._all("check_place", place=self.place)
        except WorkerError as error:
            self.close()
            if "CheckpointPlaceError: " not in error.reason:
                raise
            reason = error.reason.split("CheckpointPlaceError: ")[1].removesuffix(")")
            raise tile_checkpoint.CheckpointPlaceError(reason) from error

    # --------------------------------------------------------------------------------------- what a TileRun does

    def evaluate(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        """As TileRun's.

        Raises:
            WorkerError: the program failed, or no worker could be had; `outlives` says if the tiles are still there.
        """
        for key in what.free:
            if key in self._tiles:
                self._tiles.pop(key).away = self._everybody
        if self.manifest.step:  # of an evaluation that was interrupted
            self._replace(changed(self.manifest, step="", at=0))
        what = changed(what, free=(*what.free, *self._left))
        placed = [Tile(key, program, name, given=content) for name, (key, content) in what.placed.items()]
        recipe = EvaluationRecipe(program, what, (*(self._tiles[key] for key in what.held.values()), *placed))
        self._left = (*(tile.key for tile in placed), *what.keep.values())
        self._furthest = -1
        results = self._recovering(lambda: self._evaluate(program, what))
        self._left = ()
        kept = [Tile(key, program, name, maker=recipe) for name, key in what.keep.items()]
        for tile in (*placed, *kept):
            tile.on_file = tile.name in program.files
            self._tiles[tile.key] = tile
        if self._due():
            self._recovering(lambda: self._checkpoint(None))
        return results

    def spill(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._tiles[key].on_file = True
        self._recovering(lambda: super(RecoveringRun, self).spill(keys))

    def fetch(self, program: Program, name: str, key: int) -> Tensor:
        return self._recovering(lambda: super(RecoveringRun, self).fetch(program, name, key))

    def fetch_tile(self, name: str, key: int, rank: int) -> Tensor:
        return self._recovering(lambda: super(RecoveringRun, self).fetch_tile(name, key, rank))

    def statistics(self) -> list[Statistics]:
        return self._recovering(super().statistics)

    def tiles(self) -> list[dict[int, int]]:
        return self._recovering(super().tiles)

    def forget(self, number: int) -> None:
        self._seconds.pop(number, None)
        self._recovering(lambda: super(RecoveringRun, self).forget(number))

    def checkpoint(self) -> None:
        """Write one now, whatever the interval."""
        self._recovering(lambda: self._checkpoint(None))

    def held(self) -> dict[int, tuple[Program, str]]:
        return {key: (tile.program, tile.name) for key, tile in tuple(self._tiles.items())}

    def close(self) -> None:
        super().close()
        self._guard.release()
        with contextlib.suppress(OSError):  # the run is over; what cannot be removed now stays
            tile_checkpoint.remove(self.place)

    @property
    def _everybody(self) -> frozenset[int]:
        return frozenset(self.ranks)

    def _all(self, command: str, **fields: Any) -> list[Any]:
        return list(self.crew.command(command, [fields for _ in self.ranks]))

    # --------------------------------------------------------------------------------------- evaluations

    def _evaluate(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        """In one command where it is short, else in slices between which checkpoints may be written."""
        began = time.monotonic()
        short = self._seconds.get(what.number, SLICE_SECONDS) < SLICE_SECONDS and not self.manifest.step
        if short or len(program.steps) <= FIRST_SLICE:
            results = self._once(program, what)
        else:
            results = self._evaluate_in_slices(program, what)
        self._seconds[what.number] = time.monotonic() - began
        self._attempts = 0
        return results

    def _evaluate_in_slices(self, program: Program, what: Evaluation) -> dict[str, Tensor]:
        self._start("begin", program, what, [{} for _ in self.ranks])
        at = 0
        if self.manifest.step:
            replies = self._all("load_step", place=self.place, name=self.manifest.step)
            if any(reply.error for reply in replies):  # its tiles are there: it is made from the start
                self._replace(changed(self.manifest, step="", at=0))
                return self._evaluate_in_slices(program, what)
            at = self.manifest.at
        end, stops = len(program.steps), pauses(program)
        amount = FIRST_SLICE
        while at < end:
            at = stops[min(bisect_left(stops, at + amount), len(stops) - 1)]
            began = time.monotonic()
            self._all("advance", stop=at)
            took = time.monotonic() - began
            amount = amount * 2 if took < SLICE_SECONDS / 2 else max(1, amount // 2) if took > SLICE_SECONDS else amount
            if at > self._furthest:
                self._furthest, self._attempts = at, 0
            if at < end and self._due():
                self._checkpoint(at)
        replies = self.crew.command("finish", [self._ending(program, what, rank) for rank in self.ranks])
        if self.manifest.step:
            self._replace(changed(self.manifest, step="", at=0))
        return {name: whole(program, name, replies) for name in what.report}

    # --------------------------------------------------------------------------------------- checkpoints

    def _due(self) -> bool:
        return time.monotonic() - self._saved_at >= self.every

    def _checkpoint(self, at: int | None) -> None:
        """Write a checkpoint of all live tiles that were made and, where `at` is given, of the program under way, which
        is about to run instruction `at`."""
        live = [tile for tile in self._tiles.values() if tile.given is None]
        new = [tile for tile in live if tile.key not in self.manifest.tiles]
        if new or at is not None:
            check_kept(self._all("save_tiles", place=self.place, keys=[tile.key for tile in new]), SpoiltError)
            step = ""
            if at is not None:
                self._steps_saved += 1
                step = f"step-{self._steps_saved}"
                check_kept(self._all("save_step", place=self.place, name=step), SpoiltError)
            self._replace(TilesKept(self.mesh.devices, frozenset(tile.key for tile in live), step, at or 0))
            for tile in new:
                tile.maker = None
            self.checkpoints += 1
        self._saved_at = time.monotonic()

    def _replace(self, after: TilesKept) -> None:
        try:
            tile_checkpoint.replace(self.place, self.manifest, after)
        except CheckpointError as error:
            raise SpoiltError(0, Where(IDLE, 0), f"is whole, but its checkpoint is not kept: {error}") from error
        self.manifest = after

    # --------------------------------------------------------------------------------------- recovery

    def _recovering(self, do: Callable[[], Result]) -> Result:
        """Do it; after the loss of a worker once more, as often as it gets further.

        Raises:
            WorkerError: not the worker is at fault (the tiles are there again), or no worker could be had.
        """
        while True:
            try:
                result = do()
            except SpoiltError:  # nothing is lost
                raise
            except WorkerError as error:
                self._recover(error)
                if not error.lost:
                    raise
            else:
                self._attempts = 0
                return result

    def _recover(self, error: WorkerError) -> None:
        while True:
            self._attempts += 1
            if self._attempts > ATTEMPTS:
                self.outlives = False
                reason = f"{error.reason}, and so did its successors {ATTEMPTS} times,"
                raise WorkerError(error.rank, error.place, reason, error.details) from error
            began = time.monotonic()
            try:
                self._restore(frozenset(self._mend()))
            except UnreadableError:
                self.outlives = False
                raise
            except WorkerError as other:
                error = other
            else:
                self.losses.append(Loss(error.rank, error.reason, began, time.monotonic() - began))
                return

    def _mend(self) -> Sequence[int]:
        """A crew that works again; the workers that have lost what they held."""
        self._known.clear()
        if isinstance(self.crew, MendingCrew):
            return self.crew.mend()
        self.crew.close()
        self.crew = self._new_crew()
        return self.ranks

    def _restore(self, lost: frozenset[int]) -> None:
        """Bring every live tile back to the workers, of which `lost` have lost all of theirs.

        Tiles that nobody asks for any more come back where others are made of them, and go after the last reader.
        """
        for tile in (*self._tiles.values(), *self._guests):
            tile.away |= lost
        order, wanted = in_order(self._tiles.values(), self.manifest.tiles)
        last = {
            tile: number
            for number, item in enumerate(order)
            if isinstance(item, EvaluationRecipe)
            for tile in item.reads
        }
        for number, item in enumerate(order):
            if isinstance(item, Tile):
                self._bring(item)
            else:
                self._make_again(item, wanted[item])
                self._dismiss([tile for tile in item.reads if last[tile] == number and tile in self._guests])
        self._dismiss(list(self._guests))

    def _bring(self, tile: Tile) -> None:
        """A tile that the driver gave, or that the checkpoint has."""
        if tile.given is None:
            keys = [(tile.key,) if rank in tile.away else () for rank in self.ranks]
            replies = self.crew.command("load_tiles", [{"place": self.place, "keys": own} for own in keys])
            check_kept(replies, UnreadableError)
        else:
            parts = [
                {tile.key: part_of(tile.given, box_of(tile.program, tile.name, rank))} if rank in tile.away else {}
                for rank in self.ranks
            ]
            self.crew.command("place", [{"parts": own} for own in parts])
        self._is_back(tile)

    def _make_again(self, recipe: EvaluationRecipe, tiles: Sequence[Tile]) -> None:
        what, keys = recipe.what, {tile.key for tile in tiles}
        held = {**what.held, **{name: key for name, (key, _) in what.placed.items()}}
        keep = {name: key for name, key in what.keep.items() if key in keys}
        self._once(recipe.program, changed(what, held=held, placed={}, keep=keep, report=(), free=()))
        for tile in tiles:
            self._is_back(tile)

    def _is_back(self, tile: Tile) -> None:
        tile.away = frozenset()
        if tile.on_file:
            super().spill([tile.key])
        if self._tiles.get(tile.key) is not tile:
            self._guests.add(tile)

    def _dismiss(self, guests: Sequence[Tile]) -> None:
        if guests:
            self._all("drop", keys=[tile.key for tile in guests])
        for tile in guests:
            tile.away = self._everybody
            self._guests.discard(tile)


def in_order(
    goals: Iterable[Tile], saved: Set[int]
) -> tuple[list[Tile | EvaluationRecipe], dict[EvaluationRecipe, list[Tile]]]:
    """What to do, one after another, until the goals are with all workers: tiles that are brought, recipes that are
    followed again; and of each recipe the tiles for which it is. saved: keys of a checkpoint."""
    order: list[Tile | EvaluationRecipe] = []
    wanted: dict[EvaluationRecipe, list[Tile]] = {}
    seen: set[Tile] = set()
    stack: list[Tile | EvaluationRecipe] = list(goals)
    while stack:
        item = stack.pop()
        if isinstance(item, EvaluationRecipe):
            order.append(item)
        elif item.away and item not in seen:
            seen.add(item)
            if item.given is not None or item.key in saved:
                order.append(item)
                continue
            assert item.maker is not None
            if item.maker not in wanted:
                stack.append(item.maker)
                stack.extend(item.maker.reads)
            wanted.setdefault(item.maker, []).append(item)
    return order, wanted


def pauses(program: Program) -> list[int]:
    """Instructions before which no transfer is under way, in order; the end is the last."""
    pending: set[str] = set()
    seconds = []
    for index, step in enumerate(program.steps):
        if not pending:
            seconds.append(index)
        if isinstance(step, StartStep):
            pending.add(step.transfer.target)
        elif isinstance(step, TransferStep):
            pending.discard(step.target)
    return [*seconds, len(program.steps)]
