"""Sources: arrays that lie elsewhere, in files or as functions of the index, and are read part by part.

A Source is the `content` of a `data` expression, as an array in memory is. It is sent to the workers in place of
elements: each reads the part that it needs, when it needs it. It is a value: equal sources have equal elements, so
that an array that is opened twice is one expression.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from girih.ops.functions import FunctionError, pickled


class SourceError(ValueError):
    """A source cannot be opened or read; the message names it, and says what to do."""


class Source(ABC):
    """An array that can be read part by part: a frozen dataclass, hashable and picklable.

    shape: in elements. dtype: NumPy's, in this machine's byte order. chunks: what is best read together, where that
    matters. read_at_once: bytes that should be read by one call, where a call takes long by itself. name: for messages.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read_at_once: ClassVar[int] = 0

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return None

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> Hashable:
        """Equal for equal sources, and only for them."""
        return self

    def check(self) -> None:  # noqa: B027 - what is no file does not change
        """Is it still what was opened? Reads no elements. Raises SourceError."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @abstractmethod
    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        """The elements of a part that is not empty, as an array of any kind."""

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        """The part between starts and stops: contiguous, of `dtype`, and the caller's own.

        Raises:
            SourceError: it cannot be read, is no longer what was opened, or the function that makes it failed.
        """
        shape = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        if 0 in shape:
            return np.empty(shape, self.dtype)
        with self.naming():
            part = np.require(self.load(tuple(starts), tuple(stops)), self.dtype, ["C", "O", "W", "E"])
        self._check_shape(part, starts, stops)
        return part

    def read_all(self) -> np.ndarray:
        return self.read((0,) * len(self.shape), self.shape)

    def opened(self) -> AbstractContextManager[Any]:
        """What stays open while a Reader reads."""
        return nullcontext()

    def load_into(self, opened: Any, starts: tuple[int, ...], stops: tuple[int, ...], out: np.ndarray) -> None:
        """The elements of a part that is not empty, into memory of its shape. opened: as `opened` gives it."""
        part = np.asarray(self.load(starts, stops))
        self._check_shape(part, starts, stops)
        out[...] = part

    def _check_shape(self, part: np.ndarray, starts: Sequence[int], stops: Sequence[int]) -> None:
        shape = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        if part.shape != shape:
            raise SourceError(f"{self.name}: {list(starts)} to {list(stops)} gave {part.shape}, expected {shape}")

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors within it name the source. Raises SourceError."""
        try:
            yield
        except (SourceError, ModuleNotFoundError):
            raise
        except Exception as error:
            raise SourceError(f"{self.name} could not be read: {type(error).__name__}: {error}") from error


class Reader:
    """Reads parts of a source one after another into memory of the caller's, which is not asked of the system anew for
    each; a context manager, within which a file stays open once something was read of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open = ExitStack()
        self._opened: Any = None
        self._begun = False

    def into(self, starts: Sequence[int], stops: Sequence[int], out: np.ndarray) -> None:
        """The part between starts and stops, into an array of its shape and the source's dtype. Raises as `read`."""
        if not out.size:
            return
        with self._source.naming():
            if not self._begun:
                self._opened, self._begun = self._open.enter_context(self._source.opened()), True
            self._source.load_into(self._opened, tuple(starts), tuple(stops), out)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


@dataclass(frozen=True)
class Window(Source):
    """A slice of a source: reading it reads nothing else, but for what steps pass over.

    slices: for each dimension (start, number of elements, step ≥ 1).
    """

    source: Source
    slices: tuple[tuple[int, int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(count for _, count, _ in self.slices)

    @property
    def dtype(self) -> np.dtype:  # type: ignore[override]
        return self.source.dtype

    @property
    def name(self) -> str:
        return self.source.name

    def check(self) -> None:
        self.source.check()

    @property
    def chunks(self) -> tuple[int, ...] | None:
        whole = self.source.chunks
        if whole is None:
            return None
        return tuple(max(1, size // step) for size, (_, _, step) in zip(whole, self.slices, strict=True))

    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        low = [first + start * step for start, (first, _, step) in zip(starts, self.slices, strict=True)]
        high = [first + (stop - 1) * step + 1 for stop, (first, _, step) in zip(stops, self.slices, strict=True)]
        return self.source.read(low, high)[tuple(slice(None, None, step) for _, _, step in self.slices)]


def window(source: Source, dimension: int, start: int, stop: int, step: int = 1) -> Window:
    """source[..., start:stop:step, ...] along one dimension, with step ≥ 1 and both ends inside."""
    inner, slices = source, [(0, size, 1) for size in source.shape]
    if isinstance(source, Window):
        inner, slices = source.source, list(source.slices)
    first, _, every = slices[dimension]
    slices[dimension] = (first + start * every, max(0, -(-(stop - start) // step)), every * step)
    return Window(inner, tuple(slices))


@dataclass(frozen=True)
class FunctionOfIndex(Source):
    """function(i, j, …) with the index in each dimension as int64 arrays that broadcast together (as `np.ogrid`).

    Its result broadcasts to the part asked for, and is converted to `dtype`. It must give the same for the same index,
    however it is asked. Where the workers are processes it is sent to them: by its name from a module that they can
    import; from the main program, or without a name, as it stands (cloudpickle, of the extra `arrays`).
    """

    function: Callable[..., Any]
    shape: tuple[int, ...]
    dtype: np.dtype

    def __reduce__(self) -> Any:
        return _of_function, (_pickled(self.function), self.shape, self.dtype)

    @property
    def name(self) -> str:
        return f"function {getattr(self.function, '__qualname__', self.function)!s}"

    def load(self, starts: tuple[int, ...], stops: tuple[int, ...]) -> Any:
        places = np.ogrid[tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))]
        part = np.asarray(self.function(*(np.asarray(place, np.int64) for place in places)))
        shape = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        try:
            return np.broadcast_to(part.astype(self.dtype, copy=False), shape)
        except ValueError:
            raise SourceError(
                f"{self.name} gave an array of shape {part.shape} for a part of shape {shape}: compute with the given "
                "index arrays, so that they broadcast"
            ) from None


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        return pickled(function)
    except FunctionError as error:
        raise SourceError(str(error)) from error


def _of_function(function: bytes, shape: tuple[int, ...], dtype: np.dtype) -> FunctionOfIndex:
    return FunctionOfIndex(pickle.loads(function), shape, dtype)


@dataclass(frozen=True)
class Part:
    """What one worker reads of a source: (start, stop) for each dimension. room: bytes that it may take to read more at
    once than it needs."""

    source: Source
    box: tuple[tuple[int, int], ...]
    room: int = 0

    def read(self) -> np.ndarray:
        return self.source.read([start for start, _ in self.box], [stop for _, stop in self.box])
