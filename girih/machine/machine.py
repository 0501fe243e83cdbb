"""Machines: devices in a hierarchy of levels.

A machine is a hierarchy: levels from the outermost (slowest links) to the innermost, each with how many parts it has
and what traffic over it costs. Its devices are alike, or of several kinds (`unequal`). Each level becomes one mesh
axis, or several: 8 GPUs on one bus are 2×4, so that a tensor can be cut along two dimensions. More axes are finer and
slower to search (`p2.8xlarge:2x2x2`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.layout import Links, Mesh
from girih.machine.sizes import SizeTable
from girih.machine.units import MachineError, parse_bytes

__all__ = [
    "Device",
    "Level",
    "Machine",
    "MachineError",
    "Tier",
    "factors",
    "parse_bytes",
    "two_axes",
    "unequal",
    "with_memory",
]


@dataclass(frozen=True)
class Device:
    """One device: arithmetic in FLOP/s, memory in bytes and bytes/s, seconds to start a kernel.

    rates: FLOP/s of products of numbers of other dtypes than float32, such as ("bfloat16", 989e12).
    """

    name: str
    flops_per_second: float
    memory_bytes: int
    memory_bytes_per_second: float
    launch_seconds: float
    rates: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", tuple((str(dtype), float(rate)) for dtype, rate in self.rates))  # of JSON

    def flops(self, dtype: str) -> float:
        """FLOP/s of products of numbers of a dtype; what is not stated is as fast as float32."""
        return dict(self.rates).get(dtype, self.flops_per_second)


@dataclass(frozen=True)
class Tier:
    """The large memory behind each device, such as the host's behind a GPU: what each device may use of it, in bytes,
    and bytes/s of copies out to it and in from it. both_bytes_per_second: of copies both ways together, where that is
    less than the sum: each way is then taken to have half of it at most, also while nothing goes the other way.
    latency_seconds: of a copy. computing_share: of the device's computing, what a copy takes away while it runs: 0
    where an engine of its own copies, as on a GPU, 1 where the device's only core does."""

    name: str
    memory_bytes: int
    out_bytes_per_second: float
    in_bytes_per_second: float
    both_bytes_per_second: float = 0.0
    latency_seconds: float = 0.0
    computing_share: float = 0.0

    def own_seconds(self, size: float, out: bool) -> float:
        """How much of the device's computing time one copy takes that runs beside computation."""
        return self.computing_share * self.copy_seconds(size, out)

    def copy_seconds(self, size: float, out: bool) -> float:
        """How long one copy takes."""
        rate = self.out_bytes_per_second if out else self.in_bytes_per_second
        if self.both_bytes_per_second:
            rate = min(rate, self.both_bytes_per_second / 2)
        return self.latency_seconds + size / rate


@dataclass(frozen=True)
class Level:
    """One level of the hierarchy; `axes` are its mesh axes, () where it has one part only.

    bytes_per_second: what one device can receive over it; of a `shared` level what each of its parts (a host, a switch)
    can receive through its one port, which all devices inside the part share. latency_seconds: of a message.
    points: (bytes, seconds) of one message as measured, with all devices at it; () where there is only the line
    latency + bytes / bandwidth. meeting_points: of a message whose receiver gets others at the same time, where that
    differs: senders who know nothing of each other overrun the receiver's port, and send again what was dropped.
    """

    name: str
    axes: tuple[int, ...]
    bytes_per_second: float
    latency_seconds: float
    shared: bool = False
    points: tuple[tuple[int, float], ...] = ()
    meeting_points: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        # Lists, as JSON gives them.
        object.__setattr__(self, "axes", tuple(self.axes))
        for name in ("points", "meeting_points"):
            table = tuple((int(size), float(seconds)) for size, seconds in getattr(self, name))
            object.__setattr__(self, name, table)

    @property
    def parts(self) -> int:
        return prod(self.axes)

    def message_seconds(self, size: float, meeting: bool = False) -> float:
        """How long one message of `size` bytes takes, by the measured points, else by latency and bandwidth.

        meeting: its receiver gets others at the same time.
        """
        if points := (self.meeting_points if meeting else ()) or self.points:
            return SizeTable.of(points).seconds(size)
        return self.latency_seconds + size / self.bytes_per_second

    def occupied_seconds(self, size: float, meeting: bool = False) -> float:
        """For how long that message keeps its ports from others: without the latency, which many messages spend under
        way at the same time (Culler et al. 1993, LogP); all of it where only whole messages were measured."""
        return self.message_seconds(size, meeting) if self.points else size / self.bytes_per_second

    @property
    def delay_seconds(self) -> float:
        """From when a message has left its ports to when it is there."""
        return 0.0 if self.points else self.latency_seconds


