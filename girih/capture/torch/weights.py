"""Are a module's tensors still what they were? What was made of them asks that before each use.

Four things are compared: which tensor is in each place, where its numbers lie, how often PyTorch was told to write into
it (`_version`), and, since it counts no writes through `.data` or NumPy, `SAMPLES` numbers of each tensor. Of writes
that are not counted, those that miss these numbers are not seen. Cost: about half a microsecond for each tensor.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

Tensor = Any
SAMPLES = 4


class Weights:
    """Parameters, buffers and plain tensors of a module's parts, as they are now."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._places, self._seen = [], []
        kinds: dict[Any, dict[str, Tensor]] = defaultdict(dict)
        for path, part in module.named_modules():
            for places in (part._parameters, part._buffers, vars(part)):
                for key, tensor in places.items():
                    if not isinstance(tensor, torch.Tensor):
                        continue
                    name = f"{path}.{key}" if path else key
                    self._places.append((name, places, key, tensor))
                    if has_memory(tensor):
                        if not tensor.is_inference():
                            self._seen.append((name, tensor, tensor._version, tensor.data_ptr()))
                        if tensor.numel():
                            kinds[tensor.dtype, tensor.device][name] = sample(tensor)
        self._samples = [(samples, list(samples.values())) for samples in kinds.values()]
        self._before = [torch.cat(numbers) for _, numbers in self._samples]

    def changed(self) -> str:
        """The name of a tensor that is another, or was written into; nothing where all are as they were."""
        for name, places, key, tensor in self._places:
            if places.get(key) is not tensor:
                return name
        for name, tensor, version, where in self._seen:
            if tensor._version != version or tensor.data_ptr() != where:
                return name
        for (samples, numbers), before in zip(self._samples, self._before, strict=True):
            if not _equal(torch.cat(numbers), before):
                then = before.split([sample.numel() for sample in numbers])
                pairs = zip(samples.items(), then, strict=True)
                return next(name for (name, now), old in pairs if not _equal(now.contiguous(), old))
        return ""


def has_memory(tensor: Tensor) -> bool:
    """Does it lie in memory, so that one can look at its numbers?"""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not (tensor.is_quantized or tensor.device.type == "meta")


def sample(tensor: Tensor) -> Tensor:
    """A view of a few numbers from the middle of the memory that the tensor lies in; they lie side by side, since
    PyTorch joins such samples the fastest."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    count = min(SAMPLES, last + 1)
    return tensor.detach().as_strided((count,), (1,), tensor.storage_offset() + (last + 1 - count) // 2)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Are two tensors equal to the bit? So NaN equals NaN."""
    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))
