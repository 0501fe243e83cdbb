"""A limit of memory is kept: by files, by reading sources block by block; or the program is refused beforehand."""

from __future__ import annotations

import numpy as np
import pytest

import girih.array as gnp
from girih.program import CACHE_BYTES, BlockStep
from girih.run.worker.worker import Running, Worker

ROWS = 40_000  # of 8 columns: 2.56 MB


@pytest.fixture
def points(tmp_path):
    content = np.random.default_rng(0).normal(size=(ROWS, 8))
    np.save(tmp_path / "points.npy", content)
    return content, tmp_path / "points.npy"


def test_a_function_of_the_index_is_never_whole():
    with gnp.cluster(workers=2, backend="threads", memory="2 MB"):
        size = 10**7  # 80 MB
        x = gnp.arange(size)
        assert int((x % 3).max()) == 2
        assert float(((x * 2 + 1) % 7).sum(dtype=float)) == sum((k * 2 + 1) % 7 for k in range(7)) * (size // 7) + sum(
            (k * 2 + 1) % 7 for k in range(size % 7)
        )


def test_blocks_fit_into_a_limit_that_is_smaller_than_a_cache():
    numbers = np.arange(10**6)
    with gnp.cluster(workers=1, backend="threads", memory="400 kB"):
        x = gnp.arange(10**6)
        assert int((x % 7 * (x % 5)).sum()) == (numbers % 7 * (numbers % 5)).sum()


def test_a_large_source_is_read_block_by_block(points):
    content, path = points
    with gnp.cluster(workers=2, backend="threads", memory="2 MB"):
        x = gnp.from_npy(path)
        centred = (x - x.mean(0)) ** 2
        np.testing.assert_allclose(centred.mean(0).compute(), content.var(0))
        nearest = ((x[:, None, :] - x[None, :3]) ** 2).sum(-1).argmin(1)
        expected = ((content[:, None, :] - content[None, :3]) ** 2).sum(-1).argmin(1)
        np.testing.assert_array_equal(nearest.compute(), expected)
        np.testing.assert_allclose((x[nearest == 1]).mean(0).compute(), content[expected == 1].mean(0))
        assert x.expression.kept is None
        np.testing.assert_allclose(x[100:103].compute(), content[100:103])
        np.testing.assert_allclose((x.T @ x).compute(), content.T @ content)


@pytest.mark.parametrize("workers", [1, 2])
def test_shifted_slices_of_a_large_source_are_each_read_where_it_lies(points, workers):
    """Whole tiles would be exchanged, and held, for the sake of a row at their ends."""
    content, path = points
    with gnp.cluster(workers=workers, backend="threads", memory="1 MB"):
        x = gnp.from_npy(path)
        change = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
        expected = (
            content[2:, 1:-1] + content[:-2, 1:-1] + content[1:-1, 2:] + content[1:-1, :-2] - 4 * content[1:-1, 1:-1]
        )
        np.testing.assert_allclose(float(abs(change).mean()), abs(expected).mean())
        np.testing.assert_allclose(float((x[1:] - x[:-1]).max()), (content[1:] - content[:-1]).max())
        np.testing.assert_allclose(float(x.max()), content.max())
        assert x.expression.kept is None


def test_blocks_get_smaller_where_their_temporaries_do_not_fit(tmp_path):
    content = np.random.default_rng(0).normal(size=(200_000, 8))
    np.save(tmp_path / "x.npy", content)
    with gnp.cluster(workers=2, backend="threads", memory="3 MB"):
        x = gnp.from_npy(tmp_path / "x.npy")
        np.testing.assert_allclose(x[x[:, 0] > 0.5].mean(0).compute(), content[content[:, 0] > 0.5].mean(0))


def test_tiles_that_do_not_fit_go_to_files():
    with gnp.cluster(workers=2, backend="threads", memory="3 MB") as cluster:
        content = [np.random.default_rng(seed).normal(size=(ROWS, 4)) for seed in range(6)]  # 7.7 MB together
        arrays = [(gnp.array(item) * 2).persist() for item in content]
        for array, item in zip(arrays, content, strict=True):
            np.testing.assert_allclose(array.compute(), item * 2)
        assert cluster.budget.files
        total = sum(arrays[1:], arrays[0]).sum(0)
        np.testing.assert_allclose(total.compute(), sum(content).sum(0) * 2)
        product = (arrays[0] * arrays[1]).persist()  # its result is larger than what is left
        np.testing.assert_allclose(product.compute(), content[0] * content[1] * 4)


