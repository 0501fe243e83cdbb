"""The two classic convolutional networks: LeNet-5 and AlexNet.

LeNet-5: LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998;
its third convolution connects every channel (the paper drops some by a fixed table), as is usual today.

AlexNet: the single-tower version of Krizhevsky, "One weird trick for parallelizing convolutional neural
networks", 2014 (arXiv:1404.5997), without local response normalisation: 61,100,840 parameters at 224×224.
"""

from __future__ import annotations

import torch
from torch import nn

from girih.models.networks.layers import dropout_layer


def lenet(classes: int = 10) -> nn.Sequential:
    """LeNet-5 on 32×32 grey images: `[batch, 1, 32, 32]` → `[batch, classes]`; 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.Tanh(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, classes),
    )


class AlexNet(nn.Module):
    """`[batch, 3, image, image]` → `[batch, classes]`.

    The first linear layer takes whatever grid is left of the image (6×6 of 224×224), so that there is no
    adaptive pooling to plan. The paper trains with `dropout=0.5`; here it is off unless asked for.
    """

    def __init__(
        self, classes: int, image: int, channels: tuple[int, int, int, int, int], hidden: int, dropout: float
    ) -> None:
        super().__init__()
        if image < 63:
            raise ValueError(f"AlexNet's pooling leaves nothing of images under 63×63; got image={image}")
        first, second, third, fourth, fifth = channels
        self.features = nn.Sequential(
            nn.Conv2d(3, first, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(third, fourth, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(fourth, fifth, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        grid = (image + 4 - 11) // 4 + 1
        for _ in range(3):
            grid = (grid - 3) // 2 + 1
        self.classifier = nn.Sequential(
            dropout_layer(dropout),
            nn.Linear(fifth * grid * grid, hidden),
            nn.ReLU(),
            dropout_layer(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


def alexnet(
    classes: int = 1000,
    image: int = 224,
    channels: tuple[int, int, int, int, int] = (64, 192, 384, 256, 256),
    hidden: int = 4096,
    dropout: float = 0.0,
) -> AlexNet:
    """AlexNet; see the class for shapes."""
    return AlexNet(classes, image, channels, hidden, dropout)
