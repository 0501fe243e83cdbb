"""What may stand in a plan file, as types: read and held against them before anything else is done with it (msgspec).

A new field is a line in `PlanFile`, with a default if older files do without it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

# Numbers that JSON has no word for are texts.
Number = float | Literal["inf", "-inf", "nan"]
Text = Annotated[str, Meta(max_length=1 << 16)]
Whole = Annotated[int, Meta(ge=0, le=1 << 60)]
Rate = Annotated[float, Meta(gt=0.0, le=1e30)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
# An index variable or dimension, and a bit above 2**12 for each of 48 coordinates of its axis: `girih.layout.mesh`.
Code = Annotated[int, Meta(ge=-2048, le=1 << 60)]
# As text, or as files of version 2 have it, by codes.
ShardingFile = Annotated[tuple[Code, ...], Meta(max_length=64)] | Annotated[str, Meta(max_length=1 << 14)]
Point = tuple[Annotated[int, Meta(ge=1, le=1 << 60)], Annotated[float, Meta(gt=0.0, le=1e9)]]


class DeviceFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    flops_per_second: Rate
    memory_bytes: Whole
    memory_bytes_per_second: Rate
    launch_seconds: Seconds
    rates: Annotated[tuple[tuple[Text, Rate], ...], Meta(max_length=64)] = ()


class LevelFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    axes: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 20)], ...], Meta(max_length=64)]
    bytes_per_second: Rate
    latency_seconds: Seconds
    shared: bool = False
    points: Annotated[tuple[Point, ...], Meta(max_length=10_000)] = ()
    meeting_points: Annotated[tuple[Point, ...], Meta(max_length=10_000)] = ()


class TierFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    memory_bytes: Whole
    out_bytes_per_second: Rate
    in_bytes_per_second: Rate
    both_bytes_per_second: Annotated[float, Meta(ge=0.0, le=1e30)] = 0.0
    latency_seconds: Seconds = 0.0
    computing_share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class MachineFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    source: Text
    device: DeviceFile
    levels: Annotated[tuple[LevelFile, ...], Meta(max_length=64)]
    groups: Annotated[tuple[tuple[DeviceFile, Annotated[int, Meta(ge=1, le=1 << 20)]], ...], Meta(max_length=4096)] = ()
    host: TierFile | None = None


class CertificateFile(Struct, frozen=True, forbid_unknown_fields=True):
    cost: Number
    bound: Number
    unit: Text
    how: Text
    stopped: Text
    space: Text
    statistics: dict[Text, float | int | Text]


class CostsFile(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    seconds: Number
    bytes: Whole
    peak: Whole
    simulated: Number | None = None


class OverlapFile(Struct, frozen=True, forbid_unknown_fields=True):
    fetch: Whole = 0
    store: Whole = 0


class ScratchSettingFile(Struct, frozen=True, forbid_unknown_fields=True):
    device: Text
    library: Text


class ScratchFile(Struct, frozen=True, forbid_unknown_fields=True):
    setting: ScratchSettingFile | None
    threads: Annotated[int, Meta(ge=1, le=1 << 20)]
    calls: dict[Text, tuple[Whole, Literal["measured", "estimate", "bound"]]]


Position = Annotated[int, Meta(ge=-1, le=1 << 31)]
StayFile = tuple[Position, Position, Position, Position, bool, bool, bool]


RangeFile = tuple[Annotated[int, Meta(ge=0, le=1 << 31)], Annotated[int, Meta(ge=0, le=1 << 31)]]
"""Whole numbers from the first to before the second."""


Length = Annotated[int, Meta(ge=1, le=1 << 60)]
PiecesFile = tuple[Length, tuple[tuple[Annotated[int, Meta(ge=0, le=1 << 31)], Annotated[int, Meta(ge=0, le=64)]], ...]]


class ResidencyFile(Struct, frozen=True, forbid_unknown_fields=True):
    stays: tuple[StayFile, ...]
    home: tuple[Annotated[int, Meta(ge=0, le=1 << 31)], ...]


class RewriteFile(Struct, frozen=True, forbid_unknown_fields=True):
    rule: Text
    at: Annotated[tuple[Text, ...], Meta(max_length=64)]
    before: Seconds
    cost: Seconds


class PlanFile(Struct, frozen=True, forbid_unknown_fields=True, rename={"version": "girih plan"}):
    version: int
    model: Text
    search: Text
    objective: Literal["bytes", "seconds", "time"]
    memory: Whole | None
    machine: MachineFile
    certificate: CertificateFile
    baselines: Annotated[tuple[CostsFile, ...], Meta(max_length=1000)]
    scalars: dict[Text, Number]
    ranges: dict[Text, Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]]
    initial: dict[Text, tuple[Literal["constant", "normal", "uniform"], Number, Number]]
    layouts: dict[Text, ShardingFile]
    divisions: tuple[ShardingFile, ...]
    graph: tuple[str, ...]
    simulated: Number | None = None
    notes: Annotated[tuple[Text, ...], Meta(max_length=1000)] = ()
    overlap: OverlapFile = OverlapFile()
    scratch: ScratchFile | None = None
    keys: dict[Text, Text] | None = None
    constants: dict[Text, Text] = {}  # msgspec copies it
    schedule: Literal["graph", "1f1b", "interleaved"] = "graph"
    sequence: tuple[RangeFile, ...] | None = None
    pieces: tuple[PiecesFile, ...] = ()
    residency: ResidencyFile | None = None
    residencies: tuple[ResidencyFile, ...] = ()
    unlimited: Number | None = None
    memory_bound: Number | None = None
    room: Whole | None = None
    rewrites: Annotated[tuple[RewriteFile, ...], Meta(max_length=1 << 16)] = ()
    undivided: tuple[str, ...] = ()
    micro_batches: Annotated[int, Meta(ge=1, le=1 << 16)] = 1


class CapturedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A captured program in the user's cache: as it stands in a plan."""

    model: Text
    graph: tuple[str, ...]
    initial: dict[Text, tuple[Literal["constant", "normal", "uniform"], float, float]]
    scalars: dict[Text, float]
    ranges: dict[Text, Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]]
    keys: dict[Text, Text] | None
    constants: dict[Text, Text]
    micro_batches: Annotated[int, Meta(ge=1, le=1 << 16)]


