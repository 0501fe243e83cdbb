"""Loops over blocks hold what was predicted: to the byte where nobody steals, and no more where threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import girih.array as gnp
from girih.capture.lazy.expressions import NUMBER, Needed, needed
from girih.program import Blocks, BlockStep, Program
from girih.program.fusion.block_memory import loop_bytes
from girih.program.life.accounts import live_bytes, memory_use
from girih.run.engines.threads import ThreadCrew
from girih.run.loops.loop import Loop
from girih.run.training.session import Run, start
from girih.run.worker.initial import key_of
from girih.run.worker.measure import highest

ROWS, COLUMNS, CACHE = 3001, 160, 1 << 17
Function = Callable[[gnp.Array], list[gnp.Array]]


def planned(made: list[gnp.Array], workers: int, backend: str, cluster: gnp.Cluster) -> tuple[Program, Needed]:
    assert (cluster.workers, cluster.engine.name) == (workers, backend)
    cluster.blocks = Blocks(cache=CACHE, call=0.0, small=0)
    work = needed([array.expression for array in made])
    return cluster.plan_of(work).program, work


def program_of(make: Callable[[], list[gnp.Array]], workers: int, backend: str) -> tuple[Program, Needed]:
    with gnp.cluster(workers=workers, backend=backend) as cluster:
        return planned(make(), workers, backend, cluster)


def started(program: Program, work: Needed, backend: str) -> tuple[Run, dict[str, torch.Tensor]]:
    """The run with its state, and what a step is given."""
    tensors = {work.names[item]: torch.from_numpy(item.content) for item in work.inputs}
    given = {work.names[item]: tensors[work.names[item]] for item in work.inputs if item.operator == NUMBER}
    state = {key_of(item): tensors[item.name] for item in program.graph.state_inputs}
    return start(program, backend=backend, state=state), given


def chunks_of(program: Program) -> list[int]:
    steps = [step for step in program.steps if isinstance(step, BlockStep)]
    return [len(Loop(program, step, 0, "cpu").chunks) for step in steps]


def points(kind: str) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(ROWS, COLUMNS)) * 9).astype(kind)


def several(x: gnp.Array) -> list[gnp.Array]:
    y = x * 2
    return [y.sum(0), y.max(0), (y * x).sum(0), y.prod(0), y + x]


SUMS: dict[str, Function] = {
    "sum": lambda x: [(x * 2).sum(0)],
    "max": lambda x: [(x * 2).max(0)],
    "product": lambda x: [(x[:, :64] * 2).T @ x[:, :64]],
    "several": several,
}


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", list(SUMS))
def test_one_worker_needs_what_was_predicted(name: str, kind: str) -> None:
    program, work = program_of(lambda: SUMS[name](gnp.array(points(kind))), 1, "threads")
    assert not program.stealing
    assert max(chunks_of(program)) > 2
    run, given = started(program, work, "threads")
    with run:
        measured = [run.peak_bytes({}, given)[0] for _ in range(2)]  # the second time as TorchScript
    assert measured == [memory_use(program, 0, 1).peak] * 2


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "several"])
def test_processes_need_what_was_predicted(name: str, kind: str) -> None:
    program, work = program_of(lambda: SUMS[name](gnp.array(points(kind))), 2, "processes")
    assert not program.stealing
    assert max(chunks_of(program)) > 4
    run, given = started(program, work, "processes")
    with run:
        measured = run.peak_bytes({}, given)
    assert measured == [memory_use(program, rank, 1).peak for rank in range(2)]


OTHERS: dict[str, Function] = {
    "finite": lambda x: [gnp.isfinite(x * 2).sum(0)],
    "nan": lambda x: [gnp.isnan(x * 2).sum(0)],
    "sorted": lambda x: [gnp.sort(x * 2, axis=1).max(0)],
    "drawn": lambda x: [gnp.random.normal(size=(4 * ROWS, 7)).sum(0)],
    "drawn and kept": lambda x: [gnp.random.uniform(size=(4 * ROWS, 7)) * 2],
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", list(OTHERS))
def test_kernels_that_make_a_result_of_their_own(name: str, kind: str) -> None:
    """Their rules may be bounds, by some numbers."""
    program, work = program_of(lambda: OTHERS[name](gnp.array(points(kind))), 1, "threads")
    assert max(chunks_of(program)) > 2
    run, given = started(program, work, "threads")
    with run:
        measured = run.peak_bytes({}, given)[0]
    predicted = memory_use(program, 0, 1).peak
    assert measured <= predicted <= measured + 64


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_sums_in_files_are_beside_their_totals(kind: str) -> None:
    program, work = program_of(lambda: SUMS["several"](gnp.array(points(kind))), 1, "threads")
    (step,) = [step for step in program.steps if isinstance(step, BlockStep)]
    program = replace(program, files=frozenset(loop_bytes(program, step, 0, 1).sums))
    assert len(program.files) == 4
    run, given = started(program, work, "threads")
    with run:
        assert run.peak_bytes({}, given)[0] == memory_use(program, 0, 1).peak
        made = run.step({}, given)
    expected = [array.compute() for array in SUMS["several"](gnp.array(points(kind)))]
    for (name, got), other in zip(made.items(), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), other, rtol=1e-4, atol=1e-2, err_msg=name)


def by_label(kind: str, numbers: tuple[int, ...], outside: bool) -> list[gnp.Array]:
    x, place = gnp.array(points(kind)), np.arange(ROWS) % 5
    place[::7] = 99 if outside else 0
    labels = gnp.array(place)
    return [gnp.stack([(x * 2)[labels == number].sum(0) for number in numbers])]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3, 4), (3, 1, 4)])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_sums_by_label_need_what_was_predicted(kind: str, numbers: tuple[int, ...]) -> None:
    """Of the rule's bound, which supposes labels that are none of the numbers: with such there, to the byte."""
    program, work = program_of(lambda: by_label(kind, numbers, True), 1, "threads")
    assert "girih.sums_by_position" in {node.operator for node in program.graph.nodes}
    assert max(chunks_of(program)) > 2
    run, given = started(program, work, "threads")
    predicted = memory_use(program, 0, 1).peak
    with run:
        assert run.peak_bytes({}, given)[0] == predicted
    run, given = started(program, program_of(lambda: by_label(kind, numbers, False), 1, "threads")[1], "threads")
    with run:
        assert 0.9 * predicted < run.peak_bytes({}, given)[0] <= predicted


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What workers that are threads allocate and release: (microseconds, bytes). torch.profiler sees one thread."""
    from torch.autograd import ProfilerConfig, ProfilerState, _disable_profiler_legacy, _enable_profiler_legacy
    from torch.profiler import _ExperimentalConfig

    changes: list[tuple[float, int]] = []
    first: list[Any] = []
    serve = ThreadCrew._serve

    def seen(self: ThreadCrew, *given: Any) -> None:
        options_of = ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig())
        _enable_profiler_legacy(options_of)
        try:
            serve(self, *given)
        finally:
            events = [event for part in _disable_profiler_legacy() for event in part]
            first.extend(events[:1])
            found = (event for event in events if event.kind() == "memory_alloc")
            changes.extend((first[0].cpu_elapsed_us(event), event.cpu_memory_usage()) for event in found)

    monkeypatch.setattr(ThreadCrew, "_serve", seen)
    return changes


@pytest.mark.parametrize("name", ["sum", "several"])
@pytest.mark.parametrize("workers", [2, 3])
def test_threads_that_steal_need_no_more_than_predicted(
    workers: int, name: str, allocated: list[tuple[float, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, work = program_of(lambda: SUMS[name](gnp.array(points("float64"))), workers, "threads")
    assert program.stealing
    compute, begun, together = Loop.chunk, set[str](), threading.Barrier(workers)

    def slow(self: Loop, *arguments: Any) -> list[Any]:
        name = threading.current_thread().name
        if name not in begun:  # all are in their loops when the first is done
            begun.add(name)
            together.wait(30)
        if name == "girih worker 1":
            time.sleep(0.02)
        return compute(self, *arguments)

    monkeypatch.setattr(Loop, "chunk", slow)
    run, given = started(program, work, "threads")
    with run:
        made = run.step({}, given)
        assert run.crew.hub.board.stolen > 0  # type: ignore[attr-defined]
    measured = highest(size for _, size in sorted(allocated))
    uses = [memory_use(program, rank, 1) for rank in range(workers)]
    alone = [memory_use(replace(program, stealing=False), rank, 1) for rank in range(workers)]
    assert sum(use.state for use in uses) < measured <= sum(use.peak for use in uses)
    assert sum(use.peak for use in alone) < sum(use.peak for use in uses) < 1.2 * measured
    assert made


def test_chunks_that_may_be_stolen_are_counted() -> None:
    """All sums where the loop is, and the buffers of a chunk on who may take it, also while it waits."""
    shared, _ = program_of(lambda: SUMS["sum"](gnp.array(points("float64"))), 2, "threads")
    apart = replace(shared, stealing=False)
    step = next(step for step in shared.steps if isinstance(step, BlockStep))
    mine, other = loop_bytes(shared, step, 0, 1), loop_bytes(apart, step, 0, 1)
    (name,) = mine.sums
    row = int(np.prod(shared.part_shape(name, shared.places[name], 0))) * 8
    assert (mine.peak - other.peak, mine.after, other.stolen) == ((chunks_of(shared)[0] - 2) * row, other.after, 0)
    assert mine.stolen >= step.rows * row
    for device in range(2):
        told, without = live_bytes(shared, device, 1), live_bytes(apart, device, 1)
        assert told.max() == memory_use(shared, device, 1).peak >= without.max() == memory_use(apart, device, 1).peak
        waits = [number for number, item in enumerate(shared.steps, 1) if not isinstance(item, BlockStep)]
        assert (told[waits] - without[waits] == mine.stolen).all()
        assert told[-1] - without[-1] == told[0] - without[0] == mine.stolen
