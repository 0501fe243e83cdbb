"""DLRM: embedding tables far larger than the network that uses them.

Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019
(arXiv:1906.00091), in the size of its Criteo Kaggle experiment: 13 dense features, 26 tables of width 16
with 33.8 million rows, bottom network 512-256-64, top network 512-256: 540 million parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from girih.models.mlp import mlp

# Distinct values of the 26 categorical features of the Criteo Kaggle display-advertising data.
CRITEO_KAGGLE_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)


class DLRM(nn.Module):
    """`dense [batch, dense]` and, for each table, indices `[batch, lookups]` (int64) → logits `[batch]`.

    A table's `lookups` rows are summed. The products of every two feature vectors, table or dense, join the
    dense vector at the top network's input. The pairs are taken by slices, row by row of the triangle:
    an index tensor would hide from a planner that the batch divides.
    """

    def __init__(self, rows: Sequence[int], width: int, dense: int, bottom: Sequence[int], top: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, width) for count in rows)
        for table in self.tables:
            nn.init.uniform_(table.weight, -1 / table.num_embeddings, 1 / table.num_embeddings)
        self.bottom = nn.Sequential(mlp((dense, *bottom, width)), nn.ReLU())
        features = len(rows) + 1
        self.top = mlp((width + features * (features - 1) // 2, *top, 1))

    def forward(self, dense: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
        dense_vector = self.bottom(dense)
        vectors = [dense_vector]
        for table, lookups in zip(self.tables, indices, strict=True):
            vectors.append(table(lookups).sum(1))
        features = torch.stack(vectors, dim=1)
        products = features @ features.transpose(1, 2)
        pairs = [products[:, row, :row] for row in range(1, len(vectors))]
        return self.top(torch.cat([dense_vector, *pairs], dim=1)).squeeze(1)


def dlrm(
    rows: Sequence[int] = CRITEO_KAGGLE_ROWS,
    width: int = 16,
    dense: int = 13,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
    lookups: int = 1,
) -> DLRM:
    """DLRM; `rows` has one entry for each table. `lookups` only sets the catalogue's batches."""
    del lookups
    return DLRM(rows, width, dense, bottom, top)
