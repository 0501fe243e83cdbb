"""Llama 3: a causal transformer with grouped queries, rotary positions, SwiGLU and RMS norm.

Touvron et al., 2023 (arXiv:2302.13971); sizes of Llama Team, "The Llama 3 herd of models", 2024
(arXiv:2407.21783), table 3: 8B has 32 layers of 4096, 32 heads, 8 key-value heads, a network of 14336 and a
vocabulary of 128,256: 8,030,261,248 parameters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from girih.models.networks.layers import RootMeanSquareNorm, initialise_transformer
from girih.models.networks.sequences.attention import Attention, future_mask, rotary_angles

ROTARY_BASE = 500_000.0


class DecoderBlock(nn.Module):
    """Attention and the gated network, each added to its normed input."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = RootMeanSquareNorm(width)
        self.attention = Attention(width, heads, kv_heads, bias=False)
        self.network_norm = RootMeanSquareNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: torch.Tensor, hidden_from: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), hidden_from, angles)
        normed = self.network_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """`tokens [batch, sequence]` (int64, below `vocabulary`) → logits `[batch, sequence, vocabulary]`.

    Nothing learnt depends on the sequence's length, so that it is the batch's alone.
    """

    def __init__(self, layers: int, width: int, heads: int, kv_heads: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = RootMeanSquareNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(initialise_transformer)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token_embedding(tokens)
        sequence = tokens.shape[1]
        hidden_from = future_mask(sequence, tokens.device)
        angles = rotary_angles(sequence, self.head_width, ROTARY_BASE, like=x)
        for block in self.blocks:
            x = block(x, hidden_from, angles)
        return self.head(self.norm(x))


def llama(
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    hidden: int,
    vocabulary: int = 128_256,
    sequence: int = 2048,
) -> Llama:
    """Llama of any size. `sequence` only sets the catalogue's batches: rotary positions have no weights."""
    del sequence
    return Llama(layers, width, heads, kv_heads, hidden, vocabulary)
