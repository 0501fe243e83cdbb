"""ROC's dynamic programme for a device's memory (§4.5): exact, and how much it spares (Figure 4.10).

`Figure 4.3`: the valid states of a GIN layer's training, and the live tensors of each, are those of Table 4.3.
`Random`: small graphs of operations under every cap that can be met, with tensors that have to stay or have to be kept:
the least bytes out and in, for any order of the operations and for the given one, by the programme and by a search that
tries every operation next and every set of tensors that could leave.
`Reddit`: a GCN's training step, operation by operation, on a graph of Reddit's size (232,965 vertices, 114,848,857
edges, 602 features, 41 classes), of two to four layers, with the memory that one operation needs at least and with a
third and two thirds of what more would spare all movement. Features, edges and weights come from the large memory.
Against it: streaming, as NeuGraph does, where every operation loads what it reads and stores what it writes; and the
device as a cache in which the least recently used tensor gives way, as operating systems do, which know no future: they
keep what nobody will read, and store it when it gives way, as nobody else has it. `freed` is such a cache that is told
what is dead: this much of the gain is knowing when a tensor ends, and the rest is the programme's choice.
`Counted`: a GCN trains by a plan under a limit that does not hold all, by the programme and by SwapAdvisor's choice;
what a step copies, as its worker counts it, is what the plan says.
Floors: Table 4.3 to the letter; none of the random graphs differs; bytes counted are those predicted; streaming and the
cache each move at least `--floor` times the bytes, in geometric mean.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain, combinations, pairwise
from statistics import geometric_mean

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note
from girih.search.memory.roc import Front, Operation, Problem, least_copies, live_tensors, valid_states

GRAPHS, QUICK = 200, 20
VERTICES, EDGES, FEATURES, CLASSES, HIDDEN = 232_965, 114_848_857, 602, 41, 256


def operations(*lines: str) -> tuple[Operation, ...]:
    """Of lines such as `b = a w`: what is written, and what is read."""
    parts = [line.split("=") for line in lines]
    return tuple(Operation(frozenset(reads.split()), frozenset(writes.split())) for writes, reads in parts)


# ------------------------------------------------------------------------------------------------- Figure 4.3

GIN = operations(
    "a = g h0", "b = a w1", "h1 = b w2", "dh1 = h1", "db = dh1 b w2", "da = db b a w1", "end = da a g"
)  # fmt: skip
TABLE_4_3 = ("", "g a", "g a b w1", "g a b h1 w1 w2", "g a b w1 w2 dh1", "g a b w1 db", "g a da", "")


def table() -> list[str]:
    """What differs from Table 4.3."""
    states = list(valid_states(GIN))
    wrong = [f"{len(states)} valid states of Figure 4.3, expected 8"] if len(states) != len(TABLE_4_3) else []
    for done, names in zip(states, TABLE_4_3, strict=False):
        if live_tensors(GIN, done) != set(names.split()):
            wrong.append(f"state {sorted(done)} has {sorted(live_tensors(GIN, done))}, expected {names}")
    return wrong


# ------------------------------------------------------------------------------------------------- random graphs


def random_problem(random: np.random.Generator) -> Problem:
    """Up to five operations over up to seven tensors, some of which are given, in the large memory, or kept."""
    count = int(random.integers(2, 6))
    known = [f"x{number}" for number in range(int(random.integers(1, 3)))]
    outside = frozenset(known)
    items = []
    for number in range(count):
        reads = random.choice(known, int(random.integers(1, min(3, len(known)) + 1)), replace=False)
        items.append(Operation(frozenset(map(str, reads)), frozenset({f"t{number}"}), (int(random.integers(0, 3)),)))
        known.append(f"t{number}")
    given = frozenset(name for name in outside if random.random() < 0.3)
    wanted = frozenset(name for name in known if random.random() < 0.2)
    return Problem(
        tuple(items),
        {name: int(random.integers(1, 6)) for name in known},
        given=given,
        stored=(outside - given) | frozenset(name for name in given if random.random() < 0.5),
        wanted=wanted,
        saved=frozenset(name for name in wanted if random.random() < 0.5),
        ordered=bool(random.random() < 0.5),
    )


def exhaustive(problem: Problem, cap: int) -> Front:
    """The least bytes out and in, by trying every operation next and every set of tensors that leaves before it, each
    of which is stored or lost."""
    items, sizes = problem.operations, problem.sizes
    makers = {name: number for number, item in enumerate(items) for name in item.writes}
    before = [
        set(range(number)) if problem.ordered else {makers[name] for name in item.reads if name in makers}
        for number, item in enumerate(items)
    ]

    def size(names: frozenset[str]) -> int:
        return sum(sizes[name] for name in names)

    def subsets(names: frozenset[str]) -> Iterator[frozenset[str]]:
        some = sorted(names)
        return map(frozenset, chain.from_iterable(combinations(some, count) for count in range(len(some) + 1)))

    @cache
    def rest(done: frozenset[int], present: frozenset[str], stored: frozenset[str]) -> frozenset[tuple[int, int]]:
        """(Out, in) of everything that can still be done."""
        if len(done) == len(items):
            kept = problem.wanted | problem.saved <= present | stored
            return frozenset({(size(problem.saved - stored), 0)}) if kept else frozenset()
        found: set[tuple[int, int]] = set()
        for number, item in enumerate(items):
            if number in done or not before[number] <= done:
                continue
            for gone in subsets(present):
                left = present - gone
                for saved in subsets(gone - stored):
                    copies = stored | saved
                    loaded = item.reads - left
                    held = left | item.reads | item.writes
                    if not loaded <= copies or size(held) + item.extra[0] > cap:
                        continue
                    for out, back in rest(done | {number}, held, copies):
                        found.add((out + size(saved), back + size(loaded)))
        return frozenset(_front(found))

    if size(problem.given) > cap:
        return ()
    return tuple(_front(set(rest(frozenset(), problem.given, problem.stored))))


def _front(costs: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of which none is better in both, ascending by the first."""
    best: list[tuple[int, int]] = []
    for one in sorted(costs):
        if not best or one[1] < best[-1][1]:
            best.append(one)
    return best


