"""Arrays from files and back: npy, npz, raw memory, Zarr, HDF5; and from NumPy functions of the index.

Opening reads what says shape and dtype. Elements are read when a value is needed, by the workers, each its own tile;
of an array of which only slices are needed nothing else is read. A file must stay as it was when it was opened: where
it changed, evaluation raises SourceError.

Writing is the driver's work, a tile at a time, so that no whole array is held: no file system need be shared with the
workers. A file appears under its name once it is complete.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array, number
from girih.array.core.dtypes import name_of
from girih.array.core.evaluation import current
from girih.array.functions.shapes.creation import full, zeros
from girih.capture.lazy import expressions, file_sources, stored_sources
from girih.capture.lazy.sources import FunctionOfIndex, Source, SourceError
from girih.capture.source import find_source

Path = str | os.PathLike[str]
Box = tuple[slice, ...]


def from_source(source: Source) -> Array:
    """The array that a source has; one without dimensions is read at once.

    Raises:
        TypeError: girih has no arrays of its dtype.
    """
    try:
        name = name_of(source.dtype)
    except TypeError as error:
        raise TypeError(f"{source.name}: {error}") from None
    if 0 in source.shape:
        return zeros(source.shape, source.dtype)
    if not source.shape:
        return number(source.read_all(), source.dtype)
    return Array(expressions.data(source, name, find_source(sys._getframe(1))))


def from_npy(path: Path) -> Array:
    """The array of an npy file.

    Raises:
        FileNotFoundError, PermissionError: as open. SourceError: no npy file, Python objects, or cut off.
    """
    return from_source(file_sources.npy(os.fspath(path)))


def from_npz(path: Path, name: str | None = None) -> Array:
    """An array of an npz file; it need not be named where it is the only one. Raises as `from_npy`."""
    sources = file_sources.npz(os.fspath(path))
    if name is None and len(sources) == 1:
        name = next(iter(sources))
    if name not in sources:
        asked = "name one of them" if name is None else f"there is no {name!r}"
        raise SourceError(f"{os.fspath(path)} has {len(sources)} arrays, {asked}: {', '.join(sources) or 'none'}")
    return from_source(sources[name])


class Archive(dict[str, Array]):
    """The arrays of an npz file by their names; nothing is open that `close` had to close."""

    @property
    def files(self) -> list[str]:
        return list(self)

    def close(self) -> None:
        """Do nothing: for scripts that close NumPy's archives."""

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def load(file: Path | IO[bytes], mmap_mode: str | None = None, allow_pickle: bool = False) -> Any:
    """NumPy's: the array of an npy file, or those of an npz file by name. Nothing is read yet, but of an open file,
    which is read whole.

    mmap_mode is accepted because files are never read whole. Raises as `from_npy`.
    """
    if allow_pickle:
        raise SourceError("load(allow_pickle=True): girih arrays hold no Python objects")
    if not isinstance(file, str | os.PathLike):
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return as_array(content)
        return Archive((name, as_array(content[name])) for name in content)
    path = os.fspath(file)
    with open(path, "rb") as opened:
        archive = opened.read(2) == b"PK"
    if archive:
        return Archive((name, from_source(source)) for name, source in file_sources.npz(path).items())
    return from_npy(path)


def from_memmap(
    filename: Path | np.memmap,
    dtype: Any = np.uint8,
    shape: int | Sequence[int] | None = None,
    offset: int = 0,
    order: str = "C",
) -> Array:
    """Elements without a header, as `np.memmap` has them; or a whole `np.memmap` that was not sliced.

    Raises:
        SourceError: the file is too short, or the memmap's elements are not those of its file.
    """
    if isinstance(filename, np.memmap):
        mapped = filename
        order = "C" if mapped.flags.c_contiguous else "F"
        if type(mapped.base).__name__ != "mmap" or mapped.mode == "c" or mapped.filename is None:
            raise SourceError(
                "from_memmap: this memmap is a view of another, in mode 'c' or without a file: give the file's name, "
                "dtype, shape and offset, or copy it by from_numpy"
            )
        mapped.flush()
        return from_source(
            file_sources.raw(os.fspath(mapped.filename), mapped.dtype, mapped.shape, mapped.offset, order)
        )
    size = None if shape is None else _shape(shape)
    return from_source(file_sources.raw(os.fspath(filename), dtype, size, offset, order))


def from_zarr(store: Path, array: str = "") -> Array:
    """An array of a Zarr store (version 2 or 3): a directory, a zip file, or a URL that fsspec knows.

    Raises:
        SourceError: no such array. FileNotFoundError. ModuleNotFoundError: zarr is not installed.
    """
    return from_source(stored_sources.zarr(os.fspath(store), array))


def from_hdf5(path: Path, dataset: str | None = None) -> Array:
    """A dataset of an HDF5 file; it need not be named where it is the only one.

    Raises:
        SourceError: no such dataset, or no HDF5. FileNotFoundError. ModuleNotFoundError: h5py is not installed.
    """
    return from_source(stored_sources.hdf5(os.fspath(path), dataset))


