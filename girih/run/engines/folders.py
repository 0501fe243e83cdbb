"""Folders of a driver for its workers, which go when it ends, however it ends.

A driver holds a lock on its folder, which the system takes back when the driver is killed; whoever makes a folder next
removes those that nobody holds. Where workers outlive their driver, they remove its folder themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PREFIX = "girih."


@dataclass(frozen=True)
class Folder:
    """path: in the folder for temporary files, for the user alone. lock: the open folder."""

    path: Path
    lock: int

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def new_folder(what: str) -> Folder:
    """A new folder, after those of drivers that are gone were removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*.*"):
        with suppress(OSError):
            _remove_if_left(path)
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}."))
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if path.exists():  # else another driver came before the lock
                return Folder(path, lock)
            os.close(lock)


def _remove_if_left(path: Path) -> None:
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(number)
