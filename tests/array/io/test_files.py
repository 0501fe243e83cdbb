"""Arrays from files and back: NumPy's values, one clear line where a file will not do."""

from __future__ import annotations

import os

import numpy as np
import pytest

import girih
import girih.array as gnp
from girih.capture.lazy.sources import SourceError, Window

POINTS = np.random.default_rng(1).normal(size=(60, 5))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_issues_program(here, cluster):
    """x = np.from_zarr("points.zarr"); c = x[:128] of the issue, with fewer centres."""
    pytest.importorskip("zarr").create_array("points.zarr", data=POINTS)
    x = gnp.from_zarr("points.zarr")
    c = x[:4]
    expected = POINTS[:4]
    for _ in range(3):
        d = ((x[:, None, :] - c[None]) ** 2).sum(-1)
        c = gnp.stack([x[d.argmin(1) == k].mean(0) for k in range(4)])
        labels = ((POINTS[:, None, :] - expected[None]) ** 2).sum(-1).argmin(1)
        expected = np.stack([POINTS[labels == k].mean(0) for k in range(4)])
    np.testing.assert_allclose(c.compute(), expected)


def test_each_worker_reads_its_own_tile(two):
    asked = []

    def element(i, j):
        asked.append((i.size, j.size))
        return i * 10.0 + j

    x = gnp.from_function_of_index(element, (400, 30))
    np.testing.assert_array_equal(
        (x + 1).sum().compute(), (np.add.outer(np.arange(400) * 10.0, np.arange(30)) + 1).sum()
    )
    assert sum(rows * columns for rows, columns in asked) == 12000
    assert len(asked) == 2


def test_a_slice_reads_only_the_slice(here, cluster):
    np.save("x.npy", POINTS)
    x = gnp.from_npy("x.npy")
    total = (x[4:50:5, 1] * 2).sum()
    assert float(total) == pytest.approx((POINTS[4:50:5, 1] * 2).sum())
    assert x.expression.kept is None, "the whole was not read"
    part = x[3:9]
    np.testing.assert_array_equal(part.compute(), POINTS[3:9])
    assert isinstance(part.expression.content, Window)
    assert float((x[3:9] * x[:6]).sum() + x.sum()) == pytest.approx((POINTS[3:9] * POINTS[:6]).sum() + POINTS.sum())
    assert x.expression.kept is not None, "what is read whole is read once"


def test_equal_files_are_one_expression(here):
    np.save("x.npy", POINTS)
    x = gnp.from_npy("x.npy")
    assert (gnp.from_npy("x.npy") + 1).expression is (x + 1).expression
    np.save("x.npy", POINTS[:7])
    assert gnp.from_npy("x.npy").shape == (7, 5)


def test_a_changed_file_is_refused_and_tiles_stay(here, two):
    np.save("x.npy", POINTS)
    held = (gnp.array(POINTS) + 1).persist()
    y = gnp.from_npy("x.npy") + 1
    np.save("x.npy", POINTS * 2)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        y.compute()
    np.testing.assert_array_equal(held.compute(), POINTS + 1)


@pytest.mark.parametrize(
    "array", [POINTS, np.asfortranarray(POINTS), POINTS > 0, np.zeros((0, 3), np.int16), np.array(2.5)]
)
def test_there_and_back(here, cluster, array):
    x = gnp.array(array)
    gnp.save("x", x)
    back = np.load("x.npy")
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    gnp.savez("x.npz", x, y=x)
    np.testing.assert_array_equal(gnp.load("x.npz")["y"].compute(), array)
    np.testing.assert_array_equal(gnp.load("x.npy").compute(), array)
    pytest.importorskip("h5py")
    gnp.to_hdf5(x, "x.h5", "group/x")
    gnp.to_hdf5(x, "x.h5", "group/x")
    np.testing.assert_array_equal(gnp.from_hdf5("x.h5").compute(), array)
    pytest.importorskip("zarr")
    gnp.to_zarr(x, "x.zarr")
    np.testing.assert_array_equal(gnp.from_zarr("x.zarr").compute(), array)
    assert sorted(os.listdir(here)) == ["x.h5", "x.npy", "x.npz", "x.zarr"], "nothing partial stays"


def test_a_result_may_replace_its_source(here, cluster):
    np.save("x.npy", POINTS)
    gnp.save("x.npy", gnp.load("x.npy") * 2)
    np.testing.assert_array_equal(np.load("x.npy"), POINTS * 2)


def test_open_files_and_archives(here):
    x = gnp.array(np.arange(6.0).reshape(2, 3))
    with open("x.npy", "wb") as file:
        gnp.save(file, x * 2)
    with open("x.npy", "rb") as file:
        np.testing.assert_array_equal(gnp.load(file).compute(), np.arange(6.0).reshape(2, 3) * 2)
    gnp.savez("x.npz", x, twice=x * 2)
    with gnp.load("x.npz") as archive:
        assert sorted(archive.files) == ["arr_0", "twice"]
        twice = archive["twice"]
    np.testing.assert_array_equal(twice.compute(), x.compute() * 2)
    with open("x.npz", "rb") as file:
        assert sorted(gnp.load(file)) == ["arr_0", "twice"]


