"""Colours of devices: told apart by people who see colours differently, neighbours in a mesh alike.

Up to 9 devices have the colours of Paul Tol's scheme `muted` (SRON/EPS/TN/09-002, 2021), ordered from cool to warm so
that the halves of a mesh are a cool and a warm half; more devices have steps of his `smooth rainbow`.
"""

from __future__ import annotations

MUTED = ("#4b4ba8", "#6fb7dd", "#3f9f90", "#1f7a45", "#d3be62", "#9a9633", "#cc6677", "#882f5f", "#aa4499")
FEW = {
    1: (0,),
    2: (0, 6),
    3: (0, 2, 6),
    4: (0, 1, 4, 6),
    5: (0, 1, 2, 4, 6),
    6: (0, 1, 2, 4, 6, 7),
    7: (0, 1, 2, 3, 4, 6, 7),
    8: (0, 1, 2, 3, 4, 5, 6, 7),
    9: tuple(range(9)),
}
RAINBOW = ("#6f4c9b", "#5568b8", "#4e8ac0", "#529fbe", "#60aab0", "#72b28a", "#94bd69", "#bebc48", "#d9ac3c",
           "#e49a36", "#e67d30", "#df5527", "#d1321f", "#a52c1b", "#6d2617")  # fmt: skip


def device_colours(count: int) -> tuple[str, ...]:
    """One colour for each device."""
    if count in FEW:
        return tuple(MUTED[number] for number in FEW[count])
    return tuple(_between(position * (len(RAINBOW) - 1) / (count - 1)) for position in range(count))


def _between(position: float) -> str:
    low = min(int(position), len(RAINBOW) - 2)
    share = position - low
    first, second = _numbers(RAINBOW[low]), _numbers(RAINBOW[low + 1])
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(first, second, strict=True))


def _numbers(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
