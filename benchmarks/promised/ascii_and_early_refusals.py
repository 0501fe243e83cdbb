"""Commands write to an ASCII terminal, refuse wrong options before any work, and make no folder for a file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def girih(*arguments: str, cwd: str, **more: str) -> tuple[int, str, float]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "girih", *arguments], cwd=cwd, capture_output=True, timeout=300,
        env={**os.environ, **more}, check=False,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"), time.monotonic() - began


def main() -> str:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    with tempfile.TemporaryDirectory() as folder:
        for command in (["machines"], ["plan", "mlp-tiny", "-o", "plan.json"], ["show", "plan.json"], ["models"]):
            code, said, _ = girih(*command, cwd=folder, **ascii_only)
            if code:
                return f"girih {' '.join(command)} in an ASCII locale: {said[-300:]}"
        code, said, _ = girih("plan", "no-such-model-either", "--order", "nosuch", cwd=folder)
        if code != 2 or "--order" not in said:
            return f"--order nosuch was not refused before the model was looked for: {said[-300:]}"
        for command in (["plan", "mlp-tiny"], ["report", "plan.json"], ["trace", "plan.json"]):
            code, said, _ = girih(*command, "-o", "nosuch/out.json", cwd=folder)
            if code != 2 or "there is no folder nosuch" not in said or (Path(folder) / "nosuch").exists():
                return f"girih {' '.join(command)} -o nosuch/out.json: code {code}: {said[-300:]}"
        gloo = {"GIRIH_TRANSPORT": "gloo", "GLOO_SOCKET_IFNAME": "nosuch0"}
        code, said, _ = girih("run", "plan.json", "--steps", "1", cwd=folder, **gloo)
        if code != 2 or "Set GLOO_SOCKET_IFNAME" not in said or "enforce fail" in said:
            return f"gloo without an interface: code {code}: {said[-300:]}"
    return ""


if __name__ == "__main__":
    wrong = main()
    if wrong:
        print(" ".join(wrong.split()), file=sys.stderr)
    raise SystemExit(1 if wrong else 0)
