"""One mapped file: what is saved comes back, a damage or a change is named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from girih.gnn import Data, DataError, community, karate, load, save
from girih.gnn.data import watch

FIELDS = ("x", "labels", "train", "validation", "test", "edge_features")


def same(one: Data, other: Data) -> bool:
    graphs = ("offsets", "neighbours", "weights")
    pairs = [(getattr(one.graph, name), getattr(other.graph, name)) for name in graphs]
    pairs += [(getattr(one, name), getattr(other, name)) for name in FIELDS]
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


def test_what_is_saved_comes_back_mapped(tmp_path: Path) -> None:
    data = community(200, seed=1)
    edges = np.arange(2 * data.edges, dtype=np.float32).reshape(-1, 2)
    data = data.but(edge_features=edges, names=("a", "b", "c", "d"), notes=("mended",))
    path = tmp_path / "data.npz"
    save(data, path)
    again = load(path)
    assert same(data, again)
    assert (again.names, again.notes, again.classes) == (data.names, data.notes, 4)
    assert isinstance(again.x, np.memmap)
    assert all(item.ctypes.data % 64 == 0 for item in (again.x, again.graph.neighbours, again.graph.offsets))
    with np.load(path) as arrays:  # any program can read it
        assert np.array_equal(arrays["neighbours"], data.graph.neighbours)


def test_every_damage_is_noticed_or_harmless(tmp_path: Path) -> None:
    data, path, other = karate(), tmp_path / "karate.npz", tmp_path / "damaged.npz"
    save(data, path)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        other.write_bytes(damaged)
        try:
            again = load(other)
        except DataError as error:
            refused += "damaged.npz" in str(error)
        else:
            assert same(again, data)
    assert refused > len(whole) // 97 // 2
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        other.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"damaged.npz is damaged, or no .npz"):
            load(other)


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    save(karate(), path)
    whole = path.read_bytes()

    class Broken:
        shape, dtype, ndim = (34, 34), np.dtype(np.float32), 2

        def __array__(self, *_: object) -> np.ndarray:
            raise OSError(28, "No space left on device")

    broken = karate()
    object.__setattr__(broken, "x", Broken())
    with pytest.raises(OSError, match="No space"):
        save(broken, path)
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["data.npz"]
    with pytest.raises(DataError, match="in one file whose name ends in"):
        save(karate(), tmp_path / "data.bin")


def change(path: Path, how: str) -> None:
    """Change a file as it may happen; the time of writing is put back where only contents are to differ."""
    status = path.stat()
    if how == "contents":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif how == "size":
        with path.open("ab") as file:
            file.write(b"more")
    elif how == "time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    elif how == "replaced":
        other = path.with_suffix(".other")
        other.write_bytes(path.read_bytes())
        os.replace(other, path)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("contents", "has other contents now"),
        ("size", "had .* bytes and has"),
        ("time", "was written"),
        ("replaced", "was replaced by another file"),
        ("gone", "is gone"),
    ],
)
def test_a_change_of_a_mapped_file_is_named(tmp_path: Path, how: str, says: str) -> None:
    path = tmp_path / "data.npz"
    save(karate(), path)
    data = load(path)
    data.watch.check()
    change(path, how)
    with pytest.raises(
        DataError, match=rf"data\.npz {says}.* while it is used.*what was learned until now is as it was"
    ):
        data.watch.check()


def test_a_sample_of_a_large_file_is_small(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 34)
    own = watch.Watch.of(str(path))
    assert own.bytes == 1 << 34
    own.check()
