"""Are a module's tensors still what they were? What was made of them asks that before each use.

Compared are which tensor is in each place, its dtype, shape and strides, where its numbers lie, how often PyTorch was
told to write into it (`_version`), and, since it counts no writes through `.data` or NumPy, `SAMPLES` numbers of each
tensor. Of writes that are not counted, those that miss these numbers are not seen. On processors the numbers are read
where they lie, without a call of PyTorch. Cost: less than a microsecond for each tensor.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from itertools import accumulate
from operator import attrgetter, is_
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards

Tensor = Any
SAMPLES = 4
_VERSION, _ADDRESS = attrgetter("_version"), torch.Tensor.data_ptr


class Weights:
    """Parameters, buffers and plain tensors of a module's parts, as they are now."""

    def __init__(self, module: torch.nn.Module) -> None:
        places: list[tuple[str, dict[str, Any], str, Tensor]] = []
        for path, part in module.named_modules():
            for held in (part._parameters, part._buffers, vars(part)):
                found = [(key, item) for key, item in held.items() if isinstance(item, torch.Tensor)]
                places += [(f"{path}.{key}" if path else key, held, key, tensor) for key, tensor in found]
        self._names = [name for name, _, _, _ in places]
        self._holders, self._keys = [held for _, held, _, _ in places], [key for _, _, key, _ in places]
        self._tensors = [tensor for _, _, _, tensor in places]
        seen = {id(tensor): (name, tensor) for name, _, _, tensor in reversed(places) if has_memory(tensor)}
        self._seen = [*reversed(seen.values())]
        self.lying = [tensor for _, tensor in self._seen]
        self.counted = [tensor for tensor in self.lying if not tensor.is_inference()]
        self.versions, self.addresses = [*map(_VERSION, self.counted)], [*map(_ADDRESS, self.lying)]
        self._forms, self.guard = self._forms_now(), _guard(self.lying)
        sampled = [(name, sample(tensor)) for name, tensor in self._seen if tensor.numel()]
        here = [(name, one) for name, one in sampled if one.device.type == "cpu"]
        self._sampled = [name for name, _ in here]
        self.memory = [(ctypes.c_char * one.nbytes).from_address(one.data_ptr()) for _, one in here]
        self.numbers = b"".join(self.memory)
        elsewhere: dict[Any, dict[str, Tensor]] = defaultdict(dict)
        for name, one in sampled:
            if one.device.type != "cpu":
                elsewhere[one.dtype, one.device][name] = one
        self._samples = [(samples, list(samples.values())) for samples in elsewhere.values()]
        self._before = [torch.cat(numbers) for _, numbers in self._samples]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By name, those that have memory."""
        return dict(self._seen)

    def _forms_now(self) -> list[Any]:
        return [(tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) for tensor in self.lying]

    def changed(self) -> str:
        """The name of a tensor that is another, or was written into; nothing where all are as they were."""
        if not all(map(is_, map(dict.get, self._holders, self._keys), self._tensors)):
            every = zip(self._names, self._holders, self._keys, self._tensors, strict=True)
            return next(name for name, held, key, tensor in every if held.get(key) is not tensor)
        return self.written()

    def written(self) -> str:
        """The name of a tensor that was written into, whether it is still in its place or not."""
        # The numbers are read last: only where a tensor lies as it did is there memory to read.
        if (versions := [*map(_VERSION, self.counted)]) != self.versions:
            return _first([name for name, tensor in self._seen if not tensor.is_inference()], versions, self.versions)
        same = [*map(_ADDRESS, self.lying)] == self.addresses
        if not (same and (self.guard.check(*self.lying) or self._are_formed())):
            return _first([name for name, _ in self._seen], self._forms_now(), self._forms)
        if (numbers := b"".join(self.memory)) != self.numbers:
            place = next(
                place for place, (now, then) in enumerate(zip(numbers, self.numbers, strict=True)) if now != then
            )
            ends = accumulate(map(len, self.memory))
            return str(next(name for name, end in zip(self._sampled, ends, strict=True) if place < end))
        return self._written_elsewhere() if self._samples else ""

    @property
    def is_elsewhere(self) -> bool:
        """Do some of the tensors lie on other devices than the processor?"""
        return bool(self._samples)

    def here(self) -> bool:
        """Are the tensors on other devices as they were?"""
        return not self._written_elsewhere()

    def _are_formed(self) -> bool:
        """Have the tensors the dtypes, shapes and strides that they had? Looked at where the guard, by which PyTorch
        compares all in one call, says no: it also compares modes, and whether gradients are asked for."""
        if self._forms_now() != self._forms:
            return False
        self.guard = _guard(self.lying)
        return True

    def _written_elsewhere(self) -> str:
        for (samples, views), before in zip(self._samples, self._before, strict=True):
            if not _equal(torch.cat(views), before):
                then = before.split([one.numel() for one in views])
                pairs = zip(samples.items(), then, strict=True)
                return next(name for (name, now), old in pairs if not _equal(now.contiguous(), old))
        return ""


def _guard(tensors: list[Tensor]) -> Any:
    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)


def _first(names: list[str], now: list[Any], then: list[Any]) -> str:
    return next(name for name, one, other in zip(names, now, then, strict=True) if one != other)


def has_memory(tensor: Tensor) -> bool:
    """Does it lie in memory, so that one can look at its numbers?"""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not (tensor.is_quantized or tensor.device.type == "meta")


def sample(tensor: Tensor) -> Tensor:
    """A view of a few numbers from the middle of the memory that the tensor lies in; they lie side by side, since
    PyTorch joins such samples the fastest, and in one line of the processor's cache."""
    last = max(-1, sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)))
    count = min(SAMPLES, last + 1)
    first = (last + 1 - count) // 2
    beyond = (tensor.data_ptr() // tensor.element_size() + first) % max(1, count)
    first -= beyond if beyond <= first else 0
    return tensor.detach().as_strided((count,), (1,), tensor.storage_offset() + first)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Are two tensors equal to the bit? So NaN equals NaN."""
    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))
