"""Paths of this host, or URLs of fsspec: files there that are whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from girih.store import durable

OWN = 0o600
"""The mode of a file for the user alone."""


def is_url(path: str) -> bool:
    return "://" in path


def system_of(path: str) -> tuple[Any, str]:
    """fsspec's file system, and the path in it."""
    import fsspec

    system, inside = fsspec.core.url_to_fs(path)
    return system, str(inside)


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[tuple[Callable[[Any], object], Callable[[], object]]]:
    """What writes into a file, and what waits for the disk. When the body has ended, the file takes the place of what
    is at the path, in one step; after a power failure it is certain to be there after `sync`.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    if not is_url(path):
        with durable.replacing(path, mode) as descriptor:
            yield partial(durable.write_all, descriptor), partial(durable.sync, descriptor)
        return
    system, goal = system_of(path)
    unfinished = durable.unfinished_name(goal)
    try:
        with system.open(unfinished, "wb") as file:
            yield file.write, lambda: None
        system.mv(unfinished, goal)
    except BaseException:
        with contextlib.suppress(OSError):
            system.rm_file(unfinished)
        raise


def exchange(path: str, data: bytes, mode: int = 0o666) -> None:
    """Give a file new contents in one step (`replacing`)."""
    with replacing(path, mode) as (write, _):
        write(data)


def sync(path: str) -> None:
    """Return when the file of this host has its name on the disk."""
    if not is_url(path):
        durable.sync_folder(os.path.dirname(path) or ".")


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    if is_url(path):
        with contextlib.suppress(FileNotFoundError):
            system_of(path)[0].rm_file(system_of(path)[1])
    else:
        durable.remove(path)


def opened(path: str) -> durable.File:
    """A file to read.

    Raises:
        OSError: it is not there.
    """
    if not is_url(path):
        return durable.opened(path)
    system, inside = system_of(path)
    file = system.open(inside, "rb")

    def read(view: memoryview, offset: int) -> int:
        file.seek(offset)
        return int(file.readinto(view))

    return durable.File(int(system.size(inside)), read, file.close)