def test_what_does_not_fit_is_refused_with_its_line():
    with gnp.cluster(workers=2, backend="threads", memory="1 MB") as cluster:
        x = gnp.array(np.ones((300, 300)))
        with pytest.raises(gnp.MemoryLimitError, match=r"test_limits.py:\d+: .* takes .* the limit is 1.00 MB"):
            gnp.linalg.inv(x + 1.0 * gnp.eye(300)).compute()
        assert cluster.evaluations == 0
        assert float(x[0, 0]) == 1.0  # and the workers go on


def test_what_is_left_of_a_failed_program_lies_in_files_too(monkeypatch):
    """Results that were to lie there, which the worker goes on with as zeros."""
    in_memory: dict[str, bool] = {}

    def go_on(worker: Worker, running: Running, at: int) -> None:
        original(worker, running, at)
        for name in worker.program.files:
            in_memory[name] = running.slots[worker._slot[name]].untyped_storage().resizable()

    original = Worker._go_on
    monkeypatch.setattr(Worker, "_go_on", go_on)
    with gnp.cluster(workers=1, backend="threads", memory="1 MB"):
        x = gnp.array(np.arange(200_000))
        power = (x - 1000) ** (gnp.array(np.r_[np.zeros(199_999, np.int64), -1]) + 0)
        with pytest.raises(ValueError, match="negative integer powers"):
            power.compute()
        assert int(x.sum()) == 199_999 * 100_000
    assert len(in_memory) == 3
    assert not any(in_memory.values())


def test_files_are_gone_with_the_cluster(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with gnp.cluster(workers=1, backend="threads", memory="1 MB") as cluster:
        made = (gnp.array(np.ones(200_000)) * 2).persist()
        assert cluster.budget.files
        assert float(made.sum()) == 400_000
        assert not list(tmp_path.glob("girih-tile*"))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "shape", "axis"), [("f8", (500_000,), 0), ("i8", (100_000, 5), 0), ("i4", (50_000, 10), None)]
)
def test_running_sums_of_what_nobody_can_hold_are_made_block_by_block(tmp_path, workers, kind, shape, axis):
    content = np.random.default_rng(0).integers(-9, 9, shape).astype(kind)  # 2 to 4 MB
    np.save(tmp_path / "x.npy", content)
    with gnp.cluster(workers=workers, backend="threads", memory="1.5 MB"):
        x = gnp.from_npy(tmp_path / "x.npy")
        sums = gnp.cumsum(x, axis)
        expected = np.cumsum(content, axis)
        assert sums.dtype == expected.dtype
        np.testing.assert_array_equal(sums.max(axis).compute(), expected.max(axis))  # nothing of it is kept
        np.testing.assert_array_equal(sums.compute(), expected)  # in a file
        assert x.expression.kept is None


def files_of(cluster) -> set[str]:
    """The names of what plans have put into files."""
    return {name for planned in cluster._plans.values() for name in planned.plan.program.files}


@pytest.mark.parametrize(
    "program",
    [
        lambda np, x, y: np.cumsum(x - 0.5, axis=0).max(),
        lambda np, x, y: np.cumsum(x - 0.5, axis=0).max(0),
        lambda np, x, y: (np.cumsum(x * 2 - y, axis=0) + y).sum(0, keepdims=True),
        lambda np, x, y: abs(np.cumsum(x, axis=0)).mean(),
        lambda np, x, y: np.cumsum(np.cumsum(x, axis=0) - y, axis=0).min(),
        lambda np, x, y: (np.cumsum(x, axis=0) * np.exp(y)).mean((0, 1)),
    ],
)
def test_running_sums_that_are_reduced_are_never_whole(tmp_path, program):
    content = np.random.default_rng(0).random((2, 60_000, 8))  # 3.8 MB each
    for name, item in zip("xy", content, strict=True):
        np.save(tmp_path / name, item)
    with gnp.cluster(workers=2, backend="threads", memory="1.5 MB") as cluster:
        x, y = (gnp.from_npy(tmp_path / f"{name}.npy") for name in "xy")
        np.testing.assert_allclose(program(gnp, x, y).compute(), program(np, *content))
        assert not files_of(cluster)