@dataclass(frozen=True)
class Machine:
    """Devices in levels. source: where the numbers come from.

    groups: (device, how many of it), in the order of the devices' numbers, where they are not alike; () where they are.
    device: of all, or of unequal ones what each of them has at least. Searches that take devices for alike use that.
    host: the large memory behind each device, None where there is none, or nothing is known of it.

    Raises:
        MachineError: the groups have more or fewer devices than the levels.
    """

    name: str
    device: Device
    levels: tuple[Level, ...]
    source: str = ""
    groups: tuple[tuple[Device, int], ...] = ()
    host: Tier | None = None

    def __post_init__(self) -> None:
        if self.groups and (count := sum(count for _, count in self.groups)) != self.devices:
            raise MachineError(f"{count} devices are described, the levels have {self.devices}: expected as many")

    @property
    def mesh(self) -> Mesh:
        return Mesh(tuple(size for level in self.levels for size in level.axes))

    @property
    def devices(self) -> int:
        return self.mesh.devices

    @property
    def here(self) -> bool:
        """Are its devices processes of this host (`local:N`), so that its plans are run, and measured, here?"""
        return self.name.startswith("local:")

    @property
    def on_gpus(self) -> bool:
        """Are its devices GPUs of this host (`cuda:N`), so that its plans are run there where nobody says otherwise?"""
        return self.name.startswith("cuda:")

    @property
    def kinds(self) -> tuple[Device, ...]:
        """The different devices; one where all are alike."""
        return tuple(dict.fromkeys(device for device, _ in self.groups)) or (self.device,)

    @property
    def kind_of_device(self) -> NDArray[np.int64]:
        """The position in `kinds` of each device: [devices]."""
        if not self.groups:
            return np.zeros(self.devices, np.int64)
        kinds = self.kinds
        return np.repeat([kinds.index(device) for device, _ in self.groups], [count for _, count in self.groups])

    def figures(self, name: str) -> NDArray[np.float64]:
        """A figure of every device, such as `flops_per_second`: [devices]."""
        return np.asarray([getattr(kind, name) for kind in self.kinds], float)[self.kind_of_device]

    @property
    def fastest(self) -> Device:
        """The most that any device has, of every figure."""
        kinds = self.kinds
        return kinds[0] if len(kinds) == 1 else _extreme(kinds, max, min)

    @property
    def described_devices(self) -> str:
        """`1 × fast + 1 × slow`"""
        return " + ".join(f"{count} × {device.name}" for device, count in self.groups or ((self.device, self.devices),))

    def devices_inside(self, number: int) -> int:
        """How many devices one part of a level has: they share its port, where it is shared."""
        return prod(level.parts for level in self.levels[number + 1 :])

    @property
    def links(self) -> Links:
        """What each mesh axis costs one device when all communicate: its share, of a shared port."""
        seconds_per_byte: list[float] = []
        latency: list[float] = []
        for number, level in enumerate(self.levels):
            sharing = self.devices_inside(number) if level.shared else 1
            seconds_per_byte += [sharing / level.bytes_per_second] * len(level.axes)
            latency += [level.latency_seconds] * len(level.axes)
        return Links(tuple(seconds_per_byte), tuple(latency))

    def __str__(self) -> str:
        return f"{self.name} ({self.described_devices}, mesh {self.mesh})"


def unequal(name: str, groups: Sequence[tuple[Device, int]], levels: tuple[Level, ...], source: str = "") -> Machine:
    """A machine whose devices differ; groups: (device, how many of it), in the order of the devices' numbers."""
    slowest = _extreme([device for device, _ in groups], min, max)
    return Machine(name, slowest, levels, source, tuple(groups))


def _extreme(devices: Sequence[Device], rates: Callable[..., Any], times: Callable[..., Any]) -> Device:
    """The device with the least, or largest, of every figure."""
    dtypes = sorted({dtype for device in devices for dtype, _ in device.rates})
    return Device(
        " + ".join(dict.fromkeys(device.name for device in devices)),
        rates(device.flops_per_second for device in devices),
        rates(device.memory_bytes for device in devices),
        rates(device.memory_bytes_per_second for device in devices),
        times(device.launch_seconds for device in devices),
        tuple((dtype, rates(device.flops(dtype) for device in devices)) for dtype in dtypes),
    )


def factors(count: int) -> tuple[int, ...]:
    """The prime factors, largest first (Tofu §5.2: k = k1·k2·…·km with ki >= ki+1); () for 1."""
    primes, divisor = [], 2
    while count > 1:
        while count % divisor == 0:
            primes.append(divisor)
            count //= divisor
        divisor += 1
    return tuple(reversed(primes))


def two_axes(count: int) -> tuple[int, ...]:
    """The two factors nearest to the square root, the smaller first: 8 → (2, 4); (p,) for a prime, () for 1."""
    first = next(size for size in range(isqrt(count), 0, -1) if count % size == 0)
    return tuple(size for size in (first, count // first) if size > 1)


def with_memory(item: Machine, memory_bytes: int) -> Machine:
    """The machine with another memory limit for each device."""
    groups = tuple((replace(device, memory_bytes=memory_bytes), count) for device, count in item.groups)
    return replace(item, device=replace(item.device, memory_bytes=memory_bytes), groups=groups)
