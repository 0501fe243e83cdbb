"""The way of a call that is like those for which something was made, of a model that nobody has touched.

It asks what `Settings.untouched`, `Weights.written` and `Call.is_quickly` ask, in one function without a call of Python
in it, since for a model of two layers the answer takes but a few microseconds. Whatever is not told so (keywords, a
write, another size, an error) is left to the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch._C._dynamo.guards import dict_version
from torch.nn.modules import module as _inner

from girih.capture.torch.settings import Settings
from girih.capture.torch.weights import Weights
from girih.inference.calls import Call

NO = object()
"""In the place of results: the call is not answered."""
_forward, _training, _version = attrgetter("forward"), attrgetter("training"), attrgetter("_version")
_address = torch.Tensor.data_ptr
_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
_autocast, _modes = torch._C._is_any_autocast_enabled, torch._C._len_torch_function_stack
_default_dtype = torch.get_default_dtype


def quick_way(
    settings: Settings,
    weights: Weights,
    made: Sequence[tuple[Call, Callable[..., Any]]],
    turn: Any,
    hooks: Sequence[Mapping[int, Any]],
) -> Callable[..., Any]:
    """What gives the results of a call, or `NO`. made: what runs each call; turn: a lock that is held meanwhile, or
    None; hooks: of the module that is called, which PyTorch is to call where there are some."""
    ready = [(call.guard, call, run) for call, run in made if call.guard is not None]
    dtype = settings.around_plain
    if not ready or dtype is None or settings.trains:
        return lambda *batch, **named: NO
    empty, dicts, versions = [*settings.empty, *hooks], settings.dicts, settings.versions
    wholes, (kinds, forwards) = settings.wholes, settings.forwards
    counted, lying = weights.counted, weights.lying
    methods, places = [*settings.types, *forwards], [*weights.versions, *weights.addresses]
    memory, numbers = weights.memory, weights.numbers
    rest = [
        ask for ask, needed in ((settings.rest, not settings.is_plain), (weights.here, weights.is_elsewhere)) if needed
    ]

    def answer(*batch: Any, **named: Any) -> Any:
        if grad := _grad_enabled():
            _set_grad_enabled(False)  # what `torch.no_grad()` does, in a tenth of its time
        try:
            if (
                named
                or any(empty)
                or [*map(dict_version, dicts)] != versions
                or [*map(type, wholes), *map(_forward, kinds)] != methods
                or _default_dtype() is not dtype
                or _autocast()
                or _modes()
                or _inner._global_forward_hooks
                or _inner._global_forward_pre_hooks
                or _inner._global_backward_hooks
                or [*map(_version, counted), *map(_address, lying)] != places
                or not weights.guard.check(*lying)
                or b"".join(memory) != numbers
            ):
                return NO
            for ask in rest:
                if not ask():
                    return NO
            for guard, call, run in ready:
                if len(batch) == call.positional and (guard.check(*batch) or call.is_quickly(batch, named)):
                    return run(*batch)
            return NO
        except Exception:  # which the long way meets, too
            return NO
        finally:
            if grad:
                _set_grad_enabled(True)

    if turn is None:
        return answer

    def in_turn(*batch: Any, **named: Any) -> Any:
        with turn:
            return answer(*batch, **named)

    return in_turn


def model_way(model: torch.nn.Module, hooks: Sequence[Mapping[int, Any]]) -> Callable[..., Any]:
    """The same where the model itself answers every call: it is only looked whether it is in training."""
    parts = [*model.modules()]

    def answer(*batch: Any, **named: Any) -> Any:
        if any(map(_training, parts)) or any(hooks):
            return NO
        if not _grad_enabled():
            return model(*batch, **named)
        _set_grad_enabled(False)
        try:
            return model(*batch, **named)
        finally:
            _set_grad_enabled(True)

    return answer
