"""Which step touches which storage of one device, as columns of numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.program.table import NOBODY, Integers

Flags = NDArray[np.bool_]


class Touches(NamedTuple):
    """Which step touches which storage of one device, as arrays. Lists are in compressed rows.

    step_starts, of_step: the storages of each step, ascending: [steps + 1] rows, the last is empty. starts, steps: the
    steps that touch each storage, ascending, -1 for what is there at the beginning. bytes, movable, lasts: of each
    storage. old, new: of each storage of state the other one of its pair, where it is the new or the old one, else
    NOBODY. extra: bytes of each step beside the storages, [steps + 1].
    """

    step_starts: Integers
    of_step: Integers
    starts: Integers
    steps: Integers
    bytes: Integers
    movable: Flags
    lasts: Flags
    old: Integers
    new: Integers
    extra: Integers

    @property
    def born(self) -> Integers:
        born: Integers = self.steps[self.starts[:-1]]
        return born

    @property
    def last(self) -> Integers:
        last: Integers = self.steps[self.starts[1:] - 1]
        return last

    @property
    def working(self) -> Integers:
        """Bytes that each step needs whatever is elsewhere: what it touches, and its own beside that; [steps + 1]."""
        steps = np.repeat(np.arange(len(self.extra)), np.diff(self.step_starts))
        touched = np.bincount(steps, self.bytes[self.of_step], len(self.extra))
        working: Integers = touched.astype(np.int64) + self.extra
        return working

    @property
    def used(self) -> Integers:
        """Bytes in use in each step if nothing is moved: [steps + 1]."""
        end = len(self.extra) - 1
        change = np.zeros(end + 2, np.int64)
        np.add.at(change, np.maximum(self.born, 0), self.bytes)
        np.add.at(change, np.where(self.lasts, end, self.last) + 1, -self.bytes)
        used: Integers = np.cumsum(change)[:-1] + self.extra
        return used

    @property
    def state(self) -> Flags:
        """For each storage: is it one of a pair of state?"""
        state: Flags = (self.old != NOBODY) | (self.new != NOBODY)
        return state
