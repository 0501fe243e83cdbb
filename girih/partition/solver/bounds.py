"""A lower bound of a sum of cost tables by sequential message passing, and the labels that it rules out.

The algorithm is SRMP (Kolmogorov, *A new look at reweighted message passing*, 2015), which on tables over two
variables is TRW-S (Kolmogorov 2006). The cost is written as constant + Σ rest of variables + Σ rest of tables with
every rest at least 0, so that the constant is at all times a lower bound, and a label whose rest exceeds
upper − constant occurs in no solution better than `upper` (reduced-cost fixing). A sweep goes through the
variables in an order; each collects from its tables all that depends on it alone, hands its minimum to the constant,
and what remains in equal shares to those of its tables that reach further on. Sweeps forward and backward alternate.

Cost of a sweep: entries of the tables × variables in each.
"""

from __future__ import annotations

import numpy as np

from girih.layout.compiled import compiled
from girih.partition.solver.factors import Factors


@compiled(fastmath={"nnan", "nsz"})
def _collect(
    flat: np.ndarray, start: int, shape: np.ndarray, places: np.ndarray, moved: np.ndarray, mine: int, out: np.ndarray
) -> None:
    """out[x] = min over the table's entries with x at axis `mine` of entry − what the other axes have moved out."""
    arity = len(shape)
    last = shape[arity - 1]
    out[: shape[mine]] = np.inf
    rows = 1
    for axis in range(arity - 1):
        rows *= shape[axis]
    where = np.zeros(arity, np.int64)
    final = moved[places[arity - 1] : places[arity - 1] + last]
    for number in range(rows):
        c = 0.0
        for axis in range(arity - 1):
            if axis != mine:
                c -= moved[places[axis] + where[axis]]
        if c < np.inf:
            row = flat[start + number * last : start + (number + 1) * last]
            if mine == arity - 1:
                for x in range(last):
                    y = row[x] + c
                    out[x] = y if y < out[x] else out[x]
            else:
                low = np.inf
                for x in range(last):
                    y = row[x] - final[x]
                    low = y if y < low else low
                x = where[mine]
                out[x] = min(out[x], low + c)
        for axis in range(arity - 2, -1, -1):
            where[axis] += 1
            if where[axis] < shape[axis]:
                break
            where[axis] = 0


@compiled()
def _sweep(
    order: np.ndarray,
    position: np.ndarray,
    sizes: np.ndarray,
    offset: np.ndarray,
    rest: np.ndarray,
    first: np.ndarray,
    member: np.ndarray,
    slot: np.ndarray,
    begin: np.ndarray,
    scope: np.ndarray,
    place: np.ndarray,
    table: np.ndarray,
    flat: np.ndarray,
    moved: np.ndarray,
    reduced: np.ndarray,
    constant: float,
    upper: float,
    forward: bool,
) -> float:
    """One sweep; returns the new constant, inf where no solution is better than `upper`."""
    out = np.empty(sizes.max())
    for turn in range(len(order)):
        s = order[turn if forward else len(order) - 1 - turn]
        size, o = sizes[s], offset[s]
        total = rest[o : o + size]
        here = position[s] if forward else -position[s]
        pulls, sends = 0, 0
        for e in range(first[s], first[s + 1]):
            f = member[e]
            earlier, later = False, False
            for a in range(begin[f], begin[f + 1]):
                p = position[scope[a]] if forward else -position[scope[a]]
                earlier |= p < here
                later |= p > here
            sends += later
            if earlier:
                pulls += 1
                b = begin[f]
                _collect(flat, table[f], sizes[scope[b : begin[f + 1]]], place[b : begin[f + 1]], moved, slot[e], out)
                m = place[b + slot[e]]
                for x in range(size):
                    if total[x] < np.inf:
                        total[x] += out[x] - moved[m + x]
                        moved[m + x] = out[x]
        low = np.inf
        for x in range(size):
            low = min(low, total[x])
        constant += low
        if not constant < upper:
            return np.inf
        for x in range(size):
            total[x] -= low
            if not constant + total[x] < upper:
                total[x] = np.inf
                for e in range(first[s], first[s + 1]):
                    moved[place[begin[member[e]] + slot[e]] + x] = -np.inf
            reduced[o + x] = total[x]
        if sends == 0:
            continue
        share = 1.0 / max(sends, pulls)
        for e in range(first[s], first[s + 1]):
            f = member[e]
            later = False
            for a in range(begin[f], begin[f + 1]):
                p = position[scope[a]] if forward else -position[scope[a]]
                later |= p > here
            if later:
                m = place[begin[f] + slot[e]]
                for x in range(size):
                    if total[x] < np.inf:
                        moved[m + x] -= share * reduced[o + x]
        for x in range(size):
            if total[x] < np.inf:
                total[x] = reduced[o + x] * (1.0 - share * sends)
    return constant


