"""Real training within a hard memory cap on this machine: the same bits, what was planned, and little time lost.

What: a ResNet, a GPT and an LSTM at 75, 50 and 25 % of what their step needs, moving tensors to files without names,
and computing them again. How: each capped plan and the plan without a cap run in turn, `--rounds` steps each behind the
first; seconds are medians. Both lie in arenas, as plans under a cap do: a step that takes new memory each time waits
for the system to clear its pages, which is no price of a cap. Plans and predictions go by what `girih calibrate`
measures before, of each model's calls and of copies to files, `--calibrate` seconds for each model. Peaks are measured
by PyTorch's profiler; the weights after these steps are held against those of the uncapped run. Against: the cap; the
uncapped run, times the slowdown that was simulated; and PyTorch's own way, `torch.utils.checkpoint` over the model's
blocks in a plain eager loop: its measured peak is given to girih as a cap, and the seconds of both are compared; and
the same capped run without an arena. Floors: no cap exceeded, nor by the arena; planned = measured to the byte, equal
bits (where something is computed in pieces: to the order of its sums); seconds within 15 % of the predicted; no slower
than checkpointing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from functools import partial
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

MODELS: tuple[tuple[str, int, dict[str, Any], str], ...] = (  # batch, options, the class of the blocks
    ("wresnet-50-1-64", 16, {}, "Bottleneck"),
    ("gpt-4-256", 8, {"sequence": 128, "vocabulary": 1024}, "DecoderBlock"),
    ("rnn-2-512", 64, {"input": 256, "vocabulary": 256}, "LSTMCell"),
)
QUICK: tuple[tuple[str, int, dict[str, Any], str], ...] = (("gpt-tiny", 8, {}, "DecoderBlock"),)
SHARES = (0.75, 0.5, 0.25)
NEAR = 0.15
REASSOCIATED = 1e-5
"""Of a tensor's largest number: sums that are computed in pieces are rounded otherwise."""


def training(name: str, batch: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """(step, batch) with real tensors, the same each time."""
    import torch

    from girih.capture import TrainingStep
    from girih.models import example

    torch.manual_seed(0)
    made = example(name, batch=batch, device="cpu", **options)
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.01, momentum=0.9)
    return TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs


def in_turn(runs: dict[str, Any], rounds: int) -> dict[str, float]:
    """Median seconds of a step of each, behind the first."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, step in runs.items():
            began = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}


def checkpoint_blocks(model: Any, blocks: str) -> None:
    """Have PyTorch compute each module of the class `blocks` again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    for module in model.modules():
        if type(module).__name__ == blocks:
            plain = module.forward
            module.forward = lambda *given, plain=plain: checkpoint(plain, *given, use_reentrant=False)


