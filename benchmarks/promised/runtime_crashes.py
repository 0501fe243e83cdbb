"""A runtime that crashes, hangs or exits (here OpenVINO's place is taken by such ones) does not take the user's
program with it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = """
import ctypes, os, time
def segfaults(model, threads, fixed): ctypes.string_at(0)
def hangs(model, threads, fixed): time.sleep(600)
def exits(model, threads, fixed): os._exit(0)
"""
PROGRAM = """
import sys, torch, girih
from torch import nn
from girih.inference.runtimes import apart
from girih.inference.runtimes.libraries import LIBRARIES
import failing
apart.LIMIT = 4.0
LIBRARIES["openvino"] = getattr(failing, sys.argv[1])
model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=("eager", "openvino"))
assert torch.allclose(fast(x), model(x), atol=1e-5)
assert any(item.backend == "openvino" and item.why for item in fast.explain().candidates), "it is not named"
print("it goes on")
"""
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "failing.py").write_text(LIBRARY)
    paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    for name in sys.argv[1:] or ("segfaults", "hangs", "exits"):
        command = [sys.executable, "-c", PROGRAM, name]
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, timeout=50, text=True
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"a runtime that {name}: the user's program hangs")
        ended = done.stderr.strip().splitlines()[-1:] or ["no word"]
        if done.returncode or "it goes on" not in done.stdout:
            sys.exit(f"a runtime that {name}: the user's program ended with {done.returncode} ({ended[0]})")
