"""SGD matrix factorisation: ratings per second of one core, against LIBMF, Numba by hand, and implicit's ALS.

10 million ratings of 50,000 users and 20,000 items, of which few have most, at ranks 50 and 100 (`--quick`: fewer, and
without LIBMF and ALS).
Ours is the loop of examples/loops/matrix_factorisation.py: what is compiled is the user's body. The peers: LIBMF (its
own SGD, one thread; its time is that of 6 epochs less that of 1, over 5); the same update by hand in Numba, on ratings
sorted by user (`row-sorted`) and in 16 × 16 blocks (`blocked`), float32 and fastmath; implicit's ALS (one thread), of
which an epoch is one iteration. Runs alternate, medians are shown, in CPU seconds and on the wall. Two workers, on the
wall, against one; beside it what limits them: their CPU seconds over one worker's (memory, false sharing), and the
share of time in which they waited for each other. Test errors after each epoch stand beside those of the same loop run
serially in the order given. The loop is divided in 2 rounds of one time part for each worker.

Floors: `--floor` times the fastest peer at each rank; two workers 1.8 times one; errors within 1 % of serial ones. Of
`--quick`, whose data fit into a cache and whose epochs learn little, times have no floor, and errors lie within 5 %. A
peer that is not installed is named, with the extra that has it, and the rest is measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, clock, median, note, repeats_option, since

USERS, ITEMS, RATINGS = 50_000, 20_000, 10_000_000
RANKS = (50, 100)
STEP, EPOCHS = 0.01, 4
TWO, NEAR, QUICK_NEAR = 1.8, 0.01, 0.05
EXTRAS = {"LIBMF": ("libmf", "benchmarks-compiled"), "ALS": ("implicit", "benchmarks")}
"""Peers: the module, and girih's extra that installs it."""
DIVIDED: dict[str, Any] = {"ordered": False, "pipelined": 1, "rounds": 2}
"""Threads send each other nothing that more parts would hide; and a row that meets half of all columns at once learns
more in the first epoch than one that meets a quarter."""


