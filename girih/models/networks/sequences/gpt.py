"""GPT-2: a causal transformer with the layer norms before the sub-layers.

Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are unsupervised multitask learners", 2019.
With tied embeddings, 12 layers of 768: 124,439,808 parameters. Queries, keys and values have a weight each
(see girih.models.networks.sequences.attention); the released model stacks them in one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from girih.models.networks.layers import dropout_layer, initialise_transformer
from girih.models.networks.sequences.attention import Attention, future_mask


class DecoderBlock(nn.Module):
    """Attention and a two-layer network of four times the width, each added to its normed input.

    gelu: how the network's function is approximated, or "none".
    """

    def __init__(self, width: int, heads: int, dropout: float, gelu: str = "tanh") -> None:
        super().__init__()
        self.gelu = gelu
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout=dropout)
        self.network_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = dropout_layer(dropout)

    def forward(self, x: torch.Tensor, hidden_from: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), hidden_from))
        inner = F.gelu(self.expand(self.network_norm(x)), approximate=self.gelu)
        return x + self.dropout(self.contract(inner))


class GPT(nn.Module):
    """`tokens [batch, sequence]` (int64, below `vocabulary`) → logits `[batch, sequence, vocabulary]`."""

    def __init__(
        self, layers: int, width: int, heads: int, sequence: int, vocabulary: int, tied: bool, dropout: float
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(sequence, width)
        self.dropout = dropout_layer(dropout)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.apply(initialise_transformer)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        sequence = tokens.shape[1]
        positions = torch.arange(sequence, device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        hidden_from = future_mask(sequence, tokens.device)
        for block in self.blocks:
            x = block(x, hidden_from)
        x = self.norm(x)
        return F.linear(x, self.token_embedding.weight) if self.head is None else self.head(x)


def gpt(
    layers: int,
    width: int,
    heads: int,
    sequence: int = 1024,
    vocabulary: int = 50257,
    tied: bool = True,
    dropout: float = 0.0,
) -> GPT:
    """GPT-2 of any size; `tied` shares the token embedding with the output layer."""
    return GPT(layers, width, heads, sequence, vocabulary, tied, dropout)
