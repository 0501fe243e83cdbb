"""What servers do with updates in place of adding them, and the versions of rows that such functions need.

Bösen §3.2.3. A function is a value with `columns`, `start` and `apply`; AdaRevision is the one that is built in. Rows
have version numbers, which grow with every update and travel with the rows; an update says from which version it was
computed. What the function wants to remember of a version (its column `seen`) is kept on the server, for at most
`versions` versions of each row, until no worker can compute with it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class ServerFunction(Protocol):
    """Changes rows by updates, on the servers. Workers then cannot read their own updates before the server has them.

    columns: how many further numbers the server keeps for each value. seen: which of them is remembered for each
    version that is sent out; None: none. Instances travel to the servers by pickle.
    """

    @property
    def columns(self) -> int: ...
    @property
    def seen(self) -> int | None: ...

    def start(self, values: NDArray[Any]) -> NDArray[Any]:
        """The further numbers at the beginning: [columns, rows, width] for values [rows, width]."""

    def apply(
        self, values: NDArray[Any], further: NDArray[Any], updates: NDArray[Any], seen: NDArray[Any] | None
    ) -> None:
        """Change values [n, width] and further [columns, n, width] in place by updates [n, width]; every row occurs
        once. seen: [n, width], the column `seen` as it was when the row was sent to the worker."""


@dataclass(frozen=True)
class AdaRevision:
    """Adaptive revision (McMahan and Streeter 2014, algorithm 2): AdaGrad that tolerates delays. Updates are gradients.

    step: the step size α. Further numbers: the sum of all gradients, z and z'. A gradient that was computed while
    others were applied (their sum is `missed`) gets a smaller step, and the steps that they got are revised.
    """

    step: float
    columns: int = 3
    seen: int | None = 0

    def start(self, values: NDArray[Any]) -> NDArray[Any]:
        further = np.ones((3, *values.shape), values.dtype)
        further[0] = 0.0
        return further

    def apply(
        self, values: NDArray[Any], further: NDArray[Any], updates: NDArray[Any], seen: NDArray[Any] | None
    ) -> None:
        assert seen is not None
        total, z, largest = further
        missed = total - seen
        before = self.step / np.sqrt(largest)
        z += updates * updates + 2.0 * updates * missed
        np.maximum(largest, z, out=largest)
        after = self.step / np.sqrt(largest)
        values += (before - after) * missed - after * updates
        total += updates


class Versions:
    """Version numbers of a partition's rows, and what was seen with the last few: a ring of `limit` for each row.

    A remembered version is free again when its row has changed since, and all workers have gone on so far that they
    read the row as it was after that: `staleness` + 1 clocks later.
    """

    def __init__(self, rows: int, width: int, dtype: Any, limit: int, staleness: int) -> None:
        self.numbers = np.zeros(rows, np.int32)
        self.replaced = 0  # versions that were forgotten although somebody may compute with them
        self._staleness = staleness
        self._known = np.full((rows, limit), -1, np.int32)
        self._superseded = np.full((rows, limit), np.iinfo(np.int32).max, np.int32)
        self._sums = np.zeros((rows, limit, width), dtype)

    def remember(self, ids: NDArray[Any], seen: NDArray[Any], clock: int) -> None:
        """These rows are sent now. seen: [n, width]."""
        new = ~(self._known[ids] == self.numbers[ids][:, None]).any(axis=1)
        rows = ids[new]
        if not len(rows):
            return
        free = self._free(rows, clock)
        place = np.where(free.any(axis=1), free.argmax(axis=1), self._known[rows].argmin(axis=1))
        self.replaced += int((~free.any(axis=1)).sum())
        self._known[rows, place] = self.numbers[rows]
        self._superseded[rows, place] = np.iinfo(np.int32).max
        self._sums[rows, place] = seen[new]

    def can_remember(self, ids: NDArray[Any], clock: int) -> NDArray[Any]:
        """Which rows can be sent without forgetting a version that is in use."""
        known = (self._known[ids] == self.numbers[ids][:, None]).any(axis=1)
        return np.asarray(known | self._free(ids, clock).any(axis=1))

    def seen(self, ids: NDArray[Any], versions: NDArray[Any]) -> NDArray[Any]:
        """What was seen with these versions; with a forgotten one, what was seen with the oldest that is known."""
        match = self._known[ids] == versions[:, None]
        oldest = np.where(self._known[ids] >= 0, self._known[ids], np.iinfo(np.int32).max).argmin(axis=1)
        known: NDArray[Any] = self._sums[ids, np.where(match.any(axis=1), match.argmax(axis=1), oldest)]
        return known

    def changed(self, ids: NDArray[Any], clock: int) -> None:
        """These rows have been updated."""
        current = (self._known[ids] == self.numbers[ids][:, None]) & (self._superseded[ids] > clock)
        rows, places = np.nonzero(current)
        self._superseded[ids[rows], places] = clock
        self.numbers[ids] += 1

    def _free(self, ids: NDArray[Any], clock: int) -> NDArray[Any]:
        superseded = self._superseded[ids].astype(np.int64)
        return np.asarray((self._known[ids] < 0) | (superseded + self._staleness + 1 < clock))
