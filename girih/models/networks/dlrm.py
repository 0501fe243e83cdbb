"""DLRM: embedding tables far larger than the network that uses them.

Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019
(arXiv:1906.00091), in the size of its Criteo Kaggle experiment: 13 dense features, 26 tables of width 16
with 33.8 million rows, bottom network 512-256-64, top network 512-256: 540 million parameters.

FlexFlow (Jia's thesis, Stanford 2020, section 3.7.3) trains it on the same data with wider networks:
tables of width 64, bottom 512-512-64, top 1024-1024-1024-1, and the vectors concatenated ("e.g., concatenating the
representations"). It says that "the vocabulary sizes of the embedding tables range from 3 to 1.7 million", where the
data have up to 10.1 million values: `FLEXFLOW_ROWS` are the data's, none above 1.7 million, as if rarer values shared
rows. That gives 9.1 million rows, 580 million numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from girih.models.networks.mlp import mlp

# Distinct values of the 26 categorical features of the Criteo Kaggle display-advertising data.
CRITEO_KAGGLE_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
FLEXFLOW_ROWS = tuple(min(rows, 1_700_000) for rows in CRITEO_KAGGLE_ROWS)

Interaction = Literal["products", "concatenation"]


class DLRM(nn.Module):
    """`dense [batch, dense]` and, for each table, indices `[batch, lookups]` (int64) → logits `[batch]`.

    A table's `lookups` rows are summed. With `interaction` "products", the products of every two feature vectors,
    table or dense, join the dense vector at the top network's input; the pairs are taken by slices, row by row of
    the triangle: an index tensor would hide from a planner that the batch divides. With "concatenation", the feature
    vectors themselves are that input, side by side.
    """

    def __init__(
        self, rows: Sequence[int], width: int, dense: int, bottom: Sequence[int], top: Sequence[int], interaction: str
    ) -> None:
        super().__init__()
        if interaction not in ("products", "concatenation"):
            raise ValueError(f"interaction is 'products' or 'concatenation', got {interaction!r}")
        self.interaction = interaction
        self.tables = nn.ModuleList(nn.Embedding(count, width) for count in rows)
        for table in self.tables:
            nn.init.uniform_(table.weight, -1 / table.num_embeddings, 1 / table.num_embeddings)
        self.bottom = nn.Sequential(mlp((dense, *bottom, width)), nn.ReLU())
        features = len(rows) + 1
        joined = width + features * (features - 1) // 2 if interaction == "products" else width * features
        self.top = mlp((joined, *top, 1))

    def forward(self, dense: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
        dense_vector = self.bottom(dense)
        vectors = [dense_vector]
        for table, lookups in zip(self.tables, indices, strict=True):
            vectors.append(table(lookups).sum(1))
        joined = vectors if self.interaction == "concatenation" else [dense_vector, *_products(vectors)]
        return self.top(torch.cat(joined, dim=1)).squeeze(1)


def _products(vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The products of every two vectors, `[batch, k]` those of the k-th with the ones before it."""
    features = torch.stack(list(vectors), dim=1)
    products = features @ features.transpose(1, 2)
    return [products[:, row, :row] for row in range(1, len(vectors))]


def dlrm(
    rows: Sequence[int] = CRITEO_KAGGLE_ROWS,
    width: int = 16,
    dense: int = 13,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
    lookups: int = 1,
    interaction: Interaction = "products",
) -> DLRM:
    """DLRM; `rows` has one entry for each table. `lookups` only sets the catalogue's batches."""
    del lookups
    return DLRM(rows, width, dense, bottom, top, interaction)


def dlrm_criteo(
    rows: Sequence[int] = FLEXFLOW_ROWS,
    width: int = 64,
    dense: int = 13,
    bottom: Sequence[int] = (512, 512),
    top: Sequence[int] = (1024, 1024, 1024),
    lookups: int = 1,
    interaction: Interaction = "concatenation",
) -> DLRM:
    """FlexFlow's DLRM. The last layer of the bottom network is as wide as the tables."""
    return dlrm(rows, width, dense, bottom, top, lookups, interaction)