class DualBound:
    """The dual state of a `Factors`: made once, swept as often as wanted. `value` never falls."""

    def __init__(self, factors: Factors) -> None:
        self.variables = factors.variables()
        number = {v: i for i, v in enumerate(self.variables)}
        self.sizes = np.array([factors.sizes[v] for v in self.variables], np.int64)
        self.offset = np.concatenate([[0], np.cumsum(self.sizes)])
        self.value = factors.constant
        self.rest = np.zeros(self.offset[-1])
        scopes, tables = [], []
        for scope, t in factors.tables.items():
            if len(scope) == 1:
                i = number[scope[0]]
                self.rest[self.offset[i] : self.offset[i + 1]] += factors.store.arrays[t]
            else:
                scopes.append([number[v] for v in scope])
                tables.append(t)
        used = sorted(set(tables))
        arrays = [factors.store.arrays[t].ravel() for t in used]
        starts = dict(zip(used, np.cumsum([0, *map(len, arrays)]).tolist(), strict=False))
        self.flat = np.concatenate([*arrays, np.zeros(1)])
        self.table = np.array([starts[t] for t in tables], np.int64)
        self.scope = np.array([v for scope in scopes for v in scope], np.int64)
        self.begin = np.concatenate([[0], np.cumsum([len(s) for s in scopes], dtype=np.int64)]).astype(np.int64)
        width = self.sizes[self.scope]
        self.place = np.concatenate([[0], np.cumsum(width)])[:-1].astype(np.int64)
        self.moved = np.zeros(int(width.sum()))
        owner = np.repeat(np.arange(len(scopes)), np.diff(self.begin))
        by = np.argsort(self.scope, kind="stable")
        self.member = owner[by]
        self.slot = by - self.begin[self.member] if len(by) else by
        self.first = np.searchsorted(self.scope[by], np.arange(len(self.variables) + 1))
        self.order = self._ordered(owner)
        self.position = np.empty_like(self.order)
        self.position[self.order] = np.arange(len(self.order))
        self.reduced = self.rest.copy()
        self.work = 1 + sum(len(scope) * int(self.sizes[scope].prod()) for scope in scopes)
        self._forward = True

    def _ordered(self, owner: np.ndarray) -> np.ndarray:
        """A narrow order, that is along the layers: reverse Cuthill–McKee."""
        from scipy.sparse import coo_matrix  # slow to load
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        count, many = len(self.variables), int(len(self.begin) - 1)
        touch = coo_matrix((np.ones(len(owner)), (owner, self.scope)), (many, count)).tocsr()
        order: np.ndarray = reverse_cuthill_mckee((touch.T @ touch).tocsr(), True).astype(np.int64)
        return order

    def sweep(self, upper: float) -> float:
        self.value = _sweep(
            self.order, self.position, self.sizes, self.offset, self.rest, self.first, self.member, self.slot,
            self.begin, self.scope, self.place, self.table, self.flat, self.moved, self.reduced,
            self.value, upper, self._forward,
        )  # fmt: skip
        self._forward = not self._forward
        return float(self.value)

    def costs(self, v: int) -> np.ndarray:
        """What each label of the variable adds to the bound at least; inf where it is ruled out."""
        i = self.variables.index(v)
        cost = self.reduced[self.offset[i] : self.offset[i + 1]].copy()
        cost[np.isinf(self.rest[self.offset[i] : self.offset[i + 1]])] = np.inf
        return cost

    def alive(self) -> dict[int, np.ndarray]:
        """The labels that remain, of the variables that have lost some."""
        kept = {}
        for i, v in enumerate(self.variables):
            alive = np.flatnonzero(self.rest[self.offset[i] : self.offset[i + 1]] < np.inf)
            if len(alive) < self.sizes[i]:
                kept[v] = alive
        return kept

    def promising(self, most: int, slack: float = np.inf) -> dict[int, np.ndarray]:
        """At most so many labels of each variable, those of least reduced cost, and none above `slack`."""
        kept = {}
        for i, v in enumerate(self.variables):
            cost = self.reduced[self.offset[i] : self.offset[i + 1]]
            best = np.argsort(cost, kind="stable")[:most]
            best = np.sort(best[cost[best] <= max(slack, cost[best[0]])])
            if len(best) < self.sizes[i]:
                kept[v] = best
        return kept
