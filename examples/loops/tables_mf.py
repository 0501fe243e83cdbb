"""Factorise ratings by workers that share the items' factors in a table.

    python examples/loops/tables_mf.py --workers 2 --staleness 2
    python examples/loops/tables_mf.py --adaptive --bandwidth "200 Mbit/s"

A user's factors stay with the worker that has the user's ratings; an item's are a row of a table. A clock is one pass
over a worker's ratings. With `--adaptive` the servers choose the step sizes (AdaRevision), and the workers send
gradients. The ratings are drawn from a model with noise, items by a power law.
"""

from __future__ import annotations

import argparse
from typing import Any

import numba
import numpy as np

import girih.loop as gl

USERS, ITEMS, RANK, BATCH, NOISE = 2_000, 500, 8, 5_000, 0.3


def ratings(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(users, items, values)."""
    draw = np.random.default_rng(0)
    users = draw.integers(0, USERS, count)
    items = (ITEMS * draw.random(count) ** 2).astype(np.int64)
    taste, kind = draw.standard_normal((USERS, 4)), draw.standard_normal((ITEMS, 4))
    return users, items, (taste[users] * kind[items]).sum(axis=1) / 2 + NOISE * draw.standard_normal(count)


@numba.njit(nogil=True)
def pass_over(users, items, values, W, H, gradients, step, move):
    """One step for each rating. W and, if `move`, H change; gradients: the sum of H's."""
    error = 0.0
    for n in range(len(values)):
        i, j = users[n], items[n]
        d = values[n] - np.dot(W[i], H[j])
        error += d * d
        for k in range(W.shape[1]):
            w, g = W[i, k], -d * W[i, k] + 0.02 * H[j, k]
            W[i, k] += step * (d * H[j, k] - 0.02 * w)
            gradients[j, k] += g
            if move:
                H[j, k] -= step * g
    return error


def work(t: Any, rank: int, count: int, passes: int, adaptive: bool) -> list[float]:
    """The mean squared error of each pass over this worker's ratings."""
    users, items, values = ratings(count)
    mine = users % t.workers == rank
    users, items, values = users[mine], items[mine], values[mine]
    W = t.state["W"] if t.state else 0.3 * np.random.default_rng(rank).standard_normal((USERS, RANK)).astype(np.float32)
    errors = []
    for _ in range(t.ticks, passes):
        total = 0.0
        for begin in range(0, len(values), BATCH):
            part = slice(begin, begin + BATCH)
            rows, local = np.unique(items[part], return_inverse=True)
            H = t["H"].get_rows(rows)
            before, gradients = H.copy(), np.zeros_like(H)
            total += pass_over(users[part], local, values[part], W, H, gradients, 0.02, not adaptive)
            t["H"].inc_rows(rows, gradients if adaptive else H - before)
        errors.append(total / len(values))
        t.clock(state={"W": W})
    return errors


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--ratings", type=int, default=100_000)
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--adaptive", action="store_true", help="AdaRevision on the servers")
    parser.add_argument("--bandwidth", help='send between clocks, within such a budget: "200 Mbit/s"')
    parser.add_argument("--backend", default="processes", help="processes, threads, ray or ray://host:port")
    options = parser.parse_args(arguments)
    with gl.tables(options.workers, options.staleness, bandwidth=options.bandwidth, backend=options.backend) as t:
        start = 0.3 * np.random.default_rng(99).standard_normal((ITEMS, RANK))
        t.dense("H", ITEMS, RANK, initial=start, function=gl.AdaRevision(step=0.3) if options.adaptive else None)
        errors = np.mean(t.run(work, options.ratings, options.passes, options.adaptive), axis=0)
    for number, error in enumerate(errors, 1):
        print(f"pass {number:2d}: mean squared error {error:.4f}")
    return [float(error) for error in errors]


if __name__ == "__main__":
    main()
