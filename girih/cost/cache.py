"""The user's cache of girih, a folder that nobody but the user may write to.

What is kept there is believed by later programs, and some of it is machine code: who could write there could run
anything as the user. So a folder or a file that belongs to somebody else, or that others may write to, is not used:
girih says so once and does without. Nothing in the cache is a pickle.
"""

from __future__ import annotations

import os
import stat
import warnings
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/girih, or ~/.cache/girih: where the cache is, if it may be used."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "girih"


def usable_cache(room: str = "", *, say: bool = True) -> Path | None:
    """The cache, or a room in it, made for the user alone (mode 0700) where it was not there; None where it may not be
    used, after a warning, the first time, that says why. say: not in workers, of which there are many."""
    folder = cache_folder()
    reason = next((why for part in (folder, folder / room) if (why := _unusable(part))), "")
    if reason and say:
        _warn(reason)
    if reason:
        return None
    return folder / room


def _unusable(folder: Path) -> str:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := others_may_write(folder):
            return f"{why}: what is in it is not used, and nothing is kept; chmod 700 it if it is yours, or delete it"
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} cannot be written to: nothing is kept"
    except OSError as error:
        return f"{folder} cannot be made: {error.strerror or error}: nothing is kept"
    return ""


@cache
def _warn(reason: str) -> None:
    warnings.warn(f"girih goes on without its cache: {reason}", stacklevel=3)


def others_may_write(path: Path) -> str:
    """Why a file or a folder may hold what somebody else wrote; "" where it may not.

    Raises:
        OSError: there is none.
    """
    if not hasattr(os, "geteuid"):  # Windows: folders of a user are the user's
        return ""
    status = path.stat()
    if status.st_uid != os.geteuid():
        return f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}"
    if status.st_mode & 0o022:
        return f"{path} may be written to by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""
