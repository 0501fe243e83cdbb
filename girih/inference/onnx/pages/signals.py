"""Fourier transforms. Complex numbers are pairs along the last axis."""

from __future__ import annotations

from typing import Any

import torch

from girih.inference.onnx.operators import operator

Tensor = Any


def transformed(x: Tensor, length: int | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """By the definition, as a product with cosines and sines, in float64. The inverse of a one-sided transform is real:
    what is missing are the conjugates of what is there."""
    axis %= x.dim()
    halved = bool(onesided and inverse)
    count = length or (2 * (x.shape[axis] - 1) if halved else x.shape[axis])
    used = min(count // 2 + 1 if halved else count, x.shape[axis])
    kept = count // 2 + 1 if onesided and not inverse else count
    turns = torch.arange(used, dtype=torch.float64).unsqueeze(1) * torch.arange(kept, dtype=torch.float64).unsqueeze(0)
    angles = turns % count * (2 * torch.pi / count)
    cosine, sine = torch.cos(angles), torch.sin(angles) * (1 if inverse else -1)
    if halved:
        places = torch.arange(used).unsqueeze(1)
        twice = torch.where((places == 0) | (2 * places == count), 1.0, 2.0).to(torch.float64)
        cosine, sine = cosine * twice, sine * twice
    parts = torch.movedim(x.narrow(axis, 0, used), axis, -2).to(torch.float64)  # [..., element, re or im]

    def product(part: int, matrix: Tensor) -> Tensor:
        return torch.matmul(parts[..., part].unsqueeze(-2), matrix).squeeze(-2)

    re, im = product(0, cosine), product(0, sine)
    if x.shape[-1] == 2:
        re, im = re - product(1, sine), im + product(1, cosine)
    result = re.unsqueeze(-1) if halved else torch.stack([re, im], -1)
    return torch.movedim(result / count if inverse else result, -2, axis).to(x.dtype)


@operator("DFT", known=("dft_length", "axis"), since=17)
def dft(x: Tensor, dft_length: int | None = None, axis: int = -2, *, inverse: int = 0, onesided: int = 0) -> Tensor:
    if onesided and not inverse and x.shape[-1] != 1:
        raise ValueError("one-sided of complex numbers")
    return transformed(x, dft_length, axis, inverse, onesided)


@operator("STFT", known=("frame_step", "frame_length"))
def stft(x: Tensor, frame_step: int, window: Any = None, frame_length: Any = None, *, onesided: int = 1) -> Tensor:
    size = frame_length or window.shape[0]
    count = (x.shape[1] - size) // frame_step + 1
    frames = torch.stack([x.narrow(1, frame_step * number, size) for number in range(count)], 1)
    if frames.dim() == 3:
        frames = frames.unsqueeze(-1)
    if window is not None:
        frames = frames * window.reshape([1, 1, -1, 1])
    return transformed(frames, None, 2, 0, onesided)
