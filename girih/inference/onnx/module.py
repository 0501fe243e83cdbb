"""An ONNX graph as a PyTorch module: a list of calls of the pages' functions, weights as buffers.

A module is what `girih.capture` makes a Graph of, and what PyTorch, `torch.compile` and `girih.optimize` run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from girih.capture.torch.weights import Weights
from girih.inference.onnx.errors import OnnxError

Tensor = Any

MOST_SHAPES = 8
"""For which a file is read and kept at a time."""
WIDENED = (torch.uint16, torch.uint32, torch.uint64)
"""Dtypes for which PyTorch computes nearly nothing: it is done in int64, whose sums, products and bits are the same."""


@dataclass(frozen=True)
class ValueSlot:
    """A value that a step reads, by its number."""

    number: int


@dataclass(frozen=True)
class OnnxStep:
    """One call. arguments: `ValueSlot`s, numbers and lists. results: numbers of the values that it makes, None where
    nobody reads one; dtypes: what each must have. widened: are unsigned operands made int64 first?"""

    title: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    results: tuple[int | None, ...]
    dtypes: tuple[torch.dtype | None, ...]
    widened: bool = True

    def run(self, values: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
        """The results, from the values of its slots."""

        def filled(item: Any) -> Any:
            if not isinstance(item, ValueSlot):
                return item
            tensor = values[item.number]
            return tensor.to(torch.int64) if self.widened and tensor.dtype in WIDENED else tensor

        results = self.function(*map(filled, self.arguments), **{k: filled(v) for k, v in self.keywords.items()})
        every = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(
            item if dtype is None or item is None or item.dtype is dtype else item.to(dtype)
            for item, dtype in zip(every, self.dtypes, strict=False)
        )

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(item.number for item in (*self.arguments, *self.keywords.values()) if isinstance(item, ValueSlot))


class OnnxModule(nn.Module):
    """Takes the model's inputs in their order, or by name, without those that are fixed; returns its outputs: one
    tensor, or a tuple.

    names, results: of inputs and outputs. fixed: inputs on which shapes depend, with the only values that it is for.
    path: the file. open: dimensions of each input, by a name where the file leaves them open. branches: has the file
    branches or loops, which may depend on sizes? example: inputs of the shapes that it is for; sizes are numbers in its
    calls. again: reads the file for other inputs, all by name; without it, or after weights were changed, other shapes
    are refused.
    """

    again: Callable[[Mapping[str, Tensor]], OnnxModule] | None = None

    def __init__(
        self,
        steps: Sequence[OnnxStep],
        constants: Mapping[int, tuple[str, Tensor]],
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        example: Mapping[str, Tensor],
        fixed: Mapping[str, Tensor],
        path: Path | None,
        open: Mapping[str, tuple[int | str, ...]] | None = None,
        branches: bool = False,
    ) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.names, self.results = tuple(inputs), tuple(outputs)
        self.example, self.fixed, self.path = dict(example), dict(fixed), path
        self.open, self.branches = dict(open or {}), branches
        self._inputs, self._outputs = tuple(inputs.values()), tuple(outputs.values())
        self._buffers_of: dict[int, str] = {}
        for number, (name, tensor) in constants.items():
            key = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name) or "weight"
            if key.startswith("val_"):
                key = f"_{key}"  # PyTorch's exporter calls its own values so
            while key in self._buffers or hasattr(self, key):
                key += "_"
            self.register_buffer(key, tensor)
            self._buffers_of[number] = key
        self._shapes = tuple((tensor.shape, tensor.dtype) for tensor in self.example.values())
        self._others: dict[tuple[Any, ...], OnnxModule] = {}
        self._weights = Weights(self)
        self.eval()

    def for_inputs(self, inputs: Sequence[Tensor]) -> OnnxModule:
        """This module, or one for the shapes of these inputs. The last eight that were read are kept.

        Raises:
            OnnxError: the file is not for such inputs, or cannot be read for them.
        """
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if shapes == self._shapes:
            return self
        if shapes not in self._others:
            given = dict(zip(self.names, inputs, strict=True))
            other = self._read(given)
            for name, tensor in list(other._buffers.items()):  # the same weights are held once
                mine = self._buffers.get(name)
                if mine is not None and mine.dtype is tensor.dtype and torch.equal(mine, tensor):
                    other._buffers[name] = mine
            while len(self._others) >= MOST_SHAPES:
                self._others.pop(next(iter(self._others)), None)
            self._others[shapes] = other
        elif self._weights.changed():
            self._read({})
        return self._others[shapes]

    def _read(self, given: Mapping[str, Tensor]) -> OnnxModule:
        then = ", ".join(_shown(name, tensor) for name, tensor in self.example.items())
        now = ", ".join(_shown(name, tensor) for name, tensor in given.items())
        wrong = f"it was read for {then}, and is called with {now or 'another shape'}"
        hint = "girih.read_onnx(file, example) reads it for others"
        if self.again is None or torch.compiler.is_compiling():
            raise OnnxError(f"{wrong}: {hint}")
        if changed := self._weights.changed():
            raise OnnxError(f"{wrong}; its weight {changed!r} was changed since, so that the file has other weights")
        if any(type(tensor) is not torch.Tensor or tensor.device.type == "meta" for tensor in given.values()):
            raise OnnxError(f"{wrong}, which have no numbers: {hint}")
        other = self.again({**self.fixed, **given})
        if other.names != self.names:
            raise OnnxError(f"{wrong}, for which shapes depend on the values of other inputs: {hint}")
        other.again = None
        return other

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        if named:
            if inputs or set(named) != set(self.names):
                raise ValueError(f"expected the inputs {', '.join(self.names)}, all by name or all in this order")
            inputs = tuple(named[name] for name in self.names)
        if len(inputs) != len(self.names):
            told = f"expected {len(self.names)} inputs ({', '.join(self.names)}), got {len(inputs)}"
            if self.fixed:
                told += (
                    f": shapes or branches depend on {', '.join(self.fixed)}, which the file was read for as the "
                    "example had it; leave it out, and read the file again for other numbers"
                )
            raise ValueError(told)
        if wrong := [item for item in inputs if not isinstance(item, torch.Tensor)]:
            raise ValueError(f"expected tensors ({', '.join(self.names)}), got {type(wrong[0]).__name__}")
        if tuple((tensor.shape, tensor.dtype) for tensor in inputs) != self._shapes:
            return self.for_inputs(inputs)(*inputs)
        values = dict(zip(self._inputs, inputs, strict=True))
        for number, key in self._buffers_of.items():
            values[number] = getattr(self, key)
        for step in self.steps:
            for place, result in zip(step.results, step.run(values), strict=False):
                if place is not None:
                    values[place] = result
        results = tuple(values[number] for number in self._outputs)
        return results[0] if len(results) == 1 else results


def _shown(name: str, tensor: Tensor) -> str:
    return f"{name} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