def ratings(count: int, users: int, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users and items by powers of their rank, values of a model of rank 8 with noise."""
    draw = np.random.default_rng(0)

    def chosen(size: int, power: float) -> np.ndarray:
        weights = 1 / np.arange(1, size + 1) ** power
        return draw.permutation(size)[draw.choice(size, count, p=weights / weights.sum())].astype(np.int32)

    i, j = chosen(users, 0.6), chosen(items, 0.8)
    u, v = (draw.standard_normal((size, 8)).astype(np.float32) for size in (users, items))
    values = np.einsum("ij,ij->i", u[i], v[j]) / 4 + 3 + 0.3 * draw.standard_normal(count)
    return i, j, values.astype(np.float32)


def factors(rank: int, users: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    scale = (3 / rank) ** 0.5
    return tuple((scale * (1 + 0.3 * draw.standard_normal((size, rank)))).astype(np.float32) for size in (users, items))  # type: ignore[return-value]


def sgd(key, v, W, H, step):  # type: ignore[no-untyped-def]
    i, j = key
    d = v - W[i] @ H[j]
    W[i], H[j] = W[i] + step * d * H[j], H[j] + step * d * W[i]


def by_hand() -> Any:
    import numba

    @numba.njit(nogil=True, fastmath=True)
    def epoch(i, j, values, w, h, step):  # type: ignore[no-untyped-def]
        rank = w.shape[1]
        for p in range(len(i)):
            a, b = w[i[p]], h[j[p]]
            total = np.float32(0)
            for k in range(rank):
                total += a[k] * b[k]
            d = (values[p] - total) * step
            for k in range(rank):
                x, y = a[k], b[k]
                a[k] = x + d * y
                b[k] = y + d * x

    return epoch


class Test:
    """Errors on ratings that were kept back."""

    def __init__(self, kept: tuple[np.ndarray, ...]) -> None:
        self.i, self.j, self.values = kept

    def error(self, w: np.ndarray, h: np.ndarray) -> float:
        total = 0.0
        for first in range(0, len(self.i), 100_000):
            cut = slice(first, first + 100_000)
            total += float(((self.values[cut] - np.einsum("ij,ij->i", w[self.i[cut]], h[self.j[cut]])) ** 2).sum())
        return (total / len(self.i)) ** 0.5


def libmf_epoch(data: tuple[np.ndarray, ...], rank: int) -> Callable[[], Any]:
    """Seconds of one epoch of LIBMF: its reading and sorting of the ratings taken away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mf = silenced(lambda: importlib.import_module("libmf.mf"))
    table = np.column_stack([data[0], data[1], data[2]]).astype(np.float32)

    def seconds() -> Any:
        taken = []
        for epochs in (1, 6):
            engine = mf.MF(nr_iters=epochs, k=rank, nr_threads=1, nr_bins=20, quiet=True)
            began = clock()
            engine.fit(table)
            taken.append(since(began))
        return type(taken[0])((taken[1].cpu - taken[0].cpu) / 5, (taken[1].wall - taken[0].wall) / 5)

    return seconds


def als_epoch(data: tuple[np.ndarray, ...], rank: int, shape: tuple[int, int]) -> Callable[[], Any]:
    import implicit.als
    import scipy.sparse

    table = scipy.sparse.coo_matrix((np.abs(data[2]), (data[0], data[1])), shape=shape).tocsr()

    def seconds() -> Any:
        taken = []
        for count in (1, 3):
            model = implicit.als.AlternatingLeastSquares(
                factors=rank, iterations=count, num_threads=1, use_gpu=False, random_state=0
            )
            began = clock()
            model.fit(table, show_progress=False)
            taken.append(since(began))
        return type(taken[0])((taken[1].cpu - taken[0].cpu) / 2, (taken[1].wall - taken[0].wall) / 2)

    return seconds


def silenced(work: Callable[[], Any]) -> Any:
    """LIBMF prints from C."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            return work()
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def peers_of(wanted: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """(the peers that can be measured, a sentence for each of the others)."""
    missing = {name: EXTRAS[name] for name in wanted if importlib.util.find_spec(EXTRAS[name][0]) is None}
    words = tuple(
        f"{name} was not measured: {module} is not installed; get it by `pip install 'girih[{extra}]'`"
        for name, (module, extra) in missing.items()
    )
    return frozenset(wanted) - missing.keys(), words


def measure(options: argparse.Namespace) -> Report:
    import girih.loop as gl
    from girih.loop.explain import waited

    users, items, count = (USERS, ITEMS, RATINGS) if not options.quick else (2000, 1000, 200_000)
    i, j, values = ratings(count, users, items)
    held = np.random.default_rng(2).random(count) < 0.02
    data = (i[~held], j[~held], values[~held])
    test = Test((i[held], j[held], values[held]))
    space = gl.sparse(data[:2], data[2], shape=(users, items))
    rows, misses = [], []
    hand = by_hand()
    installed, missing = peers_of(() if options.without_peers or options.quick else EXTRAS)
    for rank in RANKS:
        w0, h0 = factors(rank, users, items)
        sorted_by_row = tuple(np.ascontiguousarray(item[np.lexsort((data[1], data[0]))]) for item in data)
        block = (data[0].astype(np.int64) * 16 // users) * 16 + data[1].astype(np.int64) * 16 // items
        blocked = tuple(np.ascontiguousarray(item[np.argsort(block, kind="stable")]) for item in data)
        peers: dict[str, Callable[[], Any]] = {}
        for name, ordered in (("row-sorted", sorted_by_row), ("blocked", blocked)):
            w, h = w0.copy(), h0.copy()
            hand(*(item[:10] for item in ordered), w, h, np.float32(STEP))
            peers[name] = _epoch_of(hand, ordered, w, h)
        if "LIBMF" in installed:
            peers["LIBMF"] = libmf_epoch(data, rank)
        if "ALS" in installed:
            peers["ALS"] = als_epoch(data, rank, (users, items))
        loops, arrays = {}, {}
        for workers in (1, 2):
            loops[workers] = gl.parallel_for(space, workers=workers, **DIVIDED)(sgd)
            arrays[workers] = (gl.array(w0), gl.array(h0))
            loops[workers](*arrays[workers], step=0.0)  # lays the ratings out, compiles

        waits: list[float] = []

        def ours(workers: int, loops: Any = loops, arrays: Any = arrays, waits: list[float] = waits) -> Any:
            began = clock()
            loops[workers](*arrays[workers], step=STEP)
            taken = since(began)
            if workers > 1:
                waits.append(waited(loops[workers].spans, workers))
            return taken

        taken: dict[str, list[Any]] = {name: [] for name in (*peers, "one", "two")}
        for _ in range(1 if options.quick else options.repeats):
            for name, peer in peers.items():
                if name in ("LIBMF", "ALS") and len(taken[name]) >= 2:
                    continue
                taken[name].append(silenced(peer))
            for _ in range(3):
                taken["one"].append(ours(1))
                taken["two"].append(ours(2))
        middle = {name: median(found) for name, found in taken.items()}
        speed = {name: len(data[0]) / found.cpu / 1e6 for name, found in middle.items()}
        best = max((name for name in peers), key=lambda name: speed[name])
        wall = middle["one"].wall / middle["two"].wall
        near = errors(gl, space, test, w0, h0)
        row: Row = {
            "rank": rank,
            "ours": round(speed["one"], 1),
            **{name: round(speed[name], 1) for name in peers},
            "best": best,
            "ratio": round(speed["one"] / speed[best], 2),
            "two": round(wall, 2),
            "two cpu": round(middle["two"].cpu / middle["one"].cpu, 2),
            "waited": f"{np.median(waits):.1%}",
            "cpu": f"{middle['one']}",
            "error": round(near[1], 4),
            "serial": round(near[2], 4),
            "apart": round(near[0], 4),
        }
        note(row)
        rows.append(row)
        if row["ratio"] < options.floor:
            misses.append(f"rank {rank}: {row['ratio']} × {best}")
        if wall < TWO and not options.quick:
            misses.append(f"rank {rank}: two workers {wall:.2f} × one")
        if near[0] > (QUICK_NEAR if options.quick else NEAR):
            misses.append(f"rank {rank}: errors {near[0]:.1%} above serial ones")
    columns = (("rank", "rank"), ("ours", "ours"), *((name, name) for name in peers), ("best peer", "best"),
               ("ours / best", "ratio"), ("2 workers ×", "two"), ("their CPU ×", "two cpu"), ("waited", "waited"),
               ("epoch, CPU / wall s", "cpu"),
               ("test error", "error"), ("serial", "serial"), ("worst epoch, above serial", "apart"))  # fmt: skip
    return Report(
        f"millions of ratings per CPU second of one core; {len(data[0]):,} ratings, {users:,} × {items:,}",
        columns,
        tuple(rows),
        f"{min(row['ratio'] for row in rows)} × the best peer, two workers {min(row['two'] for row in rows)} ×",
        tuple(misses), missing,
    )  # fmt: skip


def _epoch_of(hand: Any, data: tuple[np.ndarray, ...], w: np.ndarray, h: np.ndarray) -> Callable[[], Any]:
    def seconds() -> Any:
        began = clock()
        hand(*data, w, h, np.float32(STEP))
        return since(began)

    return seconds


def errors(gl: Any, space: Any, test: Test, w0: np.ndarray, h0: np.ndarray) -> tuple[float, float, float]:
    """(how much worse than serial the worst epoch is, the last error on two workers, the last serial one)."""
    found: dict[str, list[float]] = {"two": [], "serial": []}
    for name in found:
        loop = gl.parallel_for(space, workers=2, **DIVIDED)(sgd)
        w, h = gl.array(w0), gl.array(h0)
        for _ in range(EPOCHS):
            (loop if name == "two" else loop.serial)(w, h, step=STEP)
            found[name].append(test.error(w.values, h.values))
    apart = max((a - b) / b for a, b in zip(found["two"], found["serial"], strict=True))
    return apart, found["two"][-1], found["serial"][-1]


def _options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--without-peers", action="store_true", help="without LIBMF and ALS")


BENCHMARK = Benchmark("loops_mf", __doc__ or "", measure, 1.0, "times the fastest peer's ratings per second", _options,
                      quick_floor=0.0)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
