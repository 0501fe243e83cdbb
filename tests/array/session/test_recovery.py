"""Workers that die under array programs with checkpoints: the results are those of a run in which nobody dies."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from run_programs import stop

import girih.array as gnp
from girih.run.errors import IDLE, Where, WorkerError
from girih.run.tiles import recovery as tile_recovery
from girih.run.tiles.checkpoint import CheckpointPlaceError, read_manifest

NEVER = 1e9


def recovering(place: Path, every: float, **options) -> gnp.Cluster:
    return gnp.cluster(workers=2, checkpoint=place, every=every, timeout=60.0, **options)


@pytest.fixture
def kills() -> Iterator[list[threading.Timer]]:
    """Timers that end with the test."""
    timers: list[threading.Timer] = []
    yield timers
    for timer in timers:
        timer.cancel()


def program() -> list[np.ndarray]:
    """Loops, live and let-go arrays, random numbers, masks, several evaluations."""
    x = gnp.array(np.random.default_rng(0).normal(size=(300, 8)))
    draw = gnp.random.default_rng(5)
    noise = draw.standard_normal((300, 8)).persist()
    w, values = gnp.zeros(8), []
    for _ in range(6):
        error = (x + 0.1 * noise) @ w - 1
        w = w - 0.1 * ((x.T @ error) / 300) + 0.001 * draw.random(8)
        values.append(float((error**2).mean()))
    chosen = x[x[:, 0] > 0].sum(0)
    return [w.compute(), chosen.compute(), noise.compute(), np.array(values)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        return program()


def same(made: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def end(pid: int) -> None:
    """Kill a worker, unless it has already died: nobody notices that before the next evaluation."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("every", [0.0, 0.02, NEVER], ids=["always", "sometimes", "never"])
def test_killed_at_random_moments(tmp_path, every, undisturbed, kills):
    chance = random.Random(int(every * 100) % 1000)
    with recovering(tmp_path, every) as cluster:
        same(program(), undisturbed)
        for _ in range(3):

            def kill(moment: float = chance.uniform(0, 0.06), rank: int = chance.randrange(2)) -> None:
                timer = threading.Timer(moment, lambda: end(cluster.run.crew.pids[rank]))
                timer.start()
                kills.append(timer)

            kill()
            same(program(), undisturbed)
            kills[-1].join()
        end(cluster.run.crew.pids[0])  # between two evaluations
        same(program(), undisturbed)
        run = cluster.run
        assert len(run.losses) >= 1
        assert (run.checkpoints == 0) == (every == NEVER)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_worker_is_named_and_replaced(tmp_path, monkeypatch):
    """Both workers are in the same sum: one waits for the other's part, the other has been stopped."""
    with recovering(tmp_path, NEVER) as cluster:
        x = gnp.array(np.arange(64.0).reshape(32, 2)).persist()
        run = cluster.run
        stop(run.crew.pids[1])
        monkeypatch.setattr(run.crew, "timeout", 1.5)
        assert float((x * 2).sum()) == 64.0 * 63.0
        assert [loss.rank for loss in run.losses] == [1]
        if sys.platform == "linux":
            assert "it hangs: its process is stopped" in run.losses[0].reason


def test_a_long_program_goes_on_from_the_middle(tmp_path, monkeypatch):
    """The checkpoint in the middle of one evaluation, and a worker that dies right after it."""
    monkeypatch.setattr(tile_recovery, "FIRST_SLICE", 8)
    begun, loaded = [], []
    with recovering(tmp_path, 0.0) as cluster:
        x = gnp.array(np.random.default_rng(0).normal(size=(64, 6)))
        y = x.persist()
        for number in range(30):
            y = (y @ (x.T @ x)) / (1 + number) + x.mean(0)
        run = cluster.run
        write, command = run._checkpoint, run.crew.command

        def write_and_kill(at: int | None) -> None:
            write(at)
            if at is not None and not begun:
                begun.append(at)
                os.kill(run.crew.pids[1], signal.SIGKILL)

        monkeypatch.setattr(run, "_checkpoint", write_and_kill)
        new_crew = run._new_crew

        def watched():
            crew = new_crew()
            command = crew.command
            crew.command = lambda name, fields: (loaded.append((name, fields[0])), command(name, fields))[1]
            return crew

        monkeypatch.setattr(run, "_new_crew", watched)
        got = y.compute()
        del command
        assert len(run.losses) == 1
        names = [name for name, _ in loaded]
        assert names.count("load_step") == 1
        first = next(fields["stop"] for name, fields in loaded if name == "advance")
        assert first > begun[0] > 0  # it did not begin anew
        assert read_manifest(run.place).step == ""
    a = np.random.default_rng(0).normal(size=(64, 6))
    expected = a
    for number in range(30):
        expected = (expected @ (a.T @ a)) / (1 + number) + a.mean(0)
    np.testing.assert_allclose(got, expected)


