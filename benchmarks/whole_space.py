"""What a good engineer would think of: array programs whose sums can wait, or whose readers fetch the same at once.

What: by `bytes` on 2 processes, the plan of the whole space beside the one of Tofu's (`exact:space=tofu`), in which
every sum is added where it is made and each reader fetches for itself. Of the first three one sees what suffices:
`(A @ B).sum(1)` of 300×400 by 400×160 needs 2,400 bytes, `A @ B + C @ D` and `A @ (A @ B)` of 64×64 need 16,384.
The others have the same in them: sums that pass through slices, reshapes, transposes, broadcasts, scaling, means,
concatenations, convolutions and gradients of embeddings, maxima and minima that pass through what keeps order, and
values that are read by several products.
How: each optimum is proved; its program is lowered and its bytes are counted; it is run on threads in float64, and
compared with one device.
Against: Tofu's space, in the column `tofu`. Floor: the three counts; every other program moves less than in Tofu's
space, all are proved, and what is counted is what was predicted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.array_programs import Program
from benchmarks.common import Benchmark, Report, Row, note, objective, timed

MACHINE = "local:2"


def _named(count: int, dtype: str) -> tuple[Program, list[str]]:
    made = Program(dtype)
    return made, [made.newarray(64, 64) for _ in range(count)]


def sum_of_product(dtype: str) -> Any:
    made = Program(dtype)
    made.fold(made.dot(made.newarray(300, 400), made.newarray(400, 160)), 1)
    return made.graph()


def sum_of_products(dtype: str) -> Any:
    made, (a, b, c, d) = _named(4, dtype)
    made.map(made.dot(a, b), made.dot(c, d))
    return made.graph()


def read_twice(dtype: str) -> Any:
    made, (a, b) = _named(2, dtype)
    made.dot(a, made.dot(a, b))
    return made.graph()


def three_products(dtype: str) -> Any:
    made, (a, b, c, d, e, f) = _named(6, dtype)
    made.map(made.map(made.dot(a, b), made.dot(c, d), "sub"), made.dot(e, f))
    return made.graph()


def rows_of_product(dtype: str) -> Any:
    made, (a, b) = _named(2, dtype)
    product = made.dot(a, b)
    made.emit("aten.slice.Tensor", (8, 64), self=_ref(product), dim=0, start=24, end=32, step=1)
    return made.graph()


def summed_by_blocks(dtype: str) -> Any:
    made, (a, b) = _named(2, dtype)
    blocks = made.emit("aten.reshape", (8, 8, 64), self=_ref(made.dot(a, b)), shape=(8, 8, 64))
    made.emit("aten.sum.dim_IntList", (8, 64), self=_ref(blocks), dim=(1,))
    return made.graph()


def transposed_sum(dtype: str) -> Any:
    made, (a, b, c, d) = _named(4, dtype)
    made.map(made.swapaxis(made.dot(a, b)), made.dot(c, d))
    return made.graph()


def scaled_and_added(dtype: str) -> Any:
    made, (a, b, c) = _named(3, dtype)
    scaled = made.emit("aten.mul.Scalar", (64, 64), self=_ref(made.dot(a, b)), other=0.5)
    made.fold(made.map(scaled, c), 0)
    return made.graph()


def mean_of_product(dtype: str) -> Any:
    made, (a, b) = _named(2, dtype)
    made.emit("aten.mean.dim", (64,), self=_ref(made.dot(a, b)), dim=(0,), keepdim=False)
    return made.graph()


def joined_and_summed(dtype: str) -> Any:
    made, (a, b, c, d) = _named(4, dtype)
    joined = made.emit("aten.cat", (128, 64), tensors=(_ref(made.dot(a, b)), _ref(made.dot(c, d))), dim=0)
    made.fold(joined, 0)
    return made.graph()


def gradients_of_an_embedding(dtype: str) -> Any:
    made = Program(dtype)
    parts = []
    for _ in range(2):
        index = made.newarray(4096)
        made.values[index] = replace(made.values[index], dtype="int64")
        arguments = {"grad_output": _ref(made.newarray(4096, 4)), "indices": _ref(index)}
        more = {"num_weights": 64, "padding_idx": -1, "scale_grad_by_freq": False}
        parts.append(made.emit("aten.embedding_dense_backward", (64, 4), **arguments, **more))
    made.map(*parts)
    return made.graph()


def three_readers(dtype: str) -> Any:
    made, (a, b, c) = _named(3, dtype)
    first = made.dot(a, b)
    made.map(made.dot(a, first), made.dot(c, made.dot(a, first)))
    return made.graph()


def products_with_one(dtype: str) -> Any:
    made, (a, b, c) = _named(3, dtype)
    made.map(made.dot(made.dot(b, a), a), made.dot(made.dot(c, a), a), "mul")
    return made.graph()


def _running_sums(made: Program) -> str:
    """Of a new array along its rows, by which it is therefore divided."""
    return made.scan(made.newarray(512, 64), 1)


def largest_of_columns(dtype: str) -> Any:
    made = Program(dtype)
    columns = made.extreme(_running_sums(made), 0)
    made.extreme(made.emit("aten.relu", made.shape(columns), self=_ref(columns)), 0)
    return made.graph()


def larger_of_maxima(dtype: str) -> Any:
    made = Program(dtype)
    made.map(made.extreme(_running_sums(made), 0), made.extreme(_running_sums(made), 0), "maximum")
    return made.graph()


def range_of_columns(dtype: str) -> Any:
    made = Program(dtype)
    sums = _running_sums(made)
    below = made.extreme(sums, 0, "amin")
    turned = made.emit("aten.neg", made.shape(below), self=_ref(below))
    made.extreme(made.map(made.extreme(sums, 0), turned, "maximum"), 0)
    return made.graph()


def _ref(name: str) -> Any:
    from girih.graph import Ref

    return Ref(name)


PROGRAMS: dict[str, tuple[Callable[[str], Any], int | None]] = {
    # program, bytes that are known to suffice in float32
    "(A @ B).sum(1)": (sum_of_product, 2_400),
    "A @ B + C @ D": (sum_of_products, 16_384),
    "A @ (A @ B)": (read_twice, 16_384),
    "A @ B - C @ D + E @ F": (three_products, None),
    "(A @ B)[24:32]": (rows_of_product, None),
    "(A @ B).reshape(8, 8, 64).sum(1)": (summed_by_blocks, None),
    "(A @ B).T + C @ D": (transposed_sum, None),
    "(0.5 · A @ B + C).sum(0)": (scaled_and_added, None),
    "(A @ B).mean(0)": (mean_of_product, None),
    "concat(A @ B, C @ D).sum(0)": (joined_and_summed, None),
    "two gradients of one embedding": (gradients_of_an_embedding, None),
    "A @ (A @ B) + C @ (A @ (A @ B))": (three_readers, None),
    "(B @ A @ A) · (C @ A @ A)": (products_with_one, None),
    "relu(A.cumsum(1).max(0)).max()": (largest_of_columns, 8),
    "maximum(A.cumsum(1).max(0), B.cumsum(1).max(0))": (larger_of_maxima, None),
    "maximum(B.max(0), -B.min(0)).max(), B = A.cumsum(1)": (range_of_columns, 8),
}


def measured(graph: Any, wide: Any, aim: Any) -> tuple[Row, str]:
    """Both spaces' optima of one program, and what is wrong. wide: the same program in float64, which is run."""
    from girih.partition.searches.exact import Exact
    from girih.program import lower

    narrow = Exact(space="tofu").search(graph, aim).certificate
    found, timing = timed(Exact().search, graph, aim)
    told = found.certificate
    counted = int(lower(found.graph or graph, found.strategy, aim.transfers).bytes_received().sum())
    row: Row = {"tofu": int(narrow.cost), "whole": int(told.cost), "counted": counted, "ms": round(timing.cpu * 1e3, 1)}
    if told.gap or told.stopped != "optimal":
        return row, f"{told.cost} bytes are not proved, bound {told.bound}"
    if counted != told.cost:
        return row, f"its program moves {counted} bytes, not {told.cost}"
    return row, run_apart(wide, aim)


