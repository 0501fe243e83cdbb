"""A profile: a machine as it was measured, kept in the store of costs.

Device rates, the roofline, links by message size and pattern, copying and combining. `machine("local:4", profile)` is
the machine with these numbers in place of its defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from girih.cost.roofline import Error, Rates, Roofline
from girih.cost.setting import is_of_this_method
from girih.cost.store import Setting, Store
from girih.machine.machine import Device, Machine, MachineError
from girih.machine.sizes import SizeTable

SEND, RING, ALL_TO_ALL = "send", "ring", "all-to-all"
"""Patterns of messages: one at a time between two devices; every device to its neighbour at once; every device to
every other at once."""
NO_TIME = 1e18  # bytes per second of a link that takes none


@dataclass(frozen=True)
class Moving:
    """Copies between a device and its large memory, as measured beside computation. share: of the device's computing
    that it loses to a copy while that runs."""

    out_bytes_per_second: float
    in_bytes_per_second: float
    latency_seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """Measured numbers of a machine.

    machine, backend: what was measured, `local:4` with `processes` or `threads`. roofline: with the device's peaks.
    links: by pattern, seconds of one message of each size, sent and received, with all devices at it that the pattern
    has. copy: seconds to pack or place so many bytes that do not lie in one run. combine: to add so many bytes to
    others. when: ISO 8601, UTC. carried: the workers' own cores carry the messages, so that what a message takes is
    work of its sender and receiver, and nothing runs beside it. handing: what a step takes besides its program, by the
    bytes of the batch that each worker is handed: from the driver and back to it. one_process: the workers were threads
    of one process, where the receiver of a message alone copies. moving: what copies to the large memory take, and what
    they cost the device; None where that was not measured. besides: seconds that a step takes beyond `handing` for each
    instruction of a worker: between them, and to make their operands ready and put what they made away.
    """

    machine: str
    backend: str
    setting: Setting
    roofline: Roofline
    links: tuple[tuple[str, SizeTable], ...]
    copy: SizeTable
    combine: SizeTable
    when: str
    carried: bool = False
    handing: SizeTable | None = None
    one_process: bool = False
    moving: Moving | None = None
    besides: float = 0.0

    @property
    def device(self) -> Device:
        return self.roofline.device

    def link(self, pattern: str) -> SizeTable | None:
        """The table of a pattern; None on one device."""
        return dict(self.links).get(pattern)

    def is_of(self, machine: str) -> bool:
        """Was this machine measured, or the same processes on other axes of a mesh, as `local:4` is `local:4:4`?"""
        return _processes(machine) == _processes(self.machine)

    @property
    def source(self) -> str:
        where = f"{self.setting.device}, {self.setting.threads} threads, {self.setting.library}"
        return f"measured {self.when[:10]}: {where}, {self.backend}, {self.setting.together} at once"

    @property
    def caution(self) -> str:
        """That an older girih measured a processor, in another way, and what renews that; else "". Such a profile is
        believed all the same: it is of this host, while the data sheet knows neither its processor nor its links."""
        if not self.machine.startswith("local:") or is_of_this_method(self.setting):
            return ""
        backend = "" if self.backend == "processes" else f" --backend {self.backend}"
        return (
            f"{self.machine} was calibrated on {self.when[:10]} by an older girih, which measured operators, copies "
            "and exchanges apart from a plan's steps: predicted times may be too short, most of all under a memory "
            f"limit; `girih calibrate --again --machine {self.machine}{backend}` renews it"
        )

    def applied(self, item: Machine) -> Machine:
        """The machine with the measured device and links; its memory stays.

        Raises:
            MachineError: it is another machine than the one that was measured.
        """
        if not self.is_of(item.name):
            raise MachineError(f"the profile is of {self.machine}, not of {item.name}: calibrate {item.name}")
        device = replace(self.device, memory_bytes=item.device.memory_bytes)
        table = self.link(RING)
        levels = item.levels
        if table is not None:
            latency, rate = table.line()
            meeting = self.link(ALL_TO_ALL)
            figures: dict[str, Any] = {
                "points": table.points,
                "meeting_points": () if meeting is None else meeting.points,
            }
            levels = tuple(
                replace(level, bytes_per_second=rate, latency_seconds=latency, **figures) for level in levels
            )
        host, moving = item.host, self.moving
        if host is not None and moving is not None:
            host = replace(
                host,
                out_bytes_per_second=moving.out_bytes_per_second,
                in_bytes_per_second=moving.in_bytes_per_second,
                both_bytes_per_second=0.0,
                latency_seconds=moving.latency_seconds,
                computing_share=moving.share,
            )
        return replace(item, device=device, levels=levels, source=self.source, groups=(), host=host)

    def simulated(self, item: Machine) -> Machine:
        """`applied`, but where workers carry the messages links take no time: that is in the prices of their work."""
        applied = self.applied(item)
        if not self.carried:
            return applied
        levels = tuple(
            replace(level, bytes_per_second=NO_TIME, latency_seconds=1 / NO_TIME, points=(), meeting_points=())
            for level in applied.levels
        )
        return replace(applied, levels=levels)


def save_profile(store: Store, profile: Profile) -> None:
    text = json.dumps(asdict(profile))
    store.put_profile(profile.machine, profile.backend, profile.setting, text, profile.when)


def load_profile(
    store: Store, machine: str, backend: str = "processes", where: Mapping[str, str | int] | None = None
) -> Profile | None:
    """The newest profile of a machine, or else of the same processes in a mesh of the usual axes; where: `device`,
    `library` or `threads` that it must have."""
    for name in dict.fromkeys((machine, _processes(machine))):
        if texts := store.profile_texts({"machine": name, "backend": backend, **(where or {})}):
            return parse_profile(texts[0])
    return None


def _processes(machine: str) -> str:
    """A machine's name without the axes of its mesh: messages between its processes take as long on any."""
    found = re.fullmatch(r"(local:\d+):[\dx]+", machine)
    return machine if found is None else found[1]


