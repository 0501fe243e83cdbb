"""What a user may change in a program between two calls of it, and around a call: for PyTorch each holds at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

SHARE = 1.0
"""A constant of this file that the program below reads."""
RULES = SimpleNamespace(offset=0.0)


class Config:
    shift = 0.0

    def __init__(self) -> None:
        self.power = 1.0


def shared(x: torch.Tensor) -> torch.Tensor:
    return x * SHARE


class Program(nn.Module):
    """It reads a number, a mode, a list, a dictionary, an object, a class, a file's constant, a small tensor."""

    limit = 8.0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.25)
        self.register_buffer("gain", torch.ones(8))
        self.tau, self.mode, self.flag = 1.0, "relu", False
        self.scales, self.options, self.config = [1.0, 1.0], {"bias": 0.0}, Config()
        self.plain = torch.tensor(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = shared(self.drop(self.norm(self.first(x)))) * self.gain
        y = getattr(torch, self.mode)(y / self.tau) * self.scales[0] + self.options["bias"]
        if self.flag:
            y = y.flip(-1)
        y = y.clamp(max=self.limit) * self.plain * self.config.power + self.config.shift + RULES.offset
        y = self.head(y)
        return y + torch.zeros(y.shape[-1])


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def doubled(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def other_forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.sin(self.first(x))


def tied(model: Any) -> None:
    model.head.weight = model.first.weight


def attribute(path: str, value: Any) -> Callable[[Any], None]:
    owner, _, key = path.rpartition(".")

    def change(model: Any) -> None:
        setattr(model.get_submodule(owner) if owner else model, key, value)

    return change


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a number": attribute("tau", 2.0),
    "another type": attribute("tau", math.inf),
    "a word": attribute("mode", "tanh"),
    "a flag": attribute("flag", True),
    "an item of a list": lambda model: model.scales.__setitem__(0, 3.0),
    "an item of a dictionary": lambda model: model.options.update(bias=3.0),
    "a number of an object": lambda model: setattr(model.config, "power", 3.0),
    "a small tensor, written": lambda model: model.plain.fill_(3.0),
    "a small tensor, by .data": lambda model: model.plain.data.fill_(3.0),
    "a small tensor, replaced": attribute("plain", torch.tensor(3.0)),
    "a part": lambda model: setattr(model, "head", nn.Identity()),
    "a part, first taken out": lambda model: (delattr(model, "head"), setattr(model, "head", nn.Linear(8, 8))),
    "its forward": lambda model: setattr(model, "forward", MethodType(other_forward, model)),
    "a hook": lambda model: model.first.register_forward_hook(doubled),
    "a hook before": lambda model: model.head.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],)),
    "a parametrization": lambda model: parametrize.register_parametrization(model.first, "weight", Doubled()),
    "tied weights": tied,
    "no bias": attribute("first.bias", None),
    "another parameter": lambda model: setattr(model.head, "weight", nn.Parameter(torch.randn(8, 8))),
    "a smaller head": lambda model: setattr(model, "head", nn.Linear(8, 4)),
    "a parameter, turned": lambda model: setattr(model.first.weight, "data", model.first.weight.data.t()),
    "a buffer, replaced": lambda model: setattr(model, "gain", torch.full((8,), 3.0)),
    "a buffer, of another form": lambda model: setattr(model, "gain", torch.tensor(3.0)),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "double": lambda model: model.double(),
    "a class": lambda model: setattr(model, "__class__", type("Other", (Program,), {"forward": other_forward})),
}
"""Of the model. (What `model.double()` needs of the batch, a test says.)"""


@contextmanager
def changed(owner: Any, key: str, value: Any) -> Iterator[None]:
    before = getattr(owner, key)
    setattr(owner, key, value)
    try:
        yield
    finally:
        setattr(owner, key, before)


@contextmanager
def in_file(value: float) -> Iterator[None]:
    global SHARE
    before, SHARE = SHARE, value
    try:
        yield
    finally:
        SHARE = before


@contextmanager
def told(tell: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    tell(value)
    try:
        yield
    finally:
        tell(before)


@contextmanager
def hooked() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: 2 * output if isinstance(module, nn.Linear) else output
    )
    try:
        yield
    finally:
        handle.remove()


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "another default type": lambda: told(torch.set_default_dtype, torch.float64, torch.float32),
    "a hook of all modules": hooked,
    "a constant of the file": lambda: in_file(3.0),
    "an object of the file": lambda: changed(RULES, "offset", 3.0),
    "a constant of the class": lambda: changed(Program, "limit", 0.25),
    "a constant of another class": lambda: changed(Config, "shift", 3.0),
    "a method": lambda: changed(Program, "forward", other_forward),
    "a function": lambda: changed(nn.Linear, "forward", lambda self, x: x @ self.weight),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "deterministic algorithms": lambda: told(torch.use_deterministic_algorithms, True, False),
    "a lower precision of products": lambda: told(torch.set_float32_matmul_precision, "high", "highest"),
    "TF32": lambda: changed(torch.backends.cudnn, "allow_tf32", False),
    "no oneDNN": lambda: told(torch._C._set_mkldnn_enabled, False, True),
}
"""Around a call, in this thread or in all."""
WITHOUT_EFFECT = {"nothing", "no_grad", "inference_mode", "deterministic algorithms", "TF32", "no oneDNN"}
WITHOUT_EFFECT |= {"a lower precision of products"}
