"""The multi-layer perceptron: the smallest model in which every partitioning question already shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them: `[batch, sizes[0]]` → `[batch, sizes[-1]]`.

    >>> mlp((512, 512, 10))
    Sequential(
      (0): Linear(in_features=512, out_features=512, bias=True)
      (1): ReLU()
      (2): Linear(in_features=512, out_features=10, bias=True)
    )
    """
    if len(sizes) < 2:
        raise ValueError(f"an MLP needs an input size and an output size, such as (512, 10); got {tuple(sizes)}")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])  # the last layer gives logits
