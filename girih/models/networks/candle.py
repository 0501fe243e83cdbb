"""Candle Uno: three wide bottom networks that meet in a fourth.

Jia's thesis (Stanford 2020, chapter 3: FlexFlow), section 3.7.3, after the CANDLE benchmarks' Pilot 1 "Uno": how a
tumour cell responds to a drug. A sample has the cell's RNA sequence (942 numbers) and two descriptions of the drug
(5270 and 2048 numbers). "The bottom MLPs … contain 3 linear layers with an output dimension of 1000 in each layer.
The top MLP … includes 4 linear layers with output dimensions of 1000, 1000, 1000, and 1". ReLU follows every layer
but the last, as in the benchmark; its dropout of 0.1 is left out, and the loss is its squared error.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from girih.models.networks.mlp import mlp

CELL_FEATURES = 942
DRUG_FEATURES = (5270, 2048)


class CandleUno(nn.Module):
    """`cell [batch, cell]` and drug features `[batch, drugs[i]]` each → predicted responses `[batch]`."""

    def __init__(self, cell: int, drugs: Sequence[int], bottom: Sequence[int], top: Sequence[int]) -> None:
        super().__init__()
        self.bottoms = nn.ModuleList(nn.Sequential(mlp((size, *bottom)), nn.ReLU()) for size in (cell, *drugs))
        self.top = mlp((bottom[-1] * (1 + len(drugs)), *top, 1))

    def forward(self, cell: torch.Tensor, drugs: Sequence[torch.Tensor]) -> torch.Tensor:
        parts = [bottom(x) for bottom, x in zip(self.bottoms, (cell, *drugs), strict=True)]
        return self.top(torch.cat(parts, dim=1)).squeeze(1)


def candle_uno(
    cell: int = CELL_FEATURES,
    drugs: Sequence[int] = DRUG_FEATURES,
    bottom: Sequence[int] = (1000, 1000, 1000),
    top: Sequence[int] = (1000, 1000, 1000),
) -> CandleUno:
    """Candle Uno; `bottom` and `top` are the widths of the hidden layers."""
    return CandleUno(cell, drugs, bottom, top)
