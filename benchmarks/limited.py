"""A command that tells what it does, line by line, and is killed with all that it has started when it is silent."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any


class SilentError(Exception):
    """It was killed: it told nothing for longer than it may."""


def answers(command: Sequence[str], seconds: float, **options: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects that a command prints, each on a line, as they come. options: of `subprocess.Popen`.

    Raises:
        SilentError: there was none for so many seconds.
        RuntimeError: the command failed; with the last line of its errors.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, **options)
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            while (line := lines.get(timeout=seconds)) is not None:
                if line.startswith("{"):
                    yield json.loads(line)
            if process.wait():
                errors.seek(0)
                raise RuntimeError((errors.read().strip() or f"exit code {process.returncode}").splitlines()[-1])
        except queue.Empty:
            raise SilentError(f"nothing was told for {seconds:g} s") from None
        finally:
            _kill(process)
            reader.join(timeout=10)


def _read(stream: Any, lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _kill(process: subprocess.Popen[str]) -> None:
    """With its children and theirs, which would live on: workers of a cluster do."""
    import psutil

    if process.poll() is None:
        try:
            family = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        process.kill()
        for child in family:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=1)
    process.wait()
