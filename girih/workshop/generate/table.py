"""Classes of equal terms, level by level: TASO §2.3, Algorithm 1, step 1.

A graph's output is a term: an operator applied to terms. The table has one class for all terms that are equal on the
fingerprint's tensors, and a class is represented by its smallest term. A term of `n` operators is made of classes that
together have `n - 1`, what they share counted once, so that
- a value is computed once, however many terms read it;
- no term is made of one that has a smaller or earlier equal: what such a term is equal to follows by replacing the
  part, which is TASO's pruning by common subgraphs, done before anything is computed;
- no graph computes anything twice, since equal operators on equal operands are one term;
- graphs that differ by the order of independent operators are one term, and of those that differ by the names of
  alike inputs the last level has the one that reads them in order.

Where we differ from TASO: its search is depth first and keeps a hash for each graph; ours goes by size and keeps, in
arrays, eight bytes for the hash and eight for the operands of each term. Graphs of several outputs are put together
afterwards (`candidates`).

Cost: for each pair of classes one evaluation; memory is linear in the classes below the last level, and in the terms
of the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.ops.derive.linearity import degree
from girih.ops.expressions import DescriptionError
from girih.workshop.generate.exact import Function, function_of, hashes, is_exact
from girih.workshop.generate.vocabulary import GROWING, Input, Template, TensorKind, application, kind_of, symbols_of

Ids = NDArray[np.int64]
Observer = Callable[[str, float], None]
CHUNK = 1 << 21
"""Elements of results that are computed at once."""
THREADS = 2
"""That compute terms, while the one that called chooses the next."""
MOST_PARTS = 3
MOST_AREA = 4
NONE = -1
SEED = 20
SAMPLES = 2
"""How many draws must agree: with one, relu(s·relu(x)) would be zero where s is below zero."""


@dataclass(frozen=True)
class Level:
    """Terms of one size. template, first, second: of each (second: -1 for none). classes: to which they belong (-1:
    equal to no other). canonical: whether they read alike inputs in order. looked_at: how many there are; the last
    level keeps those that are equal to others."""

    template: Ids
    first: Ids
    second: Ids
    classes: Ids
    canonical: NDArray[np.bool_]
    looked_at: int

    def __len__(self) -> int:
        return len(self.template)


@dataclass(frozen=True)
class _Block:
    """Terms of one template whose operands are of the same kinds. kind: of what they make. Wide arrays of 45 million
    terms, as there are of five operators, would not fit: these have 20 bytes for each."""

    template: int
    operands: tuple[int, ...]
    kind: int
    hash: NDArray[np.uint64]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    order: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.hash)

    def some(self, rows: Any) -> _Block:
        """The same columns, of these rows alone."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("hash", "first", "second", "order")})


