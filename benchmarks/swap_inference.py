"""Inference in little memory: SwapAdvisor, table 5.2 and figure 5.3, simulated; the smallest limits run for real here.

What: ResNet-152 on images of 224, batches of 1, 16, 32 and 64, on one V100 with 64 MB to 1 GB (p3.2xlarge); then 4 and
16 such models that share the 16 GB of one V100, each within its part, while clients arrive at random. How: the
simulated step of the plan that girih finds for each limit. Operators take as much longer than girih's data sheets say
as makes the step with enough memory last what the thesis measured (last row of its table), so that what is compared is
the movements; seconds by data sheets stand beside. Convolutions take no workspace, as cuDNN's implicit products do
(girih's bound is for processors). For the figure: clients of a Poisson process, up to 64 that wait go together to a
model drawn at random, one model computes at a time, 20,000 clients. Against: the thesis's seconds, cell by cell; the
model that has the device alone (`alone`); and models that take turns with all of the memory, whose weights come in at
each turn (`in turns`). For real: a ResNet on this processor, within shares of what it needs, and four models that share
it; against the run without a limit. Floors: no cell slower than the thesis's, whose times are rounded to 1 ms; the 99th
percentile of shared models at most 2 × that of `alone` up to 400 clients a second, as the thesis says of its own;
no limit exceeded, planned = measured to the byte, equal bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.swap_throughput import slower

MACHINE = "p3.2xlarge"
MB = 1_000_000
LIMITS = (64, 128, 192, 256, 320, 512, 640, 1024)  # MB
THESIS: dict[int, tuple[float | None, ...]] = {  # seconds by batch, for each limit; None: N/A
    1: (0.024, 0.022, 0.018, 0.017, 0.017, 0.017, 0.017, 0.017),
    16: (None, 0.077, 0.044, 0.043, 0.042, 0.040, 0.040, 0.040),
    32: (None, None, None, 0.130, 0.073, 0.067, 0.067, 0.067),
    64: (None, None, None, None, None, 0.238, 0.123, 0.121),
}
ROUNDED = 0.0005
QUICK_THESIS = {1: (None, 0.004)}  # of ResNet-50 there is none: a time to scale to
QUICK_LIMITS = (64, 192)
MODELS = (4, 16)
RATES = (100, 200, 300, 400, 450, 500)  # clients a second
WISE = 400  # up to which the thesis finds sharing wise
CLIENTS = 20_000
DEVICE_BYTES = 16_000 * MB
REAL = ("resnet-152", 1, (64, 96, 128, 192))  # batch, MB
QUICK_REAL = ("resnet-tiny", 4, (0.9, 0.75))  # shares of what it needs


def graph_of(name: str, batch: int) -> Any:
    """The captured forward pass, on the meta device."""
    from girih.capture import Inference, capture
    from girih.models import example

    made = example(name, batch=batch, device="meta")
    return capture(Inference(made.module.eval()), made.inputs["images"]).graph


def free_plan(graph: Any, machine: Any) -> Any:
    """The plan with as much memory as it needs, its convolutions without workspace."""
    from girih.api import plan_graph
    from girih.cost.scratch import BOUND, Scratch, Told

    plan = plan_graph(graph, machine=machine, memory="unlimited", compare=(), objective="bytes")
    told = plan.told_scratch
    return plan.but(scratch=Scratch(None, told.threads, dict.fromkeys(told.calls, Told(0, BOUND))))


def within(plan: Any, limit: int) -> Any:
    """The plan within a limit in bytes; None where there is none."""
    from girih.machine.machine import with_memory
    from girih.plans.plan import PlanError
    from girih.program.moves.residency import floor
    from girih.search.memory.holding import held

    if plan.peak <= limit:
        return plan
    if floor(plan.lifetimes)[0] > limit:  # no operator fits by itself, and computing in pieces is not tried
        return None
    try:
        capped = plan.but(memory=limit, machine=with_memory(plan.machine, limit))
        return held(capped, "auto", store=None, note=lambda what, share: None)
    except PlanError:
        return None


def seconds_of(plan: Any) -> float:
    return float(plan.predict().seconds)


def table(
    name: str, thesis: dict[int, tuple[float | None, ...]], limits: tuple[int, ...], floor: float
) -> tuple[list[Row], list[str], dict[int, float]]:
    """Rows and misses of the table, and by batch the factor by which operators are slower than by data sheets."""
    from girih.machine import machine
    from girih.report.tables import copied_bytes

    rows: list[Row] = []
    misses: list[str] = []
    factors: dict[int, float] = {}
    for batch, theirs in thesis.items():
        graph = graph_of(name, batch)
        sheets = free_plan(graph, machine(MACHINE))
        assert theirs[-1] is not None
        factors[batch] = theirs[-1] / seconds_of(sheets)
        measured = free_plan(graph, slower(machine(MACHINE), factors[batch]))
        ideal = seconds_of(measured)
        for limit, wanted in zip(limits, theirs, strict=True):
            began = time.perf_counter()
            plan, by_sheets = within(measured, limit * MB), within(sheets, limit * MB)
            took = time.perf_counter() - began
            own = None if plan is None else seconds_of(plan)
            moved = plan is not None and bool(plan.choice.residency)
            bound = None if plan is None else plan.predicted.memory_bound
            row: Row = {
                "batch": batch,
                "MB": limit,
                "girih s": None if own is None else round(own, 4),
                "thesis s": wanted,
                "girih / thesis": None if own is None or wanted is None else round(own / wanted, 3),
                "of the ideal": None if own is None else round(ideal / own, 3),
                "bound s": round(bound, 4) if bound else None,
                "in MB": round(copied_bytes(plan)[1] / MB, 1) if moved else 0.0,
                "peak MB": None if plan is None else round(plan.peak / MB, 1),
                "by data sheets s": None if by_sheets is None else round(seconds_of(by_sheets), 4),
                "search s": round(took, 1),
            }
            rows.append(row)
            note(row)
            if plan is not None and plan.peak > limit * MB:
                misses.append(f"batch {batch}, {limit} MB: the plan needs {plan.peak} bytes")
            if wanted is not None and (own is None or own > (wanted + ROUNDED) * (1 + floor)):
                how = "cannot run" if own is None else f"takes {own:.4f} s"
                misses.append(f"batch {batch}, {limit} MB: {how}, the thesis has {wanted} s")
    return rows, misses, factors


def latencies(rate: float, sizes: tuple[int, ...], seconds: np.ndarray, switch: float, models: int) -> np.ndarray:
    """Seconds from the arrival of each client to its answer. seconds: of a batch of each size, which is filled up to
    the next of `sizes`; switch: seconds that a model takes to become the one that computes."""
    draw = np.random.default_rng(17)
    arrivals = np.cumsum(draw.exponential(1 / rate, CLIENTS))
    answered = np.empty(CLIENTS)
    now, done, last = 0.0, 0, -1
    while done < CLIENTS:
        now = max(now, arrivals[done])
        waiting = min(int(np.searchsorted(arrivals, now, side="right")) - done, sizes[-1])
        model = int(draw.integers(models))
        now += float(seconds[int(np.searchsorted(sizes, waiting))]) + (switch if model != last else 0.0)
        last = model
        answered[done : done + waiting] = now
        done += waiting
    return answered - arrivals


def shared(name: str, factors: dict[int, float], models: tuple[int, ...]) -> tuple[list[Row], list[str]]:
    """Rows and misses of the figure: the 99th percentile of latencies in seconds."""
    from girih.machine import machine

    plans = {batch: free_plan(graph_of(name, batch), slower(machine(MACHINE), factors[batch])) for batch in factors}
    sizes = tuple(plans)
    alone = np.asarray([seconds_of(plan) for plan in plans.values()])
    weights = sum(item.bytes for item in plans[sizes[0]].graph.values.values() if _is_state(plans[sizes[0]], item.name))
    host = machine(MACHINE).host
    assert host is not None
    switch = host.copy_seconds(weights, False)
    rows: list[Row] = []
    misses: list[str] = []
    for count in models:
        part = DEVICE_BYTES // count
        capped = [within(plan, part) for plan in plans.values()]
        own = np.asarray([seconds_of(plan) for plan in capped if plan is not None])
        for rate in RATES:
            percentile = {
                "alone": np.percentile(latencies(rate, sizes, alone, 0.0, 1), 99),
                "girih": np.percentile(latencies(rate, sizes[: len(own)], own, 0.0, count), 99),
                "in turns": np.percentile(latencies(rate, sizes, alone, switch, count), 99),
            }
            row: Row = {
                "models": count,
                "part MB": part // MB,
                "clients/s": rate,
                **{f"{what}, p99 s": round(float(value), 3) for what, value in percentile.items()},
                "girih / alone": round(float(percentile["girih"] / percentile["alone"]), 2),
                "in turns / alone": round(float(percentile["in turns"] / percentile["alone"]), 2),
            }
            rows.append(row)
            note(row)
            if rate <= WISE and percentile["girih"] > 2 * percentile["alone"]:
                misses.append(f"{count} models, {rate} clients/s: {row['girih / alone']} × alone, the thesis has 2")
    return rows, misses


def _is_state(plan: Any, name: str) -> bool:
    return plan.graph.role_of(name) in ("parameter", "buffer")


def real(name: str, batch: int, limits: tuple[float, ...], rounds: int) -> tuple[list[Row], list[str]]:
    """Rows and misses of runs on this processor. limits: MB, or, up to 1, shares of what is needed."""
    import girih
    from girih.models import example

    made = example(name, batch=batch, device="cpu")
    made.module.eval()
    images = made.inputs["images"]
    step = girih.Inference(made.module)
    rows: list[Row] = []
    misses: list[str] = []
    free = girih.plan(step, images, machine="local:1", memory="unlimited", compare=(), objective="bytes")
    with free.start(backend="threads") as uncapped:
        (wanted,) = uncapped.step(images)
        for amount in limits:
            limit = int(amount * (free.peak if amount <= 1 else MB))
            try:
                plan = girih.plan(step, images, machine="local:1", memory=limit, compare=(), objective="bytes")
            except girih.PlanError as error:
                misses.append(f"{name}, {limit} bytes: {str(error)[:120]}")
                continue
            with plan.start(backend="threads") as capped:
                seconds: dict[str, list[float]] = {"free": [], "capped": []}
                equal = True
                for _ in range(rounds + 1):
                    for what, run in (("free", uncapped), ("capped", capped)):
                        began = time.perf_counter()
                        (answer,) = run.step(images)
                        seconds[what].append(time.perf_counter() - began)
                        equal = equal and bool(answer.equal(wanted))
                peak = capped.run.peak_bytes(*capped._inputs((images,), None))[0]
            took = {what: statistics.median(each[1:]) for what, each in seconds.items()}
            row: Row = {
                "model": f"{name}@{batch}",
                "limit MB": round(limit / MB, 2),
                "planned MB": round(plan.peak / MB, 2),
                "measured MB": round(peak / MB, 2),
                "free s": round(took["free"], 4),
                "capped s": round(took["capped"], 4),
                "capped / free": round(took["capped"] / took["free"], 3),
                "same bits": equal,
            }
            rows.append(row)
            note(row)
            if not (peak == plan.peak <= limit and equal):
                misses.append(f"{row['model']}, {limit}: planned {plan.peak}, measured {peak}, same bits: {equal}")
    return rows, misses


def sharing(name: str, batch: int, models: int, share: float) -> tuple[list[Row], list[str]]:
    """Several models on this processor, each within a share of what it needs, called in turn."""
    import girih
    from girih.models import example

    made = [example(name, batch=batch, device="cpu", seed=seed) for seed in range(models)]
    images = made[0].inputs["images"]
    wanted, answers, peaks = [], [], []
    for one in made:
        one.module.eval()
        with girih.infer(one.module, images) as answer:
            wanted.append(answer(images))
            limit = int(answer.plan.peak * share)
        answers.append(girih.infer(one.module, images, memory=limit))
        peaks.append(answers[-1].plan.peak)
    turns = [number for _ in range(3) for number in range(models)]
    equal = all(bool(answers[number](images).equal(wanted[number])) for number in turns)
    for answer in answers:
        answer.close()
    row: Row = {"model": f"{models} × {name}@{batch}", "limit MB": round(models * limit / MB, 2)}
    row |= {"planned MB": round(sum(peaks) / MB, 2), "same bits": equal}
    note(row)
    return [row], [] if equal and max(peaks) <= limit else [f"{row['model']}: {peaks} of {limit}, same bits: {equal}"]


def measure(options: argparse.Namespace) -> Report:
    name = "resnet-50" if options.quick else "resnet-152"
    thesis, limits = (QUICK_THESIS, QUICK_LIMITS) if options.quick else (THESIS, LIMITS)
    rows, misses, factors = table(name, thesis, limits, options.floor)
    served, more = shared(name, factors, (64,) if options.quick else MODELS)
    model, batch, caps = QUICK_REAL if options.quick else REAL
    ran, others = real(model, batch, caps, options.rounds)
    together, rest = sharing(model, batch, 4, 0.75 if options.quick else 0.5)
    slowest = max((row["girih / thesis"] for row in rows if row["girih / thesis"]), default=None)
    worst = max(row["girih / alone"] for row in served if row["clients/s"] <= WISE)
    parts = [
        Report(title, tuple((key, key) for key in of[0]), tuple(of), "")
        for title, of in (
            (f"{name} on one {MACHINE}, table 5.2", rows),
            ("Models that share it, figure 5.3: 99th percentile of latency", served),
            ("On this processor", ran),
            ("Models that share this processor", together),
        )
        if of
    ]
    return Report(
        parts[0].title,
        parts[0].columns,
        parts[0].rows,
        f"at most {slowest} × the thesis's seconds; shared models at most {worst} × alone up to {WISE} clients/s; "
        f"{len(ran)} limits kept for real",
        (*misses, *more, *others, *rest),
        parts=tuple(parts[1:]),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="real steps that are timed (default 5)")


BENCHMARK = Benchmark(
    "swap_inference", __doc__ or "", measure, 0.0, "share by which a cell may be slower than the thesis's",
    options=add_options,
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
