"""The way of a call that is like those for which something was made, of a model that nobody has touched.

It asks what `Settings.untouched`, `Weights.written` and `Call.is_quickly` ask: by the words of memory in which a change
would show (`words.py`), since a model may have hundreds of parts and tensors, and in one function without a call of
Python in it, since for a model of two layers the answer takes but a microsecond. `way.c` is that function; where it
cannot be compiled, Python answers. Whatever is not told so, such as keywords, a write, another size or an error, is
left to the long way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter, is_
from pathlib import Path
from typing import Any

import torch
from torch._C._dynamo.guards import dict_version
from torch.nn.modules import module as _inner

from girih.capture.torch.settings import Settings
from girih.capture.torch.weights import Weights
from girih.cost.compiled import extension
from girih.inference.calls import Call
from girih.inference.quick.words import (
    Words,
    of_attributes,
    of_dictionaries,
    of_lists,
    of_references,
    of_sets,
    of_tensors,
)


def _dictionary(mapping: Mapping[str, Any]) -> dict[str, Any] | None:
    """The dictionary that a class shows in a view that cannot be written."""
    return next((item for item in gc.get_referents(mapping) if isinstance(item, dict)), None)


NO = object()
"""In the place of results: the call is not answered."""
_forward, _training = attrgetter("forward"), attrgetter("training")
_GRAD = _grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
_autocast, _modes = torch._C._is_any_autocast_enabled, torch._C._len_torch_function_stack
_default_dtype = torch.get_default_dtype


class Watch:
    """What shows that a model was touched: words, and the rest, functions that say whether all is as it was. hooks: of
    the module that is called, where there are to be none."""

    def __init__(self, settings: Settings, weights: Weights, hooks: Sequence[dict[int, Any]] = ()) -> None:
        self._of, self.hooks = (settings.dicts, weights.lying), hooks
        self.rest: list[Callable[[], Any]] = []
        self._fixed: list[Any] = []
        self._counted: list[Any] = []
        self._behind: list[Any] = []
        self._keep: list[Any] = [settings, weights, hooks]
        self._watch_dictionaries(settings)
        self._watch_attributes(settings)
        wholes, types, owns = settings.wholes, settings.types, settings.owns
        classes, attributes = of_references([*zip(wholes, types, strict=True)]), of_attributes(wholes)
        if classes is None or attributes is None:
            self.rest.append(lambda: [*map(type, wholes)] == types and all(map(is_, map(vars, wholes), owns)))
        else:
            self._fixed += [classes, attributes]
        if (tensors := of_tensors(weights.lying)) is None:
            self.rest.append(lambda: not weights.written())
        else:
            self._fixed.append(tensors[0])
            self._behind.append(tensors[1])
            self._keep.append(tensors[2])
            if weights.is_elsewhere:
                self.rest.append(weights.here)
        self.words = Words(self._fixed, self._counted, self._behind, self._keep)

    def _watch_dictionaries(self, settings: Settings) -> None:
        """Those of modules, of classes with their methods, and hooks of all modules and of the one that is called."""
        dicts, empty, versions, (kinds, forwards) = settings.dicts, settings.empty, settings.versions, settings.forwards
        backward = {id(hooks) for part in settings.wholes for hooks in (part._backward_hooks, part._backward_pre_hooks)}
        known = [*dict.fromkeys(whole for kind in kinds for whole in kind.__mro__)]
        classes: list[Any] = [_dictionary(vars(whole)) for whole in known]
        orders = of_references([(kind, kind.__mro__) for kind in kinds])
        others = [_inner._global_forward_hooks, _inner._global_forward_pre_hooks, _inner._global_backward_hooks]
        some = [item for item in empty if id(item) not in backward]  # results do not depend on what is called backward
        every = [*dicts, *some, *classes, *others, *self.hooks]
        counts = None if None in classes or orders is None else of_dictionaries(every)
        if counts is None:
            self.rest += [
                lambda: not any(empty) and [*map(dict_version, dicts)] == versions,
                lambda: [*map(_forward, kinds)] == forwards and not any(others) and not any(self.hooks),
            ]
        else:
            self._counted.append(counts)
            self._fixed.append(orders)
            self._keep += [dicts, empty, classes, others]

    def _watch_attributes(self, settings: Settings) -> None:
        """What attributes, classes and functions hold."""
        attributes = settings.attributes
        containers = [container for container, _ in attributes.containers.values()]
        dicts: list[Any] = [item for item in containers if isinstance(item, dict)]
        dicts += map(_dictionary, settings.classes)
        lists = [item for item in containers if isinstance(item, list)]
        counts = None if None in dicts else of_dictionaries(dicts)
        cells, items = of_references(attributes.cells), of_lists(lists)
        sets = of_sets([item for item in containers if type(item) is set])
        others = any(not isinstance(item, dict | list | set) for item in containers)
        if others or sets is None or counts is None or cells is None or items is None:
            if not settings.is_plain:
                self.rest.append(settings.rest)
            return
        self._counted += [counts, cells, sets]
        self._fixed.append(items[0])
        self._behind.append(items[1])
        self._keep += [containers, dicts, attributes.cells]
        if attributes.has_variables:
            self.rest.append(attributes.variables_untouched)

    def is_of(self, settings: Settings, weights: Weights) -> bool:
        """Are these what is watched? Settings look anew at what was touched and means the same."""
        return self._of[0] is settings.dicts and self._of[1] is weights.lying


def quick_way(
    settings: Settings,
    watch: Watch,
    made: Sequence[tuple[Call, Callable[..., Any]]],
    turn: Any,
) -> Callable[..., Any]:
    """What gives the results of a call, or `NO`. made: what runs each call, and as its `directly` what is quicker where
    tensors have the strides of those that it was made for; turn: a lock that is held meanwhile, or None."""
    dtype, words, rest = settings.around_plain, watch.words, watch.rest
    ready = [(call, call.guard.check, getattr(run, "directly", run), run) for call, run in made]

    def answer(*batch: Any, **named: Any) -> Any:
        if grad := _grad_enabled():
            _set_grad_enabled(False)  # what `torch.no_grad()` does, in a tenth of its time
        try:
            if named or not words.same() or _default_dtype() is not dtype or _autocast() or _modes():
                return NO
            for ask in rest:
                if not ask():
                    return NO
            for call, is_alike, directly, run in ready:
                if len(batch) == call.positional and is_alike(*batch):
                    return directly(*batch)
                if call.is_quickly(batch, named):
                    return run(*batch)
            return NO
        except Exception:  # which the long way meets, too
            return NO
        finally:
            if grad:
                _set_grad_enabled(True)

    if (native := _native()) is not None:
        around = _default_dtype, dtype, _autocast, _modes
        calls = tuple((call.positional, call.form, *_, _slowly(call), run) for call, *_, run in ready)
        items = (words, no_way, *_GRAD, tuple(rest), *around, calls, None)
        answer = native.Way(words.places, words.were, words.first, items)
    if turn is None:
        return answer

    def in_turn(*batch: Any, **named: Any) -> Any:
        with turn:
            return answer(*batch, **named)

    return in_turn


def _slowly(call: Call) -> Callable[..., bool]:
    """Is a call this one, though its tensors have other strides, or ask for gradients?"""
    return lambda *batch: call.is_quickly(batch, {})


@cache
def _native() -> Any:
    """What answers in C; None where it cannot be compiled."""
    return extension(Path(__file__).with_name("way.c"), "inference")


def no_way(*batch: Any, **named: Any) -> Any:
    """Leaves every call to the long way."""
    return NO


def model_way(model: torch.nn.Module, hooks: Sequence[dict[int, Any]]) -> Callable[..., Any]:
    """The same where the model itself answers every call: it is only looked whether it is in training."""
    parts = [*model.modules()]
    counts, attributes = of_dictionaries([*(vars(part) for part in parts), *hooks]), of_attributes(parts)
    known = counts is not None and attributes is not None
    words = Words([attributes], [counts], keep=(parts, hooks)) if known else Words()
    words.doubt()

    def evaluates() -> bool:
        now = words.now()  # first: a write meanwhile is seen later
        if any(map(_training, parts)) or any(hooks):
            return False
        words.known = now or words.known
        return True

    def answer(*batch: Any, **named: Any) -> Any:
        if not (known and words.same()) and not evaluates():
            return NO
        if not _grad_enabled():
            return model(*batch, **named)
        _set_grad_enabled(False)
        try:
            return model(*batch, **named)
        finally:
            _set_grad_enabled(True)

    if not known or (native := _native()) is None:
        return answer
    items = (words, answer, *_GRAD, (), None, None, None, None, None, model)
    return native.Way(words.places, words.were, words.first, items)  # type: ignore[no-any-return]
