"""Operators that PyTorch itself writes in simpler ones: they are recorded as those."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_NAMES = (
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_weight_norm_interface",
    "_weight_norm_interface_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits",
    "glu",
    "glu_backward",
    "huber_loss",
    "huber_loss_backward",
    "log_sigmoid_backward",
    "log_sigmoid_forward",
    "mse_loss",
    "mse_loss_backward",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "soft_margin_loss",
    "soft_margin_loss_backward",
    "_safe_softmax",
)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By OpOverload, what to run in its place."""
    packets = [getattr(torch.ops.aten, name) for name in _NAMES if hasattr(torch.ops.aten, name)]
    return dict(torch._decomp.get_decompositions(packets))
