"""What the workers do, while they do it: a view on the terminal for evaluations that last, and the table behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from girih.lower import Program
from girih.machine.units import format_bytes
from girih.run.engines.crew import resident_bytes
from girih.run.errors import IDLE, where
from girih.run.tiles.tiles import TileRun
from girih.run.worker.parts import box_of, shape_of

DELAY_SECONDS = 1.0
"""An evaluation that is shorter shows nothing."""
REFRESH_SECONDS = 0.25
PRINT_SECONDS = 10.0
"""Between tables where there is no terminal, but the view was asked for."""


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
    """By the driver's account: nobody is asked, so that it can be seen during an evaluation, too."""
    held = run.held() if run is not None else {}
    return [_live(key, program, name) for key, (program, name) in sorted(held.items())]


def _live(key: int, program: Program, name: str) -> LiveArray:
    value = program.graph.values[name]
    tiles = []
    for rank in range(program.mesh.devices):
        count = value.item_bytes
        for length in shape_of(box_of(program, name, rank)):
            count *= length
        tiles.append(count)
    return LiveArray(key, value.shape, value.dtype, tuple(tiles))


class LiveView:
    """A view of a run's workers on a terminal. A context for each evaluation; shown when it has lasted a second.

    shown: None on terminals only, True always (in a log a table now and then), False never. A thread draws; it sleeps
    between evaluations.
    """

    def __init__(self, shown: bool | None, console: Console | None = None) -> None:
        self.shown = shown
        self.console = console
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._what: tuple[TileRun, Program, float] | None = None
        self._live: Any = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def __call__(self, run: TileRun, program: Program) -> Iterator[None]:
        if not self._wanted():
            yield
            return
        self._what = run, program, time.monotonic()
        self._begun.set()
        try:
            yield
        finally:
            with self._lock:
                self._what = None
                self._begun.clear()
                if self._live is not None:
                    self._live.stop()
                    self._live = None

    def close(self) -> None:
        """End the thread; the next evaluation begins another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._begun.set()  # it sees that it is not this view's any more
            thread.join(timeout=5.0)
            self._begun.clear()

    def _wanted(self) -> bool:
        if self.shown is False:
            return False
        if self.console is None:
            self.console = Console(stderr=True)
        if self.shown is None and not self.console.is_terminal:
            self.shown = False
            return False
        if self._thread is None:
            with self._lock:  # it must find itself here
                self._thread = threading.Thread(target=self._draw, name="girih live view", daemon=True)
                self._thread.start()
        return True

    def _draw(self) -> None:
        printed = -PRINT_SECONDS
        with self._lock:
            pass
        while self._thread is threading.current_thread():
            self._begun.wait()
            time.sleep(REFRESH_SECONDS)
            with self._lock:
                if self._what is None or time.monotonic() - self._what[2] < DELAY_SECONDS:
                    continue
                assert self.console is not None
                if not self.console.is_terminal:  # a log
                    if time.monotonic() - printed >= PRINT_SECONDS:
                        printed = time.monotonic()
                        self.console.print(table(*self._what))
                    continue
                if self._live is None:
                    self._live = Live(console=self.console, auto_refresh=False, transient=True)
                    self._live.start()
                self._live.update(table(*self._what), refresh=True)


def table(run: TileRun, program: Program | None = None, began: float | None = None) -> Table:
    """Workers with their tiles, memory, and where they are in the program, if one is under way."""
    arrays = live_arrays(run)
    total = sum(item.bytes for item in arrays)
    seconds = f", {time.monotonic() - began:.0f} s" if began is not None else ""
    rows = Table(title=f"{len(run.ranks)} workers, {len(arrays)} arrays, {format_bytes(total)}{seconds}", box=None)
    for heading in ("worker", "tiles", "memory"):
        rows.add_column(heading, justify="right")
    for heading in ("done", "at") if program is not None else ():
        rows.add_column(heading)
    statuses = run.crew.status()
    begun = any(status.step != IDLE for status in statuses)
    for status in statuses:
        tiles = sum(item.tiles[status.rank] for item in arrays)
        resident = status.resident or (resident_bytes() if run.engine.one_process else 0)
        cells: list[Any] = [str(status.rank), format_bytes(tiles), format_bytes(resident) if resident else ""]
        if program is not None:
            end = max(len(program.steps), 1)
            done = status.step if status.step != IDLE else end if begun else 0  # who is ready waits for the others
            inside = status.thousandths if status.step != IDLE else 0
            share = f" ({inside / 10:.0f} %)" if inside else ""
            cells += [
                ProgressBar(total=end, completed=done + inside / 1000, width=20),
                _at(program, status.step) + share,
            ]
        rows.add_row(*cells)
    return rows


def _at(program: Program, step: int) -> str:
    """The operator and the user's line."""
    if step == IDLE:
        return "waiting"
    place = where(program, step)
    return f"{place.operator or place.action} {place.source}".strip()