def parse_profile(text: str) -> Profile:
    """The inverse of the text that is stored.

    Raises:
        MachineError: it is no profile.
    """
    try:
        data = json.loads(text)
        return Profile(
            data["machine"],
            data["backend"],
            Setting(**data["setting"]),
            _roofline(data["roofline"]),
            tuple((name, _table(item)) for name, item in data["links"]),
            _table(data["copy"]),
            _table(data["combine"]),
            data["when"],
            bool(data.get("carried", False)),
            _table(data["handing"]) if data.get("handing") else None,
            bool(data.get("one_process", data["backend"] == "threads")),
            _moving(data["moving"]) if data.get("moving") else None,
            *_numbers([data.get("besides", 0.0)]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise MachineError(
            f"this is no profile of a machine ({type(error).__name__}: {reason}): delete the store, or calibrate again"
        ) from error


def _table(data: Any) -> SizeTable:
    sizes, seconds = _numbers(data["sizes"]), _numbers(data["all_seconds"])
    if not sizes or len(sizes) != len(seconds) or list(sizes) != sorted(set(sizes)) or min(seconds) <= 0:
        raise ValueError("a table of sizes and seconds is empty, out of order, or has no time")
    return SizeTable(tuple(map(int, sizes)), seconds, _numbers(data["spreads"]))


def _moving(data: Any) -> Moving:
    out, back, latency, share = _numbers(
        [data[name] for name in ("out_bytes_per_second", "in_bytes_per_second", "latency_seconds", "share")]
    )
    if not (out > 0 and back > 0 and share <= 1):
        raise ValueError("copies that take no time, or more than the device has")
    return Moving(float(out), float(back), float(latency), float(share))


def _numbers(data: Any) -> tuple[Any, ...]:
    """Finite numbers from 0, as a list has them."""
    if not isinstance(data, list) or not all(type(item) in (int, float) and 0 <= item < 1e30 for item in data):
        raise ValueError(f"{data!r} are no numbers")
    return tuple(data)


def _roofline(data: Any) -> Roofline:
    device = {name: item for name, item in data["device"].items() if name != "rates"}  # of what is measured: none
    _numbers([item for name, item in device.items() if name != "name"])
    _numbers([factor for _, factor in data["factors"]])
    rates = tuple(
        (
            str(kind),
            Rates(
                _numbers([item["launch_seconds"]])[0],
                _pairs(item["flops"]),
                _pairs(item["memory"]),
                item["measurements"],
            ),
        )
        for kind, item in data["rates"]
    )
    error = None if data["error"] is None else Error(**data["error"])
    return Roofline(Device(**device), rates, tuple((name, factor) for name, factor in data["factors"]), error)


def _pairs(data: Any) -> tuple[tuple[float, float], ...]:
    return tuple((size, share) for size, share in map(_numbers, data))
