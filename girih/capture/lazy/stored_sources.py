"""Sources in Zarr stores and HDF5 files. zarr and h5py are loaded when the first one is opened (extra `arrays`)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from girih.capture.lazy.file_sources import InFile, Stamp, stamp_of
from girih.capture.lazy.sources import Source, SourceError

_METADATA = ("zarr.json", ".zarray")
AT_ONCE = 1 << 22
"""Bytes that are read by one call, which finds the chunks anew."""


def library(name: str) -> Any:
    """A package that girih needs for some files only.

    Raises ModuleNotFoundError with what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"this needs the package {name}: pip install 'girih[arrays]'") from None


@dataclass(frozen=True)
class InZarr(Source):
    """An array of a Zarr store.

    store: an absolute path or a URL. array: its path in the store, "" for the store itself. stamp: of its metadata
    where the store is a directory, of the archive where it is one zip file, else None: that chunks of a directory are
    written anew is not noticed.
    """

    store: str
    array: str
    stamp: Stamp | None
    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: tuple[int, ...]
    read_at_once = AT_ONCE

    @property
    def name(self) -> str:
        return f"{self.store}: {self.array}" if self.array else self.store

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.pieces

    def check(self) -> None:
        if _zarr_stamp(self.store, self.array) != self.stamp:
            raise SourceError(f"{self.name}: the array has changed since it was opened, or is gone: open it again")

    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        self.check()
        opened = _open_zarr(self.store, self.array, self.stamp)
        return opened[tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))]


@dataclass(frozen=True)
class InHdf5(InFile):
    """A dataset of an HDF5 file. pieces: its chunks, if it has any."""

    dataset: str
    pieces: tuple[int, ...] | None
    read_at_once = AT_ONCE

    @property
    def name(self) -> str:
        return f"{self.path}: {self.dataset}"

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.pieces

    def load_now(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        with library("h5py").File(self.path, "r") as file:
            return file[self.dataset][tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))]

    @contextmanager
    def opened(self) -> Iterator[Any]:
        # What is read at once is whole chunks, of which HDF5 need keep none for the next call.
        with library("h5py").File(self.path, "r", rdcc_nbytes=0) as file:
            yield file[self.dataset]

    def load_into(self, opened: Any, starts: tuple[int, ...], stops: tuple[int, ...], out: np.ndarray) -> None:
        self.check()
        box = tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))
        if out.flags.c_contiguous:
            opened.read_direct(out, box)
        else:
            out[...] = opened[box]


def zarr(store: str, array: str = "") -> Source:
    """An array of a Zarr store, of version 2 or 3: a directory, a zip file, or a URL that fsspec knows.

    Raises:
        SourceError: it is no array; the message has those that the store has. FileNotFoundError: nothing is there.
    """
    if "://" not in store:
        store = os.path.abspath(store)
        os.stat(store)
    array = array.strip("/")
    stamp = _zarr_stamp(store, array)
    opened = _open_zarr(store, array, stamp)
    if not hasattr(opened, "shape"):
        raise SourceError(f"{store} is a group: name one of its arrays{_list(_arrays_of(opened))}")
    kind = _numeric(opened.dtype, f"{store}: {array}" if array else store)
    return InZarr(store, array, stamp, tuple(opened.shape), kind, tuple(opened.chunks))


def hdf5(path: str, dataset: str | None = None) -> Source:
    """A dataset of an HDF5 file; it need not be named where it is the only one.

    Raises:
        SourceError: it is no HDF5 file, or has no such dataset; the message has those that it has. OSError.
    """
    library("h5py")
    path = os.path.abspath(path)
    with open(path, "rb"):  # whose error is clearer than HDF5's
        stamp = stamp_of(path)
    with _open_hdf5(path) as file:
        if dataset is None:
            names = _datasets_of(file)
            if len(names) != 1:
                raise SourceError(f"{path} has {len(names)} datasets: name one of them{_list(names)}")
            dataset = names[0]
        array = file.get(dataset)
        if array is None or not hasattr(array, "shape"):
            what = "a group" if array is not None else "not there"
            raise SourceError(f"{path}: {dataset!r} is {what}: expected a dataset{_list(_datasets_of(file))}")
        if array.shape is None:
            raise SourceError(f"{path}: {dataset!r} is an empty dataspace: it has no shape")
        kind = _numeric(array.dtype, f"{path}: {dataset}")
        return InHdf5(path, stamp, tuple(array.shape), kind, dataset, array.chunks)


def _numeric(dtype: Any, name: str) -> np.dtype:
    kind = np.dtype(dtype)
    if kind.hasobject or kind.kind not in "biufc":
        raise SourceError(f"{name} has dtype {kind}: expected numbers or booleans")
    native: np.dtype = kind.newbyteorder("=")
    return native


def _list(names: Iterable[str]) -> str:
    known = sorted(names)
    return f" ({', '.join(known[:8])}{', …' if len(known) > 8 else ''})" if known else ", but it has none"


def _zarr_stamp(store: str, array: str) -> Stamp | None:
    if os.path.isfile(store):
        return stamp_of(store)
    for name in _METADATA:
        path = os.path.join(store, array, name)
        if os.path.isfile(path):
            return stamp_of(path)
    return None


@lru_cache(maxsize=32)
def _open_zarr(store: str, array: str, stamp: Stamp | None) -> Any:
    """Opened once for each state of the metadata."""
    package = library("zarr")
    place = package.storage.ZipStore(store, mode="r") if os.path.isfile(store) else store
    try:
        opened = package.open(place, path=array, mode="r")
    except (FileNotFoundError, KeyError):
        pass
    except ValueError as error:
        raise SourceError(f"{store} cannot be read as Zarr: {' '.join(str(error).split())}") from None
    else:
        _refuse_pickles(opened, f"{store}: {array}" if array else store)
        return opened
    try:
        group = package.open_group(place, mode="r")
    except (FileNotFoundError, KeyError, ValueError):
        raise SourceError(f"{store} is no Zarr store") from None
    raise SourceError(f"{store} has no array {array!r}{_list(_arrays_of(group))}")


def _refuse_pickles(opened: Any, name: str) -> None:
    """A codec that unpickles would run what the store's writer chose, also where the elements are numbers.

    Raises:
        SourceError: the array has such a codec.
    """
    pending: list[Any] = [opened.metadata.to_dict()]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            named = [str(item.get(key, "")) for key in ("id", "name")]
            if any("pickle" in word.casefold() for word in named):
                raise SourceError(f"{name} is coded by pickle, which can run any code: write it with another codec")
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
        elif type(item).__name__.casefold().endswith("pickle"):
            raise SourceError(f"{name} is coded by pickle, which can run any code: write it with another codec")


def _arrays_of(group: Any) -> list[str]:
    return [path for path, item in group.members(max_depth=None) if hasattr(item, "shape")]


def _open_hdf5(path: str) -> Any:
    try:
        return library("h5py").File(path, "r")
    except OSError as error:
        raise SourceError(f"{path} cannot be opened as HDF5: {error}") from None


def _datasets_of(file: Any) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names
