"""Runs exported programs under torchrun, in processes in which girih cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def torchrun(file: Path, ranks: int, *options: str, girih: bool = False, seconds: float = 200.0) -> str:
    """What the ranks print. girih: may it be imported?"""
    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    if not girih:
        none = file.parent / "without" / "girih"
        none.mkdir(parents=True, exist_ok=True)
        (none / "__init__.py").write_text('raise ImportError("an exported program imports girih")\n')
        around["PYTHONPATH"] = str(none.parent)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    told = subprocess.run(
        [*command, str(file), *options], env=around, cwd=file.parent, capture_output=True, text=True, timeout=seconds
    )
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-4000:]
    return told.stdout
