"""Fourier transforms. Complex numbers are pairs along the last axis."""

from __future__ import annotations

from typing import Any

import torch

from girih.capture.onnx.operators import operator

Tensor = Any


def transformed(x: Tensor, length: int | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """By the definition, as a product with cosines and sines."""
    real = x.shape[-1] == 1
    axis %= x.dim()
    count = length or x.shape[axis]
    used = min(count, x.shape[axis])
    kept = count // 2 + 1 if onesided and not inverse else count
    turns = torch.arange(used, dtype=torch.float64).unsqueeze(1) * torch.arange(kept, dtype=torch.float64).unsqueeze(0)
    angles = turns % count * (2 * torch.pi / count)
    cosine, sine = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
    if not inverse:
        sine = -sine
    parts = torch.movedim(x.narrow(axis, 0, used), axis, -2)  # [..., element, re or im]
    re = torch.matmul(parts[..., 0].unsqueeze(-2), cosine).squeeze(-2)
    im = torch.matmul(parts[..., 0].unsqueeze(-2), sine).squeeze(-2)
    if not real:
        re = re - torch.matmul(parts[..., 1].unsqueeze(-2), sine).squeeze(-2)
        im = im + torch.matmul(parts[..., 1].unsqueeze(-2), cosine).squeeze(-2)
    if inverse and onesided:
        result = (re / count).unsqueeze(-1)
    else:
        result = torch.stack([re, im], -1) / (count if inverse else 1)
    return torch.movedim(result, -2, axis)


@operator("DFT", known=("dft_length", "axis"), since=17)
def dft(
    x: Tensor, dft_length: int | None = None, axis: int = -2, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    if inverse and onesided:
        raise ValueError("inverse and one-sided at once")
    if onesided and x.shape[-1] != 1:
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
