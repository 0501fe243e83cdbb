"""What `test_run_ray_hosts.py` runs on a host of its own: array programs, and loops, on two Ray nodes; prints one line
of JSON.

Command line: Ray's address, a directory for checkpoints, the interface between the hosts, and the address of the host
whose worker is to be killed, or "".
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import loop_hosts_program
import numpy as np

import girih.array as gnp
from girih.run.engines.ray_connect import connect

ROWS, COLUMNS, GROUPS, ITERATIONS = 4096, 256, 5, 6
POINTS = np.random.default_rng(0).normal(size=(600, 8))


def main(address: str, place: str, interface: str, victim: str) -> dict[str, Any]:
    wait_for_nodes(address, 2)
    with gnp.cluster(address, timeout=30.0, checkpoint=place, every=0.05, small=0) as cluster:
        crew = cluster.run.crew
        found: dict[str, Any] = {"places": [host for _, host, _ in crew.places], "workers": cluster.workers}
        found["moved"] = moved(cluster, interface)
        found["connected"] = connected(crew.pids)
        found["kmeans"] = kmeans().tolist()
        found["loops"], found["lines"] = in_loops(crew.pids)
        if victim:
            found["killed"] = killed(cluster, found["places"].index(victim))
        return found


def wait_for_nodes(address: str, count: int) -> None:
    from ray import nodes

    connection = connect(address)
    deadline = time.monotonic() + 20
    while sum(node["Alive"] for node in nodes()) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    connection.close()


def moved(cluster: gnp.Cluster, interface: str) -> dict[str, Any]:
    """A product whose exchange is large: bytes that girih counts, and those that came through the interfaces."""
    values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS))
    x = gnp.array(values).persist()
    y = x.T[:, ::-1] @ x @ gnp.ones((COLUMNS, ROWS))
    planned = gnp.explain(y).bytes
    pids = cluster.run.crew.pids
    before = [came(pid) for pid in pids], [item.bytes_received for item in cluster.run.statistics()]
    y.persist()
    after = [came(pid) for pid in pids], [item.bytes_received for item in cluster.run.statistics()]
    expected = values.T[:, ::-1] @ values @ np.ones((COLUMNS, ROWS))
    return {
        "planned": planned,
        "received": [now - then for then, now in zip(before[1], after[1], strict=True)],
        "through": [now[interface] - then[interface] for then, now in zip(before[0], after[0], strict=True)],
        "error": float(np.abs(y.compute() - expected).max()),
    }


def came(pid: int) -> dict[str, int]:
    """Bytes that came to the host of a process, by interface."""
    with open(f"/proc/{pid}/net/dev") as lines:
        pairs = [line.split(":") for line in lines if ":" in line]
    return {name.strip(): int(counts.split()[0]) for name, counts in pairs}


def connected(pids: list[int]) -> list[list[str]]:
    """The connections of the first worker with the second: from which address to which."""
    here, there = (connections(pid) for pid in pids)
    return [[address_of(mine), address_of(other)] for mine, other in here if (other, mine) in there]


def connections(pid: int) -> set[tuple[str, str]]:
    """Of a process, established TCP connections over IPv4: its own end and the other, as the kernel writes them."""
    mine = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}") as lines:
            rows = [line.split() for line in lines][1:]
        found |= {(row[1][-13:], row[2][-13:]) for row in rows if row[3] == "01" and f"socket:[{row[9]}]" in mine}
    return found


def address_of(end: str) -> str:
    """The kernel's 0100007F:0050 is 127.0.0.1."""
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(end.partition(":")[0])))


def in_loops(pids: list[int]) -> tuple[dict[str, Any], list[list[str]]]:
    """What parallel loops make, and the connections that they have added: ZeroMQ's."""
    before = connected(pids)
    results, loop = loop_hosts_program.loops()
    assert "on threads" not in str(loop.explain()), loop.explain()
    return {name: values.tolist() for name, values in results.items()}, connected(pids)[len(before) :]


def kmeans() -> np.ndarray:
    x = gnp.array(POINTS)
    centres = x[:GROUPS]
    for _ in range(ITERATIONS):
        nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        centres = gnp.stack([x[nearest == group].mean(0) for group in range(GROUPS)])
        centres.persist()
    return centres.compute()


def killed(cluster: gnp.Cluster, rank: int) -> dict[str, Any]:
    """A worker is killed during k-means, which goes on with another."""
    crew = cluster.run.crew
    x = (gnp.array(POINTS) + 1).persist()
    pid = crew.pids[rank]
    killer = threading.Timer(0.05, os.kill, (pid, signal.SIGKILL))
    killer.start()
    for _ in range(50):  # until the kill was in the middle of it
        centres = kmeans()
        if cluster.run.losses:
            break
    killer.join()
    return {
        "ranks": [loss.rank for loss in cluster.run.losses],
        "another": crew.pids[rank] != pid,
        "places": [host for _, host, _ in crew.places],
        "kmeans": centres.tolist(),
        "kept": bool(np.array_equal(x.compute(), POINTS + 1)),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
