"""The few layers that several models share."""

from __future__ import annotations

import torch
from torch import nn


def dropout_layer(rate: float) -> nn.Module:
    """Dropout, or nothing at rate 0: `nn.Dropout(0.0)` would still put a random draw into the graph."""
    return nn.Dropout(rate) if rate > 0 else nn.Identity()


def initialise_transformer(module: nn.Module) -> None:
    """GPT-2's and BERT's initialisation, for `Module.apply`: normal(0, 0.02), biases zero.

    PyTorch's own N(0, 1) for embeddings makes tied logits of order √width, and the first losses useless.
    """
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class RootMeanSquareNorm(nn.Module):
    """`x · weight / √(mean(x²) + epsilon)` over the last axis: any shape `[…, width]` → the same.

    Zhang and Sennrich, 2019 (arXiv:1910.07467). Written in plain operators, so that it is planned as a
    reduction and two products rather than as one fused call. The statistics are taken in float32.
    """

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        exact = x.float()
        scale = torch.rsqrt(exact.square().mean(-1, keepdim=True) + self.epsilon)
        return (exact * scale).to(x.dtype) * self.weight
