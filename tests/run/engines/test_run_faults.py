"""Workers that fail, die, hang, or lose their driver: the run stops soon, says who and where, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import forked_programs
import pytest
import torch
from run_programs import cholesky_program, is_alive, program_of, stop

from girih.layout import Mesh
from girih.run.engines.crew import Status, culprit, hanging, standstill
from girih.run.errors import ClosedError, WorkerError
from girih.run.training.session import start

GOOD = torch.eye(3, dtype=torch.float64).expand(4, 3, 3).contiguous()
BAD = torch.cat([GOOD[:2], -GOOD[:2]])  # the second worker's matrices are not positive definite

SUPPORT = Path(__file__).resolve().parents[2] / "support"


def gone(run):
    """Nothing of the run is left, and it says so."""
    assert not any(is_alive(pid) for pid in run.crew.pids)
    assert not run.crew.directory.exists()
    with pytest.raises(WorkerError):
        run.crew.command("statistics", [{}, {}])


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_exception_comes_back(backend):
    with start(cholesky_program(2), backend=backend) as run:
        torch.testing.assert_close(run.step({"x": GOOD})["y"], GOOD)
        with pytest.raises(ValueError, match=r"'x' must be float64\[4, 3, 3\], got float32"):
            run.step({"x": GOOD.float()})
        with pytest.raises(ValueError, match=r"no input .'z'"):
            run.step({"x": GOOD, "z": GOOD})
        run.step({"x": GOOD})  # what was refused has broken nothing
        began = time.monotonic()
        with pytest.raises(WorkerError, match=r"worker 1 failed .*model.py:7") as got:
            run.step({"x": BAD})
        assert time.monotonic() - began < 30  # the deadline is 60 s
        assert got.value.rank == 1
        assert got.value.place.node == "y"
        assert "linalg" in got.value.details
        assert "Traceback" in got.value.details
        with pytest.raises(WorkerError):
            run.step({"x": GOOD})
        if backend == "processes":
            gone(run)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_closed_run_says_so_at_once(backend):
    with start(cholesky_program(2), backend=backend, timeout=30.0) as run:
        run.step({"x": GOOD})
    began = time.monotonic()
    for use in (lambda: run.step({"x": GOOD}), run.state, run.statistics):
        with pytest.raises(ClosedError, match=r"the run was closed .*: start another one"):
            use()
    assert time.monotonic() - began < 15  # the deadline is 30 s
    run.close()


def test_a_killed_worker(example):
    """Killed while the others are in a step that waits for it."""
    with start(program_of(example.graph, Mesh((2,)), 0), state=example.state) as run:
        run.step(example.batch, example.scalars)
        os.kill(run.crew.pids[1], signal.SIGSTOP)  # so that the step cannot end before
        threading.Timer(0.5, os.kill, (run.crew.pids[1], signal.SIGKILL)).start()
        began = time.monotonic()
        with pytest.raises(WorkerError, match="worker 1 was killed by SIGKILL"):
            run.step(example.batch, example.scalars)
        assert time.monotonic() - began < 30  # the deadline is 60 s
        gone(run)


def test_a_worker_killed_between_steps(example):
    with start(program_of(example.graph, Mesh((2,)), 0), state=example.state) as run:
        os.kill(run.crew.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match="worker 0 was killed by SIGKILL between steps"):
            run.step(example.batch, example.scalars)
        gone(run)


def test_a_hanging_worker(example, monkeypatch):
    """The driver's deadline comes first, and tells the worker that hangs from the one that waits for it."""
    with start(program_of(example.graph, Mesh((2,)), 0), state=example.state) as run:
        run.step(example.batch, example.scalars)
        stop(run.crew.pids[1])
        monkeypatch.setattr(run.crew, "timeout", 2.0)  # the first step may take its time
        began = time.monotonic()
        with pytest.raises(WorkerError, match="worker 1 did not finish 'step' within 2 s; it hangs"):
            run.step(example.batch, example.scalars)
        assert time.monotonic() - began < 30  # the workers' own patience is 91 s
        gone(run)


