"""What memory_gpu does where there is a GPU, done here: its ways to train on the processor, its search with ways that
are told."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import memory_gpu
from benchmarks.memory_gpu import PEERS, Case, Outcome, Place, Ready, Trials, compared, largest, missed, report_of
from girih.machine import machine
from girih.plans.plan import PlanError
from girih.run.errors import WorkerError
from girih.run.worker.measure import highest

TINY = Case(
    "GPT", lambda size: f"gpt-{size}-64", {"sequence": 32, "vocabulary": 64}, "words", 32, "DecoderBlock", 2, 2, 8
)


@dataclass(frozen=True)
class Processor:
    """This one. The most that is allocated is measured by PyTorch's profiler, and nothing refuses more."""

    limit: int
    kind: str = "cpu"

    def machine(self) -> Any:
        return machine("local:1")

    def tried(self, build: Callable[[], Ready], rounds: int) -> Outcome | None:
        from torch.profiler import ProfilerActivity, profile

        gc.collect()  # what is freed meanwhile would be counted
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            ready = build()
            for _ in range(rounds):
                ready.step()
            ready.close()
        events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
        peak = highest(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
        return Outcome(0.5, peak) if peak <= self.limit else None


@pytest.fixture
def one_rank() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def first(way: memory_gpu.Way, place: Place, case: Case = TINY) -> Ready:
    return next(iter(way(case, case.size, case.batch, place)))()


def test_all_ways_train_alike(one_rank: None) -> None:
    ways = {**PEERS, "memory budget": memory_gpu.memory_budget("aot_eager_decomp_partition"), "girih": memory_gpu.girih}
    losses = {}
    for name, way in {"eager": memory_gpu.eager, **ways}.items():
        ready = first(way, Processor(1 << 30))
        losses[name] = [ready.step() for _ in range(2)]
        ready.close()
    assert losses["eager"][0] != losses["eager"][1]
    for name, own in losses.items():
        assert own == pytest.approx(losses["eager"], rel=1e-4), name


def test_what_takes_less_memory_fits_where_the_other_does_not() -> None:
    plain = Trials(TINY, Processor(1 << 30), 2)
    peaks = [plain.tried(way, 8, 8).peak for way in (memory_gpu.eager, memory_gpu.checkpointing)]
    assert peaks[1] < peaks[0]
    tight = Trials(TINY, Processor(peaks[0] - 1), 2)
    assert tight.tried(memory_gpu.eager, 8, 8) is None
    assert tight.tried(memory_gpu.checkpointing, 8, 8) == plain.tried(memory_gpu.checkpointing, 8, 8)


def test_a_plan_that_does_not_fit_is_memory_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = []

    def refusing(step: Any, inputs: Any, *, memory: int, **options: Any) -> Any:
        rooms.append(memory)
        raise PlanError("cannot be met")

    monkeypatch.setattr("girih.api.plan", refusing)
    for build in memory_gpu.girih(TINY, 2, 2, Processor(10_000)):
        with pytest.raises(torch.OutOfMemoryError, match="cannot be met"):
            build()
    assert rooms == [10_000, 9_700, 9_300, 8_800]

    def fails(words: str) -> None:
        raise WorkerError(0, "step 3", words)

    with pytest.raises(torch.OutOfMemoryError):
        memory_gpu.refused_as_memory(WorkerError, fails, "CUDA out of memory. Tried to allocate")
    with pytest.raises(WorkerError):
        memory_gpu.refused_as_memory(WorkerError, fails, "it hangs")


@settings(max_examples=random_cases(60))
@given(st.integers(0, 5000), st.integers(1, 64), st.integers(1, 5000))
def test_the_largest_that_fits_is_found_in_few_trials(limit: int, begin: int, most: int) -> None:
    asked = []
    found = largest(lambda number: asked.append(number) or number <= limit, begin, most, fine=16)
    assert len(asked) == len(set(asked)) <= 20
    assert all(1 <= number <= most for number in asked)
    best = min(limit, most)
    assert best - max(1, best // 16) <= found <= best
    assert (found == 0) == (best == 0)


@dataclass(frozen=True)
class Told:
    """A way that takes so many bytes for each sample and size, and so many seconds for each sample."""

    bytes: int
    seconds: float

    def __call__(self, case: Case, size: int, batch: int, place: Place) -> Iterable[Any]:
        return [Outcome(self.seconds * batch, self.bytes * size * batch)]


@dataclass(frozen=True)
class Paper:
    limit: int
    kind: str = "cpu"

    def machine(self) -> Any:
        raise NotImplementedError

    def tried(self, build: Any, rounds: int) -> Outcome | None:
        return build if build.peak <= self.limit else None


def test_ratios_and_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("GPT", lambda size: f"gpt-{size}", {}, "words", 10, "", 2, 4, 64)
    ours, lean, wide, huge = Told(10, 0.01), Told(5, 0.02), Told(20, 0.005), Told(10_000, 1.0)
    trials = Trials(case, Paper(640), 1)
    rows = {
        row["way"]: row for row in compared(trials, ours, {"lean": lean, "wide": wide, "huge": huge}, {"eager": huge})
    }
    assert [rows[way]["largest batch"] for way in rows] == [32, 64, 16, 0, 0]
    assert [rows[way]["largest model"] for way in rows] == ["gpt-16", "gpt-32", "gpt-8", "none", "none"]
    assert (rows["girih"]["per second"], rows["girih"]["peak GB"]) == (1000.0, 0.0)
    assert [rows["lean"][f"{what} / theirs"] for what in ("batch", "model", "speed")] == [0.5, 0.5, None]
    assert [rows["wide"][f"{what} / theirs"] for what in ("batch", "model", "speed")] == [2.0, 2.0, 0.5]
    misses = missed(rows.values(), ("lean", "wide", "huge"), 1.0)
    assert misses == [
        "GPT: batch 0.5 × that of lean, floor 1",
        "GPT: model 0.5 × that of lean, floor 1",
        "GPT: speed None × that of lean, floor 1",
        "GPT: speed 0.5 × that of wide, floor 1",
    ]
    monkeypatch.setattr(memory_gpu, "PEERS", {"wide": wide})
    report = report_of(list(rows.values()), "somewhere", 0.4)
    assert report.misses == ()
    assert report.summary == "at least 2.00 × the batch, 2.00 × the model, 0.50 × the speed of every peer"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which takes long")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_gpu.BENCHMARK.main(["--check"]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == (
        "PASS memory_gpu: there is no GPU here, so nothing was measured"
    )
