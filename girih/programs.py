"""Programs by name: a model of `girih models`, or `file.py:function` of the user's own."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from girih.plans import flatten_batch


class ProgramError(ValueError):
    """A name that means no program; the message says what names there are."""


@dataclass(frozen=True)
class NamedProgram:
    """A step and an example batch; `name` finds it again (`wresnet-50-2@32` has batches of 32)."""

    name: str
    step: Any
    batch: Any


def program(name: str, batch: int | None, optimizer: str, device: str = "meta") -> NamedProgram:
    """The program that a name means.

    Raises:
        ProgramError: for unknown models, files that are not there, functions that return something else.
    """
    if ".py:" in name:
        return _from_file(name)
    return _from_catalogue(name, batch, optimizer, device)


def _from_catalogue(name: str, batch: int | None, optimizer: str, device: str) -> NamedProgram:
    from girih.capture import TrainingStep
    from girih.models import example

    base, _, size = name.partition("@")
    try:
        made = example(base, batch=batch or (int(size) if size else None), device=device)
    except ValueError as error:
        raise ProgramError(str(error)) from error
    step = TrainingStep(made.module, step=made.step, optimizer=_optimizer(optimizer, made.module))
    return NamedProgram(f"{base}@{made.batch}", step, made.inputs)


def _optimizer(name: str, module: Any) -> Any:
    import torch

    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    }
    return kinds[name](module.parameters())


def _from_file(name: str) -> NamedProgram:
    path, _, function = name.rpartition(":")
    where = Path(path)
    if not where.is_file():
        raise ProgramError(f"there is no file {path}")
    specification = importlib.util.spec_from_file_location(where.stem, where)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[where.stem] = module
    specification.loader.exec_module(module)
    made = getattr(module, function, None)
    if made is None:
        raise ProgramError(f"{path} has no function {function!r}")
    result = made()
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ProgramError(
            f"{name} must return a girih.TrainingStep (or Inference) and a batch, got {type(result).__name__}"
        )
    return NamedProgram(name, *result)


def batch_of(made: NamedProgram) -> dict[str, Any]:
    """The batch's tensors by path."""
    return flatten_batch(made.batch)
