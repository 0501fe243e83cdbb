"""What a loop gives a step: tensors in any nesting of containers.

PyTorch's pytrees know dictionaries, lists, tuples, named tuples, and what a library has registered, such as the
`ModelOutput` of `transformers`. Loaders and processors give more: a `UserDict` (the `BatchEncoding` and `BatchFeature`
of `transformers`), other mappings, data classes. These are opened here too, and closed again around other leaves, so
that a program gets its batch in the containers in which it was given.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

from girih.capture.errors import CaptureError

_TENSORS = ("Tensor", "Parameter", "FakeTensor", "ndarray")
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def leaves_of(batch: Any) -> list[tuple[str, Any]]:
    """(path, item) of all in a nested batch: `0`, `1/input_ids`."""
    return list(_leaves((), batch))


def with_leaves(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting around other leaves; `change` is called in the order of `leaves_of`."""

    def changed(item: Any) -> Any:
        parts = _parts(item)
        if parts is None:
            return change(item)
        return _closed(item, {key: with_leaves(part, change) for key, part in parts.items()})

    return tree_map(changed, batch)


def named(key: Any) -> str:
    """A step of a pytree's path, as it stands in a path of ours."""
    for kind in ("key", "idx", "name"):
        if hasattr(key, kind):
            return str(getattr(key, kind))
    return str(keystr((key,)))


def _leaves(before: tuple[str, ...], batch: Any) -> Iterator[tuple[str, Any]]:
    for keys, item in tree_flatten_with_path(batch)[0]:
        path = (*before, *map(named, keys))
        parts = _parts(item)
        if parts is None:
            yield "/".join(path), item
        else:
            for key, part in parts.items():
                yield from _leaves((*path, str(key)), part)


def _parts(item: Any) -> Mapping[Any, Any] | None:
    """By name what is in a container that PyTorch takes for a leaf; None for a leaf."""
    if isinstance(item, Mapping):
        return item
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    return None


def _closed(item: Any, parts: dict[Any, Any]) -> Any:
    """A container like `item` with other parts."""
    if isinstance(item, MappingProxyType):
        return MappingProxyType(parts)
    try:
        new = copy.copy(item)
        if isinstance(item, UserDict):
            new.data = parts
        elif isinstance(item, Mapping):
            for key, part in parts.items():
                new[key] = part
        else:
            for key, part in parts.items():
                object.__setattr__(new, key, part)  # a data class may be frozen
    except (TypeError, AttributeError) as error:
        raise CaptureError(
            f"the batch has a {type(item).__name__}, in which no other tensors can be put ({error}): give a dictionary"
        ) from error
    return new


def check_leaf(path: str, leaf: Any) -> None:
    """
    Raises:
        CaptureError: what is no tensor would be a constant of the program, and has tensors in it.
    """
    if type(leaf).__name__ not in _TENSORS and _hides(leaf, _TENSORS):
        raise CaptureError(
            f"the batch has a {type(leaf).__name__} at {path!r}, whose tensors would be constants of the program: give "
            "them in a dictionary, a tuple or a data class"
        )


def hides_fakes(item: Any) -> bool:
    """Is there a tensor of the program that is captured in what PyTorch's pytrees do not open?"""
    return _hides(item, ("FakeTensor",))


def _hides(item: Any, kinds: tuple[str, ...], depth: int = 6) -> bool:
    """Is there something of these kinds in an object, its attributes and theirs?"""
    if type(item).__name__ in kinds:
        return True
    held = list(item.values()) if isinstance(item, Mapping) else list(item) if isinstance(item, (list, tuple)) else []
    if hasattr(item, "__dict__") and not isinstance(item, type):
        held += vars(item).values()
    return depth > 0 and any(_hides(part, kinds, depth - 1) for part in held)


class NotGiven:
    """In the place of a result with tensors that PyTorch's pytrees do not open, such as the cache of a language model
    that nobody may want: who uses it is told."""

    def __init__(self, item: Any) -> None:
        self._kind = type(item).__name__

    def refuse(self, *_: Any) -> NoReturn:
        raise CaptureError(
            f"a {self._kind} is returned, whose tensors are not given back: return them in a dictionary or a tuple, "
            "have PyTorch open it (torch.export.register_dataclass), or leave it out (as by use_cache=False)"
        )

    def __repr__(self) -> str:
        return f"<a {self._kind}, whose tensors are not given back>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    __len__ = __iter__ = __getitem__ = __bool__ = refuse
