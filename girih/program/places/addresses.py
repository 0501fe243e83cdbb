"""Addresses: the column of a Program that says where everything lies on a device, by the names that a worker knows:
buffers, and positions of steps.

For each step the table lists bytes that nothing occupies: the largest stretches, and those in which the step's scratch
memory was placed. `girih.program.passes.Address` adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Addresses:
    """Where everything of a device lies in its arena, in bytes from the beginning.

    bytes: of the arena. bound: the most that is alive at one time, sizes rounded up; no arena is smaller. peak: the
    same with sizes as they are, exact, but for scratch that is a bound. It may be more than the peak of a run without
    an arena (`memory_use`), which copies nothing of what `copied` names. places: by the buffer with which a storage is
    made, its first byte and its bytes. scratch: of each step that is no free, the runs in which a kernel's requests may
    lie: [steps]. copied: old and new state of which the new is copied to where the old lay, when all steps are done, in
    the order of the copies.
    """

    bytes: int
    bound: int
    peak: int
    places: Mapping[str, tuple[int, int]]
    scratch: tuple[Runs, ...]
    copied: tuple[tuple[str, str], ...]
