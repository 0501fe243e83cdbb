"""What a PyTorch loop changes between two steps: the user's model and optimizer beside a run with weights of its own.

PyTorch's rule is that whatever is written into a module, an optimizer or its groups holds from the next step on. A run
works on copies, under a plan in which hyper-parameters and modes are constants. So it must be seen what has changed:
what a plan is made of beside tensors (`girih.capture.torch.settings`), and tensors, which are told by identity, place
and PyTorch's version counters. Cost: about a microsecond for each tensor, some for each module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from girih.capture.torch.training import TrainingStep
from girih.graph import Graph, Node

Marks = dict[tuple[str | int, str], tuple[int, int, int]]
"""A tensor's identity, version and address, by where the tensor is kept."""


def marks(step: TrainingStep) -> Marks:
    """A mark of each tensor that a step reads and replaces, by its module or parameter and key.

    A tensor that is written in place has another version, and one that is replaced another identity or place, so that
    marks of two moments differ if anything was written between them. A loop asks for them before each step."""
    with torch._C.DisableTorchFunctionSubclass():  # to ask for marks is not to read (`Outdated`)
        return {place: (id(tensor), _version(tensor), tensor.data_ptr()) for place, tensor in _kept(step)}


def tensors_of(step: TrainingStep) -> list[torch.Tensor]:
    """Each tensor that a step reads and replaces."""
    return [tensor for _, tensor in _kept(step)]


def _kept(step: TrainingStep) -> Iterator[tuple[tuple[str | int, str], torch.Tensor]]:
    for path, module in step.model.named_modules():
        for places in (module._parameters, module._buffers):
            for key, tensor in places.items():
                if tensor is not None:
                    yield (path, key), tensor
    state = step.optimizer.state
    for parameter, kept in (state.kept if isinstance(state, OutdatedState) else state).items():
        for key, tensor in kept.items():
            if isinstance(tensor, torch.Tensor):
                yield (id(parameter), key), tensor


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def written(before: Marks, after: Marks) -> list[str]:
    """The names of tensors that have other marks."""
    changed = [key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key)]
    names = [
        f"the optimizer's {key}" if isinstance(place, int) else f"{place}.{key}" if place else key
        for place, key in changed
    ]
    return list(dict.fromkeys(names))


def with_numbers(graph: Graph, other: Graph) -> bool:
    """Are two graphs the same but for numbers that are no whole ones, such as a decay?"""
    same = (graph.values, graph.inputs, graph.outputs) == (other.values, other.inputs, other.outputs)
    return same and len(graph.nodes) == len(other.nodes) and all(map(_alike, graph.nodes, other.nodes))


def _alike(one: Node, two: Node) -> bool:
    if one == two:
        return True
    alike = replace(one, arguments=()) == replace(two, arguments=()) and len(one.arguments) == len(two.arguments)
    return alike and all(
        key == name and (item == value or {type(item), type(value)} in ({float}, {float, int}))
        for (key, item), (name, value) in zip(one.arguments, two.arguments, strict=True)
    )


_FORM = "grad", "requires_grad", "is_leaf", "shape", "dtype", "device", "layout", "_version", "_backward_hooks"
_FORM_ONLY: frozenset[Any] = frozenset(
    [getattr(torch.Tensor, name).__get__ for name in _FORM]
    + [torch.Tensor.grad.__set__, torch.Tensor.grad.__delete__]  # type: ignore[attr-defined]
    + [torch.Tensor.numel, torch.Tensor.dim, torch.Tensor.size, torch.Tensor.is_floating_point, torch.Tensor.is_complex]
)
"""Calls that ask what a tensor is, or for its gradient, and not for its numbers: as `optimizer.zero_grad()` does."""


class OutdatedState(defaultdict[Any, Any]):
    """What an optimizer has as its `state` meanwhile: before its first step is given back there is nothing in it."""

    def __init__(self, kept: Any, refresh: Callable[[], None]) -> None:
        super().__init__(dict)
        self.kept, self.refresh = kept, refresh


