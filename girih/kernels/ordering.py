"""Kernels that order lines of numbers, by NumPy: it sorts without positions, several times as fast as PyTorch with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Tensor = Any  # torch is untyped for the type checker


def sort(input: Tensor, dim: int) -> Tensor:
    """Ascending along `dim`, NaN last."""
    result = _copy(input)
    result.numpy().sort(axis=dim)
    return result


def partition(input: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """At each of the places along `dim` what sorting would put there; before it nothing larger, behind nothing less."""
    result = _copy(input)
    result.numpy().partition(tuple(places), axis=dim)
    return result


def _copy(input: Tensor) -> Tensor:
    return input.resolve_conj().to("cpu", copy=True, memory_format=torch.contiguous_format)


def partition_indices(input: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """Positions along `dim` in the order that `partition` makes."""
    return torch.from_numpy(np.argpartition(input.resolve_conj().numpy(force=True), tuple(places), axis=dim))


ORDER_KERNELS: dict[str, Callable[..., Tensor]] = {
    "girih.sort": sort,
    "girih.partition": partition,
    "girih.partition_indices": partition_indices,
}
