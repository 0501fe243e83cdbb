"""Inception-v3 and -v4: many parallel branches that meet in concatenations.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for computer vision",
2015 (arXiv:1512.00567), with the channel counts of the authors' released model: 23,834,568 parameters for
1000 classes, 27,161,264 with the auxiliary head. `scale` multiplies every convolution's channels (for
tests). The released model's dropout before the last layer is left out.

Inception-v4: Szegedy, Ioffe, Vanhoucke, Alemi, "Inception-v4, Inception-ResNet and the impact of residual
connections on learning", 2016 (arXiv:1602.07261), figures 3 to 9: 42,679,816 parameters. SwapAdvisor (thesis §5.1)
widens it by a scalar.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

SMALLEST_IMAGE = 75
SMALLEST_IMAGE_FOR_AUXILIARY_HEAD = 299

Size = int | tuple[int, int]
Layer = tuple[int, Size, int, Size]  # channels, kernel, stride, padding


class ConvolutionUnit(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: Size, stride: int = 1, padding: Size = 0) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


def _one(channels: int) -> Layer:
    return (channels, 1, 1, 0)


def _same(channels: int, kernel: Size) -> Layer:
    """A convolution that keeps the image's size."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    return (channels, kernel, 1, (height // 2, width // 2))


def _halve(channels: int) -> Layer:
    return (channels, 3, 2, 0)


