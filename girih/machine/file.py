"""Machines from YAML files; a mistake is reported with the file's line and the key.

name: lab                      # default: the file's name
source: where the figures come from
device: RTX 4090               # a card that girih knows, or
device:
  name: my card
  flops: 82 TFLOP/s
  memory: 24 GB
  memory_bandwidth: 1008 GB/s
  launch: 5 us                 # seconds to start a kernel, 0 us if none; default 5 us
  products:                    # of other dtypes than float32, where they are faster
    bfloat16: 165 TFLOP/s
devices:                       # in place of device, where they differ: in the order of their numbers, the last level's
  - device: H100               # fastest
    count: 1                   # default 1
  - device: {name: my card, flops: 82 TFLOP/s, memory: 24 GB, memory_bandwidth: 1008 GB/s}
levels:                        # from the outermost (slowest links) to the innermost; none for one device
  - name: network
    count: 4                   # or axes: [2, 2], the mesh axes
    bandwidth: 10 Gbit/s       # what one device can receive or, if shared, one host
    latency: 50 us
    shared: true               # one port for all devices of a host; default false
host:                          # the large memory behind each device; none if it is left out
  name: host memory over PCIe
  memory: 64 GB                # what each device may use
  out: 12 GB/s                 # copies to it
  in: 12 GB/s                  # copies back; default as out
  both: 20 GB/s                # both ways together; each then has half of it at most; default the sum
  latency: 10 us               # default 0 us
  computing: 50%               # of the device's computing that a copy takes while it runs; default 0%, as a GPU's
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any

from girih.machine.machine import Device, Level, Machine, Tier, two_axes, unequal
from girih.machine.presets import DEVICES
from girih.machine.units import BYTES_PER_SECOND, FLOPS_PER_SECOND, MEMORY, SECONDS, MachineError, parse_amount

MOST_TEXT = 1 << 18  # bytes of a file
MOST_DEPTH = 16  # of lists and mappings, of which a machine has four
MOST_DEVICES = 1 << 17
PRODUCTS = ("bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")
"""Dtypes of which products may have rates of their own."""
LEAST, MOST = 1e-18, 1e30  # of an amount in its basic unit
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_TAGS = {"int": "an integer", "float": "a number", "bool": "a boolean", "null": "nothing", "str": "a text"}


def read_machine(path: Path) -> Machine:
    """The machine that a YAML file describes.

    Raises:
        MachineError: `mine.yaml:7: levels[0].bandwidth: expected …, got …`
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_TEXT + 1)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise MachineError(f"{path}: {reason}; expected a YAML file that describes a machine") from error
    if len(raw) > MOST_TEXT:
        raise MachineError(f"{path}: it has more than {MOST_TEXT} bytes; expected a YAML file that describes a machine")
    return parse_machine(text, str(path))


def parse_machine(text: str, file: str) -> Machine:
    """The machine that YAML text describes; `file` is its name in messages."""
    import yaml

    try:
        _check_depth(text, file)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        said = [part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part]
        reason = " ".join((", ".join(said) or str(error)).split())
        raise MachineError(f"{file}:{line}: this is no YAML: {reason}") from error
    except MachineError:
        raise
    except (ValueError, OverflowError) as error:  # a character or a version that YAML's own numbers cannot hold
        raise MachineError(f"{file}:1: this is no YAML: {' '.join(str(error).split())}") from error
    if root is None:
        raise MachineError(f"{file}:1: the file is empty: expected a machine with the keys device and levels")
    return _machine(_Place(file, "", root))


