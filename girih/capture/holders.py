"""Where Python keeps what a program has beside tensors: attributes, slots, variables of functions, arrays, generators.

A holder reads what lies there now, by name, and writes it back as it was read. `girih.capture.torch.attributes` finds
the holders of a program, and compares what they read before a step and behind it.
"""

from __future__ import annotations

import dis
import os
import random
import sys
from array import array
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from types import CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np
import torch

from girih.capture.source import is_users

_TORCH = frozenset(torch.nn.Module().__dict__) - {"training"}
"""Attributes by which PyTorch keeps parameters, buffers, parts and hooks."""
ARRAYS = (np.ndarray, array, bytearray)
NOTHING = object()
"""In the place of a variable that has no value."""
MOST = 10_000
"""A container of more items is data, and not looked into."""
WRITTEN = 1_000_000
"""Whether a step writes into an array of NumPy's of more numbers is not asked."""
SAMPLED = 100
"""Of an array of NumPy's of more than MOST, as many numbers are compared between two steps."""
SHOWN = 8
"""Of an array of more numbers only a mark is told."""


class OfObject:
    """Attributes of a module or of another object."""

    def __init__(self, owner: Any) -> None:
        self.own = vars(owner)
        self.hidden = _TORCH if isinstance(owner, torch.nn.Module) else frozenset()

    def read(self) -> dict[str, Any]:
        return {key: value for key, value in self.own.items() if key not in self.hidden}

    def write(self, held: dict[str, Any]) -> None:
        now = self.read()
        for key in now.keys() - held.keys():
            del self.own[key]
        self.own.update((key, value) for key, value in held.items() if key not in now or now[key] is not value)


class OfSlots:
    """Attributes of an object that lie in slots."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self.owner, self.names = owner, names

    def read(self) -> dict[str, Any]:
        return {name: getattr(self.owner, name) for name in self.names if hasattr(self.owner, name)}

    def same(self, held: dict[str, Any]) -> bool:
        now = self.read()
        return now.keys() == held.keys() and all(now[name] is held[name] for name in now)

    def write(self, held: dict[str, Any]) -> None:
        now = self.read()
        for name in now.keys() - held.keys():
            object.__delattr__(self.owner, name)
        for name, value in held.items():
            if name not in now or now[name] is not value:
                object.__setattr__(self.owner, name, value)


def slots_of(kind: type) -> tuple[str, ...]:
    """Names of attributes in slots, of a class and of those that it inherits from, as far as they are the user's."""
    kinds = [item for item in kind.__mro__ if is_users(item.__module__)]
    return tuple(name for item in kinds for name, part in vars(item).items() if isinstance(part, MemberDescriptorType))


class OfArray:
    """The numbers of an array of NumPy's or Python's. sampled: where there are many, a few of them, quickly."""

    def __init__(self, owner: Any, sampled: bool = False) -> None:
        self.owner = owner
        self.every = owner.size // SAMPLED if sampled and isinstance(owner, np.ndarray) and owner.size > MOST else 1
        self.bytes = self._bytes()

    def _bytes(self) -> bytes:
        owner = self.owner if self.every == 1 else self.owner.flat[:: self.every]
        return bytes(owner) if isinstance(owner, bytearray) else owner.tobytes()

    def read(self) -> dict[str, Any]:
        numbers = np.asarray(self.owner)
        text = str(numbers.tolist()) if numbers.size <= SHOWN else f"numbers {hash(self._bytes()) & 0xFFFFFFFF:x}"
        return {"numbers": text}

    def same(self, _: dict[str, Any]) -> bool:
        return self._bytes() == self.bytes

    def write(self, held: dict[str, Any]) -> None:
        if self.same(held):
            return
        if isinstance(self.owner, np.ndarray):
            self.owner[...] = np.frombuffer(self.bytes, self.owner.dtype).reshape(self.owner.shape)
        else:
            self.owner[:] = array(self.owner.typecode, self.bytes) if isinstance(self.owner, array) else self.bytes


def is_looked_into(owner: Any, between: bool) -> bool:
    if not isinstance(owner, np.ndarray):
        return len(owner) <= MOST
    return (between or owner.size <= WRITTEN) and not owner.dtype.hasobject


class OfContext:
    """What a ContextVar has in this thread."""

    def __init__(self, owner: ContextVar[Any]) -> None:
        self.owner = owner

    def read(self) -> dict[str, Any]:
        try:
            return {"value": self.owner.get()}
        except LookupError:
            return {}

    def same(self, held: dict[str, Any]) -> bool:
        return self.read().get("value", NOTHING) is held.get("value", NOTHING)

    def write(self, held: dict[str, Any]) -> None:
        if held and not self.same(held):
            self.owner.set(held["value"])


