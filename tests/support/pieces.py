"""Computes one piece of a node with PyTorch alone, as the worker does with the step that a plan gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.nn.functional import pad

from girih.kernels.evaluate import call
from girih.ops.derive.divisions import Box
from girih.ops.derive.pieces import PieceCall


def cut_out(tensor: Any, box: Box) -> Any:
    """The box of a tensor or array, as a view."""
    return tensor[tuple(slice(start, stop) for start, stop in box)]


def run_piece(piece: PieceCall, tensors: Sequence[Any]) -> Any:
    """Compute a piece from the regions that it reads, as torch tensors in the order of the inputs."""
    padded = []
    for tensor, pads in zip(tensors, piece.pads, strict=True):
        if any(before or after for before, after in pads):
            flat = [amount for pair in reversed(pads) for amount in pair]
            tensor = pad(tensor, flat, value=piece.padding)
        padded.append(tensor)
    result = call(piece.operator, piece.arguments(padded))
    return result if piece.result is None else result[piece.result]
