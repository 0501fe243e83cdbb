"""Three convolutional networks without shortcuts that are added: VGG-19, SqueezeNet and DenseNet-121.

VGG: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014 (arXiv:1409.1556),
configuration E: 143,667,240 parameters. SqueezeNet: Iandola et al., 2016 (arXiv:1602.07360), in the authors' later
version 1.1 with smaller first kernels: 1,235,496 parameters. DenseNet: Huang, Liu, van der Maaten, Weinberger, "Densely
connected convolutional networks", 2017 (arXiv:1608.06993), table 1: 7,978,856 parameters.
"""

from __future__ import annotations

import torch
from torch import nn

VGG_19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # channels of a stage, and its convolutions
SQUEEZENET = (  # channels squeezed to, and of each kind of expanding convolution; None: pooling
    (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256),
)  # fmt: skip
DENSENET_121 = (6, 12, 24, 16)


class VGG(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`: stages of 3×3 convolutions; each ends by halving the image."""

    def __init__(self, stages: tuple[tuple[int, int], ...], image: int, hidden: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, count in stages:
            for _ in range(count):
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU()]
                inputs = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        pixels = (image >> len(stages)) ** 2
        self.head = nn.Sequential(
            nn.Linear(inputs * pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


class Fire(nn.Module):
    """1×1 to few channels; from there 1×1 and 3×3 to many, side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.small = nn.Conv2d(squeezed, expanded, 1)
        self.large = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.small(x)), torch.relu(self.large(x))], dim=1)


class SqueezeNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`."""

    def __init__(self, fires: tuple[tuple[int, int] | None, ...], channels: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)]
        inputs = channels
        for fire in fires:
            if fire is None:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            else:
                layers.append(Fire(inputs, *fire))
                inputs = 2 * fire[1]
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(inputs, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.head(self.features(images))).mean((2, 3))


class DenseLayer(nn.Module):
    """What came before, and `growth` channels more: `[batch, inputs, h, w]` → `[batch, inputs + growth, h, w]`."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.reduce_norm = nn.BatchNorm2d(inputs)
        self.reduce = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(4 * growth)
        self.spatial = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.reduce(torch.relu(self.reduce_norm(x)))
        return torch.cat([x, self.spatial(torch.relu(self.spatial_norm(y)))], dim=1)


class DenseNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`; between two blocks half the channels and half the image."""

    def __init__(self, blocks: tuple[int, ...], growth: int, classes: int) -> None:
        super().__init__()
        channels = 2 * growth
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        ]  # fmt: skip
        for number, count in enumerate(blocks):
            for _ in range(count):
                layers.append(DenseLayer(channels, growth))
                channels += growth
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            if number + 1 < len(blocks):
                layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
                channels //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).mean((2, 3)))


def vgg(stages: tuple[tuple[int, int], ...] = VGG_19, image: int = 224, hidden: int = 4096, classes: int = 1000) -> VGG:
    """VGG-19; dropout is left out."""
    return VGG(stages, image, hidden, classes)


def squeezenet(
    fires: tuple[tuple[int, int] | None, ...] = SQUEEZENET, channels: int = 64, image: int = 224, classes: int = 1000
) -> SqueezeNet:
    """SqueezeNet 1.1; dropout is left out. image: what the batch is described with."""
    return SqueezeNet(fires, channels, classes)


def densenet(
    blocks: tuple[int, ...] = DENSENET_121, growth: int = 32, image: int = 224, classes: int = 1000
) -> DenseNet:
    """DenseNet-121. image: what the batch is described with."""
    return DenseNet(blocks, growth, classes)
