"""The loops over rows, bins and features, compiled; each works on a part of a range, for one thread.

No sum's order depends on how the range was cut: a histogram of a feature is filled by one thread, in the order of the
rows, and what is cut by rows writes to each row alone.
"""

from __future__ import annotations

import numpy as np

from girih.layout.jit import numba

MISSING = 255
CHUNK = 1 << 15
"""Rows that are divided between two leaves at a time."""


@numba.njit(nogil=True, cache=True)
def put_in_bins(first, last, x, thresholds, found):  # type: ignore[no-untyped-def]
    """A search of 8 steps without branches: thresholds are padded with +∞ to 256."""
    for row in range(first, last):
        for feature in range(x.shape[1]):
            value = x[row, feature]
            if np.isnan(value):
                found[row, feature] = MISSING
                continue
            at, step = 0, 128
            while step:
                at += step * (thresholds[feature, at + step - 1] < value)
                step >>= 1
            found[row, feature] = at


@numba.njit(nogil=True, cache=True)
def turn(first, last, rows, columns):  # type: ignore[no-untyped-def]
    """Write rows of bins as columns."""
    for row in range(first, last):
        for feature in range(rows.shape[1]):
            columns[feature, row] = rows[row, feature]


@numba.njit(nogil=True, cache=True)
def differentiate(first, last, raw, target, weights, logistic, pairs):  # type: ignore[no-untyped-def]
    """(gradient, hessian) of the loss of each row: of ½ (raw - target)², or of the log loss."""
    for row in range(first, last):
        if logistic:
            probability = 1 / (1 + np.exp(-raw[row]))
            gradient, hessian = probability - target[row], probability * (1 - probability)
        else:
            gradient, hessian = raw[row] - target[row], 1.0
        weight = weights[row] if len(weights) else 1.0
        pairs[row, 0] = gradient * weight
        pairs[row, 1] = hessian * weight


@numba.njit(nogil=True, cache=True)
def add_leaves(first, last, order, begins, ends, values, raw):  # type: ignore[no-untyped-def]
    """raw += the value of its leaf, for rows at places first … last of the order; leaves ascend by `begins`."""
    for leaf in range(len(begins)):
        for at in range(max(first, begins[leaf]), min(last, ends[leaf])):
            raw[order[at]] += values[leaf]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def fill(table, first, last, rows, order, begin, end, pairs):  # type: ignore[no-untyped-def]
    """Sums of gradients, hessians and rows for each bin of features first … last; table: (features · 256 · 3)."""
    for at in range(np.uint64(first * 768), np.uint64(last * 768)):
        table[at] = 0.0
    for at in range(begin, end):
        row = np.uint64(order[at])
        gradient, hessian = np.float64(pairs[row, np.uint64(0)]), np.float64(pairs[row, np.uint64(1)])
        base = np.uint64(first * 768)
        for feature in range(np.uint64(first), np.uint64(last)):
            cell = base + np.uint64(rows[row, feature]) * np.uint64(3)
            table[cell] += gradient
            table[cell + np.uint64(1)] += hessian
            table[cell + np.uint64(2)] += 1.0
            base += np.uint64(768)


@numba.njit(nogil=True, cache=True)
def best_of(first, last, table, bins, totals, limits, found):  # type: ignore[no-untyped-def]
    """The best split of each feature: found[feature] = gain, bin, missing left, sums of the left side, missing rows."""
    least, hessian_least, l2 = limits
    gradient, hessian, rows = totals
    whole = gradient * gradient / (hessian + l2) if hessian + l2 > 0 else 0.0
    for feature in range(first, last):
        found[feature, 0] = 0.0
        base = feature * 768
        missing = base + 3 * MISSING
        absent = table[missing + 2]
        found[feature, 6] = absent
        for left in range(2 if absent > 0 else 1):
            g, h, n = 0.0, 0.0, 0.0
            if left:
                g, h, n = table[missing], table[missing + 1], absent
            for b in range(bins[feature] if absent > 0 and not left else bins[feature] - 1):
                cell = base + 3 * b
                if table[cell + 2] == 0:  # the same split as the bin before
                    continue
                g += table[cell]
                h += table[cell + 1]
                n += table[cell + 2]
                if n < least or h < hessian_least:
                    continue
                if rows - n < least or hessian - h < hessian_least:
                    break
                other = gradient - g
                gain = g * g / (h + l2) + other * other / (hessian - h + l2) - whole
                if gain > found[feature, 0]:
                    found[feature, 0] = gain
                    found[feature, 1] = b
                    found[feature, 2] = left
                    found[feature, 3] = g
                    found[feature, 4] = h
                    found[feature, 5] = n


@numba.njit(nogil=True, cache=True)
def search(first, last, tables, rows, order, pairs, bins, built, derived, totals, limits, found):  # type: ignore[no-untyped-def]
    """Histograms and best splits, for features first … last, of the new leaves.

    built: (place of the table, begin, end, row of totals and found) of leaves that are counted; derived: (place, place
    of the sibling, row of totals and found): the place has the parent's table, from which the sibling's is taken.
    """
    for item in range(len(built)):
        slot, begin, end, at = built[item]
        fill(tables[slot], first, last, rows, order, begin, end, pairs)
        best_of(first, last, tables[slot], bins, totals[at], limits, found[at])
    for item in range(len(derived)):
        slot, sibling, at = derived[item]
        mine, theirs = tables[slot], tables[sibling]
        for cell in range(first * 768, last * 768):
            mine[cell] -= theirs[cell]
        best_of(first, last, mine, bins, totals[at], limits, found[at])


@numba.njit(nogil=True, cache=True)
def divide(first, last, order, scratch, chunks, splits, columns, lefts):  # type: ignore[no-untyped-def]
    """Each chunk (begin, end, split) of the order: rows that go left from its begin on, others from its end back."""
    for chunk in range(first, last):
        begin, end, split = chunks[chunk]
        feature, threshold, missing_left = splits[split]
        low, high = begin, end
        for at in range(begin, end):
            row = order[at]
            b = columns[feature, row]
            left = missing_left != 0 if b == MISSING else b <= threshold
            scratch[low if left else high - 1] = row
            low += left
            high -= not left
        lefts[chunk] = low - begin


@numba.njit(nogil=True, cache=True)
def gather(first, last, order, scratch, chunks, lefts, to_left, to_right):  # type: ignore[no-untyped-def]
    """What `divide` has set apart, to its places; rows of a leaf stay in their order."""
    for chunk in range(first, last):
        begin, end, _ = chunks[chunk]
        for at in range(lefts[chunk]):
            order[to_left[chunk] + at] = scratch[begin + at]
        for at in range(end - begin - lefts[chunk]):
            order[to_right[chunk] + at] = scratch[end - 1 - at]


@numba.njit(nogil=True, cache=True)
def predict(first, last, x, starts, features, thresholds, missing_left, lefts, rights, values, raw):  # type: ignore[no-untyped-def]
    """raw += the sum of the leaves' values of trees; nodes of a tree follow starts[tree], leaves have feature -1."""
    for row in range(first, last):
        total = 0.0
        for tree in range(len(starts)):
            base = starts[tree]
            at = base
            while features[at] >= 0:
                value = x[row, features[at]]
                left = missing_left[at] if np.isnan(value) else value <= thresholds[at]
                at = base + (lefts[at] if left else rights[at])
            total += values[at]
        raw[row] += total