class Concatenation(nn.Module):
    """Branches side by side on the channel axis, each fed the same input."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class BlockBuilder:
    """Adds blocks one after another, keeping count of the channels that reach the next."""

    def __init__(self, channels: int, scale: float) -> None:
        self.channels = channels
        self.scale = scale

    def scaled(self, channels: int) -> int:
        return max(1, round(channels * self.scale))

    def chain(self, *layers: Layer) -> tuple[nn.Sequential, int]:
        """Convolutions one after another from the current channels, and the channels that come out."""
        inputs = self.channels
        units = []
        for channels, kernel, stride, padding in layers:
            units.append(ConvolutionUnit(inputs, self.scaled(channels), kernel, stride, padding))
            inputs = self.scaled(channels)
        return nn.Sequential(*units), inputs

    def straight(self, *layers: Layer) -> nn.Module:
        units, self.channels = self.chain(*layers)
        return units

    def block(
        self,
        branches: tuple[tuple[Layer, ...], ...],
        pooled: Layer | None = None,
        split: tuple[tuple[Layer, ...], ...] = (),
        split_width: int | None = None,
        halved: bool = True,
    ) -> nn.Module:
        """A block of parallel branches.

        The last branch pools: an average and then the convolution `pooled`, or, without one, a maximum with
        stride 2, if the block is halved. A branch in `split` ends in 1×3 and 3×1 convolutions side by side, of
        `split_width` channels each, or as wide as its last one.
        """
        modules: list[nn.Module] = []
        total = 0
        for layers in branches:
            units, outputs = self.chain(*layers)
            modules.append(units)
            total += outputs
        for layers in split:
            units, outputs = self.chain(*layers)
            ends = outputs if split_width is None else self.scaled(split_width)
            modules.append(nn.Sequential(units, _cross(outputs, ends)))
            total += 2 * ends
        if pooled is None and halved:
            modules.append(nn.MaxPool2d(3, stride=2))
            total += self.channels
        elif pooled is not None:
            units, outputs = self.chain(pooled)
            modules.append(nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), units))
            total += outputs
        self.channels = total
        return Concatenation(*modules)


def _cross(inputs: int, outputs: int) -> Concatenation:
    return Concatenation(
        ConvolutionUnit(inputs, outputs, (1, 3), padding=(0, 1)),
        ConvolutionUnit(inputs, outputs, (3, 1), padding=(1, 0)),
    )


def _middle_block(build: BlockBuilder, narrow: int) -> nn.Module:
    """The 17×17 block with 7×7 convolutions factored into 1×7 and 7×1."""
    flat, tall = (1, 7), (7, 1)
    return build.block(
        (
            (_one(192),),
            (_one(narrow), _same(narrow, flat), _same(192, tall)),
            (_one(narrow), _same(narrow, tall), _same(narrow, flat), _same(narrow, tall), _same(192, flat)),
        ),
        pooled=_one(192),
    )


class AuxiliaryHead(nn.Module):
    """A second classifier at the 17×17 grid: `[batch, channels, 17, 17]` → `[batch, classes]`."""

    def __init__(self, inputs: int, middle: int, outputs: int, classes: int) -> None:
        super().__init__()
        self.reduce = ConvolutionUnit(inputs, middle, 1)
        self.spatial = ConvolutionUnit(middle, outputs, 5)
        self.head = nn.Linear(outputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(x, 5, stride=3)
        return self.head(self.spatial(self.reduce(x)).mean((2, 3)))


class InceptionV3(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`, or a pair of them with the auxiliary head."""

    def __init__(self, image: int, classes: int, auxiliary: bool, scale: float) -> None:
        super().__init__()
        if image < SMALLEST_IMAGE:
            raise ValueError(f"Inception-v3 takes images of {SMALLEST_IMAGE}×{SMALLEST_IMAGE} and up; got {image}")
        if auxiliary and image < SMALLEST_IMAGE_FOR_AUXILIARY_HEAD:
            raise ValueError(
                f"the auxiliary head needs the 17×17 grid of images of {SMALLEST_IMAGE_FOR_AUXILIARY_HEAD} and "
                f"up; got image={image}: leave auxiliary=False or take larger images"
            )
        build = BlockBuilder(3, scale)
        self.stem = nn.Sequential(
            build.straight((32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)),
            nn.MaxPool2d(3, stride=2),
            build.straight(_one(80), (192, 3, 1, 0)),
            nn.MaxPool2d(3, stride=2),
        )
        early: tuple[tuple[Layer, ...], ...] = (
            (_one(64),),
            (_one(48), _same(64, 5)),
            (_one(64), _same(96, 3), _same(96, 3)),
        )
        self.early = nn.Sequential(*(build.block(early, pooled=_one(width)) for width in (32, 64, 64)))
        self.first_reduction = build.block(((_halve(384),), (_one(64), _same(96, 3), _halve(96))))
        self.middle = nn.Sequential(*(_middle_block(build, narrow) for narrow in (128, 160, 160, 192)))
        self.auxiliary = (
            AuxiliaryHead(build.channels, build.scaled(128), build.scaled(768), classes) if auxiliary else None
        )
        self.second_reduction = build.block(
            (
                (_one(192), _halve(320)),
                (_one(192), _same(192, (1, 7)), _same(192, (7, 1)), _halve(192)),
            )
        )
        self.late = nn.Sequential(
            *(
                build.block(
                    ((_one(320),),),
                    pooled=_one(192),
                    split=((_one(384),), (_one(448), _same(384, 3))),
                )
                for _ in range(2)
            )
        )
        self.head = nn.Linear(build.channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        middle = self.middle(self.first_reduction(self.early(self.stem(images))))
        logits = self.head(self.late(self.second_reduction(middle)).mean((2, 3)))
        return logits if self.auxiliary is None else (logits, self.auxiliary(middle))


def inception_v3(image: int = 299, classes: int = 1000, auxiliary: bool = False, scale: float = 1.0) -> InceptionV3:
    """Inception-v3; see the class for shapes. Images of 75×75 and up."""
    return InceptionV3(image, classes, auxiliary, scale)


class InceptionV4(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`."""

    def __init__(self, image: int, classes: int, scale: float) -> None:
        super().__init__()
        if image < SMALLEST_IMAGE:
            raise ValueError(f"Inception-v4 takes images of {SMALLEST_IMAGE}×{SMALLEST_IMAGE} and up; got {image}")
        build = BlockBuilder(3, scale)
        flat, tall = (1, 7), (7, 1)
        self.stem = nn.Sequential(
            build.straight((32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1)),
            build.block(((_halve(96),),)),
            build.block(
                (
                    (_one(64), (96, 3, 1, 0)),
                    (_one(64), _same(64, tall), _same(64, flat), (96, 3, 1, 0)),
                ),
                halved=False,
            ),
            build.block(((_halve(192),),)),
        )
        early = ((_one(96),), (_one(64), _same(96, 3)), (_one(64), _same(96, 3), _same(96, 3)))
        middle = (
            (_one(384),),
            (_one(192), _same(224, flat), _same(256, tall)),
            (_one(192), _same(192, flat), _same(224, tall), _same(224, flat), _same(256, tall)),
        )
        late = ((_one(384),), (_one(384), _same(448, (1, 3)), _same(512, (3, 1))))
        self.early = nn.Sequential(*(build.block(early, pooled=_one(96)) for _ in range(4)))
        self.first_reduction = build.block(((_halve(384),), (_one(192), _same(224, 3), _halve(256))))
        self.middle = nn.Sequential(*(build.block(middle, pooled=_one(128)) for _ in range(7)))
        self.second_reduction = build.block(
            ((_one(192), _halve(192)), (_one(256), _same(256, flat), _same(320, tall), _halve(320)))
        )
        self.late = nn.Sequential(
            *(build.block(((_one(256),),), pooled=_one(256), split=late, split_width=256) for _ in range(3))
        )
        self.head = nn.Linear(build.channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        middle = self.middle(self.first_reduction(self.early(self.stem(images))))
        return self.head(self.late(self.second_reduction(middle)).mean((2, 3)))


def inception_v4(width: float = 1, image: int = 299, classes: int = 1000) -> InceptionV4:
    """Inception-v4 with every convolution `width` times as wide. Images of 75×75 and up."""
    return InceptionV4(image, classes, width)
