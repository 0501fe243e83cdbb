"""From classes of equal terms to rules: pairs of equal graphs, without what others imply (TASO §2.3 step 2, §2.5).

A term and the term that represents its class are a candidate. Candidates are pruned in TASO's order, and once more:
1. by renaming of inputs: of those that differ by the names of alike inputs, the one that reads them in order is kept;
2. by common subgraphs: two sides that share an operator, where rules of fewer operators say that they are equal;
3. by what the kept rules imply: rules applied to whole terms connect the terms of a class with one another, and at last
   with the one that represents it. The first term that is not connected becomes a rule; the most general come first.
Why 3 is sound: what a rule makes of a term is looked up in the table. Its parts have fewer operators than the term, so
they are equal to the representatives of their classes by induction; so it is the same term as the one that is found.

Cost: for each rule one pass over the candidates of its operator that are not connected yet, in arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import perm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba
from girih.ops.catalogue import catalogue
from girih.rewrite.generate.table import NONE, Ids, Level, Observer, Table
from girih.rewrite.generate.vocabulary import Kind, application, kind_of
from girih.rewrite.rules.rule import Expression, Variable
from girih.rewrite.rules.vocabulary import SPLIT, operator_named

Pattern: TypeAlias = "int | tuple[int, Pattern, Pattern | None]"
"""A class that is an input, or a template with one or two operands."""
Bound: TypeAlias = "tuple[Ids, dict[int, Ids]]"
"""Rows, and for each variable the classes that it is in each of them."""
Answer: TypeAlias = "Callable[[], bool]"
"""Waits until it is known whether a candidate is to be kept."""
Judge: TypeAlias = "Callable[[Candidate], Answer | None]"
"""None: it is false, as is seen at once."""
BITS = 28
REFRESH = 64
"""After how many rules it is looked again which classes are left."""
Saved: TypeAlias = "tuple[Ids, NDArray[np.bool_]]"


@dataclass(frozen=True)
class Candidate:
    """Two terms that are equal on the fingerprint's tensors; source has the more operators, or comes later."""

    source: Pattern
    target: Pattern
    size: int
    row: int = -1
    """Of the source in its level."""


@dataclass
class Counts:
    """Of the candidates that are left after each stage of pruning, for terms of one size (TASO's Table 2.3). terms:
    that were looked at; initial: pairs of equal graphs, under all names of inputs; renamed, unshared, unimplied: after
    each stage; false: those that were equal on the fingerprint's tensors alone."""

    size: int
    terms: int = 0
    initial: int = 0
    renamed: int = 0
    unshared: int = 0
    unimplied: int = 0
    false: int = 0


@dataclass(frozen=True)
class _Guess:
    """A candidate that is taken for true. place: of what comes after it; kept: how many rules there were before it;
    before: what was implied then (None: nothing was applied, or it is known to be true)."""

    rule: Candidate
    answer: Answer | None
    place: int
    kept: int
    before: Saved | None


