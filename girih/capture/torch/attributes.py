"""What a program keeps in Python beside parameters and buffers: counters, lists, tensors of the last step.

A plan repeats one step and knows none of it. So capture puts everything back, and asks what the next step would do:
where that finds other attributes than this one did, the program is captured again as it would run then. If it reads a
tensor that this step has made, or computes something else, it is refused: its plan would silently go another way.
"""

from __future__ import annotations

import random
import threading
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, repeat
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np
import torch

from girih.capture.canonicalize.canonical import CONSTANT_ELEMENTS
from girih.capture.counting import FAR, STAND_INS, Later, Tape, at_step, first_new, is_number, math_noted
from girih.capture.errors import CaptureError
from girih.capture.holders import (
    ARRAYS,
    GENERATORS,
    MOST,
    NOTHING,
    OF_ALL,
    Holder,
    OfArray,
    OfClass,
    OfContext,
    OfEnvironment,
    OfFunction,
    OfGenerator,
    OfObject,
    OfSlots,
    Unwatched,
    content_of,
    is_looked_into,
    names_in,
    slots_of,
)
from girih.capture.source import is_of_cython, is_of_libraries, is_users
from girih.capture.torch.record import ForeignTensorError, Recorder, Slot
from girih.capture.torch.weights import has_memory, sample

Tensor = Any
Container = list | dict | set | deque
_OPTIMIZERS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
"""What these hold enters each step, and a step that reads it by itself is refused (`girih.capture.whole_step`)."""
_LEAVES = (bool, int, float, complex, str, bytes, type(None), torch.Tensor, torch.dtype, ModuleType, *_OPTIMIZERS)
_OPEN = (SimpleNamespace, Namespace, threading.local)
"""Python's own objects that hold what a user writes into them."""
_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}


