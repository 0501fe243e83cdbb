"""Whole numbers in the place of real ones: x ≈ (q − zero) · scale."""

from __future__ import annotations

from typing import Any

import torch

from girih.inference.onnx.operators import operator
from girih.inference.onnx.pages.products import Sizes, convolved
from girih.inference.onnx.tensors import dtype_of

Tensor = Any


def spread(scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale for each part of x, as a tensor that broadcasts to it: one number, one along an axis, or one a block."""
    if scale.dim() == 0 or scale.numel() == 1:
        return scale.reshape([])
    if scale.dim() == 1 and not block:
        return scale.reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])
    if block:
        return torch.repeat_interleave(scale, block, dim=axis).narrow(axis, 0, x.shape[axis])
    return scale


@operator("QuantizeLinear", exact=True)
def quantize(
    x: Tensor, scale: Tensor, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0, saturate: int = 1,
) -> Tensor:  # fmt: skip
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else torch.uint8
    shift = None if zero is None else spread(zero.to(torch.int64), x, axis, block_size)
    return _quantised(x, spread(scale, x, axis, block_size), shift, dtype)


def _quantised(x: Tensor, scale: Tensor, zero: Any, dtype: Any) -> Tensor:
    if dtype.is_floating_point:
        raise ValueError(f"it makes {dtype}")
    limits = torch.iinfo(dtype)
    whole = torch.round(x / scale.to(x.dtype))
    if zero is not None:
        whole = whole + zero.to(whole.dtype)
    return torch.clamp(whole, limits.min, limits.max).to(torch.int64).to(dtype)


@operator("DequantizeLinear")
def dequantize(
    x: Tensor, scale: Tensor, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    by = spread(scale, x, axis, block_size)
    values = x.to(torch.float32)
    if zero is not None:
        values = values - spread(zero, x, axis, block_size).to(torch.float32)
    return (values * by).to(dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("QLinearMatMul")
def quantised_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:  # fmt: skip
    def real(x: Tensor, zero: Tensor, axis: int) -> Tensor:
        return x.to(torch.float64) - _along(zero.to(torch.float64), axis)

    exact = torch.matmul(real(a, a_zero, -2), real(b, b_zero, -1))
    scale = _along(a_scale.to(torch.float64), -2) * b_scale.to(torch.float64) / y_scale.to(torch.float64)
    return _quantised(exact * scale, torch.ones((), dtype=torch.float64), y_zero, y_zero.dtype)


def _along(x: Tensor, axis: int) -> Tensor:
    return x.unsqueeze(-1) if axis == -2 and x.dim() == 1 and x.shape[0] > 1 else x


@operator("QLinearConv")
def quantised_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Sizes = None, group: int = 1,
    kernel_shape: Sizes = None, pads: Sizes = None, strides: Sizes = None,
) -> Tensor:  # fmt: skip
    def channels(value: Tensor, rank: int) -> Tensor:
        value = value.to(torch.float64)
        return value.reshape([-1] + [1] * rank) if value.numel() > 1 else value.reshape([])

    image = x.to(torch.float64) - x_zero.to(torch.float64)
    weight = w.to(torch.float64) - channels(w_zero, w.dim() - 1)
    bias = None if b is None else b.to(torch.float64)
    exact = convolved(image, weight, bias, auto_pad, pads, strides, dilations, group)
    scale = channels(w_scale, x.dim() - 2) * x_scale.to(torch.float64) / y_scale.to(torch.float64)
    return _quantised(exact * scale, torch.ones((), dtype=torch.float64), y_zero, y_zero.dtype)
