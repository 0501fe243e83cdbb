"""What a plan of a training step has as constants, beside tensors: what must not change while it is used.

Modules and their attributes (`training`, a dropout's `p`), which parameters there are and which are trained, and the
optimizer's groups but for their learning rates, which enter each step.
"""

from __future__ import annotations

from typing import Any

import torch

from girih.capture.torch.training import TrainingStep, plain_number

PLAIN = frozenset((bool, int, float, complex, str, type(None)))
RATES = ("params", "lr")  # of a group: what each step takes as it is
PARTS, PARAMETER, TRAINED = "the parts", "the parameter", "requires_grad"

Settings = dict[tuple[str, str], Any]
"""By what it is, and of what, such as ("weight_decay", "the optimizer's group 0")."""


def settings(step: TrainingStep) -> Settings:
    """All that a plan has as constants. (It is asked for before each step of a loop.)"""
    found: Settings = {}
    roots = [("the model", step.model)] + [("the loss", step.loss)] * isinstance(step.loss, torch.nn.Module)
    for root, whole in roots:
        for path, module in whole.named_modules():
            where = f"{root}'s part {path!r}" if path else root
            for key, value in module.__dict__.items():
                if type(value) in PLAIN:
                    found[key, where] = value
            found[PARTS, where] = [*map(id, module._modules.values())]
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    name = f"{path}.{key}" if path else key
                    found[PARAMETER, name] = id(parameter), parameter.shape, len(parameter._backward_hooks or ())
                    found[TRAINED, name] = parameter.requires_grad
    found.update(settings_of_groups(step))
    return found


def settings_of_groups(step: TrainingStep) -> Settings:
    """Those of `settings` that are the optimizer's."""
    found: Settings = {}
    for number, group in enumerate(step.optimizer.param_groups if step.optimizer is not None else ()):
        where = f"the optimizer's group {number}"
        keys = [key for key in step.optimizer.defaults if key in group and key not in RATES]
        found |= {(key, where): plain_number(group[key]) for key in keys}
        found["the parameters", where] = [*map(id, group["params"])]
    return found


def differences(before: Settings, after: Settings) -> list[str]:
    """In words: what was one thing and is another."""
    told = []
    for key in dict.fromkeys((*before, *after)):
        one, two = before.get(key), after.get(key)
        if one != two:
            name = " ".join(key) if key[0] == PARAMETER else " of ".join(key)
            same = key in before and key in after and not key[0].startswith("the ")
            told.append(f"{name} was {one!r} and is {two!r}" if same else f"{name} changed")
    return told