class Attributes:
    """What a program's modules, objects, classes and functions hold, with the lists, dictionaries and sets in them.

    between: it is asked between two steps, not behind one. Then generators are left out, since any program changes
    them; what libraries' objects hold that a module has, such as its configuration, is compared too; and so are tensors
    that are neither parameters nor buffers, since small ones are constants of a graph.
    """

    def __init__(self, roots: Mapping[str, Any], between: bool = False) -> None:
        self.places: list[_Place] = []
        self.containers: dict[int, tuple[Container, list[Any]]] = {}
        self._between = between
        self._tensors: list[tuple[str, Tensor, Any]] = []
        self._seen: set[int] = set()
        self._keep: list[Any] = []  # an id is good only as long as its object lives
        for name, generator in () if between else OF_ALL:
            self._seen.add(id(generator))
            self._enter("generators", OfGenerator(generator, name))
        model: Any = roots.get("model")
        whole = between and isinstance(model, torch.nn.Module)
        self._own = {*map(id, (*model.modules(), *model.parameters(), *model.buffers()))} if whole else set()
        waiting = [*roots.items()]
        while waiting:
            path, value = waiting.pop()
            if not isinstance(value, _LEAVES) and id(value) not in self._seen:
                self._seen.add(id(value))
                self._keep.append(value)
                waiting += self._visit(path, value)
            elif between and type(value) is torch.Tensor and id(value) not in self._seen:
                self._tensors.append((path, value, _numbers(value)))

    def _visit(self, path: str, value: Any) -> list[tuple[str, Any]]:
        """Note what is in it; what to look into next."""
        if isinstance(value, Container):
            if len(value) > MOST:
                return []
            content = _content(value)
            self.containers[id(value)] = value, content
            return [(path, part) for item in content for part in (item if isinstance(value, dict) else (item,))]
        if isinstance(value, tuple):
            return [(path, part) for part in value]
        if isinstance(value, partial):
            return [(path, part) for part in (value.func, *value.args, *value.keywords.values())]
        if isinstance(value, MethodType):
            return [(path, value.__self__), (path, value.__func__)]
        if isinstance(value, BuiltinMethodType) or is_of_cython(type(value).__module__):
            return [(path, getattr(value, "__self__", None))]
        if isinstance(value, torch.nn.Module):
            return self._visit_module(path, value)
        if isinstance(value, FunctionType):
            return self._visit_function(value) if is_users(value.__module__) else []
        if isinstance(value, ARRAYS):
            return self._enter(path, OfArray(value, self._between)) if is_looked_into(value, self._between) else []
        if isinstance(value, ContextVar):
            return self._enter(path, OfContext(value))
        if isinstance(value, (property, staticmethod, classmethod)):
            return [(path, getattr(value, "fget" if isinstance(value, property) else "__func__"))]
        if isinstance(value, type):
            return self._enter(value.__qualname__, OfClass(value)) if is_users(value.__module__) else []
        if isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom):
            return [] if self._between else self._enter(path, OfGenerator(value))
        kind = type(value)
        if kind not in _OPEN and not is_users(kind.__module__):
            return []
        has_attributes = isinstance(getattr(value, "__dict__", None), dict)
        held = self._enter(path, OfObject(value)) if has_attributes else []
        if slots := slots_of(kind):
            held += self._enter(path, OfSlots(value, slots))
        return [*held, *_classes(value)] if has_attributes or slots else []

    def _visit_function(self, function: FunctionType) -> list[tuple[str, Any]]:
        name = function.__qualname__
        if not _ENVIRONMENT.isdisjoint(names_in(function.__code__)[1]) and id(OfEnvironment) not in self._seen:
            self._seen.add(id(OfEnvironment))  # which all functions share
            self._enter("os.environ", OfEnvironment())
        return [*self._enter(name, OfFunction(function)), *self._enter(name, OfObject(function))]

    def _visit_module(self, path: str, module: torch.nn.Module) -> list[tuple[str, Any]]:
        outside = self._between and id(module) not in self._own  # such as a target network: its numbers are constants
        if outside and any(item.numel() > CONSTANT_ELEMENTS for item in (*module.parameters(), *module.buffers())):
            self._own.update(map(id, module.modules()))  # what no plan holds
            outside = False
        for key, tensor in (*module._parameters.items(), *module._buffers.items()) if outside else ():
            if tensor is not None and id(tensor) not in self._own | self._seen:
                self._tensors.append((f"{path}.{key}", tensor, _numbers(tensor)))
        self._seen.update(map(id, (*module._parameters.values(), *module._buffers.values())))
        held = self._enter(path, OfObject(module))
        if is_of_libraries(type(module).__module__):  # a graph network's data, which says itself that they changed
            held = [item for item in held if not _is_data(item[1])]
        for place, item in held if self._between else ():
            if isinstance(getattr(item, "__dict__", None), dict) and _is_installed(type(item)):
                self._seen.add(id(item))
                self._enter(place, OfObject(item))
        hooks = [(f"a hook of {path}", hook) for hook in hooks_of(module)]
        for key, tensor in module._parameters.items():
            known = tensor._backward_hooks if tensor is not None else None
            hooks += [(f"a hook of {path}.{key}", hook) for hook in (known or {}).values()]
        parts = [(f"{path}.{name}", part) for name, part in module.named_children()]
        return [*held, *parts, *hooks, *_classes(module), (path, type(module).forward)]

    def _enter(self, path: str, holder: Holder) -> list[tuple[str, Any]]:
        held = holder.read()
        self.places.append(_Place(path, holder, held))
        return [(f"{path}.{key}", item) for key, item in held.items()]

    def mappings(self) -> list[Mapping[str, Any]]:
        """Where the attributes of objects and classes lie (`__dict__`)."""
        return [place.holder.own for place in self.places if isinstance(place.holder, (OfObject, OfClass))]

    @cached_property
    def _watched(self) -> tuple[Identities, list[Any], list[Any], list[Any], list[tuple[CellType, Any]]]:
        """What `untouched` compares: the items of containers; of functions, where their variables lie, by which names,
        and what these are; their cells."""
        views: list[tuple[Collection[Any], list[Any]]] = []
        for container, content in self.containers.values():
            if isinstance(container, dict):
                views += [(container.keys(), [key for key, _ in content])]
                views += [(container.values(), [item for _, item in content])]
            else:
                views.append((container, content))
        functions = [(place.holder, place.held) for place in self.places if isinstance(place.holder, OfFunction)]
        named = [(*at, held[name]) for holder, held in functions for name, at in holder.places.items()]
        cells = [(cell, held.get(name, NOTHING)) for holder, held in functions for name, cell in holder.cells.items()]
        owners, keys, values = ([item[column] for item in named] for column in range(3))
        return Identities(views), owners, keys, values, cells

    @cached_property
    def are_plain(self) -> bool:
        """Is nothing of it a list, dictionary or set, a tensor, or a function of the user's?"""
        _, owners, _, _, cells = self._watched
        return not (self.containers or owners or cells or self._tensors or self._unwatched)

    @cached_property
    def _unwatched(self) -> list[tuple[Unwatched, dict[str, Any]]]:
        """What lies in no dictionary, and is read each time."""
        return [(place.holder, place.held) for place in self.places if isinstance(place.holder, Unwatched)]

    def untouched(self) -> bool:
        """Is all that lies elsewhere the very same? (Quick; if not, `changed` says whether that means much.)"""
        if self.containers and not self._watched[0].same():
            return False
        if self._unwatched and not all(holder.same(held) for holder, held in self._unwatched):
            return False
        if self.cells and any(content_of(cell) is not value for cell, value in self.cells):
            return False
        return not self.has_variables or self.variables_untouched()

    @property
    def cells(self) -> list[tuple[CellType, Any]]:
        """Variables of functions around the program's functions, and what these are."""
        return self._watched[4]

    @property
    def has_variables(self) -> bool:
        """Are there variables of files that it reads, or tensors that are not the model's?"""
        return bool(self._watched[1] or self._tensors)

    def variables_untouched(self) -> bool:
        """Are these the very same?"""
        _, owners, keys, values, _ = self._watched
        if owners and not all(map(is_, map(dict.get, owners, keys, repeat(NOTHING)), values)):
            return False
        return not (self._tensors and any(_numbers(tensor) != numbers for _, tensor, numbers in self._tensors))

    def changed(self) -> list[tuple[str, Any, Any]]:
        """(path, what it was, what it is) of attributes that are others now, or hold other things."""
        changes = [(path, None, tensor) for path, tensor, numbers in self._tensors if _numbers(tensor) != numbers]
        for place in self.places:
            before, after = place.held, place.holder.read()
            for key in before | after:
                old, new = before.get(key), after.get(key)
                if not self._same(old, new, set()):
                    changes.append((f"{place.path}.{key}", old, new))
        return changes

    def next_steps(self) -> Iterator[None]:
        """What this step has left behind; and, where it has drawn from a generator, other numbers to be drawn first,
        the lowest and the highest, for branches that are rarely taken."""
        yield
        holders = [(place.holder, place.held) for place in self.places if isinstance(place.holder, OfGenerator)]
        drawn = [holder for holder, held in holders if holder.read() != held]
        for high in (False, True) if drawn else ():
            for holder in drawn:
                holder.draw_next(high)
            yield

    def numbers(self) -> list[_Number]:
        """Those that the step that was run has left otherwise."""
        found: list[tuple[Any, dict[Any, Any]]] = [(place.holder, place.held) for place in self.places]
        for item, content in self.containers.values():
            if not isinstance(item, set):
                found.append((item, dict(content) if isinstance(item, dict) else dict(enumerate(content))))
        return [
            _Number(owner, key, old.item() if isinstance(old, np.generic) else old)
            for owner, held in found
            for now in (_items(owner),)
            for key, old in held.items()
            if is_number(old) and is_number(now.get(key)) and now[key] != old
        ]

    def is_followed(self, old: Any, new: Any) -> bool:
        """Is it known what later steps make of this change? (Of a generator: what the next step draws.)"""
        if isinstance(new, dict):
            before = dict(self.containers[id(new)][1]) if id(new) in self.containers else {}
            others = [key for key in new if before.get(key, NOTHING) is not new[key]]
            return before.keys() == new.keys() and all(self.is_followed(before[key], new[key]) for key in others)
        if isinstance(new, (list, deque)):
            return new is old
        return isinstance(new, torch.Tensor) or (is_number(old) and is_number(new)) or str(new).startswith("state ")

    def grown(self) -> list[_Grown]:
        """Lists that the step that was run has made longer."""
        return [
            _Grown(item, item[-1], len(content), len(item) - len(content))
            for item, content in self.containers.values()
            if isinstance(item, (list, deque)) and len(item) > len(content) and not isinstance(item[-1], torch.Tensor)
        ]

    def later_steps(
        self, numbers: Sequence[_Number], grown: Sequence[_Grown], paths: int
    ) -> Generator[tuple[int, Callable[[], bool]]]:
        """Has the program begin as the step that was run, then as each first one that goes another way for the numbers
        (`girih.capture.counting`), where lists are MOST long, and FAR later, for numbers that are no question: as a
        subscript. Gives how many steps later that is, and what says, behind it, whether there is such a step.

        paths: the most ways that are gone.
        """
        tapes: list[Tape] = []
        first = [number.value for number in numbers]
        found: Later | None = (0, first) if numbers else None
        undo = self.replaced(STAND_INS)
        try:
            with math_noted():
                while found and len(tapes) < paths:
                    tape = Tape(len(numbers))
                    _begin(numbers, tape.start(found[1]), grown, found[0])
                    yield found[0], _always
                    left = [number.read() for number in numbers]
                    tape.end(left)
                    if not all(map(is_number, left)) or tape.is_lost(found[1]):
                        return
                    tapes.append(tape)
                    found = first_new(tapes, first)
        finally:
            undo()
        far = [(MOST - grown[0].length) // grown[0].by - before for before in (0, 1)] if grown else []
        for steps in [max(0, steps) for steps in far] + ([FAR] if numbers else []):
            if (found := at_step(tapes, first, steps)) is None:
                return
            _begin(numbers, found[1], grown, steps)
            yield steps, partial(_grown_on, grown, steps + 1)

    def replaced(self, stand_ins: Mapping[int, Any]) -> Callable[[], None]:
        """Have a stand-in wherever an attribute or variable has the thing of this id; what undoes it."""
        done = []
        for place in self.places:
            if others := {name: stand_ins[id(item)] for name, item in place.held.items() if id(item) in stand_ins}:
                place.holder.write(place.holder.read() | others)
                done.append((place, others))

        def undo() -> None:
            for place, others in done:
                now = place.holder.read()
                own = {name: place.held[name] for name, item in others.items() if now.get(name) is item}
                place.holder.write(now | own)

        return undo

    def put_back(self) -> None:
        for place in self.places:
            place.holder.write(place.held)
        for container, content in self.containers.values():
            if _is_same(_content(container), content):
                continue
            container.clear()
            if isinstance(container, (dict, set)):
                container.update(content)
            else:
                container.extend(content)

    def _same(self, old: Any, new: Any, compared: set[int]) -> bool:
        """Another list of the same things is the same: an LSTM makes its list of weights anew when one is set."""
        if type(old) is not type(new):
            return False
        if isinstance(old, tuple):
            return len(old) == len(new) and all(self._same(a, b, compared) for a, b in zip(old, new, strict=True))
        if id(old) not in self.containers:
            return old is new or (isinstance(new, (bool, int, float, str)) and old == new)
        if id(old) in compared:  # it holds itself
            return True
        compared.add(id(old))
        before, after = self.containers[id(old)][1], _content(new)
        if isinstance(new, dict):
            before, after = [part for item in before for part in item], [part for item in after for part in item]
        return len(before) == len(after) and all(
            self._same(one, other, compared) for one, other in zip(before, after, strict=True)
        )


@dataclass(frozen=True)
class _Number:
    """Of an object, a function, a list or a dictionary, a number, and what it was before the step that was run."""

    owner: Any
    key: Any
    value: int | float

    def read(self) -> Any:
        return _items(self.owner).get(self.key)

    def write(self, number: int | float) -> None:
        if isinstance(self.owner, Container):
            self.owner[self.key] = number  # type: ignore[index]
        else:
            self.owner.write(self.owner.read() | {self.key: number})


@dataclass(frozen=True)
class _Grown:
    """A list to which each step appends as many items, such as this one, and how long it was before the step that was
    run."""

    owner: list[Any] | deque[Any]
    item: Any
    length: int
    by: int

    def resize(self, length: int) -> None:
        """Have it as many items, or as many as it may have."""
        while len(self.owner) > length:
            self.owner.pop()
        self.owner.extend([self.item] * (length - len(self.owner)))


def _always() -> bool:
    return True


def _begin(numbers: Sequence[_Number], values: Sequence[int | float], grown: Sequence[_Grown], steps: int) -> None:
    """Have all as it is behind so many steps more."""
    for number, value in zip(numbers, values, strict=True):
        number.write(value)
    for item in grown:
        item.resize(item.length + steps * item.by)


def _grown_on(grown: Sequence[_Grown], steps: int) -> bool:
    return all(
        len(item.owner) == (getattr(item.owner, "maxlen", None) or item.length + steps * item.by) for item in grown
    )


def _items(owner: Any) -> dict[Any, Any]:
    if isinstance(owner, (list, deque)):
        return dict(enumerate(owner))
    return owner if isinstance(owner, dict) else owner.read()


class Identities:
    """What lies in collections that grow and shrink: each with the very things that were in it."""

    def __init__(self, collections: Iterable[tuple[Collection[Any], Sequence[Any]]]) -> None:
        pairs = [*collections]
        self._collections = [collection for collection, _ in pairs]
        self._sizes = [len(items) for _, items in pairs]
        self._items = [item for _, items in pairs for item in items]

    def same(self) -> bool:
        if [*map(len, self._collections)] != self._sizes:
            return False
        return all(map(is_, chain.from_iterable(self._collections), self._items))


def _is_data(item: Any) -> bool:
    """An array, or a dictionary of arrays."""
    return isinstance(item, ARRAYS) or (isinstance(item, Mapping) and any(isinstance(x, ARRAYS) for x in item.values()))


@dataclass(frozen=True)
class _Place:
    path: str
    holder: Holder
    held: dict[str, Any]


@contextmanager
def attributes_of(roots: Mapping[str, Any]) -> Iterator[Attributes]:
    """While open, attributes may change; behind it they are what they were before."""
    attributes = Attributes(roots)
    try:
        yield attributes
    finally:
        attributes.put_back()


def check_next_step(
    changed: Sequence[tuple[str, Any, Any]], recorder: Recorder, entries: Sequence[Slot], differs: Callable[[], bool]
) -> None:
    """Raises CaptureError if the next step does something else for what this one has left behind.

    recorder, entries: of this step. differs: captures the next one; is its graph another? What cannot be captured is
    another step too: this one was.
    """
    try:
        if not differs():
            return
    except ForeignTensorError as error:
        slot = recorder.known(error.tensor)
        holders = [(path, old) for path, old, new in changed if _holds(new, error.tensor)]
        path, old = holders[0] if holders else ("an attribute", None)
        if not isinstance(old, torch.Tensor) and slot is not None and slot not in _computed(recorder, entries):
            return  # a table
        raise CaptureError(
            f"the step leaves a tensor in {path!r} and the next one reads it, which a plan does not carry over: make "
            "it a buffer of the model (register_buffer) that the step writes into, or give it with the batch; a model "
            "that keeps what follows from its weights for later calls is called once before girih.optimize or infer"
        ) from None
    except Exception as error:  # the user's code runs, and may fail in any way: that is told, and kept as the cause
        first = next(iter(str(error).splitlines()), "no message")
        raise CaptureError(
            f"the step changes {_told(changed)}, and the next one cannot be captured then "
            f"({type(error).__name__}: {first}); a plan repeats one step: set it outside of the step, or make it a "
            "buffer of the model (register_buffer)"
        ) from error
    named = [item for item in changed if not isinstance(item[2], torch.Tensor)] or changed  # no tensor was read
    what = _told(named)
    advice = (
        "make it a buffer of the model (register_buffer) that the step computes with, or set it outside of the step"
    )
    if any(str(new).startswith("state ") for _, _, new in named):
        advice = "draw with torch.rand and its like, or outside of the step, and give it with the batch"
    raise CaptureError(
        f"the step changes {what}, and the next one computes otherwise for it; a plan repeats one step: {advice}"
    )


def check_later_steps(
    changed: Sequence[tuple[str, Any, Any]],
    later: Iterator[tuple[int, Callable[[], bool]]],
    differs: Callable[[], bool],
) -> None:
    """Raises CaptureError if a step that comes later does something else. What cannot be captured is no such step:
    whatever else a program keeps is not that of so many steps. later: of `Attributes.later_steps`, for the second."""
    for steps, comes in later:
        try:
            if not (differs() and comes()):
                continue
        except CaptureError:  # as which all that the user's code raises comes; what else fails is ours, and no answer
            return
        if steps == 0:  # a number that is noted is another one for this program
            return
        raise _refused_later(changed, steps + 1)


def check_further_steps(changed: Sequence[tuple[str, Any, Any]], differs: Callable[[], bool], most: int) -> None:
    """The same of those behind the second, for what nobody can follow: strings that count, dictionaries that grow."""
    for steps in range(2, 2 + most):
        try:
            if not differs():
                continue
        except CaptureError:  # as which all that the user's code raises comes; what else fails is ours, and no answer
            return
        raise _refused_later(changed, steps)


def _refused_later(changed: Sequence[tuple[str, Any, Any]], steps: int) -> CaptureError:
    return CaptureError(
        f"the step counts {_told(changed)}, and {steps} steps later it computes otherwise for it; a plan repeats one "
        "step: have the step compute with a buffer of the model (register_buffer) that it counts up, by torch.where, "
        "or do what belongs to some steps only outside of the step"
    )


def _told(changed: Sequence[tuple[str, Any, Any]]) -> str:
    return ", ".join(f"{path!r} (now {_short(old)}, then {_short(new)})" for path, old, new in changed[:3])


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """What PyTorch calls around a module's forward and backward, but for hooks that change nothing (`only_reads`)."""
    kinds = module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks
    return [hook for hooks in kinds if hooks for hook in hooks.values() if not getattr(hook, "only_reads", False)]


def _classes(value: Any) -> list[tuple[str, Any]]:
    return [(kind.__qualname__, kind) for kind in type(value).__mro__]


def _numbers(tensor: Tensor) -> Any:
    """What tells whether a tensor was written into; see `weights`."""
    marks = tensor.shape, tensor.dtype, -1 if tensor.is_inference() else tensor._version
    return (*marks, tensor.data_ptr(), str(sample(tensor).tolist())) if has_memory(tensor) else marks


def _is_installed(kind: type) -> bool:
    """Is it of a package that is installed, and neither Python's, PyTorch's nor ours?"""
    return not is_of_libraries(kind.__module__) and not is_users(kind.__module__)


def _content(container: Container) -> list[Any]:
    return list(container.items()) if isinstance(container, dict) else list(container)


def _is_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, tuple) and isinstance(b, tuple) and _is_same(list(a), list(b)))
        for a, b in zip(one, other, strict=True)
    )


def _holds(value: Any, tensor: Tensor) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, deque)):
        return any(_holds(item, tensor) for item in value)
    return value is tensor


def _computed(recorder: Recorder, entries: Sequence[Slot]) -> set[Slot]:
    """What depends on a parameter, a buffer, the batch or chance: it may be another in the next step."""
    result = set(entries)

    def slots(item: Any) -> Iterator[Slot]:
        if isinstance(item, Slot):
            yield item
        elif isinstance(item, tuple):
            for part in item:
                yield from slots(part)

    for record in recorder.records:
        read = set(slots((*record.args, *record.kwargs.values())))
        if record.note.draw is not None or not read.isdisjoint(result):
            result.update(slots(record.outputs))
            if record.function._schema.is_mutable:
                result |= read
    return result


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    text = repr(value) if isinstance(value, (bool, int, float, str)) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
