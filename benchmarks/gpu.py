"""Plans on this host's GPUs: the same numbers as PyTorch, bytes, peaks and seconds as planned.

What: a ResNet, a GPT and an LSTM, trained with momentum in float32 and float64, and under autocast in bfloat16, on one
GPU without a limit and within 75 and 50 % of what their step needs, and divided over two workers. How: three steps
each; losses and weights are held against those of plain PyTorch on the same card, with TensorFloat-32 off, or, where a
network carries rounding on, both against float64's, of which girih may be three times as far; the peak is
that of the allocator's statistics during one step, in the bytes that were asked of it (how much its blocks round up is
printed beside); seconds are medians of `--rounds` steps beside what was predicted after `girih calibrate` measured the
card. Two workers are processes with a GPU each and NCCL where there are two GPUs, and under torchrun too; where there
is one, threads that share it, and processes and ranks of torchrun that do so through the host's memory
(GIRIH_TRANSPORT=gloo). Then `memory_gpu` and `optimize_gpu`, with their own floors. Floors: numbers within the dtype's
tolerance, bytes equal, no peak over the plan's or the limit, seconds within `--floor` of the predicted ones in the
median. Where there is no GPU nothing is measured, and it says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import memory_gpu, optimize_gpu
from benchmarks.common import Benchmark, Report, Row, note

STEPS = 3
SHARES: tuple[float | None, ...] = (None, 0.75, 0.5)
LARGE_SHARES: tuple[float | None, ...] = (None, 0.5)
TOLERANCES = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 5e-2}
"""Of a tensor's largest number, and of a loss."""
ROUNDED = 3.0
"""Where rounding is carried on from step to step: how many times as far from float64's numbers as PyTorch's own."""


@dataclass(frozen=True)
class Case:
    name: str
    batch: int
    options: dict[str, Any]


CASES = (
    Case("wresnet-50-1-64", 16, {}),
    Case("gpt-4-512", 8, {"sequence": 256, "vocabulary": 4096}),
    Case("rnn-2-512", 64, {"input": 256, "vocabulary": 256}),
)
QUICK = (Case("gpt-tiny", 8, {}),)
LARGE = Case("gpt-12-1024", 8, {"sequence": 512, "vocabulary": 8192})
"""Of which kernels take longer than what starts them."""


def training(case: Case, dtype: str) -> tuple[Any, Any]:
    """(TrainingStep, batch) with real tensors of the host, the same each time."""
    import torch
    from torch.utils._pytree import tree_map

    from benchmarks.memory_caps import training as made

    step, batch = made(case.name, case.batch, case.options)
    if dtype == "float64":
        step.model.double()
        batch = tree_map(lambda item: item.double() if item.is_floating_point() else item, batch)
    return replace(step, autocast=torch.bfloat16 if dtype == "bfloat16" else None), batch


def plain(case: Case, dtype: str) -> tuple[list[float], dict[str, Any], float]:
    """Losses, weights and seconds of a step of PyTorch's own loop on the card."""
    import torch
    from torch.utils._pytree import tree_map

    step, batch = training(case, dtype)
    step.model.cuda()
    batch = tree_map(lambda item: item.cuda(), batch)
    losses: list[float] = []
    seconds = []
    for number in range(STEPS + 5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = step.step(step.model, batch)
        loss.backward()
        step.optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - began)
        if number == STEPS - 1:
            state = {name: tensor.detach().cpu().clone() for name, tensor in step.model.state_dict().items()}
    return losses[:STEPS], state, statistics.median(seconds[STEPS:])


def losses_apart(own: list[float], theirs: list[float]) -> float:
    """The largest difference of two losses, over the second."""
    return max(abs(one - other) / max(abs(other), 1e-9) for one, other in zip(own, theirs, strict=True))


def apart(own: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, str]:
    """The largest difference of two states' tensors over the tensor's largest number, and of which; of tensors that are
    nothing but rounding, over a thousandth of the state's."""
    largest = {name: float(tensor.abs().max()) if tensor.numel() else 0.0 for name, tensor in theirs.items()}
    least = max(largest.values()) / 1000
    differences = {
        name: float((own[name].double() - tensor.double()).abs().max()) / max(largest[name], least)
        for name, tensor in theirs.items()
        if tensor.numel()
    }
    worst = max(differences, key=lambda name: differences[name])
    return differences[worst], worst


