"""Convolutions by 3×3 with a quarter of the multiplications: Winograd's minimal filtering F(4×4, 3×3), after Lavin and
Gray (Fast Algorithms for Convolutional Neural Networks, CVPR 2016, §4).

A tile of 6×6 of the image and the filter are transformed, multiplied number by number, and summed over the channels;
what comes back is 4×4 of the result. The sums over channels are 36 products of matrices, tiles × channels by channels ×
outputs, which oneDNN computes as one convolution by 1×1 in 36 groups, with weights in its own order. Other than in the
paper, the tiles of a few rows are done at a time, so that they stay in the cache. Images have their channels last.
Results differ from a direct sum by rounding: about 1e-5 of the largest.

Cost: 36 multiplications for each channel, output and tile, in the place of 144; the transformations are linear in data
and results. It pays where channels and images are large; a search for kernels measures that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from girih.kernels.onednn import CONVOLUTION

Tensor = Any

GROUPS = [0, 0], [1, 1], [1, 1], 36  # padding, stride, dilation, groups
LARGER = 4  # times the weights, when they are transformed
LEAST_CHANNELS, LEAST_TILES = 32, 9
"""Below, transformations are more than what they save."""
CACHED = 4 << 20
"""Bytes of transformed tiles at a time: they stay in the last cache, and a call of oneDNN is worth its while."""


def takes(operator: str, attributes: Mapping[str, Any], data: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Is it a convolution by 3×3 in single steps, of float32 images with enough channels?"""
    if operator != CONVOLUTION or len(data) != 4 or weight[2:] != (3, 3) or min(weight[:2]) < LEAST_CHANNELS:
        return False
    single = tuple(attributes["stride"]) == tuple(attributes["dilation"]) == (1, 1) and attributes["groups"] == 1
    if not single or attributes.get("transposed"):
        return False
    _, _, height, width = result_shape(attributes, data, weight)
    return data[0] * -(-height // 4) * -(-width // 4) >= LEAST_TILES


def result_shape(
    attributes: Mapping[str, Any], data: tuple[int, ...], weight: tuple[int, ...]
) -> tuple[int, int, int, int]:
    top, left = attributes["padding"]
    return data[0], weight[0], data[2] + 2 * top - 2, data[3] + 2 * left - 2


class Winograd(nn.Module):
    """One convolution, with a bias and relu in the same pass."""

    def __init__(
        self, attributes: Mapping[str, Any], weight: Tensor, data: tuple[int, ...], bias: Tensor | None, relu: bool
    ) -> None:
        super().__init__()
        self.padding, self.relu = tuple(attributes["padding"]), relu
        self.outputs = weight.shape[0]
        batch, _, height, width = result_shape(attributes, data, tuple(weight.shape))
        self.rows, self.across = batch * -(-height // 4), -(-width // 4)
        most = max(1, CACHED // (36 * weight.shape[1] * 4 * self.across))
        self.at_once = -(-self.rows // -(-self.rows // most))  # rows of tiles, in even parts
        self.register_buffer("bias", torch.zeros(self.outputs) if bias is None else bias.reshape(-1).contiguous())
        tiles = [1, 36 * weight.shape[1], self.at_once * self.across, 1]
        self.register_buffer(
            "weight", torch.ops.mkldnn._reorder_convolution_weight(_transformed(weight), *GROUPS, tiles)
        )

    def forward(self, data: Tensor) -> Tensor:
        from girih.inference.winograd_loops import enter, leave

        image = data.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        batch, height, width, channels = image.shape
        top, left = self.padding
        out = image.new_empty((batch, height + 2 * top - 2, width + 2 * left - 2, self.outputs))
        tiles = image.new_empty((self.at_once * self.across, 36, channels))
        in_groups = tiles.reshape(1, -1, 1, 36 * channels).permute(0, 3, 1, 2)
        for first in range(0, self.rows, self.at_once):
            last = min(first + self.at_once, self.rows)
            enter(image.numpy(), tiles.numpy(), top, left, first, last, self.across)
            products = torch.ops.mkldnn._convolution_pointwise.default(
                in_groups, self.weight, None, *GROUPS, "none", [], ""
            )
            leave(
                products.permute(0, 2, 3, 1).reshape(-1, 36, self.outputs).numpy(),
                out.numpy(),
                self.bias.numpy(),
                self.relu,
                first,
                last,
                self.across,
            )
        return out.permute(0, 3, 1, 2)


def _transformed(weight: Tensor) -> Tensor:
    """G·w·Gᵀ of each filter, as a convolution's weights: [36 · outputs, inputs, 1, 1]."""
    g = torch.tensor(
        [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=torch.float64
    ) / torch.tensor([[24.0]]).double()  # fmt: skip
    return torch.einsum("ia,kcab,jb->ijkc", g, weight.double(), g).reshape(-1, weight.shape[1], 1, 1).float()
