"""Sums over the paths of sequences: opaque along time and classes, a batch."""

from __future__ import annotations

from girih.ops.language import Opaque
from girih.ops.operator import operator


def prefixes(work, count):
    """Sums over prefixes, for each time and each place of a target, before and behind it (a bound)."""
    time, batch, _ = work.inputs["log_probs"].shape
    places = 2 * work.inputs["targets"].shape[1] + 1
    return count * time * batch * places * work.output.item_bytes


@operator("girih.ctc_loss", temporary=lambda work: prefixes(work, 1))
def ctc_loss(log_probs, targets, input_lengths, target_lengths):
    return lambda n: Opaque(log_probs[:, n, :], targets[n, :], input_lengths[n], target_lengths[n])[()]


@operator("girih.ctc_loss_gradient", temporary=lambda work: prefixes(work, 2) + work.inputs["grad"].bytes)
def ctc_loss_gradient(grad, log_probs, targets, input_lengths, target_lengths):
    return lambda t, n, c: Opaque(
        grad[n], log_probs[:, n, :], targets[n, :], input_lengths[n], target_lengths[n], linear=(0,)
    )[t, c]
