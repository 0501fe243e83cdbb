"""What loops share: arrays, buffers whose writes reach an array later, accumulators; and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from girih.loop.run.buffers import OPERATIONS, add


class Array:
    """An array that loops read and write; between loops it is read and written like a NumPy array."""

    of_loops: ClassVar[bool] = True

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        """The memory itself: what is written here, loops see."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def numpy(self) -> np.ndarray:
        """A copy."""
        return self.values.copy()

    def map(self, function: Callable[[np.ndarray], ArrayLike]) -> Array:
        """A new array, of what the function makes of the values."""
        return array(function(self.values))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype) if copy is not False else np.asarray(self.values, dtype=dtype)

    def __getitem__(self, at: Any) -> Any:
        """A set query, outside of loops: what is read is a copy."""
        found = self.values[at]
        return found.copy() if isinstance(found, np.ndarray) else found

    def __setitem__(self, at: Any, value: Any) -> None:
        self.values[at] = value

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<girih loop array {self.dtype}{list(self.shape)}>"


class Buffer:
    """Writes to an array that reach it later; in a loop body `buffer[…] += x`, which is no dependence.

    Each worker adds up its own writes. They are applied when each worker has run `delay` iterations (None: at the end
    of the loop): for each element with a sum other than 0, element = apply(element, sum). With `further` numbers for
    each element, which apply may change, it is called once for the sum of all workers.
    """

    of_loops: ClassVar[bool] = True

    def __init__(
        self, target: Array, apply: Callable[..., float], delay: int | None, further: Array | None = None
    ) -> None:
        self.target = target
        self.apply = apply
        self.delay = delay
        self.further = further

    @property
    def shape(self) -> tuple[int, ...]:
        return self.target.shape

    def __repr__(self) -> str:
        return f"<girih buffer of {self.target!r}, delay {self.delay}>"


class Accumulator:
    """A value that iterations add to, each worker its own; `value` is of all workers."""

    of_loops: ClassVar[bool] = True

    def __init__(self, initial: float, operation: str) -> None:
        self.initial = initial
        self.operation = operation
        self.parts: list[Any] = []

    @property
    def neutral(self) -> Any:
        """The value with which each worker begins its own part of the accumulator."""
        if self.operation in ("min", "max"):
            return self.initial
        return type(self.initial)(0 if self.operation == "sum" else 1)

    @property
    def value(self) -> Any:
        """The initial value with what all iterations added, since it was made or reset."""
        return reduce(OPERATIONS[self.operation], self.parts, self.initial)

    def aggregate(self, operation: Callable[[Any, Any], Any]) -> Any:
        """The workers' parts, put together by an associative and commutative function of two of them."""
        return reduce(operation, self.parts) if self.parts else self.initial

    def add(self, parts: Iterable[Any]) -> None:
        """What the workers of one execution have; it is added to what each has from before."""
        combine = OPERATIONS[self.operation]
        for number, part in enumerate(parts):
            if number < len(self.parts):
                self.parts[number] = combine(self.parts[number], part)
            else:
                self.parts.append(part)

    def reset(self) -> None:
        self.parts = []

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"<girih accumulator by {self.operation}: {self.value}>"


def array(values: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An array that loops share: a copy of the values, in one piece of memory.

    Raises:
        ValueError: it has no dimension, or its elements are no numbers.
    """
    copied = np.array(values, dtype=dtype, order="C")
    if not copied.ndim or copied.dtype.kind not in "biuf":
        raise ValueError(
            f"an array of {copied.dtype} with {copied.ndim} dimensions: loops share arrays of numbers with one or more"
        )
    return Array(copied)


def buffer(
    target: Array,
    apply: Callable[..., float] | None = None,
    *,
    delay: int | None = None,
    further: Array | None = None,
) -> Buffer:
    """A buffer of writes to an array.

    apply: a function of an element and what was added to it, which Numba compiles; by default their sum. delay: each
    worker runs at most so many iterations until what was written is applied; None: as many as it has. further:
    [columns, *the target's shape], numbers that apply takes as third argument, one for each column, and may change:
    what adaptive steps remember. Such a loop runs on threads.

    Raises:
        ValueError: delay is below 1, or further has another shape, or there is no function that takes it.
        TypeError: the target is no array of loops.
    """
    if not isinstance(target, Array):
        raise TypeError(f"a buffer of {type(target).__name__}: expected gl.array(…)")
    if delay is not None and delay < 1:
        raise ValueError(f"delay={delay}: expected at least one iteration, or None")
    if further is not None and (apply is None or further.shape[1:] != target.shape):
        raise ValueError(
            f"further numbers of shape {further.shape}: expected (columns, {', '.join(map(str, target.shape))}), and a "
            "function that takes them"
        )
    return Buffer(target, apply or add, delay, further)


def accumulator(initial: float = 0.0, operation: str = "sum") -> Accumulator:
    """An accumulator; operation: `sum` (`err += x` in the body), `product`, `min` or `max` (`err = max(err, x)`).

    initial: a number; what begins with a whole number takes whole numbers alone.

    Raises:
        ValueError: there is no such operation. TypeError: initial is no number.
    """
    if isinstance(initial, bool) or not isinstance(initial, int | float | np.integer | np.floating):
        raise TypeError(f"initial={initial!r}: expected a number")
    if operation not in OPERATIONS:
        raise ValueError(f"operation={operation!r}: expected one of {', '.join(OPERATIONS)}")
    return Accumulator(initial, operation)


def add_up(name: str, target: np.ndarray, part: np.ndarray) -> None:
    """Add a worker's sums over iterations to an array.

    Raises:
        OverflowError: a sum of whole numbers does not fit the array's dtype, in which it would wrap.
    """
    if target.dtype.kind not in "iu" or part.dtype != np.int64:
        target += part
        return
    before = target.astype(np.int64)
    total = before + part
    info = np.iinfo(target.dtype)
    if ((((before ^ total) & (part ^ total)) < 0) | (total < info.min) | (total > info.max)).any():
        raise OverflowError(f"{name}: a sum over iterations does not fit {target.dtype}; use an array of a wider dtype")
    target[...] = total


def random() -> float:
    """In a loop body: a uniform random number in [0, 1), from a stream of this iteration's own.

    The stream depends on the loop's seed, the execution's number and the iteration's key, and on no schedule.

    Raises:
        RuntimeError: it is called outside of a loop body.
    """
    raise RuntimeError("gl.random() draws numbers in the body of a parallel loop: use NumPy's generators elsewhere")


random.of_random = True  # type: ignore[attr-defined]
