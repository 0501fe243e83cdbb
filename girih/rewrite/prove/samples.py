"""Random numbers for symbols, by which what does not always hold is seen before anyone tries to prove it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from girih.rewrite.prove.terms import Facts, Guard
from girih.rewrite.rules.extent import Extent

COUNT = 512
LARGEST = 6
Because: TypeAlias = tuple[tuple[Extent, Extent], ...]
"""(factor, guard): what is taken away before the rest is seen to be >= 0."""
Numbers = Any  # an array of int64, one for each sample


class Samples:
    """The same numbers for a symbol in all of a proof. reasons, parts: what `strategy` found, by all that it looked at:
    one condition comes back in many terms."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.known: dict[tuple[str, Extent | None], Numbers] = {}
        self.reasons: dict[object, Because | None] = {}
        self.parts: dict[object, list[tuple[Extent, Extent, Extent]]] = {}

    def where(self, facts: Facts) -> Sampled:
        return Sampled(self, facts)


class Sampled:
    """Numbers for everything that facts speak of. valid: in which samples no range is empty."""

    def __init__(self, samples: Samples, facts: Facts) -> None:
        self.samples = samples
        self.facts = facts
        self.valid = np.ones(COUNT, bool)
        self.here: dict[str, Numbers] = {}
        self.known: dict[Extent, Numbers] = {}

    def of(self, extent: Extent) -> Numbers:
        """Not to be changed: the same array each time."""
        if extent not in self.known:
            self.known[extent] = self._of(extent)
        return self.known[extent]

    def _of(self, extent: Extent) -> Numbers:
        total = np.zeros(COUNT, np.int64)
        for monomial, by in extent.terms:
            part: Numbers = by
            for name in monomial:
                part = part * self._symbol(name)
            total += part
        return total

    def _symbol(self, name: str) -> Numbers:
        if name in self.here:
            return self.here[name]
        facts, samples = self.facts, self.samples
        if name in facts.floors:
            numerator, divisor = map(self.of, facts.floors[name])
            self.valid &= numerator >= 0
            numbers = numerator // np.maximum(divisor, 1)
        elif name in facts.ranges:
            size = self.of(facts.ranges[name])
            self.valid &= size > 0
            key = name, facts.ranges[name]
            if key not in samples.known:
                samples.known[key] = samples.random.integers(0, np.maximum(size, 1))
            numbers = samples.known[key]
        else:
            if (name, None) not in samples.known:
                low = facts.least.get(name, 1)
                samples.known[name, None] = samples.random.integers(low, low + LARGEST, COUNT)
            numbers = samples.known[name, None]
        self.here[name] = numbers
        return numbers

    def holds(self, guard: Guard) -> Numbers:
        sign, extent = guard
        return self.of(extent) >= 0 if sign == ">=" else self.of(extent) == 0