def randomly(count: int) -> tuple[Row, list[str]]:
    wrong, caps, moving = [], 0, 0
    for seed in range(count):
        problem = random_problem(np.random.default_rng(seed))
        most = sum(problem.sizes.values()) + 2
        for cap in range(1, most + 1):
            least, exactly = least_copies(problem, (cap,)), exhaustive(problem, cap)
            if least != exactly:
                wrong.append(f"random graph {seed}, cap {cap}: {least}, by exhaustive search {exactly}")
            caps += bool(exactly)
            moving += bool(exactly) and exactly[0] != (0, 0)
    row: Row = {"random graphs": count, "caps": caps, "with movement": moving, "wrong": len(wrong)}
    note(row)
    return row, wrong


# ------------------------------------------------------------------------------------------------- Reddit


def gcn(layers: int) -> Problem:
    """A training step of a GCN: sum over neighbours, multiply with ReLU; the loss; the same backwards (Figure 4.3)."""
    widths = [FEATURES, *[HIDDEN] * (layers - 1), CLASSES]
    lines, sizes = [], {"g": 4 * EDGES + 8 * (VERTICES + 1), "h0": 4 * VERTICES * FEATURES}
    for layer, (width, out) in enumerate(pairwise(widths), 1):
        lines += [f"a{layer} = g h{layer - 1}", f"h{layer} = a{layer} w{layer}"]
        sizes |= {f"a{layer}": 4 * VERTICES * width, f"h{layer}": 4 * VERTICES * out, f"w{layer}": 4 * width * out}
        sizes |= {f"dh{layer}": 4 * VERTICES * out, f"da{layer}": 4 * VERTICES * width, f"dw{layer}": 4 * width * out}
    lines.append(f"dh{layers} = h{layers}")
    for layer in range(layers, 0, -1):
        relu = f" h{layer}" if layer < layers else ""
        if layer == 1:  # what comes in needs no gradient
            lines.append(f"dw1 = dh1 a1{relu}")
        else:
            lines += [f"dw{layer} da{layer} = dh{layer} a{layer} w{layer}{relu}", f"dh{layer - 1} = g da{layer}"]
    items = operations(*lines)
    named = {name for item in items for name in item.reads | item.writes}
    stored = frozenset({"g", "h0", *(f"w{layer}" for layer in range(1, layers + 1))})
    sizes = {name: size for name, size in sizes.items() if name in named}
    wanted = frozenset(name for name in named if name.startswith("dw"))
    return Problem(items, sizes, stored=stored, wanted=wanted, ordered=True)