def run_apart(graph: Any, aim: Any) -> str:
    """What is wrong with a run on threads, beside one device and the prediction; "" if nothing is."""
    import torch

    from girih.kernels.evaluate import interpret
    from girih.partition.searches.exact import Exact
    from girih.program import lower
    from girih.run.training.session import start

    found = Exact().search(graph, aim)
    torch.manual_seed(0)
    batch = {
        item.name: torch.rand(value.shape, dtype=torch.float64)
        if (value := graph.values[item.name]).dtype == "float64"
        else torch.randint(0, 64, value.shape)
        for item in graph.inputs
    }
    expected = interpret(graph, batch)
    program = lower(found.graph or graph, found.strategy, aim.transfers)
    with start(program, backend="threads", state={}) as run:
        made, received = run.step(batch), sum(item.bytes_received for item in run.statistics())
    if received != found.certificate.cost:
        return f"a run receives {received} bytes, predicted are {found.certificate.cost}"
    for item in graph.outputs:
        if not torch.allclose(made[item.name], expected[item.name], rtol=1e-10, atol=1e-10):
            return f"output {item.name} differs from one device's"
    return ""


def measure(options: argparse.Namespace) -> Report:
    aim = objective("bytes", MACHINE)
    rows: list[Row] = []
    misses: list[str] = []
    for name, (make, suffice) in PROGRAMS.items():
        row, wrong = measured(make("float32"), make("float64"), aim)
        row = {"program": name, **row, "ratio": round(row["whole"] / row["tofu"], 4), "suffice": suffice}
        rows.append(row)
        note(row)
        if wrong:
            misses.append(f"{name}: {wrong}")
        if row["whole"] > (suffice if suffice is not None else options.floor * row["tofu"]):
            misses.append(f"{name} moves {row['whole']} bytes, {suffice or row['tofu']} suffice")
    columns = (
        ("program", "program"),
        ("Tofu's space, bytes", "tofu"),
        ("whole space", "whole"),
        ("counted", "counted"),
        ("whole / Tofu's", "ratio"),
        ("known to suffice", "suffice"),
        ("CPU ms", "ms"),
    )
    return Report(
        f"Bytes of {len(rows)} array programs on {MACHINE}, proved",
        columns,
        tuple(rows),
        f"{len(rows)} programs proved, at most {max(row['ratio'] for row in rows):g} × of Tofu's space",
        tuple(misses),
    )


BENCHMARK = Benchmark("whole_space", __doc__ or "", measure, 0.99, "times the bytes of Tofu's space, at most")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