def one_card(case: Case, dtype: str, share: float | None, whole: Any, store: Path, rounds: int) -> tuple[Row, Any]:
    """A plan on the first GPU beside plain PyTorch; (row, plan). whole: the plan without a limit; None: this is it."""
    import torch

    import girih
    from girih.plans.predict import predict

    step, batch = training(case, dtype)
    limit = {} if whole is None or share is None else {"memory": int(share * whole.peak)}
    plan = girih.plan(step, batch, machine="cuda:1", compare=(), store=store, progress=False, **limit)
    losses, weights, eager = plain(case, dtype)
    gc.collect()
    torch.cuda.empty_cache()
    with plan.start(backend="threads") as run:
        own = [run.step(batch) for _ in range(STEPS)]
        state = run.state_dict()
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            run.step(batch)
            seconds.append(time.perf_counter() - began)
        run.run.peak_bytes(*run.inputs((batch,), None))
        statistics_of = torch.cuda.memory_stats()
        (peak,) = [item.peak_bytes for item in run.statistics()]
    rounded = statistics_of["allocated_bytes.all.peak"] - statistics_of["requested_bytes.all.peak"]
    off, worst = apart(state, weights)
    loss = losses_apart(own, losses)
    allowed = [TOLERANCES[dtype]] * 2
    if dtype != "float64" and (loss > allowed[0] or off > allowed[1]):
        exact, truth, _ = plain(case, "float64")
        loss, off = losses_apart(own, exact), apart(state, truth)[0]
        theirs = losses_apart(losses, exact), apart(weights, truth)[0]
        allowed = [max(TOLERANCES[dtype], ROUNDED * size) for size in theirs]
    forecast = predict(plan, store=store, backend="threads")
    took = statistics.median(seconds)
    row: Row = {
        "model": case.name,
        "dtype": dtype,
        "limit": "none" if share is None else f"{share:.0%}",
        "loss apart": loss,
        "allowed": allowed[0],
        "weights apart": off,
        "allowed too": allowed[1],
        "which": worst if off > allowed[1] else "",
        "planned MB": plan.peak / 1e6,
        "measured MB": peak / 1e6,
        "rounding MB": rounded / 1e6,
        "limit MB": None if plan.memory is None else plan.memory / 1e6,
        "predicted ms": 1e3 * (forecast.seconds + forecast.driver),
        "measured ms": 1e3 * took,
        "eager ms": 1e3 * eager,
        "priced by": forecast.priced_by,
    }
    return row, plan


def wrong(row: Row) -> Iterator[str]:
    what = f"{row['model']} {row['dtype']} limit {row['limit']}"
    if not (row["loss apart"] <= row["allowed"] and row["weights apart"] <= row["allowed too"]):
        yield f"{what}: losses {row['loss apart']:.2g} and weights {row['weights apart']:.2g} apart from PyTorch's"
    if row["measured MB"] > row["planned MB"]:
        yield f"{what}: {row['measured MB']:.3f} MB measured, {row['planned MB']:.3f} planned"
    if row["limit MB"] is not None and row["measured MB"] > row["limit MB"]:
        yield f"{what}: {row['measured MB']:.3f} MB measured, limit {row['limit MB']:.3f}"


# ------------------------------------------------------------------------------------------------- two workers

RANKS = """
import json, sys
import torch
import girih
from benchmarks.gpu import QUICK, training

plan = girih.load(sys.argv[1])
step, batch = training(QUICK[0], "float32")
with plan.start(device="cuda", model=step.model) as run:
    same = [run.verified_step(batch).ok for _ in range(2)]
    received = [int(item.bytes_received) for item in run.statistics()]
    state = run.state_dict()
    rank = run.run.crew.rank
if rank == 0:
    print(json.dumps({"same": all(same), "received": received, "keys": len(state)}))
"""


def two_workers(case: Case, count: int) -> list[Row]:
    """Two workers, of which each has one of `count` GPUs, or both have the same."""
    import girih

    step, batch = training(case, "float32")
    plan = girih.plan(step, batch, machine="local:2", compare=(), objective="bytes", progress=False)
    ways = ("processes", "torchrun") if count > 1 else ("threads", "processes", "torchrun")
    rows: list[Row] = []
    for way in ways:
        carrier = "references" if way == "threads" else "NCCL" if count > 1 else "gloo"
        row: Row = {"workers": way, "messages": carrier, "planned": [int(size) * 2 for size in plan.bytes_received]}
        try:
            with through("gloo" if carrier == "gloo" else ""):
                if way == "torchrun":
                    row.update(launched(plan))
                else:
                    with plan.start(backend=way, device="cuda") as run:
                        row["same"] = all(run.verified_step(batch).ok for _ in range(2))
                        row["received"] = [int(item.bytes_received) for item in run.statistics()]
        except Exception as error:
            row.update(same=False, received=[], error=f"{type(error).__name__}: {str(error)[:300]}")
        rows.append(row)
        note(row)
    return rows


