"""Arrays that live in a server process: single reads, bulk reads, and sums of updates (Orion, thesis §5.3.4).

One process holds an array, and answers its maker over a pipe, one request at a time. A single read is what a loop body
does that knows nothing of it; a bulk read asks for all rows of many iterations at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np

from girih.run.engines.fork_server import ProcessKind, launch

END_SECONDS = 60.0
KIND = ProcessKind(__name__, "main", ("numpy", __name__))


class ServedArray:
    """An array in a server process. Every read and write is a request."""

    def __init__(self, values: np.ndarray) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self.process = launch([], [theirs.fileno()], 1, KIND)
        self.shape, self.dtype = values.shape, values.dtype
        self.requests = 0
        self._turn = threading.Lock()
        self._ask("put", None, values)

    def get(self, rows: np.ndarray) -> np.ndarray:
        """The rows, in one request."""
        return np.asarray(self._ask("get", rows, None))

    def add(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Add to rows, of which none is named twice, in one request."""
        self._ask("add", rows, values)

    def numpy(self) -> np.ndarray:
        return np.asarray(self._ask("all", None, None))

    def __getitem__(self, at: Any) -> Any:
        """One element or row: one request."""
        return self._ask("get", at, None)

    def __len__(self) -> int:
        return int(self.shape[0])

    def close(self) -> None:
        """End the server."""
        self.connection.close()
        self.process.wait(timeout=END_SECONDS)

    def _ask(self, what: str, rows: Any, values: Any) -> Any:
        with self._turn:
            self.requests += 1
            try:
                self.connection.send((what, rows, values))
                reply = self.connection.recv()
            except (EOFError, OSError):
                code = self.process.wait(timeout=END_SECONDS)
                raise RuntimeError(
                    f"the server of an array has ended with exit code {code}: its values are lost"
                ) from None
        if isinstance(reply, Exception):
            raise reply
        return reply


def main(arguments: Sequence[str] | None = None) -> None:
    """The server, from its command line: its end of the pipe. It ends when the other one is closed."""
    connection = Connection(int((sys.argv[1:] if arguments is None else arguments)[0]))
    values = np.zeros(0)
    while True:
        try:
            what, rows, given = connection.recv()
        except (EOFError, OSError):
            return
        reply = None
        try:
            if what == "put":
                values = np.array(given)
            elif what == "add":
                values[rows] += given
            else:
                reply = values if what == "all" else values[rows]
        except (IndexError, ValueError, TypeError) as error:
            reply = error
        connection.send(reply)
