"""Attention whose keys divide, beside attention of which only examples, heads and rows of the query do.

What: attention layers with fewer heads than devices and one example, on 2 to 8 devices: over a long sequence, trained
or not, and of a few rows over many keys, as a set of latent vectors reads a long input.
How: by `bytes` both plans are proved; each is run in float64 on threads, the first case on processes too, and compared
with one device; bytes are those that its workers count, peaks those of the plan. By `time` the larger ones are planned
for GPUs, and the steps simulated.
Against: the plan without blocks of keys (`exact:attention=whole`; by `time` the fastest of what else was judged).
Floor: times the bytes of that plan, for all cases by `bytes` together; no case moves more, all are proved, run as one
device does, and count the bytes that were predicted.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import prod
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, seconds_option, timed


@dataclass(frozen=True)
class Case:
    """An attention of `rows` over `keys` (0: over the same sequence), with heads of which `shared` have keys."""

    what: str
    machine: str
    rows: int
    keys: int = 0
    width: int = 32
    heads: int = 1
    shared: int = 1
    training: bool = False

    @property
    def name(self) -> str:
        read = f"{self.keys} keys" if self.keys else "the same, causal"
        return f"{self.what}: {self.rows} rows over {read}, {self.heads} heads, {self.shared} with keys"


SMALL = (
    Case("a few rows", "local:2", 4, 256),
    Case("inference", "local:4", 128),
    Case("training", "local:4", 128, training=True),
    Case("a few rows, trained", "local:4", 8, 256, training=True),
    Case("shared heads", "local:4", 128, heads=2, training=True),
    Case("training", "local:8", 128, training=True),
    Case("a few rows, trained", "local:8", 16, 512, heads=2, shared=2, training=True),
)
LARGE = (
    Case("a few rows", "dgx-v100:4", 16, 65536, 256),
    Case("a few rows", "dgx-h100", 16, 131072, 1024, 8, 2),
    Case("training", "dgx-h100", 32768, 0, 256, 2, 2, training=True),
)


def program_of(case: Case, dtype: Any, device: str = "cpu") -> tuple[Any, Any]:
    """(What girih plans, its batch)."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    import girih

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width, read = case.width, case.width // case.heads * case.shared
            self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, read), nn.Linear(width, read)
            self.out = nn.Linear(width, width)

        def forward(self, x: Any, read: Any = None) -> Any:
            source = x if read is None else read
            parts = (self.query(x), case.heads), (self.key(source), case.shared), (self.value(source), case.shared)
            query, key, value = (item.unflatten(-1, (heads, -1)).transpose(1, 2) for item, heads in parts)
            found = F.scaled_dot_product_attention(query, key, value, is_causal=read is None, enable_gqa=True)
            return x + self.out(found.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    model = Attention().to(device=device, dtype=dtype)
    x = torch.randn(1, case.rows, case.width, dtype=dtype, device=device)
    read = (torch.randn(1, case.keys, case.width, dtype=dtype, device=device),) if case.keys else ()
    if not case.training:
        return girih.Inference(model), (x, *read)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return girih.TrainingStep(model, F.mse_loss, optimizer), (x, *read, torch.randn_like(x))


def planned(case: Case, objective: str, search: str | None, dtype: Any, device: str = "cpu") -> tuple[Any, Any]:
    """(The plan, the batch)."""
    import girih

    program, batch = program_of(case, dtype, device)
    options = {"machine": case.machine, "objective": objective, "compare": (), "memory": "unlimited"}
    return girih.plan(program, batch, search=search, **options), batch


def wrong_with(plan: Any, batch: Any, backend: str) -> str:
    """What is wrong with a run beside one device and the prediction; "" if nothing is."""
    with plan.start(backend=backend) as running:
        found = running.verified_step(batch)
        received = sum(item.bytes_received for item in running.run.statistics())
    if not found.relative < 1e-10:
        return f"{found.worst} differs from one device's by {found.relative:g} on {backend}"
    if received != plan.certificate.cost:
        return f"a run on {backend} receives {received} bytes, predicted are {plan.certificate.cost}"
    return ""


def divided(plan: Any) -> str:
    """How the attention of the forward pass is divided."""
    from girih.ops.known import several_descriptions

    for node, division, several in zip(
        plan.graph.nodes, plan.strategy.divisions, several_descriptions(plan.graph), strict=True
    ):
        if node.operator in ("girih.attention", "girih.attention_blocks"):
            return " · ".join(several[0].names[code] if code >= 0 else "repeated" for code in division.codes)
    return ""


def by_bytes(case: Case, backends: tuple[str, ...]) -> tuple[Row, str]:
    """A row, and what is wrong with it."""
    import torch

    whole, _ = planned(case, "bytes", "exact:attention=whole", torch.float64)
    (plan, batch), timing = timed(planned, case, "bytes", "exact", torch.float64)
    row: Row = {
        "case": case.name,
        "machine": case.machine,
        "whole": int(whole.certificate.cost),
        "keys": int(plan.certificate.cost),
        "ratio": round(plan.certificate.cost / whole.certificate.cost, 3),
        "peaks": f"{whole.peak} / {plan.peak}",
        "ms": f"{whole.predicted.simulated * 1e3:.2f} / {plan.predicted.simulated * 1e3:.2f}",
        "divided": f"{divided(whole)} / {divided(plan)}",
        "cpu": round(timing.cpu, 2),
    }
    if plan.certificate.gap or whole.certificate.gap:
        return row, f"is not proved: {plan.certificate.words}"
    return row, next((wrong for backend in backends if (wrong := wrong_with(plan, batch, backend))), "")


def by_time(case: Case, seconds: float) -> Row:
    import torch

    (plan, _), timing = timed(planned, case, "time", f"portfolio:seconds={seconds}", torch.bfloat16, "meta")
    tried = dict(plan.certificate.tried)
    keys = tried.pop("attention by keys", None)  # what was never the fastest is not among them
    name, whole = min(tried.items(), key=lambda item: item[1])
    return {
        "case": case.name,
        "machine": case.machine,
        "ratio": round(keys / whole, 3) if keys else "whole",
        "peaks": f"{plan.peak}",
        "ms": f"{whole * 1e3:.3f} ({name})" + (f" / {keys * 1e3:.3f}" if keys else ""),
        "divided": f"{divided(plan)} ({plan.certificate.statistics['found by']})",
        "cpu": round(timing.cpu, 2),
    }


def measure(options: argparse.Namespace) -> Report:
    rows: list[Row] = []
    misses: list[str] = []
    for number, case in enumerate(SMALL[:2] if options.quick else SMALL):
        row, wrong = by_bytes(case, ("threads",) if number or options.quick else ("threads", "processes"))
        rows.append(row)
        note(row)
        if wrong:
            misses.append(f"{case.name} on {case.machine}: {wrong}")
        if row["keys"] > row["whole"]:
            misses.append(f"{case.name} on {case.machine} moves {row['keys']} bytes, {row['whole']} suffice")
    mean = prod(row["ratio"] for row in rows) ** (1 / len(rows))
    if mean > options.floor:
        misses.append(f"{mean:.3f} × the bytes of attention whole")
    for case in () if options.quick else LARGE:
        rows.append(by_time(case, options.seconds))
        note(rows[-1])
    columns = (
        ("attention", "case"),
        ("machine", "machine"),
        ("bytes, whole", "whole"),
        ("by keys too", "keys"),
        ("ratio", "ratio"),
        ("peaks, bytes", "peaks"),
        ("simulated ms", "ms"),
        ("divided along", "divided"),
        ("CPU s", "cpu"),
    )
    return Report(
        "Attention divided by blocks of keys too, beside attention whole: first by bytes, then by time",
        columns,
        tuple(rows),
        f"{mean:.3f} × the bytes of attention whole, in geometric mean",
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "ring_attention",
    __doc__ or "",
    measure,
    0.5,
    "times the bytes of attention whole, in mean, at most",
    seconds_option,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