class Pruner:
    """Goes through the levels of a table, and keeps what nothing kept implies."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.kept: list[Candidate] = []
        self.counts: list[Counts] = []
        self.codes: Ids = np.zeros(0, np.int64)
        """Of all terms, sorted; with their classes and numbers in the order of the table."""
        self.classes: Ids = np.zeros(0, np.int64)
        self.numbers: Ids = np.zeros(0, np.int64)
        self.starts = [0, 0]
        """The number of the first term of each size."""

    def prune(
        self, level: Level, size: int, judge: Judge, ahead: int = 1, observer: Observer | None = None
    ) -> Iterator[Candidate]:
        """The rules of one size, in order; each is applied before the next is looked for, and what is false is not.

        ahead: how many are looked for before the judge has to answer. They are taken for true; where one was not,
        everything is as it was before it, and what came after it is looked for again. So the rules are the same
        however many there are, and each is judged as often. observer: hears of each before it is judged; what it raises
        ends the search.
        """
        self._enter(level)
        state = self._state(level, size)
        in_order = level.canonical[state.rows] & self._varies(level, state.rows)
        counts = Counts(size, level.looked_at)
        self.counts.append(counts)
        counts.initial = self._with_names(level, state.rows[in_order])
        counts.renamed = int(in_order.sum())
        for rule in self._exchanges() if size == 1 else ():
            if self._is_true(judge(rule)):
                self.kept.append(rule)
                yield rule
        for number, rule in enumerate(self.kept):
            if observer is not None:
                observer(f"applying {len(self.kept)} rules to terms of {size} operators", number / len(self.kept))
            self._apply(rule, state)
        state.flatten()
        shared = self._shares(level, state.rows[in_order & state.implied])
        counts.unshared = counts.renamed - int(shared.sum())
        state.forget_implied()
        numbers, place = self._preferred(level, state.rows), 0
        waiting: deque[_Guess] = deque()
        try:
            while place < len(numbers) or waiting:
                if place < len(numbers) and sum(guess.before is not None for guess in waiting) < ahead:
                    number, place = numbers[place], place + 1
                    if state.is_implied(number):
                        continue
                    if observer is not None:
                        observer(f"proving: {len(self.kept)} rules, {size} operators", place / len(numbers))
                    waiting.append(self._guess(level, number, place, state, judge, ahead > 1))
                    if ahead > 1:
                        continue
                guess = waiting.popleft()
                if self._is_true(guess.answer):
                    yield guess.rule
                elif guess.before is not None:
                    waiting.clear()
                    place = guess.place
                    del self.kept[guess.kept :]
                    state.restore(guess.before)
                    state.ground(np.array([numbers[place - 1]]))
        finally:  # nobody asks for more: what was not answered is not known to be true
            if waiting:
                del self.kept[waiting[0].kept :]

    def _guess(self, level: Level, number: int, place: int, state: _State, judge: Judge, early: bool) -> _Guess:
        """Takes a candidate for true, and applies it; early: before the judge answers."""
        rule = self._candidate(level, int(state.rows[number]), self.counts[-1].size)
        answer = judge(rule)
        if not early:
            answer = answer if answer is not None and answer() else None
        guess = _Guess(rule, answer, place, len(self.kept), state.saved() if early and answer is not None else None)
        state.ground(np.array([number]))
        if answer is not None:
            self.kept.append(rule)
            self._apply(rule, state)
        return guess

    def _is_true(self, answer: Answer | None) -> bool:
        true = answer is not None and answer()
        counts = self.counts[-1]
        counts.unimplied, counts.false = counts.unimplied + true, counts.false + (not true)
        return true

    def minimal(self, levels: Sequence[Level]) -> tuple[Candidate, ...]:
        """The rules that nothing implies, those of more operators included: a·(b + b) = a·b + a·b has fewer operators
        than the rule of which it is a case."""
        exchanges = set(self._exchanges())
        for size in range(len(levels), 0, -1):
            mine = [rule for rule in self.kept if rule.size == size and rule not in exchanges]
            others = [rule for rule in self.kept if rule not in set(mine)]
            if not any(rule.size > size for rule in others):
                continue
            state = self._state(levels[size - 1], size)
            for rule in others:
                self._apply(rule, state)
            self.kept = others
            for rule in mine:
                if not state.is_implied(state.number_of(rule)):
                    self.kept.append(rule)
                    state.ground(np.array([state.number_of(rule)]))
                    self._apply(rule, state)
        self.kept.sort(key=lambda rule: rule.size)
        return tuple(self.kept)

    def _state(self, level: Level, size: int) -> _State:
        """The terms of a level that do not represent their class. What is of constants alone needs no rule; nor does a
        side of anything but a concatenation: f(cat(x, y)) is cat(f(x), f(y)) by the rules of f."""
        table = self.table
        represents = (
            (level.template == table.template[level.classes])
            & (level.first == table.first[level.classes])
            & (level.second == table.second[level.classes])
        )
        rows = np.flatnonzero((level.classes != NONE) & ~represents)
        state = _State(self.starts[size], len(level), rows, level)
        if size == 1:
            exchanged = np.isin(state.template, list(table.commuting)) & (
                state.template == table.template[state.classes]
            )
            exchanged &= (state.first == table.second[state.classes]) & (state.second == table.first[state.classes])
            state.ground(np.flatnonzero(exchanged))
        state.ground(np.flatnonzero(~self._varies(level, rows)))
        splits = [number for number, item in enumerate(table.templates) if item.operator == SPLIT]
        state.ground(np.flatnonzero(np.isin(state.template, splits) & (table.size[state.first] > 1)))
        return state

    def _exchanges(self) -> Iterator[Candidate]:
        """One rule for each operator whose operands may be exchanged."""
        for template in sorted(self.table.commuting):
            for names in self.table.alike.values():
                if len(names) > 1:
                    yield Candidate((template, names[1], names[0]), (template, names[0], names[1]), 1)
                    break

    def _varies(self, level: Level, rows: Ids) -> NDArray[np.bool_]:
        """Which terms read a variable: what is made of constants alone is computed, not rewritten."""
        table = self.table
        varies: NDArray[np.bool_] = np.array([bool(order) for order in table.orders])[table.order]
        second = np.where(level.second[rows] == NONE, level.first[rows], level.second[rows])
        return np.asarray(varies[level.first[rows]] | varies[second], np.bool_)

    # ------------------------------------------------------------------------------------------ terms by operands

    def _enter(self, level: Level) -> None:
        """Makes the terms of a level known."""
        start = self.starts[-1]
        self.starts.append(start + len(level))
        codes = np.concatenate((self.codes, _code(level.template, level.first, level.second)))
        order = np.argsort(codes, kind="stable")
        self.codes = codes[order]
        self.classes = np.concatenate((self.classes, level.classes))[order]
        self.numbers = np.concatenate((self.numbers, np.arange(start, start + len(level))))[order]

    def _lookup(self, template: int, first: Ids, second: Ids) -> tuple[Ids, Ids]:
        """(class, number) of these terms; class -1 for what is not in the table."""
        if template in self.table.commuting:
            first, second = np.minimum(first, second), np.maximum(first, second)
        codes = _code(np.full(len(first), template), first, second)
        place = np.minimum(np.searchsorted(self.codes, codes), max(len(self.codes) - 1, 0))
        found = self.codes[place] == codes
        return np.where(found, self.classes[place], NONE), np.where(found, self.numbers[place], NONE)

    # ------------------------------------------------------------------------------------------ counts and order

    def _with_names(self, level: Level, rows: Ids) -> int:
        """How many candidates there are with all names of alike inputs."""
        table = self.table
        orders = table._orders(level.first[rows], level.second[rows])
        total = 0
        for order, count in zip(*np.unique(orders, return_counts=True), strict=True):
            names = table.orders[int(order)]
            ways = 1
            for alike in table.alike.values():
                ways *= perm(len(alike), sum(name in alike for name in names))
            total += ways * int(count)
        return total

    def _shares(self, level: Level, rows: Ids) -> NDArray[np.bool_]:
        """Do the two sides have an operator in common?"""
        table, shared = self.table, np.zeros(len(rows), bool)
        step = 1 << 16
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            target = table.parts[level.classes[some]]
            for operand in (level.first[some], level.second[some]):
                mine = np.where((operand == NONE)[:, None], NONE, table.parts[operand])
                same = (mine[:, :, None] == target[:, None, :]) & (mine[:, :, None] != NONE)
                shared[start : start + step] |= same.any(axis=(1, 2))
        return shared

    def _preferred(self, level: Level, rows: Ids) -> list[int]:
        """Rows that read alike inputs in order: the most variables first, constants last."""
        table = self.table
        rows_ = np.flatnonzero(level.canonical[rows])
        some = rows[rows_]
        orders = table._orders(level.first[some], level.second[some])
        many = np.array([len(order) for order in table.orders])[orders]
        target = table.size[level.classes[some]]
        constant = np.array(
            [bool(item.constant) for item in table.inputs] + [False] * (len(table.size) - len(table.inputs))
        )
        has = constant[level.first[some]] | ((level.second[some] != NONE) & constant[level.second[some]])
        ordered = np.lexsort((np.arange(len(some)), target, -many, has))
        return [int(item) for item in rows_[ordered]]

    # ------------------------------------------------------------------------------------------ patterns

    def pattern(self, number: int) -> Pattern:
        """The term that represents a class."""
        table = self.table
        if table.template[number] == NONE:
            return number
        second = int(table.second[number])
        return (
            int(table.template[number]),
            self.pattern(int(table.first[number])),
            None if second == NONE else self.pattern(second),
        )

    def _candidate(self, level: Level, row: int, size: int) -> Candidate:
        second = int(level.second[row])
        source: Pattern = (
            int(level.template[row]),
            self.pattern(int(level.first[row])),
            None if second == NONE else self.pattern(second),
        )
        return Candidate(source, self.pattern(int(level.classes[row])), size, row)

    def expression(self, pattern: Pattern) -> Expression:
        """As rules write it; constants by the name of their input."""
        return self._written(pattern)[0]

    def _written(self, pattern: Pattern) -> tuple[Expression, tuple[int, ...]]:
        if isinstance(pattern, int):
            item = self.table.inputs[pattern]
            return Variable(item.name), item.shape
        template, *operands = pattern
        parts = [self._written(operand) for operand in operands if operand is not None]
        way = self.table.templates[template]
        term = way.term([part for part, _ in parts], [shape for _, shape in parts])
        return term, self._shape(pattern)

    def _shape(self, pattern: Pattern) -> tuple[int, ...]:
        def kind(item: Pattern) -> Kind:
            if isinstance(item, int):
                return kind_of(self.table.inputs[item].shape)
            template, *operands = item
            found = application(self.table.templates[template], tuple(kind(one) for one in operands if one is not None))
            assert found is not None
            return found[1]

        return kind(pattern).shape

    # ------------------------------------------------------------------------------------------ applying rules

    def _apply(self, rule: Candidate, state: _State) -> None:
        """Connects what the rule, from either side, says is equal: candidates, and what represents their classes."""
        table = self.table
        state.flatten()
        for source, target in ((rule.source, rule.target), (rule.target, rule.source)):
            if isinstance(source, int) or not self._variables(target) <= self._variables(source):
                continue
            free = self._takes_any(source) and self._takes_any(target)
            rows = state.of_template(source[0])
            self._connect(source, target, rows, state.first[rows], state.second[rows], free, state)
            classes = state.represented(source[0], table)
            rows = NONE - 1 - classes
            self._connect(source, target, rows, table.first[classes], table.second[classes], free, state)

    def _connect(
        self, source: tuple[int, Pattern, Pattern | None], target: Pattern, rows: Ids, first: Ids, second: Ids,
        free: bool, state: _State,
    ) -> None:  # fmt: skip
        """rows: of the candidates; or of classes, as -2 - class, whose representatives these operands have."""
        if not len(rows):
            return
        ways = [(first, second)]
        if source[2] is not None and source[0] in self.table.commuting:
            ways.append((second, first))
        for one, other in ways:
            for found, bound in self._operands(source, one, other, (rows, {}), free):
                self._mark(target, found, bound, state)

    def _variables(self, pattern: Pattern) -> frozenset[int]:
        return frozenset(number for number in variables(pattern) if not self.table.inputs[number].constant)

    def _takes_any(self, pattern: Pattern) -> bool:
        """Is it of operators that take tensors of any rank alike: element by element, or moved as blocks?"""
        if isinstance(pattern, int):
            return not self.table.inputs[pattern].constant
        template, *operands = pattern
        return self.any_rank(template) and all(self._takes_any(one) for one in operands if one is not None)

    def any_rank(self, template: int) -> bool:
        name = self.table.templates[template].operator
        return name in (SPLIT, "cat") or catalogue()[operator_named(name)].elementwise

    def _operands(
        self, pattern: tuple[int, Pattern, Pattern | None], first: Ids, second: Ids, bound: Bound, free: bool
    ) -> Iterator[Bound]:
        for rows, names in self._match(pattern[1], first, bound, free, (second,)):
            rest = names.pop(NONE)
            if pattern[2] is None:
                yield rows, names
            else:
                yield from self._match(pattern[2], rest, (rows, names), free, ())

    def _match(self, pattern: Pattern, ids: Ids, bound: Bound, free: bool, carried: tuple[Ids, ...]) -> Iterator[Bound]:
        """Rows in which these classes are what the pattern says. carried: goes with the rows, as variable -1."""
        rows, names = bound
        table = self.table
        if carried:
            names = {**names, NONE: carried[0]}
        if isinstance(pattern, int):
            if table.inputs[pattern].constant:
                kept = ids == pattern
            elif pattern in names:
                kept = names[pattern] == ids
            else:
                kept = self._takes(pattern, free)[table.kind[ids]]
                names = {**names, pattern: ids}
            if kept.any():
                yield rows[kept], {name: values[kept] for name, values in names.items()}
            return
        kept = table.template[ids] == pattern[0]
        if not kept.any():
            return
        rows, ids = rows[kept], ids[kept]
        names = {name: values[kept] for name, values in names.items()}
        first, second = table.first[ids], table.second[ids]
        ways = [(first, second)]
        if pattern[2] is not None and pattern[0] in table.commuting:
            ways.append((second, first))
        outer = names.pop(NONE, None)
        for one, other in ways:
            inner = dict(names)
            if outer is not None:
                inner[NONE - 1 - _depth(pattern)] = outer
            for found, values in self._operands(pattern, one, other, (rows, inner), free):
                if outer is not None:
                    values[NONE] = values.pop(NONE - 1 - _depth(pattern))
                yield found, values

    def _takes(self, variable: int, free: bool) -> NDArray[np.bool_]:
        """Of which kinds a variable may be. free: of any rank but a scalar's; else of its rank."""
        shape = self.table.inputs[variable].shape
        if free:
            return np.array([(len(kind.shape) == 1) == (len(shape) == 1) for kind in self.table.kinds])
        return np.array([len(kind.shape) == len(shape) for kind in self.table.kinds])

    def _mark(self, target: Pattern, rows: Ids, names: dict[int, Ids], state: _State) -> None:
        """Connects what was matched with what the rule makes of it."""
        most = state.start
        if isinstance(target, int):
            state.ground(rows[rows >= 0])
            return
        template, left, right = target
        first, good = self._built(left, names, len(rows), most)
        second = np.full(len(rows), NONE)
        if right is not None:
            second, other = self._built(right, names, len(rows), most)
            good &= other
        classes, number = self._lookup(template, np.where(good, first, 0), np.where(good, second, NONE))
        place = state.place[np.clip(number - most, 0, len(state.place) - 1)]
        here = good & (number >= most) & (number < most + len(state.place)) & (place != NONE)
        told = good & (number != NONE) & ~here  # of fewer operators, or what represents the class
        mine = rows >= 0
        same = np.where(mine, state.classes[np.maximum(rows, 0)], NONE - 1 - rows) == classes
        state.ground(rows[told & mine & same])
        state.ground(place[here & ~mine & same])
        state.unite(rows[here & mine & same], place[here & mine & same])

    def _built(self, pattern: Pattern, names: dict[int, Ids], count: int, most: int) -> tuple[Ids, NDArray[np.bool_]]:
        """(class, is it known by terms whose numbers are below `most`?)."""
        if isinstance(pattern, int):
            return names.get(pattern, np.full(count, pattern)), np.ones(count, bool)
        template, left, right = pattern
        first, good = self._built(left, names, count, most)
        second = np.full(count, NONE)
        if right is not None:
            second, other = self._built(right, names, count, most)
            good &= other
        classes, number = self._lookup(template, np.where(good, first, 0), np.where(good, second, NONE))
        return classes, good & (classes != NONE) & (number < most)


