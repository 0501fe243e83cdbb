"""The Vision Transformer: an image as a sequence of square patches, behind a token whose last state is classified.

Dosovitskiy et al., "An image is worth 16x16 words", 2020 (arXiv:2010.11929), table 1: ViT-B has 12 layers of 768, ViT-L
24 of 1024, with patches of 16×16: 86,567,656 and 304,326,632 parameters. The patches are cut by a convolution whose
kernels do not overlap. The norms' epsilon is PyTorch's 1e-5.
"""

from __future__ import annotations

import torch
from torch import nn

from girih.models.networks.layers import initialise_transformer
from girih.models.networks.sequences.gpt import DecoderBlock


class VisionTransformer(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`."""

    def __init__(self, layers: int, width: int, heads: int, image: int, patch: int, classes: int) -> None:
        super().__init__()
        if image % patch:
            raise ValueError(f"the image must be a multiple of the patch; got image={image}, patch={patch}")
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, dropout=0.0, gelu="none") for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.apply(initialise_transformer)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit(
    layers: int, width: int, heads: int, image: int = 224, patch: int = 16, classes: int = 1000
) -> VisionTransformer:
    """The Vision Transformer of any size; dropout is left out."""
    return VisionTransformer(layers, width, heads, image, patch, classes)
