"""Devices, links and presets.

A machine is a hierarchy: levels from the outermost (slowest links) to the innermost, each with how many parts it has
and what a device's traffic over it costs; all devices are alike. Each level becomes one mesh axis, or several: 8 GPUs
on one bus are 2×4, so that a tensor can be cut along two dimensions. More axes are finer and slower to search
(`p2.8xlarge:2x2x2`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from math import isqrt, prod

from girih.layout import Links, Mesh

GB = 10**9


class MachineError(ValueError):
    """A machine that cannot be read or is too small."""


@dataclass(frozen=True)
class Device:
    """One device: arithmetic in FLOP/s, memory in bytes and bytes/s, seconds to start a kernel."""

    name: str
    flops_per_second: float
    memory_bytes: int
    memory_bytes_per_second: float
    launch_seconds: float


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy: `axes` are its mesh axes; bandwidth is what one device can receive over it."""

    name: str
    axes: tuple[int, ...]
    bytes_per_second: float
    latency_seconds: float


@dataclass(frozen=True)
class Machine:
    name: str
    device: Device
    levels: tuple[Level, ...]
    source: str = ""

    @property
    def mesh(self) -> Mesh:
        return Mesh(tuple(size for level in self.levels for size in level.axes))

    @property
    def devices(self) -> int:
        return self.mesh.devices

    @property
    def links(self) -> Links:
        per_axis = [level for level in self.levels for _ in level.axes]
        return Links(
            tuple(1.0 / level.bytes_per_second for level in per_axis),
            tuple(level.latency_seconds for level in per_axis),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.devices} × {self.device.name}, mesh {self.mesh})"


def factors(count: int) -> tuple[int, ...]:
    """The prime factors, largest first (Tofu §5.2: k = k1·k2·…·km with ki >= ki+1); () for 1."""
    found, divisor = [], 2
    while count > 1:
        while count % divisor == 0:
            found.append(divisor)
            count //= divisor
        divisor += 1
    return tuple(reversed(found))


def two_axes(count: int) -> tuple[int, ...]:
    """The two factors nearest to the square root, the smaller first: 8 → (2, 4); (p,) for a prime, () for 1."""
    first = next(size for size in range(isqrt(count), 0, -1) if count % size == 0)
    return tuple(size for size in (first, count // first) if size > 1)


def _local_device(processes: int) -> Device:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // processes
    return Device("CPU process", 30e9, memory, 8e9, 8e-6)


K80 = Device("K80", 2.8e12, 12 * GB, 240e9, 10e-6)
V100 = Device("V100", 15.7e12, 16 * GB, 900e9, 5e-6)
A100 = Device("A100", 156e12, 80 * GB, 2.0e12, 4e-6)
H100 = Device("H100", 495e12, 80 * GB, 3.35e12, 4e-6)

_NVLINK = 300e9
_NETWORK = 400e9 / 8  # 400 Gbit/s for each device, as in rail-optimised clusters


def presets() -> dict[str, Machine]:
    """Machines by name; every number's source is in `source`."""
    return {
        item.name: item
        for item in (
            Machine(
                "p2.8xlarge",
                K80,
                (Level("PCIe", (2, 4), 21e9, 20e-6),),
                "Tofu §7.1: 8 K80 of 12 GB, 21 GB/s peer to peer; FLOP/s and memory bandwidth: NVIDIA's data sheet",
            ),
            Machine(
                "dgx-v100",
                V100,
                (Level("NVLink", (2, 4), 150e9, 10e-6),),
                "NVIDIA's data sheets: V100 SXM2 16 GB, NVLink 2 at 300 GB/s both ways",
            ),
            Machine(
                "dgx-h100",
                H100,
                (Level("NVLink", (2, 4), _NVLINK, 10e-6),),
                "NVIDIA's data sheets: H100 SXM 80 GB (TF32), NVLink 4 at 900 GB/s both ways, derated",
            ),
        )
    }


def machine(name: str | Machine) -> Machine:
    """A machine by name.

    `local:4`: processes of this host; a preset's name, with other mesh axes after a colon (`p2.8xlarge:2x2x2`: finer,
    tensors can be cut along three dimensions, slower to search); `2x4`: hosts × GPUs with slower links between hosts
    (`2x4x8` for more levels; each number is one mesh axis).

    Raises:
        MachineError: saying which forms are understood.
    """
    if isinstance(name, Machine):
        return name
    known = presets()
    base, colon, axes = name.partition(":")
    if base in known:
        return _with_axes(known[base], name, axes) if colon else known[base]
    if match := re.fullmatch(r"local:(\d+)", name):
        count = int(match[1])
        if count < 1:
            raise MachineError(f"{name!r}: a machine has at least one device")
        return Machine(
            name,
            _local_device(count),
            (Level("loopback", two_axes(count), 1.5e9, 300e-6),),
            "gloo over loopback between processes of this host; defaults, not calibrated",
        )
    if re.fullmatch(r"\d+(x\d+)*", name):
        sizes = [int(size) for size in name.split("x")]
        if min(sizes) < 1:
            raise MachineError(f"{name!r}: a machine has at least one device")
        inner = Level("NVLink", (sizes[-1],) if len(sizes) > 1 else two_axes(sizes[-1]), _NVLINK, 10e-6)
        outer = tuple(Level(f"network {depth}", (size,), _NETWORK, 20e-6) for depth, size in enumerate(sizes[:-1]))
        return Machine(name, A100, (*outer, inner), "A100 80 GB data sheet (TF32); NVLink 3, 400 Gbit/s per device")
    raise MachineError(
        f"no machine {name!r}: expected local:N (processes of this host), HOSTSxDEVICES such as 2x4, "
        f"or one of {', '.join(known)}"
    )


def _with_axes(item: Machine, name: str, axes: str) -> Machine:
    """The preset with its innermost level as other mesh axes."""
    inner = item.levels[-1]
    sizes = tuple(int(size) for size in axes.split("x")) if re.fullmatch(r"\d+(x\d+)*", axes) else ()
    if prod(sizes) != prod(inner.axes):
        raise MachineError(
            f"{name!r}: {axes!r} are no mesh axes of the {prod(inner.axes)} devices on {inner.name}: "
            f"expected sizes with that product, such as {'x'.join(map(str, factors(prod(inner.axes))))}"
        )
    return replace(item, name=name, levels=(*item.levels[:-1], replace(inner, axes=sizes)))


def with_memory(item: Machine, memory_bytes: int) -> Machine:
    """The machine with another memory limit for each device."""
    return replace(item, device=replace(item.device, memory_bytes=memory_bytes))


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str | int) -> int:
    """`600MB`, `1.5GiB`, `4096` → bytes.

    Raises:
        MachineError: for anything else.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise MachineError(f"{text!r} is no amount of memory: expected a number with B, KB, MB, GB, KiB, MiB or GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])
