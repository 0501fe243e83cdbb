"""Array programs and loops on Ray nodes of several hosts: network namespaces with addresses of their own, on a switch.

Where this machine allows no namespaces, `test_run_ray.py` has two nodes on the loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked_programs
import loop_hosts_program
import numpy as np
import pytest
from counts import LONG
from ray_hosts_program import GROUPS, ITERATIONS, POINTS

import girih.loop as gl
from benchmarks.namespaces import INTERFACE, Network, network, refusal, run

pytest.importorskip("ray", reason="the extra `ray` is not installed")
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "support" / "ray_hosts_program.py"
START_SECONDS, DRIVER_SECONDS = 30.0, 100.0
HEAD, CLIENTS = 6379, 10001  # in namespaces all ports are free


@dataclass(frozen=True)
class Hosts:
    """The first two are nodes of one Ray cluster, the first its head; on the third nothing runs yet."""

    net: Network
    place: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}

    def command(self, host: int, *command: str) -> subprocess.Popen[str]:
        """What runs on a host, as a group of processes of its own; its errors in a file."""
        with (self.place / f"said{len(list(self.place.glob('said*')))}").open("w") as said:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.net.names[host], *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                text=True,
                start_new_session=True,
            )

    def words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.place.glob("said*")))

    def node(self, host: int, *more: str) -> subprocess.Popen[str]:
        ray = str(Path(sys.executable).with_name("ray"))
        fixed = ["--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "80000000", "--disable-usage-stats"]
        place = ["--node-ip-address", self.net.addresses[host], "--temp-dir", str(self.place / str(host))]
        return self.command(host, ray, "start", "--block", *fixed, *place, *more)

    def answers(self, port: int) -> bool:
        """Does the head listen there, as seen from the third host?"""
        address = self.net.addresses[0]
        look = f"import socket; socket.create_connection(({address!r}, {port}), 1)"
        tried = ["ip", "netns", "exec", self.net.names[2], sys.executable, "-S", "-c", look]
        return subprocess.run(tried, capture_output=True, timeout=20).returncode == 0

    def end(self) -> None:
        """All that runs on them."""
        for name in self.net.names:
            for pid in run("ip", "netns", "pids", name, check=False).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if why := refusal():
        pytest.skip(f"no hosts as network namespaces here ({why}); test_run_ray.py has nodes on the loopback")
    place = Path(tempfile.mkdtemp(prefix="girih-ray-"))  # short: sockets have their paths in it
    try:
        with network(3, 1e10) as net, ExitStack() as stack:
            made = Hosts(net, place)
            stack.callback(made.end)
            head = ["--head", "--port", str(HEAD), "--ray-client-server-port", str(CLIENTS)]
            stack.enter_context(ended(made.node(0, *head, "--include-dashboard", "false")))
            deadline = time.monotonic() + START_SECONDS
            while not (made.answers(HEAD) and made.answers(CLIENTS)):
                assert time.monotonic() < deadline, f"no head of Ray after {START_SECONDS:g} s:\n{made.words()}"
                time.sleep(0.1)
            stack.enter_context(ended(made.node(1, "--address", f"{net.addresses[0]}:{HEAD}")))
            yield made
    finally:
        shutil.rmtree(place, ignore_errors=True)


def driven(hosts: Hosts, host: int, address: str, victim: str = "") -> dict[str, Any]:
    """What the program finds that runs on a host and asks for the cluster at an address."""
    place = hosts.place / f"checkpoints{host}"
    command = [sys.executable, str(PROGRAM), address, str(place), INTERFACE, victim]
    program = forked_programs.start(command, hosts.environment, network=hosts.net.names[host])
    try:
        said, errors = program.communicate(timeout=DRIVER_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the program did not end within {DRIVER_SECONDS:g} s:\n{hosts.words()}")
    finally:
        program.kill()
    assert program.returncode == 0, f"{hosts.words()}\n{errors[-2000:]}"
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def kmeans() -> np.ndarray:
    centres = POINTS[:GROUPS]
    for _ in range(ITERATIONS):
        nearest = ((POINTS[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        centres = np.stack([POINTS[nearest == group].mean(0) for group in range(GROUPS)])
    return centres


def checked(hosts: Hosts, found: dict[str, Any]) -> None:
    """A worker on each host, tiles by the cable between them, and NumPy's results."""
    assert found["workers"] == 2
    assert sorted(found["places"]) == list(hosts.net.addresses[:2])
    assert found["connected"]
    assert all(pair == found["places"] for pair in found["connected"])  # never by 127.0.0.1
    moved = found["moved"]
    assert moved["error"] < 1e-6
    assert sum(moved["received"]) == moved["planned"] > 1 << 20
    for received, through in zip(moved["received"], moved["through"], strict=True):
        assert through > received > 0  # with the headers of its packets
    np.testing.assert_allclose(found["kmeans"], kmeans())
    assert found["lines"] == [found["places"]] * 2  # one each way
    before = gl.workers()
    try:
        gl.workers(2)
        results, _ = loop_hosts_program.loops()
    finally:
        gl.workers(before)
    for name, values in results.items():
        assert np.array_equal(np.array(found["loops"][name], values.dtype), values)


def test_the_death_of_a_worker_on_another_host(hosts):
    head, other, _ = hosts.net.addresses
    found = driven(hosts, 0, f"{head}:{HEAD}", other)
    checked(hosts, found)
    killed = found["killed"]
    assert killed["ranks"] == [found["places"].index(other)]
    assert killed["another"]
    assert killed["places"] == found["places"]
    assert killed["kmeans"] == found["kmeans"]
    assert killed["kept"]


@pytest.mark.skipif(not LONG, reason="a driver on the head's host is tried by `make test`")
def test_a_client_on_a_host_of_its_own(hosts):
    checked(hosts, driven(hosts, 2, f"ray://{hosts.net.addresses[0]}:{CLIENTS}"))