class _State:
    """The candidates of a level. implied: those that are connected with what represents their class.

    start: the number of the level's first term. rows: of the candidates in the level; place: the other way round.
    """

    def __init__(self, start: int, count: int, rows: Ids, level: Level) -> None:
        self.start, self.rows = start, rows
        self.template, self.first, self.second = level.template[rows], level.first[rows], level.second[rows]
        self.classes = level.classes[rows]
        self.place = np.full(max(count, 1), NONE)
        self.place[rows] = np.arange(len(rows))
        self.parent = np.arange(len(rows) + 1)  # the last stands for all that is implied
        self.implied = np.zeros(len(rows), bool)
        self.changed, self.uses = False, 0
        self.by_template: dict[int, Ids] = {}
        self.by_representative: dict[int, Ids] = {}

    def ground(self, numbers: Ids) -> None:
        self.unite(numbers, np.full(len(numbers), len(self.rows)))

    def unite(self, one: Ids, other: Ids) -> None:
        if len(one):
            _unite(self.parent, one, other)
            self.changed = True

    def flatten(self) -> None:
        """Brings `implied` up to date."""
        if self.changed:
            _flatten(self.parent, self.implied)
            self.changed = False

    def saved(self) -> Saved:
        """What is implied now."""
        return self.parent.copy(), self.implied.copy()

    def restore(self, saved: Saved) -> None:
        """As it was when that was saved."""
        self.parent, self.implied = saved
        self.changed, self.uses = True, 0
        self.by_template = {}

    def forget_implied(self) -> None:
        """Leaves the candidates that are not implied: others that are connected with one that was are implied too."""
        kept = ~self.implied
        new = np.append(np.cumsum(kept) - 1, kept.sum())
        self.parent = np.append(new[_roots(self.parent)[:-1][kept]], kept.sum())
        self.place[self.rows[~kept]] = NONE
        for name in ("rows", "template", "first", "second", "classes", "implied"):
            setattr(self, name, getattr(self, name)[kept])
        self.place[self.rows] = np.arange(len(self.rows))
        self.by_template, self.uses = {}, 0

    def is_implied(self, number: int) -> bool:
        return bool(_root(self.parent, number) == len(self.rows))

    def of_template(self, template: int) -> Ids:
        """The candidates of a template that are not implied yet."""
        if template not in self.by_template:
            self.by_template[template] = np.flatnonzero(self.template == template)
        rows = self.by_template[template]
        rows = self.by_template[template] = rows[~self.implied[rows]]
        return rows

    def represented(self, template: int, table: Table) -> Ids:
        """The classes of candidates that are not implied yet whose representative has this template; some that are
        done with may be among them."""
        if self.uses % REFRESH == 0:
            classes = np.unique(self.classes[~self.implied])
            kinds = table.template[classes]
            self.by_representative = {int(kind): classes[kinds == kind] for kind in np.unique(kinds)}
        self.uses += 1
        return self.by_representative.get(template, np.zeros(0, np.int64))

    def number_of(self, rule: Candidate) -> int:
        return int(self.place[rule.row])


