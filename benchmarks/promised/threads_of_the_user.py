"""Eight threads of a program evaluate arrays at the same time, on threads, processes and (if installed) Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

PROGRAM = """
import sys, threading
import numpy as np
import girih
import girih.array as gnp

engine = sys.argv[1]
girih.cluster(2, ray=True, timeout=60.0, small=0) if engine == "ray" else girih.cluster(2, backend=engine, timeout=60.0, small=0)
data = np.arange(10000.0).reshape(100, 100)
x = gnp.asarray(data)
found, failed = {}, []

def work(i):
    try:
        for turn in range(8):
            found[i, turn] = float((x * i + turn).sum())
    except BaseException as error:
        failed.append(f"{type(error).__name__}: {error}")

threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60.0)
wrong = [key for key, value in found.items() if value != (data * key[0] + key[1]).sum()]
if failed or wrong or len(found) != 64:
    print(f"{engine}: {len(found)} of 64 came, {len(wrong)} of them wrong; {failed[:1]}", file=sys.stderr, flush=True)
    import os
    os._exit(1)
"""


def main() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(PROGRAM)
        return checked(str(path))


def checked(path: str) -> str:
    for engine in ("threads", "processes", *(("ray",) if find_spec("ray") else ())):
        try:
            done = subprocess.run(
                [sys.executable, path, engine], capture_output=True, text=True, timeout=240,
                env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{engine}: the program hangs"
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"{engine}: exit code {done.returncode}"])[-1]
    return ""


if __name__ == "__main__":
    wrong = main()
    if wrong:
        print(wrong, file=sys.stderr)
    raise SystemExit(1 if wrong else 0)
