"""The user's own tensors that a step reads and replaces: parameters, buffers, and what torch.optim keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from girih.capture.torch.own_update import Host, OwnUpdate
from girih.capture.torch.training import Inference, TrainingStep
from girih.graph import Graph

Tensor = Any


def state_of(
    step: TrainingStep | Inference, graph: Graph | None = None, code: OwnUpdate | None = None
) -> dict[str, Tensor]:
    """The user's own parameters, buffers and optimizer state by `Input.path`.

    Optimizer state that torch.optim has not made yet is one number that is shown in the state's shape, and takes no
    memory. graph: the captured step; parameters that
    it leaves alone, as torch.optim does those without a gradient, may be at another step than those of their group.
    code: its optimizer's own, where that is traced.

    Raises:
        ValueError: parameters of one group are at different steps.
    """
    state = {**dict(step.model.named_parameters()), **dict(step.model.named_buffers())}
    state = {path: tensor.detach() for path, tensor in state.items()}
    if code is not None and isinstance(step, TrainingStep):
        parameters = dict(step.model.named_parameters())
        for item in code.kept:
            held = step.optimizer.state.get(parameters[item.parameter], {}).get(item.key)
            begin = torch.tensor(item.fill, dtype=item.dtype).expand(item.shape)
            state[item.path] = begin if held is None else held.detach()
    elif isinstance(step, TrainingStep) and step.optimizer is not None:
        rule = step.rule
        assert rule is not None
        parameters = dict(step.model.named_parameters())
        groups = step.groups()
        alone = set() if graph is None else {item.path for item in graph.inputs if item.name not in graph.updates}
        for number, (options, names) in enumerate(groups):
            steps = set()
            kept = [step.optimizer.state.get(parameters[name], {}) for name in names]
            for name, own in zip(names, kept, strict=True):
                begun = any(item is not None for item in own.values())
                if name not in alone:
                    steps.add(float(own.get("step", begun)))  # SGD has buffers but no count: 0, or at least 1
                for key, theirs in rule.state.items():
                    held = own.get(theirs)
                    shape = rule.shape(key, tuple(parameters[name].shape))
                    if shape is None:
                        continue
                    if held is None:
                        fill = options.get("initial_accumulator_value", 0.0) if key == "sum" else 0.0
                        held = parameters[name].detach().new_full((), fill).expand(shape)
                    state[f"{name}/{key}"] = held.detach().to_dense()  # a sparse gradient's momentum is sparse
            if len(steps) > 1:
                raise ValueError(
                    f"parameters of the optimizer's group {number} are at steps {sorted(steps)}: one step count "
                    "serves a group here; put them into groups of their own"
                )
            state[shared_path("step", number, len(groups))] = torch.tensor(steps.pop() if steps else 0.0)
            for key, theirs in rule.shared.items():
                held = next((own[theirs] for own in kept if theirs in own), 0.0)
                state[shared_path(key, number, len(groups))] = torch.tensor(float(held))
    return state


def give_state(
    step: TrainingStep | Inference,
    state: Mapping[str, Tensor],
    steps: int,
    groups: Sequence[tuple[dict[str, Any], tuple[str, ...]]] | None = None,
    code: OwnUpdate | None = None,
    host: Host | None = None,
    copied: Callable[[Tensor], Tensor] = torch.clone,
) -> None:
    """Put state where `state_of` takes it from: into the user's own tensors, and into what the optimizer keeps.

    state: whole tensors by `Input.path`; what it does not name stays as it is, and so does what has another shape now,
    as where a part of the model was replaced. steps: how many were done since
    `state_of`, for optimizers that count them and do not need the count. groups: the optimizer's, by `groups` of the
    step, as they were planned; where none are given, as they are. code, host: its optimizer's own, where that is
    traced, and what that keeps beside. copied: makes the tensors that the optimizer has not yet.
    """
    parameters = dict(step.model.named_parameters())
    for path, tensor in {**parameters, **dict(step.model.named_buffers())}.items():
        if path in state and tensor.shape == state[path].shape:
            tensor.detach().copy_(state[path])
    if not isinstance(step, TrainingStep) or step.optimizer is None:
        return
    if code is not None:
        _give_own(step.optimizer, parameters, state, code, host or {}, copied)
        return
    rule, groups = step.rule, step.groups() if groups is None else groups
    assert rule is not None
    for number, (options, names) in enumerate(groups):
        shared = {theirs: shared_path(key, number, len(groups)) for key, theirs in rule.shared.items()}
        for name in names:
            paths = {theirs: f"{name}/{key}" for key, theirs in rule.state.items()} | shared
            given = {theirs: state[path] for theirs, path in paths.items() if path in state}
            if (
                not given or name not in parameters
            ):  # it has no gradient, the optimizer keeps nothing, or it was taken out
                continue
            if steps == 0 and parameters[name] not in step.optimizer.state:  # a scaler has left out each step
                continue
            own = step.optimizer.state[parameters[name]]
            for theirs, tensor in given.items():
                held = own.get(theirs)
                if isinstance(held, torch.Tensor):
                    held.copy_(tensor)
                elif tensor.dim() and not parameters[name].is_cpu:
                    own[theirs] = tensor.to(parameters[name].device)
                else:  # a count of steps is a number of the host, wherever the parameter lies
                    own[theirs] = copied(tensor)
            if not isinstance(step.optimizer, torch.optim.SGD):  # SGD does not count
                count = state.get(shared_path("step", number, len(groups)))
                own["step"] = torch.tensor(float(own.get("step", 0)) + steps) if count is None else count.clone()
            if isinstance(step.optimizer, torch.optim.ASGD):  # it keeps what follows from its count, too
                own["mu"] = 1.0 / torch.clamp(own["step"] - options["t0"], min=1.0)


def _give_own(
    optimizer: Any,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    own: OwnUpdate,
    host: Host,
    copied: Callable[[Tensor], Tensor],
) -> None:
    for name, items in host.items():
        if name in parameters:
            optimizer.state[parameters[name]].update(
                {key: item.clone() if isinstance(item, torch.Tensor) else item for key, item in items.items()}
            )
    for item in own.kept:
        if item.parameter in parameters and item.path in state:
            kept = optimizer.state[parameters[item.parameter]]
            held, new = kept.get(item.key), state[item.path]
            same = isinstance(held, torch.Tensor) and held.shape == new.shape
            kept[item.key] = held.copy_(new) if same else copied(new)


def shared_path(key: str, group: int, groups: int) -> str:
    """The path of a number that a group of parameters shares. (A model may have a buffer `step` of its own.)"""
    return f"optimizer/{key}" if groups == 1 else f"optimizer/{key}/{group}"
