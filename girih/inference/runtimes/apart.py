"""Each library runs a model in a process of its own before it is let into the user's: one that crashes takes no program
with it, and one that hangs is stopped after `LIMIT` seconds.

One process serves all attempts and is started anew after a crash. A model comes to it as a file; the user's module is
not pickled, and PyTorch is not imported there, so that starting it costs what importing NumPy and the library does.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from girih.inference.runtimes.libraries import LIBRARIES

LIMIT = 120.0
"""Seconds for an attempt: to compile a model, and to run it twice."""


class ApartError(RuntimeError):
    """A library that did not run a model in a process of its own; the message says how it failed."""


class Apart:
    """Where libraries are tried; a context manager. folder: for files of models, gone at the end."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._folder = tempfile.TemporaryDirectory(prefix="girih-")
        self.folder = Path(self._folder.name)
        self._process: subprocess.Popen[str] | None = None
        self._out: dict[str, str] = {}
        self._known: dict[tuple[str, str, bool], str] = {}

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def check(
        self, name: str, model: str, fixed: Mapping[str, Any], inputs: Sequence[Any], short: bool = False
    ) -> None:
        """Have a library run the model of a file on these arrays. short: in bfloat16.

        Raises:
            ApartError: it crashed, hung or exited, now or with a model before this one, or it raised an error.
        """
        key = name, model, short
        if key not in self._known:
            self._known[key] = self._out.get(name) or self._tried(name, model, fixed, inputs, short)
        if why := self._known[key]:
            raise ApartError(why)

    def is_out(self, name: str) -> bool:
        """Has the library crashed, hung or exited? Then it is not tried again."""
        return name in self._out

    def _tried(self, name: str, model: str, fixed: Mapping[str, Any], inputs: Sequence[Any], short: bool) -> str:
        import numpy as np

        arrays = self.folder / "arrays.npz"
        np.savez(arrays, *fixed.values(), *inputs)
        library = LIBRARIES[name]
        task = {
            "library": f"{library.__module__}:{library.__qualname__}",
            "model": model,
            "threads": self.threads,
            "arrays": str(arrays),
            "fixed": list(fixed),
            "more": [short] if short else [],
        }
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(LIMIT):
                    self._end()
                    self._out[name] = f"gave no answer in {LIMIT:g} s in a process of its own"
                    return self._out[name]
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return str(json.loads(answer)["error"])
        code = process.wait()
        self._end()
        how = f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended the program (exit code {code})"
        self._out[name] = f"{how} in a process of its own"
        return self._out[name]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "girih.inference.runtimes.attempt"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,  # Ctrl-C is the user's program's to handle
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
