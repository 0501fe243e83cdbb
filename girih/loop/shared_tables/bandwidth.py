"""Managed communication: how much may be sent between clocks, and what first.

Bösen (Wei 2019, dissertation, §3.2.1 and §3.2.2). Implemented: the leaky bucket of each link, sends whenever it is
empty, no larger than the queue; back-off while messages stay without acknowledgement; the four priorities. A row's
importance is the sum of its values' |δ|, or |δ / a| (|δ| where a is 0 or not cached). Where we differ:
on servers it is added up as updates arrive, so that two that cancel count. Cost: O(rows that changed) for each send.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.loop.shared_tables.options import Priority


@dataclass
class Bucket:
    """Leaks `rate` bytes per second; something may be sent when it is empty. All sends pour into it."""

    rate: float
    level: float = 0.0
    last: float = 0.0

    def empty(self, now: float) -> bool:
        self._leak(now)
        return self.level <= 0.0

    def pour(self, count: int, now: float) -> None:
        self._leak(now)
        self.level += count

    def seconds_to_empty(self, now: float) -> float:
        self._leak(now)
        return self.level / self.rate if self.rate > 0 else float("inf")

    def _leak(self, now: float) -> None:
        self.level = max(0.0, self.level - self.rate * max(0.0, now - self.last))
        self.last = max(self.last, now)


@dataclass
class Link:
    """One direction of one worker's line to one server: its bucket, and what was not acknowledged yet.

    silence: seconds. A message that waits longer for its acknowledgement shows that the network is overused: nothing
    more is sent between clocks until none waits so long.
    """

    bucket: Bucket
    silence: float
    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    refusals: int = 0

    def sent(self, sequence: int, count: int, now: float, awaited: bool) -> None:
        self.bucket.pour(count, now)
        if awaited:
            self.waiting.append((sequence, now))

    def acknowledged(self, sequence: int) -> None:
        while self.waiting and self.waiting[0][0] <= sequence:
            self.waiting.popleft()

    def free(self, now: float) -> bool:
        """Whether something may be sent now that need not be."""
        if self.waiting and now - self.waiting[0][1] > self.silence:
            self.refusals += 1
            return False
        return self.bucket.empty(now)


def first(
    priority: Priority,
    limit: int,
    importance: NDArray[Any],
    generator: np.random.Generator,
    cursor: int,
) -> NDArray[np.int64]:
    """Which of the rows that changed are sent now: at most `limit` positions.

    importance: of each row, [rows], by "absolute" or "relative". cursor: where the walk of round robin goes on.
    """
    count = len(importance)
    if count <= limit:
        return np.arange(count)
    if priority == "random":
        return generator.choice(count, limit, replace=False)
    if priority == "round-robin":
        return (cursor + np.arange(limit)) % count
    return np.argpartition(importance, count - limit)[count - limit :]
