"""A table server at `addresses=` drops what comes without its key, from random bytes to well-formed requests, and the
run ends as it should."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import sys, time, numpy as np
import girih.loop as gl

def work(t, rank):
    for _ in range(20):
        t["H"].inc_rows([0], np.ones((1, 2)))
        t.clock()
        time.sleep(0.1)

if __name__ == "__main__":
    with gl.tables(2, 1, rank=int(sys.argv[1]), addresses=[sys.argv[2]], backend="threads", timeout=25) as t:
        H = t.dense("H", 2, 2)
        t.run(work)
        assert H.read()[0].tolist() == [40, 40], H.read()
"""

import zmq

with tempfile.TemporaryDirectory() as name, socket.socket() as bound:
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    bound.close()
    address = f"tcp://127.0.0.1:{port}"
    file = os.path.join(name, "program.py")
    with open(file, "w") as opened:
        opened.write(PROGRAM)
    programs = [
        subprocess.Popen([sys.executable, file, str(rank), address], stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    context = zmq.Context()
    lines = []
    for identity, key in ((b"w0.0", False), (b"s7", False), (b"w1.0", True)):
        line = context.socket(zmq.DEALER)
        line.identity = identity
        if key:
            line.curve_publickey, line.curve_secretkey = zmq.curve_keypair()
            line.curve_serverkey = zmq.curve_keypair()[0]
        line.connect(address)
        lines.append(line)
    chance, idle, deadline = random.Random(0), [], time.monotonic() + 40
    while any(one.poll() is None for one in programs) and time.monotonic() < deadline:
        try:
            if len(idle) < 64:
                idle.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            with socket.create_connection(("127.0.0.1", port), timeout=1) as other:
                other.sendall(chance.randbytes(500))
        except OSError:
            pass
        for line in lines:
            for frame in (b"", b"\x00", chance.randbytes(40)):
                try:
                    line.send(frame, zmq.NOBLOCK)
                except zmq.Again:
                    pass
        time.sleep(0.05)
    context.destroy(linger=0)
    said = ""
    for one in programs:
        if one.poll() is None:
            one.kill()
        one.wait(10)
        said = said or (one.stderr.read().strip().splitlines() or [""])[-1]
    if any(one.returncode for one in programs):
        print(f"the run with strangers ended with {[one.returncode for one in programs]}: {said}", file=sys.stderr)
        sys.exit(1)
