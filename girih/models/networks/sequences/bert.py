"""BERT with its masked-language-model head: a transformer that sees both sides, norms after the sub-layers.

Devlin, Chang, Lee, Toutanova, 2018 (arXiv:1810.04805). The next-sentence head is left out, as most later
work does; the output layer shares the token embedding. Every sequence is full: there is no padding mask.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from girih.models.networks.layers import dropout_layer, initialise_transformer
from girih.models.networks.sequences.attention import Attention

EPSILON = 1e-12


class EncoderBlock(nn.Module):
    """Attention and a two-layer network of four times the width; the sum with the input is normed."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(width, eps=EPSILON)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.network_norm = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = dropout_layer(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        inner = self.contract(F.gelu(self.expand(x)))
        return self.network_norm(x + self.dropout(inner))


class BERT(nn.Module):
    """`tokens`, `segments [batch, sequence]` (int64) → logits `[batch, sequence, vocabulary]`."""

    def __init__(
        self, layers: int, width: int, heads: int, sequence: int, vocabulary: int, segments: int, dropout: float
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(sequence, width)
        self.segment_embedding = nn.Embedding(segments, width)
        self.embedding_norm = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = dropout_layer(dropout)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout) for _ in range(layers))
        self.head_dense = nn.Linear(width, width)
        self.head_norm = nn.LayerNorm(width, eps=EPSILON)
        self.head_bias = nn.Parameter(torch.zeros(vocabulary))
        self.apply(initialise_transformer)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.token_embedding(tokens) + self.position_embedding(positions) + self.segment_embedding(segments)
        x = self.dropout(self.embedding_norm(embedded))
        for block in self.blocks:
            x = block(x)
        x = self.head_norm(F.gelu(self.head_dense(x)))
        return F.linear(x, self.token_embedding.weight, self.head_bias)


def bert(
    layers: int,
    width: int,
    heads: int,
    sequence: int = 512,
    vocabulary: int = 30522,
    segments: int = 2,
    dropout: float = 0.0,
) -> BERT:
    """BERT of any size; base is `bert(12, 768, 12)`."""
    return BERT(layers, width, heads, sequence, vocabulary, segments, dropout)
