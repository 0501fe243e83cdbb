"""What workers do, while they do it: a view on the terminal for work that lasts, and the table that it shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from girih.machine.units import format_bytes

DELAY_SECONDS = 1.0
"""Work that is shorter shows nothing."""
REFRESH_SECONDS = 0.25
PRINT_SECONDS = 10.0
"""Between tables where there is no terminal, but the view was asked for."""


@dataclass(frozen=True)
class WorkerLine:
    """A worker in the table. tiles, memory: bytes; 0: unknown. done: of all that it has to do, from 0 to 1; None:
    nothing is under way. at: where it is."""

    rank: int
    tiles: int
    memory: int
    done: float | None = None
    at: str = ""


def workers_table(title: str, lines: Sequence[WorkerLine], tiles: bool) -> Table:
    """tiles: whether workers hold any."""
    rows = Table(title=title, box=None)
    for heading in ("worker", *(("tiles",) if tiles else ()), "memory"):
        rows.add_column(heading, justify="right")
    underway = any(line.done is not None for line in lines)
    for heading in ("done", "at") if underway else ():
        rows.add_column(heading)
    for line in lines:
        cells: list[Any] = [str(line.rank), *((format_bytes(line.tiles),) if tiles else ())]
        cells.append(format_bytes(line.memory) if line.memory else "")
        if underway:
            cells += [ProgressBar(total=1.0, completed=line.done or 0.0, width=20), line.at]
        rows.add_row(*cells)
    return rows


class LiveView:
    """A view of workers on a terminal. A context for each piece of work; shown when it has lasted a second.

    shown: None on terminals only, True always (in a log a table now and then), False never. A thread draws; it sleeps
    between pieces of work.
    """

    def __init__(self, shown: bool | None, console: Console | None = None) -> None:
        self.shown = shown
        self.console = console
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._what: tuple[Callable[[float], Table], float] | None = None
        self._live: Any = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def __call__(self, table: Callable[[float], Table]) -> Iterator[None]:
        """table: of the moment at which the work began (time.monotonic), what is to be seen now."""
        if not self._wanted():
            yield
            return
        self._what = table, time.monotonic()
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
        """End the thread; the next piece of work begins another."""
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
                if self._what is None or time.monotonic() - self._what[1] < DELAY_SECONDS:
                    continue
                assert self.console is not None
                table, began = self._what
                if not self.console.is_terminal:  # a log
                    if time.monotonic() - printed >= PRINT_SECONDS:
                        printed = time.monotonic()
                        self.console.print(table(began))
                    continue
                if self._live is None:
                    self._live = Live(console=self.console, auto_refresh=False, transient=True)
                    self._live.start()
                self._live.update(table(began), refresh=True)
