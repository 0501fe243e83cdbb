"""Machines by name: meshes, links, presets, amounts of memory."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from girih.host import memory_here
from girih.layout import Mesh
from girih.machine import Device, Level, Machine, MachineError, machine, presets
from girih.machine.machine import factors, parse_bytes, two_axes, with_memory
from girih.machine.names import threads_here
from girih.machine.presets import DEVICES, all_presets


@given(st.integers(1, 5000))
def test_factors_are_prime_and_descend(count: int) -> None:
    found = factors(count)
    assert prod(found) == count
    assert list(found) == sorted(found, reverse=True)
    assert all(all(p % q for q in range(2, int(p**0.5) + 1)) for p in found)


@given(st.integers(1, 5000))
def test_two_axes_are_the_nearest_factors(count: int) -> None:
    found = two_axes(count)
    assert prod(found) == count
    assert len(found) <= 2
    assert list(found) == sorted(found)
    assert 1 not in found


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("local:1", ()),
        ("local:2", (2,)),
        ("local:6", (2, 3)),
        ("local:8", (2, 4)),
        ("local:7", (7,)),
        ("local:4:4", (4,)),
        ("local:8:2x2x2", (2, 2, 2)),
        ("4", (2, 2)),
        ("2x4", (2, 4)),
        ("2x4x8", (2, 4, 8)),
        ("1x3", (1, 3)),
        ("dgx-h100", (2, 4)),
        ("dgx-h200", (2, 4)),
        ("p2.8xlarge", (2, 4)),
        ("p2.8xlarge:2x2x2", (2, 2, 2)),
        ("p2.8xlarge:2x2", (2, 2)),
        ("p2.8xlarge:8", (8,)),
        ("p2.8xlarge:4", (4,)),
        ("p2.8xlarge:1", ()),
        ("p3.2xlarge", ()),
        ("p3.8xlarge", ()),
        ("p100-cluster", (4, 2, 2)),
        ("p100-cluster:1", (2, 2)),
        ("p100-cluster:2/4", (2, 4)),
        ("k80-cluster", (16, 2, 2)),
        ("k80-cluster:4/2/1", (4, 2)),
        ("k80-cluster:4x4", (4, 4, 2, 2)),
        ("summit", (4, 2, 3)),
        ("summit:16", (16, 2, 3)),
        ("summit:2/1/3", (2, 3)),
        ("h100-cluster:128", (128, 2, 4)),
        ("cpu-10g", (2, 2)),
        ("cpu-1g:8", (8,)),
        ("titanx-cluster", (2, 2)),
        ("titanx-40g", (2, 2)),
        ("titanx-40g:1", ()),
        ("rtx-4090", (2, 2)),
    ],
)
def test_meshes(name: str, sizes: tuple[int, ...]) -> None:
    item = machine(name)
    assert item.mesh == Mesh(sizes)
    assert item.devices == prod(sizes)
    assert len(item.links.seconds_per_byte) == len(item.links.latency) == len(sizes)
    assert machine(item) is item
    assert name in str(item)


@pytest.mark.parametrize("name", ["p2.8xlarge:", "p2.8xlarge:two", "p2.8xlarge:2/4", "summit:4/2/3/1", "summit:4x/2"])
def test_sizes_of_a_preset_must_be_sizes(name: str) -> None:
    with pytest.raises(MachineError, match=r"are no sizes of .* expected such as"):
        machine(name)


@pytest.mark.parametrize(
    ("name", "most"), [("p2.8xlarge:16", 8), ("p2.8xlarge:0", 8), ("summit:4/3", 2), ("summit:1/2/4", 3)]
)
def test_only_networks_grow(name: str, most: int) -> None:
    with pytest.raises(MachineError, match=f"no mesh axes of the {most} parts"):
        machine(name)


def test_one_device_has_no_sizes() -> None:
    with pytest.raises(MachineError, match="one device, without levels"):
        machine("p3.2xlarge:4")


def test_outer_links_are_slower() -> None:
    links = machine("2x4x8").links
    assert list(links.seconds_per_byte) == sorted(links.seconds_per_byte, reverse=True)
    assert links.seconds_per_byte[0] > links.seconds_per_byte[-1]


def test_who_shares_a_port_gets_a_share_of_it() -> None:
    card = Device("card", 1e12, 10**9, 1e11, 1e-6)
    levels = (
        Level("network", (4,), 8e9, 1e-5, shared=True),
        Level("switch", (2,), 6e9, 1e-6, shared=True),
        Level("pair", (3,), 5e9, 1e-6),
    )
    item = Machine("shared", card, levels)
    assert [item.devices_inside(number) for number in range(3)] == [6, 3, 1]
    assert item.links.seconds_per_byte == pytest.approx((6 / 8e9, 3 / 6e9, 1 / 5e9))
    assert item.links.latency == (1e-5, 1e-6, 1e-6)


def test_every_preset_names_its_source_and_has_positive_numbers() -> None:
    for name, item in presets().items():
        assert item.name == name
        assert len(item.source) > 20
        device = item.device
        assert min(device.memory_bytes, device.flops_per_second, device.memory_bytes_per_second) > 0
        assert 0 < device.launch_seconds < 1e-3
        for level in item.levels:
            assert level.bytes_per_second > 0
            assert 0 < level.latency_seconds < 1e-2
            assert all(size > 1 for size in level.axes)
        assert item.devices == prod(level.parts for level in item.levels)
        assert DEVICES[device.name] is device


def test_the_papers_machines_have_the_papers_sizes() -> None:
    known = all_presets()
    assert (known["p2.8xlarge"].machine.devices, known["p2.8xlarge"].machine.device.memory_bytes) == (8, 12 * 10**9)
    assert known["p100-cluster"].machine.devices == 16
    assert known["k80-cluster"].machine.devices == 64
    assert machine("summit:1").devices == 6
    pairs = known["k80-cluster"].machine
    assert pairs.links.seconds_per_byte[1] == pytest.approx(2 / 12e9)  # two cards behind one port of the shared switch
    assert pairs.links.seconds_per_byte[0] == pytest.approx(4 * 8 / 56e9)


@pytest.mark.parametrize(
    "name",
    ["local:0", "local:4:3", "local:4:1x4", "local:4:", "0x2", "2x0", "laptop", "local:", "local:-1", "2x", "x2", ""],
)
def test_other_names_are_refused_with_what_is_understood(name: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine(name)
    assert repr(name) in str(caught.value)


def test_the_example_file_is_a_machine() -> None:
    item = machine(str(Path(__file__).resolve().parents[2] / "examples" / "machines" / "lab.yaml"))
    assert (item.name, item.mesh.sizes, item.device) == ("lab", (2, 2, 2), DEVICES["RTX 4090"])
    assert item.links.seconds_per_byte[0] == pytest.approx(4 * 8 / 23.5e9)


def test_levels_are_equal_when_read_back_from_json() -> None:
    level = Level("loopback", (2, 2), 1e9, 1e-4, points=((4096, 1e-4), (65536, 2e-4)))
    listed = {key: list(map(list, value)) if key == "points" else value for key, value in vars(level).items()}
    assert Level(**{**listed, "axes": [2, 2]}) == level
    assert hash(Level(**listed)) == hash(level)


def test_a_message_takes_the_measured_time_or_latency_and_bandwidth() -> None:
    line = Level("wire", (2,), 1e9, 1e-4)
    assert line.message_seconds(1e6) == pytest.approx(1.1e-3)
    table = Level("loopback", (2,), 1e9, 1e-4, points=((1000, 1e-4), (100000, 1e-3)))
    assert table.message_seconds(1000) == pytest.approx(1e-4)
    assert table.message_seconds(10000) == pytest.approx((1e-4 * 1e-3) ** 0.5)


@pytest.mark.parametrize(
    ("text", "count"),
    [("600MB", 600 * 10**6), ("1.5GiB", 3 * 2**29), ("4096", 4096), (" 2 kb ", 2000), ("1TB", 10**12), (7, 7)],
)
def test_amounts_of_memory(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@given(st.integers(0, 10**15), st.sampled_from(["", "B"]))
def test_whole_bytes_are_exact(count: int, unit: str) -> None:
    assert parse_bytes(f"{count}{unit}") == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1.5.2GB", "3 apples", "1e9", "3 GB/s"])
def test_other_amounts_are_refused(text: str) -> None:
    with pytest.raises(MachineError, match="no amount of memory"):
        parse_bytes(text)


def test_another_limit_changes_nothing_else() -> None:
    item = machine("2x2")
    less = with_memory(item, 1000)
    assert isinstance(less, Machine)
    assert less.device.memory_bytes == 1000
    assert (less.mesh, less.links, less.device.flops_per_second) == (
        item.mesh,
        item.links,
        item.device.flops_per_second,
    )


def test_processes_of_this_host_share_its_memory_or_the_containers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("girih.host.MEMORY_LIMITS", (str(tmp_path / "none"), str(limit)))
    whole = memory_here()
    for text, expected in (("max\n", whole), (f"{whole // 2}\n", whole // 2), (f"{2**62}\n", whole)):
        limit.write_text(text)
        assert memory_here() == expected
        assert machine("local:4").device.memory_bytes == expected // 4


def test_workers_share_the_threads_that_pytorch_has() -> None:
    torch.set_num_threads(3)
    assert [threads_here(workers) for workers in (1, 2, 3, 8)] == [3, 1, 1, 1]