class OfEnvironment:
    """Variables of the environment, for functions that read some."""

    def read(self) -> dict[str, Any]:
        return dict(os.environ)

    def same(self, held: dict[str, Any]) -> bool:
        return self.read() == held

    def write(self, held: dict[str, Any]) -> None:
        for name in os.environ.keys() - held.keys():
            del os.environ[name]
        os.environ.update(held.items() - self.read().items())


class OfClass:
    """What is written in a class: its methods, and what all its objects share."""

    def __init__(self, owner: type) -> None:
        self.owner, self.own = owner, vars(owner)

    def read(self) -> dict[str, Any]:
        return {key: item for key, item in self.own.items() if key[:2] != "__" or isinstance(item, FunctionType)}

    def write(self, held: dict[str, Any]) -> None:
        now = self.read()
        for key in now.keys() - held.keys():
            delattr(self.owner, key)
        for key, value in held.items():
            if key not in now or now[key] is not value:
                setattr(self.owner, key, value)


class OfFunction:
    """Variables around a function that it has by name: of the functions that it is in, of its file, and of other files
    of the user's. And what its arguments are by default, as `seen=` and its like."""

    def __init__(self, function: FunctionType) -> None:
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.function, own = function, function.__globals__
        names, parts = names_in(function.__code__)
        self.places = {name: (own, name) for name in names if name in own}
        for name in [*self.places]:
            if isinstance(file := own[name], ModuleType) and is_users(file.__name__):
                self.places |= {f"{name}.{part}": (vars(file), part) for part in parts if part in vars(file)}

    def read(self) -> dict[str, Any]:
        held = {name: own[key] for name, (own, key) in self.places.items() if key in own}
        cells = {name: content_of(cell) for name, cell in self.cells.items()}
        defaults = {f"{name}=": value for name, value in self._defaults().items()}
        return held | defaults | {name: value for name, value in cells.items() if value is not NOTHING}

    def _defaults(self) -> dict[str, Any]:
        by_place, code = self.function.__defaults__ or (), self.function.__code__
        first = code.co_argcount - len(by_place)
        by_name = self.function.__kwdefaults__ or {}
        return dict(zip(code.co_varnames[first : code.co_argcount], by_place, strict=True)) | by_name

    def _write_default(self, name: str, value: Any) -> None:
        if name in (by_name := self.function.__kwdefaults__ or {}):
            by_name[name] = value
        else:
            by_place = [value if key == name else old for key, old in self._defaults().items() if key not in by_name]
            self.function.__defaults__ = tuple(by_place)

    def write(self, held: dict[str, Any]) -> None:
        now = self.read()
        for name, value in held.items():
            if name in now and now[name] is value:
                continue
            if name.endswith("="):
                self._write_default(name[:-1], value)
            elif name in self.cells:
                self.cells[name].cell_contents = value
            else:
                own, key = self.places[name]
                own[key] = value


@cache
def names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The global names that a function reads, those in it too, and names of attributes."""
    names, parts = set(), set(code.co_names)
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            known, others = names_in(inner)
            names, parts = names | known, parts | others
    return frozenset(names), frozenset(parts)


def content_of(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return NOTHING


GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
OF_ALL: tuple[tuple[str, Any], ...] = ("random", vars(random)["_inst"]), ("numpy", vars(np.random.mtrand)["_rand"])
"""Those from which functions of the modules `random` and `np.random` draw."""


class OfGenerator:
    """A generator of Python's or NumPy's: what a step draws from it is a number of the plan. (PyTorch's draws are not:
    they are operators of the graph.)"""

    EXTREME = 1 / 64

    def __init__(self, generator: Any, name: str = "state") -> None:
        self.generator, self.name = generator, name
        self.state = self._state()

    def _state(self) -> Any:
        if isinstance(self.generator, random.Random):
            return self.generator.getstate()
        if isinstance(self.generator, np.random.RandomState):
            return self.generator.get_state(legacy=False)
        return self.generator.bit_generator.state

    def _put(self, state: Any) -> None:
        if isinstance(self.generator, random.Random):
            self.generator.setstate(state)
        elif isinstance(self.generator, np.random.RandomState):
            self.generator.set_state(state)
        else:
            self.generator.bit_generator.state = state

    def read(self) -> dict[str, Any]:
        with np.printoptions(threshold=sys.maxsize):
            return {self.name: f"state {hash(str(self._state())) & 0xFFFFFFFF:x}"}

    def write(self, held: dict[str, Any]) -> None:
        if held != self.read():
            self._put(self.state)

    def draw_next(self, high: bool) -> None:
        """Have it draw one of its lowest, or highest, numbers next."""
        for _ in range(1000):
            state, number = self._state(), self.generator.random()
            if (1 - number if high else number) < self.EXTREME:
                self._put(state)
                return


Unwatched = OfSlots | OfArray | OfContext | OfEnvironment
"""What lies in no dictionary, and is read each time."""
Holder = Unwatched | OfObject | OfClass | OfFunction | OfGenerator
