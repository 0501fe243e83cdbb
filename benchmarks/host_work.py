"""What the workers of `benchmarks.slow_links` do, each in its host: measure the links, and run plans by turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHECKED_STEPS = 3  # of which losses are compared; they warm up, too
TIMED_STEPS = 2  # in a row, behind one that brings the plan's code and data back into the caches, as in training


def links(rank: int, hosts: int, seconds: float, largest: int) -> tuple[Any, Any]:
    """((pattern, seconds by size) between the hosts, seconds that a step takes besides), as girih measures them."""
    from girih.run.calibrate.calibrate import idle_program, measured_handing, measured_links
    from girih.run.engines.torchrun import RankCrew
    from girih.run.worker.service import Options

    crew = RankCrew(idle_program(hosts), Options(timeout=600.0, threads=1))
    return tuple(measured_links(crew, seconds, largest, between="own clocks")), measured_handing(crew, largest)


@dataclass(frozen=True)
class Step:
    """A step of a plan on one worker. seconds: from the start of `step` to its end on this worker. own: of the worker's
    instructions. kernels, transfers: of these."""

    seconds: float
    own: float
    kernels: float
    transfers: float


def run_plans(
    rank: int, paths: list[str], model: str, batch: int, options: dict[str, Any], rounds: int
) -> list[tuple[list[float], list[Step]]]:
    """Run saved plans by turns, some steps in a row each: (losses of the first steps, the timed steps) of each."""
    from contextlib import ExitStack

    import girih
    from girih.models import random_batch

    batches = [random_batch(model, batch=batch, seed=number, **options) for number in range(CHECKED_STEPS)]
    made: list[tuple[list[float], list[Step]]] = [([], []) for _ in paths]
    with ExitStack() as stack:
        running = [stack.enter_context(girih.load(path).start(backend="torchrun", timeout=600.0)) for path in paths]
        for turn in range(1 + rounds):
            for run, (losses, steps) in zip(running, made, strict=True):
                for number in range(CHECKED_STEPS if turn == 0 else 1 + TIMED_STEPS):
                    loss, step = timed_step(run, batches[number % CHECKED_STEPS], rank)
                    if turn == 0:
                        losses.append(loss)
                    elif number:
                        steps.append(step)
    return made


def timed_step(running: Any, batch: Any, rank: int) -> tuple[float, Step]:
    import time

    before = running.statistics()[rank].times  # of all workers: a common start
    began = time.perf_counter()
    loss = running.step(batch)
    seconds = time.perf_counter() - began
    after = running.statistics()[rank].times
    own = (after.total - before.total, after.kernels - before.kernels, after.transfers - before.transfers)
    return loss, Step(seconds, *own)
