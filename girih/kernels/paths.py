"""Connectionist temporal classification: the loss of unaligned sequences (Graves et al., ICML 2006), by PyTorch.

PyTorch's operator also gives the sums over prefixes, whose size depends on the longest target: here the gradient makes
them again, so that loss and gradient are one tensor each and divide along the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = Any  # torch is untyped for the type checker
aten = torch.ops.aten

_LENGTHS = "Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, bool zero_infinity"
torch.library.define("girih::ctc_loss", f"(Tensor log_probs, {_LENGTHS}) -> Tensor")
torch.library.define("girih::ctc_loss_gradient", f"(Tensor grad, Tensor log_probs, {_LENGTHS}) -> Tensor")
torch.library.register_fake("girih::ctc_loss", lambda log_probs, *_: log_probs.new_empty(log_probs.shape[1]))
torch.library.register_fake("girih::ctc_loss_gradient", lambda grad, log_probs, *_: torch.empty_like(log_probs))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """[batch] of log probabilities [time, batch, classes] and targets [batch, places]."""
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return aten._ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)[0]


def ctc_loss_gradient(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    arguments = log_probs, targets, input_lengths.tolist(), target_lengths.tolist()
    return aten._ctc_loss_backward(
        grad, *arguments, *aten._ctc_loss(*arguments, blank, zero_infinity), blank, zero_infinity
    )


PATH_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.ctc_loss": ctc_loss,
    "girih.ctc_loss_gradient": ctc_loss_gradient,
}
