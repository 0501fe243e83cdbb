"""Addresses: the arena of a step over what is alive in it at one time, for all families of models.

What: training steps with momentum, and inference, of every family of the catalogue at its smallest, and of some models
at real sizes; in what memory they need, and under a cap of 60 % of it (or the smallest that can be met), where tensors
are moved out and back. How: `girih.program.places` gives every storage, the scratch of every step and all state an
address; the ratio is the arena's bytes over the bound, the most bytes alive at one time with sizes rounded up to 64.
Against: best fit as requests come, which is what an allocator at run time does, and the largest first (as TensorFlow
Lite plans), on the same items. Floors: at most 1.003 × the bound without a cap; under a cap no more than the baselines.
Under a cap memory is full in nearly all steps, and whether an arena as small as the bound exists is not known.

`--process` asks instead what the arena buys a process: a worker with one thread trains six layers of 256 on a batch of
16,384 for eleven steps, in what memory that needs and under a cap of 35 % of it, with the arena and without. Shown is
the most memory that it held (VmHWM, of Linux) beyond what it held before its first step without an arena, beside the
plan's peak, and its processor's seconds for each step. No floor: figures of one allocator on one machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, captured, note, objective, searched

REAL = (
    "lenet",
    "resnet-50",
    "wresnet-50-1-64",
    "squeezenet",
    "gpt-4-256",
    "bert-4-256",
    "transformer",
    "rnn-2-512",
    "nasrnn",
)
QUICK = ("mlp-tiny", "lenet-tiny", "gpt-tiny")
SHARE = 0.6
MOST = 1.003


def graphs(names: list[str]) -> Iterator[tuple[str, Any]]:
    import torch

    from girih.capture.torch.training import Inference
    from girih.models import example
    from girih.plans.inputs import program_of

    for name in names:
        yield f"{name}, training", captured(name)
        if name.startswith("wgan-critic"):  # it needs gradients: there is no inference
            continue
        shown = example(name, device="meta")

        class Answer(torch.nn.Module):
            """The loss, as the catalogue's models take their batch in many ways."""

            def __init__(self, shown: Any) -> None:
                super().__init__()
                self.module, self.step = shown.module, shown.step

            def forward(self, batch: Any) -> Any:
                return self.step(self.module, batch)

        yield f"{name}, inference", program_of(Inference(Answer(shown).eval()), (shown.inputs,)).graph


def programs(graph: Any) -> Iterator[tuple[str, Any]]:
    """The lifetimes of a graph's step on one device, plain and under a cap."""
    from girih.program import lower
    from girih.program.life.lifetimes import lifetimes
    from girih.program.moves.moves import moved
    from girih.program.moves.residency import floor
    from girih.search.memory.belady import belady

    aim = objective("bytes", "local:1")
    program = lower(graph, searched("single", graph, aim, 100.0).strategy, aim.transfers)
    lives = lifetimes(program, threads=2)
    yield "", lives
    most = int(lives.used.max())
    cap = max(int(SHARE * most), floor(lives)[0])
    if cap < most:
        held = moved(lives, belady(lives, cap, np.ones(len(lives.steps))), cap)
        yield f", {cap / most:.0%}", lifetimes(held, threads=2)


LAYERS, WIDTH, ROWS, STEPS, CAPPED = 6, 256, 16_384, 10, 0.35


def worker_process(arena: str, capped: bool, quick: bool) -> dict[str, float]:
    """Bytes of a worker process before its first step and at most, and its seconds for each of ten later ones."""
    import torch

    import girih

    torch.manual_seed(0)
    layers = [item for _ in range(LAYERS) for item in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    x, y = (torch.randn(ROWS // 16 if quick else ROWS, WIDTH) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    plan = girih.plan(step, (x, y), machine="local:1", compare=())
    if capped:
        plan = girih.plan(step, (x, y), machine="local:1", memory=int(CAPPED * plan.peak), compare=())
    with plan.start(backend="processes", arena=arena) as run:
        (process,) = (Path("/proc") / str(pid) for pid in run.run.crew.pids)

        def held(name: str) -> int:
            lines = (process / "status").read_text().splitlines()
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))

        def seconds() -> float:
            user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

        before = held("VmRSS")
        run.step((x, y))
        began = seconds()
        for _ in range(STEPS):
            run.step((x, y))
        return {"before": before, "most": held("VmHWM"), "seconds": (seconds() - began) / STEPS, "peak": plan.peak}


def of_process(options: argparse.Namespace) -> Report:
    os.environ["OMP_NUM_THREADS"] = "1"  # of the worker, which is started with it
    kinds = [(arena, capped) for capped in (False, True) for arena in ("on", "off")]
    found = {kind: worker_process(*kind, options.quick) for kind in kinds}
    before = found["off", False]["before"]
    rows: list[Row] = [
        {
            "cap": f"{CAPPED:.0%}" if capped else "none",
            "arena": arena,
            "plan's peak MB": round(item["peak"] / 1e6, 1),
            "held before MB": round(before / 1e6, 1),
            "most beyond it MB": round((item["most"] - before) / 1e6, 1),
            "CPU s of a step": round(item["seconds"], 3),
        }
        for (arena, capped), item in found.items()
    ]
    free, free_off, capped, capped_off = (row["most beyond it MB"] for row in rows)
    summary = f"a worker holds {free} MB with the arena and {free_off} without; under the cap {capped} and {capped_off}"
    return Report("What the arena buys a process", tuple((key, key) for key in rows[0]), tuple(rows), summary, ())


def measure(options: argparse.Namespace) -> Report:
    return of_process(options) if options.process else of_addresses(options)


def of_addresses(options: argparse.Namespace) -> Report:
    from girih.models import tiny_names
    from girih.program.places.items import items_of
    from girih.program.places.places import addressed, by_size, by_time, top

    rows: list[Row] = []
    misses = []
    for name, graph in graphs(list(QUICK) if options.quick else [*tiny_names(), *REAL]):
        for share, lives in programs(graph):
            items = items_of(lives)
            began = time.perf_counter()
            count = int(np.count_nonzero(items.sizes))
            ours = top(items, addressed(items, options.turns))
            took = time.perf_counter() - began
            row: Row = {
                "step": name + share,
                "items": count,
                "bound MB": round(items.bound / 1e6, 3),
                "arena / bound": round(ours / items.bound, 4),
                "largest first": round(by_size(items) / items.bound, 4),
                "at run time": round(by_time(items) / items.bound, 4),
                "copied state": len(items.copied),
                "seconds": round(took, 1),
            }
            rows.append(row)
            note(row)
            if not share and ours > options.floor * items.bound:
                misses.append(f"{name}: {ours / items.bound:.4f} × the bound")
            if ours > min(by_size(items), by_time(items)):
                misses.append(f"{name}{share}: a baseline is smaller")
    free = max(row["arena / bound"] for row in rows if not row["step"].endswith("%"))
    capped = [row["arena / bound"] for row in rows if row["step"].endswith("%")]
    return Report(
        "Places in an arena",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{len(rows)} arenas, without a cap at most {free:.4f} × the bound; "
        f"under one {np.median(capped):.4f} in the median and at most {max(capped):.4f}",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--process", action="store_true", help="what a worker process holds with an arena and without")
    parser.add_argument("--turns", type=int, default=100_000_000, help="of the search's loops (default 100 million)")


BENCHMARK = Benchmark("memory_places", __doc__ or "", measure, MOST, "the arena over the bound", options=add_options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
