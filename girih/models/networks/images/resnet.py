"""Bottleneck ResNets, their widened versions, and ResNeXt, whose spatial convolution is in groups of channels.

He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015 (arXiv:1512.03385), with the
stride on the 3×3 convolution, as is usual today. Zagoruyko and Komodakis, "Wide residual networks", 2016
(arXiv:1605.07146), widen by a scalar; Tofu (Wang, Huang, Li, EuroSys 2019, section 7.1) applies it to
ImageNet and says "the model size grows quadratically as each weight tensor is widened on both the input
and output channel". So here the scalar multiplies the channels of every convolution, stem included.

That reading gives Tofu's Table 2 (weights, gradients and history: 12 bytes a parameter) within 2.2% for
all twelve sizes, in units of 2**30 bytes; in units of 10**9 it would be off by 5 to 10%.

ResNeXt: Xie, Girshick, Dollár, Tu, He, "Aggregated residual transformations for deep neural networks", 2017
(arXiv:1611.05431), table 1: 25,028,904 parameters with 50 layers and 32 groups of 4 channels. Its figure 3 shows two
forms that compute the same: one grouped convolution, and a convolution for each group, side by side. TASO (Jia 2020,
section 2.8) begins with the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

BLOCKS_OF_DEPTH = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

# Below this image size the ImageNet stem (which divides by four) leaves too little; CIFAR models use 3×3.
SMALLEST_IMAGE_FOR_LARGE_STEM = 64

EXPANSION = 4


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


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with a shortcut: `[batch, inputs, h, w]` → `[batch, outputs, h/s, w/s]`.

    The 3×3 one has `width` channels in `groups`; branches: it is one convolution for each group, side by side.
    """

    def __init__(
        self, inputs: int, width: int, outputs: int, stride: int, groups: int = 1, branches: bool = False
    ) -> None:
        super().__init__()
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


def _stem(channels: int) -> list[nn.Module]:
    """ImageNet's, which divides the image by four."""
    convolution = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
    return [convolution, nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]


class ResNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`; `blocks[s]` bottlenecks of `channels·2**s` in stage s."""

    def __init__(self, blocks: Sequence[int], channels: int, image: int, classes: int) -> None:
        super().__init__()
        if image < SMALLEST_IMAGE_FOR_LARGE_STEM:
            convolution = nn.Conv2d(3, channels, 3, padding=1, bias=False)
            self.stem = nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU())
        else:
            self.stem = nn.Sequential(*_stem(channels))

        width = channels
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            middle = channels * 2**stage
            layers: list[nn.Module] = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(Bottleneck(width, middle, EXPANSION * middle, stride))
                width = EXPANSION * middle
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stages(self.stem(images))
        return self.head(features.mean((2, 3)))


def wide_resnet(
    depth: int,
    width: int = 1,
    image: int = 224,
    classes: int = 1000,
    channels: int = 64,
    blocks: Sequence[int] | None = None,
) -> ResNet:
    """A bottleneck ResNet with every convolution `width` times as wide; weights grow as `width²`.

    `channels` is the stem's width before widening. `blocks`, if given, replaces the numbers of blocks that
    `depth` stands for: those of 50, 101 or 152 layers, and beyond these ResNet-152's with more blocks in the third
    stage (TensorFlowMem §6.4.3: up to 1916 layers), as many as the depth has room for: each is three layers. Images
    under 64×64 get a 3×3 stem without pooling.
    """
    if blocks is None:
        if depth not in BLOCKS_OF_DEPTH and depth < max(BLOCKS_OF_DEPTH):
            raise ValueError(
                f"a ResNet's depth is one of {tuple(BLOCKS_OF_DEPTH)}, or more than that, or give blocks=; got {depth}"
            )
        first, second, _, last = BLOCKS_OF_DEPTH[152]
        blocks = BLOCKS_OF_DEPTH.get(depth, (first, second, (depth - 2) // 3 - first - second - last, last))
    return ResNet(blocks, channels * width, image, classes)


def resnet(depth: int, image: int = 224, classes: int = 1000) -> ResNet:
    """The plain ResNet of the given depth: `wide_resnet` with width 1."""
    return wide_resnet(depth, 1, image, classes)


class ResNeXt(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`; `blocks[s]` bottlenecks in stage s."""

    def __init__(
        self, blocks: tuple[int, ...], channels: int, groups: int, size: int, branches: bool, classes: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_stem(channels))
        inputs = channels
        layers: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            middle = channels * 2**stage
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                width, outputs = groups * size * 2**stage, EXPANSION * middle
                layers.append(Bottleneck(inputs, width, outputs, stride, groups, branches))
                inputs = outputs
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
