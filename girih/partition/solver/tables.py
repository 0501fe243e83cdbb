"""Cost tables, each kept once, and the operations on them, each done once.

Every table is an n-dimensional float64 array whose smallest entry is 0 (what was subtracted is handed back beside
it), named by a number; equal contents get equal numbers. An operation is remembered under the numbers of its
operands. A network of 36 identical layers thus costs as one, and a long chain costs as its transient: min-plus
powers of a table, less a constant, soon repeat (Baccelli et al., *Synchronization and Linearity*, 1992, §3.7).

Cost: hashing is linear in the entries of a new table; `project` costs entries of the result × labels × factors,
less the rows that cannot improve any entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from girih.layout.compiled import compiled

TOGETHER = 1 << 17
"""Numbers that `_project_by_numpy` holds at a time, at most, where a label has no more."""

Key = tuple[tuple[int, tuple[int, ...]], ...]
"""Tables with, for each axis, its place in the joint scope; the last place is the variable that is minimised out."""


def _project_by_numpy(
    flat: np.ndarray,
    at: np.ndarray,
    strides: np.ndarray,
    steps: np.ndarray,
    sizes: np.ndarray,
    labels: int,
    still: int,
    out: np.ndarray,
) -> None:
    """`_project`, with all entries of some labels at a time; sums are made in the same order."""
    shape = tuple(sizes.tolist())
    best = out.reshape(shape)
    best.fill(np.inf)
    together = max(1, TOGETHER // out.size)
    for first in range(0, labels, together):
        count, total = min(together, labels - first), np.zeros(1)
        for k in range(len(at)):
            row, step = (shape[-1], 8) if k >= still else (1, 0)
            steps_of = (8 * int(steps[k]), *(8 * strides[k]).tolist(), step)
            part = flat[at[k] + steps[k] * first :]
            total = total + as_strided(part, (count, *shape[:-1], row), steps_of)
        np.minimum(best, total.min(axis=0), out=best)


@compiled(
    lambda flat, at, strides, steps, sizes, labels, still, out: out.size * labels * len(at) / 40,
    _project_by_numpy,
)
def _project(
    flat: np.ndarray,
    at: np.ndarray,
    strides: np.ndarray,
    steps: np.ndarray,
    sizes: np.ndarray,
    labels: int,
    still: int,
    out: np.ndarray,
) -> None:
    """out[u, w] = min over v of Σ_k flat[at[k] + strides[k]·u + steps[k]·v + (w if k >= still)].

    The entries are at least 0, so that a row v whose still part is no less than all of out[u] is passed over."""
    factors, outer, last = len(at), len(sizes) - 1, sizes[-1]
    rows = 1
    for d in range(outer):
        rows *= sizes[d]
    where = np.zeros(len(sizes), np.int64)
    held = np.empty(labels)
    line = np.empty(last)
    for u in range(rows):
        target = out[u * last : (u + 1) * last]
        target[:] = np.inf
        first = 0
        for v in range(labels):
            held[v] = 0.0
            for k in range(still):
                held[v] += flat[at[k] + steps[k] * v]
            if held[v] < held[first]:
                first = v
        highest = np.inf
        for turn in range(labels):
            v = first if turn == 0 else (turn - 1 if turn <= first else turn)
            c = held[v]
            if not c < highest:
                continue
            if factors - still == 1:
                o = at[still] + steps[still] * v
                row = flat[o : o + last]
                for w in range(last):
                    x = c + row[w]
                    target[w] = x if x < target[w] else target[w]
            else:
                line[:] = c
                for k in range(still, factors):
                    o = at[k] + steps[k] * v
                    row = flat[o : o + last]
                    for w in range(last):
                        line[w] += row[w]
                for w in range(last):
                    x = line[w]
                    target[w] = x if x < target[w] else target[w]
            if turn % 4 == 0:
                highest = -np.inf
                for w in range(last):
                    highest = target[w] if target[w] > highest else highest
        for d in range(outer - 1, -1, -1):
            where[d] += 1
            for k in range(factors):
                at[k] += strides[k, d]
            if where[d] < sizes[d]:
                break
            for k in range(factors):
                at[k] -= strides[k, d] * sizes[d]
            where[d] = 0


class Tables:
    """The store. `arrays[t]` is table t, read-only by custom; operations return (number, constant taken out)."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._known: dict[tuple[tuple[int, ...], int], list[int]] = {}
        self._done: dict[object, tuple[int, float]] = {}
        self.operations = 0
        self.entries = 0

    def keep(self, array: np.ndarray) -> tuple[int, float]:
        """The number of the table and the constant that was subtracted; a table of inf only stays as it is."""
        low = float(array.min())
        if low != 0.0 and math.isfinite(low):
            array = array - low
        elif low != 0.0:
            low = 0.0
        array = np.asarray(array, order="C")  # (ascontiguousarray would give a lone number an axis)
        same = self._known.setdefault((array.shape, hash(array.tobytes())), [])
        for number in same:
            if np.array_equal(self.arrays[number], array):
                return number, low
        same.append(len(self.arrays))
        self.arrays.append(array)
        self.entries += array.size
        return same[-1], low

    def transpose(self, table: int) -> tuple[int, float]:
        key = ("transpose", table)
        if key not in self._done:
            self._done[key] = self.keep(self.arrays[table].T)
        return self._done[key]

    def add(self, one: int, two: int) -> tuple[int, float]:
        key = ("add", one, two) if one < two else ("add", two, one)
        if key not in self._done:
            self._done[key] = self.keep(self.arrays[one] + self.arrays[two])
        return self._done[key]

    def select(self, table: int, chosen: tuple[bytes | None, ...]) -> tuple[int, float]:
        """The table on the chosen labels of each axis (int32 bytes; None for all)."""
        key = ("select", table, chosen)
        if key not in self._done:
            array = self.arrays[table]
            for axis, labels in enumerate(chosen):
                if labels is not None:
                    array = array.take(np.frombuffer(labels, np.int32), axis)
            self._done[key] = self.keep(array)
        return self._done[key]

    def at(self, table: int, axis: int, label: int) -> tuple[int, float]:
        key = ("at", table, axis, label)
        if key not in self._done:
            self._done[key] = self.keep(self.arrays[table].take(label, axis))
        return self._done[key]

    def project(self, key: Key, sizes: Sequence[int], labels: int) -> tuple[int, float]:
        """The sum of the tables of the key, minimised over the variable at the last place."""
        done = self._done.get(key)
        if done is None:
            self.operations += 1
            done = self._done[key] = self.keep(self._computed(key, sizes, labels))
        return done

    def _computed(self, key: Key, sizes: Sequence[int], labels: int) -> np.ndarray:
        dims = len(sizes)
        if dims == 0:
            return np.asarray(sum(self.arrays[t] for t, _ in key).min())  # type: ignore[union-attr]
        # Axes that occur in the same tables make one row; the row that fewest tables move with is the innermost
        # (the rest of the sum is done once for all of it), and a short row has its price too.
        rows: dict[tuple[int, ...], list[int]] = {}
        for d in range(dims):
            rows.setdefault(tuple([k for k, (_, places) in enumerate(key) if d in places]), []).append(d)
        inner = min(rows, key=lambda members: len(members) + 8 / math.prod([sizes[d] for d in rows[members]]))
        outer = sorted(set(range(dims)) - set(rows[inner]), key=lambda d: (-sum(d in p for _, p in key), d))
        order = [*outer, *rows[inner]]
        rank = {d: i for i, d in enumerate([*outer, dims, *rows[inner]])}
        tables = [key[k] for k in range(len(key)) if k not in inner] + [key[k] for k in inner]
        still = len(key) - len(inner)
        parts, at, start = [], [], 0
        strides = np.zeros((len(tables), len(outer)), np.int64)
        steps = np.zeros(len(tables), np.int64)
        for k, (table, places) in enumerate(tables):
            axes = sorted(range(len(places)), key=lambda i: rank[places[i]])
            array = np.ascontiguousarray(self.arrays[table].transpose(axes))
            for axis, step in zip(axes, array.strides, strict=True):
                if places[axis] == dims:
                    steps[k] = step // 8
                elif rank[places[axis]] < len(outer):
                    strides[k, rank[places[axis]]] = step // 8
            parts.append(array.ravel())
            at.append(start)
            start += array.size
        shape = [sizes[d] for d in order]
        out = np.empty(shape)
        flat = np.concatenate(parts) if len(parts) > 1 else parts[0]
        turns = np.array([*shape[: len(outer)], math.prod(shape[len(outer) :])])
        _project(flat, np.array(at), strides, steps, turns, labels, still, out.reshape(-1))
        return out.transpose([order.index(d) for d in range(dims)])
