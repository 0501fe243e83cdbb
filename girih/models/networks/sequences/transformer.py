"""The first Transformer, an encoder and a decoder, with plain networks or layers of experts.

Vaswani et al., 2017 (arXiv:1706.03762), with the positions of Tensor2Tensor (sines beside cosines): 61 million
parameters with 6 layers on either side, a width of 512 and 2^15 words, which share their vectors with the output layer.

With experts in place of each layer's network, as TensorFlowMem's Transformer w/ MoE (tables 6.8 to 6.14). Its numbers
of parameters, from 0.66 billion (12 experts a layer) to 20.2 billion (400), are all met to their last digit by experts
of 512 × 4096 × 512 and an output layer of its own; "2 million parameters per expert" (§6.3.1) are 512 × 2048 × 512.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from girih.models.networks.sequences.attention import Attention, future_mask, rotary_angles
from girih.models.networks.sequences.experts import Experts


class Network(nn.Module):
    """Two linear layers with ReLU between them: `[…, width]` → the same."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.contract(torch.relu(self.expand(x)))


class Layer(nn.Module):
    """Attention to itself, in a decoder to what the encoder read, and a network; each sum with its input is normed."""

    def __init__(self, width: int, heads: int, network: nn.Module, decodes: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        self.reading = Attention(width, heads) if decodes else None
        self.reading_norm = nn.LayerNorm(width) if decodes else None
        self.network = network
        self.network_norm = nn.LayerNorm(width)

    def forward(
        self, x: torch.Tensor, hidden_from: torch.Tensor | None = None, source: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x, hidden_from))
        if self.reading is not None and self.reading_norm is not None:
            x = self.reading_norm(x + self.reading(x, source=source))
        return self.network_norm(x + self.network(x))


class Transformer(nn.Module):
    """`source`, `tokens [batch, sequence]` (int64, below `vocabulary`) → logits `[batch, sequence, vocabulary]`."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        hidden: int,
        vocabulary: int,
        experts: int,
        groups: int,
        sparse: bool,
        tied: bool,
    ) -> None:
        super().__init__()

        def layer(decodes: bool) -> Layer:
            network = (
                Experts(width, hidden, experts, groups=groups, sparse=sparse) if experts else Network(width, hidden)
            )
            return Layer(width, heads, network, decodes)

        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(layer(decodes=False) for _ in range(layers))
        self.decoder = nn.ModuleList(layer(decodes=True) for _ in range(layers))
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        cosines, sines = rotary_angles(tokens.shape[1], self.width, 10_000.0, self.embedding.weight)
        return self.embedding(tokens) * math.sqrt(self.width) + torch.cat([sines, cosines], dim=-1)

    def forward(self, source: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        read, x = self.embed(source), self.embed(tokens)
        for layer in self.encoder:
            read = layer(read)
        hidden_from = future_mask(tokens.shape[1], tokens.device)
        for layer in self.decoder:
            x = layer(x, hidden_from, read)
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x)


def transformer(
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    hidden: int = 2048,
    sequence: int = 256,
    vocabulary: int = 32_768,
    tied: bool = True,
) -> Transformer:
    """The Transformer of `layers` on either side. sequence: what the batch is described with."""
    return Transformer(layers, width, heads, hidden, vocabulary, 0, 1, False, tied)


def moe(
    experts: int,
    hidden: int = 4096,
    sparse: bool = False,
    groups: int = 1,
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    sequence: int = 256,
    vocabulary: int = 32_768,
    tied: bool = False,
) -> Transformer:
    """The Transformer with `experts` networks of `hidden` in each layer; see `Experts` for `sparse` and `groups`."""
    return Transformer(layers, width, heads, hidden, vocabulary, experts, groups, sparse, tied)
