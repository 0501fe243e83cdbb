"""Rules applied to millions of terms: matching modulo the classes, in compiled loops.

A term's operands are classes, and a class is all of its terms that are known to be equal (an e-graph, as egg's): where
a rule has an operator within an operator, every such term of the class is tried, not the one that represents it
alone (de Moura and Bjørner, Efficient E-Matching for SMT Solvers, 2007: a program of bindings and comparisons for each
pattern, with backtracking). What the rule makes of a term is looked up among all terms, from its parts up.

Cost: for each term the patterns whose outermost operator it has; a pattern costs nothing but a test of bits where a
class has no term of an operator. Of all terms 12 bytes are kept, twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba

Ids = NDArray[np.int64]
Pattern: TypeAlias = "int | tuple[int, Pattern, Pattern | None]"
"""A class that is an input, or a template with one or two operands."""
NONE = -1
BITS = 28
"""Bits of a class's number in a code."""
CONSTANT, FREE, SAME, BIND = range(4)
MOST_REGISTERS = 32


@numba.njit(cache=True)
def _code(template: int, first: int, second: int) -> int:  # pragma: no cover - compiled
    """A node as one positive number: its template and its operands' numbers (second: -1 if it has one operand)."""
    return ((template + 1) << (2 * BITS)) | (first << BITS) | (second + 1)


@numba.njit(cache=True)
def _slot(keys: Ids, code: int) -> Any:  # pragma: no cover - compiled
    """Where a code is, or would be (open addressing)."""
    mask = len(keys) - 1
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64(mixed >> np.uint64(24)) & mask
    while keys[place] != 0 and keys[place] != code:
        place = (place + 1) & mask
    return place


@numba.njit(cache=True)
def _insert(
    keys: Ids, numbers: NDArray[np.int32], start: int, template: Ids, first: Ids, second: Ids
) -> None:  # pragma: no cover - compiled
    """Number nodes from `start` on, in their order; a node that has a number keeps it."""
    for row in range(len(template)):
        place = _slot(keys, _code(template[row], first[row], second[row]))
        if keys[place] == 0:
            keys[place] = _code(template[row], first[row], second[row])
            numbers[place] = start + row


@numba.njit(cache=True)
def _number(
    keys: Ids, numbers: NDArray[np.int32], commuting: NDArray[np.bool_], template: int, first: int, second: int
) -> int:  # pragma: no cover - compiled
    """A node's number, or NONE; operands that may change places ascend."""
    if commuting[template] and first > second:
        first, second = second, first
    place = _slot(keys, _code(template, first, second))
    return numbers[place] if keys[place] != 0 else NONE


@dataclass(frozen=True)
class Side:
    """One direction of a rule. match: (what, register, …) for each part of the left side, from the outside in. build:
    (template, first, second) for each operator of the right side, from the inside out; below -1: the class -2 - it.
    target: the register of the right side, where it is no operator."""

    template: int
    match: NDArray[np.int32]
    build: NDArray[np.int32]
    target: int


def side(source: tuple[int, Pattern, Pattern | None], target: Pattern, constant: Sequence[bool], takes: Ids) -> Side:
    """takes: by input, the row of kinds that a variable may be."""
    registers: dict[Pattern, int] = {}
    match: list[tuple[int, int, int, int, int]] = []
    waiting: list[tuple[int, Pattern]] = []
    count = 1

    def operands(pattern: tuple[int, Pattern, Pattern | None]) -> tuple[int, int]:
        nonlocal count
        places = []
        for one in pattern[1:]:
            if one is None:
                places.append(NONE)
                continue
            places.append(count)
            waiting.append((count, one))
            count += 1
        return places[0], places[1]

    operands(source)
    while waiting:
        # what only compares comes first, so that little is bound in vain
        waiting.sort(key=lambda item: (isinstance(item[1], tuple) and item[1] not in registers, item[0]))
        register, pattern = waiting.pop(0)
        if pattern in registers:  # a part that is there twice is one class
            match.append((SAME, register, registers[pattern], 0, 0))
            continue
        registers[pattern] = register
        if isinstance(pattern, tuple):
            match.append((BIND, register, pattern[0], *operands(pattern)))
        elif constant[pattern]:
            match.append((CONSTANT, register, pattern, 0, 0))
        else:
            match.append((FREE, register, int(takes[pattern]), 0, 0))
    build: list[tuple[int, int, int, int]] = []

    def built(pattern: Pattern | None) -> int:
        nonlocal count
        if pattern is None:
            return NONE
        if pattern in registers:
            return registers[pattern]
        if isinstance(pattern, int):
            return NONE - 1 - pattern
        first, second = built(pattern[1]), built(pattern[2])
        registers[pattern] = count
        count += 1
        build.append((pattern[0], first, second, count - 1))
        return count - 1

    last = built(target)
    assert count <= MOST_REGISTERS
    return Side(
        source[0],
        np.array(match, np.int32).reshape(-1, 5),
        np.array(build, np.int32).reshape(-1, 4),
        last,
    )


