"""Extents: sizes of tensors that are not known yet, as polynomials of symbols with integer coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

Monomial = tuple[str, ...]
"""Symbols, sorted, each as often as it is multiplied: ("g", "g") is g². () is 1."""


@dataclass(frozen=True)
class Extent:
    """Σ coefficient · monomial, sorted by monomial, without zeros; so that equal polynomials are equal."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        """Remembered, since proofs look extents up by the million."""
        return self._hash

    def __reduce__(self) -> tuple[type[Extent], tuple[tuple[tuple[Monomial, int], ...]]]:
        """Without what is remembered: in another process strings have other hashes."""
        return Extent, (self.terms,)

    @staticmethod
    def of(size: Extent | int | str) -> Extent:
        """A number, a symbol, or what is one already."""
        return size if isinstance(size, Extent) else _of(size)

    def __add__(self, other: Extent | int) -> Extent:
        return self._plus(Extent.of(other), 1)

    def __sub__(self, other: Extent | int) -> Extent:
        return self._plus(Extent.of(other), -1)

    def _plus(self, other: Extent, times: int) -> Extent:
        if not other.terms:
            return self
        total = dict(self.terms)
        for monomial, by in other.terms:
            if coefficient := total.get(monomial, 0) + by * times:
                total[monomial] = coefficient
            else:
                del total[monomial]
        return Extent(tuple(sorted(total.items())))

    def __neg__(self) -> Extent:
        return self * -1

    def __mul__(self, other: Extent | int) -> Extent:
        others = Extent.of(other).terms
        if len(others) == 1 and not others[0][0]:
            by = others[0][1]
            return self if by == 1 else Extent(tuple([(monomial, times * by) for monomial, times in self.terms]))
        total: dict[Monomial, int] = {}
        for first, by in self.terms:
            for second, times in others:
                monomial = tuple(sorted(first + second)) if first and second else first or second
                total[monomial] = total.get(monomial, 0) + by * times
        return Extent(tuple(sorted([item for item in total.items() if item[1]])))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Extent:
        return Extent.of(other) - self

    @property
    def number(self) -> int | None:
        """Its value, if there is no symbol in it."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def value(self, sizes: Mapping[str, int]) -> int:
        """With numbers for the symbols. Raises KeyError for a symbol that has none."""
        return sum(coefficient * prod(sizes[name] for name in monomial) for monomial, coefficient in self.terms)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in sorted(self.terms, key=lambda term: (-len(term[0]), term[0])):
            factors = "*".join([*([str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []), *monomial])
            text += f" {'-' if coefficient < 0 else '+'} {factors}"
        return f"-{text[3:]}" if text.startswith(" - ") else text[3:]


@lru_cache(maxsize=65536)
def _of(size: int | str) -> Extent:
    """The same one for the same number or symbol."""
    monomial: Monomial = (size,) if isinstance(size, str) else ()
    coefficient = 1 if isinstance(size, str) else size
    return Extent(((monomial, coefficient),) if coefficient else ())
