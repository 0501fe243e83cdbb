"""What each step reads anew, and no step can put back: clocks, chance of the operating system, seeds, iterators.

Python gives it away as plain numbers, which a plan would have as constants. So stand-ins note what a step reads while
it is captured. If it has read any, it is captured once more, with clocks that are far ahead and what iterators give
next, and refused if it then computes something else. A step that only measures or prints the time computes the same.
"""

from __future__ import annotations

import builtins
import datetime
import io
import os
import random
import sys
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, get_ident
from types import FrameType, MethodType, ModuleType
from typing import Any

import torch

from girih.capture.errors import CaptureError
from girih.capture.source import find_source, is_of_libraries, is_users
from girih.capture.torch.attributes import Attributes

AHEAD = 463 * 86_400 + 43_201.37
"""Seconds: another year, month, day of the week, half of the day and odd second, for branches that ask for these."""

_NEXT = "the next of"
MOST = 6
"""Readings that a message names."""


@dataclass
class Readings:
    """What a step reads, in words. ahead: how many seconds its clocks are, at their first reading. files: by name, what
    it asks of each, and where."""

    ahead: float
    told: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def follow(self) -> bool:
        """Is an iterator among it, of which further items tell more?"""
        return any(text.startswith(_NEXT) for text in self.told)

    def note(self, name: str, frame: FrameType) -> float:
        """The seconds to add: more at each reading, so that it is also long from one to the next."""
        self.told.append(" at ".join(filter(None, (name, find_source(frame)))))
        return self.ahead * (2 * len(self.told) - 1)


_OPEN: dict[int, Readings] = {}
"""By thread, what the step has read that it captures now."""
_LOCK = Lock()
"""Held while stand-ins come and go: several threads may capture at once."""


class _StandIn:
    """In the place of a function. Threads beside the capture have what the function gives, and so have libraries for
    their own use. (An object, since a function that a class has would become its method.)"""

    def __init__(self, module: Any, name: str, later: Callable[..., Any], told: str = "") -> None:
        self.module, self.name, self.real, self._later = module, name, getattr(module, name), later
        self._told = told or f"{module.__name__}.{name}"

    def __call__(self, *given: Any, **named: Any) -> Any:
        readings, real = _OPEN.get(get_ident()), partial(self.real, **named)
        if readings is None or is_of_libraries(_module_of(caller := _reader())):
            return real(*given)
        seconds = readings.note(self._told, caller)
        return self._later(real, seconds, *given) if seconds else real(*given)

    def put_in(self) -> None:
        """In the place of what is there now, which may itself stand for Python's own (a test's clock)."""
        self.real = getattr(self.module, self.name)
        setattr(self.module, self.name, self)

    def take_out(self) -> None:
        setattr(self.module, self.name, self.real)


class _Seeding(_StandIn):
    """In the place of the method that seeds Python's generators: without a seed the operating system gives one."""

    def __get__(self, generator: Any, kind: type) -> Any:
        return self if generator is None else MethodType(self, generator)

    def __call__(self, generator: Any, a: Any = None, version: int = 2) -> Any:
        by_chance = a is None and is_users(_module_of(_reader()))  # packages that are imported meanwhile have their own
        return (super().__call__ if by_chance else self.real)(generator, a, version)


class _Opening(_StandIn):
    """In the place of the function that opens files."""

    def __call__(self, file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        if "r" in mode:
            _note_file("reads", file)
        return self.real(file, mode, *given, **named)


class _Asking(_StandIn):
    """In the place of a function that tells what is on the disk; `os.path.exists`, `Path.is_file`, `glob` call one."""

    def __call__(self, path: Any = ".", *given: Any, **named: Any) -> Any:
        _note_file("asks for", path)
        return self.real(path, *given, **named)


def _note_file(how: str, file: Any) -> None:
    readings = _OPEN.get(get_ident())
    if readings is not None and isinstance(file, (str, os.PathLike)) and is_users(_module_of(caller := _reader())):
        readings.files.setdefault(os.fspath(file), f"{how} {os.fspath(file)!r} at {find_source(caller)}")


def _reader() -> FrameType:
    """Who calls a stand-in, or draws random numbers by it."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if (module := _module_of(frame)) != __name__ and module.partition(".")[0] not in _DRAWING:
            break
        frame = frame.f_back
    return frame


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _seconds(real: Any, ahead: float, *given: Any) -> Any:
    return real(*given) + ahead


def _nanoseconds(real: Any, ahead: float, *given: Any) -> Any:
    return real(*given) + int(ahead * 1e9) + 1


def _moment(real: Any, ahead: float, *given: Any) -> Any:
    return real(*(given or (_NOW() + ahead,)))


def _text(real: Any, ahead: float, *given: Any) -> Any:
    return real(given[0], *(given[1:] or (time.localtime(_NOW() + ahead),)))


def _chance(real: Any, ahead: float, *given: Any) -> Any:
    return real(*given)


_DRAWING = "random", "secrets", "uuid", "numpy", "pathlib", "genericpath", "posixpath", "ntpath", "glob"
_NOW = time.time
_COUNTERS = "time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"
_FUNCTIONS = (
    *(_StandIn(time, name, _seconds) for name in _COUNTERS),
    *(_StandIn(time, f"{name}_ns", _nanoseconds) for name in _COUNTERS),
    *(_StandIn(time, name, _moment) for name in ("localtime", "gmtime", "ctime")),
    _StandIn(time, "strftime", _text),
    _StandIn(timeit, "default_timer", _seconds),
    _StandIn(torch, "manual_seed", _chance),
    _StandIn(torch, "seed", _chance),
    _StandIn(torch, "initial_seed", _nanoseconds),
    _StandIn(os, "urandom", _chance),
    _Opening(builtins, "open", _chance),
    _Opening(io, "open", _chance),
    *(_Asking(os, name, _chance) for name in ("stat", "lstat", "access", "listdir", "scandir")),
    _Seeding(random.Random, "seed", _chance, "random.Random()"),
    _StandIn(random, "_urandom", _chance, "os.urandom"),  # of `secrets` and of NumPy's generators without seeds
)


class _Following:
    """In the place of an iterator."""

    def __init__(self, real: Iterator[Any], name: str) -> None:
        self._real, self._name = real, name

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if readings := _OPEN.get(get_ident()):
            readings.note(f"{_NEXT} {self._name!r}", sys._getframe(1))
        return next(self._real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _is_iterator(item: Any) -> bool:
    return isinstance(item, Iterator) and type(item).__module__ in ("builtins", "itertools")


class _Kind(type):
    """What is made of the class below is a plain datetime, and plain ones are of it."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        return datetime.datetime(*given, **named)

    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, datetime.datetime)