def test_a_long_lineage(tmp_path):
    """Nothing is in a checkpoint: hundreds of evaluations are done again, with what they read brought back."""
    with recovering(tmp_path, NEVER) as cluster:
        x, first = gnp.array(np.ones(5)), gnp.array(np.arange(5.0))
        total = x
        for number in range(300):
            total = (total + first * number).persist()
        del x, first
        float(gnp.ones(2).sum())  # what nobody holds is freed
        os.kill(cluster.run.crew.pids[0], signal.SIGKILL)
        np.testing.assert_array_equal(total.compute(), 1 + np.arange(5.0) * sum(range(300)))
        held = cluster.run.tiles()
        key = total.expression.kept.key
        assert all(min(own) == key for own in held)  # what was brought for it has gone


def test_a_checkpoint_ends_the_lineage_and_old_files_go(tmp_path):
    with recovering(tmp_path, 0.0) as cluster:
        total = gnp.array(np.ones(5))
        for number in range(6):
            total = (total * number + 1).persist()
        run = cluster.run
        assert run._tiles[total.expression.kept.key].maker is None
        files = sorted(path.name for path in Path(run.place).iterdir())
        manifest = read_manifest(run.place)
        assert total.expression.kept.key in manifest.tiles
        assert files == sorted(["driver.lock", "manifest.json", *manifest.files()])
        assert len(manifest.tiles) <= 3
        os.kill(run.crew.pids[1], signal.SIGKILL)
        assert total.compute().tolist() == [326.0] * 5


def test_the_programs_own_errors_lose_nothing(tmp_path):
    with recovering(tmp_path, NEVER) as cluster:
        x = (gnp.array(np.eye(3)) * 2).persist()
        with pytest.raises(np.linalg.LinAlgError, match="cholesky"):
            gnp.linalg.cholesky(-x).compute()
        assert x.expression.kept.cluster is cluster
        assert cluster._run is not None
        np.testing.assert_array_equal((x + 1).compute(), np.eye(3) * 2 + 1)


def test_a_worker_that_always_dies_is_given_up(tmp_path, monkeypatch):
    with recovering(tmp_path, NEVER) as cluster:
        x = (gnp.array(np.ones(3)) * 2).persist()
        run = cluster.run

        def dies(*_) -> None:
            raise WorkerError(0, Where(IDLE, 0), "was killed by SIGKILL", lost=True)

        monkeypatch.setattr(run, "_evaluate", dies)
        with pytest.raises(
            gnp.EvaluationError, match=f"SIGKILL, and so did its successors {tile_recovery.ATTEMPTS} times"
        ):
            (x + 1).compute()
        monkeypatch.undo()
        assert gnp.array(np.ones(3)).sum().compute() == 3.0  # new workers, which do not have it
        for lost in (x, x + 1):
            with pytest.raises(gnp.EvaluationError, match="was lost with the worker"):
                lost.compute()
        assert gnp.array(np.ones(3)).sum().compute() == 3.0


def test_who_has_no_checkpoints_is_told_of_them(tmp_path):
    """By the words that array programs know: a worker, not a rank."""
    with gnp.cluster(workers=2, backend="processes", timeout=60.0) as cluster:
        x = (gnp.array(np.ones((50, 50))) * 2).persist()
        assert cluster.run.crew.pids[1]
        os.kill(cluster.run.crew.pids[1], signal.SIGKILL)
        with pytest.raises(gnp.EvaluationError, match=r"worker 1 was killed by SIGKILL; with .*checkpoint=") as first:
            (x @ x).compute()
        with pytest.raises(gnp.EvaluationError, match=r"was lost with the worker .*checkpoint=") as second:
            x.compute()
    assert "rank" not in f"{first.value} {second.value}"


def test_threads_keep_their_tiles_after_an_error(tmp_path):
    with recovering(tmp_path, 0.0, backend="threads"):
        x = (gnp.array(np.eye(3)) * 2).persist()
        with pytest.raises(np.linalg.LinAlgError):
            gnp.linalg.cholesky(-x).compute()
        np.testing.assert_array_equal(x.compute(), np.eye(3) * 2)


@pytest.mark.parametrize("place", ["file/below", "nosuch://bucket/x"])
def test_a_place_that_cannot_be_written(tmp_path, place):
    (tmp_path / "file").write_text("")
    goal = place if "://" in place else str(tmp_path / place)
    with (
        gnp.cluster(workers=1, backend="threads", checkpoint=goal),
        pytest.raises(CheckpointPlaceError, match="give a directory that can be written, or a URL"),
    ):
        gnp.array(np.ones(3)).sum().compute()


def test_a_place_that_the_workers_do_not_see():
    with (
        gnp.cluster(workers=1, backend="processes", checkpoint="memory://girih"),
        pytest.raises(CheckpointPlaceError, match="give a directory that all hosts share"),
    ):
        gnp.array(np.ones(3)).sum().compute()


def test_a_url(tmp_path, undisturbed):
    with recovering(f"file://{tmp_path}", 0.0) as cluster:
        same(program(), undisturbed)
        os.kill(cluster.run.crew.pids[0], signal.SIGKILL)
        same(program(), undisturbed)


def test_bad_intervals():
    with pytest.raises(ValueError, match="every=-1"):
        gnp.cluster(checkpoint="x", every=-1)
