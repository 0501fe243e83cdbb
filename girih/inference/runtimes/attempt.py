"""The process in which a library runs a model for the first time (`apart.py`): a task a line, an answer a line.

    {"library": "girih.inference.runtimes.libraries:openvino", "model": FILE, "threads": 1, "arrays": FILE,
     "fixed": [NAMES], "more": [what the library is told beside]}
    {"error": ""}

Whatever a library prints goes elsewhere. If it kills the process, there is no answer.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

RUNS = 2
"""The first may be the one that compiles."""


def attempt(task: dict[str, Any]) -> str:
    """Run a model as a task says; the first line of what was raised, or nothing."""
    import numpy as np

    try:
        module, _, name = task["library"].partition(":")
        with np.load(task["arrays"], allow_pickle=False) as file:
            arrays = [file[f"arr_{number}"] for number in range(len(file.files))]
        fixed = dict(zip(task["fixed"], arrays, strict=False))
        run = getattr(import_module(module), name)(task["model"], task["threads"], fixed, *task["more"])
        for _ in range(RUNS):
            run(*arrays[len(fixed) :])
    except Exception as error:
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]
    return ""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps({"error": attempt(json.loads(line))}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