@contextmanager
def through(transport: str) -> Iterator[None]:
    """Workers that start meanwhile send by this transport."""
    before = os.environ.pop("GIRIH_TRANSPORT", None)
    try:
        if transport:
            os.environ["GIRIH_TRANSPORT"] = transport
        yield
    finally:
        os.environ.pop("GIRIH_TRANSPORT", None)
        if before is not None:
            os.environ["GIRIH_TRANSPORT"] = before


def launched(plan: Any) -> Row:
    """The same under torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        plan.save(f"{folder}/plan.json")
        Path(folder, "ranks.py").write_text(RANKS)
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", f"{folder}/ranks.py"]
        path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, *command, f"{folder}/plan.json"],
            capture_output=True, text=True, timeout=170, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    found: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ------------------------------------------------------------------------------------------------- all


def measure(options: argparse.Namespace) -> Report:
    import torch

    if not torch.cuda.is_available():
        return Report(
            "Plans on GPUs",
            (("measured", "measured"),),
            ({"measured": "nothing: PyTorch sees no GPU here"},),
            "there is no GPU here, so nothing was measured",
        )
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory(prefix="girih-gpu-") as folder:
        return _measured(options, Path(folder) / "costs.sqlite")


def _measured(options: argparse.Namespace, store: Path) -> Report:
    import torch

    import girih
    from girih.run.calibrate.calibrate import calibrate

    rows: list[Row] = []
    misses: list[str] = []
    cases = QUICK if options.quick else (*CASES, LARGE)
    first = [girih.plan(*training(case, "float32"), machine="cuda:1", compare=(), progress=False) for case in cases]
    calibrate(
        "cuda:1",
        store_path=store,
        programs=[plan.program for plan in first],
        budget_seconds=options.calibrate,
        backend="threads",
    )
    for case in cases:
        kinds = ("float32",) if case is LARGE else tuple(TOLERANCES)
        for dtype in kinds:
            whole = None
            shares = LARGE_SHARES if case is LARGE else SHARES
            for share in shares if dtype == "float32" else shares[:1]:
                try:
                    row, plan = one_card(case, dtype, share, whole, store, options.rounds)
                except Exception as error:
                    misses.append(f"{case.name} {dtype} {share}: {type(error).__name__}: {str(error)[:400]}")
                    print(misses[-1], file=sys.stderr, flush=True)
                    break
                whole = whole or plan
                rows.append(row)
                note(row)
                misses += wrong(row)
    ratios = [row["measured ms"] / row["predicted ms"] for row in rows if row["dtype"] == "float32"]
    error = statistics.median(abs(ratio - 1) for ratio in ratios) if ratios else float("inf")
    if error > options.floor:
        misses.append(f"seconds {error:.0%} off the predicted in the median, floor {options.floor:.0%}")
    workers = two_workers(QUICK[0], torch.cuda.device_count())
    misses += [
        f"two workers, {row['workers']}: {row.get('error') or row}"
        for row in workers
        if not row["same"] or row["received"] != row["planned"]
    ]
    parts = [Report("Two workers", tuple((key, key) for key in workers[0]), tuple(workers), "")]
    if not options.alone:
        for part in (memory_gpu, optimize_gpu):
            own = part.BENCHMARK.defaults(quick=options.quick)
            found = part.measure(own)
            parts.append(found)
            misses += found.misses
    columns = list(rows[0] if rows else ())
    return Report(
        f"Plans on {torch.cuda.device_count()} × {torch.cuda.get_device_name()}",
        tuple((key, key) for key in columns),
        tuple(rows),
        f"numbers, bytes and peaks as planned in {len(rows)} runs; seconds {error:.0%} off the predicted in the median",
        tuple(misses),
        parts=tuple(parts),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=10, help="steps that are timed (default 10)")
    parser.add_argument("--calibrate", type=float, default=20.0, help="seconds of calibration (default 20)")
    parser.add_argument("--alone", action="store_true", help="without memory_gpu and optimize_gpu")


BENCHMARK = Benchmark(
    "gpu",
    __doc__ or "",
    measure,
    0.5,
    "how far seconds may be off the predicted, in the median",
    add_options,
    quick_floor=2.0,  # a small step is bound by the host, of which starting copies has no price
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
