"""Matrix products, convolutions, and what is quantised of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import each, operator

Tensor = Any
Sizes = Sequence[int] | None


ONE_EXPRESSION = each(
    {
        "Det": lambda x: torch.linalg.det(x),
        "Einsum": lambda *inputs, equation: torch.einsum(equation, *inputs),
        "MatMul": lambda a, b: torch.matmul(a, b),
    }
)


@operator("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    product = torch.matmul(a.t() if transA else a, b.t() if transB else b)
    if alpha != 1:
        product = (product * alpha).to(product.dtype)
    if c is None:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


def padded(
    x: Tensor, kernel: Sequence[int], auto_pad: str, pads: Sizes, strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """How much is padded before and after each spatial dimension, as ONNX says it: by numbers, or by the output's
    size."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", ""):
        every = list(pads or [0] * (2 * rank))
        return list(zip(every[:rank], every[rank:], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    result = []
    for size, window, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        out = -(-size // stride)
        total = max((out - 1) * stride + dilation * (window - 1) + 1 - size, 0)
        less, more = total // 2, total - total // 2
        result.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    return result


def flat(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Pairs of padding as torch's `pad` takes them: the last dimension first."""
    return [amount for pair in reversed(list(pads)) for amount in pair]


def convolved(
    x: Tensor, w: Tensor, b: Any, auto_pad: str, pads: Sizes, strides: Sizes, dilations: Sizes, group: int
) -> Tensor:
    rank = x.dim() - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    around = padded(x, w.shape[2:], auto_pad, pads, strides, dilations)
    if all(before == after for before, after in around):
        padding = [before for before, _ in around]
    else:
        x, padding = F.pad(x, flat(around)), [0] * rank
    return torch.convolution(x, w, b, strides, padding, dilations, False, [0] * rank, group)


@operator("Conv")
def conv(
    x: Tensor, w: Tensor, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Sizes = None, group: int = 1,
    kernel_shape: Sizes = None, pads: Sizes = None, strides: Sizes = None,
) -> Tensor:  # fmt: skip
    return convolved(x, w, b, auto_pad, pads, strides, dilations, group)


@operator("ConvInteger", known=("w_zero_point",))
def conv_integer(
    x: Tensor, w: Tensor, x_zero_point: Any = None, w_zero_point: Any = None, *, auto_pad: str = "NOTSET",
    dilations: Sizes = None, group: int = 1, kernel_shape: Sizes = None, pads: Sizes = None, strides: Sizes = None,
) -> Tensor:  # fmt: skip
    """A convolution of bytes, in float64, in which sums of their products are exact."""
    image = x.to(torch.float64) - (0 if x_zero_point is None else x_zero_point.to(torch.float64))
    weight = w.to(torch.float64)
    if w_zero_point is not None:
        zero = torch.as_tensor(w_zero_point, dtype=torch.float64)
        weight = weight - (zero.reshape([-1] + [1] * (w.dim() - 1)) if zero.dim() else zero)
    return convolved(image, weight, None, auto_pad, pads, strides, dilations, group).to(torch.int32)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor, w: Tensor, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Sizes = None, group: int = 1,
    kernel_shape: Sizes = None, output_padding: Sizes = None, output_shape: Sizes = None, pads: Sizes = None,
    strides: Sizes = None,
) -> Tensor:  # fmt: skip
    """Computed without padding, then cut, or grown by what no window reaches, since both ends may differ."""
    rank = x.dim() - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    more = list(output_padding or [0] * rank)
    kernel = w.shape[2:]
    whole = [
        stride * (size - 1) + add + dilation * (window - 1) + 1
        for size, stride, add, dilation, window in zip(x.shape[2:], strides, more, dilations, kernel, strict=True)
    ]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape or [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)])[
            -rank:
        ]
        cut = []
        for size, out in zip(whole, wanted, strict=True):
            total = size - out
            less, rest = total // 2, total - total // 2
            cut.append((less, rest) if auto_pad == "SAME_UPPER" else (rest, less))
    else:
        cut = padded(x, kernel, auto_pad, pads, strides, dilations)
    even = all(before == after >= 0 for before, after in cut)
    within = all(add < max(stride, dilation) for add, stride, dilation in zip(more, strides, dilations, strict=True))
    if even and within:
        padding = [before for before, _ in cut]
        return torch.convolution(x, w, b, strides, padding, dilations, True, more, group)
    result = torch.convolution(x, w, None, strides, [0] * rank, dilations, True, [0] * rank, group)
    around = [(-before, add - after) for (before, after), add in zip(cut, more, strict=True)]
    result = F.pad(result, flat(around))
    return result if b is None else result + b.reshape([1, -1] + [1] * rank)


@operator("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero_point: Any = None, b_zero_point: Any = None) -> Tensor:
    return torch.matmul(_shifted(a, a_zero_point, -2), _shifted(b, b_zero_point, -1)).to(torch.int32)


def _shifted(x: Tensor, zero: Any, axis: int) -> Tensor:
    """x − zero in float64; a zero for each row, or column."""
    if zero is None:
        return x.to(torch.float64)
    zero = zero.to(torch.float64)
    if zero.dim() == 1 and zero.shape[0] > 1 and axis == -2:
        zero = zero.unsqueeze(-1)
    return x.to(torch.float64) - zero
