"""What a plan has as constants, beside tensors: what must not change while it is used.

Where the caller stands (autocast, default types), the program's modules, their attributes, hooks and parameters' forms,
what its functions and classes read, and the optimizer's groups but for their learning rates, which enter each step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter, is_
from typing import Any

import torch
from torch._C._dynamo.guards import dict_version
from torch.nn.modules import module as _inner

from girih.capture.batches import with_leaves
from girih.capture.errors import CaptureError
from girih.capture.torch.attributes import Attributes, Identities, hooks_of
from girih.capture.torch.own_update import OwnUpdate
from girih.capture.torch.state import state_of
from girih.capture.torch.trace import capture
from girih.capture.torch.training import Inference, TrainingStep, ambient_autocast, plain_number
from girih.graph import Graph

OFTEN = 10
"""Captures that have found nothing, behind which the user is told."""
RATES = ("params", "lr")  # of a group: what each step takes as it is
PARTS, HOOKS, PARAMETER, TRAINED = "the parts", "the hooks", "the parameter", "requires_grad"
PLAIN = (bool, int, float, complex, str, type(None), torch.dtype)

Found = dict[tuple[str, str], Any]
"""By what it is, and of what, such as ("weight_decay", "the optimizer's group 0")."""


class Settings:
    """All that a plan of a step has as constants, as it is now; `changed` asks for it again, as before each call.

    Where each thing is the very same, which is the rule, that is seen by comparing identities alone; and where nobody
    has written into a dictionary of attributes, by the version that Python counts for each.
    """

    def __init__(self, step: TrainingStep | Inference) -> None:
        self._step = step
        roots = {name: getattr(step, name, None) for name in ("model", "loss", "step", "call")}
        self.attributes = Attributes(roots, between=True)
        wholes = {name: item for name, item in roots.items() if isinstance(item, torch.nn.Module)}
        self._modules = [
            (root if root != "model" else "", path, module)
            for root, whole in wholes.items()
            for path, module in whole.named_modules()
        ]
        self._before = self._now()
        self._watch()

    def changed(self) -> list[str]:
        """In words: what was one thing and is another."""
        if self.untouched():
            return []
        told = _told(self.attributes.changed()) + differences(self._before, self._now())
        if not told:
            self._watch()
        return told

    def _watch(self) -> None:
        """Note the very things that all of it consists of now."""
        self.wholes = [module for _, _, module in self._modules]
        self.owns = [vars(module) for module in self.wholes]
        mappings = [vars(module)[key] for module in self.wholes for key in _KEPT] + self.attributes.mappings()
        mappings.append(_FUNCTIONS)
        self.empty = [mapping for mapping in mappings if not mapping]
        self.dicts = [mapping for mapping in mappings if mapping and isinstance(mapping, dict)]
        self.versions = [*map(dict_version, self.dicts)]
        self._held = Identities((mapping.values(), [*mapping.values()]) for mapping in self.dicts)
        self.classes = [mapping for mapping in mappings if mapping and not isinstance(mapping, dict)]
        self._of_classes = Identities((mapping.values(), [*mapping.values()]) for mapping in self.classes)
        self.types = [*map(type, self.wholes)]
        kinds: list[Any] = [*dict.fromkeys(self.types)]
        self.forwards = kinds, [kind.forward for kind in kinds]
        self._tensors = [*dict.fromkeys(tensor for module in self.wholes for tensor in _tensors(module))]
        self._form_of = _form_of_trained if isinstance(self._step, TrainingStep) else _form_of
        self._forms = [*map(self._form_of, self._tensors)]
        self._ids = {id(tensor): name for name, tensor in self._step.model.named_parameters()}
        self._around, self._groups = Around(), _settings_of_groups(self._step, self._ids)

    def untouched(self, forms: bool = True) -> bool:
        """Is each thing the very same? (Quick; if not, `changed` says whether that means much.) forms: look at shapes
        and dtypes of tensors, too, which `Weights` does as well."""
        return (
            not any(self.empty)
            and ([*map(dict_version, self.dicts)] == self.versions or self._are_the_same())
            and [*map(type, self.wholes)] == self.types
            and all(map(is_, map(vars, self.wholes), self.owns))
            and [*map(_FORWARD, self.forwards[0])] == self.forwards[1]
            and (not forms or [*map(self._form_of, self._tensors)] == self._forms)
            and (self.is_plain or self.rest())
            and self._around.same()
            and (not self._groups or _settings_of_groups(self._step, self._ids) == self._groups)
        )

    def rest(self) -> bool:
        """Are the user's classes, functions and lists the very same? Settings that are plain (`is_plain`) have none."""
        return (not self.classes or self._of_classes.same()) and self.attributes.untouched()

    @property
    def is_plain(self) -> bool:
        return self.attributes.are_plain and not self.classes

    @property
    def around_plain(self) -> Any:
        """The default type, where nothing else was set around the caller."""
        return self._around.plain

    def _are_the_same(self) -> bool:
        """Holds each dictionary the very things that it held, though it was written into?"""
        versions = [*map(dict_version, self.dicts)]
        if not self._held.same():
            return False
        self.versions[:] = versions
        return True

    @property
    def around(self) -> Found:
        """Where the caller stood when this was noted."""
        return self._around.found

    def _now(self) -> Found:
        found: Found = surroundings()
        found |= {(name, "torch.nn.functional"): item for name, item in _FUNCTIONS.items() if callable(item)}
        trains = isinstance(self._step, TrainingStep)
        names: dict[int, str] = {}
        for root, path, module in self._modules:
            where = ".".join(filter(None, (root, path))) or "the model"
            found[PARTS, where] = type(module), type(module).forward, id(vars(module)), *module._modules.items()
            if hooks := hooks_of(module):
                found[HOOKS, where] = hooks
            for places in (module._parameters, module._buffers):
                for key, tensor in places.items():
                    name = f"{path}.{key}" if path else key
                    if tensor is None:
                        found[PARAMETER, name] = None
                        continue
                    found[PARAMETER, name] = names.setdefault(id(tensor), name), tensor.shape, tensor.dtype
                    if trains and places is module._parameters:
                        found[TRAINED, name] = tensor.requires_grad
                        if tensor._backward_hooks:
                            found[HOOKS, name] = [*tensor._backward_hooks.values()]
        return found | _settings_of_groups(self._step, names)


_HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
_FORWARD = attrgetter("forward")
_FUNCTIONS = vars(torch.nn.functional)
"""They may be replaced by the user's, or by a library that has faster ones."""
_KEPT = "_parameters", "_buffers", "_modules", *_HOOKS


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    return (tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None)


def _form_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype


def _form_of_trained(tensor: torch.Tensor) -> tuple[Any, ...]:
    hooks = tensor._backward_hooks
    return tensor.shape, tensor.dtype, tensor.requires_grad, len(hooks) if hooks else 0


class Source:
    """What a graph was captured of: a step, and the forms of a batch."""

    def __init__(self, step: TrainingStep | Inference, batch: Any, graph: Graph, own: OwnUpdate | None = None) -> None:
        self.step, self.graph, self.own = step, graph, own
        self.batch = with_leaves(batch, lambda leaf: _form(leaf) if isinstance(leaf, torch.Tensor) else leaf)
        self.settings = Settings(step)
        self._captured = 0
        self._was_meta = self._is_meta()

    @property
    def given_up(self) -> bool:
        """Has the user freed the model's tensors, which a run has its own of?"""
        return self._is_meta() and not self._was_meta

    def _is_meta(self) -> bool:
        return any(tensor.is_meta for tensor in self.step.model.parameters())

    def changed(self) -> list[str]:
        """In words: what was one thing and is another, so that another graph would be captured now, or none."""
        if changed := self.settings.changed():
            try:
                if capture(replace(self.step), self.batch).graph == self.graph:
                    self._note(changed)
                    self.settings, changed = Settings(self.step), []
            except CaptureError as error:
                changed = [*changed, f"now it cannot be planned: {error}"]
        return changed

    def _note(self, changed: list[str]) -> None:
        """Warn, once, of changes that mean nothing and have the program captured again each time."""
        self._captured += 1
        if self._captured == OFTEN:
            warnings.warn(
                f"{listed(changed)}: for the {OFTEN}th time the program is captured again to see that this changes "
                "nothing in it, which takes its time: keep what only counts or logs outside of the model and of what "
                "the step reads",
                stacklevel=2,
            )

    def state(self) -> dict[str, Any]:
        """The user's tensors as they are now.

        Raises:
            ValueError: what the graph has as constants was changed, or parameters of one group are at different steps.
        """
        if changed := self.changed():
            raise ValueError(f"{listed(changed)} since the step was planned, with which it is a constant: plan again")
        return state_of(self.step, self.graph, self.own)


