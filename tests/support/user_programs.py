"""What people write: a forward pass as a function of some layers. The pages `user_*.py` fill `PROGRAMS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4


@dataclass(frozen=True)
class UserProgram:
    """make: the model, in float64; batch: from a seed, the inputs and last the target; loss: of output and target.

    undivided: operators without a description, which every worker computes whole.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Any, ...]]
    loss: Callable[[Any, Any], torch.Tensor] = F.mse_loss
    undivided: frozenset[str] = frozenset()


PROGRAMS: dict[str, UserProgram] = {}


class Forward(nn.Module):
    """`forward(self, *inputs)` with the layers as attributes; a tensor becomes a parameter."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, nn.Parameter(layer) if isinstance(layer, torch.Tensor) else layer)
        self.run = forward

    def forward(self, *inputs: Any) -> Any:
        return self.run(self, *inputs)


def program(
    name: str,
    make: Callable[[], nn.Module],
    batch: Callable[[int], tuple[Any, ...]],
    loss: Callable[[Any, Any], torch.Tensor] = F.mse_loss,
    undivided: str = "",
) -> None:
    assert name not in PROGRAMS
    PROGRAMS[name] = UserProgram(lambda: make().double(), batch, loss, frozenset(undivided.split()))


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(*shape: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def pairs(inputs: tuple[int, ...], target: tuple[int, ...]) -> Callable[[int], tuple[Any, ...]]:
    """Batches of normal numbers: one input and one target of these shapes, before them the batch's size."""
    return lambda seed: (draw(BATCH, *inputs, seed=seed), draw(BATCH, *target, seed=seed + 50))


def words(length: int, high: int, target: tuple[int, ...]) -> Callable[[int], tuple[Any, ...]]:
    """Batches of indices below `high`, and a target of normal numbers."""
    return lambda seed: (whole(BATCH, length, high=high, seed=seed), draw(BATCH, *target, seed=seed + 50))
