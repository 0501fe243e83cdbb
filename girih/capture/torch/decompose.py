"""Operators that can be written in simpler ones, mostly by PyTorch itself: they are recorded as those.

Those of `_NAMES`, which girih does not describe (they would run undivided), what PyTorch has only as others, and what
`rewritten.py` writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from girih.capture.torch.rewritten import OWN

_NAMES = (
    "_euclidean_dist",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_prelu_kernel",
    "_prelu_kernel_backward",
    "_safe_softmax",
    "_weight_norm_interface",
    "_weight_norm_interface_backward",
    "addr",
    "affine_grid_generator",
    "aminmax",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits",
    "block_diag",
    "bucketize",
    "celu",
    "channel_shuffle",
    "cross",
    "glu",
    "glu_backward",
    "huber_loss",
    "huber_loss_backward",
    "linalg_cross",
    "log_sigmoid_backward",
    "log_sigmoid_forward",
    "logit",
    "logit_backward",
    "mish_backward",
    "mse_loss",
    "mse_loss_backward",
    "nansum",
    "norm",
    "pixel_shuffle",
    "pixel_unshuffle",
    "renorm",
    "rot90",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "soft_margin_loss",
    "soft_margin_loss_backward",
    "special_entr",
    "special_log_ndtr",
    "trace",
    "tril_indices",
    "triu_indices",
    "upsample_trilinear3d",
)


def decomposition_of(function: Any) -> Callable[..., Any] | None:
    """What to run in place of an operator, if anything."""
    rule = _named().get(function) or _each(function)
    if rule is None and _is_composite(function):
        rule = function.decompose
    return rule


@cache
def _each(function: Any) -> Callable[..., Any] | None:
    """Of an operator of lists of tensors (`_foreach_lerp_`) that of one tensor, called for each."""
    prefix, foreach, name = function.name().partition("::_foreach_")
    name = name.partition(".")[0]
    single = getattr(torch.ops.aten, {"norm": "linalg_vector_norm"}.get(name, name), None)
    if prefix != "aten" or not foreach or single is None:
        return None

    def run(first: Any, *others: Any, **options: Any) -> list[Any] | None:
        results = []
        for number in range(len(first)):
            arguments = [item[number] if isinstance(item, (list, tuple)) else item for item in (first, *others)]
            results.append(single(*arguments, **options))
        return None if name.endswith("_") else results

    return run


@cache
def _is_composite(function: Any) -> bool:
    """Whether PyTorch has it only as other operators. Autograd takes most of these apart before we see them."""
    if function.namespace != "aten":
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CPU")
    return not has_kernel and bool(function._can_decompose())


@cache
def _named() -> dict[Any, Callable[..., Any]]:
    """By OpOverload, what to run in its place."""
    packets = [getattr(torch.ops.aten, name) for name in _NAMES if hasattr(torch.ops.aten, name)]
    return {**torch._decomp.get_decompositions(packets), **OWN}
