"""Numbers that a step keeps and counts on: which later step is the first that takes another branch for them?

While the program runs, its numbers are `_Whole` and `_Real`, which note on a tape what is computed of them, their text
too (`_Text`), and how each question that is asked of them (`n % 17 == 0`, `t < 0.1`, `str(n).endswith("9")`) was
answered. Such a tape says, without the program, what the next step leaves, and so on until a question is answered
otherwise: that step is run, and has its own tape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

PATHS = 8
"""Later steps that are run: more ways through the program are not asked for."""
CALLS = 20_000
"""Of PyTorch, in all later steps together: a program that makes many is run fewer times, but at least twice."""
WORK = 300_000
"""Operations on tapes, which take 0.1 seconds; where a step adds one and asks one question it is the 100,000th step."""

FAR = 1_000
"""Steps later, of one that is run whatever the tapes say."""

Number = int | float
_NUMBERS = int, float, np.integer, np.floating


@dataclass(frozen=True)
class _Entry:
    """What is computed. operands: numbers, and places on the tape. answer: of a question, what it was."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    answer: Any = None


@dataclass(frozen=True)
class _At:
    place: int


@dataclass
class Tape:
    """What one step computes of its numbers, which are first on it."""

    count: int
    entries: list[_Entry] = field(default_factory=list)
    left: tuple[Any, ...] = ()

    def start(self, numbers: Sequence[Number]) -> list[Number]:
        """The numbers, as the program is to have them."""
        return [self._noted(number, place) for place, number in enumerate(numbers)]

    def end(self, numbers: Sequence[Number]) -> None:
        """numbers: what the program has left."""
        self.left = tuple(map(self._operand, numbers))

    @property
    def asks(self) -> bool:
        return any(entry.answer is not None for entry in self.entries)

    def is_lost(self, numbers: Sequence[Number]) -> bool:
        """Is one left that is another than before, and not computed on the tape?"""
        return any(type(new) is not _At and new != old for new, old in zip(self.left, numbers, strict=True))

    def apply(self, function: Callable[..., Any], *operands: Any) -> Any:
        if not all(isinstance(item, _NUMBERS) for item in operands):
            return NotImplemented
        return self.note(function, *operands)

    def note(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Compute it, and note that; a number or a text that comes out is noted on, too."""
        result = function(*map(_plain, operands))
        if isinstance(result, np.generic):
            result = result.item()
        if type(result) not in (int, float, bool, str):
            return result
        asks = type(result) is bool
        self.entries.append(_Entry(function, tuple(map(self._operand, operands)), result if asks else None))
        return result if asks else self._noted(result, self.count + len(self.entries) - 1)

    def _noted(self, item: Number | str, place: int) -> Any:
        noted: Any = (_Text if isinstance(item, str) else _Whole if isinstance(item, int) else _Real)(item)
        noted.tape, noted.place = self, place
        return noted

    def _operand(self, item: Any) -> Any:
        return _At(item.place) if isinstance(item, _Noted) and item.tape is self else _plain(item)

    def next(self, numbers: Sequence[Number]) -> list[Number] | None:
        """What a step leaves that begins with these numbers; None if it goes another way."""
        known = [*numbers]
        for entry in self.entries:
            result = entry.function(*(known[item.place] if type(item) is _At else item for item in entry.operands))
            if entry.answer is not None and result != entry.answer:
                return None
            known.append(result)
        return [known[item.place] if type(item) is _At else item for item in self.left]


def paths_of(calls: int) -> int:
    """How many later steps are run of a program that makes so many calls."""
    return min(PATHS, max(2, CALLS // max(1, calls)))


def is_number(item: Any) -> bool:
    return isinstance(item, _NUMBERS) and not isinstance(item, bool)


def _plain(item: Any) -> Any:
    if isinstance(item, _Text):
        return str.__str__(item)
    kind: Any = int if isinstance(item, int) else float
    return kind.__pos__(item) if isinstance(item, _Noted) else item


class _Noted:
    """What has a tape that notes what is computed of it."""

    tape: Tape
    place: int

    def __deepcopy__(self, _: Any) -> Any:
        return self


class _Number(_Noted):
    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other  # type: ignore[operator]

    def __array_ufunc__(self, function: Any, method: str, *items: Any, **named: Any) -> Any:
        if method == "__call__" and not named and all(isinstance(item, _NUMBERS) for item in items):
            return self.tape.apply(function, *items)
        return getattr(function, method)(*map(_plain, items), **named)

    def __format__(self, how: str) -> Any:
        return self.tape.note(format, self, how)


class _Whole(_Number, int):
    pass


class _Real(_Number, float):
    pass


class _Text(_Noted, str):
    """The text of a number, and parts of it. Where Python puts it together with others (`f"step {n}"`, `"%d" % n`,
    `join`) it makes a plain string, of which nothing is known: most are printed, or written into a log."""

    def __str__(self) -> Any:
        return self

    def __format__(self, how: str) -> Any:
        return self.tape.note(format, self, how)

    def __radd__(self, before: Any) -> Any:
        return self.tape.note(operator.add, before, self)

    def __iter__(self) -> Iterator[str]:
        return iter([self[at] for at in range(len(self))])


def _method(function: Callable[..., Any], turned: bool = False) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        return self.tape.apply(function, *((*others, self) if turned else (self, *others)))

    return method


def _text_method(name: str) -> Callable[..., Any]:
    function = getattr(str, name)

    def method(self: Any, *given: Any, **named: Any) -> Any:
        result = self.tape.note(partial(function, **named) if named else function, self, *given)
        if not isinstance(result, (bool, _Noted)) and result is not NotImplemented:  # such as a list of its parts
            self.tape.note(operator.eq, self, _plain(self))
        return result

    return method


def _text_of(function: Callable[[Any], str]) -> Callable[..., Any]:
    return lambda self: self.tape.note(function, self)


def _value(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    """What becomes a plain number, or a key, so that nothing is known of it but that it is another for another one."""

    def method(self: Any) -> Any:
        if kind is hash:
            self.tape.note(operator.eq, self, _plain(self))
        else:
            self.tape.note(operator.eq, self.tape.note(kind, self), kind(_plain(self)))
        return kind(_plain(self))

    return method


def _fill(kind: type) -> None:
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
        if hasattr(kind, f"__{name}__"):
            function = getattr(operator, f"__{name}__")
            setattr(kind, f"__{name}__", _method(function))
            setattr(kind, f"__r{name}__", _method(function, turned=True))
    for name in ("neg", "abs", "eq", "ne", "lt", "le", "gt", "ge"):
        setattr(kind, f"__{name}__", _method(getattr(operator, name)))
    for name, function in (("bool", bool), ("round", round), ("floor", math.floor), ("ceil", math.ceil)):
        setattr(kind, f"__{name}__", _method(function))
    for name, function in (("int", int), ("float", float), ("hash", hash), ("trunc", int)):
        setattr(kind, f"__{name}__", _value(function))
    for name, text in (("str", str), ("repr", repr)):
        setattr(kind, f"__{name}__", _text_of(text))


def _fill_text() -> None:
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "contains", "getitem", "add", "mul", "rmul"):
        setattr(_Text, f"__{name}__", _text_method(f"__{name}__"))
    for name in vars(str):
        if name[0] != "_" and name != "maketrans":
            setattr(_Text, name, _text_method(name))
    for name, function in (("int", int), ("float", float), ("hash", hash), ("len", len)):
        setattr(_Text, f"__{name}__", _value(function))


_fill(_Whole)
_fill(_Real)
_fill_text()
_FUNCTIONS = {name: item for name, item in vars(math).items() if callable(item)}


def _lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(*given: Any, **named: Any) -> Any:
        noted = next((item for item in given if isinstance(item, _Noted)), None)
        called = partial(function, **named) if named else function
        return called(*given) if noted is None else noted.tape.apply(called, *given)

    return lifted


STAND_INS = {id(function): _lifted(function) for function in _FUNCTIONS.values()}
"""By id, what is in the place of functions of Python's `math`, which know of plain numbers alone."""


@contextmanager
def math_noted() -> Iterator[None]:
    """While open, functions of `math` are noted, too."""
    vars(math).update((name, STAND_INS[id(function)]) for name, function in _FUNCTIONS.items())
    try:
        yield
    finally:
        vars(math).update(_FUNCTIONS)


Later = tuple[int, Sequence[Number]]
"""How many steps later it is, and the numbers with which a step begins then."""


def first_new(tapes: Sequence[Tape], numbers: Sequence[Number]) -> Later | None:
    """The first step that goes on none of the tapes; None if there is none within `WORK`, or numbers come back."""
    if not any(tape.asks for tape in tapes):
        return None
    found, is_new = _follow(tapes, numbers, WORK)
    return found if is_new else None


def at_step(tapes: Sequence[Tape], numbers: Sequence[Number], steps: int) -> Later | None:
    """So many steps later; None where the tapes do not lead so far."""
    found, _ = _follow(tapes, numbers, steps) if tapes else ((steps, numbers), False)
    return found if found[0] == steps else None


def _follow(tapes: Sequence[Tape], numbers: Sequence[Number], most: int) -> tuple[Later, bool]:
    """Where the tapes lead, and whether they end there because a step goes on none of them."""
    now, steps, left = [*numbers], 0, WORK
    while steps < most and left > 0:
        left -= sum(len(tape.entries) + 1 for tape in tapes)
        try:
            later = next(filter(None, (tape.next(now) for tape in tapes)), None)
        except (ArithmeticError, ValueError, LookupError):
            return (steps, now), False
        if later is None:
            return (steps, now), True
        if later == now:
            return (most, now), False
        now, steps = later, steps + 1
    return (steps, now), False
