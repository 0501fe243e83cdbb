"""NASNet-A: cells of separable convolutions that a search has found.

Zoph, Vasudevan, Shlens, Le, "Learning transferable architectures for scalable image recognition", 2018
(arXiv:1707.07012), figure 4, with the stem and the channel counts of the authors' released models: 5,289,978 parameters
with 4 cells a stage and 44 filters (mobile), 88,753,150 with 6 and 168 (large), for 1000 classes. Their auxiliary head,
dropout and dropped paths are left out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

EPSILON = 0.001

Pair = tuple[str, int, str, int]  # two operations, each with the number of the state that it reads

# States are numbered: 0 the last cell's output, 1 the one before, 2 to 6 the sums of the five pairs.
NORMAL: tuple[Pair, ...] = (
    ("separable 5", 0, "separable 3", 1),
    ("separable 5", 1, "separable 3", 1),
    ("average", 0, "same", 1),
    ("average", 1, "average", 1),
    ("separable 3", 0, "same", 0),
)
REDUCTION: tuple[Pair, ...] = (
    ("separable 5", 0, "separable 7", 1),
    ("maximum", 0, "separable 7", 1),
    ("average", 0, "separable 5", 1),
    ("same", 3, "average", 2),
    ("separable 3", 2, "maximum", 0),
)
NORMAL_OUTPUTS, REDUCTION_OUTPUTS = (1, 2, 3, 4, 5, 6), (3, 4, 5, 6)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON)


def _separable(inputs: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    """ReLU, a convolution of each channel by itself, 1×1, batch norm: twice."""
    layers: list[nn.Module] = []
    for width, step in ((inputs, stride), (channels, 1)):
        layers += [
            nn.ReLU(),
            nn.Conv2d(width, width, kernel, step, kernel // 2, groups=width, bias=False),
            nn.Conv2d(width, channels, 1, bias=False),
            _norm(channels),
        ]
    return nn.Sequential(*layers)


def _operation(name: str, inputs: int, channels: int, stride: int) -> nn.Module:
    kind, _, kernel = name.partition(" ")
    if kind == "separable":
        return _separable(inputs, channels, int(kernel), stride)
    if kind == "average":
        return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
    return nn.MaxPool2d(3, stride, padding=1) if kind == "maximum" else nn.Identity()


class Squeeze(nn.Module):
    """ReLU, 1×1, batch norm: `[batch, inputs, h, w]` → `[batch, outputs, h, w]`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm = _norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(torch.relu(x)))


class Halving(nn.Module):
    """Half the image: every other pixel, and those beside them, each through a 1×1 convolution of their own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        self.norm = _norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        beside = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        pixels = (self.even(F.avg_pool2d(x, 1, 2)), self.odd(F.avg_pool2d(beside, 1, 2)))
        return self.norm(torch.cat(pixels, dim=1))


class Cell(nn.Module):
    """The last two cells' outputs → the next.

    stride: 2 of reductions. previous: channels of the one before; 0 in the first cell, which takes its input twice,
    once as it is. larger: has the one before a larger image?
    """

    def __init__(self, inputs: int, previous: int, channels: int, stride: int, larger: bool) -> None:
        super().__init__()
        pairs = NORMAL if stride == 1 else REDUCTION
        self.outputs: tuple[int, ...] = NORMAL_OUTPUTS if stride == 1 else REDUCTION_OUTPUTS
        self.squeeze = Squeeze(inputs, channels)
        self.align: nn.Module = nn.Identity()
        if previous not in (0, channels) or larger:
            self.align = (Halving if larger else Squeeze)(previous, channels)
        widths = [channels, channels if previous else inputs, *[channels] * len(pairs)]
        self.reads = [(first, second) for _, first, _, second in pairs]
        self.operations = nn.ModuleList(
            _operation(name, widths[state], channels, stride if state < 2 else 1)
            for one, first, other, second in pairs
            for name, state in ((one, first), (other, second))
        )
        self.channels = len(self.outputs) * channels

    def forward(self, x: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        states = [self.squeeze(x), self.align(previous)]
        operations = iter(self.operations)
        for first, second in self.reads:
            states.append(next(operations)(states[first]) + next(operations)(states[second]))
        return torch.cat([states[number] for number in self.outputs], dim=1)


class NasNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`: three stages of `cells` normal cells, a reduction between two.

    filters: channels of a cell in the first stage; twice as many in each next one.
    """

    def __init__(self, cells: int, filters: int, stem: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, stride=2, bias=False), _norm(stem))
        plan = [(filters // 4, 2), (filters // 2, 2)]
        for stage in range(3):
            plan += [(filters * 2**stage, 2)] * (stage > 0) + [(filters * 2**stage, 1)] * cells
        built: list[Cell] = []
        inputs, previous, larger = stem, 0, False
        for channels, stride in plan:
            cell = Cell(inputs, previous, channels, stride, larger)
            inputs, previous, larger = cell.channels, inputs, stride == 2
            built.append(cell)
        self.cells = nn.ModuleList(built)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = previous = self.stem(images)
        for cell in self.cells:
            x, previous = cell(x, previous), x
        return self.head(torch.relu(x).mean((2, 3)))


def nasnet(repeats: int, filters: int = 80, image: int = 224, classes: int = 1000, stem: int = 96) -> NasNet:
    """NASNet-A with stages of `repeats` normal cells. image: what the batch is described with."""
    return NasNet(repeats, filters, stem, classes)
