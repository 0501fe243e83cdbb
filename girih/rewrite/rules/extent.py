"""Extents: sizes of tensors that are not known yet, as polynomials of symbols with integer coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

Monomial = tuple[str, ...]
"""Symbols, sorted, each as often as it is multiplied: ("g", "g") is g². () is 1."""


@dataclass(frozen=True)
class Extent:
    """Σ coefficient · monomial, sorted by monomial, without zeros; so that equal polynomials are equal."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(size: Extent | int | str) -> Extent:
        """A number, a symbol, or what is one already."""
        if isinstance(size, Extent):
            return size
        return _extent([(() if isinstance(size, int) else (size,), size if isinstance(size, int) else 1)])

    def __add__(self, other: Extent | int) -> Extent:
        return _extent([*self.terms, *Extent.of(other).terms])

    def __neg__(self) -> Extent:
        return Extent(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Extent | int) -> Extent:
        return self + -Extent.of(other)

    def __mul__(self, other: Extent | int) -> Extent:
        others = Extent.of(other).terms
        return _extent(
            (tuple(sorted(first + second)), by * times) for first, by in self.terms for second, times in others
        )

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


def _extent(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    return Extent(tuple(sorted((monomial, by) for monomial, by in total.items() if by)))
