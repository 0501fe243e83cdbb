"""ResNeXt: bottleneck ResNets whose spatial convolution is divided into groups of channels.

Xie, Girshick, Dollár, Tu, He, "Aggregated residual transformations for deep neural networks", 2017 (arXiv:1611.05431),
table 1: 25,028,904 parameters with 50 layers and 32 groups of 4 channels. Its figure 3 shows two forms that compute the
same: one grouped convolution, and a convolution for each group, side by side. TASO (Jia 2020, section 2.8) begins with
the second.
"""

from __future__ import annotations

import torch
from torch import nn

from girih.models.networks.images.resnet import BLOCKS_OF_DEPTH, EXPANSION


class Branches(nn.Module):
    """A grouped 3×3 convolution as one for each group: `[batch, width, h, w]` → `[batch, width, h/s, w/s]`."""

    def __init__(self, width: int, groups: int, stride: int) -> None:
        super().__init__()
        self.size = width // groups
        self.convolutions = nn.ModuleList(
            nn.Conv2d(self.size, self.size, 3, stride=stride, padding=1, bias=False) for _ in range(groups)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.split(self.size, dim=1)
        return torch.cat([branch(part) for branch, part in zip(self.convolutions, parts, strict=True)], dim=1)


class GroupedBottleneck(nn.Module):
    """`[batch, inputs, h, w]` → `[batch, 4·middle, h/s, w/s]`; `width` channels in groups between two 1×1 ones."""

    def __init__(self, inputs: int, middle: int, width: int, groups: int, stride: int, branches: bool) -> None:
        super().__init__()
        outputs = EXPANSION * middle
        self.reduce = nn.Conv2d(inputs, width, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(width)
        self.spatial: nn.Module = (
            Branches(width, groups, stride)
            if branches
            else nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=groups, bias=False)
        )
        self.spatial_norm = nn.BatchNorm2d(width)
        self.expand = nn.Conv2d(width, outputs, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.reduce_norm(self.reduce(x)))
        y = torch.relu(self.spatial_norm(self.spatial(y)))
        return torch.relu(self.expand_norm(self.expand(y)) + self.shortcut(x))


class ResNeXt(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`; `blocks[s]` bottlenecks in stage s."""

    def __init__(
        self, blocks: tuple[int, ...], channels: int, groups: int, size: int, branches: bool, classes: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        inputs = channels
        layers: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            middle = channels * 2**stage
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(GroupedBottleneck(inputs, middle, groups * size * 2**stage, groups, stride, branches))
                inputs = EXPANSION * middle
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(images)).mean((2, 3)))


def resnext(
    depth: int = 50,
    groups: int = 32,
    size: int = 4,
    branches: bool = False,
    image: int = 224,
    classes: int = 1000,
    channels: int = 64,
    blocks: tuple[int, ...] | None = None,
) -> ResNeXt:
    """ResNeXt-`depth`, `groups`×`size`d. branches: a convolution for each group, side by side. image: what the batch is
    described with.

    Raises:
        ValueError: a depth that has no blocks.
    """
    if blocks is None and depth not in BLOCKS_OF_DEPTH:
        raise ValueError(f"a ResNeXt's depth is one of {tuple(BLOCKS_OF_DEPTH)}, or give blocks=; got {depth}")
    return ResNeXt(blocks or BLOCKS_OF_DEPTH[depth], channels, groups, size, branches, classes)
