"""One SIGSTOP of a table's worker or server takes a run no longer than its `timeout` and two seconds, and a killed
driver leaves no folder behind."""

import glob
import os
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import os, signal, sys, time
import numpy as np
import girih.loop as gl

def work(t, rank, pid, mark, what):
    for _ in range(400):
        t["x"].get_row(0)
        t.clock()
        if t.ticks == 5 and rank == 0:
            open(mark, "w").write(str(time.time()))
            os.kill(pid() if callable(pid) else pid, what)
        time.sleep(0.01)

if __name__ == "__main__":
    mark, mode = sys.argv[1:]
    with gl.tables(2, 0, servers=2, timeout=3) as t:
        t.dense("x", 2, 2)
        t["x"].read()
        if mode == "killed":
            t.run(work, os.getpid(), mark, signal.SIGKILL)
        pid = t.server_pids[1] if mode == "server" else 0
        if mode == "worker":
            import threading
            def strike():
                while not os.path.exists(mark):
                    time.sleep(0.01)
                os.kill(t.pids[1], signal.SIGSTOP)
            threading.Thread(target=strike, daemon=True).start()
            t.run(work, os.getpid(), mark, signal.SIGCONT)
        else:
            t.run(work, pid, mark, signal.SIGSTOP)
"""


def broken(why):
    print(why, file=sys.stderr)
    sys.exit(1)


with tempfile.TemporaryDirectory() as name:
    file, places = os.path.join(name, "program.py"), os.path.join(name, "tmp")
    os.mkdir(places)
    with open(file, "w") as opened:
        opened.write(PROGRAM)
    for mode in ("worker", "server", "killed"):
        mark = os.path.join(name, mode)
        done = subprocess.run(
            [sys.executable, file, mark, mode],
            env={**os.environ, "TMPDIR": places},
            capture_output=True,
            text=True,
            timeout=90,
        )
        took = time.time() - float(open(mark).read())
        if done.returncode == 0:
            broken(f"{mode}: the run went on as if nothing had happened")
        if mode != "killed" and took > 3 + 2 + 5:  # five seconds for a machine that has other things to do
            broken(f"a stopped {mode} took {took:.1f} s with timeout=3")
    deadline = time.monotonic() + 10
    while (left := glob.glob(os.path.join(places, "girih*"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        broken(f"a killed driver has left {os.path.basename(left[0])}")
