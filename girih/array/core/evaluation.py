"""What evaluates arrays, as they see it: one is in use, `girih.array.session` has those that there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from girih.capture.lazy.expressions import Expression
from girih.run.engines.stopping import WorkerThread

Given = ParamSpec("Given")
Own = TypeVar("Own")
Result = TypeVar("Result")
_turn = threading.RLock()
WITH_FUNCTION: ContextVar[bool] = ContextVar("whether arrays are pickled as what a function on tiles refers to")
"""Workers find NumPy's arrays there: they compute for the program, and cannot ask it to compute meanwhile."""


def in_turn(
    method: Callable[Concatenate[Own, Given], Result],
) -> Callable[Concatenate[Own, Given], Result]:
    """A method of an evaluator that one thread of the program does at a time. One lock serves all evaluators: they take
    values from each other, and arrays share what is equal.

    Raises:
        RuntimeError: a worker that is a thread asks, which the program waits for.
    """

    @wraps(method)
    def waiting(self: Own, /, *given: Given.args, **named: Given.kwargs) -> Result:
        _check_asker()
        with _turn:
            return method(self, *given, **named)

    return waiting


def _check_asker() -> None:
    if isinstance(threading.current_thread(), WorkerThread):
        raise RuntimeError(
            "a function on tiles asks for the value of a girih.array while workers compute: use numpy in it, on its "
            "tiles and on what it refers to"
        )


class Evaluator(Protocol):
    """Workers that compute expressions and keep their tiles. small: fewer bytes are not left to them; None: as
    many as `Border` says."""

    small: float | None

    @property
    def alone(self) -> bool:
        """Is it one worker?"""

    def value(self, expression: Expression) -> np.ndarray:
        """The value of an expression, as a NumPy array that the caller may change."""

    def evaluate(self, wanted: Sequence[Expression], report: bool = True) -> list[np.ndarray]:
        """Compute what is needed for all of them at once. report: also return the values."""

    def tiles(self, expression: Expression, rows: int = 1) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
        """The value tile by tile, each with where it belongs; evaluated first, if need be. What does not fit into
        memory, and is made element by element, comes some rows at a time, a multiple of `rows`, each time in the same
        memory, and stays nowhere."""


class Border:
    """The borders of small work. What has fewer than `bytes` is computed by NumPy, in this process; what of that has
    `chains` or more is written down first, and computed in blocks of `block` bytes (`girih.array.core.chains`). Only
    what has `quick` or more is asked for that.

    A plan that is known costs some hundred microseconds to evaluate and some ten more for each operation
    (`benchmarks.arrays_overhead`), and an array that was written to is copied into the next graph. Workers win that
    back where arrays are large. A call of a chain costs some ten microseconds, which blocks win back where arrays leave
    the processor's second-level cache. In another dtype `tiny` bytes are fewer than `quick`, and no large work. One
    worker shares no work: what it can win are only kernels and blocks, so that the border is `ALONE` times as high.
    """

    DEFAULT = 1 << 25
    QUICK = 1 << 20
    CHAINS = 1 << 22
    BLOCK = 1 << 19
    ALONE = 4

    WRITTEN_OVER = 1 << 18

    def __init__(self) -> None:
        self.limits = np.zeros(3, np.int64)
        """What `small.c` goes by: elements of one array times those of another, bytes of a small array, and bytes from
        which operators may write over what has no name."""
        self.put(None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("bytes", "quick") and hasattr(self, "quick"):
            most = min(self.bytes, 1 << 62)
            self.limits[:] = min(self.quick, most) / 16, most, min(self.WRITTEN_OVER, self.quick, most)

    def put(self, own: float | None, alone: bool = False) -> None:
        """The border of a cluster; None: the default. alone: has the cluster one worker?"""
        self.bytes: float = self.DEFAULT * (self.ALONE if alone else 1) if own is None else own
        self.quick, self.chains, self.block = self.QUICK, self.CHAINS, self.BLOCK
        self.tiny = min(self.quick, self.bytes) / 16  # bytes of the widest element


BORDER = Border()


class Current:
    """The evaluators that were put in use and not closed yet, and what makes one if there are none."""

    def __init__(self) -> None:
        self.evaluators: list[Evaluator] = []
        self.default: Callable[[], Evaluator] | None = None


_current = Current()


def current() -> Evaluator:
    """The evaluator in use: the last that began, else the default one, which begins now. Raises as `in_turn`."""
    evaluators = _current.evaluators
    if evaluators:  # whose methods take turns
        return evaluators[-1]
    _check_asker()
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
    if _current.evaluators:
        BORDER.put(_current.evaluators[-1].small, _current.evaluators[-1].alone)
    else:
        BORDER.put(None)


def set_default(make: Callable[[], Evaluator]) -> None:
    """What makes the evaluator of a program that names none."""
    _current.default = make
