"""Which of several ways to run a model is the fastest: measured in turns, and chosen against the noise of the clock.

All run on the same example, one after another in rounds, so that what else the machine does falls on all alike; each
round has an order of its own. A turn begins when this process is at rest: threads of the way before spin on the cores
for a while (those of ONNX Runtime for some 40 ms, in which OpenVINO takes 1.7 times as long). It goes on for `WAKING`
seconds, of whose calls the later half counts: while others had their turns, the caches have filled with what is theirs,
and a program calls one model again and again. What is far behind after a few rounds is measured no longer; what is so
when it is built is let go, with its copy of the weights.
A way's time is that of its faster rounds (`QUANTILE`), in which nothing else had its core: on a shared machine a median
tells who else was there. With one thread seconds are the processor's, which others cannot take. How far two halves of
the fastest way's rounds are apart is the noise; a simpler way within it, or within `TIE`, is as fast, and is taken.
Cost: the rounds take about `SECONDS`, and at least `ROUNDS[0]` of them.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from girih.inference.runtimes.apart import ApartError
from girih.run.distance import distance

FIRST_ROUNDS = 4
FAR = 1.4
"""How many times the least time of the fastest: such a way is out of the race."""
ROUNDS = 15, 101
SECONDS = 4.0
QUANTILE = 0.2
TIE, MOST_NOISE = 1.01, 1.02
CALLS, WAKING = 4, 15e-3
"""The least number and seconds of calls in a turn."""
PAUSE, LONGEST, QUIET = 2e-3, 0.1, 0.2
"""Seconds at a time, and in all, that a turn waits for threads of the way before; the share of a core that is rest."""
INT8, BFLOAT16 = SHORT = ", int8", ", bfloat16"
"""Behind a program's name: its products are computed in whole numbers of 8 bits, or all of it in bfloat16."""
PROBES = 4
"""How many calls at random such a program is compared in."""
ROUNDINGS, SHORT_ROUNDINGS = 8192, 4
"""What another order of additions may change, in roundings of the largest number: in float32 that is 1e-3 of it. Types
that are shorter are added up in float32, and rounded at the end."""

Progress = Callable[[str, float], None]
Run = Callable[..., Any]
Way = tuple[str, str, Callable[[], Run]]
"""A program's name, a back end's, and what builds it."""


