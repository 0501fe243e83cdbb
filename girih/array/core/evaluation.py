"""What evaluates arrays, as they see it: one is in use, `girih.array.session` has those that there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from girih.capture.lazy.expressions import Expression

Given = ParamSpec("Given")
Own = TypeVar("Own")
Result = TypeVar("Result")
_turn = threading.RLock()


def in_turn(
    method: Callable[Concatenate[Own, Given], Result],
) -> Callable[Concatenate[Own, Given], Result]:
    """A method of an evaluator that one thread of the program does at a time. One lock serves all evaluators: they take
    values from each other, and arrays share what is equal."""

    @wraps(method)
    def waiting(self: Own, /, *given: Given.args, **named: Given.kwargs) -> Result:
        with _turn:
            return method(self, *given, **named)

    return waiting


class Evaluator(Protocol):
    """Workers that compute expressions and keep their tiles. small: fewer bytes are not left to them; None: fewer
    than `BORDER.DEFAULT`."""

    small: float | None

    def value(self, expression: Expression) -> np.ndarray:
        """The value of an expression, as a NumPy array that the caller may change."""

    def evaluate(self, wanted: Sequence[Expression], report: bool = True) -> list[np.ndarray]:
        """Compute what is needed for all of them at once. report: also return the values."""

    def tiles(self, expression: Expression) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
        """The value tile by tile, each with where it belongs; evaluated first, if need be."""


class Border:
    """The border of small work: what has fewer bytes is computed by NumPy at once, in this process.

    A plan that is known costs some hundred microseconds to evaluate and some ten more for each operation
    (`benchmarks.arrays_overhead`), and an array that was written to is copied into the next graph. Blocks and workers
    win that back where arrays leave the processor's caches. Between, scripts that write, or ask for a value, after each
    few operations lose most by a graph (`benchmarks.arrays_scripts`: 4 to 20 times at 8 MB), so the border is high.
    """

    DEFAULT = 1 << 25

    def __init__(self) -> None:
        self.bytes: float = self.DEFAULT

    def put(self, own: float | None) -> None:
        """The border of a cluster; None: the default."""
        self.bytes = self.DEFAULT if own is None else own


BORDER = Border()


class Current:
    """The evaluators that were put in use and not closed yet, and what makes one if there are none."""

    def __init__(self) -> None:
        self.evaluators: list[Evaluator] = []
        self.default: Callable[[], Evaluator] | None = None


_current = Current()


def current() -> Evaluator:
    """The evaluator in use: the last that began, else the default one, which begins now."""
    with _turn:
        return _begun()


def _begun() -> Evaluator:
    if not _current.evaluators:
        assert _current.default is not None, "girih.array sets it when it is imported"
        use(_current.default())
    return _current.evaluators[-1]


def use(evaluator: Evaluator) -> None:
    """Evaluate by this one from now on, until it leaves or another one begins."""
    if evaluator not in _current.evaluators:
        _current.evaluators.append(evaluator)
    _set_border()


def leave(evaluator: Evaluator) -> None:
    """Evaluate by the one of before again."""
    if evaluator in _current.evaluators:
        _current.evaluators.remove(evaluator)
    _set_border()


def _set_border() -> None:
    BORDER.put(_current.evaluators[-1].small if _current.evaluators else None)


def set_default(make: Callable[[], Evaluator]) -> None:
    """What makes the evaluator of a program that names none."""
    _current.default = make
