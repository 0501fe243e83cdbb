"""From classes of equal terms to rules: pairs of equal graphs, without what others imply (TASO §2.3 step 2, §2.5).

A term and the term that represents its class are a candidate. Candidates are pruned in TASO's order, and once more:
1. by renaming of inputs: of those that differ by the names of alike inputs, the one that reads them in order is kept;
2. by common subgraphs: two sides that share an operator, where rules of fewer operators say that they are equal;
3. by what the kept rules imply: rules applied to whole terms connect the terms of a class with one another, and at last
   with the one that represents it. The first term that is not connected becomes a rule. Those with the most variables
   come first; those that hold for some sizes or attributes alone come last, since of what follows from them, as of the
   case at hand, more may hold.
Why 3 is sound: only proved rules connect. Rules are matched modulo the classes (`matching`): for a part of a term, any
term of its class stands that is connected with what represents the class, by rules that were kept before; and what a
rule makes of a term is looked up among such terms, from its parts up. So by induction the two ends of a connection
follow from one another by kept rules, and so does what `minimal` takes out at last: from those that it leaves.
What is of constants alone is computed, and counts as known to be equal. Among the largest terms (`doubtful`) what would
follow from a candidate that stays open is not judged: it takes longest, and mostly stays open too.

Cost: for each rule one pass over the candidates of its operator that are not connected yet, in compiled loops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import perm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from girih.layout.jit import numba
from girih.ops.catalogue import catalogue
from girih.rewrite.rules.rule import Expression, Variable
from girih.rewrite.rules.vocabulary import SPLIT, operator_named
from girih.workshop.generate.matching import NONE, Ids, Pattern, Sides, Terms, apply, root, side, unite_all, unite_each
from girih.workshop.generate.table import Level, Observer, TermTable
from girih.workshop.generate.vocabulary import TensorKind, application, kind_of

MANY = 32
"""Rules that are worth a second thread."""
GENERAL, SPECIAL, OPEN, FALSE = "general", "special", "open", "false"
Answer: TypeAlias = "str | Callable[[], str]"
"""Is a candidate proved, for all sizes and attributes that its operators take (general) or for some (special)? The word
if it is known, else what waits for it."""
Judge: TypeAlias = "Callable[[Candidate], Answer]"
Saved: TypeAlias = "tuple[Ids, NDArray[np.bool_]]"


@dataclass(frozen=True)
class Candidate:
    """Two terms that are equal on the fingerprint's tensors; source has the more operators, or comes later."""

    source: Pattern
    target: Pattern
    size: int
    row: int = -1
    """The number of the source in its level."""


@dataclass
class Counts:
    """How many candidates are left after each stage of pruning, for terms of one size (TASO's Table 2.3). terms:
    that were looked at; initial: pairs of equal graphs, under all names of inputs; renamed, unshared, unimplied: after
    each stage; unproved: those that are false, equal on the fingerprint's tensors alone, and those that are open."""

    size: int
    terms: int = 0
    initial: int = 0
    renamed: int = 0
    unshared: int = 0
    unimplied: int = 0
    unproved: int = 0


@dataclass(frozen=True)
class _Guess:
    """A candidate that is taken for a rule, or that is known to be none. place: of what comes after it; kept: how many
    rules there were before it; before: what was implied then (None: its answer was known)."""

    rule: Candidate
    answer: Answer
    place: int
    kept: int
    before: Saved | None


