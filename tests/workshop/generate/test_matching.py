"""Matching modulo classes, held against a matcher of a dozen lines that tries every term of every class."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from girih.workshop.generate.candidates import Candidate, Pruner
from girih.workshop.generate.matching import BIND, NONE, SAME, Pattern, Sides, side, unite, unite_all
from girih.workshop.generate.table import TermTable
from girih.workshop.generate.vocabulary import CONSTANTS, inputs, templates

NAMES = ("mm", "add", "t", "relu")
INPUTS = "a[3, 3], b[3, 3], c[3, 3]"
MM, ADD, T, RELU = range(4)
TAKES = np.zeros(3, np.int64)


def test_what_only_compares_comes_before_what_is_bound() -> None:
    """a·b + a·c: the sum's parts are bound, then the second a is compared with the first."""
    found = side((ADD, (MM, 0, 1), (MM, 0, 2)), (MM, 0, (ADD, 1, 2)), [False] * 3, TAKES)
    kinds = [int(item[0]) for item in found.match]
    assert found.template == ADD
    assert kinds.count(BIND) == 2
    assert kinds.count(SAME) == 1
    assert [tuple(item[:1]) for item in found.build] == [(ADD,), (MM,)]


def test_a_part_that_is_there_twice_is_matched_and_made_once() -> None:
    square: Pattern = (MM, 0, 0)
    found = side((ADD, square, square), (MM, square, square), [False] * 3, TAKES)
    assert [int(item[0]) for item in found.match].count(BIND) == 1
    assert len(found.build) == 1


def test_a_side_that_is_an_input_is_a_register() -> None:
    found = side((T, (T, 0, None), None), 0, [False] * 3, TAKES)
    assert len(found.build) == 0
    assert found.target == 2  # behind the term itself and its operand
    assert side((MM, 0, 1), 1, [False, True], TAKES).target == 2
    assert side((MM, 0, 0), 1, [False, True], TAKES).target == NONE - 1 - 1  # a constant that was not read


def test_sides_are_found_by_their_outermost_operator() -> None:
    every = [side((T, (T, 0, None), None), 0, [False], TAKES), side((MM, 0, 0), 0, [False], TAKES)]
    found = Sides.of(every, 3)
    assert found.of_template.tolist() == [[0, 1], [1, 1], [1, 2]]
    assert (found.match_at[1], found.match_at[2]) == (len(every[1].match), len(found.match))


def test_what_is_settled_stays_on_top() -> None:
    parent = np.arange(6)  # four candidates; then what is false, what is true
    unite(parent, 0, 1)
    unite_all(parent, np.array([1, 2]), 5)
    unite(parent, 0, 4)  # true stays true
    assert [_root(parent, item) for item in range(6)] == [5, 5, 5, 3, 4, 5]


def _root(parent: np.ndarray, item: int) -> int:
    while parent[item] != item:
        item = int(parent[item])
    return item


def test_terms_are_members_of_their_classes_by_operator() -> None:
    pruner, levels = _table(2)
    terms = pruner.terms
    assert len(terms.template) == sum(map(len, levels))
    members = terms.members[terms.member_at[0] : terms.member_at[1]]
    assert all(terms.classes[member] == 0 for member in members)
    assert (np.diff(terms.template[members]) >= 0).all()  # so that the wanted ones are side by side


# ------------------------------------------------------------------------------------------------ all matches

