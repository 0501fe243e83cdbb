"""200 loops of every kind: is any judged parallel that is not, and are the thesis' loops judged as the thesis does?

The loops of Orion's thesis and its figures, ours of many kinds (`benchmarks.loop_bodies`), and the rest generated at
random. An oracle runs every iteration in plain Python on arrays that note which elements it touches: iterations that
share one of which one writes depend on each other. Of each loop, on 2 and 3 workers: no two iterations that depend on
each other lie in blocks that may run at once; the result of an ordered loop is the serial one, and has the bits of one
worker's; that of an unordered loop is the result of a serial order of its blocks; a second run has the same bits.
`parallel`: judged 1D, 2D or unimodular. `missed`: judged serial, though the oracle finds a dimension that divides it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.loop_bodies import ours, paper
from benchmarks.loop_cases import Case, conflict, generated, problems, touched
from girih.loop.capture.errors import LoopError

LOOPS = 200


def missed(case: Case) -> bool:
    """Does a dimension divide the loop by what its iterations touch, for this data?"""
    logs = touched(case)
    dims = len(case.space.shape)
    keys = [key if isinstance(key, tuple) else (key,) for key, _ in logs]
    for dim in range(dims):
        apart = [(a, b) for a in range(len(logs)) for b in range(a) if keys[a][dim] != keys[b][dim]]
        if apart and not any(conflict(logs[a][1], logs[b][1]) for a, b in apart):
            return True
    return False


def measure(options: argparse.Namespace) -> Report:
    kinds = {"of the thesis": paper(), "ours": ours()}
    if options.quick:
        kinds = {name: cases[::6] for name, cases in kinds.items()}
    count = 15 if options.quick else LOOPS
    kinds["at random"] = [generated(seed) for seed in range(count - sum(map(len, kinds.values())))]
    rows: list[Row] = []
    misses: list[str] = []
    for name, cases in kinds.items():
        judged: Counter[str] = Counter()
        wrong = other = lost = refused = 0
        for case in cases:
            try:
                found = problems(case, (2,) if options.quick else (2, 3))
                loop = case.loop(workers=2)
                kind = loop.prepared(loop.bound((), case.given()), 2).strategy.kind
            except LoopError as error:
                refused += 1
                misses.append(f"{case.name} is refused: {error}")
                continue
            judged[kind] += 1
            wrong += bool(found)
            misses += [f"{case.name}: {text}" for text in found[:2]]
            if case.kinds and kind not in case.kinds:
                other += 1
                misses.append(f"{case.name} is judged {kind}, not {' or '.join(case.kinds)}")
            if kind == "serial":
                lost += missed(case)
        row: Row = {
            "loops": name, "count": len(cases), **{kind: judged[kind] for kind in ("1d", "2d", "unimodular", "serial")},
            "wrong": wrong, "otherwise": other, "missed": lost, "refused": refused,
        }  # fmt: skip
        note(row)
        rows.append(row)
    columns = (("loops", "loops"), ("number", "count"), ("1D", "1d"), ("2D", "2d"), ("unimodular", "unimodular"),
               ("serial", "serial"), ("wrong", "wrong"), ("judged otherwise", "otherwise"), ("missed", "missed"),
               ("refused", "refused"))  # fmt: skip
    total = sum(int(row["count"]) for row in rows)
    parallel = sum(int(row[kind]) for row in rows for kind in ("1d", "2d", "unimodular"))
    return Report(
        f"{total} loops against an oracle that runs them", columns, tuple(rows),
        f"{total} loops, {parallel} parallel, none of them wrongly; the thesis' judged as there", tuple(misses),
    )  # fmt: skip


BENCHMARK = Benchmark("loops_analysis", __doc__ or "", measure, 0.0, "loops that may be wrong")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
