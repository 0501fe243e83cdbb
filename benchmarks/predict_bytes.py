"""Predicted bytes of each worker and its peak memory, beside what workers measure.

What: for tiny models of nine families under several kinds of plan (least bytes, fastest, data parallelism, an expert's
with placed layers) on 2 and 4 worker processes: the bytes that each worker receives from each other one in a step, and
the peak of its memory.
How: bytes are those of the lowered program's messages by pair of workers, beside the payload that the workers'
transports count over three steps; peaks are the liveness of storages (`girih.program.life.accounts.memory_use`), beside
the sum of all allocations and releases that PyTorch's profiler sees in a worker process (`girih.run.worker.measure`).
Against: nothing in the papers. Floors: bytes equal to the last one; peaks within `--floor`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, seconds_option, training_step

STEPS = 3
CASES: tuple[tuple[str, str, str, str], ...] = (
    # model, machine, objective, search
    ("mlp-tiny", "local:2", "bytes", "exact"),
    ("mlp-512-512-10", "local:4", "time", "exact"),
    ("gpt-tiny", "local:4", "bytes", "exact"),
    ("gpt-tiny", "local:4", "bytes", "data"),
    ("gpt-tiny", "local:2", "seconds", "model"),
    ("rnnlm-tiny", "local:4", "bytes", "rnn-expert"),
    ("rnnlm-tiny", "local:2", "bytes", "exact"),
    ("dlrm-criteo-tiny", "local:4", "bytes", "hybrid"),
    ("dlrm-criteo-tiny", "local:2", "time", "exact"),
    ("bert-tiny", "local:2", "bytes", "exact"),
    ("wresnet-tiny", "local:2", "bytes", "exact"),
    ("alexnet-tiny", "local:4", "bytes", "one-weird-trick"),
)


def messages(plan: Any) -> list[list[int]]:
    """[sender][receiver]: bytes of one step, from the program's messages."""
    program = plan.program
    devices = program.mesh.devices
    sent = [[0] * devices for _ in range(devices)]
    for step in program.transfers:
        item = program.graph.values[step.value].item_bytes
        for message in program.exchange_of(step).messages:
            if message.source != message.target:
                sent[message.source][message.target] += message.elements * item
    return sent


def measured(plan: Any, model: str) -> tuple[list[list[int]], list[int]]:
    """([sender][receiver] bytes of STEPS steps as counted, peak bytes of each worker)."""
    from girih.models import random_batch
    from girih.plans.inputs import flatten_batch

    batch = flatten_batch(random_batch(model))
    scalars = {item.name: 0.01 for item in plan.graph.inputs if item.role == "scalar"}
    with plan.start() as running:
        for _ in range(STEPS):
            running.step(random_batch(model), lr=0.01)
        counted = running.run.statistics()
        peaks = running.run.peak_bytes(batch, scalars)
    sent = [[0] * len(counted) for _ in counted]
    for item in counted:
        for peer, amount in enumerate(item.received):
            sent[peer][item.rank] = int(amount)
    return sent, [int(peak) for peak in peaks]


def measure(options: argparse.Namespace) -> Report:
    import girih

    rows: list[Row] = []
    misses: list[str] = []
    for model, machine, objective, search in CASES[:1] if options.quick else CASES:
        step, batch = training_step(model)
        plan = girih.plan(
            step, batch, machine=machine, objective=objective, search=f"{search}:seconds={options.seconds}", compare=()
        )
        expected = messages(plan)
        counted, peaks = measured(plan, model)
        equal = counted == [[amount * STEPS for amount in row] for row in expected]
        told = [use.peak for use in plan.memory_by_device]
        errors = [abs(peak / use - 1) for peak, use in zip(peaks, told, strict=True)]
        what = f"{model} on {machine}, {search} by {objective}"
        rows.append(
            {
                "case": what,
                "links": sum(amount > 0 for row in expected for amount in row),
                "bytes": sum(map(sum, expected)),
                "counted": sum(map(sum, counted)) // STEPS,
                "equal": equal,
                "peak": max(told),
                "measured": max(peaks),
                "error": max(errors),
            }
        )
        note(rows[-1])
        if not equal:
            misses.append(f"{what}: {counted} bytes between workers in {STEPS} steps, {expected} predicted for each")
        if max(errors) > options.floor:
            misses.append(f"{what}: a peak is off by {max(errors):.1%}")
    columns = (
        ("case", "case"),
        ("links in use", "links"),
        ("bytes, predicted", "bytes"),
        ("counted", "counted"),
        ("equal on every link", "equal"),
        ("peak, predicted", "peak"),
        ("measured", "measured"),
        ("largest error", "error"),
    )
    worst = max((row["error"] for row in rows), default=0.0)
    return Report(
        "Bytes on every link and peak memory of every worker, predicted and measured",
        columns,
        tuple(rows),
        f"{len(rows)} plans: bytes equal on every link, peaks within {worst:.2%}",
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "predict_bytes", __doc__ or "", measure, 0.02, "largest relative error of a worker's peak", seconds_option
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