RULES: dict[str, tuple[Pattern, Pattern]] = {
    "twice": ((T, (T, 0, None), None), 0),
    "twice relu": ((RELU, (RELU, 0, None), None), (RELU, 0, None)),
    "associative": ((MM, (MM, 0, 1), 2), (MM, 0, (MM, 1, 2))),
    "transposed": ((T, (MM, 0, 1), None), (MM, (T, 1, None), (T, 0, None))),
    "sum of sums": ((ADD, 0, (ADD, 1, 2)), (ADD, 1, (ADD, 0, 2))),
    "factor": ((ADD, (MM, 0, 1), (MM, 0, 2)), (MM, 0, (ADD, 1, 2))),
    "relu of t": ((T, (RELU, 0, None), None), (RELU, (T, 0, None), None)),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", list(RULES))
def test_each_match_is_found(name: str, size: int) -> None:
    """What one rule connects, with all terms of the levels below known as members of their classes."""
    pruner, levels = _table(size)
    rule = Candidate(*RULES[name], size)
    level = levels[size - 1]
    state = pruner._state(level, size)
    before = {int(state.rows[item]) for item in np.flatnonzero(_settled(state))}
    pruner._apply([rule], state)
    compiled = {int(state.rows[item]) for item in np.flatnonzero(_settled(state))} - before
    assert compiled or size == 2
    assert compiled == set(_connected(pruner, levels, size, rule)) - before


def _settled(state: object) -> np.ndarray:
    state.flatten()  # type: ignore[attr-defined]
    return state.settled  # type: ignore[attr-defined, no-any-return]


def _table(size: int) -> tuple[Pruner, list]:
    table = TermTable(inputs(INPUTS, CONSTANTS[:0]), templates(NAMES))
    pruner = Pruner(table)
    levels = [table.extend(None, number == size) for number in range(1, size + 1)]
    for level in levels:
        pruner._enter(level)
    pruner._gather(np.ones(pruner.starts[size], bool))
    return pruner, levels


def _connected(pruner: Pruner, levels: list, size: int, rule: Candidate) -> Iterator[int]:
    """The rows of the last level that the rule connects, over others of its class, with what represents it."""
    table = pruner.table
    members: dict[int, list[tuple[int, ...]]] = {}
    numbers: dict[tuple[int, ...], tuple[int, int]] = {}
    for place, level in enumerate(levels, 1):
        for row, (template, *read, class_) in enumerate(
            zip(level.template, level.first, level.second, level.classes, strict=True)
        ):
            if class_ == NONE:
                continue
            term = (int(template), *(int(item) for item in read if item != NONE))
            for one in {term, (term[0], *term[:0:-1])} if template in table.commuting else {term}:
                numbers[one] = (int(class_), row if place == size else NONE)
                if place < size:
                    members.setdefault(int(class_), []).append(one)

    def bound(pattern: Pattern | None, class_: int, known: dict[int, int]) -> Iterator[dict[int, int]]:
        if isinstance(pattern, int):
            if known.get(pattern, class_) == class_:
                yield {**known, pattern: class_}
            return
        assert pattern is not None
        for term in members.get(class_, []):
            if term[0] == pattern[0]:
                yield from operands(pattern, term, known)

    def operands(pattern: tuple, term: tuple[int, ...], known: dict[int, int]) -> Iterator[dict[int, int]]:
        edge = [known]
        for part, class_ in zip((one for one in pattern[1:] if one is not None), term[1:], strict=True):
            edge = [new for old in edge for new in bound(part, class_, old)]
        yield from edge

    def made(pattern: Pattern, known: dict[int, int]) -> tuple[int, int] | None:
        """(class, row in the last level) of what a side makes."""
        if isinstance(pattern, int):
            return known[pattern], NONE
        parts = [made(one, known) for one in pattern[1:] if one is not None]
        if any(part is None or part[1] != NONE for part in parts):
            return None  # of a part that is not known to be equal
        return numbers.get((pattern[0], *(part[0] for part in parts if part is not None)))

    edges: dict[int, set[int]] = {}
    for (term, (class_, row)), (one, other) in product(
        numbers.items(), ((rule.source, rule.target), (rule.target, rule.source))
    ):
        if row == NONE or isinstance(one, int) or one[0] != term[0]:
            continue
        for known in operands(one, term, {}):
            found = made(other, known)
            if found is not None and found[0] == class_:
                edges.setdefault(row, set()).add(found[1])
                edges.setdefault(found[1], set()).add(row)
    last = levels[-1]
    represents = {
        row
        for row, class_ in enumerate(last.classes)
        if class_ != NONE
        and (last.template[row], last.first[row], last.second[row])
        == (table.template[class_], table.first[class_], table.second[class_])
    }
    edge, reached = [NONE, *represents], set[int]()
    while edge:
        item = edge.pop()
        new = edges.get(item, set()) - reached - {NONE}
        reached |= new
        edge.extend(new)
    yield from reached - represents
