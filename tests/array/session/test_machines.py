"""Clusters of any machine: meshes of several axes, links of different speeds; the results are the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import girih
import girih.array as gnp
from girih.layout.transfer import level_volumes
from girih.machine import Machine, MachineError, machine
from girih.machine.file import parse_machine

FILE = """\
name: {name}
device:
  name: core
  flops: 10 GFLOP/s
  memory: 1 GiB
  memory_bandwidth: 10 GB/s
  launch: 7 us
levels:
  - name: network
    count: 2
    bandwidth: {network}
    latency: 20 us
  - name: bus
    count: 2
    bandwidth: {bus}
    latency: 20 us
"""
SLOW_NETWORK = FILE.format(name="slow network", network="0.1 GB/s", bus="10 GB/s")
SLOW_BUS = FILE.format(name="slow bus", network="10 GB/s", bus="0.1 GB/s")
EVEN = FILE.format(name="even", network="1 GB/s", bus="1 GB/s")
RANDOM = np.random.default_rng(0)
A, B, TALL = RANDOM.normal(size=(301, 200)), RANDOM.normal(size=(200, 90)), RANDOM.normal(size=(3001, 7))


def program(x: Any, y: Any, tall: Any) -> list[Any]:
    z = x @ y + 1
    x[3:50] *= 2
    return [
        z, (z.T @ x).sum(0), z.std(axis=1), gnp.sort(y, 0), x[gnp.argsort(x[:, 0])][:5], gnp.cumsum(y, 0),
        x.T.reshape(-1), gnp.scan(np.cumsum, y, combine="sum"),
        gnp.linalg.qr(tall).R, gnp.linalg.svdvals(tall), gnp.linalg.cholesky(z.T @ z + 400 * gnp.eye(90)),
        gnp.join_update(np.dot, x, y, axis=(1, 0), shape=(301, 90)), x[x[:, 1] > 0].mean(0),
    ]  # fmt: skip


def results(**options: Any) -> list[np.ndarray]:
    with gnp.cluster(**options, timeout=60.0):
        return [item.compute() for item in program(gnp.array(A), gnp.array(B), gnp.array(TALL))]


@pytest.fixture(scope="module")
def known() -> list[np.ndarray]:
    return results(workers=1, backend="threads")


@pytest.mark.parametrize("name", ["2x2", "local:6", "2x1x3", "slow network", "slow bus"])
def test_the_results_are_those_of_one_worker(name: str, known: list[np.ndarray], tmp_path: Path) -> None:
    place = tmp_path / "mine.yaml"
    place.write_text(SLOW_BUS if name == "slow bus" else SLOW_NETWORK)
    described = place if name.startswith("slow") else name
    for made, expected in zip(results(machine=described, backend="threads"), known, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-9)


def test_processes_are_a_mesh_too(known: list[np.ndarray]) -> None:
    for made, expected in zip(results(machine="2x2"), known, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-9)


def bytes_over_levels(text: str) -> tuple[str, int, int]:
    """What is minimised, and the bytes that cross the network and the bus."""
    with gnp.cluster(parse_machine(text, "mine.yaml"), backend="threads"):
        x = gnp.array(RANDOM.normal(size=(1000, 80)))
        plan = gnp.explain((x.T @ x) @ x.T).plan
    program = plan.program
    volumes = sum(
        level_volumes(program.mesh, step.before, step.after).sum(axis=0) * program.graph.values[step.value].item_bytes
        for step in program.transfers
    )
    network, bus = np.asarray(volumes).tolist()
    assert network + bus == plan.bytes_received.sum()
    return plan.objective, network, bus


def test_what_moves_goes_by_the_speed_of_links() -> None:
    """Few bytes cross the slow level, whichever it is; where links are alike, the fewest move in all."""
    objective, network, bus = bytes_over_levels(SLOW_NETWORK)
    assert objective == "time"
    assert network < bus
    objective, network, bus = bytes_over_levels(SLOW_BUS)
    assert objective == "time"
    assert bus < network
    objective, other_network, other_bus = bytes_over_levels(EVEN)
    assert objective == "bytes"
    assert other_network + other_bus < network + bus


def test_a_machine_is_a_name_a_value_or_a_file(tmp_path: Path) -> None:
    place = tmp_path / "mine.yaml"
    place.write_text(SLOW_NETWORK)
    for described in ("2x2", machine("local:4"), place, str(place)):
        for arguments in ((described,), ()):
            options = {} if arguments else {"machine": described}
            with girih.cluster(*arguments, **options, backend="threads") as made:  # type: ignore[arg-type]
                assert (made.workers, made.machine.mesh.sizes) == (4, (2, 2))
                assert "mesh 2×2" in repr(made)
                assert made.budget.limit <= machine("local:4").device.memory_bytes


def test_devices_have_the_memory_that_the_machine_says() -> None:
    with gnp.cluster(parse_machine(EVEN.replace("1 GiB", "1 MiB"), "mine.yaml"), backend="threads") as made:
        assert made.budget.limit == 1 << 20
        with pytest.raises(gnp.MemoryLimitError, match="the limit is"):
            (gnp.random.default_rng(0).normal(size=(400, 400)) @ gnp.ones((400, 400))).compute()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"machine": "3y3"}, "no machine '3y3': expected local:N"),
        ({"machine": "64x64"}, "64x64 has 4096 devices: at most 1024 workers are started"),
        ({"workers": 3, "machine": "2x2"}, "workers=3, but 2x2 has 4 devices: give one"),
        ({"workers": "2x2", "machine": "local:4"}, "two machines, 2x2 and local:4: give one"),
        ({"machine": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_what_is_no_machine_is_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises((MachineError, ValueError), match=expected):
        gnp.cluster(**options)


def test_a_machine_value_keeps_its_name() -> None:
    with gnp.cluster(machine=machine("2x2"), backend="threads") as made:
        assert isinstance(made.machine, Machine)
        assert made.machine.name == "2x2"
