"""What the workers of a cluster hold and do, for its live view (`girih.report.live`)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.table import Table

from girih.graph import Graph
from girih.machine.units import format_bytes
from girih.program import Program
from girih.report.live import WorkerLine, workers_table
from girih.run.engines.crew import resident_bytes
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.errors import IDLE, where
from girih.run.tiles.tiles import TileRun
from girih.run.worker.parts import box_of, shape_of


@dataclass(frozen=True)
class LiveArray:
    """An array that the workers hold. tiles: bytes of each worker's part."""

    key: int
    shape: tuple[int, ...]
    dtype: str
    tiles: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return sum(self.tiles)


def live_arrays(run: TileRun | None) -> list[LiveArray]:
    """What workers hold, by the driver's account: nobody is asked, so it can be seen during an evaluation."""
    held = run.held() if run is not None else {}
    return [_live(key, program, name) for key, (program, name) in sorted(held.items())]


def _live(key: int, program: Program | Graph, name: str) -> LiveArray:
    if isinstance(program, Graph):
        value = program.values[name]
        return LiveArray(key, value.shape, value.dtype, (value.bytes,))
    value = program.graph.values[name]
    tiles = []
    for rank in range(program.mesh.devices):
        count = value.item_bytes
        for length in shape_of(box_of(program, name, rank)):
            count *= length
        tiles.append(count)
    return LiveArray(key, value.shape, value.dtype, tuple(tiles))


def table(run: TileRun, program: Program | LoopBlocks | None = None, began: float | None = None) -> Table:
    """Workers with their tiles, memory, and where they are in the program, if one is under way."""
    arrays = live_arrays(run)
    total = sum(item.bytes for item in arrays)
    seconds = f", {time.monotonic() - began:.0f} s" if began is not None else ""
    title = f"{len(run.ranks)} workers, {len(arrays)} arrays, {format_bytes(total)}{seconds}"
    statuses = run.crew.status()
    begun = any(status.step != IDLE for status in statuses)
    lines = []
    for status in statuses:
        tiles = sum(item.tiles[status.rank] for item in arrays)
        resident = status.resident or (resident_bytes() if run.engine.one_process else 0)
        if program is None:
            lines.append(WorkerLine(status.rank, tiles, resident))
            continue
        end = max(len(program.steps), 1)
        done = status.step if status.step != IDLE else end if begun else 0  # who is ready waits for the others
        inside = status.thousandths if status.step != IDLE else 0
        share = f" ({inside / 10:.0f} %)" if inside else ""
        at = _at(program, status.step) + share
        lines.append(WorkerLine(status.rank, tiles, resident, (done + inside / 1000) / end, at))
    return workers_table(title, lines, tiles=True)


def _at(program: Program | LoopBlocks, step: int) -> str:
    """Where a worker is in the program: the operator and the user's line."""
    if step == IDLE:
        return "waiting"
    place = where(program, step)
    return f"{place.operator or place.action} {place.source}".strip()
