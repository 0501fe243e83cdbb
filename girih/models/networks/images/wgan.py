"""WGAN-GP: a generator, a critic, and the penalty on the critic's slope, which takes a derivative of a derivative.

Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville, "Improved training of Wasserstein GANs", 2017 (arXiv:1704.00028), with
the residual networks of the authors' released code for 64×64 images: batch norm in the generator, layer norm in the
critic, 128 random numbers for each image. 16 million parameters, of 17 in TensorFlowMem's table 6.1.

The two are trained in turn, five steps of the critic for each of the generator. So there are two models; both hold both
networks, and need no gradients for the parameters of the one that is not trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

GRID = 4  # pixels on a side where the generator begins and the critic ends
# The generator's channels before, between and behind its blocks, × width; the critic's are reversed.
LEVELS = (8, 8, 4, 2, 1)


class ResidualBlock(nn.Module):
    """Norm, ReLU and 3×3 convolution, twice, beside a 1×1 shortcut: `[batch, inputs, h, w]` → `[batch, outputs, …]`.

    The generator's blocks double the image before they convolve; the critic's halve it behind.
    """

    def __init__(self, inputs: int, outputs: int, doubles: bool) -> None:
        super().__init__()
        self.doubles = doubles
        middle = outputs if doubles else inputs
        self.first_norm, self.second_norm = (
            nn.BatchNorm2d(channels) if doubles else nn.GroupNorm(1, channels) for channels in (inputs, middle)
        )
        self.first = nn.Conv2d(inputs, middle, 3, padding=1, bias=False)
        self.second = nn.Conv2d(middle, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(x))
        if self.doubles:
            x, y = (F.interpolate(image, scale_factor=2) for image in (x, y))
        y = self.second(torch.relu(self.second_norm(self.first(y))))
        if not self.doubles:
            x, y = (F.avg_pool2d(image, 2) for image in (x, y))
        return y + self.shortcut(x)


class WGAN(nn.Module):
    """Both networks. generator: `[batch, numbers]` → `[batch, 3, image, image]`; critic: images → `[batch]`."""

    def __init__(self, width: int, levels: Sequence[int], numbers: int) -> None:
        super().__init__()
        channels = [width * level for level in levels]
        largest = GRID * GRID * channels[0]
        self.generator = nn.Sequential(
            nn.Linear(numbers, largest),
            nn.Unflatten(1, (channels[0], GRID, GRID)),
            *(ResidualBlock(*pair, doubles=True) for pair in pairwise(channels)),
            nn.BatchNorm2d(channels[-1]),
            nn.ReLU(),
            nn.Conv2d(channels[-1], 3, 3, padding=1),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(3, channels[-1], 3, padding=1),
            *(ResidualBlock(*pair, doubles=False) for pair in pairwise(reversed(channels))),
            nn.Flatten(),
            nn.Linear(largest, 1),
            nn.Flatten(0),
        )


class CriticTraining(WGAN):
    """`images`, `noise [batch, numbers]`, `mixing [batch]` → scores of them and of made images, slopes: each `[batch]`.

    A slope is the length of the gradient of the critic's score at a point between a real image and a made one: what
    share of the way is uniform, the place of a normal number of `mixing` in its distribution.
    """

    def forward(
        self, images: torch.Tensor, noise: torch.Tensor, mixing: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        drawn = self.generator(noise)
        share = torch.special.ndtr(mixing)[:, None, None, None]
        between = torch.lerp(images, drawn, share).requires_grad_()
        (gradient,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        return self.critic(images), self.critic(drawn), gradient.square().sum((1, 2, 3)).sqrt()


class GeneratorTraining(WGAN):
    """`noise [batch, numbers]` → the critic's scores of the generator's images, `[batch]`."""

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.critic(self.generator(noise))


def wgan_critic(width: int = 64, levels: Sequence[int] = LEVELS, numbers: int = 128) -> CriticTraining:
    """WGAN-GP while the critic is trained."""
    model = CriticTraining(width, levels, numbers)
    model.generator.requires_grad_(False)
    return model


def wgan_generator(width: int = 64, levels: Sequence[int] = LEVELS, numbers: int = 128) -> GeneratorTraining:
    """WGAN-GP while the generator is trained."""
    model = GeneratorTraining(width, levels, numbers)
    model.critic.requires_grad_(False)
    return model
