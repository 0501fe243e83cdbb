"""Files that survive a kill or a power failure: written, synced, and exchanged in one step.

Everything by which what is kept touches the file system goes through this file, so that a test can stop the writer
before and after each call of the system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

try:
    import fcntl
except ImportError:  # no locks on such a system
    fcntl = None  # type: ignore[assignment]

PART = re.compile(r"(.*?)(\.[0-9a-f]{8})?\.part", re.DOTALL)
"""The name of a file that is not yet whole: that of the whole file, and what keeps two writers apart."""


def create(path: str, mode: int = 0o666) -> int:
    """A new, empty file to write; its descriptor.

    Raises:
        FileExistsError: there is something.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write everything: the system may take less at once."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync(descriptor: int) -> None:
    """Return when the file's contents are on the disk."""
    os.fsync(descriptor)


def close(descriptor: int) -> None:
    os.close(descriptor)


def sync_folder(path: str) -> None:
    """Return when the folder's entries are on the disk, on systems that have this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def make_folder(path: str) -> bool:
    """Make a folder, and those above it; False if it was there."""
    if os.path.isdir(path):
        return False
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path)
    except FileExistsError:  # somebody else has just made it
        return False
    sync_folder(above)
    return True


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[int]:
    """The descriptor of a new file. When the body has ended, it is synced and takes the place of what is at the path in
    one step: at any moment there is the old file or the new one, whole. Which of them is there after a power failure is
    certain after `sync_folder`."""
    unfinished = unfinished_name(path)
    descriptor = create(unfinished, mode)
    try:
        try:
            yield descriptor
            sync(descriptor)
        finally:
            close(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(unfinished)
        raise


def unfinished_name(path: str) -> str:
    """What a file is called until it is whole: nobody else takes this name."""
    return f"{path}.{uuid.uuid4().hex[:8]}.part"


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: str) -> None:
    """Remove a folder with the files in it, and nothing below: ours have no folders inside.

    Raises:
        OSError: it has a folder inside, or cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)


def remove_empty(path: str) -> None:
    """Remove a folder if nothing is in it."""
    with contextlib.suppress(OSError):
        os.rmdir(path)


# ------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class File:
    """A file to read, here or elsewhere. A context manager. read: fills a view from an offset; how many bytes it got,
    0 at the end."""

    size: int
    read: Callable[[memoryview, int], int]
    close: Callable[[], None]

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill the view from the file; how many bytes there were."""
        done = 0
        while done < len(view) and (count := self.read(view[done:], offset + done)):
            done += count
        return done

    def bytes(self, start: int, stop: int) -> bytes:
        """From one offset to another, or to the end of the file."""
        data = bytearray(max(0, min(stop, self.size) - start))
        return bytes(data[: self.read_into(memoryview(data), start)])

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(path: str) -> File:
    """A file that is one: no link elsewhere, no pipe that one would wait for.

    Raises:
        OSError: there is no such file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return File(status.st_size, lambda view, at: os.preadv(descriptor, [view], at), lambda: close(descriptor))


# ------------------------------------------------------------------------------------------- locks


class LockedError(RuntimeError):
    """Another process, or thread, holds the lock."""


class Lock:
    """A lock that the system releases when its holder dies. It is a file, which is there while the lock is held.

    works: False where the file system knows no locks; nobody is then kept out.

    Raises:
        LockedError: somebody else holds it.
        OSError: the file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.works = fcntl is not None
        while True:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if not self.works or self._take():
                return
            os.close(self._descriptor)  # the one before has just removed it

    def _take(self) -> bool:
        """Lock the file; False if that is no longer the file of this name."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise LockedError(self.path) from error
        except OSError:
            self.works = False
            return True
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def say(self, words: bytes) -> None:
        """Write into the file, for who finds it."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, words, 0)

    def release(self, keep: bool = False) -> None:
        """Remove the file, unless it is to be kept, then let others in."""
        if not keep:
            with contextlib.suppress(OSError):
                remove(self.path)
        if self.works:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for processes that were forked meanwhile
        os.close(self._descriptor)
