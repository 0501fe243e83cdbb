"""Cost tables, each kept once, and the operations on them, each done once.

Every table is an n-dimensional float64 array whose smallest entry is 0 (what was subtracted is handed back beside
it), named by a number; equal contents get equal numbers. An operation is remembered under the numbers of its
operands. A network of 36 identical layers thus costs as one, and a long chain costs as its transient: min-plus
powers of a table, less a constant, soon repeat (Baccelli et al., *Synchronization and Linearity*, 1992, §3.7).

Cost: hashing is linear in the entries of a new table; `project` costs entries of the result × labels × factors,
less the rows that cannot improve any entry.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numba
import numpy as np

Key = tuple[tuple[int, tuple[int, ...]], ...]
"""Tables with, for each axis, its place in the joint scope; the last place is the variable that is minimised out."""


@numba.njit(cache=True)
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
        self._known: dict[tuple[tuple[int, ...], bytes], int] = {}
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
        content = array.tobytes() if array.nbytes <= 64 else hashlib.blake2b(array, digest_size=16).digest()
        key = (array.shape, content)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.arrays)
            self.arrays.append(array)
            self.entries += array.size
        return number, low

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
        # The fewer tables move with the innermost axis, the more of the sum is done once for a whole row.
        count = [sum(d in places for _, places in key) for d in range(dims)]
        order = sorted(range(dims), key=lambda d: (-count[d], -sizes[d] if count[d] == 1 else 0, d))
        rank = {d: i for i, d in enumerate(order)}
        rank[dims] = dims - 0.5  # the minimised variable: just before the innermost axis
        innermost = order[-1]
        rank[innermost] = dims
        tables = sorted(key, key=lambda one: innermost in one[1])
        still = sum(innermost not in places for _, places in tables)
        parts, at, start = [], [], 0
        strides = np.zeros((len(tables), dims), np.int64)
        steps = np.zeros(len(tables), np.int64)
        for k, (table, places) in enumerate(tables):
            axes = sorted(range(len(places)), key=lambda i: rank[places[i]])
            array = np.ascontiguousarray(self.arrays[table].transpose(axes))
            for axis, step in zip(axes, array.strides, strict=True):
                if places[axis] == dims:
                    steps[k] = step // 8
                elif places[axis] != innermost:
                    strides[k, int(rank[places[axis]])] = step // 8
            parts.append(array.ravel())
            at.append(start)
            start += array.size
        shape = [sizes[d] for d in order]
        out = np.empty(shape)
        flat = np.concatenate(parts) if len(parts) > 1 else parts[0]
        _project(flat, np.array(at), strides, steps, np.array(shape), labels, still, out.reshape(-1))
        return out.transpose([order.index(d) for d in range(dims)])