def _form(tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor
    form = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return form.requires_grad_(tensor.requires_grad)


def surroundings() -> Found:
    """Where the caller stands: what the same program is another for."""
    return {
        ("autocast", "torch"): ambient_autocast(),
        ("get_default_dtype", "torch"): torch.get_default_dtype(),
        ("get_default_device", "torch"): str(torch.get_default_device()),
        (HOOKS, "all modules"): [hook for known in _hooks_of_all() for hook in known.values()],
    }


def kernel_settings() -> Found:
    """What the bits that PyTorch's kernels make depend on, and a graph does not."""
    mkldnn = torch.backends.mkldnn
    return {
        ("get_num_threads", "torch"): torch.get_num_threads(),
        ("get_float32_matmul_precision", "torch"): torch.get_float32_matmul_precision(),
        ("fp32_precision", "torch.backends.mkldnn.conv"): mkldnn.conv.fp32_precision,  # type: ignore[attr-defined]
        ("enabled", "torch.backends.mkldnn"): torch._C._get_mkldnn_enabled(),
        ("are_deterministic_algorithms_enabled", "torch"): torch.are_deterministic_algorithms_enabled(),
        ("flash_sdp_enabled", "torch.backends.cuda"): torch.backends.cuda.flash_sdp_enabled(),
    }


BY_DEFAULT: Found = {
    ("get_float32_matmul_precision", "torch"): "highest",
    ("fp32_precision", "torch.backends.mkldnn.conv"): "none",
    ("enabled", "torch.backends.mkldnn"): True,
    ("are_deterministic_algorithms_enabled", "torch"): False,
    ("flash_sdp_enabled", "torch.backends.cuda"): True,
}
"""What a process has of `kernel_settings`, but for its threads, where nobody has set anything."""


class Around:
    """Where the caller stands now, and whether that is the same later. Where nothing is set, which is the rule, that
    costs less than a microsecond."""

    def __init__(self) -> None:
        self.found = surroundings()
        self.plain = torch.get_default_dtype() if _nothing_is_set() else None

    def same(self) -> bool:
        return (self.plain is _default_dtype() and _nothing_is_set()) or surroundings() == self.found


_default_dtype = torch.get_default_dtype
_autocast, _modes = torch._C._is_any_autocast_enabled, torch._C._len_torch_function_stack


def _nothing_is_set() -> bool:
    """No autocast, no mode, of which a default device is one, and no hook of all modules."""
    return not (
        _autocast()
        or _modes()
        or _inner._global_forward_pre_hooks
        or _inner._global_forward_hooks
        or _inner._global_backward_hooks
    )


def _hooks_of_all() -> tuple[Mapping[int, Any], ...]:
    """Hooks of all modules."""
    return _inner._global_forward_pre_hooks, _inner._global_forward_hooks, _inner._global_backward_hooks


def _settings_of_groups(step: TrainingStep | Inference, names: dict[int, str]) -> Found:
    """The optimizer's. names: of the model's parameters, by `id`."""
    found: Found = {}
    optimizer: Any = getattr(step, "optimizer", None)
    numbers = optimizer is not None and step.rule is None  # type: ignore[union-attr]  # they enter each step
    for number, group in enumerate(optimizer.param_groups if optimizer is not None else ()):
        where = f"the optimizer's group {number}"
        keys = [key for key in optimizer.defaults if key in group and key not in RATES and not numbers]
        found |= {(key, where): plain_number(group[key]) for key in keys}
        found["the parameters", where] = [names.get(id(parameter), id(parameter)) for parameter in group["params"]]
    return found


def differences(before: Found, after: Found) -> list[str]:
    """In words: what was one thing and is another."""
    told = []
    for key in dict.fromkeys((*before, *after)):
        one, two = before.get(key), after.get(key)
        if one != two:
            name = " ".join(key) if key[0] == PARAMETER else " of ".join(key)
            same = key in before and key in after and not key[0].startswith("the ")
            told.append(f"{name} was {one!r} and is {two!r}" if same else f"{name} changed")
    return told


def listed(names: list[str]) -> str:
    """The first of them, and how many there are more."""
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _told(changes: list[tuple[str, Any, Any]]) -> list[str]:
    return [_told_of(*change) for change in changes]


def _told_of(path: str, old: Any, new: Any) -> str:
    if isinstance(new, torch.Tensor):
        return f"{path} changed, which is no part of the model (register_buffer, or a submodule, makes it one)"
    plain = isinstance(old, PLAIN) and isinstance(new, PLAIN)
    return f"{path} was {old!r} and is {new!r}" if plain else f"{path} changed"
