"""What a loop body raises on a cluster's processes is what it raises on threads: the same class and words, the user's
line, no stack of the compiler's."""

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import traceback
import numpy as np
import girih, girih.loop as gl

def raises(i, a):
    if i == 7:
        raise ValueError("i is 7")  # here
    a[i] = i

def unknown(i, a, b):
    a[i] = b.size3

def caught(body, *more):
    try:
        gl.parallel_for(gl.range(16))(body)(gl.array(np.zeros(16)), *more)
    except Exception as error:
        return error
    raise SystemExit("nothing was raised")

if __name__ == "__main__":
    numbers = np.zeros(4)
    here = caught(raises), caught(unknown, numbers)
    with girih.cluster(2, backend="processes", small=0):
        there = caught(raises), caught(unknown, numbers)
    for one, other in zip(here, there):
        if type(one) is not type(other) or str(one) != str(other):
            raise SystemExit(f"{type(one).__name__} on threads is {type(other).__name__} on processes: {str(other)[:80]!r}")
    if "program.py:8" not in "".join(traceback.format_exception(there[0])):
        raise SystemExit("the user's line is not told")
"""

with tempfile.TemporaryDirectory() as name:
    file = os.path.join(name, "program.py")
    with open(file, "w") as opened:
        opened.write(PROGRAM)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    if done.returncode:
        print((done.stderr.strip().splitlines() or ["no message"])[-1], file=sys.stderr)
        sys.exit(1)