@numba.njit(cache=True)
def _root(parent: Ids, item: int) -> int:  # pragma: no cover - compiled
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@numba.njit(cache=True)
def _unite(parent: Ids, one: Ids, other: Ids) -> None:  # pragma: no cover - compiled
    """The greater root becomes the parent, so that what is implied stays on top."""
    for number in range(len(one)):
        first, second = _root(parent, one[number]), _root(parent, other[number])
        if first < second:
            parent[first] = second
        else:
            parent[second] = first


@numba.njit(cache=True)
def _roots(parent: Ids) -> Ids:  # pragma: no cover - compiled
    roots = np.empty_like(parent)
    for number in range(len(parent)):
        roots[number] = _root(parent, number)
    return roots


@numba.njit(cache=True)
def _flatten(parent: Ids, implied: NDArray[np.bool_]) -> None:  # pragma: no cover - compiled
    last = len(parent) - 1
    for number in range(last):
        if not implied[number]:
            implied[number] = _root(parent, number) == last


def variables(pattern: Pattern) -> frozenset[int]:
    """The inputs that a pattern reads, constants too."""
    if isinstance(pattern, int):
        return frozenset((pattern,))
    return frozenset().union(*(variables(one) for one in pattern[1:] if one is not None))


def _depth(pattern: Pattern) -> int:
    if isinstance(pattern, int):
        return 0
    return 1 + max(_depth(one) for one in pattern[1:] if one is not None)


def _code(template: Ids, first: Ids, second: Ids) -> Ids:
    return (template + 1) << (2 * BITS) | first << BITS | (second + 1)
