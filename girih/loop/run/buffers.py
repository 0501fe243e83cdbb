"""Writes that reach an array later (DistArray buffers; Orion, thesis §5.2.3).

Each worker adds its writes to a buffer of its own. After so many iterations the buffered writes of all workers are
applied, row by row, by the user's function of an element and its buffered sum; then the buffers are empty again. All
workers stop for it, and the rows are divided among them, each taking the workers' sums in their order: the result
depends on the number of workers and the delay, and on no timing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.layout.jit import numba
from girih.loop.capture.arithmetic import sums_of
from girih.loop.code.arithmetic import Checked, checked, storable

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "min": min,
    "max": max,
    "product": operator.mul,
}
"""How an accumulator's values of two workers become one."""


@dataclass(frozen=True)
class WorkerBuffer:
    """One worker's buffered sums. flags: the rows that were written; touched: their list, its last item their count."""

    values: np.ndarray
    flags: np.ndarray
    touched: np.ndarray

    @staticmethod
    def of(shape: tuple[int, ...], dtype: Any) -> WorkerBuffer:
        """An empty buffer for an array. Whole numbers are summed in 64 bits: their total may fit where a part does
        not."""
        return WorkerBuffer(
            np.zeros(shape, sums_of(str(np.dtype(dtype)))),
            np.zeros(shape[0], np.uint8),
            np.zeros(shape[0] + 1, np.int64),
        )

    @property
    def rows(self) -> np.ndarray:
        return self.touched[: self.touched[-1]]


def add(value: float, update: float) -> float:
    return value + update


def applier(function: Callable[[float, float], float], words: str) -> Any:
    """Compiled code that applies the buffers' rows in [low, high), and empties them.

    function(element, sum) returns the new element. words: the user's place and text, where a whole number does not fit.
    """
    element = checked("+", words) if function is add else numba.njit(function, nogil=True, pipeline_class=Checked)
    held = storable(words)

    @numba.njit(nogil=True)
    def apply(target, values, flags, touched, low, high):  # type: ignore[no-untyped-def]
        width = values.shape[1]
        for at in range(touched[len(touched) - 1]):
            row = touched[at]
            if low <= row < high:
                for k in range(width):
                    if values[row, k] != 0:
                        target[row, k] = held(target, element(target[row, k], values[row, k]))
                        values[row, k] = 0
                flags[row] = 0

    return apply


def reviser(function: Callable[[float, float, np.ndarray], float], words: str) -> tuple[Any, Any]:
    """Compiled code for buffers whose function has further numbers for each element: (gather, apply).

    gather adds rows of one worker's buffer to the first worker's; apply then calls function(element, sum, further) once
    for each element, with all workers' sum, and empties the row. further: [columns, rows, width].
    """
    element = numba.njit(
        function, nogil=True, pipeline_class=Checked, boundscheck=True
    )  # of `further` it may ask for a column too many
    together, held = checked("+", words), storable(words)

    @numba.njit(nogil=True)
    def gather(first, values, touched, low, high):  # type: ignore[no-untyped-def]
        for at in range(touched[len(touched) - 1]):
            row = touched[at]
            if low <= row < high:
                for k in range(values.shape[1]):
                    first[row, k] = together(first[row, k], values[row, k])
                    values[row, k] = 0

    @numba.njit(nogil=True)
    def apply(target, values, flags, touched, low, high, further):  # type: ignore[no-untyped-def]
        for at in range(touched[len(touched) - 1]):
            row = touched[at]
            if low <= row < high:
                for k in range(values.shape[1]):
                    if values[row, k] != 0:  # a row that several workers wrote is 0 when it comes again
                        target[row, k] = held(target, element(target[row, k], values[row, k], further[:, row, k]))
                        values[row, k] = 0
                flags[row] = 0

    return gather, apply


def flat(array: np.ndarray) -> np.ndarray:
    """The array with its rows as one dimension, sharing its memory."""
    return array.reshape(len(array), -1)


def empty(buffer: WorkerBuffer) -> None:
    """All of its rows have been applied."""
    buffer.touched[-1] = 0