class Pruner:
    """Goes through the levels of a table, and keeps what nothing kept implies."""

    def __init__(self, table: TermTable) -> None:
        self.table = table
        self.kept: list[Candidate] = []
        self.special: set[Candidate] = set()
        self.unproved: list[Candidate] = []
        self.counts: list[Counts] = []
        self.terms = Terms(np.zeros(len(table.templates), np.bool_))
        self.starts = [0, 0]
        """The number of the first term of each size."""

    def prune(
        self,
        level: Level,
        size: int,
        judge: Judge,
        ahead: int = 1,
        observer: Observer | None = None,
        doubtful: bool = False,
    ) -> Iterator[Candidate]:
        """The proved rules of one size, in order; each is applied before the next is looked for.

        ahead: how many are looked for before the judge has to answer. They are taken for general; where one was not,
        everything is as it was before it, and what came after it is looked for again. So the rules are the same
        however many there are, and each is judged as often. observer: hears of each before it is judged; what it raises
        ends the search. doubtful: what would follow from open candidates is not judged; for the last size alone, since
        larger terms would take it for true.
        """
        self._enter(level)
        state = self._state(level, size)
        self._gather(np.ones(self.starts[size], bool))
        in_order = level.canonical[state.rows] & self._varies(level, state.rows)
        counts = Counts(size, level.looked_at)
        self.counts.append(counts)
        counts.initial = self._with_names(level, state.rows[in_order])
        counts.renamed = int(in_order.sum())
        for rule in self._exchanges() if size == 1 else ():
            proved = _word(judge(rule)) in (GENERAL, SPECIAL)
            self._count(rule, proved)
            if proved:
                self.kept.append(rule)
                yield rule
        observe = observer or (lambda what, share: None)
        observe(f"applying {len(self.kept)} rules to terms of {size} operators", 0.0)
        self._saturate(state)
        shared = self._shares(level, state.rows[in_order & state.settled])
        counts.unshared = counts.renamed - int(shared.sum())
        state.forget_settled()
        state.doubtful = doubtful
        special = yield from self._judged(level, self._preferred(level, state.rows), state, judge, ahead, observe)
        yield from self._judged(level, special, state, judge, ahead, observe, (GENERAL, SPECIAL))
        self._know(state)

    def _judged(
        self,
        level: Level,
        numbers: Sequence[int],
        state: _State,
        judge: Judge,
        ahead: int,
        observe: Observer,
        wanted: Sequence[str] = (GENERAL,),
    ) -> Generator[Candidate, None, list[int]]:
        """Those of the candidates that are rules. Returns the special ones, where these are not wanted yet."""
        size, special, place = self.counts[-1].size, [], 0
        waiting: deque[_Guess] = deque()
        try:
            while place < len(numbers) or waiting:
                pending = sum(guess.before is not None for guess in waiting)
                if place < len(numbers) and pending < ahead and not (waiting and waiting[0].before is None):
                    number, place = numbers[place], place + 1
                    if state.is_settled(number):
                        continue
                    observe(f"proving: {len(self.kept)} rules, {size} operators", place / len(numbers))
                    waiting.append(self._guess(level, number, place, state, judge, ahead > 1, wanted))
                    continue
                guess = waiting.popleft()
                word = _word(guess.answer)
                if word in wanted:
                    self.special |= {guess.rule} if word == SPECIAL else set()
                    self._count(guess.rule, True)
                    yield guess.rule
                    continue
                number = numbers[guess.place - 1]
                if guess.before is not None:
                    waiting.clear()
                    place = guess.place
                    del self.kept[guess.kept :]
                    state.restore(guess.before)
                    self._refuse(guess.rule, number, word, state)
                if word == SPECIAL:
                    special.append(number)
                else:
                    self._count(guess.rule, False)
            return special
        finally:  # nobody asks for more: what was not answered is not known to be proved
            if waiting:
                del self.kept[waiting[0].kept :]

    def _guess(
        self, level: Level, number: int, place: int, state: _State, judge: Judge, early: bool, wanted: Sequence[str]
    ) -> _Guess:
        """Takes a candidate for a rule, and applies it, unless it is known to be none; early: before the judge answers,
        where that takes a while."""
        rule = self._candidate(level, int(state.rows[number]), self.counts[-1].size)
        answer = judge(rule)
        answer = answer if early else _word(answer)
        known = isinstance(answer, str)
        guess = _Guess(rule, answer, place, len(self.kept), None if known else state.saved())
        if known and answer not in wanted:  # before what comes next is looked for
            self._refuse(rule, number, _word(answer), state)
        else:
            state.ground(np.array([number]))
            self.kept.append(rule)
            self._apply([rule], state)
        return guess

    def _refuse(self, rule: Candidate, number: int, word: str, state: _State) -> None:
        """Goes on without a candidate that is no rule, or is not wanted yet."""
        if word != SPECIAL:
            state.ground(np.array([number]), False)
        if word == OPEN and state.doubtful:
            self._apply([rule], state)

    def _count(self, rule: Candidate, proved: bool) -> None:
        counts = self.counts[-1]
        counts.unimplied, counts.unproved = counts.unimplied + proved, counts.unproved + (not proved)
        if not proved:
            self.unproved.append(rule)

    def minimal(self, levels: Sequence[Level]) -> tuple[Candidate, ...]:
        """The rules that nothing implies, those of more operators included: a·(b + b) = a·b + a·b has fewer operators
        than the rule of which it is a case. Only terms of the rules' own classes are looked at, so that a few may stay
        that follow by way of others."""
        exchanges = set(self._exchanges())
        for size in range(len(levels), 0, -1):
            mine = [rule for rule in self.kept if rule.size == size and rule not in exchanges]
            others = [rule for rule in self.kept if rule.size != size or rule in exchanges]
            if not any(rule.size > size for rule in others):
                continue
            level = levels[size - 1]
            state = self._state(level, size, np.unique(level.classes[[rule.row for rule in mine]]))
            self._gather(np.ones(self.starts[size], bool))
            self.kept = others
            for special in (False, True):
                self._apply([rule for rule in others if (rule in self.special) == special], state)
                for rule in mine:
                    if (rule in self.special) == special and not state.is_settled(state.number_of(rule)):
                        self.kept.append(rule)
                        state.ground(np.array([state.number_of(rule)]))
                        self._apply([rule], state)
        self.kept.sort(key=lambda rule: rule.size)
        return tuple(self.kept)

    def _state(self, level: Level, size: int, classes: Ids | None = None) -> _State:
        """The terms of a level that do not represent their class; of these classes, if any are given. What is of
        constants alone needs no rule; nor does a side of anything but a concatenation: f(cat(x, y)) is cat(f(x), f(y))
        by the rules of f."""
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
        joins = (table.size > 1) & ~self._of_joined_groups()
        state.ground(np.flatnonzero(np.isin(state.template, splits) & joins[state.first]))
        if classes is not None:
            state.keep(np.isin(state.classes, classes))
        return state

    def _of_joined_groups(self) -> NDArray[np.bool_]:
        """Classes with a convolution by kernels that are joined of an image that is not: with groups, no rule makes two
        convolutions of it."""
        table = self.table
        groups = np.array([dict(item.attributes).get("groups", 1) != 1 for item in table.templates])
        joined = np.array([len(kind.trees) > 1 and not isinstance(kind.trees[1], int) for kind in table.kinds])
        found = np.zeros(len(table.size), np.bool_)
        for size in range(1, int(table.size.max()) + 1):
            own = np.flatnonzero(table.size == size)
            first, second = table.first[own], table.second[own]
            is_one = groups[table.template[own]] & joined[table.kind[own]] & ~joined[table.kind[first]]
            found[own] = is_one | found[first] | (found[second] & (second != NONE))
        return found

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

    def _enter(self, level: Level) -> None:
        """Makes the terms of a level known."""
        self.starts.append(self.starts[-1] + len(level))
        self.terms.commuting[list(self.table.commuting)] = True
        self.terms.enter(level.template, level.first, level.second, level.classes)

    def _saturate(self, state: _State) -> None:
        """Applies the kept rules until nothing new follows: what is found to be equal is matched in the next pass."""
        before = -1
        state.flatten()
        while (now := int(state.settled.sum())) > before:
            before = now
            self._apply(self.kept, state)
            state.flatten()
            self._gather(np.append(np.ones(state.start, bool), state.is_true()))

    def _gather(self, known: NDArray[np.bool_]) -> None:
        self.terms.gather(known, len(self.table.size))

    def _know(self, state: _State) -> None:
        """Larger terms are taken for what only those terms of this level are that are known to be true."""
        true = state.is_true()
        self.terms.classes[state.start : state.start + len(true)][~true] = NONE

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
        depth = table.depth[level.first[some]]
        depth = np.maximum(depth, np.where(level.second[some] == NONE, 0, table.depth[level.second[some]]))
        depth = depth + table.depth[level.classes[some]]
        ordered = np.lexsort((np.arange(len(some)), depth, target, -many, has))
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
        def kind(item: Pattern) -> TensorKind:
            if isinstance(item, int):
                return kind_of(self.table.inputs[item].shape)
            template, *operands = item
            found = application(self.table.templates[template], tuple(kind(one) for one in operands if one is not None))
            assert found is not None
            return found[1]

        return kind(pattern).shape

    # ------------------------------------------------------------------------------------------ applying rules

    def _sides(self, rules: Iterable[Candidate]) -> Sides:
        """Both directions of rules, but for those that would need a variable that the other side does not have."""
        table = self.table
        constant = [bool(item.constant) for item in table.inputs]
        sides = []
        for rule in rules:
            free = self._takes_any(rule.source) and self._takes_any(rule.target)
            takes = np.arange(len(table.inputs)) + (len(table.inputs) if free else 0)
            for source, target in ((rule.source, rule.target), (rule.target, rule.source)):
                if not isinstance(source, int) and self._variables(target) <= self._variables(source):
                    sides.append(side(source, target, constant, takes))
        return Sides.of(sides, len(table.templates))

    def _apply(self, rules: Sequence[Candidate], state: _State) -> None:
        """Connects the candidates that are not settled with what the rules, from either side, say that they are.

        Many rules are applied to two halves of the candidates at once, each by itself: so the result is the same on any
        machine.
        """
        table, terms = self.table, self.terms
        sides, takes = self._sides(rules), self._takes()
        kinds = [kind for kind in range(len(table.templates)) if np.ptp(sides.of_template[kind])]
        every = [state.of_template(kind) for kind in kinds]
        rows = np.concatenate(every) if every else np.zeros(0, np.int64)

        def apply_to(rows: Ids, parent: Ids) -> None:
            apply(
                rows, state.template, state.first, state.second, state.classes, parent, state.place, state.start,
                len(state.rows) + 1, sides.of_template, sides.match, sides.match_at, sides.build, sides.build_at,
                sides.target, terms.keys, terms.numbers, terms.commuting, terms.classes, terms.member_at,
                terms.members, terms.template, terms.first, terms.second, terms.has, table.kind, takes,
            )  # fmt: skip

        if len(rules) < MANY:
            apply_to(rows, state.parent)
        else:
            parents = state.parent, state.parent.copy()
            with ThreadPoolExecutor(len(parents)) as pool:
                halves = [np.ascontiguousarray(rows[start::2]) for start in (0, 1)]
                list(pool.map(apply_to, halves, parents))
            unite_each(*parents)
        state.changed = True

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

    def _takes(self) -> NDArray[np.bool_]:
        """Which kinds an input may have as a variable: those of its rank; and in the rows behind, for rules whose
        operators take any rank, all but a scalar's."""
        ranks = np.array([len(kind.shape) for kind in self.table.kinds])
        own = np.array([len(item.shape) for item in self.table.inputs])[:, None]
        return np.asarray(np.concatenate((ranks == own, (ranks == 1) == (own == 1))), np.bool_)


