"""A program that shares tables by `addresses=` with one that was stopped (SIGSTOP) gives up within its `timeout` and
a few seconds."""

import os
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import sys
import numpy as np
import girih.loop as gl

def work(t, rank):
    for _ in range(3000):
        t["x"].inc_rows(np.arange(20000), np.ones((20000, 50)))
        t["x"].get_rows(np.arange(20000))
        t.clock()

if __name__ == "__main__":
    with gl.tables(2, 0, rank=int(sys.argv[1]), addresses=sys.argv[2:], backend="threads", timeout=3) as t:
        t.dense("x", 20000, 50)
        print("up", flush=True)
        t.run(work)
"""

with tempfile.TemporaryDirectory() as name:
    file = os.path.join(name, "program.py")
    with open(file, "w") as opened:
        opened.write(PROGRAM)
    bound = [socket.socket() for _ in range(2)]
    for one in bound:
        one.bind(("127.0.0.1", 0))
    addresses = [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in bound]
    for one in bound:
        one.close()
    programs = [
        subprocess.Popen(
            [sys.executable, file, str(rank), *addresses], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for rank in (0, 1)
    ]
    for program in programs:
        program.stdout.readline()
    time.sleep(3)
    began = time.monotonic()
    programs[1].send_signal(19)
    try:
        programs[0].communicate(timeout=10)  # 3 s, two more, and five for a machine that has other things to do
    except subprocess.TimeoutExpired:
        print("a program that waits for a stopped one still waits after 10 s with timeout=3", file=sys.stderr)
        sys.exit(1)
    finally:
        for program in programs:
            program.kill()
            program.wait()
    if programs[0].returncode == 0:
        print("the program went on as if nothing had happened", file=sys.stderr)
        sys.exit(1)
