"""The optimum for chains: what of a chain of stages is stored, and what is computed again, within a limit.

Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains: how to train deep
neural networks with limited memory", 2019 (arXiv:1911.13214; Rotor), §4: a dynamic programme over (first stage, last
stage, memory). Revolve (Griewank, Walther 2000) is the case of equal stages. The optimum is that among schedules that
keep what they have stored until the backward pass of its stage has used it.

For stages s to t with the input of s stored elsewhere, the first is computed with all that its backward pass needs, its
tape, or stages s to s' - 1 are computed without and the input of s' is stored; then s' to t are done, then s to s' - 1
from the start.

Where we differ: the bytes that a stage takes while it is computed are given as peaks, in place of what they are above
input and output.

Cost: O(stages³ · slots) time, O(stages² · slots) memory; 64 stages and 500 slots take half a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Chain:
    """Stages that follow each other forward, and backward in reverse.

    seconds: of the forward pass of each, [stages]; the backward pass takes the same whatever is chosen. Bytes: value of
    the input of each stage and, last, of the output of all, [stages + 1]; gradient of each of these. tape of what a
    stage's backward pass needs of its forward pass, its output included, its input not, [stages]. most: in use while a
    stage is computed, input, gradient and what else is stored apart, [3, stages]: forward without tape, forward with
    it, backward (there the gradients are included, and the tape is not).
    """

    seconds: NDArray[np.float64]
    value: Integers
    gradient: Integers
    tape: Integers
    most: Integers

    @property
    def stages(self) -> int:
        return len(self.seconds)

    def in_units(self, unit: int) -> Chain:
        """With all bytes rounded up to units."""
        parts = (-(-amount // unit) for amount in (self.value, self.gradient, self.tape, self.most))
        return Chain(self.seconds, *parts)


@dataclass(frozen=True)
class Operation:
    """A stage is computed, forward or backward. What it leaves behind follows from what is computed later."""

    stage: int
    backward: bool = False


@dataclass(frozen=True, eq=False)
class Optimum:
    """seconds: the least that forward passes take, by the first stage, the last one, and the memory in units; infinite
    where it does not suffice. first: by the same, the next stage whose input is stored, or the first stage itself: its
    tape is."""

    chain: Chain
    seconds: NDArray[np.float64]
    first: NDArray[np.int16]

    def schedule(self, units: int) -> tuple[Operation, ...]:
        """What is computed, in order, within so many units beside the input of the first stage.

        Raises:
            ValueError: they do not suffice.
        """
        if not np.isfinite(self.seconds[0, -1, units]):
            raise ValueError(f"the chain cannot be computed within {units} units")
        return tuple(self._schedule(0, self.chain.stages - 1, units))

    def _schedule(self, first: int, last: int, units: int) -> Iterator[Operation]:
        stored = int(self.first[first, last, units])
        if stored == first:
            yield Operation(first)
            if first < last:
                yield from self._schedule(first + 1, last, units - int(self.chain.tape[first]))
            yield Operation(first, backward=True)
            return
        yield from (Operation(stage) for stage in range(first, stored))
        yield from self._schedule(stored, last, units - int(self.chain.value[stored]))
        yield from self._schedule(first, stored - 1, units)


def optimum(chain: Chain, units: int) -> Optimum:
    """The optimum for every memory up to so many bytes; a chain in units has units in their place."""
    count = chain.stages
    seconds = np.full((count, count, units + 1), np.inf)
    first = np.full((count, count, units + 1), -1, np.int16)
    for length in range(count):
        for start in range(count - length):
            _solve(chain, start, start + length, seconds, first)
    return Optimum(chain, seconds, first)


def _solve(chain: Chain, start: int, last: int, seconds: NDArray[np.float64], first: NDArray[np.int16]) -> None:
    """Stages start to last, for every memory; shorter ranges are known."""
    waiting = int(chain.gradient[last + 1])
    least, chosen = seconds[start, last], first[start, last]
    need = max(waiting + int(chain.most[1, start]), int(chain.tape[start] + chain.most[2, start]))
    rest = _with(seconds[start + 1, last], need, int(chain.tape[start])) if start < last else 0.0
    least[need:] = chain.seconds[start] + rest
    chosen[need:] = start
    need = waiting + int(chain.most[0, start])
    computed = 0.0
    for stored in range(start + 1, last + 1):
        before = stored - 1
        computed += chain.seconds[before]
        if before > start:
            need = max(need, waiting + int(chain.value[before] + chain.most[0, before]))
        enough = max(need, int(chain.value[stored]))
        total = (
            computed + _with(seconds[stored, last], enough, int(chain.value[stored])) + seconds[start, before, enough:]
        )
        better = np.flatnonzero(total < least[enough:]) + enough
        least[better] = total[better - enough]
        chosen[better] = stored
    chosen[~np.isfinite(least)] = -1


def _with(seconds: NDArray[np.float64], enough: int, taken: int) -> NDArray[np.float64]:
    """The seconds for every memory from `enough` on, each with so much less of it."""
    return seconds[enough - taken : max(len(seconds) - taken, 0)] if enough < len(seconds) else seconds[:0]