def checkpointed(name: str, batch: int, options: dict[str, Any], blocks: str) -> tuple[Any, int]:
    """(a step of the eager loop that checkpoints each block, its measured peak in bytes)."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from girih.run.worker.measure import highest

    step, inputs = training(name, batch, options)
    checkpoint_blocks(step.model, blocks)

    def once() -> None:
        step.optimizer.zero_grad(set_to_none=True)
        step.step(step.model, inputs).backward()
        step.optimizer.step()

    once()
    step.optimizer.zero_grad(set_to_none=True)
    state = [*step.model.parameters(), *step.model.buffers(), *torch.utils._pytree.tree_leaves(inputs)]
    state += [item for slots in step.optimizer.state.values() for item in slots.values()]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        once()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    held = sum(item.nbytes for item in state if isinstance(item, torch.Tensor))
    return once, held + highest(changes)


def apart(first: Any, second: Any) -> float:
    """The largest difference of two states' tensors, over the tensor's largest number; 0 for equal bits.

    Of tensors that are nothing but rounding (the gradients of keys' biases are 0) over a thousandth of the state's.
    """
    if all(first[name].equal(second[name]) for name in first):
        return 0.0
    largest = {name: float(one.abs().max()) for name, one in first.items()}
    least = max(largest.values()) / 1000
    return max(float((one - second[name]).abs().max()) / max(largest[name], least) for name, one in first.items())


def measure(options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory(prefix="girih-memory-caps-") as folder:
        return _measured(options, folder)


def _measured(options: argparse.Namespace, folder: str) -> Report:
    import girih
    from girih.run.calibrate.calibrate import calibrate

    rows: list[Row] = []
    misses, notes = [], []
    chosen = [case for case in MODELS if case[0] in (options.models or {case[0]})]
    for name, batch, sizes, blocks in QUICK if options.quick else chosen:
        step, inputs = training(name, batch, sizes)
        free = girih.plan(step, inputs, machine="local:1", memory="unlimited", compare=(), objective="bytes")
        store = f"{folder}/{name}.sqlite"
        seconds = 1.0 if options.quick else options.calibrate
        profile = calibrate("local:1", store_path=store, programs=[free.program], budget_seconds=seconds)
        note({"calibrated": name, "copies to files": profile.moving})
        notes.append(f"{name}: copies to files as measured: {profile.moving}")
        free = girih.plan(
            step, inputs, machine="local:1", memory="unlimited", compare=(), store=store, objective="bytes"
        )
        eager, theirs = checkpointed(name, batch, sizes, blocks)
        for what in ("checkpoint", *(SHARES[1:2] if options.quick else SHARES)):
            cap = theirs if what == "checkpoint" else int(free.peak * float(what))
            label = f"{name}@{batch}, {what if isinstance(what, str) else f'{what:.0%}'}"
            began = time.perf_counter()
            plan = girih.plan(step, inputs, machine="local:1", memory=cap, compare=(), store=store, objective="bytes")
            note({"planned": label, "seconds": round(time.perf_counter() - began, 1)})
            with (
                free.start(backend="threads", arena="on") as uncapped,
                plan.start(backend="threads") as capped,
                plan.start(backend="threads", arena="off") as loose,
            ):
                runs = {"free": partial(uncapped.step, inputs), "capped": partial(capped.step, inputs)}
                runs["loose"] = partial(loose.step, inputs)
                if what == "checkpoint":
                    runs["checkpoint"] = eager
                seconds = in_turn(runs, 1 if options.quick else options.rounds)
                error_of_weights = apart(uncapped.state_dict(), capped.state_dict())
                use = capped.statistics()[0].arena
                peak = capped.run.peak_bytes(*capped._inputs((inputs,), None))[0]
            told = plan.predicted
            slowdown = told.simulated / told.unlimited if told.simulated and told.unlimited else 1.0
            error = seconds["capped"] / (seconds["free"] * slowdown) - 1
            row: Row = {
                "model, cap": label,
                "cap MB": round(cap / 1e6, 1),
                "planned MB": round(plan.peak / 1e6, 1),
                "measured MB": round(peak / 1e6, 1),
                "arena / cap": None if use is None else round(use.bytes / cap, 3),
                "outside MB": None if use is None else round(use.outside / 1e6, 3),
                "arena / without": None if use is None else round(seconds["capped"] / seconds["loose"], 3),
                "capped / free": round(seconds["capped"] / seconds["free"], 3),
                "predicted": round(slowdown, 3),
                "error": round(error, 3),
                "capped / checkpoint": round(seconds["capped"] / seconds["checkpoint"], 3)
                if "checkpoint" in seconds
                else None,
                "weights": "same bits" if error_of_weights == 0 else f"apart by {error_of_weights:.1g}, in pieces",
            }
            rows.append(row)
            note(row)
            planned = plan.peak if use is None else plan.arenas[0].peak  # with copies of state at the end
            if not peak == planned <= cap:
                misses.append(f"{label}: planned {planned}, measured {peak}, cap {cap}")
            if use is not None and (use.bytes > cap or use.outside):
                misses.append(f"{label}: an arena of {use.bytes}, {use.outside} outside of it, cap {cap}")
            if error_of_weights > (REASSOCIATED if plan.choice.pieces else 0):
                misses.append(f"{label}: the weights differ by {error_of_weights:.1g}")
            if not options.quick and abs(error) > NEAR:
                misses.append(f"{label}: {error:+.0%} of the predicted seconds")
            if not options.quick and "checkpoint" in seconds and seconds["capped"] > seconds["checkpoint"]:
                misses.append(f"{label}: {seconds['capped'] / seconds['checkpoint']:.2f} × checkpointing")
    return Report(
        "Training within a hard cap, run for real",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{len(rows)} caps kept, at most {max(row['capped / free'] for row in rows):.2f} × the free step",
        tuple(misses),
        tuple(notes),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calibrate", type=float, default=20.0, help="seconds of measuring for each model (20)")
    parser.add_argument("--models", nargs="*", choices=[case[0] for case in MODELS], help="only these")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each run that are timed (default 5)")


BENCHMARK = Benchmark("memory_caps", __doc__ or "", measure, 0.0, "unused", options=add_options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
