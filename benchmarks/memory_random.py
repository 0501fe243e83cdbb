"""Random programs under random caps: no cap is exceeded, what is planned is measured, and the numbers stay the same.

What: random graphs of matrix products, element-wise operators and views over weights that a step updates, each under
three caps from the smallest that can be met on. How: for each the peak that is planned (`girih.program.life.accounts`)
beside the one that PyTorch's profiler measures in a run of the same Program, and all results and new weights beside
those of the program that moves nothing. Against: the cap; the lower bound of the step's seconds, where every step takes
as long as a copy of 64 bytes; and, for graphs of up to 12 nodes, the least bytes that any choice of movements copies,
by brute force (`girih.search.memory.roc`), which girih's own choice for small graphs has to reach, and the bound
without order in time, which is to be below them. Floors: none exceeded; planned = measured to the byte; equal bits; one
byte less than the smallest cap is refused; nothing below its bound; no small graph above its optimum. How often
Belady's rule alone copies the least, and how much more at worst, is printed.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

GRAPHS, QUICK = 1000, 10
MOST_NODES = 40
SMALL = 12  # nodes of graphs that are tried out
SIDES = (8, 16, 32)
STEP = 2.0**-20  # seconds of each step that computes: whole ticks of the simulator
UNARY = ("aten.relu", "aten.sin", "aten.tanh", "aten.neg")
BINARY = ("aten.mm", "aten.add.Tensor", "aten.mul.Tensor")


def random_step(random: np.random.Generator, most: int = MOST_NODES) -> Any:
    """A graph of fewer than `most` nodes over square matrices; some of its weights are updated."""
    from girih.graph import Graph, Input, Node, Output, Ref, Value

    side = int(random.choice(SIDES))
    values: dict[str, Value] = {}
    inputs, nodes = [], []

    def value(name: str) -> str:
        values[name] = Value(name, (side, side), "float32")
        return name

    for number in range(int(random.integers(1, 4))):
        inputs.append(Input(value(f"x{number}"), "batch", str(number)))
    for number in range(int(random.integers(1, 6))):
        inputs.append(Input(value(f"w{number}"), "parameter", f"w{number}"))
    known = [item.name for item in inputs]
    for number in range(int(random.integers(6, most))):
        recent = known[-6:] if random.random() < 0.7 else known
        first, second = (Ref(str(random.choice(recent))) for _ in range(2))
        kind = random.random()
        if kind < 0.1:
            operator, arguments = "aten.permute", {"self": first, "dims": (1, 0)}
        elif kind < 0.5:
            operator, arguments = str(random.choice(UNARY)), {"self": first}
        else:
            operator = str(random.choice(BINARY))
            arguments = {"self": first, ("mat2" if operator == "aten.mm" else "other"): second}
        name = value(f"v{number}")
        nodes.append(Node(name, operator, tuple(arguments.items()), (name,)))
        known.append(name)
    made = [node.name for node in nodes if node.operator != "aten.permute"]
    outputs = [Output(made[-1], "result")]
    weights = [item.name for item in inputs if item.role == "parameter"]
    fresh = random.permutation(made[:-1])[: len(weights)]
    outputs += [
        Output(str(new), "update", old) for old, new in zip(weights, fresh, strict=False) if random.random() < 0.7
    ]
    return Graph(values, tuple(nodes), tuple(inputs), tuple(outputs))


def run(program: Any, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Results of two applications, and the worker."""
    from girih.run.worker.worker import Worker

    worker = Worker(program, 0)
    state = {item.name for item in program.graph.state_inputs}
    worker.take_state({name: given[name] for name in state})
    batch = {name: tensor for name, tensor in given.items() if name not in state}
    results = [worker.step(dict(batch)) for _ in range(2)]
    return {f"{number} {name}": item for number, one in enumerate(results) for name, item in one.items()}, worker


def against_bounds(lives: Any, cap: int, by_rule: Any, chosen: Any, held: Any) -> tuple[Row, list[str]]:
    """(how far the seconds are from their bound, and the bytes from the least there are; what is wrong). by_rule: the
    residency of Belady's rule; chosen: of what is found exactly, None where the graph is large."""
    from dataclasses import replace

    from girih.cost.prices import Prices
    from girih.machine import machine
    from girih.machine.machine import Tier
    from girih.program import ComputeStep
    from girih.search.memory.bound import memory_bound
    from girih.search.memory.roc import optimum
    from girih.simulate.simulate import makespan

    host = Tier("host", 1 << 60, 64 / STEP, 64 / STEP)
    computing = np.full(len(lives.steps), STEP)
    costs, seen = np.zeros((len(held.steps), 1)), set()
    for at, step in enumerate(held.steps):  # a view that is looked at anew takes no time
        if isinstance(step, ComputeStep) and step.node not in seen:
            seen.add(step.node)
            costs[at] = STEP
    seconds = makespan(held, replace(machine("p3.2xlarge"), host=host), Prices(costs, np.zeros_like(costs)))
    bound = memory_bound(lives, cap, computing, host).seconds
    wrong = [f"{seconds} seconds, below the bound {bound}"] if seconds < bound * (1 - 1e-9) else []
    row: Row = {"seconds": seconds / bound}
    if chosen is not None:
        front = optimum(lives, cap)
        copied, exactly = sum(by_rule.copied_bytes(lives.touches)), sum(chosen.copied_bytes(lives.touches))
        least = min(out + back for out, back in front)
        fastest = min(max(computing.sum(), max(pair) * STEP / 64) for pair in front)
        if memory_bound(lives, cap, computing, host, splits=0).seconds > fastest * (1 + 1e-9):
            wrong.append("the bound is above the optimum")
        if copied < least:
            wrong.append(f"{copied} bytes are copied, below the optimum {least}")
        if exactly != least:
            wrong.append(f"{exactly} bytes are copied by what is chosen exactly, the optimum is {least}")
        row["bytes"] = copied / least if least else 1.0 if not copied else np.inf
    return row, wrong


