"""Numbers as people read them."""

from __future__ import annotations


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


def format_gap(gap: float) -> str:
    """`0 %` where proved optimal, `unknown` where there is no bound."""
    if gap == 0:
        return "0 % (proved)"
    return f"{gap * 100:.2f} %" if gap != float("inf") else "unknown"
