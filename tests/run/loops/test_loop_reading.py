"""What loops read of files: each chunk once, within the room there is, and the same bits however it is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

import girih.array as gnp
from girih.array.io.files import from_source
from girih.capture.lazy.sources import Part, Source
from girih.capture.lazy.stored_sources import InHdf5, InZarr
from girih.run.loops import reading

ROWS, COLUMNS, CHUNK = 12_000, 24, 1000
CONTENT = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))  # 2.3 MB
STENCIL = CONTENT[2:, 1:-1] + CONTENT[:-2, 1:-1] - 2 * CONTENT[1:-1, 2:]


@dataclass(frozen=True)
class Counted(Source):
    """An array that notes what is read of it, in chunks of some rows."""

    shape: tuple[int, ...] = CONTENT.shape
    dtype: np.dtype = CONTENT.dtype
    rows: int = CHUNK
    asked: list[tuple[int, int]] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        return "counted"

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.rows, COLUMNS

    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        self.asked.append((starts[0], stops[0]))
        return CONTENT[tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))]


def touched(asked: list[tuple[int, int]], rows: int) -> Counter[int]:
    """How often each chunk is read."""
    return Counter(chunk for start, stop in asked for chunk in range(start // rows, -(-stop // rows)))


def stencil(x: Any) -> Any:
    return abs(x[2:, 1:-1] + x[:-2, 1:-1] - 2 * x[1:-1, 2:]).sum()


def gradient(x: Any) -> Any:
    return (x.T @ (x[:, 0] - 0.5)).sum()


@pytest.mark.parametrize(("program", "chunk"), list(product((stencil, gradient), (CHUNK, 700, 70, 1500))))
def test_each_chunk_is_read_once(program, chunk):
    source = Counted(rows=chunk)
    with gnp.cluster(workers=1, backend="threads", memory="6 MB", small=0):
        x = from_source(source)
        assert float(program(x)) == pytest.approx(float(program(CONTENT)))
        assert x.expression.kept is None, "it is read block by block"
    counts = touched(source.asked, chunk)
    assert set(counts) == set(range(-(-ROWS // chunk)))
    assert set(counts.values()) == {1}


def test_workers_share_no_more_than_the_chunks_at_the_ends_of_their_parts():
    source = Counted(rows=250)
    with gnp.cluster(workers=2, backend="threads", memory="1.5 MB", small=0):
        assert float(stencil(from_source(source))) == pytest.approx(abs(STENCIL).sum())
    counts = touched(source.asked, 250)
    assert counts.total() <= len(counts) + 20  # 2 loops, each in parts that any of them may compute


@pytest.mark.parametrize("kind", [InZarr, InHdf5])
def test_each_chunk_of_a_store_is_unpacked_once(tmp_path, monkeypatch, kind):
    asked: list[tuple[int, int]] = []
    load = kind.load_into

    def noted(self, opened, starts, stops, out):
        asked.append((starts[0], stops[0]))
        load(self, opened, starts, stops, out)

    monkeypatch.setattr(kind, "load_into", noted)
    monkeypatch.setattr(kind, "read_at_once", 0)
    if kind is InZarr:
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(tmp_path / "x", shape=CONTENT.shape, dtype=float, chunks=(CHUNK, COLUMNS))
        array[:] = CONTENT
        opened = gnp.from_zarr
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "x", "w") as file:
            file.create_dataset("x", data=CONTENT, chunks=(CHUNK, COLUMNS), compression=1)
        opened = gnp.from_hdf5
    with gnp.cluster(workers=1, backend="threads", memory="6 MB", small=0):
        assert float(stencil(opened(tmp_path / "x"))) == pytest.approx(abs(STENCIL).sum())
    assert touched(asked, CHUNK) == Counter(range(ROWS // CHUNK))


def test_many_small_chunks_are_read_by_one_call(monkeypatch):
    source = Counted(rows=10)
    monkeypatch.setattr(Counted, "read_at_once", 100_000)
    with gnp.cluster(workers=1, backend="threads", memory="6 MB", small=0):
        assert float(stencil(from_source(source))) == pytest.approx(abs(STENCIL).sum())
    assert all((stop - start) * COLUMNS * 8 >= 90_000 for start, stop in source.asked[:-1])
    assert set(touched(source.asked, 10).values()) == {1}


def test_what_is_held_fits_into_the_room(monkeypatch):
    """Rows that are held, and the chunk that is unpacked meanwhile."""
    room: list[int] = []
    most = [0]

    def part(self, source, box, bytes_left=0):
        room.append(bytes_left)
        original(self, source, box, bytes_left)

    def bring(self, first, last):
        brought(self, first, last)
        most[0] = max(most[0], self.memory.nbytes)

    original, brought = Part.__init__, reading._Held._bring
    monkeypatch.setattr(Part, "__init__", part)
    monkeypatch.setattr(reading._Held, "_bring", bring)
    with gnp.cluster(workers=1, backend="threads", memory="6 MB", small=0):
        assert float(stencil(from_source(Counted()))) == pytest.approx(abs(STENCIL).sum())
    assert 0 < most[0] <= max(room) <= 6_000_000


def test_blocks_are_read_one_by_one_where_a_chunk_does_not_fit():
    source = Counted(rows=ROWS)
    with gnp.cluster(workers=1, backend="threads", memory="2.2 MB", small=0):
        assert float(stencil(from_source(source))) == pytest.approx(abs(STENCIL).sum())
    assert len(source.asked) > 3
    assert max(stop - start for start, stop in source.asked) < ROWS // 2


@pytest.mark.parametrize(
    "program", [stencil, gradient, lambda x: x[1:, 3:9].mean(0), lambda x: (x[1:] * x[:-1]).mean(1)]
)
def test_bits_do_not_depend_on_how_it_is_read(monkeypatch, program):
    def result() -> np.ndarray:
        with gnp.cluster(workers=2, backend="threads", memory="1.5 MB", small=0):
            return program(from_source(Counted())).compute()

    shared = result()
    monkeypatch.setattr(reading, "_rows_at_once", lambda group, room: 0)
    np.testing.assert_array_equal(result(), shared)
    np.testing.assert_allclose(shared, program(CONTENT))


def test_windows_with_steps_and_along_rows():
    with gnp.cluster(workers=2, backend="threads", memory="1.5 MB", small=0):
        x = from_source(Counted())
        np.testing.assert_allclose(float((x[::2] - x[1::2]).max()), (CONTENT[::2] - CONTENT[1::2]).max())
        np.testing.assert_allclose((x[:, 1:] - x[:, :-1]).sum(0).compute(), (CONTENT[:, 1:] - CONTENT[:, :-1]).sum(0))