@dataclass(frozen=True)
class Sides:
    """Directions of rules in a row, by their outermost operator."""

    of_template: NDArray[np.int32]
    """(first, behind the last) side of each template."""
    match: NDArray[np.int32]
    match_at: NDArray[np.int32]
    build: NDArray[np.int32]
    build_at: NDArray[np.int32]
    target: NDArray[np.int32]

    @classmethod
    def of(cls, sides: Sequence[Side], templates: int) -> Sides:
        ordered = sorted(sides, key=lambda item: item.template)
        starts = np.searchsorted([item.template for item in ordered], np.arange(templates + 1))
        return cls(
            np.stack((starts[:-1], starts[1:]), axis=1).astype(np.int32),
            np.concatenate([np.zeros((0, 5), np.int32), *(item.match for item in ordered)]),
            np.cumsum([0, *(len(item.match) for item in ordered)]).astype(np.int32),
            np.concatenate([np.zeros((0, 4), np.int32), *(item.build for item in ordered)]),
            np.cumsum([0, *(len(item.build) for item in ordered)]).astype(np.int32),
            np.array([item.target for item in ordered], np.int32),
        )


class Terms:
    """All terms that are known, and the classes to which they belong; -1 for those of which it is not known that they
    are equal to what represents their class."""

    def __init__(self, commuting: NDArray[np.bool_]) -> None:
        self.commuting = commuting
        self.keys, self.numbers = np.zeros(1, np.int64), np.zeros(1, np.int32)
        self.template = np.zeros(0, np.int8)
        self.first, self.second, self.classes = (np.zeros(0, np.int32) for _ in range(3))
        self.member_at, self.members = np.zeros(1, np.int32), np.zeros(0, np.int32)
        self.has: Ids = np.zeros(0, np.int64)
        """For each class a bit for each template of which it has a term."""

    def enter(self, template: Ids, first: Ids, second: Ids, classes: Ids) -> None:
        """Adds the terms of a level."""
        start = len(self.template)
        wanted = 1 << int(1.5 * (start + len(template))).bit_length()
        if wanted > len(self.keys):
            self.keys, self.numbers = np.zeros(wanted, np.int64), np.zeros(wanted, np.int32)
            _insert(self.keys, self.numbers, 0, self.template, self.first, self.second)
        _insert(self.keys, self.numbers, start, template, first, second)
        for name, more in (("template", template), ("first", first), ("second", second), ("classes", classes)):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, more), dtype=old.dtype, casting="unsafe"))

    def gather(self, known: NDArray[np.bool_], classes: int) -> None:
        """Makes terms members of their classes. known: which of the first ones. classes: how many there are."""
        numbers = np.flatnonzero(known & (self.classes[: len(known)] != NONE))
        own, ways = self.classes[numbers], self.template[numbers]
        order = np.lexsort((ways, own))
        self.members = numbers[order].astype(np.int32)
        self.member_at = np.searchsorted(own[order], np.arange(classes + 1)).astype(np.int32)
        self.has = np.zeros(classes, np.int64)
        np.bitwise_or.at(self.has, own, np.int64(1) << ways.astype(np.int64))


@numba.njit(cache=True)
def root(parent: Ids, item: int) -> int:  # pragma: no cover - compiled
    """The root of the item's set (union-find); paths are halved on the way."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@numba.njit(cache=True)
def unite(parent: Ids, one: int, other: int) -> None:  # pragma: no cover - compiled
    """The greater root becomes the parent, so that what is settled stays on top."""
    first, second = root(parent, one), root(parent, other)
    if min(first, second) < len(parent) - 2:
        parent[min(first, second)] = max(first, second)


@numba.njit(cache=True)
def unite_all(parent: Ids, items: Ids, other: int) -> None:  # pragma: no cover - compiled
    """Unite the sets of all items with the other's."""
    for item in items:
        unite(parent, item, other)