def test_processes_read_files_and_functions_of_the_main_program(here):
    np.save("x.npy", POINTS)
    with gnp.cluster(workers=2):
        x = gnp.from_npy("x.npy")
        scale = gnp.from_function_of_index(lambda i: i % 5, (60,))
        np.testing.assert_allclose(
            (x * scale[:, None]).sum(0).compute(), (POINTS * (np.arange(60) % 5)[:, None]).sum(0)
        )


def test_memmaps(here):
    POINTS.tofile("x.raw")
    mapped = np.memmap("x.raw", float, "r", shape=(60, 5))
    np.testing.assert_array_equal(gnp.from_memmap(mapped).compute(), POINTS)
    np.testing.assert_array_equal(gnp.from_memmap("x.raw", float, (60, 5))[7].compute(), POINTS[7])
    with pytest.raises(SourceError, match="give the file's name"):
        gnp.from_memmap(mapped[3:])


def test_bad_files_are_one_clear_line(here):
    np.save("objects.npy", np.array([1, None], dtype=object))
    np.save("fields.npy", np.zeros(3, [("a", "f4")]))
    np.savez("two.npz", a=POINTS, b=POINTS)
    np.save("x.npy", POINTS)
    (here / "short.npy").write_bytes((here / "x.npy").read_bytes()[:-8])
    (here / "text.npy").write_text("hello")
    for make, kind, said in (
        (lambda: gnp.from_npy("none.npy"), FileNotFoundError, "none.npy"),
        (lambda: gnp.from_npy("objects.npy"), SourceError, "holds Python objects"),
        (lambda: gnp.from_npy("fields.npy"), TypeError, "fields.npy: dtype"),
        (lambda: gnp.from_npy("short.npy"), SourceError, "2392 bytes .* takes 2400"),
        (lambda: gnp.from_npy("text.npy"), SourceError, "is no npy file"),
        (lambda: gnp.from_npz("two.npz"), SourceError, "name one of them: a, b"),
        (lambda: gnp.from_npz("two.npz", "c"), SourceError, "there is no 'c': a, b"),
        (lambda: gnp.from_npz("text.npy"), SourceError, "is no npz file"),
        (lambda: gnp.from_memmap("x.npy", float, (70, 5)), SourceError, "takes 2800"),
        (lambda: gnp.from_memmap("x.npy", float, offset=3), SourceError, "no whole number of float64"),
        (lambda: gnp.from_function_of_index(np.sin, -5), ValueError, "negative dimensions"),
    ):
        with pytest.raises(kind, match=said):
            make()


def test_bad_stores_are_one_clear_line(here):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    zarr.open_group("group.zarr", mode="w").create_array("a/x", data=POINTS)
    with h5py.File("x.h5", "w") as file:
        file["g/x"] = POINTS
        file["words"] = np.array([b"a"])
    (here / "text.h5").write_text("hello")
    for make, kind, said in (
        (lambda: gnp.from_zarr("none.zarr"), FileNotFoundError, "none.zarr"),
        (lambda: gnp.from_zarr("group.zarr"), SourceError, r"is a group: name one of its arrays \(a/x\)"),
        (lambda: gnp.from_zarr("group.zarr", "y"), SourceError, r"no array 'y' \(a/x\)"),
        (lambda: gnp.from_zarr(str(here)), SourceError, "is no Zarr store"),
        (lambda: gnp.to_zarr(POINTS, "group.zarr", "a/x"), SourceError, "overwrite=True"),
        (lambda: gnp.from_hdf5("none.h5"), FileNotFoundError, "none.h5"),
        (lambda: gnp.from_hdf5("x.h5"), SourceError, r"2 datasets: name one of them \(g/x, words\)"),
        (lambda: gnp.from_hdf5("x.h5", "y"), SourceError, "'y' is not there"),
        (lambda: gnp.from_hdf5("x.h5", "g"), SourceError, "'g' is a group"),
        (lambda: gnp.from_hdf5("x.h5", "words"), SourceError, "expected numbers or booleans"),
        (lambda: gnp.from_hdf5("text.h5"), SourceError, "cannot be opened as HDF5"),
    ):
        with pytest.raises(kind, match=said):
            make()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(here):
    np.save("x.npy", POINTS)
    os.chmod("x.npy", 0)
    with pytest.raises(PermissionError, match=r"x\.npy"):
        gnp.from_npy("x.npy")


def test_a_missing_package_is_named(here, monkeypatch):
    import importlib

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'girih\[arrays\]'"):
        gnp.to_zarr(POINTS, "x.zarr")


def test_what_cannot_be_written_leaves_nothing_in_the_file(tmp_path) -> None:
    """As an array that is made of the file into which it is to be written."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(40_000.0)
    with girih.cluster(2, backend="threads", small=0), pytest.raises(SourceError, match="changed since"):
        gnp.to_hdf5(gnp.from_hdf5(path, "x") * 2, path, "y")
    with h5py.File(path) as file:
        assert list(file) == ["x"]