class Version(Struct, frozen=True, rename={"version": "girih plan"}):
    """All that is asked of a file of another version."""

    version: int


class SchemaError(ValueError):
    """A file that is no plan of this version; one line: where in it, what was expected, what is there."""


def read_schema(text: bytes, oldest: int, newest: int) -> PlanFile:
    """The parts of a plan file.

    Raises:
        SchemaError: the text is no JSON, of another version, or something in it is not what it must be.
    """
    try:
        version = msgspec.json.decode(text, type=Version).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(_no_plan(text, error)) from None
    if not oldest <= version <= newest:
        raise SchemaError(
            f"is a plan of version {version}; this girih reads versions {oldest} to {newest}: plan it again"
        )
    try:
        return msgspec.json.decode(text, type=PlanFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"is damaged: {_told(text, error)}") from None


def read_captured(text: bytes) -> CapturedFile:
    """The parts of a captured program.

    Raises:
        SchemaError: the text is none.
    """
    try:
        return msgspec.json.decode(text, type=CapturedFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"is damaged: {_told(text, error)}") from None


def _no_plan(text: bytes, error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError) and "girih plan" in str(error):
        return "is no plan: expected JSON with the key 'girih plan', and a whole number there"
    if isinstance(error, msgspec.ValidationError):
        return "is no plan: expected a JSON object with the key 'girih plan'"
    # A version from before these numbers were texts.
    if (old := re.match(rb'\s*\{\s*"girih plan":\s*(\d{1,9}),', text)) and re.search(rb": -?(Infinity|NaN)", text):
        return f"is a plan of version {int(old[1])} with numbers that JSON does not have: plan it again"
    return f"is no plan: it is no JSON ({_reason(error)})"


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())


def _told(text: bytes, error: Exception) -> str:
    """Where, what was expected, and what is there; msgspec says `Expected `int`, got `str` - at `$.machine.name``."""
    message, _, place = _reason(error).rpartition(" - at ")
    message, place = (message, place) if message else (place, "")
    if len(message) > 200:
        message = f"{message[:200]}…"
    place = place.strip("`").removeprefix("$").removeprefix(".")
    value = _found(text, place)
    said = message[:1].lower() + message[1:].replace("`", "")
    return f"{place or 'the plan'}: {said}{f', there is {value}' if value else ''}"


def _found(text: bytes, place: str) -> str:
    """What stands at `machine.levels[0].axes`, shortened; "" where the place names no single one."""
    if not place or "[...]" in place:
        return ""
    item: Any = msgspec.json.decode(text)
    try:
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
            item = item[name] if name else item[int(index)]
    except (LookupError, TypeError):
        return ""
    shown = repr(item)
    return shown if len(shown) <= 60 else f"{shown[:56]}…{shown[-1]}"
