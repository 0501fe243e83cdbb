"""Amounts with units as people write them: `24 GB`, `10 Gbit/s`, `82 TFLOP/s`, `5 us`."""

from __future__ import annotations

import re
from collections.abc import Mapping


class MachineError(ValueError):
    """A machine that cannot be read or is too small."""


_BYTES = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
}  # fmt: skip
_BITS = {"kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8}

# By the unit, case folded.
MEMORY: Mapping[str, float] = {"": 1.0, **_BYTES}
BYTES_PER_SECOND: Mapping[str, float] = {f"{unit}/s": size for unit, size in {**_BYTES, **_BITS}.items()}
SECONDS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs".casefold(): 1e-6, "ns": 1e-9}
FLOPS_PER_SECOND: Mapping[str, float] = {
    f"{prefix}{unit}": size
    for prefix, size in {"m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}.items()
    for unit in ("flop/s", "flops")
}

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([a-zA-Zµμ]*(?:/[a-zA-Z]+)?)\s*")
_BYTES_OF_MEMORY = re.compile(r"\s*([0-9]{1,24}(?:\.[0-9]{1,24})?)\s*([a-zA-Z]*)\s*")
_BITS_OR_BYTES = re.compile(r"[kKmMgGtT]b/s")  # Gb/s: some mean gigabits by it


def parse_amount(text: str, units: Mapping[str, float]) -> float | None:
    """`25 GB/s` → 25e9 by a table of units; None for what is no such amount."""
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].casefold() not in units or _BITS_OR_BYTES.fullmatch(match[2]):
        return None
    return float(match[1]) * units[match[2].casefold()]


def parse_bytes(text: str | int) -> int:
    """`600MB`, `1.5GiB`, `4096` → bytes.

    Raises:
        MachineError: for anything else.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise MachineError(f"{text} bytes are no amount of memory: expected at least 0")
        return text
    match = _BYTES_OF_MEMORY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2].casefold() not in MEMORY:
        written = repr(text) if len(repr(text)) <= 60 else f"{repr(text)[:57]}..."
        raise MachineError(f"{written} is no amount of memory: expected a number with B, KB, MB, GB, KiB, MiB or GiB")
    unit = int(MEMORY[match[2].casefold()])
    return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)


def format_bytes(count: float) -> str:
    """Decimal units: `1.5 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    if 0 < seconds < 5e-8:  # would be 0.0 µs
        return f"{seconds * 1e9:.0f} ns" if seconds >= 1e-9 else f"{seconds * 1e9:.1g} ns"
    return f"{seconds * 1e6:.1f} µs"


def format_count(count: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f}"


def counted(number: int, what: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def format_gap(gap: float) -> str:
    """`0 %` where proved optimal, `unknown` where there is no bound."""
    if gap == 0:
        return "0 % (proved)"
    return f"{gap * 100:.2f} %" if gap != float("inf") else "unknown"
