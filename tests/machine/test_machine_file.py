"""Machines from YAML files: what is read, and that each mistake is reported with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from girih.machine import MachineError, machine, unequal
from girih.machine.file import parse_machine
from girih.machine.machine import with_memory
from girih.machine.presets import DEVICES
from girih.machine.units import BYTES_PER_SECOND, FLOPS_PER_SECOND, MEMORY, SECONDS, parse_amount

GOOD = """\
name: mine
source: measured
device:
  name: card
  flops: 10 TFLOP/s
  memory: 16 GiB
  memory_bandwidth: 0.5 TB/s
  launch: 7 us
levels:
  - name: network
    count: 4
    bandwidth: 10 Gbit/s
    latency: 0.05 ms
    shared: yes
  - name: bus
    axes: [2, 3]
    bandwidth: 12.5 GB/s
    latency: 15us
"""


def test_every_key_is_read() -> None:
    item = parse_machine(GOOD, "mine.yaml")
    assert (item.name, item.source, item.mesh.sizes) == ("mine", "measured", (2, 2, 2, 3))
    device = item.device
    assert (device.name, device.flops_per_second, device.memory_bytes) == ("card", 10e12, 16 * 2**30)
    assert (device.memory_bytes_per_second, device.launch_seconds) == (0.5e12, pytest.approx(7e-6))
    network, bus = item.levels
    assert (network.name, network.axes, network.bytes_per_second, network.shared) == ("network", (2, 2), 1.25e9, True)
    assert network.latency_seconds == pytest.approx(5e-5)
    assert (bus.axes, bus.bytes_per_second, bus.shared) == ((2, 3), 12.5e9, False)


def test_products_of_other_dtypes_have_rates() -> None:
    text = GOOD.replace("  memory: 16 GiB\n", "  memory: 16 GiB\n  products: {bfloat16: 40 TFLOP/s}\n")
    device = parse_machine(text, "mine.yaml").device
    assert [device.flops(dtype) for dtype in ("float32", "bfloat16", "float16")] == [10e12, 40e12, 10e12]
    with pytest.raises(MachineError, match=r"products\.bf16: unknown key; did you mean 'bfloat16'"):
        parse_machine(text.replace("bfloat16", "bf16"), "mine.yaml")


def test_little_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("device: V100\n")
    item = machine(str(path))
    assert (item.name, item.device, item.levels, item.source) == ("one", DEVICES["V100"], (), str(path))


def test_a_level_of_one_part_has_no_mesh_axis() -> None:
    assert parse_machine(GOOD.replace("count: 4", "count: 1"), "mine.yaml").mesh.sizes == (2, 3)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("10 Gbit/s", "fast", "mine.yaml:12: levels[0].bandwidth: expected a number with a unit such as 25 GB/s or 10 "
         "Gbit/s, got 'fast'"),
        ("10 Gbit/s", "10", "mine.yaml:12: levels[0].bandwidth: expected a number with a unit"),
        ("10 Gbit/s", "10 Gb/s", "mine.yaml:12: levels[0].bandwidth: expected a number with a unit"),
        ("12.5 GB/s", "0 GB/s", "mine.yaml:17: levels[1].bandwidth: expected more than zero, got '0 GB/s'"),
        ("12.5 GB/s", "-1 GB/s", "mine.yaml:17: levels[1].bandwidth: expected a number with a unit"),
        ("latency: 15us", "latancy: 15us", "mine.yaml:18: levels[1].latancy: unknown key; did you mean 'latency'?"),
        ("source: measured", "vendor: red", "mine.yaml:2: vendor: unknown key; expected one of name, source, device"),
        ("    latency: 15us\n", "", "mine.yaml:15: levels[1]: the key 'latency' is missing"),
        ("  memory: 16 GiB\n", "", "mine.yaml:4: device: the key 'memory' is missing"),
        ("count: 4", "count: four", "mine.yaml:11: levels[0].count: expected a whole number of 1 or more, got 'four'"),
        ("count: 4", "count: 0", "mine.yaml:11: levels[0].count: expected a whole number of 1 or more, got '0'"),
        ("count: 4", "count: 2.5", "mine.yaml:11: levels[0].count: expected a whole number"),
        ("count: 4", "count: [4]", "mine.yaml:11: levels[0].count: expected a whole number of 1 or more, got a list"),
        ("[2, 3]", "[2, 0]", "mine.yaml:16: levels[1].axes[1]: expected a whole number"),
        ("[2, 3]", "6", "mine.yaml:16: levels[1].axes: expected a list, got '6'"),
        ("axes: [2, 3]", "axes: [2]\n    count: 2", "mine.yaml:16: levels[1].axes: give count or axes, not both"),
        ("shared: yes", "shared: 1", "mine.yaml:14: levels[0].shared: expected true or false, got '1'"),
        ("name: mine", "name:", "mine.yaml:1: name: expected a text, got nothing"),
        ("name: mine", "name: mine\nname: yours", "mine.yaml:2: name: this key stands here twice"),
        ("16 GiB", "16 apples", "mine.yaml:6: device.memory: expected a number with a unit such as 24 GB or 16 GiB"),
        ("10 TFLOP/s", "{a: 1}", "mine.yaml:5: device.flops: expected a number with a unit such as 82 TFLOP/s or 500 "
         "GFLOP/s, got a mapping"),
        ("7 us", "7", "mine.yaml:8: device.launch: expected a number with a unit such as 5 us, got '7'"),
        ("  - name: network\n    count: 4", "  - network\n  - count: 4", "mine.yaml:10: levels[0]: expected a mapping"),
        ("name: mine", "name: [", "this is no YAML"),
        ("name: mine", "\tname: mine", "mine.yaml:1: this is no YAML"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_line_and_key(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(MachineError) as caught:
        parse_machine(GOOD.replace(old, new, 1), "mine.yaml")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "mine.yaml:1: the file is empty"),
        ("# nothing\n", "mine.yaml:1: the file is empty"),
        (
            "- a\n",
            "name, source, device, devices, levels, host, got a list",
        ),
        (
            "hello",
            "name, source, device, devices, levels, host, got 'hello'",
        ),
        ("levels: []\n", "mine.yaml:1: the key 'device' is missing"),
        ("device: V10\n", "mine.yaml:1: device: no device 'V10'; did you mean 'V100'? expected one of K80"),
        ("device: V100\nlevels: fast\n", "mine.yaml:2: levels: expected a list, got 'fast'"),
        ("device: V100\n---\ndevice: K80\n", "this is no YAML: expected a single document"),
    ],
)
def test_files_that_are_no_machine(text: str, expected: str) -> None:
    with pytest.raises(MachineError) as caught:
        parse_machine(text, "mine.yaml")
    assert expected in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"none\.yaml: No such file or directory; expected a YAML file"):
        machine(str(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MachineError, match="it is no text"):
        machine(str(tmp_path / "bytes.yaml"))


def test_amounts() -> None:
    assert parse_amount("25 GB/s", BYTES_PER_SECOND) == 25e9
    assert parse_amount("25GiB/s", BYTES_PER_SECOND) == 25 * 2**30
    assert parse_amount("8 Mbit/s", BYTES_PER_SECOND) == 1e6
    assert parse_amount("1e3 MB/s", BYTES_PER_SECOND) == 1e9
    assert parse_amount("82 TFLOPS", FLOPS_PER_SECOND) == parse_amount("82 TFLOP/s", FLOPS_PER_SECOND) == 82e12
    assert parse_amount("4096", MEMORY) == 4096
    assert parse_amount("5 µs", SECONDS) == parse_amount("5 μs", SECONDS) == parse_amount("5us", SECONDS)
    assert parse_amount("5 parsecs", SECONDS) is None


UNEQUAL = """\
devices:
  - device: V100
  - device:
      name: card
      flops: 10 TFLOP/s
      memory: 8 GiB
      memory_bandwidth: 0.5 TB/s
      launch: 7 us
    count: 2
  - device: V100
