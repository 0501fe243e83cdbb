"""Chunks that other threads take: every chunk is computed once, in any order; results, errors and bits do not depend
on it."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import numpy as np
import pytest

import girih.array as gnp
from girih.program.fusion.block_memory import CHUNKS, LEAST_BLOCKS, chunks
from girih.run.loops.loop import Loop
from girih.run.transport.stealing import Board, Offer


@pytest.mark.parametrize(("low", "high", "rows"), [(0, 10, 3), (5, 6, 1), (7, 1000, 9), (0, 64 * 16, 4), (2, 50, 100)])
def test_chunks_cover_the_loop(low: int, high: int, rows: int) -> None:
    rows = min(rows, high - low)
    found = chunks(low, high, rows)
    assert [first for first, _, _ in found] == [low, *(last for _, last, _ in found[:-1])]
    assert found[-1][1] == high
    assert len(found) <= CHUNKS + 1
    for first, last, size in found[:-1]:
        assert size == rows
        assert (last - first) % rows == 0
        assert len(found) == 1 or last - first >= LEAST_BLOCKS * rows or last == found[-1][0]


def test_every_chunk_is_computed_once_and_results_are_in_order() -> None:
    began = []

    def run(number: int) -> int:
        began.append(number)
        time.sleep(1e-3)
        return number * number

    offer = Offer(run, 40)
    thieves = [threading.Thread(target=lambda: [None for _ in iter(offer.steal, False)]) for _ in range(3)]
    for thief in thieves:
        thief.start()
    assert offer.results() == [number * number for number in range(40)]
    assert sorted(began) == list(range(40))
    assert not offer.steal()
    for thief in thieves:
        thief.join()


def test_an_error_in_a_stolen_chunk_reaches_the_owner() -> None:
    stolen = threading.Event()

    def run(number: int) -> int:
        if number == 0:
            assert stolen.wait(10)
        if number == 4:
            stolen.set()
            raise ValueError("chunk 4")
        return number

    offer = Offer(run, 5)
    thief = threading.Thread(target=offer.steal)
    thief.start()
    with pytest.raises(ValueError, match="chunk 4"):
        offer.results()
    thief.join()


def test_an_error_of_the_owner_ends_the_loop() -> None:
    began = []

    def run(number: int) -> None:
        began.append(number)
        raise ValueError(f"chunk {number}")

    with pytest.raises(ValueError, match="chunk 0"):
        Offer(run, 5).results()
    assert began == [0]


def test_who_waits_computes_for_others_until_the_message_is_there() -> None:
    board, box = Board(), queue.SimpleQueue()
    offer = Offer(lambda number: box.put(number) if number == 7 else number, 10)
    with board.offering(offer):
        assert board.wait(box, 10.0) == 7  # 9, 8 and 7 were computed meanwhile
    assert board.stolen == 3
    assert offer.results() == [0, 1, 2, 3, 4, 5, 6, None, 8, 9]
    with pytest.raises(queue.Empty):
        board.wait(box, 0.01)


def test_work_of_a_slow_worker_is_done_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one thread computes takes longer; sums and rows keep their bits."""
    x = np.random.default_rng(0).normal(size=(400_000, 8))

    def program(given: gnp.Array) -> list[np.ndarray]:
        y = given
        for factor in (0.5, 1.5, 0.25, 1.75):
            y = y * factor + given * 0.5
        return [(y * y).sum(0).compute(), y.max(1).compute(), np.asarray(float(y.sum()))]

    with gnp.cluster(workers=2, backend="threads", timeout=60.0, small=0) as cluster:
        alone = program(gnp.array(x))
        compute = Loop.chunk

        def slow(self: Loop, *arguments: Any) -> list[Any]:
            if threading.current_thread().name == "girih worker 1":
                time.sleep(0.02)
            return compute(self, *arguments)

        monkeypatch.setattr(Loop, "chunk", slow)
        found = program(gnp.array(x))
        assert cluster.run.crew.hub.board.stolen > 3
    monkeypatch.undo()
    with gnp.cluster(workers=2, backend="processes", timeout=60.0, small=0):
        elsewhere = program(gnp.array(x))
    for one, other, another in zip(alone, found, elsewhere, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, another)
