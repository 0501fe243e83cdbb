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

Cost: O(stages³ · slots) time, O(stages² · slots) memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled

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
    seconds, first = _table(chain.seconds, chain.value, chain.gradient, chain.tape, chain.most, units)
    return Optimum(chain, seconds, first)


@compiled(lambda seconds, value, gradient, tape, most, units: len(seconds) ** 3 * units)
def _table(seconds, value, gradient, tape, most, units):  # type: ignore[no-untyped-def]
    """(seconds, first) of an Optimum: [stages, stages, units + 1]."""
    stages = len(seconds)
    least = np.full((stages, stages, units + 1), np.inf)
    chosen = np.full((stages, stages, units + 1), -1, np.int16)
    for length in range(stages):
        for first in range(stages - length):
            last = first + length
            waiting = gradient[last + 1]
            need = max(waiting + most[1, first], tape[first] + most[2, first])
            for have in range(need, units + 1):
                rest = 0.0
                if first < last:
                    rest = least[first + 1, last, have - tape[first]]
                least[first, last, have] = seconds[first] + rest
                chosen[first, last, have] = first
            need = waiting + most[0, first]
            computed = 0.0
            for stored in range(first + 1, last + 1):
                computed += seconds[stored - 1]
                if stored - 1 > first:
                    need = max(need, waiting + value[stored - 1] + most[0, stored - 1])
                for have in range(max(need, value[stored]), units + 1):
                    total = computed + least[stored, last, have - value[stored]] + least[first, stored - 1, have]
                    if total < least[first, last, have]:
                        least[first, last, have] = total
                        chosen[first, last, have] = stored
            for have in range(units + 1):
                if not np.isfinite(least[first, last, have]):
                    chosen[first, last, have] = -1
    return least, chosen
