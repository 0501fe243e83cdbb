"""A sum of cost tables over small sets of variables, and its exact reductions, each undone by `labels`.

`eliminate` is bucket elimination (Dechter 1999): the tables that mention a variable are added and the variable is
minimised out. Cheapest result first, and among equals the variable that has swallowed the fewest: a chain is then
contracted in pairs, so that equal pieces meet equal pieces and the store (`tables.py`) recognises them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from girih.layout.budget import Budget
from girih.partition.solver.tables import Tables

Scope = tuple[int, ...]

VARIABLE, PROJECTION, ADDITION = 40_000.0, 60_000.0, 1.0
"""Nanoseconds of dropping a variable whose projection is known, of one that is not, and of each addition in it."""


class Factors:
    """Variables with `sizes[v]` labels (0: gone), tables over sorted scopes, and a constant."""

    def __init__(self, sizes: Sequence[int], store: Tables) -> None:
        self.store = store
        self.sizes = list(sizes)
        self.constant = 0.0
        self.tables: dict[Scope, int] = {}
        self.around: list[set[Scope]] = [set() for _ in self.sizes]
        self.near: list[set[int]] = [set() for _ in self.sizes]
        self.depth = [0] * len(self.sizes)
        self.trail: list[tuple] = []
        self.left = len(self.sizes)
        self.kept: dict[int, np.ndarray] = {}

    def copy(self) -> Factors:
        other = Factors((), self.store)
        other.sizes, other.constant, other.left = list(self.sizes), self.constant, self.left
        other.tables = dict(self.tables)
        gone: set = set()  # one for all variables that are gone: nothing is ever added to theirs
        other.around = [set(x) if size else gone for x, size in zip(self.around, self.sizes, strict=True)]
        other.near = [set(x) if size else gone for x, size in zip(self.near, self.sizes, strict=True)]
        other.depth, other.trail, other.kept = list(self.depth), list(self.trail), dict(self.kept)
        return other

    def variables(self) -> list[int]:
        return [v for v, size in enumerate(self.sizes) if size]

    def put(self, scope: Scope, table: int, constant: float = 0.0) -> None:
        self.constant += constant
        old = self.tables.get(scope)
        if old is None:
            self.tables[scope] = table
            for v in scope:
                self.around[v].add(scope)
                if len(scope) > 1:
                    self.near[v].update(scope)
                    self.near[v].discard(v)
        else:
            self.tables[scope], constant = self.store.add(old, table)
            self.constant += constant

    def take(self, scope: Scope) -> int:
        for v in scope:
            self.around[v].discard(scope)
        return self.tables.pop(scope)

    def fix(self, v: int, label: int) -> None:
        """Conditions on a label: each table around is cut, none are joined."""
        for scope in list(self.around[v]):
            place = scope.index(v)
            table, constant = self.store.at(self.take(scope), place, label)
            rest = scope[:place] + scope[place + 1 :]
            if rest:
                self.put(rest, table, constant)
            else:  # a lone number: 0, or inf where the label is forbidden
                self.constant += constant + float(self.store.arrays[table])
        self.trail.append((v, label))
        self._gone(v)

    def _gone(self, v: int) -> None:
        for x in self.near[v]:
            self.near[x].discard(v)
        self.near[v] = set()
        self.sizes[v] = 0
        self.left -= 1

    def drop(self, v: int) -> None:
        """Minimises v out: the tables around become one over the neighbours."""
        neighbours = tuple(sorted(self.near[v]))
        place = {x: i for i, x in enumerate(neighbours)}
        place[v] = len(neighbours)
        scopes = list(self.around[v])
        key = sorted((self.take(scope), tuple([place[x] for x in scope])) for scope in scopes)
        self.trail.append((v, neighbours, tuple(key)))
        if key:
            sizes = [self.sizes[x] for x in neighbours]
            table, constant = self.store.project(tuple(key), sizes, self.sizes[v])
            if neighbours:
                self.put(neighbours, table, constant)
            else:
                self.constant += constant + float(self.store.arrays[table])
        for x in neighbours:
            self.depth[x] = max(self.depth[x], self.depth[v] + 1)
        self._gone(v)

    def restrict(self, kept: Mapping[int, np.ndarray]) -> None:
        """Keeps only these labels (sorted, some and not all) of these variables."""
        names = {v: np.asarray(labels, np.int32).tobytes() for v, labels in kept.items()}
        for scope in {scope for v in kept for scope in self.around[v]}:
            chosen = tuple([names.get(v) for v in scope])
            self.tables[scope], constant = self.store.select(self.tables[scope], chosen)
            self.constant += constant
        for v, labels in kept.items():
            self.sizes[v] = len(labels)
            self.trail.append((v, labels))
            self.kept[v] = self.kept[v][labels] if v in self.kept else labels

    def current(self, v: int, labels: np.ndarray | None) -> int:
        """Where the variable's label among these (in the first numbering) now is; 0 if it is gone or unknown."""
        if labels is None:
            return 0
        if v not in self.kept:
            return int(labels[v])
        labels_there = np.flatnonzero(self.kept[v] == labels[v])
        return int(labels_there[0]) if len(labels_there) else 0

    def eliminate(
        self,
        entries: int,
        work: float = math.inf,
        budget: Budget | None = None,
        hold: Callable[[int], int] | None = None,
    ) -> bool:
        """Drops variables while a result has at most `entries` and costs at most `work` additions.

        With `hold` nothing is left: where all that remains is too large, variables with the most neighbours are
        fixed at the labels that it gives, one after the other. False where some were."""
        sizes, near, depth = self.sizes, self.near, self.depth
        budget = budget or Budget(math.inf)

        def price(v: int) -> int:
            return math.prod([sizes[x] for x in near[v]]) if sizes[v] > 1 else 0

        heap = [(price(v), depth[v], v) for v, size in enumerate(sizes) if size]
        heapq.heapify(heap)
        busiest: list[int] | None = None
        while heap:
            known, deep, v = heapq.heappop(heap)
            if not sizes[v]:
                continue
            size, width = price(v), sizes[v]
            if size > known or depth[v] > deep:
                heapq.heappush(heap, (size, depth[v], v))
                continue
            around = near[v]
            if sizes[v] == 1:
                self.fix(v, 0)
            elif size > entries or size * sizes[v] > work:
                if hold is None:
                    continue
                heapq.heappush(heap, (size, depth[v], v))
                if busiest is None:
                    busiest = sorted(self.variables(), key=lambda v: (len(near[v]), -v))
                while not sizes[busiest[-1]]:
                    busiest.pop()
                v = busiest.pop()
                around = near[v]
                self.fix(v, hold(v))
            else:
                if budget.late:
                    if hold is None:
                        break
                    entries = min(entries, 256)  # what is left is held, so that it ends
                known = self.store.operations
                self.drop(v)
                budget.spend(VARIABLE + (PROJECTION + size * width * ADDITION if self.store.operations > known else 0))
            for x in around:
                heapq.heappush(heap, (price(x), depth[x], x))
        return busiest is None

    def forecast(self, enough: int) -> tuple[int, int]:
        """What `eliminate` without limits would meet: entries of the largest result, and additions of the costliest
        one. Stops above `enough` entries."""
        sizes, near = self.sizes, [set(x) for x in self.near]
        price = {v: math.prod([sizes[x] for x in near[v]]) for v in self.variables()}
        heap = [(size, v) for v, size in price.items()]
        heapq.heapify(heap)
        largest = work = 0
        while heap:
            size, v = heapq.heappop(heap)
            if price.get(v) != size:
                continue
            del price[v]
            largest, work = max(largest, size), max(work, size * sizes[v])
            if largest > enough:
                break
            for x in near[v]:
                near[x] |= near[v]
                near[x] -= {x, v}
            for x in near[v]:
                price[x] = math.prod([sizes[y] for y in near[x]])
                heapq.heappush(heap, (price[x], x))
        return largest, work

    def labels(self) -> np.ndarray:
        """Undoes the trail, last first; every variable must be gone."""
        label = np.zeros(len(self.sizes), np.int64)
        arrays = self.store.arrays
        for entry in reversed(self.trail):
            v = entry[0]
            if len(entry) == 3:
                _, neighbours, key = entry
                if not key:
                    continue
                total = 0.0
                for table, places in key:
                    index = tuple([slice(None) if p == len(neighbours) else label[neighbours[p]] for p in places])
                    total = total + arrays[table][index]
                label[v] = total.argmin()  # type: ignore[attr-defined]
            elif isinstance(entry[1], int):
                label[v] = entry[1]
            else:
                label[v] = entry[1][label[v]]
        return label
