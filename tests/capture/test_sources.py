"""Sources: a part is read as it would be cut from the whole, and nothing else is read."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from girih.capture.lazy import file_sources, stored_sources
from girih.capture.lazy.file_sources import Packed, Raw
from girih.capture.lazy.sources import FunctionOfIndex, Reader, Source, SourceError, Window, window

RNG = np.random.default_rng(0)
WHOLE = RNG.normal(size=(20, 6, 3))
BIG_ENDIAN = WHOLE.astype(">f4")
PARTS = (((0, 0, 0), (20, 6, 3)), ((3, 0, 0), (9, 6, 3)), ((3, 2, 1), (9, 5, 2)), ((4, 0, 0), (4, 6, 3)))


def _npy(path: Path, array: np.ndarray) -> Source:
    np.save(path / "x.npy", array)
    return file_sources.npy(str(path / "x.npy"))


def _npz(path: Path, array: np.ndarray) -> Source:
    np.savez(path / "x.npz", other=np.ones(3), x=array)
    return file_sources.npz(str(path / "x.npz"))["x"]


def _packed(path: Path, array: np.ndarray) -> Source:
    np.savez_compressed(path / "x.npz", other=np.ones(3), x=array)
    return file_sources.npz(str(path / "x.npz"))["x"]


def _raw(path: Path, array: np.ndarray) -> Source:
    columns = array.flags.f_contiguous
    (path / "x.raw").write_bytes(b"head" + (array.T if columns else array).tobytes())
    return file_sources.raw(str(path / "x.raw"), array.dtype, array.shape, 4, "F" if columns else "C")


def _zarr(path: Path, array: np.ndarray) -> Source:
    package = pytest.importorskip("zarr")
    made = package.create_array(
        str(path / "x.zarr"), name="group/x", shape=array.shape, dtype=array.dtype, chunks=(7, 6, 2)
    )
    made[:] = array
    return stored_sources.zarr(str(path / "x.zarr"), "group/x")


def _zarr_zip(path: Path, array: np.ndarray) -> Source:
    package = pytest.importorskip("zarr")
    with package.storage.ZipStore(path / "x.zip", mode="w") as store:
        package.create_array(store, shape=array.shape, dtype=array.dtype)[:] = array
    return stored_sources.zarr(str(path / "x.zip"))


def _hdf5(path: Path, array: np.ndarray) -> Source:
    with pytest.importorskip("h5py").File(path / "x.h5", "w") as file:
        file.create_dataset("group/x", data=array, chunks=(7, 6, 2))
    return stored_sources.hdf5(str(path / "x.h5"), "group/x")


def _function(path: Path, array: np.ndarray) -> Source:
    return FunctionOfIndex(lambda i, j, k: array[i, j, k], array.shape, array.dtype.newbyteorder("="))


MAKERS = (_npy, _npz, _packed, _raw, _zarr, _zarr_zip, _hdf5, _function)


@pytest.mark.parametrize(
    "array", [WHOLE, np.asfortranarray(WHOLE), BIG_ENDIAN, WHOLE > 0], ids=["C", "F", "big", "bool"]
)
@pytest.mark.parametrize("make", MAKERS)
def test_parts_are_those_of_the_whole(tmp_path, make, array):
    source = make(tmp_path, array)
    assert source.shape == array.shape
    assert source.dtype == array.dtype.newbyteorder("=")
    assert source.dtype.isnative
    again = pickle.loads(pickle.dumps(source))
    for starts, stops in PARTS:
        cut = tuple(slice(*ends) for ends in zip(starts, stops, strict=True))
        for one in (source, again):
            part = one.read(starts, stops)
            np.testing.assert_array_equal(part, array[cut])
            assert part.dtype.isnative
            assert part.flags.c_contiguous
            assert part.flags.writeable
    with Reader(source) as reader:
        for out in (np.empty(array.shape, source.dtype), np.empty(array.shape[::-1], source.dtype).T):
            for starts, stops in PARTS:  # memory of the caller's, whose rows lie side by side or not
                cut = tuple(slice(*ends) for ends in zip(starts, stops, strict=True))
                reader.into(starts, stops, out[cut])
                np.testing.assert_array_equal(out[cut], array[cut])


@pytest.mark.parametrize("make", MAKERS[:-1])
def test_opened_twice_it_is_equal(tmp_path, make):
    source = make(tmp_path, WHOLE)
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    assert hash(again.fingerprint) == hash(source.fingerprint)


class Counted(Source):
    """It remembers what was asked for."""

    shape = WHOLE.shape
    dtype = WHOLE.dtype
    name = "counted"

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def load(self, starts, stops):
        self.asked.append((starts, stops))
        return WHOLE[tuple(slice(*ends) for ends in zip(starts, stops, strict=True))]


def test_a_window_reads_only_what_it_shows():
    base = Counted()
    source = window(window(window(base, 0, 4, 16, 3), 1, 1, 6), 0, 1, 3)
    assert isinstance(source, Window)
    assert source.source is base
    np.testing.assert_array_equal(source.read_all(), WHOLE[4:16:3][1:3, 1:6])
    np.testing.assert_array_equal(source.read((1, 2, 0), (2, 4, 1)), WHOLE[4:16:3][2:3, 3:5, :1])
    assert base.asked == [((7, 1, 0), (11, 6, 3)), ((10, 3, 0), (11, 5, 1))]
    source.read((1, 1, 1), (1, 4, 2))
    assert len(base.asked) == 2, "an empty part reads nothing"


def test_uncompressed_archives_are_entered_in_the_middle(tmp_path):
    assert isinstance(_npz(tmp_path, WHOLE), Raw)
    assert isinstance(_packed(tmp_path, WHOLE), Packed)


@pytest.mark.parametrize("make", [_npy, _packed, _hdf5])
def test_a_changed_file_is_refused(tmp_path, make):
    source = make(tmp_path, WHOLE)
    make(tmp_path, WHOLE[:10])
    with pytest.raises(SourceError, match="has changed since it was opened"):
        source.read_all()
    with Reader(source) as reader, pytest.raises(SourceError, match="has changed since it was opened"):
        reader.into((0, 0, 0), (3, 6, 3), np.empty((3, 6, 3)))
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(SourceError, match="No such file"):
        source.check()


@pytest.mark.parametrize("make", [_npy, _hdf5])
def test_a_file_is_opened_once_for_all_that_is_read_of_it_and_closed(tmp_path, make):
    def opened() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [os.readlink(link) for link in links if os.path.lexists(link)]

    source, out = make(tmp_path, WHOLE), np.empty((2, 6, 3))
    with Reader(source) as reader:
        assert source.path not in opened()
        for start in range(0, 20, 2):
            reader.into((start, 0, 0), (start + 2, 6, 3), out)
            assert opened().count(source.path) == 1
    assert source.path not in opened()
    os.truncate(source.path, 200)
    cut_off = replace(source, stamp=file_sources.stamp_of(source.path))
    with Reader(cut_off) as reader, pytest.raises(SourceError, match=r"the file ends|could not be read"):
        reader.into((0, 0, 0), (20, 6, 3), np.empty(WHOLE.shape))


def test_what_a_function_gives_is_checked():
    wrong = FunctionOfIndex(lambda i: np.zeros(3), (5,), np.dtype(float))
    with pytest.raises(SourceError, match=r"shape \(3,\) for a part of shape \(5,\)"):
        wrong.read_all()
    fails = FunctionOfIndex(lambda i: 1 / 0, (5,), np.dtype(float))
    with pytest.raises(SourceError, match=r"lambda.*ZeroDivisionError"):
        fails.read_all()
    np.testing.assert_array_equal(
        FunctionOfIndex(lambda i, j: i, (3, 2), np.dtype(int)).read((1, 0), (3, 2)), [[1, 1], [2, 2]]
    )


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_a_zarr_array_whose_codec_unpickles_is_refused(tmp_path: Path, place: str) -> None:
    """Such a codec would run what the store's writer chose, although the elements are numbers."""
    pytest.importorskip("zarr")
    ran, store = tmp_path / "ran", tmp_path / "array.zarr"

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {ran}",)

    codec = {"id": "pickle", "protocol": 5}
    store.mkdir()
    metadata = {
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f8", "fill_value": 0, "order": "C",
        "compressor": None, "filters": None, place: [codec] if place == "filters" else codec,
    }  # fmt: skip
    (store / ".zarray").write_text(json.dumps(metadata))
    (store / "0").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(SourceError) as caught:
        stored_sources.zarr(str(store)).load((0,), (4,))
    assert len(str(caught.value).splitlines()) == 1
    assert not ran.exists()


def test_pickling_codecs_are_found_wherever_metadata_names_them() -> None:
    """Whatever a version of zarr itself refuses."""

    class Opened:
        def __init__(self, **metadata: object) -> None:
            self.metadata = self
            self.to_dict = lambda: metadata

    stored_sources._refuse_pickles(Opened(codecs=[{"name": "bytes"}, {"name": "zstd"}], filters=None), "a")
    for found in ({"filters": [{"id": "pickle"}]}, {"codecs": ({"name": "numcodecs.pickle"},)},
                  {"compressor": {"id": "Pickle"}}):  # fmt: skip
        with pytest.raises(SourceError, match="coded by pickle"):
            stored_sources._refuse_pickles(Opened(**found), "a")