@numba.njit(cache=True)
def unite_each(parent: Ids, other: Ids) -> None:  # pragma: no cover - compiled
    """What is united in another copy of the parents, too."""
    for item in range(len(parent)):
        unite(parent, item, other[item])


@numba.njit(cache=True, nogil=True)
def apply(  # type: ignore[no-untyped-def]
    rows, template, first, second, classes, parent, place, start, true,
    of_template, match, match_at, build, build_at, targets,
    keys, numbers, commuting, term_class, member_at, members, m_template, m_first, m_second, has, kinds, takes,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Connects candidates with what rules make of them.

    rows: of the candidates. template, first, second, classes, parent: by candidate; behind the parents of the
    candidates stand those of what is false and of what is true (`true`). place: the candidate that a term of the level
    is; below zero: none. start: the number of the level's first term. The rest is `Sides`, and `Terms`.
    """
    registers = np.zeros(MOST_REGISTERS, np.int64)
    at = np.zeros(MOST_REGISTERS, np.int64)
    turned = np.zeros(MOST_REGISTERS, np.int64)
    for row in rows:
        kind = template[row]
        for side in range(of_template[kind, 0], of_template[kind, 1]):
            if root(parent, row) >= true - 1:
                break
            begin, end = match_at[side], match_at[side + 1]
            for order in range(2 if commuting[kind] and first[row] != second[row] else 1):
                registers[1], registers[2] = (first[row], second[row]) if order == 0 else (second[row], first[row])
                if second[row] == NONE:
                    registers[1] = first[row]
                step, forward = begin, True
                while step >= begin:
                    if step == end:
                        _connect(
                            row, registers, build, build_at[side], build_at[side + 1], targets[side],
                            classes, parent, place, start, true, keys, numbers, commuting, term_class,
                        )  # fmt: skip
                        step, forward = step - 1, False
                        continue
                    what, here = match[step, 0], registers[match[step, 1]]
                    good = False
                    if what != BIND:
                        if forward:
                            if what == CONSTANT:
                                good = here == match[step, 2]
                            elif what == SAME:
                                good = here == registers[match[step, 2]]
                            else:
                                good = takes[match[step, 2], kinds[here]]
                    else:
                        wanted, depth = match[step, 2], step - begin
                        one, other = match[step, 3], match[step, 4]
                        if forward:
                            at[depth], turned[depth] = member_at[here], 0
                            if not (has[here] >> wanted) & 1:
                                at[depth] = member_at[here + 1]
                        while at[depth] < member_at[here + 1]:
                            member = members[at[depth]]
                            if m_template[member] != wanted:
                                at[depth] += 1 if m_template[member] < wanted else len(members)
                                continue
                            left, right = m_first[member], m_second[member]
                            if turned[depth]:
                                left, right = right, left
                                turned[depth] = 0
                                at[depth] += 1
                            elif commuting[wanted] and left != right:
                                turned[depth] = 1
                            else:
                                at[depth] += 1
                            registers[one] = left
                            if other != NONE:
                                registers[other] = right
                            good = True
                            break
                    step, forward = (step + 1, True) if good else (step - 1, False)


@numba.njit(cache=True)
def _connect(  # type: ignore[no-untyped-def]
    row, registers, build, begin, end, target,
    classes, parent, place, start, true, keys, numbers, commuting, term_class,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Looks up what a rule makes of a candidate, and unites them, if both are of one class."""
    if begin == end:
        found = registers[target] if target >= 0 else NONE - 1 - target
        if found == classes[row]:
            unite(parent, row, true)
        return
    for step in range(begin, end):
        one, other = build[step, 1], build[step, 2]
        left = registers[one] if one >= 0 else NONE - 1 - one
        right = other if other == NONE else registers[other] if other >= 0 else NONE - 1 - other
        number = _number(keys, numbers, commuting, build[step, 0], left, right)
        if number == NONE or term_class[number] == NONE:
            return
        if step < end - 1:
            if number >= start and (
                number >= start + len(place)
                or place[number - start] < NONE
                or (place[number - start] >= 0 and root(parent, place[number - start]) != true)
            ):
                return
            registers[build[step, 3]] = term_class[number]
            continue
        if term_class[number] != classes[row]:
            return
        if number < start:
            unite(parent, row, true)
        elif number < start + len(place):
            if place[number - start] >= 0:
                unite(parent, row, place[number - start])
            else:
                unite(parent, row, true + 1 + place[number - start])
