"""Loops and tables on several hosts: a launcher's ranks send over ZeroMQ, and have the bits of threads.

The hosts are network namespaces of this machine, with addresses of their own, on a switch. Where this machine allows
none, ranks on one host are tried all the same.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import forked_programs
import loop_hosts_program
import numpy as np
import pytest
from counts import LONG, but_long

import girih.loop as gl
from benchmarks.namespaces import network, refusal

PROGRAM = loop_hosts_program.__file__
ROOT = Path(__file__).parents[2]
SECONDS = 120.0


def surroundings() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def ended(processes: Sequence[forked_programs.Program]) -> list[tuple[int, str]]:
    """(exit code, what it said) of each; none is left behind."""
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in processes]
        return [(process.returncode, words) for process, words in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def expected(workers: int) -> dict[str, np.ndarray]:
    """On threads of this process."""
    before = gl.workers()
    try:
        gl.workers(workers)
        found, _ = loop_hosts_program.loops()
    finally:
        gl.workers(before)
    return found | loop_hosts_program.shared(workers=workers, backend="threads")


def checked(place: Path, addresses: Sequence[str]) -> None:
    """Each rank was at its host's address, has what threads have found, and sent what was promised."""
    right = expected(len(addresses))
    promised, sent = 0, 0
    for rank, address in enumerate(addresses):
        with np.load(place / f"{rank}.npz") as found:
            for name, values in right.items():
                assert np.array_equal(found[name], values), (rank, name)
            assert str(found["address"]) == address
            promised = int(found["sent"][0])
            sent += int(found["sent"][1:].sum())
    assert sent >= promised > 0  # the regression's buffers are sent too


@pytest.mark.parametrize("launcher", but_long(["variables", "torchrun"], {"torchrun"}))
def test_ranks_on_this_host(launcher: str, tmp_path: Path) -> None:
    """`run/engines/test_run_ranks.py` begins plans by torchrun itself, whose variables these are."""
    if not LONG and not refusal():
        pytest.skip("two hosts do the same, and ranks on this host one of which is killed")
    program = [PROGRAM, str(tmp_path), ""]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
    if launcher == "torchrun":
        done = ended([forked_programs.start(torchrun, surroundings())])
    else:
        done = ended(forked_programs.start_ranks([sys.executable, *program], 2, surroundings()))
    assert {code for code, _ in done} == {0}, done
    checked(tmp_path, ["127.0.0.1"] * 2)


def test_ranks_on_two_hosts(tmp_path: Path) -> None:
    if why := refusal():
        pytest.skip(f"no hosts as network namespaces here ({why})")
    with network(2, 1e9) as hosts:
        command = [sys.executable, PROGRAM, str(tmp_path), ""]
        host = hosts.addresses[0]
        done = ended(forked_programs.start_ranks(command, 2, surroundings(), networks=hosts.names, host=host))
    assert [code for code, _ in done] == [0, 0], done
    checked(tmp_path, hosts.addresses)


def test_a_rank_that_is_killed_is_named_at_once(tmp_path: Path) -> None:
    """Without torchrun, which would end the others before they can say anything."""
    command = [sys.executable, PROGRAM, str(tmp_path), "killed"]
    (code, said), (other, _) = ended(forked_programs.start_ranks(command, 2, surroundings()))
    assert other == -signal.SIGKILL
    assert code == 1
    assert "rank 1 is gone: its process has ended, or its host does not answer" in said


def test_without_a_launcher_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="no launcher has started this process: torchrun --nproc-per-node"):
        gl.ranks()
