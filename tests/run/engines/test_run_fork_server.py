"""Workers come from one process, and are as if each had been started by itself."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from run_programs import is_alive

from girih.run.calibrate.calibrate import idle_program
from girih.run.engines import fork_server as server
from girih.run.engines.processes import ProcessCrew
from girih.run.worker.service import Options

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker loads for itself")


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Tell:
    """What a worker finds around it; printed, too."""

    def __call__(self, transport: object, rank: int, device: object) -> dict[str, object]:
        print(f"worker {rank} speaks", flush=True)
        return {
            "variables": dict(os.environ),
            "directory": os.getcwd(),
            "session": os.getsid(0),
            "parent": os.getppid(),
            "pid": os.getpid(),
            "sockets": sum(stat.S_ISSOCK(os.fstat(number).st_mode) for number in range(3, 100) if is_open(number)),
        }


def told(workers: int = 2) -> list[dict[str, object]]:
    crew = ProcessCrew(idle_program(workers), Options())
    try:
        found = crew.command("measure", [{"task": Tell()} for _ in range(workers)])
        assert [one["pid"] for one in found] == crew.pids
        return found
    finally:
        crew.close()


def test_workers_have_the_drivers_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("SURROUNDINGS", str(number))
        for one in told():
            assert one["variables"]["SURROUNDINGS"] == str(number)
            assert one["directory"] == str(place)
        assert sorted(capfd.readouterr().out.splitlines()) == ["worker 0 speaks", "worker 1 speaks"]
    monkeypatch.delenv("SURROUNDINGS")
    assert all("SURROUNDINGS" not in one["variables"] for one in told())


def test_workers_are_apart() -> None:
    found = told(3)
    assert len({one["parent"] for one in found}) == 1
    for one in found:
        assert one["session"] == one["pid"]
        assert one["sockets"] == 1, "its own pipe, and nobody else's"


def test_a_fork_server_that_was_killed_is_replaced() -> None:
    (first, _) = told()
    os.kill(first["parent"], signal.SIGKILL)
    server._known[os.getpid(), server_threads(first), server.CREW]._process.wait()
    (second, _) = told()
    assert second["parent"] != first["parent"]


def test_exit_codes_come_back() -> None:
    crew = ProcessCrew(idle_program(2), Options())
    processes = crew.processes
    os.kill(processes[0].pid, signal.SIGTERM)
    assert processes[0].wait(60.0) == -signal.SIGTERM
    processes[0].kill()  # nobody is there any more
    crew.close()
    assert processes[1].wait() == 0
    assert not any(is_alive(process.pid) for process in processes)


def server_threads(one: dict[str, object]) -> int:
    return int(one["variables"]["OMP_NUM_THREADS"])
