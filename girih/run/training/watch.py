"""What a PyTorch loop changes between two steps: the user's model and optimizer beside a run with weights of its own.

PyTorch's rule is that whatever is written into a module, an optimizer or its groups holds from the next step on. A run
works on copies, under a plan in which hyper-parameters and modes are constants. So it must be seen what has changed:
what a plan is made of beside tensors (`girih.capture.torch.settings`), and tensors, which are told by identity, place
and PyTorch's version counters. Cost: about a microsecond for each tensor, some for each module.
"""

from __future__ import annotations

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
    for parameter, kept in step.optimizer.state.items():
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


@dataclass(eq=False)
class BeforeReading:
    """Called by PyTorch before the model, or its state, is read: so that it has the weights of now.

    refresh: does that. stale: the step whose weights it has, if others are newer. A model that is copied or pickled
    with its hooks is not read in a way that PyTorch tells of.
    """

    only_reads = True  # so that it is none of the hooks that a plan has as constants
    refresh: Callable[[], None] | None = None
    stale: Callable[[], int | None] | None = None

    def __call__(self, *_: Any) -> None:
        if self.refresh is not None:
            self.refresh()

    def __deepcopy__(self, _: Any) -> BeforeReading:
        self._check()
        return BeforeReading()

    def __reduce__(self) -> tuple[type[BeforeReading], tuple[()]]:
        self._check()
        return BeforeReading, ()

    def _check(self) -> None:
        from girih.plans.plan import PlanError

        step = None if self.stale is None else self.stale()
        if step is not None:
            raise PlanError(
                f"the model that is copied has the weights of step {step}, and the run has newer ones: copy "
                "`train.module`, which writes the weights of now into the model"
            )

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
        ]
