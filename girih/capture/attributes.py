"""What a program keeps in its modules beside parameters and buffers: counters, lists, tensors of the last step.

A plan repeats one step and knows none of it. So capture puts everything back, and asks what the next step would do:
where that finds other attributes than this one did, the program is captured again as it would run then. If it reads a
tensor that this step has made, or computes something else, it is refused: its plan would silently go another way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from girih.capture.errors import CaptureError
from girih.capture.record import ForeignTensorError, Recorder, Slot

Tensor = Any
Container = list | dict | set | deque
_TORCH = frozenset(torch.nn.Module().__dict__) - {"training"}
"""Attributes by which PyTorch keeps parameters, buffers, parts and hooks."""


class Attributes:
    """The attributes of a model's modules, and the lists, dictionaries and sets in them, as they were."""

    def __init__(self, model: Any) -> None:
        self.modules = {name: (module, _own(module)) for name, module in model.named_modules()}
        self.containers: dict[int, tuple[Container, list[Any]]] = {}
        for _, attributes in self.modules.values():
            for value in attributes.values():
                self._note(value)

    def _note(self, value: Any) -> None:
        if not isinstance(value, Container) or id(value) in self.containers:
            return
        content = _content(value)
        self.containers[id(value)] = value, content
        for item in content:
            for part in item if isinstance(value, dict) else (item,):
                self._note(part)

    def changed(self) -> list[tuple[str, Any, Any]]:
        """(path, what it was, what it is) of attributes that are others now, or hold other things."""
        found = []
        for name, (module, before) in self.modules.items():
            after = _own(module)
            for key in before | after:
                old, new = before.get(key), after.get(key)
                if not self._same(old, new, set()):
                    found.append((f"{name}.{key}".lstrip("."), old, new))
        return found

    def _same(self, old: Any, new: Any, compared: set[int]) -> bool:
        """Another list of the same things is the same: an LSTM makes its list of weights anew when one is set."""
        if type(old) is not type(new):
            return False
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

    def put_back(self) -> None:
        for module, before in self.modules.values():
            for key in _own(module).keys() - before.keys():
                del module.__dict__[key]
            module.__dict__.update(before)
        for container, content in self.containers.values():
            if _is_same(_content(container), content):
                continue
            container.clear()
            if isinstance(container, (dict, set)):
                container.update(content)
            else:
                container.extend(content)


@contextmanager
def attributes_of(model: Any) -> Iterator[Attributes]:
    """Whatever happens inside, they are what they were behind it."""
    attributes = Attributes(model)
    try:
        yield attributes
    finally:
        attributes.put_back()


def check_next_step(
    changed: Sequence[tuple[str, Any, Any]], recorder: Recorder, entries: Sequence[Slot], differs: Callable[[], bool]
) -> None:
    """Raises CaptureError if the next step does something else for what this one has left in the modules.

    recorder, entries: of this step. differs: captures the next one; is its graph another? What goes wrong there for
    another reason says nothing about this step.
    """
    try:
        if not differs():
            return
    except ForeignTensorError as error:
        made = recorder.known(error.tensor)
        if made is not None and made not in _computed(recorder, entries):
            return  # a table that is made once
        path = next((path for path, _, new in changed if _holds(new, error.tensor)), "an attribute")
        raise CaptureError(
            f"the step leaves a tensor in {path!r} of the model and the next one reads it, which a plan does not carry "
            "over: make it a buffer (register_buffer) that the step writes into, or give it with the batch"
        ) from None
    except Exception:
        return
    named = [item for item in changed if not isinstance(item[2], torch.Tensor)] or changed  # no tensor was read
    what = ", ".join(f"{path!r} (now {_short(old)}, then {_short(new)})" for path, old, new in named[:3])
    raise CaptureError(
        f"the step changes {what} of the model, and the next one computes otherwise for it; a plan repeats one step: "
        "make it a buffer (register_buffer) that the step computes with, or set it outside of the step"
    )


def _own(module: Any) -> dict[str, Any]:
    return {key: value for key, value in module.__dict__.items() if key not in _TORCH}


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
    found = set(entries)

    def slots(item: Any) -> Iterator[Slot]:
        if isinstance(item, Slot):
            yield item
        elif isinstance(item, tuple):
            for part in item:
                yield from slots(part)

    for record in recorder.records:
        read = set(slots((*record.args, *record.kwargs.values())))
        if record.note.draw is not None or not read.isdisjoint(found):
            found.update(slots(record.outputs))
            if record.function._schema.is_mutable:
                found |= read
    return found


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    text = repr(value) if isinstance(value, (bool, int, float, str)) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
