"""Batches: what a model is trained on, first as a description, then as tensors.

A batch is a dictionary from names to tensors (or tuples of tensors). Its description needs no memory and no
torch device; from it come empty batches (for the "meta" device) and random ones with the right ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

IGNORED = -100  # the class that `cross_entropy` leaves out of its mean


@dataclass(frozen=True)
class TensorDescription:
    """Shape and range of one tensor of a batch.

    With `below` None it holds normal(0, 1) numbers in float32; otherwise integers of `0 … below-1`, int64,
    or, with `floating`, the same in float32. A share `ignored` of the entries, never all, is set to -100.
    """

    shape: tuple[int, ...]
    below: int | None = None
    floating: bool = False
    ignored: float = 0.0

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.float32 if self.below is None or self.floating else torch.int64


Description = TensorDescription | tuple[TensorDescription, ...]
BatchDescription = Mapping[str, Description]
Batch = dict[str, Any]  # of tensors and tuples of tensors


def images(batch: int, channels: int, size: int, classes: int) -> BatchDescription:
    """`images [batch, channels, size, size]` and a class for each."""
    return {
        "images": TensorDescription((batch, channels, size, size)),
        "labels": TensorDescription((batch,), below=classes),
    }


def empty_batch(description: BatchDescription, device: torch.device) -> Batch:
    """Tensors of the right shapes and types with nothing in them; free on "meta" and in fake mode."""
    import torch

    return _batch(description, lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))


def drawn_batch(description: BatchDescription, seed: int, device: torch.device) -> Batch:
    """Random tensors, drawn on the CPU so that a seed gives the same numbers on every device."""
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)

    def draw(tensor: TensorDescription) -> torch.Tensor:
        if tensor.below is None:
            return torch.randn(tensor.shape, generator=generator, device="cpu").to(device)
        drawn = torch.randint(tensor.below, tensor.shape, generator=generator, device="cpu")
        if tensor.ignored > 0:
            left_out = torch.rand(tensor.shape, generator=generator, device="cpu") < tensor.ignored
            left_out.view(-1)[0] = False  # a mean over no entries would be NaN
            drawn = drawn.masked_fill(left_out, IGNORED)
        return drawn.to(device=device, dtype=tensor.dtype)

    return _batch(description, draw)


def _batch(description: BatchDescription, make: Callable[[TensorDescription], torch.Tensor]) -> Batch:
    return {
        name: tuple(map(make, part)) if isinstance(part, tuple) else make(part) for name, part in description.items()
    }