def compared(slower: list[float], more: list[float]) -> Row:
    """slower: how many times the bound the seconds are. more: how many times the least the bytes are."""
    return {
        "tried out": len(more),
        "least by Belady": sum(ratio <= 1 for ratio in more),
        "× least, mean": float(np.mean(more or [1.0])),
        "× least, worst": float(np.max(more or [1.0])),
        "× bound, median": float(np.median(slower)),
    }


@contextmanager
def for_small_work() -> Iterator[None]:
    """With one thread, as matrices are small and more would wait for each other; and with what is loaded left out
    when garbage is collected, as it is before each measurement."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def measure(options: argparse.Namespace) -> Report:
    with for_small_work():
        return _measured(QUICK if options.quick else GRAPHS)


def _measured(count: int) -> Report:
    import torch

    from girih.layout import Links, Mesh, Sharding, Transfers
    from girih.partition import Strategy
    from girih.program import check, lower
    from girih.program.life.accounts import memory_use
    from girih.program.life.lifetimes import lifetimes
    from girih.program.moves.moves import moved
    from girih.program.moves.residency import TooSmallError, floor
    from girih.run.worker.measure import peak_bytes
    from girih.search.memory.belady import belady
    from girih.search.memory.roc import least_residency

    totals = {"caps": 0, "moved": 0, "bytes out": 0, "bytes in": 0}
    misses: list[str] = []
    slower, more = [], []  # than the bound says; than the least bytes
    for seed in range(count):
        random = np.random.default_rng(seed)
        graph = random_step(random, MOST_NODES if seed % 4 else SMALL + 1)
        mesh = Mesh(())
        whole = Strategy(mesh, (Sharding(()),) * len(graph.nodes), dict.fromkeys(graph.values, Sharding(())))
        program = lower(graph, whole, Transfers(mesh, Links((), ())))
        lives = lifetimes(program)
        least, most = floor(lives)[0], int(lives.used.max())
        generator = torch.Generator().manual_seed(seed)
        given = {item.name: torch.rand(graph.values[item.name].shape, generator=generator) for item in graph.inputs}
        plain, first = run(program, given)
        try:
            belady(lives, least - 1, np.ones(len(lives.steps)))
            misses.append(f"graph {seed}: {least - 1} bytes were not refused")
        except TooSmallError:
            pass
        for cap in sorted({least, least + (most - least) // 3, least + 2 * (most - least) // 3}):
            by_rule = belady(lives, cap, np.ones(len(lives.steps)))
            chosen = least_residency(lives, cap) if len(graph.nodes) <= SMALL else None
            residency = by_rule if chosen is None else chosen
            held = moved(lives, residency, cap)
            check(held)
            planned = memory_use(held).peak
            results, worker = run(held, given)
            batch = {name: given[name] for name in given if name not in worker.state}
            measured = peak_bytes(worker, dict(batch))
            out, back = residency.copied_bytes(lives.touches)
            totals["caps"] += 1
            totals["moved"] += bool(held.host)
            totals["bytes out"] += out
            totals["bytes in"] += back
            far, wrong = against_bounds(lives, cap, by_rule, chosen, held)
            misses += [f"graph {seed}, cap {cap}: {what}" for what in wrong]
            slower.append(far["seconds"])
            more += [far["bytes"]] if "bytes" in far else []
            if not planned <= cap or measured != planned:
                misses.append(f"graph {seed}, cap {cap}: planned {planned}, measured {measured}")
            pairs = [(plain[name], results[name]) for name in plain]
            pairs += [(first.state[name], worker.state[name]) for name in first.state]
            # Bits, because what is no number is not equal to itself.
            if not all(torch.equal(*(item.contiguous().view(torch.int32) for item in pair)) for pair in pairs):
                misses.append(f"graph {seed}, cap {cap}: the numbers differ")
        if seed % 50 == 49:
            note({"graphs": seed + 1, **totals, **compared(slower, more), "wrong": len(misses)})
    row: Row = {"graphs": count, **totals, **compared(slower, more), "wrong": len(misses)}
    note(row)
    return Report(
        "Random programs under caps",
        tuple((key, key) for key in row),
        (row,),
        f"{totals['caps']} caps of {count} graphs, {totals['moved']} with movements: {len(misses)} wrong; "
        f"of {row['tried out']} tried out {row['least by Belady']} copy least by Belady alone, all by what is chosen",
        tuple(misses[:20]),
    )


BENCHMARK = Benchmark("memory_random", __doc__ or "", measure, 0.0, "how many may be wrong")


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
