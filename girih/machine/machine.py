"""Machines: devices in a hierarchy of levels.

A machine is a hierarchy: levels from the outermost (slowest links) to the innermost, each with how many parts it has
and what traffic over it costs; all devices are alike. Each level becomes one mesh axis, or several: 8 GPUs on one bus
are 2×4, so that a tensor can be cut along two dimensions. More axes are finer and slower to search
(`p2.8xlarge:2x2x2`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod

from girih.layout import Links, Mesh
from girih.machine.sizes import SizeTable
from girih.machine.units import MachineError, parse_bytes

__all__ = ["Device", "Level", "Machine", "MachineError", "factors", "parse_bytes", "two_axes", "with_memory"]


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
        """Of one message of `size` bytes: by the measured points, else by latency and bandwidth. meeting: its receiver
        gets others at the same time."""
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
    """Devices, all alike, in levels. source: where the numbers come from."""

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
        return f"{self.name} ({self.devices} × {self.device.name}, mesh {self.mesh})"


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
    return replace(item, device=replace(item.device, memory_bytes=memory_bytes))
