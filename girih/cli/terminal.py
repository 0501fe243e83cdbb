"""What the commands share: errors as one clear line, progress, tables on the terminal or in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from girih.report.progress import Progress
from girih.report.tables import render
from girih.run.engines.launcher import launched_rank

USERS_ERRORS = (  # what a user can mend
    ("girih.plans.plan", "PlanError"),
    ("girih.machine.units", "MachineError"),
    ("girih.cli.programs", "ProgramError"),
    ("girih.capture.errors", "CaptureError"),
    ("girih.run.training.checkpoint", "CheckpointError"),
    ("girih.inference.optimized", "OptimizeError"),
    ("girih.rewrite.rules.rule", "RuleError"),
    ("girih.gnn.data.errors", "DataError"),
)


class BadInputError(ValueError):
    """One clear line for the user; exit code 2."""


class FailedRunError(RuntimeError):
    """Workers did not finish; exit code 1. The message may have several lines."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """What a user can mend becomes a BadInputError, a worker's failure a FailedRunError."""
    try:
        yield
    except (BadInputError, FailedRunError, BrokenPipeError):  # who reads the output may stop when it has seen enough
        raise
    except OSError as error:
        if error.errno is None:
            raise
        raise BadInputError(
            ": ".join(filter(None, (error.filename and str(error.filename), error.strerror)))
        ) from error
    except (RuntimeError, ValueError) as error:
        # Rooms are imported when they are needed; an error of theirs means that they are loaded.
        if _is(error, "girih.run.errors", "WorkerError"):
            raise FailedRunError(str(error)) from error
        if any(_is(error, *place) for place in USERS_ERRORS):
            raise BadInputError(str(error)) from error
        raise


def _is(error: Exception, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def check_output(path: str | None, folder: bool = False) -> None:
    """Raises BadInputError, before any work is done, if nothing can be written there.

    folder: a new folder, rather than a file, will be made.
    """
    if path is None:
        return
    goal = Path(path)
    if goal.is_dir() and not folder:
        raise BadInputError(f"{path} is a folder: give the name of a file to write")
    if not folder and not goal.absolute().parent.is_dir():
        raise BadInputError(
            f"{path} cannot be written: there is no folder {goal.parent}; make it, or give another name"
        )
    nearest = goal if goal.exists() else next((item for item in goal.absolute().parents if item.exists()), Path("/"))
    if not os.access(nearest, os.W_OK) or (nearest != goal and not nearest.is_dir()):
        raise BadInputError(f"{path} cannot be written: {nearest} is no folder that one may write into")


def show(item: Any, width: int = 140) -> None:
    """A table on standard output, as wide as the terminal, or as plain text of at most `width` columns."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(item)
    else:
        print("\n".join(line.rstrip() for line in render(item, width=width).splitlines()))


def print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Rows in columns, one line for each: on a terminal a line that is too long is cut, in a pipe it stays whole."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = os.environ.get("COLUMNS", "")
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() or columns.isdecimal() else None
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(line if most is None or len(line) <= most else f"{line[: max(most - 1, 0)]}…")


class TerminalProgress(Progress):
    """The progress of a command. One of a launcher's ranks speaks for all."""

    def __init__(self) -> None:
        rank = launched_rank()
        super().__init__(silent=rank is not None and rank.rank != 0)