def needed(problem: Problem) -> tuple[int, int]:
    """(Bytes that one operation needs at least; bytes with which nothing leaves that is read again.)"""
    uses: dict[str, list[int]] = {}
    for number, item in enumerate(problem.operations):
        for name in item.reads | item.writes:
            uses.setdefault(name, []).append(number)
    busy = [sum(problem.sizes[name] for name in item.reads | item.writes) for item in problem.operations]
    alive = [
        sum(problem.sizes[name] for name, some in uses.items() if some[0] <= number <= some[-1])
        for number in range(len(problem.operations))
    ]
    return max(busy), max(alive)


def streamed(problem: Problem) -> int:
    """Bytes where each operation loads what it reads and stores what it writes."""
    return sum(problem.sizes[name] for item in problem.operations for name in chain(item.reads, item.writes))


def least_recently_used(problem: Problem, cap: int, freed: bool) -> int:
    """Bytes where the tensor that was used longest ago gives way. freed: what is not read again leaves for nothing."""
    ends = {name: number for number, item in enumerate(problem.operations) for name in item.reads | item.writes}
    held: list[str] = []  # the least recently used first
    stored, copied = set(problem.stored), 0
    for number, item in enumerate(problem.operations):
        busy = sorted(item.reads) + sorted(item.writes)
        copied += sum(problem.sizes[name] for name in item.reads if name not in held)
        held = [name for name in held if name not in busy] + busy
        while sum(problem.sizes[name] for name in held) > cap:
            gone = held.pop(0)
            copied += 0 if gone in stored else problem.sizes[gone]
            stored.add(gone)
        if freed:
            held = [name for name in held if ends[name] > number or name in problem.wanted]
    return copied


def reddit() -> list[Row]:
    rows = []
    for layers in (2, 3, 4):
        problem = gcn(layers)
        least, ample = needed(problem)
        for third in range(3):
            cap = least + (ample - least) * third // 3
            best = min(out + back for out, back in least_copies(problem, (cap,)))
            rows.append(
                {
                    "layers": layers,
                    "memory GB": cap / 1e9,
                    "of what is ample": cap / ample,
                    "bytes, GB": best / 1e9,
                    "streaming ×": streamed(problem) / best,
                    "LRU ×": least_recently_used(problem, cap, False) / best,
                    "freed ×": least_recently_used(problem, cap, True) / best,
                }
            )
            note(rows[-1])
    return rows


# ------------------------------------------------------------------------------------------------- counted


def counted() -> tuple[list[Row], list[str]]:
    """Bytes that a step copies out and in, as planned and as its worker counts them, and where they differ."""
    import torch

    import girih
    from girih import gnn
    from girih.report.tables import copied_bytes

    data = gnn.rmat(500, 4_000, features=40, classes=4)
    network = gnn.GCN(data.features, 32, data.classes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=optimizer)
    whole = girih.plan(step, data, machine="local:1", memory="unlimited", search="single", compare=())
    rows: list[Row] = []
    for hold in ("roc", "odswap"):
        plan = girih.plan(step, data, machine="local:1", memory=whole.peak * 4 // 5, hold=hold, compare=())
        with plan.start(backend="threads") as run:
            run.step()
            told = run.statistics()[0].copied
        rows.append({"hold": hold, "predicted": list(copied_bytes(plan)), "counted": list(told)})
        note(rows[-1])
    return rows, [f"{row['hold']}: {row}" for row in rows if row["predicted"] != row["counted"]]


def measure(options: argparse.Namespace) -> Report:
    wrong = table()
    copies, others = counted()
    wrong += others
    row, differing = randomly(QUICK if options.quick else GRAPHS)
    rows = reddit()
    factors = {name: geometric_mean([one[f"{name} ×"] for one in rows]) for name in ("streaming", "LRU", "freed")}
    misses = wrong + differing
    for name in ("streaming", "LRU"):
        if factors[name] < options.floor:
            misses.append(f"{name} moves {factors[name]:.2f} times the bytes, expected {options.floor}")
    return Report(
        "A GCN's training step on a graph of Reddit's size",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"Table 4.3 to the letter; {row['caps']} caps of {row['random graphs']} random graphs exact; bytes of "
        f"streaming {factors['streaming']:.2f} ×, of LRU {factors['LRU']:.2f} × (of LRU that frees what is dead "
        f"{factors['freed']:.2f} ×)",
        tuple(misses[:20]),
        parts=(
            Report("Random graphs", tuple((key, key) for key in row), (row,), ""),
            Report("Bytes of a step, out and in", tuple((key, key) for key in copies[0]), tuple(copies), ""),
        ),
    )


BENCHMARK = Benchmark("gnn_memory", __doc__ or "", measure, 2.0, "how many times the bytes streaming and LRU move")


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
