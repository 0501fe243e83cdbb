"""Arrays that live in a server process: single reads, bulk reads, and sums of updates (Orion, thesis §5.3.4).

One process holds the arrays; clients speak to it over a local socket, one request at a time. A single read is what a
loop body does that knows nothing of it; a bulk read asks for all rows of many iterations at once.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

START_SECONDS = 60.0


class ServedArray:
    """An array in a server process. Every read and write is a request."""

    def __init__(self, values: np.ndarray) -> None:
        key = secrets.token_bytes(16)
        code = "from girih.loop.run.served import serve; serve()"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(key.hex().encode() + b"\n")
        self.process.stdin.flush()
        address = self.process.stdout.readline().decode().strip()
        if not address:
            raise RuntimeError(f"the server of an array ended with exit code {self.process.wait()} before it listened")
        self.connection: Connection = Client(address, authkey=key)  # type: ignore[assignment]
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
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(timeout=START_SECONDS)

    def _ask(self, what: str, rows: Any, values: Any) -> Any:
        with self._turn:
            self.requests += 1
            try:
                self.connection.send((what, rows, values))
                reply = self.connection.recv()
            except (EOFError, OSError):
                code = self.process.wait(timeout=START_SECONDS)
                raise RuntimeError(
                    f"the server of an array has ended with exit code {code}: its values are lost"
                ) from None
        if isinstance(reply, Exception):
            raise reply
        return reply


def serve() -> None:
    """The server's main function: it reads the key from its input, writes its address, and ends with its client."""
    key = bytes.fromhex(sys.stdin.readline().strip())
    with Listener(authkey=key) as listener:
        sys.stdout.write(f"{listener.address}\n")
        sys.stdout.flush()
        with listener.accept() as connection:
            answer(connection)


def answer(connection: Any) -> None:
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
