"""What a plan of a training step has as constants, beside tensors: what must not change while it is used.

Modules and their attributes (`training`, a dropout's `p`), which parameters there are and which are trained, and the
optimizer's groups but for their learning rates, which enter each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from girih.capture.torch.training import TrainingStep, plain_number

PLAIN = (bool, int, float, complex, str, type(None))
RATES = ("params", "lr")  # of a group: what each step takes as it is


def settings(step: TrainingStep) -> dict[str, Any]:
    """What a plan has as constants, by a name that a reader understands."""
    found: dict[str, Any] = {}
    parts = [(f"the module {path!r}" if path else "the model", path, part) for path, part in step.model.named_modules()]
    if isinstance(step.loss, torch.nn.Module):
        parts += [
            (f"the loss's module {path!r}" if path else "the loss", "", part)
            for path, part in step.loss.named_modules()
        ]
    for where, path, module in parts:
        kept = module.__dict__
        found |= {f"{key} of {where}": value for key, value in kept.items() if type(value) in PLAIN}
        found[f"the parts of {where}"] = tuple(map(id, module._modules.values()))
        for key, parameter in module._parameters.items():
            if parameter is not None:
                name = f"{path}.{key}" if path else key
                hooks = len(parameter._backward_hooks or ())
                found[f"requires_grad of {name!r}"] = parameter.requires_grad
                found[f"the parameter {name!r}"] = id(parameter), tuple(parameter.shape), hooks
    return found | settings_of_groups(step)


def settings_of_groups(step: TrainingStep) -> dict[str, Any]:
    """Those of `settings` that are the optimizer's."""
    if step.optimizer is None:
        return {}
    found: dict[str, Any] = {}
    defaults = step.optimizer.defaults
    for number, group in enumerate(step.optimizer.param_groups):
        where = f"the optimizer's group {number}"
        keys = [key for key in defaults if key in group and key not in RATES]
        found |= {f"{key} of {where}": plain_number(group[key]) for key in keys}
        found[f"the parameters of {where}"] = tuple(map(id, group["params"]))
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """In words: what was one thing and is another."""
    told = []
    for name in dict.fromkeys((*before, *after)):
        one, two = before.get(name), after.get(name)
        if one != two:
            plain = isinstance(one, (*PLAIN[:-1], tuple)) and not name.startswith("the ")
            told.append(f"{name} was {one!r} and is {two!r}" if plain else f"{name} changed")
    return told