def _asking(name: str) -> Callable[..., Any]:
    def method(state: OutdatedState, *arguments: Any, **options: Any) -> Any:
        state.refresh()
        return getattr(state.kept, name)(*arguments, **options)

    return method


_ASKED = "__getitem__ __setitem__ __delitem__ __iter__ __len__ __contains__ __eq__ __repr__ __reduce_ex__"
_ASKED += " keys values items get pop popitem clear update setdefault copy"
for _name in _ASKED.split():
    setattr(OutdatedState, _name, _asking(_name))


class Outdated:
    """The user's tensors while a run has newer numbers: whoever reads or writes one of them gets the newest first.

    PyTorch asks the class of each tensor in a call what is to be done (`__torch_function__`). So outdated tensors have
    a class that renews them all, by `refresh`, whereupon each has its own class again; it costs nothing between two
    steps that nobody looks between. Memory that is read around PyTorch, as by an array of NumPy's that shares it, is
    not told of.
    """

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._own: dict[type, type] = {kind: self._class_of(kind) for kind in (torch.Tensor, torch.nn.Parameter)}
        self._marked: list[tuple[torch.Tensor, type]] = []
        self._state: OutdatedState | None = None

    def mark(self, step: TrainingStep) -> None:
        if self._marked:
            return
        self._marked = [(tensor, type(tensor)) for tensor in tensors_of(step) if type(tensor) in self._own]
        for tensor, kind in self._marked:
            tensor.__class__ = self._own[kind]
        step.optimizer.state = self._state = OutdatedState(step.optimizer.state, self._refresh)

    def unmark(self, step: TrainingStep) -> None:
        marked, self._marked = self._marked, []
        for tensor, kind in marked:
            tensor.__class__ = kind
        state, self._state = self._state, None
        if state is not None and step.optimizer.state is state:
            step.optimizer.state = state.kept

    def taken(self, step: TrainingStep) -> Any:
        """The state that the user has given the optimizer instead of what it had, which it has again; or None."""
        new, state = step.optimizer.state, self._state
        if state is None or new is state:
            return None
        step.optimizer.state = state
        return new

    def _class_of(self, kind: type) -> type:
        def called(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function not in _FORM_ONLY:
                self._refresh()
            with torch._C.DisableTorchFunctionSubclass():  # of what a refusal has left outdated, nothing is made
                return function(*args, **(kwargs or {}))

        def copied(tensor: Any, known: Any) -> Any:
            """A copy, or a pickle, is of the tensor's own class."""
            self._refresh()
            return kind.__deepcopy__(tensor, known)  # type: ignore[attr-defined]

        def pickled(tensor: Any, protocol: Any) -> Any:
            self._refresh()
            return kind.__reduce_ex__(tensor, protocol)  # type: ignore[call-arg]

        methods = {"__torch_function__": classmethod(called), "__deepcopy__": copied, "__reduce_ex__": pickled}
        return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})


@dataclass(eq=False)
class BeforeReading:
    """Called by PyTorch before the model, or its state, is read: so that it has the weights of now. So it has before it
    is copied or pickled with its hooks. (Who reads a tensor of it by itself is told of by `Outdated`.)

    refresh: does that.
    """

    only_reads = True  # so that it is none of the hooks that a plan has as constants
    refresh: Callable[[], None] | None = None

    def __call__(self, *_: Any) -> None:
        if self.refresh is not None:
            self.refresh()

    def __deepcopy__(self, _: Any) -> BeforeReading:
        self()
        return BeforeReading()

    def __reduce__(self) -> tuple[type[BeforeReading], tuple[()]]:
        self()
        return BeforeReading, ()

    def install(self, step: TrainingStep) -> list[Any]:
        """Have PyTorch call it; what removes it again."""
        handles = []
        for module in step.model.modules():
            handles += [
                module.register_forward_pre_hook(self, prepend=True),
                module.register_state_dict_pre_hook(self),
                module.register_load_state_dict_pre_hook(self),
            ]
        optimizer = step.optimizer
        return [
            *handles,
            optimizer.register_state_dict_pre_hook(self),
            optimizer.register_load_state_dict_pre_hook(self),
            optimizer.register_step_pre_hook(self),
        ]
