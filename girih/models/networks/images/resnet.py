"""Bottleneck ResNets and their widened versions.

He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015 (arXiv:1512.03385), with the
stride on the 3×3 convolution, as is usual today. Zagoruyko and Komodakis, "Wide residual networks", 2016
(arXiv:1605.07146), widen by a scalar; Tofu (Wang, Huang, Li, EuroSys 2019, section 7.1) applies it to
ImageNet and says "the model size grows quadratically as each weight tensor is widened on both the input
and output channel". So here the scalar multiplies the channels of every convolution, stem included.

That reading gives Tofu's Table 2 (weights, gradients and history: 12 bytes a parameter) within 2.2% for
all twelve sizes, in units of 2**30 bytes; in units of 10**9 it would be off by 5 to 10%.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

BLOCKS_OF_DEPTH = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}

# Below this image size the ImageNet stem (which divides by four) leaves too little; CIFAR models use 3×3.
SMALLEST_IMAGE_FOR_LARGE_STEM = 64

EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with a shortcut: `[batch, inputs, h, w]` → `[batch, 4·middle, h/s, w/s]`."""

    def __init__(self, inputs: int, middle: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * middle
        self.reduce = nn.Conv2d(inputs, middle, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(middle)
        self.spatial = nn.Conv2d(middle, middle, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(middle)
        self.expand = nn.Conv2d(middle, outputs, 1, bias=False)
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


class ResNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`; `blocks[s]` bottlenecks of `channels·2**s` in stage s."""

    def __init__(self, blocks: Sequence[int], channels: int = 64, image: int = 224, classes: int = 1000) -> None:
        super().__init__()
        if image < SMALLEST_IMAGE_FOR_LARGE_STEM:
            stem: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        else:
            stem = [nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)]
        stem += [nn.BatchNorm2d(channels), nn.ReLU()]
        if image >= SMALLEST_IMAGE_FOR_LARGE_STEM:
            stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        self.stem = nn.Sequential(*stem)

        width = channels
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            middle = channels * 2**stage
            layers: list[nn.Module] = []
            for index in range(count):
                layers.append(Bottleneck(width, middle, stride=2 if stage > 0 and index == 0 else 1))
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
