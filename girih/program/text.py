"""The text form of a Program: what people see when they print it; `Program.parse(str(p), p.graph, p.strategy) == p`.

program
  place 0: 0 [0:4, 0:8]; 1 [4:8, 0:8]
  place 1: 0-1 [0:8, 0:8]; partial 2
  place 2: 0-1 [0:8]; partial 2 by max
  buffer x of x in 0
  step 0: start    x@y.0 from x: fetch of x for node 1, from 0 to 1 by sum
  step 1: compute  z = node 0 of x in 0
  step 2: blocks   y = of x@y.0 by 16 rows { 0 compute  y = node 1 of x@y.0 in 1 }
  step 3: free     x@y.0, z
  step 4: start    y^out from y: out of y for node 3
  step 5: start    w^1 from w: in of w for node 4, after y^out
  host y^out, w
  order 0: 0-3

A place says which devices hold which box, and how many partial sums lie along each axis. A buffer is of a value and
lies in a place, on the devices, or, if it stands under `host`, in the large memory behind them. A read names its buffer
and the place that is needed of it. An order names its devices and its steps; where there is none, all devices do all
steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from girih.layout import Placement, mark_of, reducer_of
from girih.layout.mesh import COUNTED
from girih.program.steps import (
    BlockStep,
    ComputeStep,
    Devices,
    FreeStep,
    MoveStep,
    Order,
    ReadPart,
    StartStep,
    Step,
    TransferStep,
)

FLAGS = ("stealing",)
BUFFERS = ("streamed", "files", "host")


class Written(NamedTuple):
    """All of a Program but its graph and strategy."""

    steps: tuple[Step, ...]
    places: dict[str, Placement]
    value_of: dict[str, str]
    streamed: frozenset[str]
    files: frozenset[str]
    stealing: bool
    orders: tuple[Order, ...]
    host: frozenset[str] = frozenset()


class _Places:
    """Numbers for placements; equal ones have one."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, Placement]] = {}  # by identity, with the placement to keep it alive
        self.numbers: dict[tuple[object, ...], int] = {}
        self.different: list[Placement] = []

    def number(self, place: Placement) -> int:
        if id(place) not in self.known:
            key = (place.regions.shape, place.regions.tobytes(), tuple(map(int, place.partial)))
            if key not in self.numbers:
                self.numbers[key] = len(self.different)
                self.different.append(place)
            self.known[id(place)] = self.numbers[key], place
        return self.known[id(place)][0]


def written_text(program: Written) -> str:
    places = _Places()
    buffers = [
        f"buffer {name}"
        + (f" of {program.value_of[name]}" if name in program.value_of else "")
        + (f" in {places.number(program.places[name])}" if name in program.places else "")
        for name in dict.fromkeys([*program.places, *program.value_of])
    ]
    steps = [f"step {number}: {_step(step, places)}" for number, step in enumerate(program.steps)]
    lines = [f"place {number}: {_place(place)}" for number, place in enumerate(places.different)]
    lines += buffers
    lines += [f"{kind} {', '.join(sorted(names))}" for kind in BUFFERS if (names := getattr(program, kind))]
    lines += [kind for kind in FLAGS if getattr(program, kind)]
    lines += steps
    lines += [f"order {order.devices}: {_runs(order.steps)}" for order in program.orders]
    return "\n  ".join(["program", *lines])


def describe(step: Step) -> str:
    """A step in a line, without the places of what it reads."""
    return re.sub(r" in \d+\b|, from \d+ to \d+", "", _step(step, _Places()))


def _place(place: Placement) -> str:
    holders: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, box in enumerate(place.regions.tolist()):
        holders.setdefault(tuple(map(tuple, box)), []).append(device)
    parts = [
        f"{Devices.of(devices)} [{', '.join(f'{start}:{stop}' for start, stop in box)}]"
        for box, devices in holders.items()
    ]
    by = reducer_of(place.partial)
    counts = ", ".join(str(int(terms) % COUNTED) for terms in place.partial)
    return "; ".join([*parts, f"partial {counts}" + (f" by {by}" if by not in (None, "sum") else "")])


def _step(step: Step, places: _Places) -> str:
    if isinstance(step, ComputeStep):
        reads = ", ".join(f"{part.buffer} in {places.number(part.needed)}" for part in step.reads)
        return f"compute  {', '.join(step.writes)} = node {step.node} of {reads}"
    if isinstance(step, BlockStep):
        members = "; ".join(
            f"{variable} {_step(member, places)}" for variable, member in zip(step.variables, step.members, strict=True)
        )
        return f"blocks   {', '.join(step.writes)} = of {', '.join(step.reads)} by {step.rows} rows {{ {members} }}"
    if isinstance(step, TransferStep):
        return (
            f"transfer {step.target} from {step.source}: {step.purpose} of {step.value} for node {step.node}, "
            f"from {places.number(step.before)} to {places.number(step.after)} by {step.reducer}"
        )
    if isinstance(step, MoveStep):
        way = "out" if step.out else "in"
        return f"move     {step.target} from {step.source}: {way} of {step.value} for node {step.node}"
    if isinstance(step, StartStep):
        after = f", after {' '.join(step.after)}" if step.after else ""
        return "start    " + _step(step.transfer, places).partition(" ")[2].lstrip() + after
    return f"free     {', '.join(step.buffers)}"