levels:
  - name: bus
    axes: [2, 2]
    bandwidth: 12.5 GB/s
    latency: 15us
"""


def test_devices_may_differ() -> None:
    item, known = parse_machine(UNEQUAL, "mine.yaml"), DEVICES["V100"]
    assert item.devices == 4
    assert item.kind_of_device.tolist() == [0, 1, 1, 0]
    assert item.figures("flops_per_second").tolist() == [known.flops_per_second, 10e12, 10e12, known.flops_per_second]
    assert item.described_devices == "1 × V100 + 2 × card + 1 × V100"
    assert str(item) == "mine (1 × V100 + 2 × card + 1 × V100, mesh 2×2)"
    slowest, fastest = item.device, item.fastest
    assert (slowest.flops_per_second, slowest.memory_bytes) == (10e12, 8 * 2**30)
    assert (slowest.launch_seconds, fastest.launch_seconds) == (pytest.approx(7e-6), known.launch_seconds)
    assert fastest.flops_per_second == known.flops_per_second
    limited = with_memory(item, 1 << 20)
    assert {limited.device.memory_bytes, *(kind.memory_bytes for kind in limited.kinds)} == {1 << 20}


def test_alike_devices_are_one_kind() -> None:
    item = parse_machine(GOOD, "mine.yaml")
    assert item.kinds == (item.device,)
    assert item.fastest == item.device
    assert item.described_devices == "24 × card"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("count: 2", "count: 3", "devices: expected 4 devices, as the levels have, got 5"),
        ("count: 2", "count: 0", "devices[1].count: expected a whole number of 1 or more, got '0'"),
        ("device: V100\n  - device:\n", "device: V1000\n  - device:\n", "devices[0].device: no device 'V1000'"),
        ("count: 2", "counts: 2", "devices[1].counts: unknown key"),
        ("devices:", "device: V100\ndevices:", "devices: give device or devices, not both"),
    ],
)
def test_mistakes_in_unequal_devices_are_told(old: str, new: str, expected: str) -> None:
    with pytest.raises(MachineError) as caught:
        parse_machine(UNEQUAL.replace(old, new, 1), "mine.yaml")
    assert expected in str(caught.value)


def test_groups_have_as_many_devices_as_the_levels() -> None:
    item = parse_machine(UNEQUAL, "mine.yaml")
    with pytest.raises(MachineError, match="3 devices are described, the levels have 4"):
        unequal("wrong", item.groups[:2], item.levels)


def test_copies_may_take_a_share_of_the_devices_computing() -> None:
    text = "device: {name: cpu, flops: 1 TFLOP/s, memory: 8 GB, memory_bandwidth: 20 GB/s}\n"
    text += "host:\n  memory: 64 GB\n  out: 3 GB/s\n  computing: %s\n"
    host = parse_machine(text % "50%", "lab.yaml").host
    assert host is not None
    assert host.computing_share == 0.5
    assert host.own_seconds(3 * 10**9, out=True) == 0.5
    for wrong in ("0.5", "150%", "-1%", "half", "[50%]"):
        with pytest.raises(MachineError, match=r"lab.yaml:5: host.computing: expected a share"):
            parse_machine(text % wrong, "lab.yaml")