def _word(answer: Answer) -> str:
    return answer if isinstance(answer, str) else answer()


class _State:
    """The candidates of a level that are not settled: neither connected with what represents their class, nor false.

    start: the number of the level's first term. rows: of the candidates in the level; place: the other way round, -1
    for what is true, -2 for what is false. parent: of the candidates, then of what is false and of what is true.
    """

    def __init__(self, start: int, count: int, rows: Ids, level: Level) -> None:
        self.start, self.count, self.rows = start, count, rows
        self.template, self.first, self.second = level.template[rows], level.first[rows], level.second[rows]
        self.classes = level.classes[rows]
        self.place = np.full(max(count, 1), NONE, np.int32)
        self.place[rows] = np.arange(len(rows))
        self.parent = np.arange(len(rows) + 2)
        self.settled = np.zeros(len(rows), bool)
        self.changed = False
        self.doubtful = False
        self.by_template: dict[int, Ids] = {}

    def ground(self, numbers: Ids, true: bool = True) -> None:
        """Settles candidates."""
        unite_all(self.parent, numbers, len(self.rows) + true)
        self.changed = True

    def flatten(self) -> None:
        """Brings `settled` up to date."""
        if self.changed:
            _flatten(self.parent, self.settled)
            self.changed = False

    def saved(self) -> Saved:
        """A copy of what is known now, for `restore`."""
        return self.parent.copy(), self.settled.copy()

    def restore(self, saved: Saved) -> None:
        """Go back to what was known when that was saved."""
        self.parent, self.settled = saved
        self.changed = True
        self.by_template = {}

    def forget_settled(self) -> None:
        """Leaves the candidates that are not settled."""
        self.flatten()
        self.keep(~self.settled)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Leaves these candidates; of the others, those that are not known to be true are taken for false."""
        new = np.append(np.cumsum(kept) - 1, [kept.sum(), kept.sum() + 1])
        roots = _roots(self.parent)
        true = roots[:-2][~kept] == len(self.rows) + 1
        self.parent = np.append(new[roots[:-2][kept]], new[-2:])
        self.place[self.rows[~kept]] = np.where(true, NONE, NONE - 1)
        for name in ("rows", "template", "first", "second", "classes", "settled"):
            setattr(self, name, getattr(self, name)[kept])
        self.place[self.rows] = np.arange(len(self.rows))
        self.by_template = {}

    def is_settled(self, number: int) -> bool:
        return bool(root(self.parent, number) >= len(self.rows))

    def is_true(self) -> NDArray[np.bool_]:
        """Which terms of the level are known to equal the representative of their class?"""
        true: NDArray[np.bool_] = np.equal(self.place, NONE)
        true[self.rows] = _roots(self.parent)[:-2] == len(self.rows) + 1
        return true[: self.count]  # `place` is never empty

    def of_template(self, template: int) -> Ids:
        """The candidates of a template that are not settled yet."""
        self.flatten()
        if template not in self.by_template:
            self.by_template[template] = np.flatnonzero(self.template == template)
        rows = self.by_template[template]
        rows = self.by_template[template] = rows[~self.settled[rows]]
        return rows

    def number_of(self, rule: Candidate) -> int:
        return int(self.place[rule.row])


@numba.njit(cache=True)
def _roots(parent: Ids) -> Ids:  # pragma: no cover - compiled
    """The root of every item's set."""
    roots = np.empty_like(parent)
    for number in range(len(parent)):
        roots[number] = root(parent, number)
    return roots


@numba.njit(cache=True)
def _flatten(parent: Ids, settled: NDArray[np.bool_]) -> None:  # pragma: no cover - compiled
    """Mark the candidates that are connected with what represents their class, or false: with the last two items."""
    last = len(parent) - 2
    for number in range(last):
        if not settled[number]:
            settled[number] = root(parent, number) >= last


def variables(pattern: Pattern) -> frozenset[int]:
    """The inputs that a pattern reads, constants too."""
    if isinstance(pattern, int):
        return frozenset((pattern,))
    return frozenset().union(*(variables(one) for one in pattern[1:] if one is not None))
