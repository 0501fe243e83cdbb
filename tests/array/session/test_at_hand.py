"""What the only worker computes in the thread that asks: the bits of a plan without one; errors, memory, threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import girih.array as gnp

LARGE = 300_000
"""Numbers that a plan computes in blocks."""


@pytest.fixture
def alone() -> Iterator[gnp.Cluster]:
    with gnp.cluster(1, backend="threads", small=0) as made:
        yield made


PROGRAMS: list[Callable[[Any, Any, Any], Any]] = [
    lambda np, x, y: (x * 2.5 + y[0]).sum(),
    lambda np, x, y: x.mean(0) - x.mean(1)[:4],
    lambda np, x, y: x.std(0) + x.var(1)[:4],
    lambda np, x, y: 1 / (1 + np.exp(-x)),
    lambda np, x, y: np.linalg.qr(x)[0] @ y,
    lambda np, x, y: np.linalg.svd(y)[1],
    lambda np, x, y: x[::-1, 1:3].T.reshape(-1)[::5],
    lambda np, x, y: np.where(x > 0, x, np.arange(4.0)).cumsum(0),
    lambda np, x, y: np.sort(x, 0)[np.argsort(x[:, 0])],
    lambda np, x, y: x.argmax(1) + x.max() + np.argmin(x),
    lambda np, x, y: np.concatenate([x, y, x[:0]]).astype(np.float32).sum(0),
    lambda np, x, y: np.fft.fft(x[:, 0]).imag + np.linspace(0, 1, 50),
    lambda np, x, y: np.pad(x, 1).ravel()[np.arange(3, 90)] ** 2,
    lambda np, x, y: np.median(x, 0) + np.tril(y).sum(0) + np.diag(y),
    lambda np, x, y: (x.astype(np.uint16) % 3).sum() + np.bincount(np.arange(9) % 3, minlength=5).max(),
    lambda np, x, y: np.einsum("ij,jk->k", x, y) + np.interp(y[0], np.arange(4.0), y[1]),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_small_program_has_the_bits_of_its_plan(alone: gnp.Cluster, number: int) -> None:
    random = np.random.default_rng(number)
    content = [random.normal(size=(50, 4)), random.normal(size=(4, 4))]
    got = PROGRAMS[number](gnp, *map(gnp.array, content)).compute()
    assert not alone.planned
    assert alone.evaluations
    with gnp.cluster(1, backend="threads", small=0) as other:
        other._undivided = False
        by_plan = PROGRAMS[number](gnp, *map(gnp.array, content)).compute()
        assert other.planned
    np.testing.assert_array_equal(got, by_plan)
    assert got.dtype == by_plan.dtype
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, PROGRAMS[number](np, *content), rtol=1e-5, atol=1e-5)


def test_what_is_computed_in_blocks_is_planned_once_and_has_the_same_bits_again(alone: gnp.Cluster) -> None:
    content = np.random.default_rng(0).normal(size=LARGE)
    x = gnp.array(content).persist()
    first = float((gnp.exp(x) * 3.0).sum())
    assert [float((gnp.exp(x) * 3.0).sum()) for _ in range(3)] == [first] * 3
    assert float((gnp.exp(x) * 2.0).sum()) == pytest.approx(np.exp(content).sum() * 2)
    assert alone.planned <= 2  # with x in this process's memory, then with the worker
    assert alone.evaluations == 5


def test_sizes_and_numbers_are_no_new_plans(alone: gnp.Cluster) -> None:
    for size in range(1, 40):
        x = gnp.array(np.arange(float(size)))
        assert float((x[size // 2 :] * size).sum()) == np.arange(size)[size // 2 :].sum() * size
    assert not alone.planned


def test_an_error_is_that_of_the_plan_and_leaves_all_that_was_there(alone: gnp.Cluster) -> None:
    kept = (gnp.ones(5) * 2).persist()
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match=r"test_at_hand\.py:\d+: aten\.linalg_cholesky"):
            gnp.linalg.cholesky(gnp.array(-np.eye(3))).compute()
        with pytest.raises(IndexError, match=r"test_at_hand\.py:\d+"):
            kept[gnp.array([4, 5]) + 0].compute()
    crew = alone.run.crew
    large = gnp.array(np.r_[np.zeros(LARGE, np.int64), -1]) + 0
    for _ in range(2):
        with pytest.raises(ValueError, match="negative integer powers"):
            ((gnp.arange(LARGE + 1) - 8000) ** large + 1).sum().compute()
    assert kept.tolist() == [2.0] * 5
    assert alone.run.crew is crew


def test_an_interruption_loses_nothing(alone: gnp.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = (gnp.ones(5) * 2).persist()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("girih.run.worker.compute.Compute.run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            (kept + 1).compute()
    assert (kept + 1).tolist() == [3.0] * 5


def test_live_arrays_stay_and_dead_ones_go(alone: gnp.Cluster) -> None:
    x = gnp.array(np.ones((64, 4)))
    held = x * 3  # alive while another array is evaluated from it: it is kept, too
    total = (held + 1).sum()
    assert float(total) == 64 * 16
    assert [(item.shape, item.bytes) for item in alone.arrays()] == [((64, 4), 64 * 32), ((), 8)]
    (tiles,) = alone.run.tiles()
    assert set(tiles) == set(alone.run.held())
    key = held.expression.kept.key
    del held
    gc.collect()
    float(x.sum())
    assert key not in alone.run.tiles()[0]
    assert key not in alone.run.held()
    assert alone.budget.held == sum(alone.budget.tiles.values())


def test_what_shows_an_array_sees_no_later_writes(alone: gnp.Cluster) -> None:
    content = np.arange(6.0)
    x = gnp.array(content)
    shown = x.reshape(2, 3).copy().persist()
    value = shown.compute()
    value[:] = content[:] = -1
    x[:] = 7
    assert shown.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (shown + x.reshape(2, 3)).tolist() == [[7, 8, 9], [10, 11, 12]]


def test_how_it_was_computed_is_told(alone: gnp.Cluster) -> None:
    y = (gnp.array(np.ones((40, 5))) * 2).sum(0)
    before = str(gnp.explain(y))
    y.persist()
    assert str(gnp.explain(y)) == before
    assert "aten.sum" in before
    z = (y + gnp.array(np.ones(LARGE // 5 * 5)).reshape(-1, 5)).sum()  # by a plan, of what was computed without one
    assert float(z) == LARGE // 5 * 5 * 81
    assert "aten.sum" in str(gnp.explain(z))


def test_what_does_not_fit_beside_it_goes_to_files() -> None:
    with gnp.cluster(1, backend="threads", memory="4 MB", small=0) as cluster:
        made = [(gnp.arange(60_000.0) * number).persist() for number in range(9)]
        assert cluster.budget.files
        assert float(sum(array[-1] for array in made)) == 59_999 * 36
        assert [float(array[1]) for array in made] == list(range(9))


def test_other_workers_take_over_what_was_computed(alone: gnp.Cluster) -> None:
    x = (gnp.arange(6.0) * 2).persist()
    with gnp.cluster(2, backend="threads", small=0):
        assert (x + 1).tolist() == [1, 3, 5, 7, 9, 11]
        assert x.tolist() == [0, 2, 4, 6, 8, 10]


def test_eight_threads(alone: gnp.Cluster) -> None:
    content = np.arange(1000.0)
    wrong: list[str] = []
    gate = threading.Barrier(8)
    shared = gnp.array(content).persist()

    def work(number: int) -> None:
        gate.wait()
        for turn in range(25):
            x = (shared[number:] * number + turn).persist()
            if float(x.sum()) != float((content[number:] * number + turn).sum()):
                wrong.append(f"{number} {turn}")
            if turn % 8 == 0 and float((gnp.array(np.ones(LARGE)) * number + turn).sum()) != LARGE * (number + turn):
                wrong.append(f"{number} {turn}, in blocks")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