@dataclass(frozen=True)
class Turn:
    """How a way has its turn. clock: what counts, in seconds. doubt: how many times as long the first rounds may seem
    to take."""

    clock: Callable[[], float]
    doubt: float

    def seconds(self, run: Callable[[], object], *, alone: bool = False) -> float:
        """Of a call. alone: nobody else has had a turn, so that the next call counts."""
        if alone:
            return self._call(run)
        at_rest()
        took: list[float] = []
        until = time.perf_counter() + WAKING
        while len(took) < CALLS or time.perf_counter() < until:
            took.append(self._call(run))
        return statistics.median(took[len(took) // 2 :])

    def _call(self, run: Callable[[], object]) -> float:
        began = self.clock()
        run()
        return self.clock() - began


def at_rest() -> None:
    """Return when no thread of this process computes, or after `LONGEST` seconds."""
    for _ in range(round(LONGEST / PAUSE)):
        began = time.process_time()
        time.sleep(PAUSE)
        if time.process_time() - began < QUIET * PAUSE:
            return


ONE_THREAD = Turn(time.process_time, 1.0)
"""By the processor's clock, on which others do not count."""
SEVERAL_THREADS = Turn(time.perf_counter, 1.4)
"""By the wall's, since they wait for each other; whoever else has a core for a moment makes them half as fast."""


def turn_of(threads: int) -> Turn:
    return ONE_THREAD if threads == 1 else SEVERAL_THREADS


@dataclass(frozen=True)
class Candidate:
    """A way to run the model. program: `as it was` or `rewritten`. seconds: that its faster rounds took; None: it does
    not run, and why. error: of a program in short types, by how much it was off, as a share of the largest number."""

    program: str
    backend: str
    seconds: float | None
    why: str = ""
    error: float | None = None


def fastest(
    ways: Iterator[Way],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    progress: Progress = lambda what, share: None,
    turn: Turn = SEVERAL_THREADS,
    check: Callable[..., object] | None = None,
    tolerance: float = 0.0,
    share: float = 1.0,
) -> tuple[tuple[Candidate, ...], Candidate, Run]:
    """All candidates, the one that is chosen, and what runs it. ways: the simplest first; the first is the model
    itself, with whose results all others are compared, and a way with others is refused. check: what is asked before
    each call of the others, which counts in their time. tolerance: of programs in short types (`SHORT`), on the example
    and on others at random. share: of the time that measuring takes."""
    built: list[tuple[str, str, Run | None, str]] = []
    expected: list[Any] = []
    gone: dict[int, float] = {}
    errors: dict[int, float] = {}
    least = float("inf")
    with torch.no_grad():
        for program, backend, build in ways:
            progress(f"build {backend} of the model {program}", 0.0)
            try:
                run = build()
                results = tree_leaves(run(*arguments, **named))
            except Exception as error:
                if not built:
                    raise
                why = str(error) if isinstance(error, ApartError) else _first_line(error)
                built.append((program, backend, None, f"does not run: {why}"))
                continue
            if not built:
                expected = [item.clone() if isinstance(item, torch.Tensor) else item for item in results]
            elif program.endswith(SHORT):
                probes = [(arguments, named), *(at_random(arguments, named, seed) for seed in range(PROBES))]
                off = max(_error(run, built[0][2], *probe) for probe in probes)
                errors[len(built)] = off
                if off > tolerance:
                    why = f"refused: it is off by {off:.2g} of the largest number, and {tolerance:g} is allowed"
                    built.append((program, backend, None, why))
                    continue
            elif not same(results, expected):
                built.append((program, backend, None, "refused: its results are others"))
                continue
            at_rest()
            alone = min(turn.seconds(partial(run, *arguments, **named), alone=True) for _ in range(FIRST_ROUNDS))
            least = min(least, alone)
            if alone > FAR * turn.doubt * least and built:
                gone[len(built)] = alone
                built.append((program, backend, None, ""))
                del run
                continue
            built.append((program, backend, run, ""))
        progress("measure in turns", 0.0)
        able = {number: run for number, (_, _, run, _) in enumerate(built) if run is not None}
        timed = [run if number == 0 else _checked(run, check) for number, run in able.items()]
        took = measured([partial(run, *arguments, **named) for run in timed], turn, share)
    chosen = [*able][choice(took)]
    seconds = gone | {number: quick(times) for number, times in zip(able, took, strict=True)}
    candidates = tuple(
        Candidate(program, backend, seconds.get(number), why, errors.get(number))
        for number, (program, backend, _, why) in enumerate(built)
    )
    return candidates, candidates[chosen], able[chosen]


def at_random(arguments: Sequence[Any], named: Mapping[str, Any], seed: int) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """A call like this one, with other numbers where they are no whole ones: as large, and as far apart."""
    generator = torch.Generator().manual_seed(seed)

    def other(tensor: Any) -> Any:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        spread = float(tensor.std(correction=0)) or 1.0  # of what is all alike, such as an example of zeros
        return tensor.mean() + spread * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)

    probe: tuple[Sequence[Any], Mapping[str, Any]] = tree_map_only(torch.Tensor, other, (tuple(arguments), dict(named)))
    return probe


def _error(run: Any, model: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> float:
    """By how much results are off, as a share of the largest number of each; infinite where they are of another kind,
    where whole numbers differ, and where one of the two alone is NaN."""
    results, expected = (tree_leaves(way(*arguments, **named)) for way in (run, model))
    if len(results) != len(expected):
        return float("inf")
    worst = 0.0
    for one, other in zip(results, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        if one.shape != other.shape or one.dtype != other.dtype:
            return float("inf")
        apart, largest = distance(one, other)
        share = float(apart) / max(float(largest), 1e-30)
        if math.isnan(share) or (share and not other.is_floating_point()):
            return float("inf")
        worst = max(share, worst)
    return worst


def _checked(run: Any, check: Callable[..., object] | None) -> Any:
    if check is None:
        return run

    def checked(*arguments: Any, **named: Any) -> None:
        check(arguments, named)
        run(*arguments, **named)

    return checked


def measured(runs: Sequence[Callable[[], object]], turn: Turn, share: float = 1.0) -> list[list[float]]:
    """Seconds of each way in each round; those far behind have the first rounds alone."""
    took: list[list[float]] = [[] for _ in runs]
    draw = random.Random(0)

    def rounds(numbers: Sequence[int], count: int) -> float:
        """How long a round takes, of the wall's clock."""
        began = time.perf_counter()
        for _ in range(count):
            for number in draw.sample(numbers, len(numbers)):
                took[number].append(turn.seconds(runs[number], alone=len(numbers) == 1))
        return (time.perf_counter() - began) / count

    every = range(len(runs))
    rounds(every, 1)
    for times in took:
        times.clear()  # the first call of each plans and allocates
    each = rounds(every, FIRST_ROUNDS)
    least = min(min(times) for times in took)
    near = [number for number in every if min(took[number]) <= FAR * turn.doubt * least]
    if len(near) > 1:
        low, high = ROUNDS
        rounds(near, max(low, min(high, int(share * SECONDS / each))))
    return took


def choice(took: Sequence[Sequence[float]]) -> int:
    """The number of the first way that is as fast as the fastest.

    took: seconds by way and round. Only ways with as many rounds as the most are in the race.
    """
    most = max(map(len, took))
    racing = [number for number, times in enumerate(took) if len(times) == most]
    best = min(racing, key=lambda number: quick(took[number]))
    low, high = sorted((quick(took[best][::2]), quick(took[best][1::2] or took[best])))
    noise = min(MOST_NOISE, high / low) if low else MOST_NOISE  # a profiler's timer makes the processor's clock coarse
    limit = quick(took[best]) * max(TIE, noise)
    return next(number for number in racing if quick(took[number]) <= limit)


def quick(times: Sequence[float]) -> float:
    """What a run takes where nothing disturbs it: a low quantile."""
    return sorted(times)[int(QUANTILE * len(times))]


def same(results: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Are results the same up to the order of additions, and to a few roundings of types shorter than float32?"""
    if len(results) != len(expected):
        return False
    for one, other in zip(results, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        apart, largest = distance(one, other)
        if not apart <= tolerance(other.dtype) * max(largest, 1e-30):  # it is NaN where one of the two is
            return False
    return True


def tolerance(dtype: torch.dtype) -> float:
    """The share of its largest number by which a result of this type may differ; whole numbers are to be equal."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    rounding = float(torch.finfo(dtype).eps)
    return (ROUNDINGS if rounding <= torch.finfo(torch.float32).eps else SHORT_ROUNDINGS) * rounding


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]
