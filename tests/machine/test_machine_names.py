"""Machines by name: meshes, links, presets, amounts of memory."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from girih.layout import Mesh
from girih.machine import Machine, MachineError, machine, presets
from girih.machine.machine import factors, parse_bytes, with_memory


@given(st.integers(1, 5000))
def test_factors_are_prime_and_descend(count: int) -> None:
    found = factors(count)
    assert prod(found) == count
    assert list(found) == sorted(found, reverse=True)
    assert all(all(p % q for q in range(2, int(p**0.5) + 1)) for p in found)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("local:1", ()),
        ("local:2", (2,)),
        ("local:6", (2, 3)),
        ("local:8", (2, 4)),
        ("4", (2, 2)),
        ("2x4", (2, 4)),
        ("2x4x8", (2, 4, 8)),
        ("1x3", (1, 3)),
        ("dgx-h100", (2, 4)),
        ("p2.8xlarge", (2, 4)),
        ("p2.8xlarge:2x2x2", (2, 2, 2)),
        ("local:7", (7,)),
    ],
)
def test_meshes(name: str, sizes: tuple[int, ...]) -> None:
    item = machine(name)
    assert item.mesh == Mesh(sizes)
    assert item.devices == prod(sizes)
    assert len(item.links.seconds_per_byte) == len(item.links.latency) == len(sizes)
    assert machine(item) is item
    assert name in str(item)


@pytest.mark.parametrize("name", ["p2.8xlarge:2x2", "p2.8xlarge:", "p2.8xlarge:two"])
def test_axes_of_a_preset_must_make_its_devices(name: str) -> None:
    with pytest.raises(MachineError, match="no mesh axes of the 8 devices"):
        machine(name)


def test_outer_links_are_slower() -> None:
    links = machine("2x4x8").links
    assert list(links.seconds_per_byte) == sorted(links.seconds_per_byte, reverse=True)
    assert links.seconds_per_byte[0] > links.seconds_per_byte[-1]


def test_every_preset_names_its_source() -> None:
    for name, item in presets().items():
        assert item.name == name
        assert item.source
        assert item.device.memory_bytes > 0


@pytest.mark.parametrize("name", ["local:0", "0x2", "2x0", "laptop", "local:", "local:-1", "2x", "x2", ""])
def test_other_names_are_refused_with_what_is_understood(name: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [("600MB", 600 * 10**6), ("1.5GiB", 3 * 2**29), ("4096", 4096), (" 2 kb ", 2000), ("1TB", 10**12), (7, 7)],
)
def test_amounts_of_memory(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@given(st.integers(0, 10**15), st.sampled_from(["", "B"]))
def test_whole_bytes_are_exact(count: int, unit: str) -> None:
    assert parse_bytes(f"{count}{unit}") == count


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1.5.2GB", "3 apples", "1e9"])
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
