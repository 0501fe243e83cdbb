"""Random programs under random caps: no cap is exceeded, what is planned is measured, and the numbers stay the same.

What: random graphs of matrix products, element-wise operators and views over weights that a step updates, each under
three caps from the smallest that can be met on. How: for each the peak that is planned (`girih.memory.accounts`) beside
the one that PyTorch's profiler measures in a run of the same Program, and all results and new weights beside those of
the program that moves nothing. Against: the cap. Floors: none exceeded; planned = measured to the byte; equal bits; one
byte less than the smallest cap is refused. What is moved is not yet held against an optimum.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

GRAPHS, QUICK = 1000, 10
MOST_NODES = 40
SIDES = (8, 16, 32)
UNARY = ("aten.relu", "aten.sin", "aten.tanh", "aten.neg")
BINARY = ("aten.mm", "aten.add.Tensor", "aten.mul.Tensor")


def random_step(random: np.random.Generator) -> Any:
    """A graph over square matrices; some of its weights are updated."""
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
    for number in range(int(random.integers(6, MOST_NODES))):
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


def measure(options: argparse.Namespace) -> Report:
    import torch

    from girih.layout import Links, Mesh, Sharding, Transfers
    from girih.lower import check, lower
    from girih.memory.accounts import memory_use
    from girih.memory.lifetimes import lifetimes
    from girih.memory.moves import moved
    from girih.memory.residency import TooSmallError, belady, floor
    from girih.partition import Strategy
    from girih.run.worker.measure import peak_bytes

    count = QUICK if options.quick else GRAPHS
    totals = {"caps": 0, "moved": 0, "bytes out": 0, "bytes in": 0}
    misses: list[str] = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        graph = random_step(random)
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
            residency = belady(lives, cap, np.ones(len(lives.steps)))
            held = moved(lives, residency, cap)
            check(held)
            planned = memory_use(held).peak
            results, worker = run(held, given)
            batch = {name: given[name] for name in given if name not in worker.state}
            measured = peak_bytes(worker, dict(batch))
            out, back = residency.copied_bytes(lives)
            totals["caps"] += 1
            totals["moved"] += bool(held.host)
            totals["bytes out"] += out
            totals["bytes in"] += back
            if not planned <= cap or measured != planned:
                misses.append(f"graph {seed}, cap {cap}: planned {planned}, measured {measured}")
            same = all(torch.equal(plain[name], results[name]) for name in plain)
            if not same or not all(torch.equal(first.state[name], worker.state[name]) for name in first.state):
                misses.append(f"graph {seed}, cap {cap}: the numbers differ")
        if seed % 100 == 99:
            note({"graphs": seed + 1, **totals})
    row: Row = {"graphs": count, **totals, "wrong": len(misses)}
    note(row)
    return Report(
        "Random programs under caps",
        tuple((key, key) for key in row),
        (row,),
        f"{totals['caps']} caps of {count} graphs, {totals['moved']} with movements: {len(misses)} wrong",
        tuple(misses[:20]),
    )


BENCHMARK = Benchmark("memory_random", __doc__ or "", measure, 0.0, "how many may be wrong")


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