def _runs(numbers: Iterable[int]) -> str:
    """`0-12, 15, 17-19`: numbers in their order, whatever it is."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# ------------------------------------------------------------------------------------------------ reading

_COMPUTE = re.compile(r"compute +(.*) = node (\d+) of ?(.*)")
_BLOCKS = re.compile(r"blocks +(.*) = of (.*) by (\d+) rows \{ (.*) \}")
_TRANSFER = re.compile(
    r"(?:transfer|start) +(\S+) from (\S+): (\S+) of (\S+) for node (\d+), from (\d+) to (\d+) by (\S+)"
)
_MOVE = re.compile(r"(?:move|start) +(\S+) from (\S+): (out|in) of (\S+) for node (\d+)(?:, after (.*))?")
_BUFFER = re.compile(r"buffer (\S+)(?: of (\S+))?(?: in (\d+))?")
_BOX = re.compile(r"([\d, :-]+) \[(.*)\]")


def parse_written(text: str) -> Written:
    """Read the text form.

    Raises:
        ValueError: naming the line that cannot be read.
    """
    places: list[Placement] = []
    lies: dict[str, Placement] = {}
    value_of: dict[str, str] = {}
    named: dict[str, frozenset[str]] = dict.fromkeys(BUFFERS, frozenset())
    flags = dict.fromkeys(FLAGS, False)
    steps: list[Step] = []
    orders: list[Order] = []
    known: dict[str, tuple[int, ...]] = {}  # of orders: equal ones are one tuple
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        kind, _, rest = line.partition(" ")
        body = rest.partition(":")[2].strip()
        try:
            if kind == "place":
                places.append(_parse_place(body))
            elif kind == "buffer":
                name, value, place = _matched(_BUFFER, line)
                if value:
                    value_of[name] = value
                if place:
                    lies[name] = places[int(place)]
            elif kind in BUFFERS:
                named[kind] = frozenset(_names(rest))
            elif kind in FLAGS:
                flags[kind] = True
            elif kind == "step":
                steps.append(_parse_step(body, places))
            elif kind == "order":
                devices, _, body = rest.rpartition(":")
                if body not in known:
                    known[body] = tuple(_numbers(body.strip()))
                orders.append(Order(Devices.of(_numbers(devices)), known[body]))
            elif line not in ("", "program"):
                raise ValueError("expected a place, a buffer, a step or an order")
        except (ValueError, IndexError) as error:
            raise ValueError(f"line {number} of the program cannot be read ({error}): {line[:200]!r}") from error
    return Written(
        tuple(steps), lies, value_of, named["streamed"], named["files"], flags["stealing"],
        tuple(orders), named["host"],
    )  # fmt: skip


def _matched(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"expected the form {pattern.pattern!r}")
    return match.groups()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()


def _numbers(text: str) -> Iterator[int]:
    """The numbers that a text such as `0-3, 8, 16-30:2` names."""
    for part in _names(text):
        first, _, rest = part.partition("-")
        last, _, distance = rest.partition(":")
        yield from range(int(first), int(last or first) + 1, int(distance or 1))


def _parse_place(text: str) -> Placement:
    *parts, partial = text.split("; ")
    partial, _, reducer = partial.partition(" by ")
    mark = mark_of(reducer or "sum")
    boxes: dict[int, list[list[int]]] = {}
    for part in parts:
        devices, box = _matched(_BOX, part)
        sides = [[int(end) for end in side.split(":")] for side in _names(box)]
        boxes.update((device, sides) for device in _numbers(devices))
    regions = np.asarray([boxes[device] for device in range(len(boxes))], np.int64)
    counts = _numbers(partial.removeprefix("partial").strip())
    return Placement(regions, tuple([count + mark if count else 0 for count in counts]))


def _parse_step(text: str, places: list[Placement]) -> Step:
    kind, _, rest = text.partition(" ")
    if kind == "compute":
        return _parse_compute(text, places)
    if kind == "blocks":
        writes, reads, rows, listed = _matched(_BLOCKS, text)
        members = [part.partition(" ") for part in listed.split("; ")]
        return BlockStep(
            tuple(_parse_compute(member, places) for _, _, member in members),
            tuple(int(variable) for variable, _, _ in members),
            int(rows),
            _names(reads),
            _names(writes),
        )
    if kind == "free":
        return FreeStep(_names(rest.lstrip()))
    if move := _MOVE.fullmatch(text):
        target, source, way, value, node, after = move.groups()
        copy = MoveStep(value, int(node), source, target, way == "out")
        return copy if kind == "move" else StartStep(copy, tuple((after or "").split()))
    if kind in ("start", "transfer"):
        target, source, purpose, value, node, before, after, reducer = _matched(_TRANSFER, text)
        places_of = places[int(before)], places[int(after)]
        transfer = TransferStep(value, int(node), source, target, *places_of, purpose, reducer)
        return StartStep(transfer) if kind == "start" else transfer
    raise ValueError(f"{kind!r} is no step")


def _parse_compute(text: str, places: list[Placement]) -> ComputeStep:
    writes, node, reads = _matched(_COMPUTE, text)
    parts = [read.rpartition(" in ") for read in _names(reads)]
    return ComputeStep(
        int(node), tuple(ReadPart(buffer, places[int(place)]) for buffer, _, place in parts), _names(writes)
    )