def from_function_of_index(function: Callable[..., Any], shape: int | Sequence[int], dtype: Any = float) -> Array:
    """function(i, j, …) of NumPy arrays with the index in each dimension, which broadcast (as `np.ogrid`).

    The workers call it, each for its own tile. Unlike in `fromfunction`, it may do anything that NumPy can; girih
    cannot look into it. It must give the same for the same index, however it is asked.

    Raises:
        ValueError: a negative size.
    """
    return from_source(FunctionOfIndex(function, _shape(shape), np.dtype(dtype)))


def _shape(sizes: int | Sequence[int]) -> tuple[int, ...]:
    shape = (int(sizes),) if isinstance(sizes, (int, np.integer)) else tuple(map(int, sizes))
    if min(shape, default=0) < 0:
        raise ValueError(f"negative dimensions are not allowed: {shape}")
    return shape


def newarray(shape: int | Sequence[int], init: Any = 0, dtype: Any = None) -> Array:
    """An array of a shape: a number everywhere, or a function of the index, called by each worker for its own tile.

    init: a number, or function(i, j, …) as for `from_function_of_index`.
    """
    if callable(init):
        return from_function_of_index(init, shape, float if dtype is None else dtype)
    return full(shape, init, dtype)


# ------------------------------------------------------------------------------------------- to files


def write(array: Array, written: Any) -> None:
    """An array, evaluated, into one that is there: a tile at a time, whole chunks where it has any."""
    chunks = getattr(written, "chunks", None)
    for box, tile in current().tiles(array.expression, chunks[0] if chunks else 1):
        written[box] = tile


def save(file: Path | IO[bytes], arr: Any) -> None:
    """Save an array as an npy file, by its name or to an open file, as NumPy does."""
    if not isinstance(file, str | os.PathLike):
        np.save(file, as_array(arr).compute())
        return
    path = os.fspath(file)
    to_npy(arr, path if path.endswith(".npy") else f"{path}.npy")


def to_npy(x: Any, path: Path) -> None:
    """Write an npy file, a tile at a time."""
    array = as_array(x)
    with _complete(os.fspath(path)) as partial:
        if array.size == 0 or not array.shape:
            with open(partial, "wb") as file:
                np.save(file, array.compute())
            return
        whole = np.lib.format.open_memmap(partial, "w+", array.dtype, array.shape)
        write(array, whole)
        whole.flush()


def savez(file: Path, *args: Any, **kwds: Any) -> None:
    """NumPy's. Each array is held whole for a while."""
    _savez(np.savez, file, args, kwds)


def savez_compressed(file: Path, *args: Any, **kwds: Any) -> None:
    """NumPy's. Each array is held whole for a while."""
    _savez(np.savez_compressed, file, args, kwds)


def _savez(write: Callable[..., None], file: Path, args: tuple[Any, ...], kwds: dict[str, Any]) -> None:
    write(file, *(as_array(x).compute() for x in args), **{name: as_array(x).compute() for name, x in kwds.items()})


def to_zarr(x: Any, store: Path, array: str = "", chunks: Sequence[int] | None = None, overwrite: bool = False) -> None:
    """Write an array of a Zarr store, a tile at a time. chunks: by default whole rows of some megabytes, or zarr's
    choice where a row is larger.

    Raises:
        SourceError: there is such an array, and it is not to be overwritten. ModuleNotFoundError.
    """
    package = stored_sources.library("zarr")
    source = as_array(x)
    place = os.fspath(store)
    try:
        written = package.create_array(
            place if "://" in place else os.path.abspath(place),
            name=array.strip("/") or None,
            shape=source.shape,
            dtype=source.dtype,
            chunks=_chunks(source) if chunks is None else tuple(chunks),
            overwrite=overwrite,
        )
    except (package.errors.ContainsArrayError, package.errors.ContainsGroupError, FileExistsError) as error:
        raise SourceError(f"{place}: {error}; overwrite=True replaces it") from None
    write(source, written)


def _chunks(array: Array) -> tuple[int, ...] | str:
    """Chunks that lie in memory, and are read by girih, in one run; zarr cuts tall matrices column by column."""
    row = max(1, math.prod(array.shape[1:]) * array.itemsize)
    if not array.shape or not array.size or row > stored_sources.AT_ONCE:
        return "auto"
    return min(array.shape[0], stored_sources.AT_ONCE // row), *array.shape[1:]


def to_hdf5(x: Any, path: Path, dataset: str = "data", chunks: Sequence[int] | None = None) -> None:
    """Write a dataset of an HDF5 file, a tile at a time; one of that name is replaced. Others of the file stay."""
    package = stored_sources.library("h5py")
    source = as_array(x)
    with package.File(os.fspath(path), "a") as file:
        partial = f"{dataset}.partial"
        if partial in file:
            del file[partial]
        size = None if chunks is None else tuple(chunks)
        written = file.create_dataset(partial, shape=source.shape, dtype=source.dtype, chunks=size)
        try:
            write(source, written)
        except BaseException:
            del file[partial]
            raise
        if dataset in file:
            del file[dataset]
        file.move(partial, dataset)


@contextmanager
def _complete(path: str) -> Iterator[str]:
    """A name beside the path, which becomes the path at the end."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        yield partial
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