def test_an_interrupted_driver(example, request):
    """Ctrl-C during a step ends the workers; also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with start(program_of(example.graph, Mesh((2,)), 0), state=example.state) as run:
        os.kill(run.crew.pids[1], signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run.step(example.batch, example.scalars)
        gone(run)


DRIVER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from run_programs import cholesky_program
from girih.run.training.session import start
run = start(cholesky_program(2))
print(*run.crew.pids, run.crew.directory, flush=True)
{ending}
"""


def test_a_driver_that_ends():
    """A script without a main guard; however it ends, its workers and files go too."""
    endings = {"os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL, "sys.exit(3)": 3}
    drivers = []
    for ending in endings:
        code = DRIVER.format(tests=str(SUPPORT), ending=ending)
        drivers.append(forked_programs.start([sys.executable, "-c", code]))
    for driver, code in zip(drivers, endings.values(), strict=True):
        out, _ = driver.communicate(timeout=120)
        assert driver.returncode == code
        *pids, directory = out.split()
        assert len(pids) == 2
        deadline = time.monotonic() + 5
        while any(is_alive(int(pid)) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(is_alive(int(pid)) for pid in pids)
        assert not os.path.exists(directory)


def test_a_hanging_thread(example):
    """A thread cannot be killed, but it is named and the run is over."""
    with start(program_of(example.graph, Mesh((2,)), 0), backend="threads", state=example.state, timeout=0.5) as run:
        held = threading.Event()
        run.crew.services[1].worker.take_state = lambda parts: held.wait(5)
        with pytest.raises(WorkerError, match="worker 1 did not finish 'set_state'"):
            run.set_state({})
        held.set()


def test_a_worker_that_cannot_start(example):
    program = program_of(example.graph, Mesh((2,)), 0)
    with pytest.raises(WorkerError, match=r"(?i)worker 0 failed .*cuda") as got:
        start(program, backend="threads", state=example.state, device="cuda:7")
    assert got.value.place.step == -1


def test_who_is_to_blame(example):
    """The worker that has come least far; at one instruction the one that computes."""
    program = program_of(example.graph, Mesh((2,)), 0)
    assert culprit(program, [Status(0, 3, 20), Status(1, 2, -1)]).rank == 1
    assert culprit(program, [Status(0, 3, 20), Status(1, 3, -1)]).rank == 0
    assert culprit(program, [Status(0, 3, 20), Status(1, 3, 7)]).rank == 1


class Waits:
    """What a worker is told to do and never comes back from."""

    def __call__(self, transport, rank, device):
        threading.Event().wait()


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_stopped_worker_is_told_from_one_that_waits_at_the_same_instruction(example, monkeypatch):
    with start(program_of(example.graph, Mesh((2,)), 0), state=example.state) as run:
        stop(run.crew.pids[1])
        monkeypatch.setattr(run.crew, "timeout", 2.0)  # workers may take their time to begin
        with pytest.raises(WorkerError, match=r"worker 1 did not finish 'measure' .*its process is stopped") as got:
            run.crew.command("measure", [{"task": Waits()}] * 2)
        assert got.value.rank == 1
        gone(run)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_why_a_process_stands_still(example):
    """The name of a program may have spaces and parentheses; of a process that is not there nothing is known."""
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert standstill(process.pid) == ""
        late = [Status(0, 1, -1), Status(1, 2, 3)]
        program = program_of(example.graph, Mesh((2,)), 0)
        assert hanging(program, late, {1: process.pid}) == (late[0], "it hangs")
        stop(process.pid)
        blamed, why = hanging(program, late, {0: os.getpid(), 1: process.pid})
        assert (blamed.rank, why) == (1, "it hangs: its process is stopped (SIGSTOP, or Ctrl-Z)")
        process.kill()
        while standstill(process.pid) != "its process has ended":
            time.sleep(0.01)
    assert standstill(process.pid) == ""


def test_missing_state_is_refused(example):
    program = program_of(example.graph, Mesh((2,)), 0)
    with pytest.raises(ValueError, match=r"no initial value for .'first.weight'"):
        start(program, backend="threads")
    with pytest.raises(ValueError, match=r"'first.weight' must be float64\[9, 10\]"):
        start(program, backend="threads", state={**example.state, "first.weight": torch.zeros(3)})
    with pytest.raises(ValueError, match="no backend 'mpi'"):
        start(program, backend="mpi", state=example.state)
