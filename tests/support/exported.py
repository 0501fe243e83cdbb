"""Runs exported programs as ranks, in processes in which girih cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked_programs


def torchrun(file: Path, ranks: int, *options: str, seconds: float = 200.0) -> str:
    """What the ranks print, as torchrun starts them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    told = subprocess.run(
        [*command, str(file), *options],
        env=_around(file), cwd=file.parent, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-4000:]
    return told.stdout


def forked_ranks(file: Path, ranks: int, *options: str, seconds: float = 200.0) -> str:
    """The same with torchrun's variables alone: launcher and ranks need not load PyTorch each."""
    command = [sys.executable, str(file), *options]
    programs = forked_programs.start_ranks(command, ranks, _around(file), folder=file.parent, new=True)
    try:
        told = [program.communicate(seconds) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert not any(program.returncode for program in programs), "".join(out[-2000:] + err[-4000:] for out, err in told)
    return "".join(out for out, _ in told)


def _around(file: Path) -> dict[str, str]:
    none = file.parent / "without" / "girih"
    none.mkdir(parents=True, exist_ok=True)
    (none / "__init__.py").write_text('raise ImportError("an exported program imports girih")\n')
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(none.parent)}
