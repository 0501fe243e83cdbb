"""Normalisation by means and variances."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import operator

Tensor = Any


@operator("BatchNormalization", since=7)
def batch_norm(
    x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Batch norm; in training mode by the batch's own statistics, which are mixed into the running ones."""
    if not training_mode:
        return (F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon),)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    own, spread = torch.mean(x, dims), torch.var(x, dims, correction=0)
    result = F.batch_norm(x, own, spread, scale, b, False, 0.0, epsilon)
    return result, mean * momentum + own * (1 - momentum), var * momentum + spread * (1 - momentum)


@operator("BatchNormalization")
def older_batch_norm(
    x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, consumed_inputs: Any = None,
    epsilon: float = 1e-5, is_test: int = 0, momentum: float = 0.9, spatial: int = 1,
) -> Tensor:  # fmt: skip
    if not is_test or not spatial:
        raise ValueError("before opset 7 only inference (is_test = 1) with spatial = 1 is supported")
    return F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)


@operator("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    dims = list(range(2, x.dim()))
    shape = [1, -1] + [1] * len(dims)
    centred = x - torch.mean(x, dims, True)
    spread = torch.mean(centred * centred, dims, True)
    return centred * torch.rsqrt(spread + epsilon) * scale.reshape(shape) + b.reshape(shape)


@operator("LayerNormalization")
def layer_norm(
    x: Tensor, scale: Tensor, b: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm; also the mean, and the inverse of the standard deviation."""
    first = axis % x.dim()
    if scale.shape == x.shape[first:] and (b is None or b.shape == x.shape[first:]):
        return torch.native_layer_norm(x, list(x.shape[first:]), scale, b, epsilon)  # type: ignore[no-any-return]
    dims = list(range(first, x.dim()))
    wide = x.to(torch.float32)
    mean = torch.mean(wide, dims, True)
    inverse = torch.rsqrt(torch.mean((wide - mean) ** 2, dims, True) + epsilon)
    result = ((wide - mean) * inverse).to(x.dtype) * scale
    return (result if b is None else result + b), mean, inverse


@operator("MeanVarianceNormalization")
def mean_variance(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    centred = x - torch.mean(x, list(axes), True)
    return centred / (torch.sqrt(torch.mean(centred * centred, list(axes), True)) + 1e-9)


@operator("LRN")
def local_response(x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """Each number divided by a power of the sum of squares of the channels around it."""
    channels = x.shape[1]
    squares = F.pad(x * x, [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size // 2])
    total = sum(squares.narrow(1, start, channels) for start in range(size))
    return x / (bias + alpha / size * total) ** beta