def test_what_is_made_of_a_file_is_made_again_and_not_written(points):
    """Centred points are needed twice; only the result that is asked for is written."""
    content, path = points
    with gnp.cluster(workers=2, backend="threads", memory="1 MB") as cluster:
        x = gnp.from_npy(path)
        standardised = (x - x.mean(0)) / x.std(0)
        np.testing.assert_allclose(
            abs(standardised).max(0).compute(), abs((content - content.mean(0)) / content.std(0)).max(0)
        )
        assert not files_of(cluster)
        np.testing.assert_allclose(standardised.compute(), (content - content.mean(0)) / content.std(0))
        assert len(files_of(cluster)) == 1


WRITTEN = {
    "standardised": lambda np, x: (x - x.mean(0)) / x.std(0),
    "of a slice": lambda np, x: np.where(x[1:] > x[:-1].max(0) / 2, x[1:] * 2, -1.0),
    "of the index": lambda np, x: x * np.arange(8.0) + np.arange(len(x), dtype="f4")[:, None],
    "as another dtype": lambda np, x: (x * 100).astype(np.int64),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_made_row_by_row_is_written_in_portions(points, monkeypatch, tmp_path, name, workers):
    """Nothing of it lies anywhere but in the file, in memory least of all."""
    content, path = points
    monkeypatch.setattr("girih.array.session.limits._bytes", None)  # which is asked before anything goes to a file
    with gnp.cluster(workers=workers, backend="threads", memory="1 MB") as cluster:
        written = WRITTEN[name](gnp, gnp.from_npy(path))
        gnp.save(tmp_path / "written.npy", written)
        assert not files_of(cluster)
        assert written.expression.kept is None
    np.testing.assert_allclose(np.load(tmp_path / "written.npy"), WRITTEN[name](np, content))


def test_portions_are_whole_chunks_of_the_store(points, tmp_path):
    zarr = pytest.importorskip("zarr")
    content, path = points
    with gnp.cluster(workers=2, backend="threads", memory="1 MB") as cluster:
        written = gnp.from_npy(path) * 2
        boxes = [box for box, _ in cluster.tiles(written.expression, 300)]
        assert {box[0].start % 300 for box in boxes} == {0}
        assert len(boxes) > 10
        gnp.to_zarr(written, tmp_path / "written", chunks=(300, 8))
        assert not files_of(cluster)
        gnp.to_zarr(written, tmp_path / "large", chunks=(20_000, 2))  # of which no portion has whole ones
        gnp.to_zarr(written, tmp_path / "as it likes")
        assert len(files_of(cluster)) == 1
    for name, chunks in (("written", (300, 8)), ("as it likes", (ROWS, 8)), ("large", (20_000, 2))):
        stored = zarr.open_array(str(tmp_path / name))
        assert stored.chunks == chunks
        np.testing.assert_array_equal(stored[:], content * 2)


def test_what_is_not_made_row_by_row_is_written_by_way_of_a_file(points, tmp_path):
    content, path = points
    with gnp.cluster(workers=2, backend="threads", memory="1 MB") as cluster:
        written = gnp.cumsum(gnp.from_npy(path), axis=0)
        gnp.save(tmp_path / "written.npy", written)
        assert len(files_of(cluster)) == 1
    np.testing.assert_allclose(np.load(tmp_path / "written.npy"), np.cumsum(content, axis=0))


def test_a_histogram_of_a_large_file_takes_one_pass(points):
    content, path = points
    with gnp.cluster(workers=2, backend="threads", memory="1 MB") as cluster:
        counts, edges = gnp.histogram(gnp.from_npy(path), bins=20, range=(-2, 3))
        expected = np.histogram(content, bins=20, range=(-2, 3))
        np.testing.assert_array_equal(counts.compute(), expected[0])
        np.testing.assert_array_equal(edges.compute(), expected[1])
        assert not files_of(cluster)


def test_a_mask_and_the_rows_that_it_chooses_are_read_in_one_pass(tmp_path):
    content = np.random.default_rng(0).random((100_000, 4))
    np.save(tmp_path / "x.npy", content)
    with gnp.cluster(workers=2, backend="threads", memory="2 MB") as cluster:
        x = gnp.from_npy(tmp_path / "x.npy")
        np.testing.assert_allclose(x[x[:, 0] > 0.5].mean(0).compute(), content[content[:, 0] > 0.5].mean(0))
        (program,) = (planned.plan.program for planned in cluster._plans.values())
        passes = [step for step in program.steps if not program.streamed.isdisjoint(step.sources)]
        assert [type(step) for step in passes] == [BlockStep]
        assert passes[0].rows * content[0].nbytes <= CACHE_BYTES, "whole rows, of which the mask reads one element"
