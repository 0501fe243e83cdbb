"""Images of another size: each position of the result is a weighted sum of positions of the input.

Along each axis that is resized, weights follow from the coordinates alone (ONNX's Resize), so that they are a matrix
that is known before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import operator

Tensor = Any


@operator("Resize", known=("roi", "scales", "sizes"))
def resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    rank = x.dim()
    chosen = [axis % rank for axis in axes] if axes is not None else list(range(rank))
    before = [x.shape[axis] for axis in chosen]
    if sizes:
        factors = [size / old for size, old in zip(sizes, before, strict=True)]
        after = list(sizes)
        if keep_aspect_ratio_policy != "stretch":
            one = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [one] * len(factors)
            after = [math.floor(one * old + 0.5) for old in before]
    else:
        factors = list(scales)
        after = [math.floor(factor * old) for factor, old in zip(factors, before, strict=True)]
    region = list(roi or [])
    for number, axis in enumerate(chosen):
        ends = (region[number], region[number + len(chosen)]) if region else (0.0, 1.0)
        crop = coordinate_transformation_mode == "tf_crop_and_resize"
        if before[number] == after[number] and factors[number] == 1 and not (crop and ends != (0.0, 1.0)):
            continue
        where = coordinates(before[number], after[number], factors[number], coordinate_transformation_mode, ends)
        if mode == "nearest" and not crop:
            places = [min(max(rounded(c, nearest_mode), 0), before[number] - 1) for c in where]
            x = torch.index_select(x, axis, torch.tensor(places, dtype=torch.int64))
            continue
        matrix = weights(
            where, before[number], factors[number], mode, nearest_mode, cubic_coeff_a, bool(exclude_outside),
            bool(antialias),
        )  # fmt: skip
        outside = [crop and not 0 <= c <= before[number] - 1 for c in where]
        moved = torch.movedim(x, axis, -1)
        kernel = torch.as_tensor(matrix.T.copy(), dtype=x.dtype if x.is_floating_point() else torch.float32)
        result = torch.matmul(moved.to(kernel.dtype), kernel)
        if any(outside):
            result = torch.where(torch.tensor(outside), torch.tensor(extrapolation_value, dtype=result.dtype), result)
        x = torch.movedim(result if x.is_floating_point() else torch.round(result).to(x.dtype), -1, axis)
    return x


@operator("Upsample", known=("scales",))
def upsample(x: Tensor, scales: Sequence[float], *, mode: str = "nearest") -> Tensor:
    return resize.function(  # type: ignore[no-any-return]
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def coordinates(size: int, out: int, scale: float, mode: str, ends: tuple[float, float]) -> list[float]:
    """Where in the input each position of the result lies. The result's size counts before it is rounded."""
    positions, length = range(out), size * scale
    if mode == "align_corners":
        return [0.0 if length == 1 else i * (size - 1) / (length - 1) for i in positions]
    if mode == "asymmetric":
        return [i / scale for i in positions]
    if mode == "pytorch_half_pixel":
        return [(i + 0.5) / scale - 0.5 if length != 1 else -0.5 for i in positions]
    if mode == "tf_half_pixel_for_nn":
        return [(i + 0.5) / scale for i in positions]
    if mode == "tf_crop_and_resize":
        first, last = ends
        if length != 1:
            return [first * (size - 1) + i * (last - first) * (size - 1) / (length - 1) for i in positions]
        return [0.5 * (first + last) * (size - 1)]
    if mode == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        offset = size / 2 * (1 - adjustment)
        return [offset + (i + 0.5) / scale - 0.5 for i in positions]
    if mode == "half_pixel":
        return [(i + 0.5) / scale - 0.5 for i in positions]
    raise ValueError(f"coordinates {mode!r} are unknown")


def rounded(at: float, mode: str) -> int:
    if mode == "round_prefer_floor":
        return math.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return math.floor(at + 0.5)
    return math.floor(at) if mode == "floor" else math.ceil(at)


def weights(
    where: Sequence[float], size: int, scale: float, mode: str, nearest: str, a: float, exclude: bool, antialias: bool
) -> np.ndarray:
    """A row for each position of the result: how much of each position of the input goes into it."""
    matrix = np.zeros((len(where), size))
    stretch = max(1.0, 1.0 / scale) if antialias else 1.0
    reach = {"nearest": 0, "linear": 1, "cubic": 2}[mode]
    for row, at in enumerate(where):
        if mode == "nearest":
            matrix[row, min(max(rounded(at, nearest), 0), size - 1)] = 1.0
            continue
        low, high = math.floor(at - reach * stretch), math.ceil(at + reach * stretch)
        amounts = {place: _kernel((place - at) / stretch, mode, a) for place in range(low, high + 1)}
        if exclude:
            amounts = {place: amount for place, amount in amounts.items() if 0 <= place < size}
        total = sum(amounts.values())
        for place, amount in amounts.items():
            matrix[row, min(max(place, 0), size - 1)] += amount / total
    return matrix


def _kernel(distance: float, mode: str, a: float) -> float:
    d = abs(distance)
    if mode == "linear":
        return max(0.0, 1.0 - d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, kind, padding_mode, bool(align_corners))