class TermTable:
    """The classes. Arrays by class: template (-1: an input), first, second, size, kind, row (in the values of its
    kind), order (of its variables)."""

    def __init__(self, items: Sequence[Input], templates: Sequence[Template]) -> None:
        self.inputs = tuple(items)
        self.templates = tuple(templates)
        self.kinds: list[TensorKind] = []
        self.number_of_kind: dict[TensorKind, int] = {}
        self.levels: list[Level] = []
        self.commuting: frozenset[int] = frozenset()
        self.bases = {item.shape for item in items}
        self.alike: dict[tuple[int, ...], list[int]] = {}
        for number, item in enumerate(items):
            if not item.constant:
                self.alike.setdefault(item.shape, []).append(number)
        self.orders: list[tuple[int, ...]] = [()]
        self.number_of_order: dict[tuple[int, ...], int] = {(): 0}
        self.ordered, self.most_alike = np.zeros(0, bool), np.zeros(0, np.int64)
        self.linear: dict[int, bool] = {}
        self.functions: dict[tuple[int, tuple[int, ...]], tuple[Function, int] | None] = {}
        self.exact = self._all_exact()
        self.constant = np.array([bool(item.constant) for item in items])
        self.refused: set[tuple[int, int]] = set()
        """(template, constant) that never say anything."""
        self.values: list[Any] = []
        self.size, self.depth, self.kind, self.row, self.order = (np.zeros(0, np.int64) for _ in range(5))
        self.template, self.first, self.second = (np.zeros(0, np.int64) for _ in range(3))
        self.alive = np.zeros(0, bool)
        """Those of which larger terms are made."""
        self.parts: Ids = np.zeros((0, 0), np.int64)
        self.hash: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.sorted: Ids = np.zeros(0, np.int64)
        self._enter()

    # ------------------------------------------------------------------------------------------ beginning

    def _all_exact(self) -> bool:
        """Can every operator be computed in whole numbers?"""
        kinds = [kind_of(shape) for shape in sorted(self.bases)]
        for template in self.templates:
            for kind in kinds:
                for other in kinds if template.arity == 2 else [kind]:
                    found = application(template, (kind, other)[: template.arity])
                    if found is not None and not is_exact(found[0]):
                        return False
        return True

    def _enter(self) -> None:
        random = np.random.default_rng(SEED)
        for number, item in enumerate(self.inputs):
            kind = self._kind(kind_of(item.shape))
            if item.constant:
                values = np.repeat(self._constant(item)[None], SAMPLES, axis=0)
            else:
                values = _balanced(random, item.shape) * (81 if _is_image(item) and self.exact else 1)
                values = values if self.exact else values / 10.0
            values = values.reshape(1, -1)
            order = self._order_number((number,) if not item.constant else ())
            hash_ = hashes(values, self._salt(kind))
            self._append([(_Block(NONE, (), kind, hash_, *map(_narrow, ([number], [NONE], [order]))), values)], 0)
        self._sort()

    def _constant(self, item: Input) -> Any:
        """Its elements; fractions with an odd denominator are whole numbers modulo 2**64."""
        values = constant_values(item)
        if not self.exact:
            return values
        fractions = [Fraction(float(value)).limit_denominator(1000) for value in values.reshape(-1)]
        whole = [one.numerator * pow(one.denominator, -1, 1 << 64) % (1 << 64) for one in fractions]
        return np.array(whole, np.uint64).view(np.int64).reshape(values.shape)

    def _salt(self, kind: int) -> int:
        shape = self.kinds[kind].shape
        return int(sum(size * 1009**place for place, size in enumerate(shape, 1)) % (1 << 62))

    def _kind(self, kind: TensorKind) -> int:
        if kind not in self.number_of_kind:
            self.number_of_kind[kind] = len(self.kinds)
            self.kinds.append(kind)
            self.values.append(np.zeros((0, SAMPLES * kind.elements), np.int64 if self.exact else np.float64))
        return self.number_of_kind[kind]

    def _order_number(self, order: tuple[int, ...]) -> int:
        if order not in self.number_of_order:
            self.number_of_order[order] = len(self.orders)
            self.orders.append(order)
        return self.number_of_order[order]

    def _append(self, blocks: Sequence[tuple[_Block, Any]], size: int) -> None:
        """Classes for these terms, with their values; None where no larger terms are made of them."""
        many = [len(block) for block, _ in blocks]

        def joined(name: str, parts: Any) -> None:
            old = getattr(self, name)
            parts = [np.asarray(part, old.dtype) for part in parts]  # no terms are an empty list, of floats
            setattr(self, name, np.concatenate((old, *parts)))

        rows = []
        for kind in {block.kind: None for block, _ in blocks}:
            mine = [values for block, values in blocks if block.kind == kind and values is not None]
            known = len(self.values[kind])
            self.values[kind] = np.concatenate((self.values[kind], *mine))
            rows.append((kind, known))
        next_row = dict(rows)
        places = []
        for block, _ in blocks:
            places.append(np.arange(next_row[block.kind], next_row[block.kind] + len(block)))
            next_row[block.kind] += len(block)
        joined("row", places)
        for name in ("hash", "first", "second", "order"):
            joined(name, [getattr(block, name) for block, _ in blocks])
        for name in ("template", "kind"):
            joined(name, [np.repeat([getattr(block, name) for block, _ in blocks], many)])
        joined("size", [np.full(sum(many), size)])
        joined("alive", [np.ones(sum(many), bool)])
        first, second = self.first[len(self.depth) :], self.second[len(self.depth) :]
        below = np.append(self.depth, 0)  # of no operand: the last
        joined("depth", [np.maximum(below[first], below[second]) + 1 if size else np.zeros(len(first), np.int64)])

    def _sort(self) -> None:
        """Makes the classes that were added known, with the operators that each consists of."""
        self.sorted = np.argsort(self.hash, kind="stable")
        known, width = len(self.parts), max(int(self.size.max(initial=0)), 1)
        old = np.full((known, width), NONE)
        old[:, : self.parts.shape[1]] = self.parts
        fresh = np.arange(known, len(self.hash))
        first, second, own = self.first[fresh], self.second[fresh], self.template[fresh] != NONE
        if known:
            left = np.where(own[:, None], old[np.where(own, first, 0)], NONE)
            right = np.where((own & (second != NONE))[:, None], old[np.where(second == NONE, 0, second)], NONE)
            every = np.concatenate((left, right, np.where(own, fresh, NONE)[:, None]), axis=1)
        else:
            every = np.full((len(fresh), 1), NONE)
        every = np.sort(every, axis=1)[:, ::-1]
        every[:, 1:][every[:, 1:] == every[:, :-1]] = NONE
        every = np.sort(every, axis=1)[:, ::-1][:, :width]
        padded = np.full((len(fresh), width), NONE)
        padded[:, : every.shape[1]] = every
        self.parts = np.concatenate((old, padded))

    def lookup(self, hash_: NDArray[np.uint64]) -> Ids:
        """The classes with these hashes; -1 for none."""
        ordered = self.hash[self.sorted]
        place = np.minimum(np.searchsorted(ordered, hash_), len(ordered) - 1)
        return np.where(ordered[place] == hash_, self.sorted[place], NONE)

    # ------------------------------------------------------------------------------------------ levels

    def extend(
        self,
        observer: Observer | None = None,
        last: bool = False,
        alike: int = 9,
        named: int = 9,
        parts: int = MOST_PARTS,
    ) -> Level:
        """The terms of the next size, put into classes.

        last: no further level follows; only those classes are made that several terms belong to. alike: terms that read
        more alike inputs are not looked at. named: those that read more are looked at under one name each, in which
        they read the first ones first. parts: how many tensors may be concatenated in a row.
        """
        size = len(self.levels) + 1
        with ThreadPoolExecutor(THREADS) as pool:
            blocks = list(_in_order(self._blocks(size, observer, alike, named, parts, pool)))
        level = self._classified(size, blocks, last)
        self.levels.append(level)
        if size == 1:
            self.commuting = self._commuting(level)
            self._refuse(level)
        return level

    def _blocks(
        self, size: int, observer: Observer | None, alike: int, named: int, parts: int, pool: ThreadPoolExecutor
    ) -> Iterator[Future[_Block]]:
        """The terms of a size, as they are computed: NumPy lets go of the interpreter meanwhile."""
        work = list(self._work(size))
        for number, (template, kinds, pairs) in enumerate(work):
            if observer is not None:
                observer(f"{self.templates[template]}, {size} operators", number / len(work))
            found = self._function(template, kinds)
            if found is None:
                continue
            function, kind = found
            if not self._fits(self.kinds[kind].shape, parts):
                continue
            for first, second in pairs(max(256, CHUNK // SAMPLES // self.kinds[kind].elements)):
                order = self._orders(first, second)
                if size > 1:
                    many = self._alike(order)
                    kept = self._canonical(order)
                    if template in self.commuting:
                        kept |= self._canonical(self._orders(second, first))
                    kept = (many <= alike) & (kept | (many <= named))
                    first, second, order = first[kept], second[kept], order[kept]
                kept = self._says(template, first, second)
                first, second, order = first[kept], second[kept], order[kept]
                if not len(first):
                    continue
                yield pool.submit(self._block, template, kinds, kind, function, first, second, order)

    def _block(
        self, template: int, kinds: tuple[int, ...], kind: int, function: Function, first: Ids, second: Ids, order: Ids
    ) -> _Block:
        values = function(self._operands(first, second)).reshape(len(first), -1)
        known = hashes(values, self._salt(kind))
        return _Block(template, kinds, kind, known, *map(_narrow, (first, second, order)))

    def _says(self, template: int, first: Ids, second: Ids) -> NDArray[np.bool_]:
        """Terms that are worth a look: a constant is read by operators of which it is the unit, or for which another
        operator stands. What follows for other terms with constants follows from those."""
        count = len(self.constant)
        kept = np.ones(len(first), bool)
        for operand in (first, second):
            for name in np.unique(operand[(operand >= 0) & (operand < count)]):
                if self.constant[name] and (template, int(name)) in self.refused:
                    kept &= operand != name
        return kept

    def _refuse(self, level: Level) -> None:
        """After the terms of one operator are known."""
        several = np.unique(np.stack([level.classes, level.template]), axis=1)
        classes, many = np.unique(several[0], return_counts=True)
        equal = (self.size[level.classes] == 0) | np.isin(level.classes, classes[many > 1])
        varies = np.array([bool(order) for order in self.orders])[self.order[level.classes]]
        for template in range(len(self.templates)):
            said = np.flatnonzero((level.template == template) & equal & varies)
            for name in np.flatnonzero(self.constant):
                if not ((level.first[said] == name) | (level.second[said] == name)).any():
                    self.refused.add((template, int(name)))
                    self.alive &= (self.template != template) | ((self.first != name) & (self.second != name))

    def _operands(self, first: Any, second: Any) -> list[Any]:
        """Their values: a row for each sample."""
        return [
            self.values[self.kind[ids[0]]][self.row[ids]].reshape(len(ids) * SAMPLES, -1)
            for ids in (first, second)
            if ids[0] != NONE
        ]

    def _function(self, template: int, kinds: tuple[int, ...]) -> tuple[Function, int] | None:
        key = template, kinds
        if key not in self.functions:
            self.functions[key] = None
            found = application(self.templates[template], tuple(self.kinds[kind] for kind in kinds))
            if found is not None and self._fits(found[1].shape, MOST_PARTS):
                try:
                    self.functions[key] = function_of(found[0], self.exact), self._kind(found[1])
                    operands = frozenset(range(len(kinds)))
                    self.linear[template] = degree(found[0].body, operands) == 1
                except DescriptionError:
                    pass
        return self.functions[key]

    def _fits(self, shape: tuple[int, ...], most: int) -> bool:
        """Is it the shape of an input, or of so many of them concatenated, or reduced?"""
        for base in self.bases:
            if len(base) != len(shape) or len(shape) < 2:
                continue
            multiples = [size // one if size % one == 0 else 0 for size, one in zip(shape, base, strict=True)]
            multiples = [1 if size == 1 and len(base) < 4 else by for size, by in zip(shape, multiples, strict=True)]
            if not all(multiples) or any(by != 1 for by in multiples[GROWING:]):
                continue
            if max(multiples, default=1) <= most and np.prod(multiples) <= MOST_AREA:
                return True
        return False

    def _work(self, size: int) -> Iterator[tuple[int, tuple[int, ...], Callable[[int], Iterator[tuple[Ids, Ids]]]]]:
        """(template, kinds of operands, chunks of operands) for all terms of a size."""
        members = {
            (kind, one): np.flatnonzero((self.kind == kind) & (self.size == one) & self.alive)
            for kind in range(len(self.kinds))
            for one in range(size)
        }
        kinds = range(len(self.kinds))
        shared = self._sharing(size)
        for template, item in enumerate(self.templates):
            if item.arity == 1:
                for kind in kinds:
                    if len(members[kind, size - 1]):
                        yield template, (kind,), _chunks(members[kind, size - 1])
                continue
            for kind in kinds:
                for other in kinds:
                    pairs = [
                        (members[kind, one], members[other, size - 1 - one])
                        for one in range(size)
                        if len(members[kind, one]) and len(members[other, size - 1 - one])
                    ]
                    both = shared.get((kind, other))
                    if pairs or both is not None:
                        commutes = template in self.commuting
                        yield template, (kind, other), self._pairs(pairs, both, commutes)

    def _pairs(
        self, products: list[tuple[Ids, Ids]], both: tuple[Ids, Ids] | None, commutes: bool
    ) -> Callable[[int], Iterator[tuple[Ids, Ids]]]:
        def chunks(most: int) -> Iterator[tuple[Ids, Ids]]:
            for one, other in products:
                step = max(1, most // len(other))
                for start in range(0, len(one), step):
                    some = one[start : start + step]
                    first, second = np.repeat(some, len(other)), np.tile(other, len(some))
                    kept = first <= second if commutes else np.ones(len(first), bool)
                    if self.size[one[0]] and self.size[other[0]]:
                        kept &= ~self._overlap(first, second).astype(bool)
                    if kept.any():
                        yield first[kept], second[kept]
            if both is not None:
                first, second = both
                if commutes:
                    kept = first <= second
                    first, second = first[kept], second[kept]
                for start in range(0, len(first), most):
                    yield first[start : start + most], second[start : start + most]

        return chunks

    def _overlap(self, first: Ids, second: Ids) -> Ids:
        """How many operators two classes share."""
        one, other = self.parts[first], self.parts[second]
        same = (one[:, :, None] == other[:, None, :]) & (one[:, :, None] != NONE)
        return np.asarray(same.sum(axis=(1, 2)), np.int64)

    def _sharing(self, size: int) -> dict[tuple[int, int], tuple[Ids, Ids]]:
        """Pairs of classes that share operators and together have one less than `size`, by their kinds."""
        found: list[tuple[Ids, Ids]] = []
        whole = np.flatnonzero((self.size == size - 1) & self.alive)
        if size > 1:
            for column in range(self.parts.shape[1]):  # one is a part of the other, or both are the same
                part = self.parts[whole, column]
                part = np.where((part != NONE) & self.alive[part], part, NONE)
                one, other = whole[part != NONE], part[part != NONE]
                found.append((one, other))
                found.append((other[other != one], one[other != one]))
        for one in range(2, size):
            for other in range(2, size):
                common = one + other - (size - 1)
                if 1 <= common < min(one, other):
                    found += self._joined(one, other, common)
        groups: dict[tuple[int, int], tuple[Ids, Ids]] = {}
        if any(len(one) for one, _ in found):
            first = np.concatenate([one for one, _ in found])
            second = np.concatenate([other for _, other in found])
            code = self.kind[first] * len(self.kinds) + self.kind[second]
            order = np.argsort(code, kind="stable")
            first, second, code = first[order], second[order], code[order]
            starts = [int(at) for at in np.flatnonzero(np.r_[len(code) > 0, code[1:] != code[:-1]][: len(code)])]
            for start, stop in zip(starts, [*starts[1:], len(code)], strict=True):
                pair = int(code[start]) // len(self.kinds), int(code[start]) % len(self.kinds)
                groups[pair] = first[start:stop], second[start:stop]
        return groups

    def _joined(self, one: int, other: int, common: int) -> list[tuple[Ids, Ids]]:
        """Pairs of classes of two sizes, neither a part of the other, that share exactly so many operators."""
        left, right = self._keys(one, common), self._keys(other, common)
        if not len(left[0]) or not len(right[0]):
            return []
        order = np.argsort(right[0], kind="stable")
        keys, ids = right[0][order], right[1][order]
        low, high = np.searchsorted(keys, left[0], "left"), np.searchsorted(keys, left[0], "right")
        many = high - low
        first = np.repeat(left[1], many)
        offset = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        second = ids[np.repeat(low, many) + offset]
        pairs = []
        for start in range(0, len(first), CHUNK):
            a, b = first[start : start + CHUNK], second[start : start + CHUNK]
            kept = self._overlap(a, b) == common
            pairs.append((a[kept], b[kept]))
        return pairs

    def _keys(self, size: int, common: int) -> tuple[Ids, Ids]:
        """(hash of so many of its operators, class), for all choices of them."""
        ids = np.flatnonzero(self.size == size)
        parts = self.parts[ids][:, :size]
        keys, classes = [], []
        for chosen in combinations(range(size), common):
            key = np.zeros(len(ids), np.int64)
            for column in chosen:
                key = key * (1 << 28) + parts[:, column] if common <= 2 else key * 1000003 + parts[:, column]
            keys.append(key)
            classes.append(ids)
        return np.concatenate(keys) if keys else ids, np.concatenate(classes) if classes else ids

    # ------------------------------------------------------------------------------------------ order of inputs

    def _orders(self, first: Ids, second: Ids) -> Ids:
        """In which order terms of these operands read their variables."""
        one = self.order[first]
        other = np.where(second == NONE, 0, self.order[second])
        code = one << 32 | other
        unique, inverse = np.unique(code, return_inverse=True)
        numbers = []
        for item in unique:
            left, right = self.orders[int(item) >> 32], self.orders[int(item) & 0xFFFFFFFF]
            numbers.append(self._order_number(left + tuple(name for name in right if name not in left)))
        return np.asarray(numbers, np.int64)[inverse]

    def _canonical(self, orders: Ids) -> NDArray[np.bool_]:
        self._know_orders()
        return self.ordered[orders]

    def _alike(self, orders: Ids) -> Ids:
        """How many alike inputs terms read, of the shape of which they read the most."""
        self._know_orders()
        return self.most_alike[orders]

    def _know_orders(self) -> None:
        fresh = self.orders[len(self.ordered) :]
        if fresh:
            many = [
                max((sum(name in names for name in order) for names in self.alike.values()), default=0)
                for order in fresh
            ]
            self.ordered = np.concatenate((self.ordered, [self.in_order(order) for order in fresh]))
            self.most_alike = np.concatenate((self.most_alike, many))

    def in_order(self, order: Sequence[int]) -> bool:
        """Are the first of the alike inputs read first?"""
        for names in self.alike.values():
            read = [name for name in order if name in names]
            if read != names[: len(read)]:
                return False
        return True

    # ------------------------------------------------------------------------------------------ classes

    def _classified(self, size: int, blocks: list[_Block], last: bool) -> Level:
        if not blocks:
            empty = np.zeros(0, np.int64)
            return Level(empty, empty, empty, empty, np.zeros(0, bool), 0)
        ends = np.cumsum([len(block) for block in blocks])
        hash_ = np.concatenate([block.hash for block in blocks])
        order = np.argsort(hash_, kind="stable")  # in order they are looked up several times as fast
        hash_ = hash_[order]
        starts = np.flatnonzero(np.r_[True, hash_[1:] != hash_[:-1]])
        many, hash_ = np.diff(np.r_[starts, len(hash_)]), hash_[starts]
        found = self.lookup(hash_)
        fresh = (found == NONE) & (many > last)
        chosen = np.sort(order[starts[fresh]])
        in_blocks = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
        represent = [
            block.some(rows - end + len(block)) for block, rows, end in zip(blocks, in_blocks, ends, strict=True)
        ]
        represent.sort(key=lambda block: (block.template, block.kind, block.operands))
        self._append([(block, None if last else self._values(block)) for block in represent if len(block)], size)
        self._sort()
        found[fresh] = self.lookup(hash_[fresh])
        classes = np.empty(len(order), np.int64)
        classes[order] = np.repeat(found, many)
        del hash_, order, starts, many, found, fresh
        if last and size > 1:
            equal = [np.flatnonzero(item != NONE) for item in np.split(classes, ends[:-1])]
            blocks = [block.some(rows) for block, rows in zip(blocks, equal, strict=True)]
        template = np.repeat([block.template for block in blocks], [len(block) for block in blocks])
        first, second, order = (
            np.concatenate([getattr(block, name) for block in blocks], dtype=np.int64)
            for name in ("first", "second", "order")
        )
        canonical = self._canonical(order)
        for number in self.commuting:
            mine = np.flatnonzero((template == number) & ~canonical)
            if len(mine):
                canonical[mine] = self._canonical(self._orders(second[mine], first[mine]))
        kept = classes[classes != NONE] if last and size > 1 else classes
        return Level(template, first, second, kept, canonical, len(classes))

    def _values(self, block: _Block) -> Any:
        """The values of a block's terms, computed once more."""
        found = self._function(block.template, block.operands)
        assert found is not None
        parts = []
        for start in range(0, len(block), 1 << 14):
            some = slice(start, start + (1 << 14))
            operands = self._operands(block.first[some], block.second[some])
            parts.append(found[0](operands).reshape(len(operands[0]) // SAMPLES, -1))
        return np.concatenate(parts)

    def _commuting(self, level: Level) -> frozenset[int]:
        """Templates whose operands may be exchanged, as the fingerprints say."""
        found = set()
        for number, item in enumerate(self.templates):
            if item.arity != 2:
                continue
            mine = np.flatnonzero(level.template == number)
            known = {(int(level.first[at]), int(level.second[at])): int(level.classes[at]) for at in mine}
            if known and all(known.get((b, a)) == value for (a, b), value in known.items()):
                found.add(number)
        return frozenset(found)


def _in_order(futures: Iterator[Future[_Block]]) -> Iterator[_Block]:
    """Their results, a few computed ahead: what waits holds memory."""
    waiting: deque[Future[_Block]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) > 2 * THREADS:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def _chunks(ids: Ids) -> Callable[[int], Iterator[tuple[Ids, Ids]]]:
    def chunks(most: int) -> Iterator[tuple[Ids, Ids]]:
        for start in range(0, len(ids), most):
            some = ids[start : start + most]
            yield some, np.full(len(some), NONE)

    return chunks


def _narrow(numbers: Any) -> NDArray[np.int32]:
    return np.asarray(numbers, np.int32)


def _balanced(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Samples of whole numbers, of which as many are above zero as below; of images few are, so that some windows have
    none, or nearly all."""
    numbers = random.integers(1, 10, (SAMPLES, prod(shape)))
    signs = np.resize((-1, 1), numbers.shape)
    if len(shape) == 4 and shape[0] == 1:
        signs = np.stack([np.resize((sign,) * 6 + (-sign,), prod(shape)) for sign in np.resize((-1, 1), SAMPLES)])
    if numbers.shape[1] == 1:
        return numbers * np.resize((-1, 1), SAMPLES)[:, None]
    return numbers * random.permuted(signs, axis=1)


def _is_image(item: Input) -> bool:
    """A first dimension of one stands for a batch: its elements are multiples of 81, so that means of 3×3 windows of
    means are whole numbers in the sense of order too."""
    return len(item.shape) == 4 and item.shape[0] == 1


def constant_values(item: Input) -> Any:
    """A constant's elements, as PyTorch makes them."""
    from girih.rewrite.prove.refutation.instances import Instance, computed
    from girih.workshop.generate.vocabulary import constant_term

    symbols = symbols_of(item.constant, item.shape)
    assert symbols is not None
    (value,) = computed((constant_term(item.constant),), Instance(symbols, {}))
    return value.numpy()
