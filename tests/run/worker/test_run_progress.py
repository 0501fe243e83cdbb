"""A long loop over blocks tells how far it is: seldom, with the same bits, and wherever the worker is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

import girih.array as gnp
from girih.capture.lazy.expressions import needed
from girih.program import Blocks, BlockStep, Program
from girih.run.errors import NOT_BEGUN
from girih.run.loops import loop as loops
from girih.run.loops.loop import Loop
from girih.run.worker.instructions import BlockLoop
from girih.run.worker.worker import Worker


class Cells(list):  # type: ignore[type-arg]
    """Progress, and what was told of loops."""

    def __init__(self) -> None:
        super().__init__(NOT_BEGUN)
        self.told: list[int] = []

    def __setitem__(self, place: int, value: int) -> None:  # type: ignore[override]
        if place == 2:
            self.told.append(value)
        super().__setitem__(place, value)


Run = Callable[[], dict[str, torch.Tensor]]


def prepared() -> tuple[Worker, Cells, Run]:
    """A worker of one loop of sums and maxima in many blocks, and its step."""
    x = np.random.default_rng(0).normal(size=(100_000, 8)).astype(np.float32)
    with gnp.cluster(workers=1, backend="threads", small=0) as cluster:
        cluster.blocks = Blocks(cache=1 << 14, call=0.0, small=0)
        y = gnp.array(x) * 2
        work = needed([array.expression for array in (y.sum(0), y.max(0), y.prod(), y + 1)])
        program: Program = cluster.plan_of(work).program
    assert sum(isinstance(step, BlockStep) for step in program.steps) == 1
    cells = Cells()
    worker = Worker(program, 0, progress=cells)
    tensors = {work.names[item]: torch.from_numpy(item.content) for item in work.inputs}
    worker.take_state({item.name: tensors[item.name] for item in program.graph.state_inputs})
    given = {name: tensor for name, tensor in tensors.items() if name not in worker.state}
    return worker, cells, lambda: worker.step(dict(given))


def calls_of(worker: Worker, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> tuple[int, list[int]]:
    """(chunks of the loop, blocks of each call of its function from now on); a call takes so many seconds longer."""
    (block,) = [item for item in worker._instructions if isinstance(item, BlockLoop)]
    monkeypatch.setattr(Loop, "compile", lambda self: None)
    code, calls = block.loop._code, []

    def counted(first: int, last: int, rows: int, *more: list[torch.Tensor]) -> list[torch.Tensor]:
        calls.append(-(-(last - first) // rows))
        time.sleep(seconds)
        return code(first, last, rows, *more)

    block.loop._code = counted
    return len(block.loop.chunks), calls


def test_every_block_may_be_told_and_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    _, silent, run = prepared()
    expected = [run() for _ in range(2)]  # the second time as TorchScript
    worker, cells, run = prepared()
    monkeypatch.setattr(loops, "REPORT_SECONDS", 0.0)
    for one in expected:
        cells.told.clear()
        made = run()
        assert len(cells.told) > 200
        assert cells.told[-2:] == [1000, 0]
        assert cells.told[:-1] == sorted(cells.told[:-1])
        for name, tensor in one.items():
            assert torch.equal(made[name], tensor)
    assert worker.progress[2] == 0
    assert silent.told[-1] == 0


def test_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, cells, run = prepared()
    calls_of(worker, monkeypatch, 0.03)
    began = time.perf_counter()
    run()
    took = time.perf_counter() - began
    assert took > 0.4
    assert 2 <= len(cells.told) - 1 <= took / loops.REPORT_SECONDS


def test_short_loops_tell_nothing_and_are_not_cut_further(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, cells, run = prepared()
    chunks, calls = calls_of(worker, monkeypatch)
    monkeypatch.setattr(loops, "REPORT_SECONDS", 1e9)
    run()
    assert calls[0] == loops.FIRST_BLOCKS
    assert len(calls) == chunks + 1
    calls.clear()
    run()
    assert len(calls) == chunks
    assert cells.told == [0, 0]


def test_a_failed_loop_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, cells, run = prepared()
    monkeypatch.setattr(loops, "REPORT_SECONDS", 0.0)
    (block,) = [item for item in worker._instructions if isinstance(item, BlockLoop)]
    code = block.loop._code

    def failing(first: int, *more: int) -> object:
        if first > 50_000:
            raise RuntimeError("no more")
        return code(first, *more)

    monkeypatch.setattr(Loop, "compile", lambda self: None)
    block.loop._code = failing
    with pytest.raises(RuntimeError, match="no more"):
        run()
    assert 400 < max(cells.told) <= 510
    assert cells[2] == 0


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_driver_sees_it(backend: str) -> None:
    with gnp.cluster(workers=2, backend=backend, timeout=60.0, small=0) as cluster:
        crew = cluster.run.crew
        seen: list[set[int]] = [set(), set()]

        def evaluate() -> None:
            x = gnp.arange(3 * 10**7, dtype=float)
            assert float((gnp.sin(x) * gnp.cos(x) + gnp.exp(-x)).max()) > 0

        thread = threading.Thread(target=evaluate)
        thread.start()
        while thread.is_alive():
            for status in crew.status():
                seen[status.rank].add(status.thousandths)
            time.sleep(0.005)
        thread.join()
        assert [status.thousandths for status in crew.status()] == [0, 0]
    for told in seen:
        assert max(told) <= 1000
        assert len(told) > 2
