"""Attention in plain matrix products, and the pieces that go with it.

Vaswani et al., 2017 (arXiv:1706.03762); grouped queries after Ainslie et al., 2023 (arXiv:2305.13245); rotary
positions after Su et al., 2021 (arXiv:2104.09864). No fused kernel is called: products, mask and softmax are
operators of their own, each of which divides over batch, heads or rows. Query, key and value have a weight
each, so that a split of the heads is a split of every weight's rows (in one stacked weight it is not).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from girih.models.networks.layers import dropout_layer


def future_mask(sequence: int, device: torch.device) -> torch.Tensor:
    """`[sequence, sequence]`, true where a column lies after the row: what a causal model may not see."""
    positions = torch.arange(sequence, device=device)
    return positions[None, :] > positions[:, None]


def rotary_angles(sequence: int, head_width: int, base: float, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, each `[sequence, head_width/2]`, computed in float32, in the type of `like`."""
    pairs = torch.arange(head_width // 2, device=like.device, dtype=torch.float32)
    frequencies = torch.exp(pairs * (-2.0 * math.log(base) / head_width))
    positions = torch.arange(sequence, device=like.device, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None, :]
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """`x [batch, heads, sequence, head_width]`, its first and second half turned against each other."""
    cosine, sine = angles
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    """Attention of a sequence to itself or another, `[batch, sequence, width]` → the same.

    With fewer key-value heads than heads, consecutive query heads share one.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int | None = None, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if width % heads or heads % kv_heads:
            raise ValueError(
                f"heads must divide the width, and key-value heads the heads; "
                f"got width={width}, heads={heads}, kv_heads={kv_heads}"
            )
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_width = width // heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, kv_heads * self.head_width, bias=bias)
        self.value = nn.Linear(width, kv_heads * self.head_width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)
        self.dropout = dropout_layer(dropout)

    def _by_head(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """`[batch, sequence, heads·head_width]` → `[batch, heads, sequence, head_width]`."""
        batch, sequence, _ = x.shape
        return x.view(batch, sequence, heads, self.head_width).transpose(1, 2)

    def _shared(self, x: torch.Tensor) -> torch.Tensor:
        """Each key-value head repeated for the query heads that share it."""
        share = self.heads // self.kv_heads
        if share == 1:
            return x
        batch, kv_heads, sequence, head_width = x.shape
        repeated = x[:, :, None].expand(batch, kv_heads, share, sequence, head_width)
        return repeated.reshape(batch, self.heads, sequence, head_width)

    def forward(
        self,
        x: torch.Tensor,
        hidden_from: torch.Tensor | None = None,
        angles: tuple[torch.Tensor, torch.Tensor] | None = None,
        source: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`hidden_from [sequence, sequence]` is true where a row (query) may not see a column (key).

        Keys and values come from `source [batch, other, width]`, another sequence, or from `x` itself.
        """
        source = x if source is None else source
        query = self._by_head(self.query(x), self.heads)
        key = self._by_head(self.key(source), self.kv_heads)
        value = self._by_head(self.value(source), self.kv_heads)
        if angles is not None:
            query, key = rotate(query, angles), rotate(key, angles)
        scores = query @ self._shared(key).transpose(-2, -1) / math.sqrt(self.head_width)
        if hidden_from is not None:
            # The smallest finite number of the type rather than -inf: no NaN, whatever a device's slice holds.
            scores = scores.masked_fill(hidden_from, torch.finfo(scores.dtype).min)
        mixed = self.dropout(scores.softmax(-1)) @ self._shared(value)
        return self.output(mixed.transpose(1, 2).reshape(x.shape))
