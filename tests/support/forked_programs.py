"""Programs as `python FILE` runs them, each in a process of its own, which is forked from one that has loaded PyTorch.

Loading PyTorch takes more than a second of a core, and what its optimizers load as long again (`torch._dynamo`); most
programs of the documentation do little else. All else is as in a new process: no module of girih is loaded, and what
runs at the end of a process runs.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path

from girih.run.engines.fork_server import ProcessKind, launch

KIND = ProcessKind(__name__, "main", ("torch", "torch._dynamo"))


def run(program: Path, environment: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a program in its folder, with syntax warnings as errors.

    Raises:
        subprocess.TimeoutExpired: it goes on after so many seconds; it is ended.
    """
    process = launch([str(program), json.dumps(dict(environment))], [], os.cpu_count() or 1, KIND)
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    printed = [program.with_suffix(suffix).read_text(encoding="utf-8") for suffix in (".out", ".err")]
    return subprocess.CompletedProcess([str(program)], code, *printed)


def main(arguments: list[str]) -> None:
    """What such a process does."""
    program = Path(arguments[0])
    for descriptor, suffix in ((1, ".out"), (2, ".err")):
        file = os.open(program.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(json.loads(arguments[1]))
    os.chdir(program.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = str(Path(__file__).parent)
    sys.path[:] = [str(program.parent), *filter(None, paths), *(path for path in sys.path if path not in ("", here))]
    sys.argv[:] = [program.name]
    for name in [name for name in sys.modules if name.partition(".")[0] == "girih"]:
        del sys.modules[name]
    warnings.filterwarnings("error", category=SyntaxWarning)
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