class _Datetime(datetime.datetime, metaclass=_Kind):
    """In the place of datetime.datetime, where the user's code has it; elsewhere it would disturb pickle."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return datetime.datetime.fromtimestamp(_now_of(sys._getframe(1)), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return datetime.datetime.fromtimestamp(_now_of(sys._getframe(1)), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return datetime.datetime.fromtimestamp(_now_of(sys._getframe(1)))


def _now_of(caller: FrameType) -> float:
    readings = _OPEN.get(get_ident())
    return _NOW() + (readings.note("datetime.now", caller) if readings else 0)


_DATES = ModuleType("datetime")
vars(_DATES).update(vars(datetime) | {"datetime": _Datetime})
_STAND_INS: dict[int, Any] = {id(item.real): item for item in reversed(_FUNCTIONS)}
_STAND_INS |= {id(datetime.datetime): _Datetime, id(datetime): _DATES}


@contextmanager
def read_in(attributes: Attributes, ahead: float = 0.0) -> Iterator[Readings]:
    """While open, what this thread reads of clocks is noted, which are so many seconds ahead.

    attributes: of the program, whose own names for clocks (`from time import perf_counter`) have stand-ins too.
    """
    thread, readings = get_ident(), Readings(ahead)
    held = [(f"{place.path}.{name}", item) for place in attributes.places for name, item in place.held.items()]
    following = {id(item): _Following(item, path) for path, item in held if _is_iterator(item)}
    put_back = attributes.replaced(_STAND_INS | following)
    with _LOCK:
        for item in () if _OPEN else _FUNCTIONS:
            item.put_in()
        _OPEN[thread] = readings
    try:
        yield readings
    finally:
        with _LOCK:
            _OPEN.pop(thread, None)
            for item in () if _OPEN else _FUNCTIONS:
                item.take_out()
        put_back()


def warn_of_files(readings: Readings) -> None:
    """Tell of the files that a step has read, or asked for: nobody looks at them again."""
    if readings.files:
        told = ", ".join([*readings.files.values()][:MOST])
        warnings.warn(
            f"the step {told}: a plan has what was there when it was planned, in each step; read files outside "
            "of the step, and keep what the step needs in an attribute of the model, or give it with the batch",
            stacklevel=2,
        )


def check_seeds(readings: Readings) -> None:
    """Raises CaptureError if a step that draws random numbers has seeded PyTorch's generator before."""
    if seeds := [text for text in readings.told if text.startswith("torch.manual_seed")]:
        raise CaptureError(
            f"the step calls {seeds[0]}, and so has the same random numbers in each step, where a plan draws others: "
            "seed outside of the step, and keep numbers that stay the same in a buffer of the model (register_buffer)"
        )


def check_later(readings: Readings, differs: Callable[[], bool]) -> None:
    """Raises CaptureError if the step computes something else, or cannot be captured, while clocks are ahead.

    readings: of the first capture. differs: captures it anew; is it another?
    """
    detail = ""
    try:
        if not differs():
            return
    except Exception as error:
        detail = f" ({next(iter(str(error).splitlines()), type(error).__name__)})"
    places = [*dict.fromkeys(readings.told)]
    told = ", ".join(places[:MOST]) + (f" and {len(places) - MOST} more" if len(places) > MOST else "")
    raise CaptureError(
        f"the step reads {told}, and does something else at another time{detail}; a plan repeats one step, with the "
        "numbers of its capture: give what depends on the time, on chance or on what comes next with the batch, as a "
        "tensor (torch.rand and its like draw anew in each step); what only measures or prints the time may stay"
    )
