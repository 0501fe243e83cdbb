"""Threads of the user's program share arrays and workers: one evaluates at a time, and each has its own results."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from borders import of_large
from user_threads import DATA, THREADS, evaluated_by_threads

import girih
import girih.array as gnp
from girih.array.core import evaluation
from girih.capture.lazy import expressions
from girih.run.engines.threads import QUICK_BYTES


@of_large
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_eight_threads(backend: str) -> None:
    with girih.cluster(2, backend=backend, timeout=60.0) as cluster:
        assert not evaluated_by_threads()
        assert float(gnp.asarray(DATA).sum()) == DATA.sum()
        assert cluster.evaluations > 0


@pytest.fixture
def no_evaluators() -> Iterator[None]:
    before, evaluation._current.evaluators = evaluation._current.evaluators, []
    yield
    for made in evaluation._current.evaluators:
        made.close()
    evaluation._current.evaluators = before


def test_without_any_set_up_there_is_one_cluster(no_evaluators: None) -> None:
    seen = []
    gate = threading.Barrier(THREADS)

    def work() -> None:
        gate.wait()
        seen.append(evaluation.current())

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1


def test_long_chains_end_in_any_thread() -> None:
    """What nobody holds any more is let go without a nested call for each, whichever threads do that meanwhile."""

    def work() -> None:
        for _ in range(5):
            x = gnp.asarray(np.ones(3))
            for _ in range(300):
                x = -x
            del x

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not expressions._ending.held
    assert not expressions._ending.lets_go


@of_large
def test_small_work_of_a_single_worker_needs_no_other_thread() -> None:
    with gnp.cluster(1, backend="threads") as cluster:
        store = cluster.run.crew.services[0].store
        idents: list[int] = []
        evaluate = store.evaluate

        def noted(**fields: object) -> object:
            idents.append(threading.get_ident())
            return evaluate(**fields)

        store.evaluate = noted
        before = torch.get_num_threads()
        assert float((gnp.arange(10.0) * 2).sum()) == 90
        assert not idents  # it needs no plan either
        assert float((gnp.arange(3e5) * 2).sum()) == 3e5 * (3e5 - 1)
        assert gnp.map(lambda tile: tile + 1, gnp.ones(4) * 2).tolist() == [3] * 4  # which may hang
        assert gnp.ones(QUICK_BYTES // 8).sum() == QUICK_BYTES // 8
        here = threading.get_ident()
        assert [ident == here for ident in idents] == [True, False, False]
        assert torch.get_num_threads() == before