def _check_depth(text: str, file: str) -> None:
    """Deep nesting takes YAML's reader a long time, and a deep stack: it is refused as soon as it is met."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            line = event.start_mark.line + 1
            raise MachineError(f"{file}:{line}: lists and mappings are nested too deeply: expected at most four levels")


@dataclass(frozen=True)
class _Place:
    """A node of the file and the way to it, `levels[0].bandwidth`."""

    file: str
    path: str
    node: Any

    def error(self, message: str) -> MachineError:
        where = f"{self.file}:{self.node.start_mark.line + 1}:"
        return MachineError(f"{where} {self.path}: {message}" if self.path else f"{where} {message}")

    @property
    def given(self) -> str:
        """What stands here, for messages."""
        if hasattr(self.node.value, "strip"):
            kind = self.node.tag.rpartition(":")[2]
            text = repr(self.node.value) if self.node.value else _TAGS.get(kind, repr(self.node.value))
            return text if len(text) <= 60 else f"{text[:56]}…{text[-1]}"
        return "a mapping" if self.node.id == "mapping" else "a list"

    def mapping(self, known: tuple[str, ...]) -> dict[str, _Place]:
        if self.node.id != "mapping":
            raise self.error(f"expected a mapping with the keys {', '.join(known)}, got {self.given}")
        places: dict[str, _Place] = {}
        for key, value in self.node.value:
            if key.id != "scalar":
                raise _Place(self.file, self.path, key).error("a key is a list or a mapping: expected a word")
            name = str(key.value) if str(key.value).isprintable() and len(key.value) <= 60 else repr(key.value)[:60]
            place = _Place(self.file, f"{self.path}.{name}" if self.path else name, key)
            if name in places:
                raise place.error("this key stands here twice")
            if name not in known:
                near = get_close_matches(name, known, 1, 0.6)
                hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
                raise place.error(f"unknown key; {hint}")
            places[name] = _Place(self.file, place.path, value)
        return places

    def items(self) -> list[_Place]:
        if self.node.id != "sequence":
            raise self.error(f"expected a list, got {self.given}")
        return [_Place(self.file, f"{self.path}[{number}]", node) for number, node in enumerate(self.node.value)]

    def need(self, places: Mapping[str, _Place], key: str) -> _Place:
        if key not in places:
            raise self.error(f"the key {key!r} is missing")
        return places[key]

    def text(self) -> str:
        if self.node.id != "scalar" or self.node.tag.endswith(":null") or not self.node.value.strip():
            raise self.error(f"expected a text, got {self.given}")
        if not self.node.value.isprintable() or len(self.node.value) > 1000:
            raise self.error(f"expected a text of one line, got {self.given}")
        return str(self.node.value)

    def amount(self, units: Mapping[str, float], examples: str, zero: bool = False) -> float:
        """zero: nothing is an amount, too: of time."""
        value = parse_amount(str(self.node.value), units) if self.node.id == "scalar" else None
        if value is None:
            raise self.error(f"expected a number with a unit such as {examples}, got {self.given}")
        if value == 0 and zero:
            return value
        if value <= 0:
            raise self.error(f"expected more than zero, got {self.given}")
        if not LEAST <= value <= MOST:
            raise self.error(f"expected between {LEAST:g} and {MOST:g} in the basic unit, got {self.given}")
        return value

    def share(self) -> float:
        number, percent, rest = str(self.node.value).partition("%") if self.node.id == "scalar" else ("", "", "")
        digits = number.strip()
        if not percent or rest.strip() or not digits.isascii() or not digits.replace(".", "", 1).isdecimal():
            raise self.error(f"expected a share such as 50%, got {self.given}")
        if float(digits) > 100:
            raise self.error(f"expected a share from 0% to 100%, got {self.given}")
        return float(digits) / 100

    def count(self) -> int:
        digits = str(self.node.value) if self.node.id == "scalar" else ""
        if not digits.isdecimal() or not digits.isascii() or not digits.strip("0"):
            raise self.error(f"expected a whole number of 1 or more, got {self.given}")
        if len(digits) > 10 or int(digits) > MOST_DEVICES:
            raise self.error(f"expected a whole number from 1 to {MOST_DEVICES}, got {self.given}")
        return int(digits)

    def boolean(self) -> bool:
        word = str(self.node.value).casefold() if self.node.id == "scalar" and self.node.tag.endswith(":bool") else ""
        if word not in _TRUE + _FALSE:
            raise self.error(f"expected true or false, got {self.given}")
        return word in _TRUE


def _machine(place: _Place) -> Machine:
    places = place.mapping(("name", "source", "device", "devices", "levels", "host"))
    if "device" in places and "devices" in places:
        raise places["devices"].error("give device or devices, not both")
    groups = [_group(item) for item in places["devices"].items()] if "devices" in places else []
    if not groups:
        groups = [(_device(place.need(places, "device")), 0)]
    levels = tuple(_level(item) for item in places["levels"].items()) if "levels" in places else ()
    name = places["name"].text() if "name" in places else Path(place.file).stem
    source = places["source"].text() if "source" in places else place.file
    host = _host(places["host"]) if "host" in places else None
    devices = prod(level.parts for level in levels)
    if devices > MOST_DEVICES:
        raise places["levels"].error(
            f"the levels have {_shown(devices)} devices together: expected at most {MOST_DEVICES}"
        )
    if "devices" not in places:
        return Machine(name, groups[0][0], levels, source, host=host)
    if (count := sum(count for _, count in groups)) != devices:
        raise places["devices"].error(
            f"expected {devices} devices, as the levels have, got {_shown(count)}; count says how many are alike"
        )
    return replace(unequal(name, groups, levels, source), host=host)


def _group(place: _Place) -> tuple[Device, int]:
    places = place.mapping(("device", "count"))
    return _device(place.need(places, "device")), places["count"].count() if "count" in places else 1


def _shown(count: int) -> str:
    return str(count) if count < 10**15 else "more than 10^15"


def _device(place: _Place) -> Device:
    if place.node.id == "scalar":
        name = place.text()
        if name not in DEVICES:
            near = get_close_matches(name, DEVICES, 1, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise place.error(
                f"no device {name!r}; {hint}expected one of {', '.join(DEVICES)}, or a mapping with the keys name, "
                "flops, memory and memory_bandwidth"
            )
        return DEVICES[name]
    places = place.mapping(("name", "flops", "memory", "memory_bandwidth", "launch", "products"))
    memory = place.need(places, "memory")
    size = memory.amount(MEMORY, "24 GB or 16 GiB")
    if not 1 <= size <= 1 << 60:
        raise memory.error(f"expected from 1 to {1 << 60} bytes, got {memory.given}")
    products = places["products"].mapping(PRODUCTS) if "products" in places else {}
    return Device(
        place.need(places, "name").text(),
        place.need(places, "flops").amount(FLOPS_PER_SECOND, "82 TFLOP/s or 500 GFLOP/s"),
        int(size),
        place.need(places, "memory_bandwidth").amount(BYTES_PER_SECOND, "900 GB/s"),
        places["launch"].amount(SECONDS, "5 us", zero=True) if "launch" in places else 5e-6,
        tuple((dtype, rate.amount(FLOPS_PER_SECOND, "165 TFLOP/s")) for dtype, rate in products.items()),
    )


def _host(place: _Place) -> Tier:
    places = place.mapping(("name", "memory", "out", "in", "both", "latency", "computing"))
    memory = place.need(places, "memory")
    size = memory.amount(MEMORY, "64 GB or 64 GiB")
    if not 1 <= size <= 1 << 60:
        raise memory.error(f"expected from 1 to {1 << 60} bytes, got {memory.given}")
    out = place.need(places, "out").amount(BYTES_PER_SECOND, "12 GB/s")
    return Tier(
        places["name"].text() if "name" in places else "host memory",
        int(size),
        out,
        places["in"].amount(BYTES_PER_SECOND, "12 GB/s") if "in" in places else out,
        places["both"].amount(BYTES_PER_SECOND, "20 GB/s") if "both" in places else 0.0,
        places["latency"].amount(SECONDS, "10 us", zero=True) if "latency" in places else 0.0,
        places["computing"].share() if "computing" in places else 0.0,
    )


def _level(place: _Place) -> Level:
    places = place.mapping(("name", "count", "axes", "bandwidth", "latency", "shared"))
    if "count" in places and "axes" in places:
        raise places["axes"].error("give count or axes, not both")
    if "axes" in places:
        sizes = tuple(item.count() for item in places["axes"].items())
    else:
        sizes = two_axes(place.need(places, "count").count())
    return Level(
        place.need(places, "name").text(),
        tuple(size for size in sizes if size > 1),
        place.need(places, "bandwidth").amount(BYTES_PER_SECOND, "25 GB/s or 10 Gbit/s"),
        place.need(places, "latency").amount(SECONDS, "20 us or 0.1 ms", zero=True),
        places["shared"].boolean() if "shared" in places else False,
    )
